"""Additions of a batch of events to the metrics."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from amqsidecar.model.event import (
    AnyEvent,
    CycleInDoubt,
    DestinationBlocked,
    Discarded,
    Exhausted,
    Held,
    Parked,
    Received,
    Resent,
    Returned,
    Scheduled,
)

Labels = tuple[str, ...]


class EventCounts(msgspec.Struct):
    """How much a batch of events adds."""

    counts: Mapping[str, Mapping[Labels, int]]
    lateness_s: list[float]


def count_events(events: Sequence[AnyEvent]) -> EventCounts:
    """Return how much a batch adds; cheap per event."""
    counts: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
    received = counts["amqsidecar_dead_letters_received_total"]
    decisions = counts["amqsidecar_decisions_total"]
    resent = counts["amqsidecar_resent_total"]
    lateness_s = []
    died_at: dict[int, str] = {}
    for event in events:
        match event:
            case Received() | Returned():
                died_at[event.id] = event.origin or event.source
                received[(died_at[event.id],)] += 1
            case Scheduled():
                decisions["redeliver", rule_kind(event.rule)] += 1
                counts["amqsidecar_scheduled_total"][()] += 1
            case Resent():
                resent[(event.destination,)] += 1
                lateness_s.append(event.lateness_ms / 1000)
            case Exhausted():
                decisions["dead_letter", rule_kind(event.rule)] += 1
                # Why the other: what a person gives up was received long ago.
                place = died_at.get(event.id, event.destination)
                counts["amqsidecar_exhausted_total"][(place,)] += 1
            case Discarded():
                decisions["discard", rule_kind(event.rule)] += 1
                counts["amqsidecar_discarded_total"][(event.destination,)] += 1
            case Parked():
                decisions["park", "sidecar"] += 1
            case Held() if event.actor is None:
                decisions["hold", "sidecar"] += 1
            case DestinationBlocked():
                counts["amqsidecar_destinations_blocked_total"][()] += 1
            case CycleInDoubt():
                counts["amqsidecar_cycles_in_doubt_total"][()] += 1
            case _:
                pass
    return EventCounts(counts, lateness_s)


@lru_cache(maxsize=4096)
def rule_kind(rule: str) -> str:
    """Return which family of rules decided.

    Args:
        rule: as decisions carry it; after rules that passed it on (`a -> b`), the last decided.

    Example:
        >>> rule_kind('redeliveryPolicy queue="A" -> sharedDeadLetterStrategy (activemq.xml:9)')
        'dead_letter'
    """
    word = rule.rsplit(" -> ", 1)[-1].split(" ", 1)[0]
    if word == "rule":
        return "rules"
    if word.startswith("redelivery"):
        return "redelivery"
    if word.startswith("discardingDLQ"):
        return "discarding"
    if word.endswith("DeadLetterStrategy") or word == "discarding":
        return "dead_letter"
    if word in ("address-setting", "broker", "no"):
        return "address_settings"
    return "other"
