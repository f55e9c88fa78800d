"""Lines of the log and of the audit to records of OTLP."""

import json
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from amqsidecar.model.shown import shown
from amqsidecar.otlp.signals import DROPPED, OtlpSignal
from amqsidecar.telemetry import audit
from amqsidecar.telemetry.logs import json_formatter
from amqsidecar.telemetry.metrics import Metrics

LINES_MAX: Final = 2_000
"""Maximum lines that wait for the receiver; more are dropped."""

TEXT_MAX: Final = 10_000
"""Maximum characters of a text, such as a traceback."""

_SEVERITIES: Final = {
    "debug": SeverityNumber.DEBUG,
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
    "critical": SeverityNumber.FATAL,
}


class OtlpLines(logging.Handler):
    """Keeps lines until they are sent; never waits.

    Attributes:
        waiting: the oldest first.

    Args:
        resource: this process.
        metrics: count dropped lines.
        sender: name of the sending thread, whose own lines are skipped: they would never end.
    """

    def __init__(self, resource: Resource, metrics: Metrics, sender: str) -> None:
        super().__init__()
        self.waiting: deque[ReadableLogRecord] = deque()
        self._resource = resource
        self._metrics = metrics
        self._sender = sender
        self.setFormatter(json_formatter())

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear the log and the audit while the block runs."""
        loggers = logging.getLogger(), audit.logger
        for one in loggers:
            one.addHandler(self)
        try:
            yield
        finally:
            for one in loggers:
                one.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, or count it as dropped."""
        if record.threadName == self._sender:
            return
        if len(self.waiting) >= LINES_MAX:
            self._metrics.add(DROPPED, 1, OtlpSignal.LOGS)
            return
        try:
            is_audit = record.name == audit.logger.name
            fields = json.loads(record.getMessage() if is_audit else self.format(record))
            self.waiting.append(self._record(record, fields))
        except Exception:  # noqa: BLE001 - whoever writes a line must not fail by it
            self.handleError(record)

    def _record(self, record: logging.LogRecord, fields: dict[str, Any]) -> ReadableLogRecord:
        body = fields.pop("message" if "message" in fields else "event", "")
        level = fields.pop("log.level", None) or fields.pop("level", "info")
        at_ns = round(record.created * 1_000_000_000)
        return ReadableLogRecord(
            LogRecord(
                timestamp=at_ns,
                observed_timestamp=at_ns,
                severity_text=level,
                severity_number=_SEVERITIES.get(level, SeverityNumber.UNSPECIFIED),
                body=_harmless(body),
                attributes={
                    name: _harmless(value)
                    for name, value in fields.items()
                    if value is not None and name not in ("at", "@timestamp", "logger")
                },
            ),
            self._resource,
            InstrumentationScope(record.name),
        )


def _harmless(value: Any) -> Any:
    """Return a value in which no text acts on a screen, or is too long."""
    match value:
        case str():
            return shown(value[:TEXT_MAX])
        case list():
            return [_harmless(one) for one in value]
        case dict():
            return {name: _harmless(one) for name, one in value.items()}
        case _:
            return value
