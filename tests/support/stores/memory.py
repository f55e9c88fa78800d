"""A store in memory that keeps the contract of `amqsidecar.store`, for the simulation.

`Medium` is what a file is to SQLite: it outlives store objects and processes. A transaction works
on a copy of everything, which takes the place of the old when its block is left; so a process that
dies inside leaves nothing of it, which is what SQLite promises of a torn write.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeVar

import msgspec

from amqsidecar.errors import StoreUnavailable
from amqsidecar.model.cause_note import CauseNote, SharedNotes
from amqsidecar.model.event import AnyEvent, Received
from amqsidecar.model.operation import Operation
from amqsidecar.model.row_changes import Change, RowChange
from amqsidecar.model.schedule import (
    GROUP_PLACES_MAX,
    DueRow,
    GroupPlace,
    InstanceView,
    Recall,
    RowFilter,
    RowState,
    RowView,
    StoreState,
    TakenRow,
    Tally,
    UnfinishedCycle,
)
from amqsidecar.model.signal import Signal
from amqsidecar.store import ENOUGH_ROOM, AddLying, ReportProgress, Room, unwatched
from amqsidecar.stores.packing import storable

_SKIPPED_IDS = 1 << 40
_CHANGED = [name for name in Change.__struct_fields__ if name in TakenRow.__struct_fields__]
_KEPT_UNLESS_NAMED = ("cause", "cause_group")
_VIEWED = [name for name in RowView.__struct_fields__ if name in TakenRow.__struct_fields__]
_viewed_of = attrgetter(*_VIEWED)
_TEXTS = (
    "destination",
    "source",
    "redelivery_id",
    "rule",
    "cause",
    "cause_group",
    "message_id",
    "encoding",
    "message_group",
)
T = TypeVar("T", bound=msgspec.Struct)


def _without_life(event: AnyEvent) -> AnyEvent:
    return msgspec.structs.replace(event, life="") if isinstance(event, Received) else event


class Begun(msgspec.Struct, frozen=True):
    """The cycle whose end is not known."""

    cycle: int
    taken: dict[int, TakenRow]
    sent: frozenset[int]
    holds: dict[str, int]
    renamed: dict[int, int] = {}


class _Block(msgspec.Struct, frozen=True):
    """Events that were written together; `cycle` = they count when it is finished."""

    events: tuple[AnyEvent, ...]
    cycle: int | None = None


@dataclass
class _Contents:
    """All that a medium holds; nothing in it is changed in place but these collections."""

    instance: str
    uid: str
    cycle: int = 0
    token_created: bool = False
    next_id: int = 1
    begun: Begun | None = None
    rows: dict[int, TakenRow] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    passing: set[int] = field(default_factory=set)
    holds: dict[str, int] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)

    def copy(self) -> _Contents:
        return replace(
            self,
            rows=self.rows.copy(),
            reasons=self.reasons.copy(),
            passing=self.passing.copy(),
            holds=self.holds.copy(),
            blocks=self.blocks.copy(),
        )


class Medium:
    """The durable content, and its current writer."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.chance = chance or random.Random()
        self.room = ENOUGH_ROOM
        self.contents: _Contents | None = None
        self.writer: MemoryStore | None = None

    def name(self) -> str:
        """Return eight digits."""
        return f"{self.chance.getrandbits(32):08x}"


