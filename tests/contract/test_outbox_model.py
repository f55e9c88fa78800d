"""The outbox of each store against lists: over any history each event is in exactly one segment."""

import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from amqsidecar.journal import Outbox, Segment
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent, Held
from amqsidecar.model.schedule import RowFilter
from amqsidecar.store import Store
from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.postgres_server import PostgresServer
from support.stores.rows import resent, taken_row, took
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

FAR_MS = 10**9


class JournaledStore(Store, Outbox, Protocol):
    """A store that a journal is written from."""


WRITER = st.integers(0, 1)


class Block(msgspec.Struct):
    """Events that were written together.

    Attributes:
        sent: rows that its unfinished cycle sends; None = it counts.
        segment: where it is planned.
    """

    writer: int
    events: list[AnyEvent]
    sent: set[int] | None = None
    segment: Segment | None = None


class OutboxMachine(RuleBasedStateMachine):
    """Cycles, actions, deaths, retention and a journal, against lists."""

    WRITERS = 1

    def prepare(self) -> None:
        """Make what outlives store objects."""
        raise NotImplementedError

    def opened(self, writer: int) -> JournaledStore:
        """Open a new object over it."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.prepare()
        self.stores = [self.opened(writer) for writer in range(self.WRITERS)]
        self.operator = self.opened(0)
        self.cycles = [0] * self.WRITERS
        self.begun: list[Block | None] = [None] * self.WRITERS
        self.now_ms = 0
        self.blocks = list[Block]()  # in the order in which they were written
        self.counted = list[AnyEvent]()
        self.lost = list[AnyEvent]()  # forgotten while no journal was kept
        self.planned: Segment | None = None
        self.journal: dict[Segment, list[Sequence[AnyEvent]]] = {}
        self.is_kept = False

    def tick(self) -> int:
        self.now_ms += 1
        return self.now_ms

    # What writes events.

    @rule(writer=WRITER, takes=st.integers(0, 3), sends=st.integers(0, 2))
    def begin_cycle(self, writer: int, takes: int, sends: int) -> None:
        writer %= self.WRITERS
        if self.begun[writer] is not None:
            return
        store = self.stores[writer]
        first = store.allocate_ids(takes + 1)
        rows = [
            taken_row(first + number, due_at_ms=0, received_at_ms=self.tick())
            for number in range(takes)
        ]
        with store.transaction() as tx:
            sent = tx.claim_due(FAR_MS, sends)
            events: list[AnyEvent] = [took(row) for row in rows]
            events += [resent(row, self.tick()) for row in sent]
            tx.record_cycle(self.cycles[writer] + 1, rows, sent, events)
        block = Block(writer, events, {row.id for row in sent})
        self.begun[writer] = block
        self.blocks.append(block)

    @rule(writer=WRITER, end=st.sampled_from(["finish_cycle", "undo_cycle", "settle_in_doubt"]))
    def end_cycle(self, writer: int, end: str) -> None:
        writer %= self.WRITERS
        begun = self.begun[writer]
        if begun is None:
            return
        with self.stores[writer].transaction() as tx:
            getattr(tx, end)(self.cycles[writer] + 1)
        self.begun[writer] = None
        self.cycles[writer] += end != "undo_cycle"
        if end == "settle_in_doubt":
            sent = begun.sent
            assert sent is not None
            begun.events = [event for event in begun.events if event.id not in sent]
        elif end == "undo_cycle":
            begun.events = []
        begun.sent = None
        self.counted += begun.events

    @rule(writer=WRITER, count=st.integers(1, 3))
    def record(self, writer: int, count: int) -> None:
        events: list[AnyEvent] = [
            Held(at_ms=self.tick(), redelivery_id=f"r{self.now_ms}", destination="", reason="")
            for _ in range(count)
        ]
        with self.stores[writer % self.WRITERS].transaction() as tx:
            tx.record(events)
        self.add(writer % self.WRITERS, events)

    @rule()
    def act(self) -> None:
        now_ms = self.tick()
        if self.operator.change(RowFilter(), row_changes.retry(now_ms, "ann")):
            rows = self.operator.list_rows(RowFilter(), 10_000)
            told = [event for row in rows for event in self.operator.history(row.redelivery_id)]
            self.add(-1, [event for event in told if event.at_ms == now_ms])

    def add(self, writer: int, events: list[AnyEvent]) -> None:
        self.blocks.append(Block(writer, events))
        self.counted += events

    @rule(writer=WRITER)
    def renew_uid(self, writer: int) -> None:
        with self.stores[writer % self.WRITERS].transaction() as tx:
            tx.renew_uid()

    @rule(closes=st.booleans())
    def open_again(self, closes: bool) -> None:
        """A process that was killed never closed."""
        before = self.stores
        if closes:
            for store in before:
                store.close()
        self.stores = [self.opened(writer) for writer in range(self.WRITERS)]
        for store in before:
            store.close()

    # What writes the journal.

    def plannable(self) -> list[Block]:
        """Return the finished blocks without a segment, in the order of segments."""
        return [one for one in self.blocks if one.segment is None and one.sent is None]

    @rule(by_operator=st.booleans(), max_events=st.integers(1, 8))
    def plan(self, by_operator: bool, max_events: int) -> None:
        store = self.operator if by_operator else self.stores[0]
        segment = store.plan_segment(max_events)
        if self.planned is not None:
            assert segment == self.planned
            return
        chosen, total = list[Block](), 0
        for block in self.plannable():
            total += len(block.events)
            if block.events and (total <= max_events or not chosen):
                chosen.append(block)
            elif block.events:
                break
        if not chosen:
            assert segment is None
            return
        assert segment is not None
        for block in chosen:
            block.segment = segment
        self.planned = segment

    @precondition(lambda self: self.planned is not None)
    @rule(is_confirmed=st.booleans())
    def write(self, is_confirmed: bool) -> None:
        """Write the file of the planned segment; after a death it is written again."""
        segment = self.planned
        assert segment is not None
        blocks = list(self.operator.segment_events(segment))
        assert blocks == [block.events for block in self.blocks if block.segment == segment]
        assert sum(map(len, blocks)) == segment.event_count
        if is_confirmed:
            self.operator.segment_written(segment)
            self.journal[segment] = blocks
            self.planned = None

    @precondition(lambda self: self.planned is not None)
    @rule()
    def plan_anew(self) -> None:
        segment, self.planned = self.planned, None
        assert segment is not None
        self.operator.plan_anew(segment)
        for block in self.blocks:
            if block.segment == segment:
                block.segment = None

    @rule()
    def confirm_again(self) -> None:
        for segment in self.journal:
            self.operator.segment_written(segment)

    # Retention.

    @rule(is_on=st.booleans())
    def keep(self, is_on: bool) -> None:
        self.operator.keep_for_journal(is_on)
        self.is_kept = is_on

    @rule(back_ms=st.integers(0, 20), limit=st.integers(1, 9))
    def forget(self, back_ms: int, limit: int) -> None:
        before_ms = self.now_ms - back_ms
        old = [
            block
            for block in self.forgettable()
            if all(event.at_ms < before_ms for event in block.events)
        ]
        removed = self.operator.forget_history(before_ms, limit)
        assert removed == min(limit, count_of(old))
        self.notice_forgotten(removed)

    @rule(max_events=st.integers(0, 20), limit=st.integers(1, 9))
    def trim(self, max_events: int, limit: int) -> None:
        excess = max(0, count_of(self.blocks) - max_events)
        removed = self.operator.trim_history(max_events, limit)
        assert removed == min(limit, excess, count_of(self.forgettable()))
        self.notice_forgotten(removed)

    def forgettable(self) -> list[Block]:
        return [
            block
            for block in self.blocks
            if block.sent is None
            and (block.segment in self.journal or (block.segment is None and not self.is_kept))
        ]

    def notice_forgotten(self, removed: int) -> None:
        """Find out which events went; what must stay must still be there."""
        for block in self.blocks:
            if block.sent is not None:
                continue
            left = [event for event in block.events if event in self.told(event)]
            gone = [event for event in block.events if event not in left]
            removed -= len(gone)
            if block.segment not in self.journal:
                assert not gone or (block.segment is None and not self.is_kept)
                self.lost += gone
            block.events = left
        assert removed == 0

    def told(self, event: AnyEvent) -> list[AnyEvent]:
        return self.operator.history(event.redelivery_id)

    # What must be true.

    @invariant()
    def lag_agrees(self) -> None:
        waiting = [
            block
            for block in self.blocks
            if block.sent is None and block.events and block.segment not in self.journal
        ]
        lag = self.operator.outbox_lag()
        assert lag.events == count_of(waiting)
        oldest = (
            min((event.at_ms for event in waiting[0].events), default=None) if waiting else None
        )
        assert lag.oldest_at_ms == oldest

    @invariant()
    def kept_segments_agree(self) -> None:
        kept = Counter[Segment]()
        for block in self.blocks:
            if block.segment is not None:
                kept[block.segment] += len(block.events)
        whole = [segment for segment in self.journal if kept[segment] == segment.event_count]
        assert self.operator.written_segments() == whole

    def teardown(self) -> None:
        if not hasattr(self, "journal"):
            return
        try:
            self.drain()
            self.check_journal()
        finally:
            for store in (*self.stores, self.operator):
                store.close()

    def drain(self) -> None:
        for writer in range(self.WRITERS):
            self.end_cycle(writer, "finish_cycle")
        while self.planned is not None or count_of(self.plannable()):
            self.plan(by_operator=True, max_events=5)
            self.write(is_confirmed=True)
        assert self.operator.plan_segment(5) is None

    def check_journal(self) -> None:
        told = [event for blocks in self.journal.values() for block in blocks for event in block]
        assert Counter(map(repr, told)) == Counter(
            map(repr, (event for event in self.counted if event not in self.lost))
        )
        numbers = defaultdict[str, list[int]](list)
        for segment in self.journal:
            numbers[segment.stream].append(segment.number)
        for found in numbers.values():
            assert found == list(range(1, len(found) + 1))


def count_of(blocks: list[Block]) -> int:
    return sum(len(block.events) for block in blocks)


class SqliteMachine(OutboxMachine):
    """Segments are in the order of the blocks; so nothing after an unfinished cycle is planned."""

    def prepare(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def opened(self, writer: int) -> JournaledStore:
        store = UnsyncedStore(self.folder / "schedule.db", clock=VirtualClock())
        store.open()
        return store

    def plannable(self) -> list[Block]:
        begun = self.begun[0]
        # Why: a cycle that tells of nothing holds nobody up.
        end = self.blocks.index(begun) if begun is not None and begun.events else len(self.blocks)
        return [one for one in self.blocks[:end] if one.segment is None and one.sent is None]

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


class PostgresMachine(OutboxMachine):
    """Two sidecars share a schedule; one in the middle of a cycle delays no other."""

    WRITERS = 2
    url = ""

    def prepare(self) -> None:
        empty(self.url)

    def opened(self, writer: int) -> JournaledStore:
        store = EmptiedStore(self.url, clock=VirtualClock(), instance_name=f"sidecar-{writer}")
        store.open()
        return store


SETTINGS: dict[str, Any] = {"stateful_step_count": 40, "deadline": None}
TestSqliteOutbox = SqliteMachine.TestCase
TestSqliteOutbox.settings = settings(max_examples=60, **SETTINGS)


@pytest.mark.postgres
def test_postgres_outbox(postgres: PostgresServer) -> None:
    PostgresMachine.url = postgres.url()
    run_state_machine_as_test(PostgresMachine, settings=settings(max_examples=12, **SETTINGS))
