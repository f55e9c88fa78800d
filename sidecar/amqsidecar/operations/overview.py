"""The first screen: deaths, waiting messages, lasting failures, the sidecar's health."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.failure import BUCKET_MS, CountKind
from amqsidecar.model.operation import SENDS, Operation, awaits_second
from amqsidecar.model.schedule import (
    ExhaustedTally,
    GateTally,
    MissingTally,
    RowState,
    UnknownTally,
)
from amqsidecar.operations.browse import read_missing, read_unknown
from amqsidecar.operations.charts import ChartMark, Share, acts_since, share
from amqsidecar.operations.failures.former_groups import DEATHS
from amqsidecar.operations.failures.groups import (
    DAY_MS,
    HOUR_MS,
    Group,
    Trend,
    messages_of,
    read_groups,
    window,
)
from amqsidecar.operations.failures.solved import SolvedGroup, find_solutions
from amqsidecar.operations.status import SidecarStatus
from amqsidecar.schedule import Schedule

_SHOWN_MAX: Final = 20
"""Maximum groups of each kind on the first screen."""
_RECOVERIES_MAX: Final = 10
"""Maximum destinations of `read_recoveries`."""
_GROUPS_MAX = 2_000
_LATEST: Final = 100
"""Operations, or messages of one, that are looked at; an older one is on its page."""
_SOON_MS = 5 * 60_000
_LOOKS_MS: Final = HOUR_MS
"""Older observations of a destination say nothing about its present state."""

_FAILS_FROM: Final = 0.5
_HOLDS_UP_TO: Final = 0.2
_WIDEST: Final = 0.4
"""A range of the true share that is wider says nothing."""


class DestinationWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of one destination are not exhausted, by state."""

    destination: str
    waiting: int
    held: int
    parked: int


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting messages, by the time of their re-sends.

    Attributes:
        next_due_at_ms: when the next one is due, may lie in the past; None = nothing is.
        gates: messages that gates delay, the largest number first; its time is the
            gates', so none of it is overdue.
        overdue: waiting messages whose time has passed.
        overdue_ms: for how long the first of them has been due; 0 = none is.
        soon: due within five minutes.
        hour: due after that within the hour.
        day: due after that within 24 hours.
        later: due after that.
        by_destination: without exhausted messages, the largest number first.
    """

    next_due_at_ms: int | None
    overdue: int
    overdue_ms: int
    soon: int
    hour: int
    day: int
    later: int
    by_destination: list[DestinationWaiting]
    gates: list[GateTally]


class RecoveryState(StrEnum):
    """Whether messages that are re-sent to a destination die again.

    Whether the others were consumed is another question: they may lie in the queue.
    """

    FAILS = "does not recover"
    """At least half of them come back, for sure."""
    PARTLY = "comes back in part"
    HOLDS = "hardly comes back"
    """At most a fifth of them comes back, for sure."""
    UNCLEAR = "too few to tell"
    LIES = "lies in its queue"
    """None came back, and as many lie there as were re-sent: no consumer seems to take them."""


class DestinationRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of re-sends to one destination since the last change for it.

    Attributes:
        since_ms: begin of the period, at most 24 hours ago.
        since: its begin: an operation that sends, a start or other rules; "" = no such change.
        came_back: the messages known to have died again, of those re-sent.
        depth: messages in it when it was last observed; None = unknown.
        depth_at_ms: when that was.
    """

    destination: str
    since_ms: int
    since: str
    came_back: Share
    state: RecoveryState = msgspec.field(name="verdict")
    depth: int | None = None
    depth_at_ms: int | None = None