class MemoryTransaction:
    """Writes that become durable together; made by `MemoryStore.transaction`."""

    def __init__(self, contents: _Contents, medium: Medium) -> None:
        self._contents = contents
        self._medium = medium

    def finish_cycle(self, cycle: int) -> None:
        contents, begun = self._contents, self._end(cycle)
        contents.rows |= begun.taken
        contents.passing |= {row.id for row in begun.taken.values() if row.passes_gates}
        contents.holds = _left(contents)
        contents.begun = None
        contents.cycle = cycle
        self._settle_sent(begun.sent)
        for new, old in begun.renamed.items():
            contents.rows[old] = msgspec.structs.replace(contents.rows.pop(new), id=old)
            contents.passing ^= {old, new} if new in contents.passing else set()
        contents.blocks = [
            _Block(block.events) if block.cycle is not None else block for block in contents.blocks
        ]

    def undo_cycle(self, cycle: int) -> None:
        self._end(cycle)
        self._contents.begun = None
        self._contents.blocks = [block for block in self._contents.blocks if block.cycle is None]

    def settle_in_doubt(self, cycle: int) -> None:
        contents, begun = self._contents, self._end(cycle)
        contents.rows |= begun.taken
        contents.holds = _left(contents)
        contents.begun = None
        contents.cycle = cycle
        contents.blocks = [
            _Block(tuple(one for one in block.events if one.id not in begun.sent))
            if block.cycle is not None
            else block
            for block in contents.blocks
        ]

    def claim_due(self, now_ms: int, limit: int) -> list[DueRow]:
        due = [row for row in _waiting(self._contents) if row.due_at_ms <= now_ms]
        due.sort(key=lambda row: (row.due_at_ms, row.id))
        passing = self._contents.passing
        return [_due_row(row, row.id in passing) for row in due[:limit]]

    def group_places(self, ids: Sequence[int]) -> dict[int, GroupPlace]:
        begun = self._contents.begun
        rows = self._contents.rows | (begun.taken if begun is not None else {})
        groups: dict[tuple[str, str], list[TakenRow]] = {}
        for row in rows.values():
            if row.message_group is not None and not row.is_final:
                groups.setdefault((row.destination, row.message_group), []).append(row)
        places: dict[int, GroupPlace] = {}
        for group in groups.values():
            group.sort(key=lambda row: (row.redelivery_id, row.id))
            names = [row.redelivery_id for row in group]
            for row in group:
                if row.id in ids:
                    places[row.id] = GroupPlace(
                        before=min(names.index(row.redelivery_id), GROUP_PLACES_MAX),
                        first_id=group[0].id,
                        first_state=group[0].state,
                        first_due_at_ms=group[0].due_at_ms,
                        first_awaits=group[0].gate if group[0].state is RowState.HELD else None,
                    )
        return places

    def record_cycle(
        self,
        cycle: int,
        taken: Sequence[TakenRow],
        sent: Sequence[DueRow | TakenRow],
        events: Sequence[AnyEvent],
        holds: Mapping[str, int] | None = None,
        replaced: Mapping[int, int] | None = None,
    ) -> None:
        contents = self._contents
        if contents.begun is not None or cycle != contents.cycle + 1:
            raise AssertionError(
                f"cycle {cycle} was begun, but {contents.cycle} is the last finished one"
            )
        rows = {row.id: _storable(row, _TEXTS) for row in taken}
        contents.begun = Begun(
            cycle,
            rows,
            frozenset([*(row.id for row in sent), *(replaced or {}).values()]),
            dict(holds or {}),
            dict(replaced or {}),
        )
        if rows:
            contents.next_id = max(contents.next_id, max(rows) + 1)
        if events:
            contents.blocks.append(_Block(tuple(events), cycle))

    def postpone(
        self, ids: Sequence[int], due_at_ms: int, reason: str, gate: str | None = None
    ) -> None:
        for row in self._at_rest(ids):
            if row.state is RowState.WAITING:
                self._contents.rows[row.id] = msgspec.structs.replace(
                    row, due_at_ms=due_at_ms, gate=None if gate is None else storable(gate)
                )
                self._contents.reasons[row.id] = storable(reason)

    def park(self, ids: Sequence[int], reason: str) -> None:
        for row in self._at_rest(ids):
            self._contents.rows[row.id] = msgspec.structs.replace(
                row, state=RowState.PARKED, gate=None
            )
            self._contents.reasons[row.id] = storable(reason)

    def remove(self, ids: Sequence[int]) -> None:
        self._settle_sent([row.id for row in self._at_rest(ids)])

    def record(self, events: Sequence[AnyEvent]) -> None:
        if events:
            self._contents.blocks.append(_Block(tuple(events)))

    def add_lying(self, rows: Sequence[TakenRow], events: Sequence[AnyEvent]) -> None:
        self._contents.rows.update({row.id: _storable(row, _TEXTS) for row in rows})
        self.record(events)

    def set_token_created(self) -> None:
        self._contents.token_created = True

    def set_cycle(self, cycle: int) -> None:
        if self._contents.begun is not None:
            raise AssertionError("the cycle number can't be set while a cycle is unfinished")
        self._contents.cycle = cycle

    def renew_uid(self) -> str:
        contents = self._contents
        contents.uid = self._medium.name()
        contents.blocks = [
            _Block(tuple(map(_without_life, block.events)), block.cycle)
            for block in contents.blocks
        ]
        return contents.uid

    def skip_ids(self) -> None:
        self._contents.next_id += _SKIPPED_IDS + self._medium.chance.randrange(_SKIPPED_IDS)

    def holds(self) -> dict[str, int]:
        return _left(self._contents)

    def set_hold(self, source: str, remaining: int) -> None:
        self._contents.holds[source] = remaining

    def add_signal(self, signal: Signal) -> None:
        raise NotImplementedError("nothing waits for events in this store")

    def _end(self, cycle: int) -> Begun:
        begun = self._contents.begun
        if begun is None or begun.cycle != cycle:
            found = "none" if begun is None else begun.cycle
            raise AssertionError(
                f"cycle {cycle} was to be ended, but the unfinished one is {found}"
            )
        return begun

    def _at_rest(self, ids: Sequence[int]) -> list[TakenRow]:
        begun, rows = self._contents.begun, self._contents.rows
        if begun is not None and any(one in begun.taken or one in begun.sent for one in ids):
            raise AssertionError("rows of an unfinished cycle can't be changed")
        return [rows[one] for one in dict.fromkeys(ids) if one in rows]

    def _settle_sent(self, ids: Sequence[int] | frozenset[int]) -> None:
        rows = self._contents.rows
        final = {
            one: row
            for one in ids
            # Why perhaps none: what is sent at once was never written.
            if (row := rows.get(one)) is not None
            and row.is_final
            and row.state is not RowState.EXHAUSTED
        }
        self._forget(ids)
        for one, row in final.items():
            is_ruled = row.recall in (Recall.RULES, Recall.HELD)
            rows[one] = msgspec.structs.replace(
                row,
                state=RowState.EXHAUSTED,
                final_queue=row.decided_queue,
                due_at_ms=row.received_at_ms + row.delay_ms if is_ruled else row.due_at_ms,
            )

    def _forget(self, ids: Sequence[int] | frozenset[int]) -> None:
        for row_id in ids:
            self._contents.rows.pop(row_id, None)
            self._contents.reasons.pop(row_id, None)
            self._contents.passing.discard(row_id)


