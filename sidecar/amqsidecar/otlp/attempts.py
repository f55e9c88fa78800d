"""Events of a cycle to attempts: a death that was settled, or a send."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from amqsidecar.model.cause import cause_classes
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.event import (
    AnyEvent,
    DeadLettered,
    Discarded,
    Exhausted,
    Held,
    Parked,
    Received,
    Resent,
    Scheduled,
)
from amqsidecar.model.failure import death_group
from amqsidecar.model.shown import shown_line

TEXT_MAX: Final = 1_000
"""Maximum characters of a text."""

AttributeValue = str | int | bool

_DECISIONS: Final[Mapping[type[AnyEvent], str]] = {
    Scheduled: "redeliver",
    Exhausted: "dead_letter",
    Discarded: "discard",
    Parked: "park",
    Held: "hold",
}


class AttemptSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One span.

    Attributes:
        operation: `settle` = the decision on a death; `send` = a redelivery, or the send to the
            final dead-letter queue.
        destination: the queue that was read or sent to.
        is_first: whether it is the first death of the message, whose span the others are below.
        producer: `traceparent` of the message; "" = none, or not known here.
        lateness_s: of a redelivery; None = it is none.
        attributes: texts are harmless and short.
    """

    operation: str
    destination: str
    redelivery_id: str
    start_ms: int
    is_first: bool = False
    producer: str = ""
    lateness_s: float | None = None
    attributes: Mapping[str, AttributeValue]


def attempts_of(events: Sequence[AnyEvent]) -> Iterator[AttemptSpan]:
    """Yield the attempts of one cycle, deaths first; events about other things are passed over."""
    deaths: dict[int, tuple[Received, list[AnyEvent]]] = {}
    for event in events:
        if isinstance(event, Received):
            deaths[event.id] = event, []
        elif type(event) in _DECISIONS and event.id in deaths:
            deaths[event.id][1].append(event)
    for died, decisions in deaths.values():
        yield _settled(died, decisions)
    for event in events:
        if isinstance(event, Resent | DeadLettered):
            yield _sent(event)


def is_attempt(event: AnyEvent) -> bool:
    """Return whether an event is a span of its own."""
    return isinstance(event, Received | Resent | DeadLettered)


def _settled(died: Received, decisions: Sequence[AnyEvent]) -> AttemptSpan:
    found: dict[str, AttributeValue | None] = {
        "messaging.message.id": died.message_id,
        "messaging.message.envelope.size": died.size_bytes,
        "amqsidecar.attempt": died.redelivery_count + 1,
        "amqsidecar.origin": died.origin and _name(died.origin),
        "amqsidecar.cause_type": next(iter(cause_classes(death_group(died))[-1:]), None),
        "amqsidecar.expired": died.expired or None,
    }
    for event in decisions:
        found["amqsidecar.decision"] = _DECISIONS[type(event)]
        match event:
            case Scheduled():
                found |= {"amqsidecar.rule": event.rule, "amqsidecar.delay_ms": event.delay_ms}
            case Exhausted() | Discarded():
                found["amqsidecar.rule"] = event.rule
            case _:
                pass
    return AttemptSpan(
        operation="settle",
        destination=_name(died.source),
        redelivery_id=died.redelivery_id,
        start_ms=died.at_ms,
        is_first=died.redelivery_count == 0,
        producer=died.traceparent,
        attributes=_harmless(died, found),
    )


def _sent(event: Resent | DeadLettered) -> AttemptSpan:
    lateness_ms = None if isinstance(event, DeadLettered) else event.lateness_ms
    found: dict[str, AttributeValue | None] = {
        "amqsidecar.attempt": event.redelivery_count + 1,
        "amqsidecar.final": lateness_ms is None or None,
        "amqsidecar.lateness_ms": lateness_ms,
    }
    return AttemptSpan(
        operation="send",
        destination=_name(event.destination),
        redelivery_id=event.redelivery_id,
        start_ms=event.at_ms,
        lateness_s=None if lateness_ms is None else lateness_ms / 1000,
        attributes=_harmless(event, found),
    )


def _name(destination: str) -> str:
    return shown_line(parse_destination(destination).name)[:TEXT_MAX]


def _harmless(
    event: AnyEvent, found: Mapping[str, AttributeValue | None]
) -> Mapping[str, AttributeValue]:
    """Return the attributes that have a value, with control characters of senders made visible."""
    named = {"amqsidecar.redelivery_id": event.redelivery_id, **found}
    return {
        name: shown_line(value)[:TEXT_MAX] if isinstance(value, str) else value
        for name, value in named.items()
        if value is not None
    }
