"""Held rows wait for an event outside in every store: never early, never twice, none forgotten."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from amqsidecar.model import row_changes
from amqsidecar.model.cause_note import WaitFor
from amqsidecar.model.event import Exhausted, Held, Released
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.row_changes import Exhausting
from amqsidecar.model.schedule import RowFilter, RowState, RowView
from amqsidecar.model.signal import EndedWait, Signal
from amqsidecar.operations import operate
from amqsidecar.operations.markers import end_waits
from amqsidecar.operations.operate import Wish
from amqsidecar.schedule import Schedule
from amqsidecar.stores.postgres.store import PostgresStore
from support.stores.rows import scheduled, taken_row, took
from support.waiting import eventually

MakeStore = Callable[[], Schedule]
HELD = RowState.HELD
LATE_MS = 10_000


def take(store: Schedule, *rows: tuple[int, str | None], finish: bool = True) -> int:
    taken = [
        taken_row(
            number,
            state=HELD if name else RowState.WAITING,
            gate=name,
            due_at_ms=LATE_MS if name else 1_000,
        )
        for number, name in rows
    ]
    cycle = store.state().cycle + 1
    store.allocate_ids(len(taken))
    with store.transaction() as tx:
        events = [event for row in taken for event in (took(row), scheduled(row))]
        tx.record_cycle(cycle, taken, [], events)
        if finish:
            tx.finish_cycle(cycle)
    return cycle


def view(store: Schedule, number: int) -> RowView:
    [row] = store.list_rows(RowFilter(ids=(number,)), 1)
    return row


def report(store: Schedule, name: str, at_ms: int) -> None:
    store.add_signal(Signal(name=name, at_ms=at_ms, author="api:ci \ud800"))


def test_an_event_releases_what_waits_for_it_and_nothing_else(store: Schedule) -> None:
    take(store, (1, "invoice-1"), (2, "invoice-2"), (3, None), (4, "invoice-1"))
    assert (view(store, 1).gate, view(store, 3).gate) == ("invoice-1", None)
    assert end_waits(store, 0, LATE_MS - 1, None) == 0
    report(store, "invoice-1", 5_000)
    assert end_waits(store, 5_000, 6_000, None) == 2
    assert end_waits(store, 0, 6_000, None) == 0
    states = [view(store, number).state for number in (1, 2, 3, 4)]
    assert states == [RowState.WAITING, HELD, RowState.WAITING, RowState.WAITING]
    row = view(store, 1)
    assert (row.due_at_ms, row.gate, row.reason) == (6_000, None, None)
    [released] = [one for one in store.history(row.redelivery_id) if isinstance(one, Released)]
    assert released.actor == "event invoice-1 of api:ci \\ud800"
    with store.transaction() as tx:
        assert {one.id for one in tx.claim_due(6_000, 9)} == {1, 3, 4}


@pytest.mark.parametrize("exhausts", [False, True])
def test_after_its_longest_time_it_is_released_or_exhausted(
    store: Schedule, exhausts: bool
) -> None:
    take(store, (1, "invoice-1"))
    exhausting = Exhausting(final_suffix=".exhausted", keeps_exhausted=True) if exhausts else None
    assert end_waits(store, 0, LATE_MS - 1, exhausting) == 0
    assert end_waits(store, 0, LATE_MS, exhausting) == 1
    row = view(store, 1)
    assert row.state is (RowState.EXHAUSTED if exhausts else RowState.WAITING)
    last = store.history(row.redelivery_id)[-1]
    said = last.rule if isinstance(last, Exhausted) else getattr(last, "actor", "")
    assert said == "the longest wait for invoice-1 has passed"


def test_an_event_that_comes_with_the_last_moment_counts(store: Schedule) -> None:
    take(store, (1, "invoice-1"))
    report(store, "invoice-1", LATE_MS)
    assert [*store.ended_waits(0, LATE_MS, 9)] == [
        EndedWait(1, "invoice-1", "api:ci \\ud800"), EndedWait(1, "invoice-1")
    ]  # fmt: skip
    exhausting = Exhausting(final_suffix=".exhausted", keeps_exhausted=True)
    assert end_waits(store, 0, LATE_MS, exhausting) == 1
    assert view(store, 1).state is RowState.WAITING


def test_an_event_before_the_message_or_while_it_is_taken_is_remembered(store: Schedule) -> None:
    report(store, "early", 1)
    cycle = take(store, (1, "early"), (2, "meanwhile"), finish=False)
    report(store, "meanwhile", 2)
    assert end_waits(store, 0, 3, None) == 0
    with store.transaction() as tx:
        tx.finish_cycle(cycle)
    assert end_waits(store, 0, 3, None) == 2
    assert store.forget_signals(4, 4) == 0
    eventually(lambda: store.forget_signals(6, 1) == 2, what="both are forgotten")
    report(store, "again", 3)
    assert store.forget_signals(6, 1) == 0
    take(store, (3, "early"), (4, "again"))
    assert end_waits(store, 6, 6, None) == 1
    assert (view(store, 3).state, view(store, 4).state) == (HELD, RowState.WAITING)
    report(store, "early", 7)
    assert end_waits(store, 7, 7, None) == 1


@pytest.mark.parametrize("clock_ms", [0, 500, 10**12])
def test_an_event_of_before_ends_the_wait_no_earlier_than_the_rules(
    store: Schedule, clock_ms: int
) -> None:
    """Else a message that dies again at once for the same event would spin.

    Whatever the clock of the reporter says.
    """
    report(store, "early", clock_ms)
    take(store, (1, "early"), (2, "late"), (3, None))
    report(store, "late", clock_ms)
    assert store.change(RowFilter(ids=(3,)), row_changes.hold(550, "ann", WaitFor("late"))) == 1
    assert end_waits(store, 600, 600, None) == 3
    assert [view(store, number).due_at_ms for number in (1, 2, 3)] == [1_000, 600, 1_000]


def test_a_report_counts_and_is_remembered_by_the_clocks_of_the_services(store: Schedule) -> None:
    """Not by its reporter's: a slow one would be forgotten, and a fast one hide later ones."""
    hour_ms = 3_600_000
    take(store, (1, "invoice-1"))
    report(store, "invoice-1", 10 * hour_ms)
    assert end_waits(store, 6_000, 6_000, None) == 1
    take(store, (2, "invoice-1"))
    report(store, "invoice-1", -10 * hour_ms)
    assert end_waits(store, 6_000, 6_000, None) == 1
    assert view(store, 2).due_at_ms == 6_000
    for now_ms in (6_000, 6_000 + hour_ms):
        assert store.forget_signals(now_ms, hour_ms) == 0
    # Services of one schedule may have different clocks: its database has one.
    is_shared = isinstance(store, PostgresStore)
    assert store.forget_signals(6_001 + hour_ms, hour_ms) == (not is_shared)


