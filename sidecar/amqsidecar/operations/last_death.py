"""The last death of a message, with its consumer's words, and its place in a log system."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec

from amqsidecar.model.event import AMBIGUOUS, AnyEvent, Explained, Received
from amqsidecar.model.trace_context import (
    is_sampled,
    own_context,
    parse_traceparent,
    sampling_limit,
)

AROUND_MS: Final = 5 * 60_000
"""The times from and to of a link are so long before and after the death."""

PLACEHOLDERS: Final = (
    *("from", "to", "from_ms", "to_ms", "consumer", "trace_id", "attempts_trace_id"),
)
"""The names that the template of a link may have in braces."""

_PLACEHOLDER = re.compile(r"\{(\w*)\}")


class LastDeath(msgspec.Struct, frozen=True, kw_only=True):
    """The last death of a message.

    Attributes:
        cause: in the consumer's words or the broker's, with the stack trace if there is one; None =
            no reason is known.
        consumer: the application; "" = no note named one.
        trace_id: of the delivery that failed, else of the producer; "" = not known.
    """

    redelivery_id: str
    at_ms: int
    cause: str | None
    consumer: str = ""
    trace_id: str = ""


def last_death(history: Iterable[AnyEvent]) -> LastDeath | None:
    """Return the last death in the history of a message; None = it has none."""
    found: LastDeath | None = None
    for event in history:
        if isinstance(event, Received):
            found = LastDeath(
                redelivery_id=event.redelivery_id,
                at_ms=event.at_ms,
                cause=event.cause,
                trace_id=_trace_id(event.traceparent),
            )
        elif isinstance(event, Explained) and found is not None and event.answer != AMBIGUOUS:
            found = msgspec.structs.replace(
                found,
                cause=event.cause or found.cause,
                consumer=event.consumer,
                trace_id=_trace_id(event.traceparent) or found.trace_id,
            )
    return found


def _trace_id(traceparent: str) -> str:
    context = parse_traceparent(traceparent)
    return "" if context is None else context.trace_id


def placeholders(template: str) -> list[str]:
    """Return the names in braces of the template of a link."""
    return _PLACEHOLDER.findall(template)


def log_links(
    templates: Mapping[str, str], traced_share: float, death: LastDeath | None
) -> dict[str, str]:
    """Return addresses in log systems by name; an address that needs an unknown value is left out.

    Args:
        templates: by name, with `PLACEHOLDERS` in braces.
        traced_share: of messages, whose attempts are spans.
        death: None = no known death.
    """
    if death is None:
        return {}
    is_traced = is_sampled(death.redelivery_id, sampling_limit(traced_share))
    from_ms, to_ms = max(0, death.at_ms - AROUND_MS), death.at_ms + AROUND_MS
    values = {
        "from": _iso(from_ms),
        "to": _iso(to_ms),
        "from_ms": str(from_ms),
        "to_ms": str(to_ms),
        "consumer": death.consumer,
        "trace_id": death.trace_id,
        "attempts_trace_id": own_context(death.redelivery_id).trace_id if is_traced else "",
    }
    return {
        name: _PLACEHOLDER.sub(lambda found: quote(values[found[1]], safe=""), template)
        for name, template in templates.items()
        if all(values[wanted] for wanted in placeholders(template))
    }


LogLinks = Callable[[LastDeath | None], Mapping[str, str]]
"""A death to addresses in log systems, by name; see `log_links`."""


def no_links(_death: LastDeath | None) -> Mapping[str, str]:
    """Return none."""
    return {}


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
