"""What only the ledger of PostgreSQL promises: several processes count, act and follow at once."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from amqsidecar.engine.rules_at_work import different_rules, rules_at_work
from amqsidecar.ledger import RowOrder
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent, Cancelled
from amqsidecar.model.failure import MORE, CountKind
from amqsidecar.model.marker import ServiceMark, ServiceMarkKind
from amqsidecar.model.operation import Action, Operation, OperationState, Selection
from amqsidecar.model.schedule import DueRow, RowFilter, RowState, TakenRow
from amqsidecar.stores.postgres import counts as postgres_counts
from amqsidecar.stores.postgres import operations as postgres_operations
from amqsidecar.stores.postgres import pages as postgres_pages
from amqsidecar.stores.postgres.store import PostgresStore
from amqsidecar.stores.postgres.transaction import PostgresTransaction
from support.stores.failure_counts import counts_of
from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.postgres_server import PostgresServer
from support.stores.rows import resent, take_rows, taken_row, took
from support.virtual_clock import VirtualClock

ALL = RowFilter()
CAUSES = ("java.lang.IllegalStateException: refused", None, "a.B: boom")
MakeStore = Callable[..., EmptiedStore]


@pytest.fixture
def make(postgres: PostgresServer) -> Iterator[MakeStore]:
    """Opens stores of sidecars over one and the same schedule, or of people."""
    url, made = postgres.url(), list[EmptiedStore]()
    empty(url)

    def make_store(*, is_for_service: bool = True) -> EmptiedStore:
        store = EmptiedStore(url, clock=VirtualClock())
        made.append(store)
        if is_for_service:
            store.lock_for_service()
        store.open()
        return store

    yield make_store
    for store in made:
        store.close()


def some_row(store: PostgresStore, chance: random.Random, row_id: int | None = None) -> TakenRow:
    row_id = store.allocate_ids(1) if row_id is None else row_id
    cause = chance.choice(CAUSES)
    return taken_row(
        row_id,
        destination=f"queue://{chance.randrange(3)}",
        state=chance.choice([RowState.WAITING, RowState.WAITING, *RowState]),
        cause=cause,
        cause_group="" if chance.random() < 0.2 else str(cause),
        received_at_ms=chance.randrange(1, 1_000_000),
        due_at_ms=chance.randrange(1, 50),
    )


def test_sidecars_know_the_rules_of_those_at_work_on_their_schedule(make: MakeStore) -> None:
    first, second, gone = make(), make(), make()
    names = [store.open().instance for store in (first, second, gone)]
    for at_ms, (name, digest) in enumerate(
        [*zip(names, ("one", "other", "three"), strict=True), (names[1], "two")]
    ):
        first.add_service_mark(
            ServiceMark(at_ms=at_ms, instance=name, kind=ServiceMarkKind.START, rules_digest=digest)
        )
    gone.close()
    at_work = rules_at_work(make(is_for_service=False))
    assert at_work == {names[0]: "one", names[1]: "two"}
    assert different_rules(at_work, "one").startswith(
        f"sidecars that share this schedule use other rules than this one (one): {names[1]} (two)"
    )
    assert different_rules({names[0]: "one"}, "one") == ""


def take(store: PostgresStore, rows: Sequence[TakenRow]) -> None:
    cycle = store.open().cycle + 1
    take_rows(store, cycle, rows, [took(row) for row in rows])


def retry_of(store: PostgresStore, **fields: Any) -> Operation:
    operation = Operation(
        id=0,
        action=Action.RETRY,
        selection=Selection(rows=RowFilter(**fields)),
        actor="ann",
        reason="",
        created_at_ms=5,
        until_id=0,
    )
    return store.add_operation(operation)


def as_done(operation: Operation) -> Operation:
    """Progress: it is done when all was looked at."""
    if operation.after_id < operation.until_id:
        return operation
    return msgspec.structs.replace(operation, state=OperationState.DONE)


# Counts.


class Counting:
    """A sidecar whose cycles end in every way, and what has to be counted of them."""

    def __init__(self, store: EmptiedStore, chance: random.Random) -> None:
        self.store = store
        self.counted = list[AnyEvent]()
        self._chance = chance
        self._cycle = store.open().cycle
        self._begun: tuple[Sequence[DueRow], Sequence[AnyEvent]] | None = None

    def go_on(self) -> None:
        """End the cycle, and begin the next one."""
        chance = self._chance
        with self.store.transaction() as tx:
            if self._begun is not None:
                self._end(tx, chance.choice(("finish", "finish", "undo", "settle")))
            due = tx.claim_due(100, chance.randrange(8))
            if due and chance.random() < 0.3:
                tx.park([due.pop().id], "full")
            if due and chance.random() < 0.3:
                tx.remove([due.pop().id])
            rows = [some_row(self.store, chance) for _ in range(chance.randrange(8))]
            events: list[AnyEvent] = [
                *(took(row) for row in rows),
                *(resent(row) for row in due),
            ]
            tx.record_cycle(self._cycle + 1, rows, due, events)
        self._begun = due, events

    def _end(self, tx: PostgresTransaction, how: str) -> None:
        assert self._begun is not None
        (due, events), self._begun = self._begun, None
        cycle = self._cycle + 1
        if how == "undo":
            tx.undo_cycle(cycle)
            return
        self._cycle = cycle
        if how == "finish":
            tx.finish_cycle(cycle)
            self.counted += events
        else:
            tx.settle_in_doubt(cycle)
            sent = {row.id for row in due}
            self.counted += [event for event in events if event.id not in sent]


def counted(store: PostgresStore) -> dict[Any, int]:
    found = store.failure_counts(0, 10**9, list(CountKind))
    return {one.key: one.count for one in found}


def rows_by_group(store: PostgresStore) -> Counter[tuple[str, RowState, str]]:
    rows = store.list_rows(ALL, 10_000)
    return Counter((row.destination, row.state, row.cause_group) for row in rows)


def tallied(store: PostgresStore) -> dict[tuple[str, RowState, str], int]:
    return {
        (one.destination, one.state, one.cause_group): one.count for one in store.group_tallies()
    }


ACTS: list[row_changes.RowChange] = [
    row_changes.retry(9, "ann"),
    row_changes.cancel(9, "ann", ".final"),
    row_changes.redirect(9, "ann", "queue://other"),
    row_changes.discard(9, "ann"),
    row_changes.hold(9, "ann"),
    row_changes.release(9, "ann"),
]


@pytest.mark.parametrize("seed", range(2))
def test_what_several_count_is_what_there_is(make: MakeStore, seed: int) -> None:
    """Cycles finish, fail and are settled, people act between, old counts are merged."""
    chance = random.Random(seed)
    sidecars = [Counting(make(), chance) for _ in range(3)]
    person, acted = make(is_for_service=False), list[AnyEvent]()
    for _ in range(60):
        chance.choice(sidecars).go_on()
        if chance.random() < 0.2:
            act = chance.choice(ACTS)
            group = chance.choice([None, "", *map(str, CAUSES)])
            operation = retry_of(person, cause_group=group)

            def noted(view: Any, act: row_changes.RowChange = act) -> row_changes.Change | None:
                made = act(view)
                acted.extend([made.event] if made is not None else [])
                return made

            operation = person.step_operation(
                operation.id, noted, None, chance.randrange(1, 9), as_done, False
            )
        assert tallied(person) == rows_by_group(person)
    events = [*acted, *(event for sidecar in sidecars for event in sidecar.counted)]
    assert counted(person) == counts_of(events)
    groups = person.failure_groups(0, 100)
    deaths = [event for event in events if event.__struct_config__.tag == "received"]
    assert sum(group.total for group in groups) == len(deaths)
    assert max(group.last_at_ms for group in groups) == max(event.at_ms for event in deaths)
    # Old counts become hours, whatever the portions.
    while person.forget_ledger(0, 700_000, 7):
        pass
    sums = Counter[Any]()
    for key, count in counts_of(events).items():
        is_old = key.bucket_ms < 700_000
        bucket_ms = key.bucket_ms - key.bucket_ms % 3_600_000 if is_old else key.bucket_ms
        sums[msgspec.structs.replace(key, bucket_ms=bucket_ms)] += count
    assert counted(person) == sums
    apart = "SELECT count(*) FROM failure_count WHERE instance <> 0 AND bucket_ms < 700000"
    assert person._database.run(apart) == [(0,)]
    assert person.forget_ledger(10**7, 10**7, 10_000) > 0
    assert counted(person) == {}
    assert person.failure_groups(0, 100) == []
    assert tallied(person) == rows_by_group(person)


def test_too_many_groups_are_one(make: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres_counts.ROOM, "groups_max", 2)
    store = make()
    names = ["a.A: one", "b.B: two", "c.C: three", "d.D: four"]
    for causes in (names[:1], names[1:2], names, names):
        take(store, [taken_row(row_id, cause=cause) for row_id, cause in _numbered(store, causes)])
    totals = {group.cause_group: group.total for group in store.failure_groups(0, 9)}
    assert totals == {names[0]: 3, names[1]: 3, MORE: 4}
    by_group = Counter[str]()
    for key, count in counted(store).items():
        by_group[key.cause_group] += count
    assert by_group == totals


def _numbered(store: PostgresStore, causes: Sequence[str]) -> list[tuple[int, str]]:
    return list(enumerate(causes, store.allocate_ids(len(causes))))


def test_two_count_the_same_at_once_without_waiting(make: MakeStore) -> None:
    stores, rounds = [make() for _ in range(3)], 30
    barrier = threading.Barrier(len(stores))

    def run(number: int) -> None:
        store = stores[number]
        barrier.wait(60)
        for turn in range(rounds):
            first = store.allocate_ids(4)
            take(
                store,
                [
                    taken_row(first + one, cause="a.B: boom", cause_group="a.B: boom")
                    for one in range(4)
                ],
            )
            if turn % 5 == number:
                store.forget_ledger(0, 10**9, 1_000)

    with ThreadPoolExecutor(len(stores)) as pool:
        for done in [pool.submit(run, number) for number in range(len(stores))]:
            done.result(120)
    total = 4 * rounds * len(stores)
    assert [one.total for one in stores[0].failure_groups(0, 9)] == [total]
    assert sum(counted(stores[0]).values()) == total
    assert list(tallied(stores[0]).values()) == [total]


def test_counting_costs_a_cycle_one_statement_and_no_round_trip(
    make: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make()
    trips = list[int]()
    run = store._database._run

    def counting_run(statements: Sequence[Any]) -> Any:
        trips.append(len(statements))
        return run(statements)

    def cost(cause_group: str) -> tuple[int, int]:
        first = store.allocate_ids(2)
        rows = [taken_row(row_id, cause_group=cause_group) for row_id in (first, first + 1)]
        cycle = store.open().cycle
        monkeypatch.setattr(store._database, "_run", counting_run)
        trips.clear()
        with store.transaction() as tx:
            tx.finish_cycle(cycle + 1)
            due = tx.claim_due(10_000, 2)
            events = [event for row in due for event in (took(rows[0]), resent(row))]
            tx.record_cycle(cycle + 2, rows, due, events if cause_group else [])
        monkeypatch.undo()
        return len(trips), sum(trips)

    with store.transaction() as tx:
        tx.record_cycle(1, [taken_row(1), taken_row(2)], [], [])
    plain = cost("")
    cost("a.B: boom")
    grouped = cost("a.B: boom")
    # A block of events costs a statement and a trip of its own, as it ever did.
    assert grouped == (plain[0] + 1, plain[1] + 2)


# Following.


class Writing:
    """A sidecar in the middle of this and that; it is one step further with each `go_on`."""

    def __init__(self, store: EmptiedStore, chance: random.Random, name: str) -> None:
        self.store = store
        self.visible: list[str] = []
        self._chance = chance
        self._name = name
        self._made = 0
        self._begun: list[str] = []
        self._cycle = 0
        self._open: tuple[ExitStack, PostgresTransaction, list[str], str] | None = None

    def go_on(self) -> None:
        if self._open is None:
            self._begin()
        else:
            self._end()

    def _events(self) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        for _ in range(self._chance.randrange(1, 4)):
            self._made += 1
            key = f"{self._name}-{self._made}"
            events.append(
                Cancelled(at_ms=1, id=1, redelivery_id=key, destination="queue://a", actor="")
            )
        return events

    def _begin(self) -> None:
        """Write something, but don't commit."""
        stack = ExitStack()
        tx = stack.enter_context(self.store.transaction())
        now, begun, cycle = list[str](), self._begun, self._cycle
        if begun and self._chance.random() < 0.7:
            if self._chance.random() < 0.3:
                tx.undo_cycle(cycle + 1)
            else:
                tx.finish_cycle(cycle + 1)
                now, cycle = begun, cycle + 1
            begun = []
        if self._chance.random() < 0.5:
            events = self._events()
            tx.record(events)
            now = now + [event.redelivery_id for event in events]
        if not begun:
            events = self._events()
            tx.record_cycle(cycle + 1, [], [], events)
            begun = [event.redelivery_id for event in events]
        self._then = begun, cycle
        self._open = stack, tx, now, ""

    def _end(self) -> None:
        assert self._open is not None
        (stack, _, now, _), self._open = self._open, None
        if self._chance.random() < 0.2:
            with pytest.raises(ZeroDivisionError), stack:
                raise ZeroDivisionError
            return
        stack.close()
        self.visible += now
        self._begun, self._cycle = self._then


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_sees_each_event_once_in_any_order_of_commits(
    make: MakeStore, seed: int
) -> None:
    chance = random.Random(seed)
    sidecars = [Writing(make(), chance, name) for name in "abcd"]
    reader = make(is_for_service=False)
    told: dict[int, list[str]] = {}
    before: dict[int, set[str]] = {}
    positions: dict[int, str] = {}

    def visible() -> set[str]:
        return {name for sidecar in sidecars for name in sidecar.visible}

    def read(follower: int, max_events: int) -> bool:
        tail = reader.events_after(positions[follower], max_events)
        told[follower] += [event.redelivery_id for event in tail.events]
        is_new = positions[follower] != tail.position
        positions[follower] = tail.position
        assert is_new or not tail.events
        return is_new

    for turn in range(150):
        if turn % 30 == 0:
            told[turn], before[turn], positions[turn] = [], visible(), reader.tail()
        chance.choice(sidecars).go_on()
        if chance.random() < 0.4:
            read(chance.choice(list(told)), chance.randrange(1, 6))
    for follower, names in told.items():
        while read(follower, 3):
            pass
        assert len(names) == len(set(names))
        assert set(names) == visible() - before[follower]
    assert len(told[0]) > 50


