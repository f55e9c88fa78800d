"""The log: the format of lines, and the events that get a line.

Every line goes to standard error, ours and libraries' alike. Bodies never get here: events
have none. Credentials don't either: a `Secret` prints as stars, and logins in URLs are cut out.
A crash may lose the last lines; the history in the store loses nothing.
"""

import logging
import re
import sys
from collections import Counter
from collections.abc import MutableMapping, Sequence
from threading import RLock
from typing import Any, Final, TextIO

import structlog

from amqsidecar.clock import Clock
from amqsidecar.model.event import (
    AnyEvent,
    CycleInDoubt,
    CycleRecovered,
    DestinationBlocked,
    Discarded,
    Event,
    Exhausted,
    Parked,
)
from amqsidecar.model.shown import shown, shown_line

MAX_TEXT: Final = 200
"""Maximum characters of causes and reasons; a cause may hold a whole stack trace."""

MAX_LINES_PER_KIND: Final = 5
"""Maximum events of a kind with a line of their own in one period; the summary counts them all."""

PERIOD_S: Final = 1.0

_LOGIN: Final = re.compile(r"(://)[^/\s@]*@")

Fields = MutableMapping[str, Any]


def configure_logs(level: str, line_format: str, stream: TextIO | None = None) -> None:
    """Send all log lines to a stream; may be called again.

    Args:
        level: debug, info, warning or error.
        line_format: `json` for collectors, anything else for people.
        stream: None = standard error.
    """
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        json_formatter()
        if line_format == "json"
        else _formatter(
            _visible, structlog.dev.ConsoleRenderer(colors=target.isatty(), timestamp_key="at")
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Why: it writes a line for each run of a job.
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def json_formatter() -> logging.Formatter:
    """Return a formatter of records, ours and libraries', that writes a line of JSON."""
    return _formatter(structlog.processors.JSONRenderer(default=str))


def _formatter(*renderers: structlog.typing.Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )


def without_logins(_logger: object, _method: str, fields: Fields) -> Fields:
    """Cut user and password out of every URL of a line."""
    for name, value in fields.items():
        if isinstance(value, str) and "://" in value:
            fields[name] = _LOGIN.sub(r"\1", value)
    return fields


def _visible(_logger: object, _method: str, fields: Fields) -> Fields:
    """Make everything visible in each text; only a traceback keeps its lines."""
    return {
        name: (shown if name == "exception" else shown_line)(value)
        if isinstance(value, str)
        else value
        for name, value in fields.items()
    }


def _in_order(_logger: object, _method: str, fields: Fields) -> Fields:
    """Put the fields of every line first."""
    first = {
        name: fields.pop(name) for name in ("at", "level", "logger", "event") if name in fields
    }
    return {**first, **fields}


_SHARED: Final[Sequence[structlog.typing.Processor]] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    structlog.processors.format_exc_info,
    without_logins,
    _in_order,
)


class LogEvents:
    """Writes lines about events: one for each problem, a summary for the rest.

    A summary counts everything of a period by type; problems beyond a few per kind and period are
    in it only. Any thread may call.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = structlog.get_logger("amqsidecar.events")
        self._lock = RLock()
        self._counts: Counter[str] = Counter()
        self._lines: Counter[type] = Counter()
        self._until_s = 0.0

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Log events that were committed."""
        if not events:
            return
        with self._lock:
            if not self._counts:
                self._until_s = self._clock.monotonic_s() + PERIOD_S
            kinds: Counter[type[Event]] = Counter(map(type, events))
            for kind, count in kinds.items():
                self._counts[str(kind.__struct_config__.tag)] += count
                if kind in _PROBLEMS:
                    self._write(kind, events)
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Write the summary once its period is over; to be called about every second."""
        with self._lock:
            if self._counts and self._clock.monotonic_s() >= self._until_s:
                self.flush()

    def flush(self) -> None:
        """Write the records that are not yet logged."""
        with self._lock:
            if self._counts:
                self._log.info("summary", **self._counts)
            self._counts.clear()
            self._lines.clear()

    def _write(self, kind: type, events: Sequence[AnyEvent]) -> None:
        for event in events:
            if type(event) is kind and (line := _line_of(event)) is not None:
                if self._lines[kind] >= MAX_LINES_PER_KIND:
                    return
                self._lines[kind] += 1
                name, fields = line
                is_loss = isinstance(event, Discarded | CycleInDoubt)
                (self._log.warning if is_loss else self._log.info)(name, **fields)


def _line_of(event: AnyEvent) -> tuple[str, dict[str, object]] | None:
    """Return name and fields of the line about an event; None = it has none."""
    match event:
        case Parked():
            return "parked", _of_message(event, reason=event.reason)
        case Exhausted() | Discarded(actor=None):
            name = "exhausted" if isinstance(event, Exhausted) else "discarded"
            return name, _of_message(event, rule=event.rule)
        case DestinationBlocked():
            return "destination_blocked", {
                "destination": event.destination,
                "reason": cut(event.reason),
                "retry_in_s": max(0, event.retry_at_ms - event.at_ms) // 1000,
            }
        case CycleRecovered():
            return "cycle_recovered", {
                "cycle": event.cycle,
                "verdict": event.verdict,
                "taken_count": event.taken_count,
                "sent_count": event.sent_count,
            }
        case CycleInDoubt():
            return "cycle_in_doubt", {
                "cycle": event.cycle,
                "taken_count": event.taken_count,
                "sent_count": event.sent_count,
                "reason": cut(event.reason),
                "meaning": _NO_DOUBT if event.doubts_nothing else _DOUBT,
            }
        case _:
            return None


def _of_message(event: Parked | Exhausted | Discarded, **texts: str) -> dict[str, object]:
    return {
        "id": event.id,
        "redelivery_id": event.redelivery_id,
        "destination": event.destination,
        **{name: cut(text) for name, text in texts.items()},
    }


_DOUBT: Final = (
    "messages that it took are kept; those that it sent are sent again or held, so copies are "
    "possible"
)
_NO_DOUBT: Final = (
    "no cycle was unfinished, so nothing is lost or doubled, unless an older copy of the store was "
    "restored"
)
_PROBLEMS: Final = frozenset(
    {Parked, Exhausted, Discarded, DestinationBlocked, CycleRecovered, CycleInDoubt}
)


def cut(text: str) -> str:
    """Return at most `MAX_TEXT` characters of a text, on one line.

    Example:
        >>> len(cut("x" * 1000))
        200
    """
    line = " ".join(text[: 2 * MAX_TEXT].split())
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 3]}..."
