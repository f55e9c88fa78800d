"""Reads the schedule: state, waiting messages, and one message's history."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from amqsidecar.ledger import Select
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import (
    ExhaustedTally,
    GateTally,
    InstanceView,
    MissingTally,
    RowFilter,
    RowState,
    RowView,
    StoreState,
    Tally,
    UnfinishedCycle,
    UnknownTally,
    first_redelivery_id,
)
from amqsidecar.schedule import ScheduleView

_LOOK_MS: Final = 180_000
"""Queues are looked at twice a minute; an older look is of a sidecar that no longer looks."""


def read_unknown(schedule: ScheduleView, now_ms: int) -> list[UnknownTally]:
    """Return dead-letter queues with messages that are not in the schedule, most messages first.

    By the last look at each; looks are kept by the sidecar that runs, so the broker is not asked.
    """
    found = [
        UnknownTally(
            queue=one.destination,
            count=one.unknown,
            at_least=one.depth is None,
            seen_at_ms=one.at_ms,
        )
        for one in _last_looks(schedule, now_ms)
        if one.unknown
    ]
    return sorted(found, key=lambda one: (-one.count, one.queue))


def read_missing(schedule: ScheduleView, now_ms: int) -> list[MissingTally]:
    """Return final queues out of which another program took messages, most messages first.

    By the last look at each, which compared the queue with the rows of that moment.
    """
    found = [
        MissingTally(queue=one.destination, count=one.missing, seen_at_ms=one.at_ms)
        for one in _last_looks(schedule, now_ms)
        if one.missing
    ]
    return sorted(found, key=lambda one: (-one.count, one.queue))


def _last_looks(schedule: ScheduleView, now_ms: int) -> Iterable[Observation]:
    looks = schedule.recent_observations(now_ms - _LOOK_MS)
    return {one.destination: one for one in looks}.values()


EVERYTHING: Final = RowFilter()

LOOKED_INTO: Final = 5_000
"""Maximum messages opened for their properties in one request."""

_DIGITS_MAX: Final = 18
_ROWS_OF_ONE_MESSAGE = 100


class RoomStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the store has space to take dead letters; see `store.Room`."""

    is_enough: bool
    reason: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """State of the schedule.

    Attributes:
        instance: name of this sidecar's share; on a shared schedule of the oldest one.
        cycle: its last finished cycle.
        unfinished_cycle: its cycle that is being carried out now, or was interrupted; None = none.
        total: rows that were asked for, altogether.
        waiting: these by destination and state, the largest number first.
        next_due_at_ms: when the next waiting row is due, may lie in the past; None = nothing waits.
        oldest_overdue_seconds: for how long it has been due; 0 = it is not yet.
        store_size_bytes: space that the store takes.
        room: whether it has space to take more.
        backlog: dead-letter queue to how many more of its dead letters will be held as backlog.
        instances: on a shared schedule all that there are.
        gates: messages that gates delay, the largest number first; its time is the
            gates', so none of it is overdue.
        exhausted: where exhausted messages are, the largest number first.
        missing: final dead-letter queues that hold fewer messages than that.
        unknown: dead-letter queues that are not read, with messages that are not in the schedule.
    """

    instance: str
    cycle: int
    unfinished_cycle: UnfinishedCycle | None
    total: int
    waiting: list[Tally]
    next_due_at_ms: int | None
    oldest_overdue_seconds: float
    store_size_bytes: int
    room: RoomStatus
    backlog: dict[str, int]
    instances: list[InstanceView]
    gates: list[GateTally]
    exhausted: list[ExhaustedTally]
    missing: list[MissingTally]
    unknown: list[UnknownTally]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of rows by number, exhausted rows last.

    Attributes:
        rows: may be fewer than the limit, or empty, although more match: few messages are examined.
        next_after: give it as `after` to get the next page, as text; None = this is the last.
    """

    rows: list[RowView]
    next_after: int | str | None


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One message and its history.

    Attributes:
        redelivery_id: its id over all its deaths.
        rows: where it waits now; none = it doesn't. Several are possible for a topic's message that
            died for several subscribers.
        history: oldest first.
    """

    redelivery_id: str
    rows: list[RowView]
    history: list[AnyEvent]


def read_status(
    schedule: ScheduleView, state: StoreState, now_ms: int, row_filter: RowFilter = EVERYTHING
) -> Status:
    """Return the state of the schedule.

    Args:
        state: returned when it was opened.
        now_ms: messages due before are overdue.
        row_filter: rows to count; all other fields are about the whole schedule.
    """
    with schedule.snapshot():
        tallies = sorted(
            _tallies(schedule, row_filter), key=lambda tally: (-tally.count, tally.destination)
        )
        exhausted = schedule.exhausted_tallies()
        next_due_ms = schedule.next_due_ms()
        overdue_ms = 0 if next_due_ms is None else max(0, now_ms - next_due_ms)
        return Status(
            instance=state.instance,
            cycle=state.cycle,
            unfinished_cycle=state.unfinished,
            total=sum(tally.count for tally in tallies),
            waiting=tallies,
            next_due_at_ms=next_due_ms,
            oldest_overdue_seconds=overdue_ms / 1000,
            store_size_bytes=schedule.size_bytes(),
            room=_room(schedule),
            backlog={source: count for source, count in schedule.holds().items() if count},
            instances=list(schedule.instances()),
            gates=schedule.gate_tallies(now_ms),
            exhausted=exhausted,
            missing=read_missing(schedule, now_ms),
            unknown=read_unknown(schedule, now_ms),
        )