class MemoryStore:
    """A `Store` over a `Medium`; several may be open over one."""

    def __init__(
        self, medium: Medium, *, instance_name: str | None = None, busy_timeout_ms: int = 0
    ) -> None:
        self.medium = medium
        self._instance_name = instance_name
        self._working: _Contents | None = None

    # Opening, and transactions.

    def open(self) -> StoreState:
        medium = self.medium
        if medium.contents is None:
            medium.contents = _Contents(self._instance_name or medium.name(), medium.name())
        contents = self._contents
        if self._instance_name not in (None, contents.instance):
            raise StoreUnavailable(
                f"the store belongs to the instance {contents.instance!r}, not to "
                f"{self._instance_name!r}"
            )
        begun = contents.begun
        return StoreState(
            instance=contents.instance,
            uid=contents.uid,
            cycle=contents.cycle,
            unfinished=None
            if begun is None
            else UnfinishedCycle(
                cycle=begun.cycle, taken_count=len(begun.taken), sent_count=len(begun.sent)
            ),
            token_created=contents.token_created,
            taken_until_ms=contents.rows[max(contents.rows)].received_at_ms if contents.rows else 0,
        )

    def state(self) -> StoreState:
        return self.open()

    def reopen(self) -> StoreState:
        return self.open()

    def close(self) -> None:
        """Nothing is open."""

    def keep(self) -> None:
        """No other process is this instance."""

    def share_notes(self, notes: Sequence[CauseNote]) -> None:
        """Do nothing: the schedule has one instance."""

    def shared_notes(self, position: int | None) -> SharedNotes:
        """Return no notes."""
        return SharedNotes(0)

    def abandoned(self) -> list[str]:
        return []

    def instances(self) -> list[InstanceView]:
        return []

    def set_manual(self, instance: str, patterns: Sequence[str]) -> None:
        pass

    def open_operations(self) -> list[Operation]:
        return []

    def change_operation(self, number: int, change: Callable[[Operation], Operation]) -> Operation:
        raise KeyError(number)

    @property
    def _contents(self) -> _Contents:
        contents = self._working or self.medium.contents
        if contents is None:
            raise StoreUnavailable("the store is not open")
        return contents

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        assert self.medium.writer is not self, "transactions don't nest"
        if self.medium.writer is not None:
            raise StoreUnavailable("another process is writing for too long")
        before = self._contents
        working = self._working = before.copy()
        self.medium.writer = self
        try:
            yield MemoryTransaction(working, self.medium)
            self.medium.contents = working
        finally:
            self._working = self.medium.writer = None
            # Why: numbers that were handed out are never handed out again.
            self._contents.next_id = max(working.next_id, before.next_id)

    def allocate_ids(self, count: int) -> int:
        contents = self._contents
        first = contents.next_id
        contents.next_id += count
        return first

    # Reading.

    def next_due_ms(self) -> int | None:
        return min((row.due_at_ms for row in _waiting(self._contents)), default=None)

    def holds(self) -> dict[str, int]:
        return dict(self._contents.holds)

    def tallies(self) -> list[Tally]:
        counts = Counter((row.destination, row.state) for row in self._contents.rows.values())
        return [
            Tally(destination=destination, state=state, count=count)
            for (destination, state), count in sorted(counts.items())
        ]

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def list_rows(self, row_filter: RowFilter, limit: int, after_id: int = 0) -> list[RowView]:
        rows = [row for row in self._matching(row_filter) if row.id > after_id]
        return [self._view(row) for row in rows[:limit]]

    def count_rows(self, row_filter: RowFilter) -> int:
        return len(self._matching(row_filter))

    def lying(self, redelivery_ids: Collection[str]) -> list[RowView]:
        ids = set(map(storable, redelivery_ids))
        rows = [self._view(row) for row in self._matching(RowFilter())]
        return [
            row
            for row in rows
            if row.is_in_final_queue and row.redelivery_id in ids and not row.in_flight
        ]

    @contextmanager
    def adding_lying(self) -> Iterator[AddLying]:
        with self.transaction() as transaction:
            yield transaction.add_lying

    def known_lives(self, lives: Collection[str]) -> dict[str, bool]:
        events = (event for block in self._contents.blocks for event in block.events)
        found = {one.life for one in events if isinstance(one, Received)} & set(lives)
        return dict.fromkeys(found, True)

    def recalled(self, recall: Recall, limit: int) -> list[RowView]:
        rows = [self._view(row) for row in self._matching(RowFilter())]
        states = (RowState.PARKED, RowState.EXHAUSTED)
        found = [row for row in rows if row.recall is recall and row.state in states]
        return [row for row in found if not row.in_flight][:limit]

    def recalled_by_due(self, recall: Recall, limit: int) -> list[RowView]:
        rows = self.recalled(recall, len(self._contents.rows))
        return sorted(rows, key=lambda row: (row.due_at_ms, row.id))[:limit]

    def count_recalled(self, recall: Recall) -> dict[str, int]:
        rows = [self._view(row) for row in self._matching(RowFilter())]
        return Counter(
            row.goes_to for row in rows if row.recall is recall and row.is_in_final_queue
        )

    def message(self, row_id: int) -> bytes | None:
        row = self._contents.rows.get(row_id)
        return None if row is None or self._view(row).is_in_final_queue else row.message

    def history(self, redelivery_id: str) -> list[AnyEvent]:
        return [
            _storable(event, event.__struct_fields__)
            for event in self.events()
            if event.redelivery_id == redelivery_id
        ]

    def events(self) -> Iterator[AnyEvent]:
        """Return all events that count."""
        for block in self._contents.blocks:
            if block.cycle is None:
                yield from block.events

    def room(self) -> Room:
        return self.medium.room

    def size_bytes(self) -> int:
        return sum(len(row.message) + 200 for row in self._contents.rows.values())

    def _matching(self, row_filter: RowFilter) -> list[TakenRow]:
        rows = self._contents.rows
        return [rows[one] for one in sorted(rows) if _matches(rows[one], row_filter)]

    def _view(self, row: TakenRow) -> RowView:
        contents = self._contents
        return RowView(
            **dict(zip(_VIEWED, _viewed_of(row), strict=True)),
            size_bytes=len(row.message),
            reason=contents.reasons.get(row.id),
            in_flight=contents.begun is not None and row.id in contents.begun.sent,
        )

    # Actions of people.

    def change(
        self, row_filter: RowFilter, change: RowChange, progress: ReportProgress = unwatched
    ) -> int:
        with self.transaction():
            contents = self._contents
            views = [self._view(row) for row in self._matching(row_filter)]
            free = [view for view in views if not view.in_flight]
            changes = [(view.id, made) for view in free if (made := change(view)) is not None]
            for number, made in changes:
                fields = {name: getattr(made, name) for name in _CHANGED}
                known = {name for name in _KEPT_UNLESS_NAMED if not fields[name]}
                fields = {name: value for name, value in fields.items() if name not in known}
                contents.rows[number] = msgspec.structs.replace(contents.rows[number], **fields)
                contents.reasons.pop(number, None)
                contents.passing.discard(number)
                if made.passes_gates:
                    contents.passing.add(number)
                if made.reason is not None:
                    contents.reasons[number] = storable(made.reason)
            if changes:
                contents.blocks.append(_Block(tuple(made.event for _, made in changes)))
        progress(len(views), len(changes))
        return len(changes)

    # Retention.

    def shrink(self) -> bool:
        return False

    def forget_history(self, before_ms: int, limit: int) -> int:
        def latest_ms(block: _Block) -> int:
            return max(event.at_ms for event in block.events)

        def oldest(blocks: list[_Block]) -> list[_Block]:
            return sorted((one for one in blocks if latest_ms(one) < before_ms), key=latest_ms)

        return self._forget_events(oldest, limit)

    def trim_history(self, max_events: int, limit: int) -> int:
        excess = sum(len(block.events) for block in self._contents.blocks) - max_events
        return self._forget_events(lambda blocks: blocks, min(limit, max(0, excess)))

    def _forget_events(self, choose: Callable[[list[_Block]], list[_Block]], limit: int) -> int:
        removed = 0
        with self.transaction():
            contents = self._contents
            left = {id(block): block.events for block in contents.blocks}
            for block in choose([one for one in contents.blocks if one.cycle is None]):
                gone = min(limit - removed, len(block.events))
                left[id(block)] = block.events[gone:]
                removed += gone
            kept = [_Block(left[id(block)], block.cycle) for block in contents.blocks]
            contents.blocks = [block for block in kept if block.events]
        return removed


