"""A store against a model of a few dictionaries: after any step both agree."""

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent, Parked
from amqsidecar.model.schedule import WANTED, DueRow, Recall, RowFilter, RowState, TakenRow
from amqsidecar.store import StoreTransaction
from amqsidecar.stores.postgres.store import PostgresStore
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.memory import Medium, MemoryStore
from support.stores.opened import OpenableStore
from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.postgres_server import PostgresServer
from support.stores.rows import resent, taken_row, took
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

WAITING, HELD, PARKED, EXHAUSTED = RowState
FINAL = "queue://DLQ.final"
_LATER = ("final_queue", "redelivery_count")
DESTINATIONS = ("queue://a", "queue://b", "topic://c")
SOURCES = ("queue://DLQ.a", "queue://DLQ.b")
POSITIONS = st.lists(st.integers(0, 12), max_size=6, unique=True)
FILTERS = st.builds(
    RowFilter,
    ids=st.none() | POSITIONS.map(tuple),
    destination=st.none() | st.sampled_from(DESTINATIONS),
    state=st.none() | st.sampled_from(RowState),
)
TIMES = st.integers(0, 50)
NO_MESSAGE = b""
"""Of an exhausted row whose message is in its final queue."""
ENDS = st.sampled_from(["finish_cycle", "undo_cycle", "settle_in_doubt"])


class Begun(msgspec.Struct):
    """The model of an unfinished cycle."""

    taken: list[TakenRow]
    sent: list[int]
    events: list[AnyEvent]
    holds: dict[str, int]


class Takes(msgspec.Struct, frozen=True):
    """What a cycle takes and how much it claims."""

    count: int
    due_at_ms: int
    state: RowState
    destination: str
    limit: int
    now_ms: int
    hold: int | None
    skipped: int
    is_final: bool


TAKES = st.builds(
    Takes,
    count=st.integers(0, 4),
    due_at_ms=TIMES,
    state=st.sampled_from([WAITING, WAITING, HELD, PARKED, EXHAUSTED]),
    destination=st.sampled_from(DESTINATIONS),
    limit=st.integers(0, 5),
    now_ms=TIMES,
    hold=st.none() | st.integers(0, 3),
    skipped=st.integers(1, 2),
    is_final=st.booleans(),
)


