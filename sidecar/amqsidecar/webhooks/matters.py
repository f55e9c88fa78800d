"""Reads the matters of a schedule and its sidecar that subscriptions report."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from amqsidecar.engine.foreign_tokens import describe
from amqsidecar.model.cause_groups import CauseGroups
from amqsidecar.model.failure import GROUPS_MAX
from amqsidecar.model.foreign_token import orphans
from amqsidecar.model.group_note import GroupNote
from amqsidecar.model.operation import Operation, OperationState, awaits_second
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.failures.former_groups import Place, read_failure_groups
from amqsidecar.operations.failures.groups import DAY_MS
from amqsidecar.operations.overview import RecoveryState, read_recoveries
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.health import Readiness
from amqsidecar.webhooks.outbox import Kind, Matter

_OPERATIONS: Final = 50
_DESTINATIONS: Final = 500
_LOST_S: Final = 120.0
"""An instance without a sign of life for so long is not taken over any moment."""

OwnerOf = Callable[[str], str]


class WantedMatters(msgspec.Struct, frozen=True, kw_only=True):
    """What a subscription is about.

    Attributes:
        kinds: of matters.
        is_about: whether a destination is meant; None = all are, and what has no destination is.
        owners: empty = any.
        oldest_ms: age of the oldest message of a destination from which on it is reported.
    """

    kinds: frozenset[Kind]
    is_about: Callable[[str], bool] | None = None
    owners: frozenset[str] = frozenset()
    oldest_ms: int = DAY_MS

    def wants(self, matter: Matter) -> bool:
        """Whether it is about a matter."""
        is_here = self.is_about is None or (
            bool(matter.destination) and self.is_about(matter.destination)
        )
        return is_here and (not self.owners or matter.owner in self.owners)


def read_groups_of(
    schedule: Schedule, known: CauseGroups, since_ms: int, now_ms: int, owner_of: OwnerOf
) -> dict[Kind, list[Matter]]:
    """Return new causes and exhausted messages; costs no scan of rows.

    Args:
        schedule: an open one.
        known: by `read_cause_groups`.
        since_ms: causes that began before are not new.
        now_ms: the time.
        owner_of: the team of a destination.
    """
    notes: dict[Place, GroupNote] = {}
    for note in schedule.latest_notes(GROUPS_MAX):
        place = note.destination, known.find(note.destination, note.cause_group)
        if note.cause_group == place[1] or place not in notes:
            notes[place] = note

    def matter(kind: Kind, place: Place, count: int, since_ms: int, last_ms: int) -> Matter:
        note = notes.get(place)
        return Matter(
            kind=kind,
            destination=place[0],
            cause_group=place[1],
            count=count,
            since_ms=since_ms,
            last_ms=last_ms,
            owner=(note.owner if note else "") or owner_of(place[0]),
            is_quiet=note is not None and note.snoozed_until_ms > now_ms,
        )

    new = []
    groups = {}
    for one in read_failure_groups(schedule, known):
        place = one.destination, one.cause_group
        groups[place] = one
        if one.first_at_ms >= max(since_ms, now_ms - DAY_MS):
            times = one.first_at_ms, one.last_at_ms
            new.append(matter(Kind.NEW_CAUSE, place, one.total, *times))
    counts: dict[Place, int] = {}
    for tally in schedule.group_tallies():
        if tally.state is RowState.EXHAUSTED and tally.count:
            place = tally.destination, known.find(tally.destination, tally.cause_group)
            counts[place] = counts.get(place, 0) + tally.count
    exhausted = []
    for place, count in counts.items():
        group = groups.get(place)
        times = (group.first_at_ms, group.last_at_ms) if group else (now_ms, now_ms)
        exhausted.append(matter(Kind.EXHAUSTED, place, count, *times))
    return {Kind.NEW_CAUSE: new, Kind.EXHAUSTED: exhausted}


def read_operations_of(schedule: Schedule, owner_of: OwnerOf) -> list[Matter]:
    """Return operations that wait for a second person, or stopped by themselves."""
    return [
        Matter(
            kind=Kind.OPERATION,
            destination=(place := _place_of(one)),
            reference=f"{one.id} {one.state}",
            since_ms=one.created_at_ms,
            last_ms=one.created_at_ms,
            owner=owner_of(place) if place else "",
            text=f"Operation {one.id}, {one.action.word} by {one.actor}, {reason}",
        )
        for one in schedule.operations(_OPERATIONS)
        if (reason := _reason_of(one))
    ]


def _place_of(operation: Operation) -> str:
    return operation.selection.rows.destination or operation.target or ""


def _reason_of(operation: Operation) -> str:
    if awaits_second(operation):
        return "waits for a second person"
    if operation.state is OperationState.STOPPED:
        return f"stopped by itself: {operation.state_reason}"
    return ""


def read_recoveries_of(schedule: Schedule, now_ms: int, owner_of: OwnerOf) -> list[Matter]:
    """Return destinations whose re-sent messages come back; where it is not clear, quiet."""
    return [
        Matter(
            kind=Kind.NOT_RECOVERING,
            destination=one.destination,
            since_ms=one.since_ms,
            last_ms=now_ms,
            owner=owner_of(one.destination),
            text=f"{one.destination} does not recover: {one.came_back.part} of "
            f"{one.came_back.whole} re-sent messages came back",
            is_quiet=one.state is not RecoveryState.FAILS,
            is_over=one.state is RecoveryState.HOLDS,
        )
        for one in read_recoveries(schedule, now_ms)
    ]


def read_oldest_of(
    schedule: Schedule, oldest_ms: int, now_ms: int, owner_of: OwnerOf
) -> Iterator[Matter]:
    """Yield destinations whose oldest message was taken too long ago; one query each."""
    places = sorted({one.destination for one in schedule.tallies() if one.count})
    for place in places[:_DESTINATIONS]:
        rows = schedule.list_rows(RowFilter(destination=place), 1)
        if rows and now_ms - rows[0].received_at_ms > oldest_ms:
            yield Matter(
                kind=Kind.OLDEST,
                destination=place,
                since_ms=rows[0].received_at_ms,
                last_ms=now_ms,
                owner=owner_of(place),
                text=f"The oldest message of {place} waits for too long",
            )


def read_stranded(schedule: Schedule, readiness: Readiness, now_ms: int) -> Sequence[Matter]:
    """Return schedules, or shares of this one, whose messages no sidecar sends."""
    found = {
        one.instance: f"The schedule of {describe(one)} has no sidecar: its messages are not sent"
        for one in orphans(readiness.other_schedules)
    }
    for one in schedule.instances():
        if not one.is_held and one.unfinished_cycle and one.seen_seconds_ago > _LOST_S:
            found[one.instance] = (
                f"The last cycle of the lost sidecar {one.instance} is not settled: its messages "
                "are not sent"
            )
    return [
        Matter(kind=Kind.STRANDED, reference=name, since_ms=now_ms, last_ms=now_ms, text=text)
        for name, text in found.items()
    ]
