"""What only the PostgreSQL store promises: several processes, leases, claims beside others."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import psycopg
import pytest

from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.errors import StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.cause_note import NOTES_KEPT_BYTES, CauseNote, Never, RetryAfter, SharedNotes
from amqsidecar.model.destination import queue
from amqsidecar.model.schedule import RowFilter, RowState, StoreState
from amqsidecar.stores.postgres.database import QUERIES
from amqsidecar.stores.postgres.store import PostgresStore
from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.postgres_server import PostgresServer
from support.stores.rows import taken_row, took
from support.virtual_clock import VirtualClock
from support.waiting import eventually

ALL = RowFilter()
MakeStore = Callable[..., EmptiedStore]


@pytest.fixture
def make(postgres: PostgresServer) -> Iterator[MakeStore]:
    """Makes stores over one schedule, by default those of a service."""
    url, made = postgres.url(), list[EmptiedStore]()
    empty(url)

    def make_store(*, is_for_service: bool = True, **options: Any) -> EmptiedStore:
        store = EmptiedStore(url, **{"clock": VirtualClock(), **options})
        if is_for_service:
            store.lock_for_service()
        made.append(store)
        return store

    yield make_store
    for store in made:
        store.close()


def begin(store: PostgresStore, *ids: int, sends: int = 0, **holds: int) -> int:
    """Begin the next cycle, which takes these rows and sends some that are due."""
    cycle = store.open().cycle + 1
    with store.transaction() as tx:
        sent = tx.claim_due(10_000, sends)
        tx.record_cycle(cycle, [taken_row(row_id) for row_id in ids], sent, [], holds)
    return cycle


def take(store: PostgresStore, *ids: int) -> None:
    cycle = begin(store, *ids)
    with store.transaction() as tx:
        tx.finish_cycle(cycle)


def vanish(store: PostgresStore) -> None:
    """End the connection as the death of the process does; the server has noticed then."""
    pid = store._database.run("SELECT pg_backend_pid()")[0][0]
    connection = store._database._connection
    assert connection is not None
    connection.pgconn.finish()
    with psycopg.connect(store._database._dsn, autocommit=True) as other:
        eventually(
            lambda: (
                not other.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)
                ).fetchall()
            ),
            what="the server ends the backend",
        )


# Notes of consumers.


def cause_note(message_id: str, text: str = "why") -> CauseNote:
    return CauseNote(message_id=message_id, text=text, verdict=RetryAfter(5))


def test_notes_go_to_each_other_instance_once_in_order(make: MakeStore) -> None:
    first, second = make(), make()
    for store in (first, second):
        store.open()
    own, of_other = first.shared_notes(None), second.shared_notes(None)
    first.share_notes([cause_note("a"), cause_note("b")])
    first.share_notes([])
    first.share_notes([cause_note("c")])
    assert first.shared_notes(own.position).notes == []
    found = second.shared_notes(of_other.position)
    assert [note for _, note in found.notes] == [cause_note(name) for name in "abc"]
    assert second.shared_notes(found.position) == SharedNotes(found.position, [])
    second.share_notes([cause_note("d")])
    [(age_s, note)] = first.shared_notes(own.position).notes
    assert note == cause_note("d")
    assert 0 <= age_s < 600


def test_an_instance_that_starts_reads_all_that_is_kept_also_its_own(make: MakeStore) -> None:
    store = make()
    store.open()
    store.share_notes([cause_note("a")])
    store.close()
    store.open()
    assert [note for _, note in store.shared_notes(None).notes] == [cause_note("a")]


def test_notes_are_kept_for_ten_minutes_and_up_to_16_mib(make: MakeStore) -> None:
    store = make()
    store.open()
    for number in range(9):
        notes = [cause_note(f"{number}-{each}", "x" * 8_000) for each in range(300)]
        store.share_notes(notes)
    kept = [note for _, note in store.shared_notes(None).notes]
    assert NOTES_KEPT_BYTES // 2 < sum(len(note.text) for note in kept) <= NOTES_KEPT_BYTES
    assert kept[-1] == notes[-1]
    store._database.run("UPDATE shared_note SET at = at - interval '601 seconds'")
    store.forget_ledger(0, 0, 100)
    assert store.shared_notes(None).notes == []


def test_notes_that_a_newer_program_wrote_are_skipped(make: MakeStore) -> None:
    store = make()
    store.open()
    store._database.run(
        "INSERT INTO shared_note (instance, body) VALUES (0, %s)",
        b'[{"message_id": "m", "verdict": {"action": "new"}},'
        b'{"message_id": "n", "verdict": {"action": "never"}}]',
    )
    store.share_notes([cause_note("a")])
    found = [note for _, note in store.shared_notes(None).notes]
    assert found == [CauseNote(message_id="n", verdict=Never()), cause_note("a")]


# Leases.


def test_each_service_is_an_instance_of_its_own(make: MakeStore) -> None:
    states = [make().open() for _ in range(3)]
    assert len({state.instance for state in states}) == 3
    assert len({state.uid for state in states}) == 3


def test_services_that_start_at_once_become_different_instances(make: MakeStore) -> None:
    stores = [make() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        states: list[StoreState] = list(pool.map(lambda store: store.open(), stores))
    assert len({state.instance for state in states}) == 6


def test_an_instance_that_was_released_is_taken_again(make: MakeStore) -> None:
    first = make()
    name = first.open().instance
    first.close()
    assert make().open().instance == name


def test_one_with_an_unfinished_cycle_is_taken_first(make: MakeStore) -> None:
    stores = [make(), make(), make()]
    names = [store.open().instance for store in stores]
    cycle = begin(stores[1], 1)
    for store in stores:
        store.close()
    heir = make()
    state = heir.open()
    assert state.instance == names[1]
    assert state.unfinished is not None
    assert state.unfinished.cycle == cycle


def test_whose_connection_is_gone_is_free_at_once(make: MakeStore) -> None:
    first = make()
    name = first.open().instance
    vanish(first)
    assert make().open().instance == name


def test_a_reconnect_keeps_the_instance(make: MakeStore) -> None:
    first, second = make(), make()
    names = first.open().instance, second.open().instance
    vanish(second)
    with pytest.raises(StoreUnavailable):
        second.next_due_ms()
    second.close()
    assert second.open().instance == names[1]
    begin(second, 1)


def test_a_named_instance_that_is_in_use_is_refused_and_its_holder_named(make: MakeStore) -> None:
    make(instance_name="left").open()
    with pytest.raises(
        StoreUnavailable, match=r"'left' is in use by another process \(backend \d+"
    ):
        make(instance_name="left").open()


def overtake(make: MakeStore, name: str) -> tuple[EmptiedStore, StoreState]:
    """Wait until a new service becomes this instance; return it."""

    def take_over() -> tuple[EmptiedStore, StoreState] | None:
        # Why no short lease: a busy machine would let the heir be overtaken in its turn.
        heir = make()
        state = heir.open()
        if state.instance == name:
            return heir, state
        heir.close()
        return None

    return eventually(take_over, what="the lease is over")


def test_a_holder_without_heartbeats_is_taken_over_and_can_not_write(
    make: MakeStore,
) -> None:
    """The connection lives on: a process that hangs, a machine that sleeps."""
    stalled = make(lease_s=0.2)
    name = stalled.open().instance
    cycle = begin(stalled, 1)
    heir, state = overtake(make, name)
    with pytest.raises(StoreUnavailable, match=f"another process took over the instance '{name}'"):  # noqa: SIM117
        with stalled.transaction() as tx:
            tx.finish_cycle(cycle)
    assert state.unfinished is not None
    with heir.transaction() as tx:
        tx.undo_cycle(cycle)
    assert heir.list_rows(ALL, 9) == []
    stalled.close()
    assert stalled.open().instance != name


def test_an_open_store_stays_the_instance_that_it_is(make: MakeStore) -> None:
    """The service opens again while it waits for its token: it must not get another's cycle."""
    stalled = make(lease_s=0.2)
    name = stalled.open().instance
    overtake(make, name)
    with pytest.raises(StoreUnavailable, match="another process took over"):
        stalled.open()