class StoreMachine(RuleBasedStateMachine):
    """What is done to the store is done to the model."""

    store: OpenableStore

    @initialize()
    def begin(self) -> None:
        self.prepare()
        self.open()
        self.rows: dict[int, TakenRow] = {}
        self.events: list[AnyEvent] = []
        self.holds: dict[str, int] = {}
        self.acted: Counter[int] = Counter()
        self.cycle = 0
        self.begun: Begun | None = None
        self.newest_id = 0

    def prepare(self) -> None:
        """Make what outlives store objects."""
        raise NotImplementedError

    def open(self) -> None:
        """Open a new object over it."""
        raise NotImplementedError

    # Cycles.

    @precondition(lambda self: self.begun is None)
    @rule(takes=TAKES)
    def begin_cycle(self, takes: Takes) -> None:
        with self.store.transaction() as tx:
            begun = self.record_cycle(tx, takes)
        self.begun = begun

    @precondition(lambda self: self.begun is not None)
    @rule(end=ENDS)
    def end_cycle(self, end: str) -> None:
        with self.store.transaction() as tx:
            self.end(tx, end)

    @precondition(lambda self: self.begun is not None)
    @rule(end=ENDS, takes=TAKES)
    def end_cycle_and_begin_the_next(self, end: str, takes: Takes) -> None:
        with self.store.transaction() as tx:
            self.end(tx, end)
            begun = self.record_cycle(tx, takes)
        self.begun = begun

    def record_cycle(self, tx: StoreTransaction, takes: Takes) -> Begun:
        first = self.store.allocate_ids(takes.count + takes.skipped)
        assert first > self.newest_id
        self.newest_id = first + takes.count + takes.skipped - 1
        taken = [
            taken_row(
                first + takes.skipped + number,
                due_at_ms=takes.due_at_ms + number,
                state=takes.state,
                destination=takes.destination,
                source=SOURCES[number % 2],
                rule=f"rule {takes.limit}",
                is_final=takes.is_final and takes.state is not EXHAUSTED,
                final_queue=self.final_of(takes),
            )
            for number in range(takes.count)
        ]
        claimed = self.claim(tx, takes)
        events: list[AnyEvent] = [took(row) for row in taken]
        events += [resent(row) for row in claimed]
        holds = {} if takes.hold is None else {takes.destination: takes.hold}
        tx.record_cycle(self.cycle + 1, taken, claimed, events, holds)
        return Begun(taken, [row.id for row in claimed], events, holds)

    def final_of(self, takes: Takes) -> str | None:
        return FINAL if takes.is_final or takes.state is EXHAUSTED else None

    def claim(self, tx: StoreTransaction, takes: Takes) -> list[DueRow]:
        claimed = tx.claim_due(takes.now_ms, takes.limit)
        waiting = [row for row in self.at_rest() if row.state is WAITING]
        due = [row for row in waiting if row.due_at_ms <= takes.now_ms]
        due.sort(key=lambda row: (row.due_at_ms, row.id))
        assert [row.id for row in claimed] == [row.id for row in due[: takes.limit]]
        assert [row.message for row in claimed] == [row.message for row in due[: takes.limit]]
        targets = [row.final_queue if row.is_final else row.destination for row in due]
        assert [row.destination for row in claimed] == targets[: takes.limit]
        return claimed

    def end(self, tx: StoreTransaction, end: str) -> None:
        begun, self.begun = self.begun, None
        assert begun is not None
        getattr(tx, end)(self.cycle + 1)
        if end == "undo_cycle":
            return
        self.cycle += 1
        self.rows |= {row.id: row for row in begun.taken}
        for source, count in begun.holds.items():
            if source in self.holds:
                self.holds[source] = max(0, self.holds[source] - count)
        if end == "finish_cycle":
            self.events += begun.events
            self.settle_sent(begun.sent)
        else:
            self.events += [event for event in begun.events if event.id not in begun.sent]

    def settle_sent(self, ids: list[int]) -> None:
        """A sent message is gone, or known to be in its final queue."""
        for row in self.present(ids):
            if row.is_final:
                self.change(row, state=EXHAUSTED, message=NO_MESSAGE)
            else:
                del self.rows[row.id]

    @rule(takes=TAKES, end=ENDS, positions=POSITIONS)
    def fail(self, takes: Takes, end: str, positions: list[int]) -> None:
        """Whatever a transaction did before its exception did not happen."""
        before = self.begun, self.cycle, dict(self.rows), list(self.events), dict(self.holds)
        try:
            with self.store.transaction() as tx:
                if self.begun is not None:
                    self.end(tx, end)
                tx.park(self.free_ids(positions, WAITING), "refused")
                tx.set_hold("queue://DLQ", 9)
                tx.record_cycle(self.cycle + 1, [taken_row(10**9)], [], [took(taken_row(1))])
                raise ZeroDivisionError
        except ZeroDivisionError:
            self.begun, self.cycle, self.rows, self.events, self.holds = before

    # Single rows.

    @rule(positions=POSITIONS, due_at_ms=TIMES)
    def postpone(self, positions: list[int], due_at_ms: int) -> None:
        ids = self.free_ids(positions, *RowState)
        with self.store.transaction() as tx:
            tx.postpone(ids, due_at_ms, "no route")
        for row in self.present(ids):
            if row.state is WAITING:
                self.change(row, due_at_ms=due_at_ms)

    @rule(positions=POSITIONS)
    def park(self, positions: list[int]) -> None:
        ids = self.free_ids(positions, WAITING, HELD)
        events: list[AnyEvent] = [
            Parked(at_ms=1, id=row.id, redelivery_id=row.redelivery_id, destination="", reason="no")
            for row in self.present(ids)
        ]
        with self.store.transaction() as tx:
            tx.park(ids, "refused")
            tx.record(events)
        self.events += events
        for row in self.present(ids):
            self.change(row, state=PARKED)

    @rule(positions=POSITIONS)
    def remove(self, positions: list[int]) -> None:
        ids = self.free_ids(positions, WAITING)
        with self.store.transaction() as tx:
            tx.remove(ids)
        self.settle_sent(ids)

    @rule(source=st.sampled_from(DESTINATIONS), remaining=st.integers(0, 3))
    def set_hold(self, source: str, remaining: int) -> None:
        with self.store.transaction() as tx:
            tx.set_hold(source, remaining)
        self.holds[source] = remaining

    # Operators.

    @rule(row_filter=FILTERS, now_ms=TIMES)
    def retry(self, row_filter: RowFilter, now_ms: int) -> None:
        row_filter = self.with_ids(row_filter)
        hit = [row for row in self.hit(row_filter) if row.recall is not Recall.SEND]
        assert self.store.change(row_filter, row_changes.retry(now_ms, "ann")) == len(hit)
        for row in hit:
            self.acted[row.id] += 1
            if row.message == NO_MESSAGE:
                self.change(row, recall=Recall.SEND)
                continue
            due = min(row.due_at_ms, now_ms) if row.state is WAITING else now_ms
            self.change(row, state=WAITING, due_at_ms=due)
            if row.state is EXHAUSTED:
                self.change(row, final_queue=None, redelivery_count=1)

    @rule(row_filter=FILTERS, now_ms=TIMES)
    def cancel(self, row_filter: RowFilter, now_ms: int) -> None:
        row_filter = self.with_ids(row_filter)
        hit = [row for row in self.hit(row_filter) if not row.is_final or row.recall in WANTED]
        assert self.store.change(row_filter, row_changes.cancel(now_ms, "ann", ".final")) == len(
            hit
        )
        for row in hit:
            self.acted[row.id] += 1
            if row.is_final:
                self.change(row, recall=Recall.LEAVE)
                continue
            final = row.final_queue or row.source + ".final"
            self.change(row, state=WAITING, due_at_ms=now_ms, final_queue=final, is_final=True)
            self.change(row, redelivery_count=row.redelivery_count - (row.state is not EXHAUSTED))

    @rule(row_filter=FILTERS, now_ms=TIMES)
    def hold(self, row_filter: RowFilter, now_ms: int) -> None:
        row_filter = self.with_ids(row_filter)
        hit = [row for row in self.hit(row_filter) if row.state is WAITING]
        assert self.store.change(row_filter, row_changes.hold(now_ms, "ann")) == len(hit)
        for row in hit:
            self.change(row, state=HELD)
            self.acted[row.id] += 1

    @rule(row_filter=FILTERS, now_ms=TIMES)
    def release(self, row_filter: RowFilter, now_ms: int) -> None:
        row_filter = self.with_ids(row_filter)
        hit = [row for row in self.hit(row_filter) if row.state is HELD]
        assert self.store.change(row_filter, row_changes.release(now_ms, "ann")) == len(hit)
        for row in hit:
            self.change(row, state=WAITING, due_at_ms=max(row.due_at_ms, now_ms))
            self.acted[row.id] += 1

    @rule(closes=st.booleans())
    def open_again(self, closes: bool) -> None:
        """A process that was killed never closed."""
        before = self.store
        if closes:
            before.close()
        self.open()
        before.close()

    # The model.

    def at_rest(self) -> list[TakenRow]:
        return [row for row in self.rows.values() if self.is_free(row.id)]

    def ids_at(self, positions: Sequence[int]) -> list[int]:
        """Return ids by their place among the present rows, those of a taking cycle included."""
        ids = sorted(self.rows)
        if self.begun is not None:
            ids += [row.id for row in self.begun.taken]
        return [ids[position] for position in positions if position < len(ids)] + [999]

    def free_ids(self, positions: Sequence[int], *states: RowState) -> list[int]:
        free = [row_id for row_id in self.ids_at(positions) if self.is_free(row_id)]
        return [one for one in free if one not in self.rows or self.rows[one].state in states]

    def with_ids(self, row_filter: RowFilter) -> RowFilter:
        if row_filter.ids is None:
            return row_filter
        return msgspec.structs.replace(row_filter, ids=tuple(self.ids_at(row_filter.ids)))

    def is_free(self, row_id: int) -> bool:
        begun = self.begun
        if begun is None:
            return True
        return row_id not in begun.sent and row_id not in [row.id for row in begun.taken]

    def present(self, ids: list[int]) -> list[TakenRow]:
        return [self.rows[row_id] for row_id in ids if row_id in self.rows]

    def change(self, row: TakenRow, **fields: object) -> None:
        self.rows[row.id] = msgspec.structs.replace(self.rows[row.id], **fields)

    def hit(self, row_filter: RowFilter) -> list[TakenRow]:
        return [row for row in self.at_rest() if self.matches(row, row_filter)]

    def matches(self, row: TakenRow, row_filter: RowFilter) -> bool:
        return (
            (row_filter.ids is None or row.id in row_filter.ids)
            and row_filter.destination in (None, row.destination)
            and row_filter.state in (None, row.state)
        )

    # What both must tell.

    @invariant()
    def state_agrees(self) -> None:
        state = self.store.open()
        assert state.cycle == self.cycle
        if self.begun is None:
            assert state.unfinished is None
        else:
            assert state.unfinished is not None
            assert state.unfinished.taken_count == len(self.begun.taken)
            assert state.unfinished.sent_count == len(self.begun.sent)

    @invariant()
    def rows_agree(self) -> None:
        listed = self.store.list_rows(RowFilter(), 10_000)
        assert [row.id for row in listed] == sorted(self.rows)
        for row in listed:
            expected = self.rows[row.id]
            for name in ("state", "due_at_ms", "destination", "is_final", "redelivery_id", *_LATER):
                assert getattr(row, name) == getattr(expected, name)
            assert row.in_flight is not self.is_free(row.id)
            assert self.store.message(row.id) == (expected.message or None)

    @invariant()
    def counts_agree(self) -> None:
        expected = Counter((row.destination, row.state) for row in self.rows.values())
        tallies = self.store.tallies()
        assert {(one.destination, one.state): one.count for one in tallies} == dict(expected)
        assert self.store.count_rows(RowFilter()) == len(self.rows)
        assert self.store.holds() == self.holds

    @invariant()
    def places_of_exhausted_rows_agree(self) -> None:
        if isinstance(self.store, MemoryStore):
            return
        assert isinstance(self.store, SqliteStore | PostgresStore)
        rows = [row for row in self.rows.values() if row.state is EXHAUSTED]
        expected = Counter((row.destination, row.final_queue, row.is_final) for row in rows)
        told = self.store.exhausted_tallies()
        assert {(one.destination, one.queue, one.is_in_queue): one.count for one in told} == (
            dict(expected)
        )
        assert {one.since_ms for one in told} <= {row.received_at_ms for row in rows}

    @invariant()
    def next_due_agrees(self) -> None:
        dues = [row.due_at_ms for row in self.at_rest() if row.state is WAITING]
        assert self.store.next_due_ms() == min(dues, default=None)

    @invariant()
    def history_agrees(self) -> None:
        for row_id in {event.id for event in self.events[-12:]} | set(self.ids_at(range(12))):
            told = self.store.history(f"test-{row_id:012d}")
            by_engine = [event for event in told if not hasattr(event, "actor") or not event.actor]
            assert by_engine == [event for event in self.events if event.id == row_id]
            assert len(told) - len(by_engine) == self.acted[row_id]