def test_a_report_beside_dead_letters_is_of_after_their_death(store: Schedule) -> None:
    """They were taken in one cycle: nobody knows which came first, and each waits once at most."""
    row = taken_row(1, state=HELD, gate="invoice-1", due_at_ms=LATE_MS)
    store.allocate_ids(1)
    with store.transaction() as tx:
        tx.record_cycle(1, [row], [], [took(row)])
        tx.add_signal(Signal(name="invoice-1", at_ms=500, author="queue://amqsidecar.events"))
        tx.finish_cycle(1)
    assert end_waits(store, 600, 600, None) == 1
    assert view(store, 1).due_at_ms == 600


def test_a_report_in_a_cycle_counts_also_if_the_broker_commits_none_of_it(store: Schedule) -> None:
    take(store, (1, "invoice-1"))
    cycle = store.state().cycle + 1
    with store.transaction() as tx:
        tx.add_signal(Signal(name="invoice-1", at_ms=5_000, author="queue://amqsidecar.events"))
        tx.record_cycle(cycle, [], [], [])
    with store.transaction() as tx:
        tx.undo_cycle(cycle)
    assert end_waits(store, 0, 6_000, None) == 1


def test_a_person_lets_it_wait_and_releases_it_before_the_event(store: Schedule) -> None:
    take(store, (1, None))
    assert store.change(RowFilter(), row_changes.hold(2_000, "ann", WaitFor("invoice-1", 500))) == 1
    row = view(store, 1)
    assert (row.state, row.gate, row.due_at_ms) == (HELD, "invoice-1", 2_500)
    until = "waits for invoice-1, at the latest until 1970-01-01 00:00:02Z: held by ann"
    assert row.reason == until
    [held] = [one for one in store.history(row.redelivery_id) if isinstance(one, Held)]
    assert (held.reason, held.actor) == (until, "ann")
    assert store.change(RowFilter(), row_changes.release(2_100, "bob")) == 1
    assert (view(store, 1).due_at_ms, view(store, 1).gate) == (2_100, None)
    assert store.change(RowFilter(), row_changes.hold(2_200, "ann")) == 1
    report(store, "invoice-1", 2_300)
    assert end_waits(store, 0, 99_000, None) == 0
    assert view(store, 1).state is HELD