def test_a_sign_of_life_keeps_an_instance(make: MakeStore) -> None:
    clock = VirtualClock()
    store, other = make(lease_s=600, clock=clock), make()
    name = store.open().instance
    pass_by = "UPDATE instance SET renewed_at = renewed_at - interval '400 s' WHERE name = %s"
    for _ in range(3):
        store._database.run(pass_by, name)
        clock.advance(400_000)
        store.keep()
        assert other.open().instance != name
        other.close()
    for _ in range(2):
        store._database.run(pass_by, name)
    assert name in [make().open().instance for _ in range(2)]


def test_how_long_a_lease_is_says_its_holder(make: MakeStore) -> None:
    first = make()
    name = first.open().instance
    age = "SELECT clock_timestamp() - renewed_at > interval '0.2 s' FROM instance WHERE name = %s"
    eventually(lambda: first._database.run(age, name) == [(True,)], what="it is silent for a while")
    assert make(lease_s=0.1).open().instance != name


def test_an_instance_that_is_gone_with_an_unfinished_cycle_is_abandoned(make: MakeStore) -> None:
    alive, gone, clean, looker = make(), make(), make(), make(is_for_service=False)
    for store in (alive, gone, clean):
        store.open()
    begin(alive, 1)
    begin(gone, 2)
    name = gone.open().instance
    looker.open()
    assert looker.abandoned() == []
    vanish(gone)
    vanish(clean)
    assert looker.abandoned() == [name]