class SqliteMachine(StoreMachine):
    """Another process looks at the same file, and removes texts that no row has any more."""

    def prepare(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.other = self.opened()

    def open(self) -> None:
        self.store = self.opened()

    def opened(self) -> UnsyncedStore:
        store = UnsyncedStore(self.folder / "schedule.db", clock=VirtualClock())
        store.open()
        return store

    @rule(by_other=st.booleans(), limit=st.integers(1, 3))
    def forget_words(self, by_other: bool, limit: int) -> None:
        forgetful = self.other if by_other else self.store
        assert forgetful.forget_history(0, limit) == 0

    @invariant()
    def words_agree(self) -> None:
        """The texts of rows are counted, those of a cycle that is not finished, too."""
        with closing(sqlite3.connect(self.folder / "schedule.db")) as database:
            counted = dict(database.execute("SELECT text, uses FROM word WHERE uses <> 0"))
        rows = list(self.rows.values())
        if self.begun is not None:
            rows += self.begun.taken
        texts = [
            (row.destination, row.source, row.rule, row.encoding, row.final_queue) for row in rows
        ]
        assert counted == Counter(text for text in chain.from_iterable(texts) if text)

    @invariant()
    def another_process_agrees(self) -> None:
        own, others = (one.list_rows(RowFilter(), 10_000) for one in (self.store, self.other))
        assert own == others
        texts = {view.id: (view.source, view.rule, view.encoding) for view in others}
        assert texts == {row.id: (row.source, row.rule, row.encoding) for row in self.rows.values()}
        assert self.other.tallies() == self.store.tallies()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.other.close()
            shutil.rmtree(self.folder)


class PostgresMachine(StoreMachine):
    """Another instance looks at the same schedule."""

    url = ""

    def prepare(self) -> None:
        empty(self.url)
        self.other = self.opened("other")

    def open(self) -> None:
        self.store = self.opened("own")

    def opened(self, name: str) -> EmptiedStore:
        store = EmptiedStore(self.url, clock=VirtualClock(), instance_name=name)
        store.open()
        return store

    @invariant()
    def another_instance_agrees(self) -> None:
        own, others = (one.list_rows(RowFilter(), 10_000) for one in (self.store, self.other))
        assert own == others
        assert self.other.tallies() == self.store.tallies()
        assert self.other.next_due_ms() == self.store.next_due_ms()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.other.close()


def test_postgres_store(postgres: PostgresServer) -> None:
    PostgresMachine.url = postgres.url()
    run_state_machine_as_test(PostgresMachine, settings=settings(SETTINGS, max_examples=15))


class MemoryMachine(StoreMachine):
    """The simulation runs on this one."""

    def prepare(self) -> None:
        self.medium = Medium()

    def open(self) -> None:
        self.store = MemoryStore(self.medium)
        self.store.open()


SETTINGS = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSqliteStore = SqliteMachine.TestCase
TestSqliteStore.settings = SETTINGS
TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = SETTINGS
