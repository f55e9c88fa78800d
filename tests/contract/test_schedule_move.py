"""A move takes everything of a schedule along, and at each moment one store at most can be used.

A seeded history fills the source; the move dies at each of its points, in each direction, and is
run again.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amqsidecar.engine.crash_points import MOVE_NAMES, no_crash
from amqsidecar.errors import StoreMoved, StoreUnavailable
from amqsidecar.ledger import MemberUpdate
from amqsidecar.model import row_changes
from amqsidecar.model.cause_note import WaitFor
from amqsidecar.model.event import Edited
from amqsidecar.model.failure import CountKind, GroupNote, failure_cause
from amqsidecar.model.marker import Marker, ServiceMark, ServiceMarkKind
from amqsidecar.model.operation import Action, Operation
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import RowFilter, RowState, TakenRow
from amqsidecar.model.signal import Signal
from amqsidecar.stores.moving import MovedStore
from amqsidecar.stores.postgres.moving import PostgresMove
from amqsidecar.stores.postgres.store import SCHEMA, PostgresStore
from amqsidecar.stores.sqlite.moving import SqliteMove
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.wiring.schedule_move import Move, move_stores
from support.stores.newer import newer_operation
from support.stores.postgres_server import PostgresServer
from support.stores.rows import resent, scheduled, taken_row, took
from support.tier import at_length
from support.virtual_clock import VirtualClock

ALL = RowFilter()
FAR_MS = 10**12
AnyStore = SqliteStore | PostgresStore


class Crash(Exception):
    """The process dies here."""


class Place:
    """A store at one place, opened as by a service and as by a move."""

    def __init__(
        self, open_store: Callable[[str | None], AnyStore], open_move: Callable[[], MovedStore]
    ) -> None:
        self.open_store = open_store
        self.open_move = open_move

    def opened(self, instance: str | None = None) -> AnyStore:
        store = self.open_store(instance)
        store.lock_for_service()
        try:
            store.open()
        except BaseException:
            store.close()
            raise
        return store

    def can_be_used(self) -> bool:
        """Whether a service finds a schedule here that has ever been used."""
        try:
            with closing(self.opened()) as store:
                return store.state().cycle > 0
        except StoreMoved:
            return False


def files(folder: Path) -> Callable[[str], Place]:
    def place(name: str) -> Place:
        path = folder / f"{name}.db"
        return Place(
            lambda instance: SqliteStore(path, clock=VirtualClock(), instance_name=instance),
            lambda: SqliteMove(path, None),
        )

    return place


def databases(server: PostgresServer, stack: ExitStack) -> Callable[[str], Place]:
    def place(_name: str) -> Place:
        url = stack.enter_context(server.database())
        return Place(
            lambda instance: PostgresStore(url, clock=VirtualClock(), instance_name=instance),
            lambda: PostgresMove(url, lambda: None, SCHEMA),
        )

    return place


DIRECTIONS = ["file to file"] + [
    pytest.param(name, marks=pytest.mark.postgres)
    for name in ("file to database", "database to file", "database to database")
]


@pytest.fixture(params=DIRECTIONS)
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], list[Place]]]:
    """Returns the two ends of another move."""
    with ExitStack() as stack:
        kinds = request.param.split(" to ")
        makers = {"file": files(tmp_path)}
        if "database" in kinds:
            makers["database"] = databases(request.getfixturevalue("postgres"), stack)
        numbers = iter(range(10_000))
        yield lambda: [makers[kind](f"store-{next(numbers)}") for kind in kinds]


class History:
    """Fills a store with all that it can have, by a seed."""

    def __init__(self, store: AnyStore, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = store
        self.now_ms = 1_000_000

    def play(self, steps: int) -> None:
        self.take()
        with self.store.transaction() as tx:
            tx.set_token_created()
            tx.set_hold("queue://DLQ", self.chance.randrange(5))
            tx.set_hold("queue://other", 0)
        actions = (
            *(self.take, self.send, self.park, self.postpone, self.change, self.operate),
            *(self.discard, self.edit, self.note, self.observe, self.mark, self.journal),
        )
        for _ in range(steps):
            self.now_ms += self.chance.randrange(100_000)
            self.chance.choice(actions)()

    def cycle(self, taken: list[TakenRow], sent: list[Any], events: list[Any]) -> None:
        cycle = self.store.state().cycle + 1
        with self.store.transaction() as tx:
            tx.record_cycle(cycle, taken, sent, events)
        with self.store.transaction() as tx:
            tx.finish_cycle(cycle)

    def take(self) -> None:
        count = self.chance.randint(1, 6)
        first = self.store.allocate_ids(count)
        self.cycle(rows := [self.row(first + at) for at in range(count)], [], [])
        with self.store.transaction() as tx:
            for row in rows:
                taken = msgspec.structs.replace(took(row), life=life_of(row.id))
                tx.record([taken, scheduled(row)])

    def row(self, row_id: int) -> TakenRow:
        chance = self.chance
        cause = chance.choice((None, "a.Refused: order 7", "b.Späť: 'x' \u0007"))
        final = chance.random() < 0.2
        return taken_row(
            row_id,
            state=chance.choice((*[RowState.WAITING] * 3, *RowState)),
            due_at_ms=self.now_ms + chance.randrange(10**9),
            destination=chance.choice(("queue://a", "topic://b", "queue://" + "long" * 45)),
            is_final=final,
            final_queue="queue://DLQ.exhausted" if final or chance.random() < 0.1 else None,
            cause=cause,
            cause_group=failure_cause(cause, expired=False),
            message_group=chance.choice((None, "g1")),
            passes_gates=chance.random() < 0.1,
            received_at_ms=self.now_ms,
            expiration_ms=chance.choice((0, 5_000)),
            message=chance.randbytes(chance.choice((0, 10, 5_000, 2_000_000)))
            if chance.random() < 0.3
            else b"body" * chance.randrange(5_000),
        )

    def ids(self, state: RowState | None = None) -> list[int]:
        rows = self.store.list_rows(RowFilter(state=state), 1_000)
        return self.chance.sample([row.id for row in rows], min(3, len(rows)))

    def send(self) -> None:
        with self.store.transaction() as tx:
            due = tx.claim_due(FAR_MS, 2)
        if due:
            self.claim(len(due))

    def claim(self, count: int) -> None:
        cycle = self.store.state().cycle + 1
        with self.store.transaction() as tx:
            due = tx.claim_due(FAR_MS, count)
            tx.record_cycle(cycle, [], due, [resent(row, self.now_ms) for row in due])
        with self.store.transaction() as tx:
            tx.finish_cycle(cycle)

    def park(self) -> None:
        ids = self.ids(RowState.WAITING)
        with self.store.transaction() as tx:
            tx.park(ids, "why so")

    def postpone(self) -> None:
        ids = self.ids(RowState.WAITING)
        with self.store.transaction() as tx:
            tx.postpone(ids, self.now_ms + 7, "the gate", gate="windows")

    def change(self) -> None:
        made = self.chance.choice((row_changes.hold, row_changes.release, wait))
        self.store.change(RowFilter(ids=tuple(self.ids())), made(self.now_ms, "ann"))

    def operation(self, action: Action) -> Operation:
        return self.store.add_operation(
            newer_operation(
                action=action,
                created_at_ms=self.now_ms,
                since=self.store.event_mark(),
                needs_third=action is Action.DISCARD,
            )
        )

    def operate(self) -> None:
        number = self.operation(Action.RETRY).id
        retry = row_changes.retry(self.now_ms, "ann")
        self.store.step_operation(number, retry, None, 2, lambda now: now, True)
        if self.chance.random() < 0.5:
            updates = [
                MemberUpdate(one.redelivery_id, self.now_ms + 1, False, one.destination)
                for one in self.store.members(number, None, 5)
            ]
            self.store.update_members(updates, self.store.tail())

    def discard(self) -> None:
        number = self.operation(Action.DISCARD).id
        discard = row_changes.discard(self.now_ms, "ann", number)
        self.store.change(RowFilter(ids=tuple(self.ids())), discard)

    def edit(self) -> None:
        for row in self.store.list_rows(RowFilter(ids=tuple(self.ids())), 3):
            if (message := self.store.message(row.id)) is not None:
                event = Edited(
                    at_ms=self.now_ms,
                    id=row.id,
                    redelivery_id=row.redelivery_id,
                    destination=row.destination,
                    actor="ann",
                )
                self.store.replace_message(row.id, message, b"new" * 3_000, event, "ann")

    def note(self) -> None:
        self.store.add_note(
            GroupNote(
                destination="queue://a",
                cause_group="a.Refused: order *",
                at_ms=self.now_ms,
                author="ann",
                text=f"note {self.now_ms}",
                owner="bob",
                muted_deaths=self.chance.choice((None, 3)),
            )
        )

    def observe(self) -> None:
        one = Observation(destination="queue://a", at_ms=self.now_ms, depth=3, acknowledged=5)
        self.store.add_observations([one])

    def mark(self) -> None:
        value = str(self.now_ms).encode()
        self.store.swap_value("webhook:a", self.store.read_value("webhook:a") or b"", value)
        self.store.add_service_mark(
            ServiceMark(
                at_ms=self.now_ms, instance="i", kind=ServiceMarkKind.START, rules_digest="d"
            )
        )
        self.store.add_signal(Signal(name="invoice-1", at_ms=self.now_ms, author="ann"))
        self.store.add_marker(
            Marker(at_ms=self.now_ms, text="orders 4.2", destination="queue://a", author="ann")
        )

    def journal(self) -> None:
        self.store.keep_for_journal(True)
        if (segment := self.store.plan_segment(20)) is not None:
            self.store.segment_written(segment)


def wait(now_ms: int, actor: str) -> row_changes.RowChange:
    return row_changes.hold(now_ms, actor, WaitFor("invoice-1", 500))


def life_of(row_id: int) -> str:
    return f"dead:{row_id}"


def contents(store: AnyStore) -> dict[str, Any]:
    """Return what people and cycles can see of a store, but for what no move promises."""
    rows = store.list_rows(ALL, 10_000)
    ids = sorted({row.redelivery_id for row in rows})
    operations = store.operations(1_000)
    groups = store.failure_groups(0, 100)
    with store.transaction() as tx:
        due = [msgspec.structs.replace(one, message_group=None) for one in tx.claim_due(FAR_MS, 50)]
    return {
        "rows": rows,
        "due": due,
        "messages": [store.message(row.id) for row in rows],
        "history": {one: store.history(one) for one in ids},
        "holds": store.holds(),
        "tallies": sorted(store.tallies(), key=repr),
        "groups": sorted(store.group_tallies(), key=repr),
        "exhausted": sorted(store.exhausted_tallies(), key=repr),
        "gates": store.gate_tallies(0),
        "failures": sorted(groups, key=repr),
        "counts": sorted(store.failure_counts(0, FAR_MS, list(CountKind)), key=repr),
        "operations": operations,
        "open": store.open_operations(),
        "members": {one.id: store.members(one.id, None, 1_000) for one in operations},
        "discarded": {one.id: store.count_discarded(one.id) for one in operations},
        "originals": {one: store.originals(one) for one in ids},
        "observations": store.observations("queue://a", 0, FAR_MS),
        "notes": store.notes("queue://a", "a.Refused: order *"),
        "value": store.read_value("webhook:a"),
        "marks": store.service_marks(100),
        "markers": store.markers(0, 100),
        "waits": store.ended_waits(0, FAR_MS, 1_000),
        "lag": store.outbox_lag(),
        "next": store.next_due_ms(),
        "key": store.group_key,
        "lives": store.known_lives([life_of(row.id) for row in rows]),
    }


def identity(store: AnyStore) -> tuple[Any, ...]:
    state = store.state()
    return state.instance, state.uid, state.cycle, state.token_created, state.unfinished


def crashing(name: str, count: int) -> Callable[[str], None]:
    left = count

    def hit(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                raise Crash

    return hit


def move(source: Place, target: Place, crash_point: Callable[[str], None] = no_crash) -> Move:
    with closing(source.open_move()) as giving, closing(target.open_move()) as taking:
        return move_stores(giving, taking, crash_point)


def test_everything_moves_and_one_store_at_most_can_be_used(
    ends: Callable[[], list[Place]],
) -> None:
    points = [
        ("copying", 1),
        ("copying", 7),
        ("copying", 15),
        *((one, 1) for one in MOVE_NAMES[1:]),
    ]
    for seed in range(at_length(60, otherwise=6)):
        source, target = ends()
        with closing(source.opened("one")) as store:
            History(store, seed).play(25)
            before, who, first = contents(store), identity(store), store.allocate_ids(1)
        name, count = points[seed % len(points)]
        with pytest.raises(Crash):
            move(source, target, crashing(name, count))
        assert [source.can_be_used(), target.can_be_used()].count(True) <= 1, (seed, name)
        if name in ("copying", "copied"):
            assert source.can_be_used(), (seed, name)
            with closing(source.opened("one")) as store:
                assert contents(store) == before, seed
        assert move(source, target).other_tokens == []
        assert move(source, target).other_tokens == []
        assert not source.can_be_used()
        with closing(target.opened("one")) as store:
            assert identity(store) == who
            found = contents(store)
            for key, value in before.items():
                assert found[key] == value, (seed, key)
            assert store.allocate_ids(1) > first
            History(store, seed + 1).play(10)


def test_what_is_in_use_is_no_target_and_what_has_moved_no_source(
    ends: Callable[[], list[Place]],
) -> None:
    source, target = ends()
    for place in (source, target):
        with closing(place.opened("one")) as store:
            History(store, 1).play(3)
    with pytest.raises(StoreUnavailable, match="is in use"):
        move(source, target)
    assert source.can_be_used()
    assert target.can_be_used()
    _, new = ends()
    move(source, new)
    _, another = ends()
    with pytest.raises(StoreUnavailable, match="has moved to another store"):
        move(source, another)


def test_a_running_service_and_an_open_cycle_keep_the_schedule(
    ends: Callable[[], list[Place]],
) -> None:
    source, target = ends()
    with closing(source.opened("one")) as store:
        History(store, 1).play(3)
        with pytest.raises(StoreUnavailable, match=r"in use|stop the sidecars"):
            move(source, target)
        with store.transaction() as tx:
            tx.record_cycle(store.state().cycle + 1, [taken_row(10**6)], [], [])
    with pytest.raises(StoreUnavailable):
        move(source, target)
    assert source.can_be_used()


def test_a_command_that_is_open_writes_no_more_into_what_has_moved(
    ends: Callable[[], list[Place]],
) -> None:
    source, target = ends()
    with closing(source.opened("one")) as store:
        History(store, 1).play(3)
    command = source.open_store("one")
    command.open()
    command.list_rows(ALL, 10)
    move(source, target)
    with closing(command):
        for _ in range(2):
            with pytest.raises(StoreMoved, match="was moved to"):
                command.change(ALL, row_changes.hold(1, "ann"))


@pytest.mark.postgres
def test_into_a_file_the_tokens_of_other_instances_are_named(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with ExitStack() as stack:
        source = databases(postgres, stack)("source")
        for number, name in enumerate(("one", "two")):
            with closing(source.opened(name)) as store:
                History(store, number).play(5)
                rows = len(store.list_rows(ALL, 1_000))
        target = files(tmp_path)("target")
        assert move(source, target).other_tokens == ["amqsidecar.token.two"]
        with closing(target.opened("one")) as store:
            assert len(store.list_rows(ALL, 1_000)) == rows


def test_another_name_of_the_instance_has_no_token_yet(tmp_path: Path) -> None:
    source = files(tmp_path)("source")
    with closing(source.opened("one")) as store:
        History(store, 1).play(5)
    path = tmp_path / "target.db"
    target = Place(source.open_store, lambda: SqliteMove(path, "two"))
    assert move(source, target).other_tokens == ["amqsidecar.token.one"]
    with closing(SqliteStore(path, clock=VirtualClock())) as store:
        state = store.open()
    assert (state.instance, state.token_created) == ("two", False)
    assert state.cycle > 0