def test_what_an_undone_discard_puts_back_waits_on(store: Schedule) -> None:
    take(store, (1, "invoice-1"))
    wish = Wish(action=Action.DISCARD, selection=Selection(rows=RowFilter(ids=(1,))), actor="ann")
    number = operate.begin(store, wish, 2_000).id

    def carry_out() -> None:
        for _ in range(3):
            operate.carry_out(store, number, "service", ".exhausted", lambda: 2_100)

    carry_out()
    assert store.list_rows(RowFilter(), 9) == []
    report(store, "invoice-1", 2_050)
    assert end_waits(store, 0, 2_100, None) == 0
    operate.undo(store, number, 2_100, "ann")
    carry_out()
    assert (view(store, 1).state, view(store, 1).gate) == (HELD, "invoice-1")
    assert end_waits(store, 0, 2_200, None) == 1


def test_what_waits_is_no_message_that_a_gate_delays(store: Schedule) -> None:
    take(store, (1, "invoice-1"), (2, None))
    with store.transaction() as tx:
        tx.postpone([2], 9_000, "closed", "windows")
    tallies = {one.gate: (one.count, one.last_due_at_ms) for one in store.gate_tallies(0)}
    assert tallies == {"windows": (1, 9_000), "": (1, LATE_MS)}
    assert end_waits(store, 0, 99_000, None) == 1


class World:
    """A store whose process dies anywhere; a seed decides what happens."""

    def __init__(self, open_store: MakeStore, seed: int) -> None:
        self.open_store, self.chance = open_store, random.Random(seed)
        self.store, self.now_ms, self.next_id = open_store(), 100, 1
        self.reported = dict[str, int]()
        self.waits = dict[int, tuple[str, int]]()
        self.sent = Counter[int]()
        self.pending: tuple[int, bool, list[int]] | None = None

    def names(self) -> list[str]:
        return [f"e{number}" for number in range(6)]

    def take(self) -> None:
        """Begin a cycle; its end may come much later, or never."""
        self.settle()
        count = self.chance.randint(1, 4)
        ids = range(self.next_id, self.next_id + count)
        rows = []
        for number in ids:
            name, until_ms = self.chance.choice(self.names()), self.now_ms + 400
            rows.append(
                taken_row(
                    number, state=HELD, gate=name, due_at_ms=until_ms, received_at_ms=self.now_ms,
                    delay_ms=0,
                )
            )  # fmt: skip
            self.waits[number] = (name, until_ms)
        self.next_id += count
        self.store.allocate_ids(count)
        cycle = self.store.state().cycle + 1
        with self.store.transaction() as tx:
            tx.record_cycle(cycle, rows, [], [took(row) for row in rows])
        self.pending = cycle, True, [*ids]

    def settle(self) -> None:
        if self.pending is None:
            return
        cycle, is_taking, ids = self.pending
        is_committed = self.chance.random() < 0.7
        with self.store.transaction() as tx:
            (tx.finish_cycle if is_committed else tx.undo_cycle)(cycle)
        self.pending = None
        for number in ids:
            if is_taking and not is_committed:
                del self.waits[number]
            elif not is_taking and is_committed:
                self.sent[number] += 1

    def report(self) -> None:
        name = self.chance.choice(self.names())
        report(self.store, name, self.now_ms)
        self.reported[name] = self.now_ms

    def end(self) -> None:
        end_waits(self.store, 0, self.now_ms, None)

    def send(self) -> None:
        self.settle()
        cycle = self.store.state().cycle + 1
        with self.store.transaction() as tx:
            due = tx.claim_due(self.now_ms, 3)
            if due:
                tx.record_cycle(cycle, [], due, [])
        for row in due:
            name, until_ms = self.waits[row.id]
            assert self.now_ms >= until_ms or name in self.reported, "early"
        if due:
            self.pending = cycle, False, [row.id for row in due]

    def die(self) -> None:
        self.store.close()
        self.store = self.open_store()

    def go(self) -> None:
        acts = [self.take, self.report, self.end, self.end, self.send, self.send, self.die]
        for _ in range(80):
            self.now_ms += self.chance.choice((0, 1, 20))
            self.chance.choice(acts)()
        self.settle()
        self.now_ms += 1_000
        for _ in range(200):
            self.end()
            self.send()
            self.settle()
        assert self.sent == Counter(dict.fromkeys(self.waits, 1))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_is_sent_once_and_not_before(
    open_store: MakeStore, seed: int
) -> None:
    World(open_store, seed).go()
