"""Groups of failures by destination and cause, notes of people on them, and counts by time.

The store updates counts by differences as events are written, so a screen's cost does not grow with
the history.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, cast

import msgspec

from amqsidecar.model.cause import GROUP_MAX, NO_REASON, cause_group
from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Discarded,
    Exhausted,
    Explained,
    Parked,
    Received,
    Resent,
    Returned,
)
from amqsidecar.model.schedule import RowState

BUCKET_MS: Final = 60_000
"""Events are counted by the minute."""

MINUTES_KEPT_MS: Final = 2 * 3_600_000
"""Older counts are merged to `MERGED_STEP_MS`, and still older counts to hours."""

MERGED_STEP_MS: Final = 5 * 60_000

MERGED_BACK_MS: Final = 3_600_000
"""Older counts are not searched when minutes are merged: they are merged to hours later."""

EXPIRED: Final = "(expired)"
"""The group of expired messages without a cause."""

MORE: Final = "(more)"
"""The group of deaths whose group is not recorded."""

GROUPS_MAX: Final = 5_000
"""Maximum groups remembered; deaths of further groups are counted as `MORE`."""


_VALUE_MAX: Final = 60


def failure_cause(cause: str | None, *, expired: bool) -> str:
    """Return the group that a death belongs to by its cause; never empty."""
    group = cause_group(cause) if cause else NO_REASON
    return EXPIRED if expired and group == NO_REASON else group


def group_with(group: str, values: Sequence[tuple[str, str]]) -> str:
    """Return the group of deaths that share a cause group and values of fields.

    At most `GROUP_MAX` characters, on one line; long values and names are cut.

    Example:
        >>> group_with("(no reason given)", [("errorCode", "E42"), ("JMSType", "order")])
        '(no reason given) [errorCode=E42, JMSType=order]'
    """
    told = ", ".join(f"{plain_value(name)}={plain_value(value)}" for name, value in values)
    told = f" [{told[: GROUP_MAX // 2]}]"
    return group[: GROUP_MAX - len(told)].rstrip() + told


def plain_value(text: str) -> str:
    """Return the beginning of a value, on one line and without unprintable characters."""
    shown = "".join(one if one.isprintable() else " " for one in text[: 2 * _VALUE_MAX])
    return " ".join(shown.split())[:_VALUE_MAX]


def death_group(event: Received) -> str:
    """Return the group that a death belongs to; never empty."""
    return event.cause_group or failure_cause(event.cause, expired=event.expired)


class CountKind(StrEnum):
    """The kinds of counts, named like their events."""

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
    """The key of a count.

    Attributes:
        bucket_ms: begin of its minute, milliseconds since the epoch.
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

    def joined(self, later: "FailureGroup") -> "FailureGroup":
        """Return this with deaths reported later; the example is the one that died last."""
        last = later if later.last_at_ms >= self.last_at_ms else self
        return msgspec.structs.replace(
            last,
            first_at_ms=min(self.first_at_ms, later.first_at_ms),
            total=self.total + later.total,
        )


CountFields = tuple[int, CountKind, str, str, int]
"""The fields of a `CountKey`, in their order."""


class Failures(NamedTuple):
    """Additions of events to the counts and groups of failures.

    Attributes:
        counts: how many events there are of each key.
        groups: of the deaths among them, by destination and cause group.
    """

    counts: dict[CountFields, int]
    groups: dict[tuple[str, str], FailureGroup]


_RETURNED: Final = CountKind.RETURNED
_RESENT: Final = CountKind.RESENT
_KINDS: Final[Mapping[type, CountKind]] = {
    Received: CountKind.DIED,
    Returned: CountKind.RETURNED,
    Resent: CountKind.RESENT,
    Exhausted: CountKind.EXHAUSTED,
    Discarded: CountKind.DISCARDED,
    Parked: CountKind.PARKED,
    Cancelled: CountKind.CANCELLED,
    DeadLettered: CountKind.DEAD_LETTERED,
}


def failures_of(events: Iterable[AnyEvent]) -> Failures:
    """Return the additions of events to the counts and to the groups."""
    # Why so plain: it looks at each event of each cycle, most of which have the same time.
    counts: dict[CountFields, int] = {}
    examples: dict[CountFields, str] = {}
    known: dict[str | None, str] = {}
    for event in events:
        kind = _KINDS.get(type(event))
        if kind is None:
            if isinstance(event, Explained) and event.former_group:
                _move_death(event, counts, examples)
            continue
        if isinstance(event, Received):
            cause = event.cause
            group = event.cause_group or known.get(cause)
            if group is None:
                group = failure_cause(cause, expired=event.expired)
                if cause:
                    known[cause] = group
            attempt = event.redelivery_count if kind is _RETURNED else 0
            key = (event.at_ms, kind, event.origin or event.source, group, attempt)
            examples[key] = event.redelivery_id
        else:
            counted = cast("Resent", event)  # All others have a destination, and count once.
            attempt = counted.redelivery_count if kind is _RESENT else 0
            key = (event.at_ms, kind, counted.destination, "", attempt)
        counts[key] = counts.get(key, 0) + 1
    return _by_bucket(counts, examples)


def _move_death(
    event: Explained, counts: dict[CountFields, int], examples: dict[CountFields, str]
) -> None:
    """Take a death out of the group that it was counted in, and add it to the right one."""
    kind = _RETURNED if event.attempt else CountKind.DIED
    for group, count in ((event.former_group, -1), (event.cause_group, 1)):
        key = (event.died_at_ms, kind, event.destination, group, event.attempt)
        examples[key] = event.redelivery_id
        counts[key] = counts.get(key, 0) + count


def _by_bucket(
    counts: dict[CountFields, int],
    examples: dict[CountFields, str],
) -> Failures:
    totals = Counter[CountFields]()
    groups: dict[tuple[str, str], FailureGroup] = {}
    for key, count in counts.items():
        at_ms, kind, destination, group, attempt = key
        totals[at_ms - at_ms % BUCKET_MS, kind, destination, group, attempt] += count
        if (example := examples.get(key)) is not None:
            place = destination, group
            death = FailureGroup(
                destination=destination,
                cause_group=group,
                first_at_ms=at_ms,
                last_at_ms=at_ms,
                total=count,
                example_id=example,
            )
            groups[place] = death if place not in groups else groups[place].joined(death)
    return Failures(totals, groups)


class GroupTally(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows there are of one cause at one destination in one state; see `Tally`.

    Attributes:
        cause_group: "" = taken before causes were grouped.
    """

    destination: str
    state: RowState
    cause_group: str
    count: int


LATEST_KEPT: Final = 20
"""Maximum notes kept per group; the oldest are removed."""


class GroupNote(msgspec.Struct, frozen=True, kw_only=True):
    """A note on the failures of one cause at one destination; kept as long as the group.

    The latest note of a group has its owner, its snooze and its mute, and the group it is merged
    into.

    Attributes:
        author: its writer, as events name people.
        text: may be empty where it changes owner or snooze.
        owner: the person responsible from here on; "" = none.
        snoozed_until_ms: until then it is out of sight, unless one more dies of it; 0 = it isn't.
        muted_deaths: it is out of sight until its trend is up from this number of deaths an hour;
            None = it isn't muted.
        merged_into: cause group of the same destination that it is a part of; "" = it stands alone.
    """

    destination: str
    cause_group: str
    at_ms: int
    author: str
    text: str
    owner: str = ""
    snoozed_until_ms: int = 0
    muted_deaths: int | None = None
    merged_into: str = ""