class Died(msgspec.Struct, frozen=True, kw_only=True):
    """How many died in the last hour.

    Attributes:
        messages: least number of messages that died, by `messages_of` and by groups.
        deaths: number of all their deaths.
        causes: groups that they belong to.
        new: groups among them without a death before the last 24 hours.
    """

    messages: int
    deaths: int
    causes: int
    new: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The first screen.

    Attributes:
        at_ms: time of reading.
        died: messages in the last hour, including those of snoozed and solved groups.
        groups: with a death in the last 24 hours, most deaths first; without snoozed and solved
            groups.
        solved: with a death in the last 24 hours, and no longer in need of a person; the latest
            first.
        unproved: groups without messages left, but without proof that they were solved.
        snoozed: snoozed groups with a death in the last 24 hours.
        recoveries: destinations with re-sends in the last 24 hours, the worst first.
        exhausted: places of exhausted messages, which wait for a person; the largest number first.
        missing: final dead-letter queues that hold fewer messages than `exhausted` says.
        unapproved: the latest operations that wait for a second person.
        unknown: dead-letter queues that are not read, with messages that are not in the schedule.
        status: of the sidecar that serves this; None = unknown.
    """

    at_ms: int
    died: Died
    groups: list[Group]
    solved: list[SolvedGroup]
    unproved: list[SolvedGroup]
    snoozed: list[Group]
    waiting: Waiting
    recoveries: list[DestinationRecovery]
    exhausted: list[ExhaustedTally]
    missing: list[MissingTally]
    unknown: list[UnknownTally]
    unapproved: list[Operation]
    status: SidecarStatus | None = msgspec.field(default=None, name="wellness")


def read_overview(
    schedule: Schedule,
    now_ms: int,
    status: SidecarStatus | None = None,
) -> Overview:
    """Return the first screen.

    Args:
        status: how the sidecar itself is.
    """
    with schedule.snapshot():
        exhausted = schedule.exhausted_tallies()
        groups = read_groups(schedule, now_ms, since_ms=now_ms - DAY_MS, limit=_GROUPS_MAX)
        snoozed = [group for group in groups if group.is_snoozed(now_ms)]
        seen = [group for group in groups if not group.is_snoozed(now_ms)]
        gone = sorted((one for one in seen if not one.kept), key=lambda one: -one.last_at_ms)
        solutions = find_solutions(schedule, gone[:_SHOWN_MAX], now_ms)
        ended = [
            SolvedGroup(group=group, solution=solutions[place])
            for group in gone[:_SHOWN_MAX]
            if (place := (group.destination, group.cause_group)) in solutions
        ]
        ended.sort(key=lambda one: -one.solution.at_ms)
        are_gone = {(one.destination, one.cause_group) for one in gone[_SHOWN_MAX:]} | {*solutions}
        dying = [one for one in seen if (one.destination, one.cause_group) not in are_gone]
        return Overview(
            at_ms=now_ms,
            died=read_died(schedule, groups, now_ms),
            groups=dying[:_SHOWN_MAX],
            solved=[one for one in ended if one.solution.is_solved],
            unproved=[one for one in ended if not one.solution.is_solved],
            snoozed=snoozed[:_SHOWN_MAX],
            waiting=read_waiting(schedule, now_ms),
            recoveries=read_recoveries(schedule, now_ms),
            exhausted=exhausted,
            missing=read_missing(schedule, now_ms),
            unknown=read_unknown(schedule, now_ms),
            unapproved=[one for one in schedule.operations(_LATEST) if awaits_second(one)],
            status=status,
        )


def read_died(schedule: Schedule, groups: Sequence[Group], now_ms: int) -> Died:
    """Return how many died in the last hour."""
    deaths = schedule.failure_counts(*window(now_ms), DEATHS, DAY_MS)
    recent = [group for group in groups if group.recent]
    return Died(
        messages=max([messages_of(deaths), *(group.recent_messages for group in recent)]),
        deaths=sum(one.count for one in deaths),
        causes=len(recent),
        new=sum(group.trend is Trend.NEW for group in recent),
    )


def read_waiting(schedule: Schedule, now_ms: int) -> Waiting:
    """Return the waiting messages, by the time of their re-sends."""
    with schedule.snapshot():
        counts: dict[str, Counter[RowState]] = defaultdict(Counter)
        for tally in schedule.tallies():
            if tally.state is not RowState.EXHAUSTED:
                counts[tally.destination][tally.state] += tally.count
        by_destination = [
            DestinationWaiting(
                destination=destination,
                waiting=states[RowState.WAITING],
                held=states[RowState.HELD],
                parked=states[RowState.PARKED],
            )
            for destination, states in counts.items()
        ]
        by_destination.sort(key=lambda one: (-counts[one.destination].total(), one.destination))
        next_due_ms = schedule.next_due_ms()
        ends_ms = (now_ms + _SOON_MS, now_ms + HOUR_MS, now_ms + DAY_MS)
        overdue, soon, hour, day = schedule.due_counts([0, now_ms, *ends_ms])
        # Why not counted: of ten million messages most are due later.
        waiting = sum(states[RowState.WAITING] for states in counts.values())
        return Waiting(
            next_due_at_ms=next_due_ms,
            overdue=overdue,
            overdue_ms=0 if next_due_ms is None else max(0, now_ms - next_due_ms),
            soon=soon,
            hour=hour,
            day=day,
            later=max(0, waiting - overdue - soon - hour - day),
            by_destination=by_destination,
            gates=schedule.gate_tallies(now_ms),
        )


def read_recoveries(
    schedule: Schedule,
    now_ms: int,
    *,
    destination: str | None = None,
) -> list[DestinationRecovery]:
    """Return the recovery of destinations in the last day, the surest failures first.

    Args:
        destination: only this one, canonical text; None = all.
    """
    from_ms = now_ms - DAY_MS
    changes = list(_changes(schedule, from_ms))
    periods: dict[ChartMark, list[str]] = defaultdict(list)
    for place in count_resends(schedule, from_ms, now_ms)[0]:
        if destination in (None, place):
            since = max(
                (mark for mark, about in changes if about is None or place in about),
                key=lambda mark: mark.at_ms,
                default=ChartMark(at_ms=from_ms, what=""),
            )
            periods[since].append(place)
    found = []
    for since, places in periods.items():
        # Why the whole minute: counts are kept by the minute.
        resent, returned = count_resends(schedule, since.at_ms - since.at_ms % BUCKET_MS, now_ms)
        found += [_recovery(one, since, share(returned[one], resent[one])) for one in places]
    found.sort(key=lambda one: (-one.came_back.low, one.destination))
    return [_with_depth(schedule, one, now_ms) for one in found[:_RECOVERIES_MAX]]


def count_resends(
    schedule: Schedule, from_ms: int, now_ms: int
) -> tuple[Counter[str], Counter[str]]:
    """Return how many messages were re-sent to each destination, and how many came back."""
    resent, returned = Counter[str](), Counter[str]()
    kinds = (CountKind.RESENT, CountKind.RETURNED)
    for one in schedule.failure_counts(from_ms, now_ms + 1, kinds, DAY_MS):
        counts = resent if one.key.kind is CountKind.RESENT else returned
        counts[one.key.destination] += one.count
    return resent, returned


def _changes(
    schedule: Schedule, from_ms: int
) -> Iterator[tuple[ChartMark, Collection[str] | None]]:
    """Yield the acts after which re-sends may end otherwise, and the destinations; None = all."""
    for mark in acts_since(schedule, from_ms):
        if mark.operation is None:
            yield mark, None
            continue
        operation = schedule.operation(mark.operation)
        if operation is not None and operation.action in SENDS and operation.changed:
            yield mark, _places(schedule, operation)


def _places(schedule: Schedule, operation: Operation) -> Collection[str] | None:
    """Return the destinations to which an operation sends; None = all, as far as is known."""
    rows = operation.selection.rows
    if (place := operation.target or rows.destination) is not None:
        return (place,)
    if rows.ids is None and rows.redelivery_id is None:
        return rows.destinations
    members = schedule.members(operation.id, None, _LATEST)
    return {one.destination for one in members} if len(members) < _LATEST else None


def _with_depth(schedule: Schedule, one: DestinationRecovery, now_ms: int) -> DestinationRecovery:
    seen = schedule.observations(one.destination, now_ms - _LOOKS_MS, now_ms + 1)
    if not seen:
        return one
    last = seen[-1]
    share_back, state = one.came_back, one.state
    if 0 < share_back.whole <= (last.depth or 0) and not share_back.part:
        state = RecoveryState.LIES
    return msgspec.structs.replace(one, state=state, depth=last.depth, depth_at_ms=last.at_ms)


def _recovery(destination: str, since: ChartMark, came_back: Share) -> DestinationRecovery:
    state = RecoveryState.PARTLY
    if came_back.low >= _FAILS_FROM:
        state = RecoveryState.FAILS
    elif came_back.high <= _HOLDS_UP_TO:
        state = RecoveryState.HOLDS
    elif not came_back.part or came_back.high - came_back.low > _WIDEST:
        state = RecoveryState.UNCLEAR
    return DestinationRecovery(
        destination=destination,
        since_ms=since.at_ms,
        since=since.what,
        came_back=came_back,
        state=state,
    )