def test_a_follower_does_not_wait(make: MakeStore) -> None:
    """Neither for an open transaction nor for a cycle whose sidecar is gone."""
    slow, gone, quick, reader = make(), make(), make(), make(is_for_service=False)

    def event(name: str) -> AnyEvent:
        return Cancelled(at_ms=1, id=1, redelivery_id=name, destination="queue://a", actor="")

    position = reader.tail()
    with gone.transaction() as tx:
        tx.record_cycle(1, [], [], [event("gone")])
    with slow.transaction() as tx:
        tx.record([event("slow")])
        with quick.transaction() as other:
            other.record([event("quick")])
        tail = reader.events_after(position, 9)
        assert [one.redelivery_id for one in tail.events] == ["quick"]
    tail = reader.events_after(tail.position, 9)
    assert [one.redelivery_id for one in tail.events] == ["slow"]
    with gone.transaction() as tx:
        tx.settle_in_doubt(1)
    tail = reader.events_after(tail.position, 9)
    assert [one.redelivery_id for one in tail.events] == ["gone"]


def test_in_a_database_made_of_a_dump_following_begins_again(make: MakeStore) -> None:
    """Its transactions have other numbers, and blocks and positions of before are in it."""
    sidecar = make()
    take(sidecar, [taken_row(sidecar.allocate_ids(1))])
    before = sidecar.tail().replace('"', '"9', 1).replace(":", ":9", 1)
    run = sidecar._database.run
    run("UPDATE event_block SET xid = (xid::text::bigint + 9)::text::xid8")
    with sidecar.transaction() as tx:
        tx.renew_uid()
    tail = sidecar.events_after(before, 9)
    assert tail.events == []
    run("CREATE TEMPORARY TABLE pass (one int)")
    for _ in range(9):
        run("INSERT INTO pass VALUES (1)")
    take(sidecar, [taken_row(row_id := sidecar.allocate_ids(1))])
    tail = sidecar.events_after(tail.position, 9)
    assert [event.id for event in tail.events] == [row_id]