def _left(contents: _Contents) -> dict[str, int]:
    """Return what is left of each backlog once the unfinished cycle is finished."""
    taken = contents.begun.holds if contents.begun is not None else {}
    return {source: max(0, left - taken.get(source, 0)) for source, left in contents.holds.items()}


def _waiting(contents: _Contents) -> list[TakenRow]:
    sent = contents.begun.sent if contents.begun is not None else frozenset()
    return [
        row
        for row in contents.rows.values()
        if row.state is RowState.WAITING and row.id not in sent
    ]


def _due_row(row: TakenRow, passes_gates: bool) -> DueRow:
    return DueRow(
        id=row.id,
        due_at_ms=row.due_at_ms,
        destination=row.decided_queue or "" if row.is_final else row.destination,
        is_final=row.is_final,
        redelivery_id=row.redelivery_id,
        redelivery_count=row.redelivery_count,
        delay_ms=row.delay_ms,
        expiration_ms=row.expiration_ms,
        encoding=row.encoding,
        message=row.message,
        passes_gates=passes_gates,
        message_group=row.message_group,
    )


def _storable(value: T, names: Sequence[str]) -> T:
    """Spell out what UTF-8 can't write, as the real store does."""
    broken = {
        name: storable(text)
        for name in names
        if isinstance(text := getattr(value, name), str) and not text.isascii()
    }
    return msgspec.structs.replace(value, **broken) if broken else value