def test_an_operators_store_runs_no_cycle_of_the_service(make: MakeStore) -> None:
    service = make()
    name = service.open().instance
    take(service, 1)
    operator = make(is_for_service=False)
    assert operator.open().instance == name
    assert operator.change(ALL, row_changes.hold(5, "ann")) == 1
    with pytest.raises(StoreUnavailable, match="in use by another process"):
        begin(operator, 2)
    assert make(is_for_service=False, read_only=True).open().instance == name


# Claims.


def test_two_never_claim_the_same_row(make: MakeStore) -> None:
    """They race for the rows at the front, record, finish, undo; each row is sent once."""
    rows, stores = 1_500, [make() for _ in range(3)]
    for store in stores:
        store.open()
    take(stores[0], *range(1, rows + 1))
    sent: list[Counter[int]] = [Counter() for _ in stores]
    faults = list[BaseException]()
    barrier = threading.Barrier(len(stores))

    def run(index: int) -> None:
        store, chance, cycle, ids = stores[index], random.Random(index), 0, list[int]()
        cycle = store.open().cycle
        try:
            barrier.wait(60)
            idle = 0
            while idle < 20:
                with store.transaction() as tx:
                    if ids:
                        if chance.random() < 0.3:
                            tx.undo_cycle(cycle + 1)
                        else:
                            tx.finish_cycle(cycle + 1)
                            cycle += 1
                            sent[index].update(ids)
                    due = tx.claim_due(10_000, chance.randrange(1, 8))
                    ids = [row.id for row in due]
                    idle = 0 if ids else idle + 1
                    if ids:
                        tx.record_cycle(cycle + 1, [], due, [])
        except BaseException as fault:
            faults.append(fault)
            raise

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert faults == []
    total = sum(sent, Counter[int]())
    assert [row_id for row_id, count in total.items() if count > 1] == []
    assert sorted(total) == list(range(1, rows + 1))
    assert all(sent)


PAUSE = 4711
PAUSED = f"AND (SELECT pg_advisory_xact_lock_shared({PAUSE})::text) = '' ORDER BY due_at_ms"