def _room(schedule: ScheduleView) -> RoomStatus:
    room = schedule.room()
    return RoomStatus(is_enough=room.is_enough, reason=room.reason)


def _tallies(schedule: ScheduleView, row_filter: RowFilter) -> list[Tally]:
    """Return how many rows the filter hits; costs a scan where more than tallies is asked."""
    destination, state = row_filter.destination, row_filter.state
    tallies = [
        tally
        for tally in schedule.tallies()
        if destination in (None, tally.destination) and state in (None, tally.state)
    ]
    if row_filter == RowFilter(destination=destination, state=state):
        return tallies
    counted = [
        msgspec.structs.replace(
            tally,
            count=schedule.count_rows(
                msgspec.structs.replace(
                    row_filter, destination=tally.destination, state=tally.state
                )
            ),
        )
        for tally in tallies
    ]
    return [tally for tally in counted if tally.count]


_EXHAUSTED_AFTER: Final = "exhausted-"
_OTHER_STATES: Final = (RowState.WAITING, RowState.HELD, RowState.PARKED)


def list_page(
    schedule: ScheduleView,
    row_filter: RowFilter,
    limit: int,
    after: str = "",
    select: Select | None = None,
) -> Page:
    """Return at most `limit` rows by number, exhausted rows last.

    Args:
        limit: maximum number returned.
        after: `next_after` of the page before; "" = the first page.
        select: selects among them; at most `LOOKED_INTO` messages are examined.

    Raises:
        ValueError: `after` is not a `next_after`.
    """
    is_exhausted_turn = after.startswith(_EXHAUSTED_AFTER)
    number = after.removeprefix(_EXHAUSTED_AFTER)
    if number and not is_row_number(number):
        raise ValueError(f"expected a number, or {_EXHAUSTED_AFTER}NUMBER; found {after!r}")
    # Why: where the broker keeps waiting messages, nothing is exhausted, and each look costs.
    has_turns = schedule.keeps_exhausted_rows and row_filter.state is None
    if not has_turns:
        return _turn(schedule, [row_filter], limit, int(number or 0), select)
    if not is_exhausted_turn:
        others = [_in_state(row_filter, state) for state in _OTHER_STATES]
        page = _turn(schedule, others, limit, int(number or 0), select)
        if page.next_after is not None:
            return page
        rows, number = page.rows, "0"
    else:
        rows = []
    exhausted = [_in_state(row_filter, RowState.EXHAUSTED)]
    if len(rows) == limit:
        has_more = bool(schedule.list_rows(exhausted[0], 1))
        return Page(rows=rows, next_after=f"{_EXHAUSTED_AFTER}0" if has_more else None)
    page = _turn(schedule, exhausted, limit - len(rows), int(number or 0), select)
    end = page.next_after
    next_after = None if end is None else f"{_EXHAUSTED_AFTER}{end}"
    return Page(rows=[*rows, *page.rows], next_after=next_after)


def _in_state(row_filter: RowFilter, state: RowState) -> RowFilter:
    return msgspec.structs.replace(row_filter, state=state)


def _turn(
    schedule: ScheduleView,
    filters: Sequence[RowFilter],
    limit: int,
    after_id: int,
    select: Select | None,
) -> Page:
    """Return at most `limit` rows with a number above `after_id` that one of the filters hits."""
    most = limit if select is None else LOOKED_INTO
    # Why a dict: between two looks a row may change its state.
    known = {row.id: row for one in filters for row in schedule.list_rows(one, most + 1, after_id)}
    found = [known[row_id] for row_id in sorted(known)][: most + 1]
    rows: list[RowView] = []
    looked_at = 0
    for row in found[:most]:
        if len(rows) == limit:
            break
        looked_at += 1
        if select is None or select(row, schedule.message(row.id) or b""):
            rows.append(row)
    has_more = looked_at < len(found)
    return Page(rows=rows, next_after=found[looked_at - 1].id if has_more else None)


def read_story(schedule: ScheduleView, reference: str, uid: str) -> Story | None:
    """Return the story of a message; None = it is unknown.

    Args:
        reference: a row number or a redelivery id.
        uid: of the store; see `StoreState`.
    """
    if is_row_number(reference):
        found = row_named(schedule, reference)
        # Why: a message is named after its first row, so the number of a removed row finds it.
        names = [found.redelivery_id] if found else _first_ids(schedule, uid, int(reference))
    else:
        names = [reference]
    for name in names:
        rows = schedule.list_rows(RowFilter(redelivery_id=name), _ROWS_OF_ONE_MESSAGE)
        history = schedule.history(name)
        if rows or history:
            return Story(redelivery_id=name, rows=rows, history=history)
    return None


def is_row_number(reference: str) -> bool:
    """Return whether a reference to a message is the number of a row, not its redelivery id."""
    return reference.isascii() and reference.isdecimal() and len(reference) <= _DIGITS_MAX


def filter_named(reference: str) -> RowFilter:
    """Return the filter of the rows that a row number or a redelivery id names."""
    if is_row_number(reference):
        return RowFilter(ids=(int(reference),))
    return RowFilter(redelivery_id=reference)


def row_named(schedule: ScheduleView, reference: str) -> RowView | None:
    """Return where a message waits, by row number or redelivery id; None = nowhere."""
    return next(iter(schedule.list_rows(filter_named(reference), 1)), None)


def _first_ids(schedule: ScheduleView, uid: str, row_id: int) -> list[str]:
    """Return the possible names of a message whose first row had this number."""
    uids = dict.fromkeys([uid, *(instance.uid for instance in schedule.instances())])
    return [first_redelivery_id(one, row_id) for one in uids]