# Operations.


def test_two_that_carry_out_one_operation_change_each_row_once(make: MakeStore) -> None:
    sidecar = make()
    first = sidecar.allocate_ids(600)
    take(sidecar, [taken_row(first + one) for one in range(600)])
    people = [make(is_for_service=False) for _ in range(2)]
    operation = retry_of(people[0])
    barrier = threading.Barrier(len(people))

    def run(store: EmptiedStore) -> None:
        barrier.wait(60)
        state = OperationState.RUNNING
        while state is OperationState.RUNNING:
            state = store.step_operation(
                operation.id, row_changes.retry(9, "ann"), None, 25, as_done, True
            ).state

    with ThreadPoolExecutor(len(people)) as pool:
        for done in [pool.submit(run, store) for store in people]:
            done.result(120)
    done_by_both = sidecar.operation(operation.id)
    assert done_by_both is not None
    assert (done_by_both.matched, done_by_both.changed) == (600, 600)
    assert sum(counted(sidecar).values()) == 600
    assert len(sidecar.history(f"test-{first:012d}")) == 2
    assert sidecar.member_counts(operation.id) == {None: 600}


def test_a_step_passes_over_no_row_that_somebody_has_locked(
    make: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle claims rows, and gives one of them back."""
    monkeypatch.setattr(postgres_operations, "PAUSE_S", 0.001)
    sidecar, person = make(), make(is_for_service=False)
    first = sidecar.allocate_ids(6)
    take(sidecar, [taken_row(first + one, due_at_ms=10 * (one + 1)) for one in range(6)])
    operation = retry_of(person)

    def step() -> Operation:
        act = row_changes.retry(5, "ann")
        return person.step_operation(operation.id, act, None, 9, as_done, True)

    with sidecar.transaction() as tx:
        due = tx.claim_due(40, 2)
        held = [row.id - first for row in due]
        assert held == [0, 1]
        assert (step().after_id, step().matched) == (first - 1, 0)
        tx.record_cycle(2, [], due[1:], [])
    after = step()
    assert after.state is OperationState.DONE
    # One is in flight, and stays as it is.
    assert (after.matched, after.changed) == (6, 5)
    dues = {row.id - first: row.due_at_ms for row in person.list_rows(ALL, 9)}
    assert dues == {0: 5, 1: 20, 2: 5, 3: 5, 4: 5, 5: 5}


def test_what_came_back_since_is_left_though_its_number_is_lower(make: MakeStore) -> None:
    """Each sidecar has its own numbers: one that began early goes on below the newest row."""
    early, late, person = make(), make(), make(is_for_service=False)
    low = early.allocate_ids(10)
    high = late.allocate_ids(10)
    assert low < high
    take(early, [taken_row(low)])
    take(late, [taken_row(high)])
    operation = retry_of(person)
    act = row_changes.retry(9, "ann")
    person.step_operation(operation.id, act, None, 1, as_done, True)
    with early.transaction() as tx:
        due = tx.claim_due(9, 1)
        tx.record_cycle(2, [], due, [resent(row, 10) for row in due])
        tx.finish_cycle(2)
    redelivery_id = taken_row(low).redelivery_id
    take(early, [taken_row(low + 1, redelivery_id=redelivery_id, received_at_ms=11)])
    after = person.step_operation(operation.id, act, None, 9, as_done, True)
    assert after.state is OperationState.DONE
    assert after.changed == 2
    assert [row.due_at_ms for row in person.list_rows(ALL, 9)] == [1_000, 9]


# Pages.


@pytest.mark.parametrize("few", [0, 2_000])
def test_pages_have_all_rows_in_their_order_however_little_is_looked_at(
    make: MakeStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(postgres_pages, "LOOK_ROWS", 7)
    monkeypatch.setattr(postgres_pages, "LOOK_ROWS_BY_DUE", 7)
    monkeypatch.setattr(postgres_pages, "FEW_ROWS", few)
    chance = random.Random(few)
    store, other = make(), make()
    take(store, [some_row(store, chance) for _ in range(80)])
    with other.transaction() as tx:
        tx.record_cycle(1, [some_row(other, chance) for _ in range(5)], tx.claim_due(100, 5), [])
    ids = tuple(row.id for row in store.list_rows(ALL, 100))
    filters = [
        ALL,
        RowFilter(ids=ids[::3]),
        RowFilter(redelivery_id=taken_row(ids[4]).redelivery_id),
        *(RowFilter(state=state) for state in RowState),
        *(RowFilter(state=state, destination="queue://1") for state in RowState),
        RowFilter(destination="queue://2", cause_group=str(CAUSES[0])),
        RowFilter(cause_group=""),
        RowFilter(due_before_ms=20, cause_contains="boom"),
    ]
    for row_filter in filters:
        rows = store.list_rows(row_filter, 1_000)
        newest = [row.id for row in sorted(rows, key=lambda row: -row.id)]
        due = [row.id for row in sorted(rows, key=lambda row: (row.due_at_ms, row.id))]
        for order, wanted in ((RowOrder.NEWEST, newest), (RowOrder.DUE, due)):
            found, after, pages = list[int](), None, 0
            while pages == 0 or after is not None:
                page = store.page_rows(row_filter, order, 4, after)
                assert len(page.rows) <= 4
                found += [row.id for row in page.rows]
                after, pages = page.next_after, pages + 1
                assert pages < 100
            assert found == wanted, (row_filter, order)


# Rolling updates.