def _matches(row: TakenRow, row_filter: RowFilter) -> bool:
    cause, group, source = row_filter.cause_contains, row_filter.cause_group, row_filter.source
    before_ms, after_ms = row_filter.received_before_ms, row_filter.received_from_ms
    due_ms, least = row_filter.due_before_ms, row_filter.count_at_least
    destination, redelivery_id = row_filter.destination, row_filter.redelivery_id
    places, event = row_filter.destinations, row_filter.event
    return (
        (row_filter.ids is None or row.id in row_filter.ids)
        and (redelivery_id is None or row.redelivery_id == storable(redelivery_id))
        and (destination is None or row.destination == storable(destination))
        and row_filter.state in (None, row.state)
        and (cause is None or (row.cause is not None and storable(cause) in row.cause))
        and (group is None or row.cause_group == storable(group))
        and (source is None or row.source == storable(source))
        and (before_ms is None or row.received_at_ms < before_ms)
        and (after_ms is None or row.received_at_ms >= after_ms)
        and (due_ms is None or row.due_at_ms < due_ms)
        and row_filter.redelivery_count in (None, row.redelivery_count)
        and (least is None or row.redelivery_count >= least)
        and (
            row_filter.lies_in is None
            or (row.state, row.is_final, row.decided_queue)
            == (RowState.EXHAUSTED, True, storable(row_filter.lies_in))
        )
        and (event is None or (row.state, row.gate) == (RowState.HELD, storable(event)))
        and (places is None or row.destination in map(storable, places))
    )
