"""Groups merged into another one: by patterns learned later, or by a person.

A store knows only the keys under which deaths were counted, so all others read groups here
(`tests/tidy/test_former_groups.py`).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from amqsidecar.model import row_changes
from amqsidecar.model.cause_groups import CauseGroups
from amqsidecar.model.failure import GROUPS_MAX, CountKind, FailureCount, FailureGroup
from amqsidecar.model.operation import OperationState
from amqsidecar.model.schedule import RowFilter
from amqsidecar.schedule import Schedule, ScheduleView

DEATHS: Final = (CountKind.DIED, CountKind.RETURNED)

Place = tuple[str, str]
"""A destination and the key of a group of causes."""


def learn_cause_groups(schedule: ScheduleView) -> CauseGroups:
    """Return the cause groups of a schedule, with the groups that people merged."""
    return _learn(*_keys(schedule))


def read_cause_groups(schedule: ScheduleView) -> CauseGroups:
    """As `learn_cause_groups`, for reading only: several callers share the result."""
    return _known(*_keys(schedule))


def _keys(schedule: ScheduleView) -> tuple[tuple[Place, ...], tuple[tuple[Place, str], ...]]:
    found = [
        (one.first_at_ms, one.destination, one.cause_group)
        for one in schedule.failure_groups(0, GROUPS_MAX)
    ]
    merged = [
        ((note.destination, note.cause_group), note.merged_into)
        for note in schedule.latest_notes(GROUPS_MAX)
        if note.merged_into
    ]
    return tuple(one[1:] for one in sorted(found)), tuple(merged)


def _learn(places: Iterable[Place], merged: Iterable[tuple[Place, str]]) -> CauseGroups:
    known = CauseGroups()
    for destination, group in places:
        known.add(destination, group)
    known.merged = dict(merged)
    return known


_known = lru_cache(maxsize=4)(_learn)


def current_places(schedule: ScheduleView) -> dict[Place, Place]:
    """Return the group of today of each group that died or waits."""
    known = read_cause_groups(schedule)
    died = [(one.destination, one.cause_group) for one in schedule.failure_groups(0, GROUPS_MAX)]
    wait = [(one.destination, one.cause_group) for one in schedule.group_tallies()]
    return {place: (place[0], known.find(*place)) for place in (*died, *wait)}


def read_failure_groups(schedule: ScheduleView, known: CauseGroups) -> list[FailureGroup]:
    """Return groups with the deaths of groups merged into them, the latest death first."""
    groups: dict[Place, FailureGroup] = {}
    for one in schedule.failure_groups(0, GROUPS_MAX):
        place = one.destination, known.find(one.destination, one.cause_group)
        named = msgspec.structs.replace(one, cause_group=place[1])
        groups[place] = groups[place].joined(named) if place in groups else named
    return sorted(groups.values(), key=lambda one: -one.last_at_ms)


def read_deaths(
    schedule: Schedule, known: CauseGroups, from_ms: int, until_ms: int, step_ms: int
) -> list[FailureCount]:
    """Return the counts of deaths in [from, until) by steps, by the groups of today."""
    return [
        msgspec.structs.replace(
            one,
            key=msgspec.structs.replace(
                one.key, cause_group=known.find(one.key.destination, one.key.cause_group)
            ),
        )
        for one in schedule.failure_counts(from_ms, until_ms, DEATHS, step_ms)
    ]


def move_former_rows(schedule: Schedule, known: CauseGroups, now_ms: int) -> None:
    """Move the messages of former groups to the group that each is a part of now.

    Messages stay where a running operation selects the former group; a later call moves them.
    If the process dies inside, the next call moves the rest.
    """
    selected = {
        one.selection.rows.cause_group
        for one in schedule.open_operations()
        if one.state in (OperationState.RUNNING, OperationState.PAUSED)
    }
    for tally in schedule.group_tallies():
        former = tally.cause_group
        group = known.find(tally.destination, former) if former else former
        if group != former and tally.count and former not in selected:
            rows = RowFilter(destination=tally.destination, state=tally.state, cause_group=former)
            schedule.change(rows, row_changes.regroup(group, now_ms))
