"""How the SQLite store counts failures: by time, kind and group, and the groups themselves."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import (
    GROUPS_MAX,
    MERGED_BACK_MS,
    MERGED_STEP_MS,
    MORE,
    CountKind,
    FailureGroup,
    Failures,
    failures_of,
)
from amqsidecar.stores.packing import storable
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.events import write_block

_HOUR_MS: Final = 3_600_000
KINDS = tuple(CountKind)
"""By their numbers."""

KIND_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


def add_failures(database: SqliteDatabase, failures: Failures) -> None:
    """Add to the counts and to the groups; a statement or two for each group, none for events.

    Args:
        database: in a transaction.
        failures: as counted from events.
    """
    groups = failures.groups | {
        (key[2], ""): no_deaths(key[0], key[2]) for key in sorted(failures.counts) if not key[3]
    }
    numbers = _Groups(database).add(groups)
    database.query_each(
        "add_failure_count",
        [
            (bucket_ms, KIND_NUMBERS[kind], numbers[destination, group], attempt, count)
            for (bucket_ms, kind, destination, group, attempt), count in failures.counts.items()
        ],
    )


def record_events(database: SqliteDatabase, events: Sequence[AnyEvent]) -> None:
    """Write events that count at once.

    Args:
        database: in a transaction.
        events: in their order.
    """
    write_block(database, events)
    add_failures(database, failures_of(events))


def no_deaths(bucket_ms: int, destination: str, cause_group: str = "") -> FailureGroup:
    """Return a group without deaths, for counts of events without a cause."""
    return FailureGroup(
        destination=destination,
        cause_group=cause_group,
        first_at_ms=bucket_ms,
        last_at_ms=bucket_ms,
        total=0,
        example_id="",
    )


class _Groups:
    """Adds to groups; asks only once how many there are, where one is new."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._room: int | None = None

    def add(self, groups: Mapping[tuple[str, str], FailureGroup]) -> dict[tuple[str, str], int]:
        """Add to the groups; return their numbers."""
        return {place: self._add(group) for place, group in groups.items()}

    def _add(self, group: FailureGroup) -> int:
        for known in self._database.query("add_to_group", _values(group)):
            return int(known[0])
        if group.total and group.cause_group != MORE and not self._take_room():
            return self._add(msgspec.structs.replace(group, cause_group=MORE))
        (new,) = self._database.query("add_group", _values(group)).fetchall()
        return int(new[0])

    def _take_room(self) -> bool:
        if self._room is None:
            (found,) = self._database.query("count_groups", (GROUPS_MAX,)).fetchall()
            self._room = GROUPS_MAX - found[0]
        self._room -= 1
        return self._room >= 0


def _values(group: FailureGroup) -> dict[str, int | str]:
    return {
        "destination": storable(group.destination),
        "cause_group": group.cause_group,
        "first_at_ms": group.first_at_ms,
        "last_at_ms": group.last_at_ms,
        "total": group.total,
        "example_id": storable(group.example_id),
    }


def forget_counts(
    database: SqliteDatabase,
    before_ms: int,
    hours_before_ms: int,
    limit: int,
    steps_before_ms: int = 0,
) -> int:
    """Remove counts and groups that are too old, and merge older counts; see `forget_ledger`.

    Returns:
        How many rows went.
    """
    old = database.query("old_counts", (before_ms, limit)).fetchall()
    fine = database.query("fine_counts", (hours_before_ms, limit)).fetchall()
    since_ms = max(hours_before_ms, steps_before_ms - MERGED_BACK_MS)
    minutes = database.query("minute_counts", (since_ms, steps_before_ms, limit)).fetchall()
    database.query_each(
        "add_failure_count",
        [
            (bucket_ms - bucket_ms % step_ms, kind, group, attempt, count)
            for step_ms, counts in ((_HOUR_MS, fine), (MERGED_STEP_MS, minutes))
            for bucket_ms, kind, group, attempt, count in counts
            if bucket_ms >= before_ms
        ],
    )
    gone = {row[:4] for row in (*old, *fine, *minutes)}
    database.query_each("delete_failure_count", gone)
    # Invariant: no count is of a time after its group's last event.
    if len(old) == limit:
        return len(gone)
    return len(gone) + len(database.query("forget_groups", (before_ms, limit)).fetchall())