@pytest.fixture
def pausing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a claim stop, while somebody has the lock, when it has seen all but locked nothing."""
    paused = QUERIES["claim_due"].replace("ORDER BY due_at_ms", PAUSED)
    assert paused != QUERIES["claim_due"]
    monkeypatch.setitem(QUERIES, "claim_due", paused)


@pytest.mark.usefixtures("pausing")
@pytest.mark.parametrize("end", [None, "finish_cycle", "undo_cycle", "settle_in_doubt"])
def test_a_claim_sees_the_cycle_that_was_recorded_since_it_began(
    make: MakeStore, end: str | None
) -> None:
    first, second, pauser = make(), make(), make(is_for_service=False)
    for store in (first, second, pauser):
        store.open()
    take(first, 1, 2)

    def claim() -> list[int]:
        with second.transaction() as tx:
            ids = [row.id for row in tx.claim_due(10_000, 5)]
            # The other can finish its cycle while we go on.
            if end is None:
                first._database.run("SET lock_timeout = 1")
                with first.transaction() as other:
                    other.finish_cycle(2)
            return ids

    with ThreadPoolExecutor(1) as pool:
        with first.transaction() as tx:
            due = tx.claim_due(10_000, 1)
        pauser._database.run("SELECT pg_advisory_lock(%s)", PAUSE)
        claimed = pool.submit(claim)
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: bool(pauser._database.run(waiting)), what="the claim has begun")
        with first.transaction() as tx:
            tx.record_cycle(2, [], due, [])
        if end is not None:
            with first.transaction() as tx:
                getattr(tx, end)(2)
        pauser._database.run("SELECT pg_advisory_unlock(%s)", PAUSE)
        gone = end in (None, "finish_cycle")
        assert claimed.result(60) == ([2] if gone else [1, 2])


# Operators beside cycles.


def test_an_action_waits_for_no_cycle_and_reaches_what_it_gives_back(make: MakeStore) -> None:
    service, operator = make(), make(is_for_service=False)
    service.open()
    operator.open()
    take(service, *range(1, 31))
    with ThreadPoolExecutor(1) as pool:
        with service.transaction() as tx:
            due = tx.claim_due(10_000, 10)
            acted = pool.submit(operator.change, ALL, row_changes.hold(5, "ann"))
            eventually(
                lambda: len(_held(make)) == 20, what="the action reaches the rows nobody claimed"
            )
            tx.record_cycle(2, [], due[:4], [])
        assert acted.result(60) == 26
    assert len(_held(make)) == 26


def _held(make: MakeStore) -> list[int]:
    store = make(is_for_service=False)
    store.open()
    rows = store.list_rows(RowFilter(state=RowState.HELD), 100)
    store.close()
    return [row.id for row in rows]


def test_tallies_of_destinations_without_rows_are_forgotten(make: MakeStore) -> None:
    """One takes what the other sends, so neither share is ever empty."""
    first, second = make(), make()
    first.open()
    second.open()
    take(first, 1, 2)
    cycle = begin(second, sends=1)
    shares = "SELECT count FROM tally ORDER BY instance"
    with second.transaction() as tx:
        tx.finish_cycle(cycle)
    assert first.forget_history(0, 10) == 0
    assert first._database.run(shares) == [(2,), (-1,)]
    begin(second, sends=1)
    with second.transaction() as tx:
        tx.finish_cycle(cycle + 1)
    assert first.forget_history(0, 10) == 0
    assert first._database.run(shares) == []
    take(first, 3)
    assert [tally.count for tally in second.tallies()] == [1]


# Backlogs.


def test_two_take_of_one_backlog_together(make: MakeStore) -> None:
    first, second = make(), make()
    first.open()
    second.open()
    with first.transaction() as tx:
        assert tx.holds() == {}
        tx.set_hold("DLQ", 10)
        tx.record_cycle(1, [], [], [], {"DLQ": 3})
    with second.transaction() as tx:
        assert tx.holds() == {"DLQ": 7}
        tx.record_cycle(1, [], [], [], {"DLQ": 4})
    with second.transaction() as tx:
        tx.finish_cycle(1)
        assert tx.holds() == {"DLQ": 3}
    with first.transaction() as tx:
        tx.undo_cycle(1)
        assert tx.holds() == {"DLQ": 6}
    assert first.holds() == second.holds() == {"DLQ": 6}


def test_takes_of_a_backlog_wait_for_each_other(make: MakeStore) -> None:
    first, second = make(), make()
    first.open()
    second.open()
    told = list[dict[str, int]]()

    def ask() -> None:
        with second.transaction() as tx:
            told.append(tx.holds())

    with ThreadPoolExecutor(1) as pool:
        with first.transaction() as tx:
            tx.holds()
            asked = pool.submit(ask)
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            eventually(lambda: bool(first._database.run(waiting)), what="the other waits")
            tx.set_hold("DLQ", 5)
        asked.result(60)
    assert told == [{"DLQ": 5}]


def test_of_one_backlog_exactly_the_first_are_held_whoever_takes_them(make: MakeStore) -> None:
    """Cycles of two sidecars finish, and fail, between each other."""
    backlog, source, chance = 40, queue("DLQ"), random.Random(5)
    stores = [make(), make()]
    gates = [BacklogGate(lambda _: backlog, holds=True, threshold=3) for _ in stores]
    for store, gate in zip(stores, gates, strict=True):
        store.open()
        gate.remember(store.holds())
    arrived, held, unfinished = 0, Counter[bool](), [0, 0]
    while arrived < 3 * backlog:
        index = chance.randrange(2)
        store, gate = stores[index], gates[index]
        with store.transaction() as tx:
            cycle = store.open().cycle + 1
            if unfinished[index]:
                tx.finish_cycle(cycle)
                cycle += 1
            gate.begin(tx.holds)
            deaths = chance.randrange(1, 6)
            are_backlog = [gate.is_backlog(source) for _ in range(deaths)]
            for name, count in gate.counted.items():
                tx.set_hold(name, count)
            tx.record_cycle(cycle, [], [], [], gate.taken)
        if chance.random() < 0.3:  # the broker refuses, the dead letters come again
            gate.rollback()
            unfinished[index] = 0
            with store.transaction() as tx:
                tx.undo_cycle(cycle)
            continue
        gate.commit()
        unfinished[index] = 1
        arrived += deaths
        held.update(are_backlog)
        if arrived < backlog:
            assert held[False] == 0
    assert held[True] == backlog


# Deliveries that listener and broker both report.


def test_two_that_take_a_copy_and_its_twin_at_once_know_of_each_other(make: MakeStore) -> None:
    first, second, watcher = make(), make(), make(is_for_service=False)
    for store in (first, second, watcher):
        store.open()
    pair, others = {"copy:a", "dead:a"}, {"copy:b", "dead:b"}

    def ask() -> dict[str, bool]:
        with second.transaction():
            return second.known_lives(pair)

    with ThreadPoolExecutor(1) as pool:
        with first.transaction() as tx:
            assert first.known_lives(pair) == {}
            with second.transaction():
                assert second.known_lives(others) == {}, "it waits for nothing else"
            asked = pool.submit(ask)
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
            eventually(lambda: bool(watcher._database.run(waiting)), what="the other one waits")
            taken = msgspec.structs.replace(took(taken_row(1)), life="copy:a")
            tx.record_cycle(1, [], [], [taken])
        assert asked.result() == {"copy:a": False}, "the cycle may still be undone"
    assert first.known_lives(pair) == {"copy:a": True}
    with first.transaction() as tx:
        tx.finish_cycle(1)
    assert second.known_lives(pair) == {"copy:a": True}
    assert first._database.run("SELECT count(*) FROM event_key WHERE block < 0") == [(0,)]
