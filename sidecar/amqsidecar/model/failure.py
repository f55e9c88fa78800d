"""What dies, why, and how often: groups of failures, and counts by time.

Counts are kept in the store by differences, as the events are written, so that a screen costs the
same whatever the history holds.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.cause import cause_group
from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Discarded,
    Exhausted,
    Parked,
    Received,
    Resent,
    Returned,
)
from amqsidecar.model.schedule import RowState

BUCKET_MS: Final = 5 * 60_000
"""Events are counted by the five minutes that they lie in."""

EXPIRED: Final = "(expired)"
"""The group of what expired without a word of anybody."""

NO_REASON: Final = "(no reason given)"
"""The group of what died without a word of anybody."""


def failure_cause(cause: str | None, *, expired: bool) -> str:
    """Return the group that a death belongs to by its cause; never empty."""
    if cause:
        return cause_group(cause)
    return EXPIRED if expired else NO_REASON


class CountKind(StrEnum):
    """What is counted; the kinds of events of the same names."""

    DIED = "died"
    """Received: died for the first time, as far as the sidecar knows."""
    RETURNED = "returned"
    RESENT = "resent"
    EXHAUSTED = "exhausted"
    DISCARDED = "discarded"
    PARKED = "parked"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"


class CountKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a count is of.

    Attributes:
        bucket_ms: begin of its five minutes, milliseconds since the epoch.
        destination: where it died, else the dead-letter queue; of RESENT and the others where to.
        cause_group: of DIED and RETURNED, by `failure_cause`; "" = of no cause.
        attempt: RESENT: number of the redelivery, 1-based; RETURNED: of the one that failed;
            others: 0.
    """

    bucket_ms: int
    kind: CountKind
    destination: str
    cause_group: str = ""
    attempt: int = 0


class FailureCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many events there were of one key."""

    key: CountKey
    count: int


def counts_of(events: Iterable[AnyEvent]) -> Counter[CountKey]:
    """Return what events add to the counts."""
    counts = Counter[CountKey]()
    for event in events:
        key = _key(event)
        if key is not None:
            counts[key] += 1
    return counts


def _key(event: AnyEvent) -> CountKey | None:
    bucket_ms = event.at_ms - event.at_ms % BUCKET_MS
    match event:
        case Received():
            has_returned = isinstance(event, Returned)
            return CountKey(
                bucket_ms=bucket_ms,
                kind=CountKind.RETURNED if has_returned else CountKind.DIED,
                destination=event.origin or event.source,
                cause_group=failure_cause(event.cause, expired=event.expired),
                attempt=event.redelivery_count if has_returned else 0,
            )
        case Resent():
            return CountKey(
                bucket_ms=bucket_ms,
                kind=CountKind.RESENT,
                destination=event.destination,
                attempt=event.redelivery_count,
            )
        case Exhausted() | Discarded() | Parked() | Cancelled() | DeadLettered():
            kind = CountKind(str(event.__struct_config__.tag))
            return CountKey(bucket_ms=bucket_ms, kind=kind, destination=event.destination)
        case _:
            return None


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of one cause at one destination; remembered as long as the history.

    Attributes:
        first_at_ms: when one died of it for the first time.
        last_at_ms: when one died of it last.
        total: deaths altogether, returns too.
        example_id: redelivery id of the last one.
    """

    destination: str
    cause_group: str
    first_at_ms: int
    last_at_ms: int
    total: int
    example_id: str


class GroupTally(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows there are of one cause at one destination in one state; see `Tally`.

    Attributes:
        cause_group: "" = taken before causes were grouped.
    """

    destination: str
    state: RowState
    cause_group: str
    count: int
