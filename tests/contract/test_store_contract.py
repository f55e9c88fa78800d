"""Every store keeps the promises of `store.py`; the test names quote them."""

import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from amqsidecar.errors import StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.cause_note import CauseNote, WaitFor
from amqsidecar.model.event import AnyEvent, Cancelled, Held, Parked, Released, Retried
from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import (
    DueRow,
    Recall,
    RowFilter,
    RowState,
    StoreState,
    TakenRow,
    Tally,
    UnfinishedCycle,
)
from amqsidecar.operations.act import effect_of
from amqsidecar.stores.postgres.store import PostgresStore
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.memory import Medium, MemoryStore
from support.stores.opened import OpenableStore
from support.stores.postgres_schedule import EmptiedStore, empty
from support.stores.rows import due_row, resent, scheduled, taken_row, took
from support.virtual_clock import VirtualClock

ALL = RowFilter()
NOTE = CauseNote(message_id="m", text="why")
MakeStore = Callable[..., OpenableStore]


def sqlite_stores(request: pytest.FixtureRequest) -> MakeStore:
    clock, folder = VirtualClock(), request.getfixturevalue("tmp_path")
    return lambda **options: SqliteStore(folder / "schedule.db", clock=clock, **options)


def postgres_stores(request: pytest.FixtureRequest) -> MakeStore:
    clock, url = VirtualClock(), request.getfixturevalue("postgres").url()
    empty(url)
    return lambda **options: EmptiedStore(url, clock=clock, **options)


def memory_stores(_request: pytest.FixtureRequest) -> MakeStore:
    medium = Medium()
    return lambda **options: MemoryStore(medium, **options)


STORES = [
    pytest.param(sqlite_stores, id="sqlite"),
    pytest.param(postgres_stores, id="postgres", marks=pytest.mark.postgres),
    pytest.param(memory_stores, id="memory"),
]


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    """Makes store objects over one and the same medium."""
    make: MakeStore = request.param(request)
    made: list[OpenableStore] = []

    def make_and_remember(**options: Any) -> OpenableStore:
        made.append(make(**options))
        return made[-1]

    yield make_and_remember
    for store in made:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> OpenableStore:
    """A new store, open."""
    store = make_store()
    store.open()
    return store


def begin(
    store: OpenableStore,
    taken: list[TakenRow],
    sent: list[DueRow] | None = None,
    holds: dict[str, int] | None = None,
) -> int:
    """Begin the next cycle with the events that belong to it; returns its number."""
    events: list[AnyEvent] = [event for row in taken for event in (took(row), scheduled(row))]
    events += [resent(row) for row in sent or []]
    cycle = store.open().cycle + 1
    with store.transaction() as tx:
        tx.record_cycle(cycle, taken, sent or [], events, holds)
    return cycle


def finish(store: OpenableStore, cycle: int) -> None:
    with store.transaction() as tx:
        tx.finish_cycle(cycle)


def take(store: OpenableStore, *rows: TakenRow) -> None:
    """Take rows in a cycle of their own, finished."""
    finish(store, begin(store, list(rows)))


def claim(store: OpenableStore, now_ms: int = 10_000, limit: int = 100) -> list[DueRow]:
    with store.transaction() as tx:
        return tx.claim_due(now_ms, limit)


def send(store: OpenableStore, *ids: int) -> int:
    """Begin a cycle that sends these rows; returns its number."""
    return begin(store, [], [row for row in claim(store) if row.id in ids])


def ids_of(store: OpenableStore, row_filter: RowFilter = ALL) -> list[int]:
    return [row.id for row in store.list_rows(row_filter, 10_000)]


def states(store: OpenableStore) -> dict[int, RowState]:
    return {row.id: row.state for row in store.list_rows(ALL, 10_000)}


def everything(store: OpenableStore) -> Any:
    """Return all that can be seen of a store but the space it takes."""
    rows = store.list_rows(ALL, 10_000)
    return (
        store.open(),
        rows,
        [store.message(row.id) for row in rows],
        [store.history(f"test-{row_id:012d}") for row_id in range(1, 10)],
        store.tallies(),
        store.count_rows(ALL),
        store.holds(),
        store.next_due_ms(),
        claim(store),
    )


# Opening.


def test_a_new_store_has_no_past(make_store: MakeStore) -> None:
    state = make_store(instance_name="left").open()
    assert state == StoreState(
        instance="left", uid=state.uid, cycle=0, unfinished=None, token_created=False
    )


def test_the_uid_is_made_with_the_store_and_renewed_on_demand(make_store: MakeStore) -> None:
    first, second = make_store(instance_name="left"), make_store(instance_name="left")
    uid = first.open().uid
    assert re.fullmatch("[0-9a-f]{8}", uid)
    with first.transaction() as tx:
        renewed = tx.renew_uid()
    assert renewed != uid
    first.close()
    assert second.open().uid == renewed


def test_the_lives_that_ended_are_known_until_store_and_broker_are_of_different_times(
    make_store: MakeStore,
) -> None:
    """Also those of an unfinished cycle; not those of one that is undone."""
    store = make_store()
    store.open()

    def record(cycle: int, *lives: str) -> None:
        events = [msgspec.structs.replace(took(taken_row(1)), life=one) for one in lives]
        with store.transaction() as tx:
            tx.record_cycle(cycle, [], [], events)

    record(1, "copy:a", "dead:b")
    with store.transaction() as tx:
        tx.finish_cycle(1)
    record(2, "copy:c")
    asked = {"copy:a", "dead:a", "dead:b", "copy:c"}
    assert set(store.known_lives(asked)) == {"copy:a", "dead:b", "copy:c"}
    with store.transaction() as tx:
        tx.undo_cycle(2)
    assert set(store.known_lives(asked)) == {"copy:a", "dead:b"}
    with store.transaction() as tx:
        tx.renew_uid()
    assert not store.known_lives(asked)
    record(2, "copy:a")
    assert set(store.known_lives(asked)) == {"copy:a"}


def test_skipped_numbers_lie_far_ahead_and_differ_each_time(make_store: MakeStore) -> None:
    """Two restorations of one backup must not come to the same numbers."""
    store = make_store()
    store.open()
    before = store.allocate_ids(1)
    store.close()
    firsts = []
    for _ in range(2):
        again = make_store()
        again.open()
        with again.transaction() as tx:
            tx.skip_ids()
        firsts.append(again.allocate_ids(1))
        again.close()
    assert firsts[0] - before > 2**40
    assert firsts[1] - firsts[0] > 2**40
    assert firsts[1] < 2**53


def test_the_instance_name_is_made_once(make_store: MakeStore) -> None:
    made = make_store().open().instance
    assert len(made) == 8
    assert make_store().open().instance == made
    assert make_store(instance_name=made).open().instance == made


def test_a_store_of_another_instance_is_refused(make_store: MakeStore) -> None:
    first = make_store(instance_name="left")
    first.open()
    if isinstance(first, PostgresStore):
        assert make_store(instance_name="right").open().instance == "right"
        return
    with pytest.raises(StoreUnavailable, match="belongs to the instance 'left', not to 'right'"):
        make_store(instance_name="right").open()


def test_what_was_written_is_there_after_opening_again(make_store: MakeStore) -> None:
    store = make_store()
    store.open()
    take(store, taken_row(1), taken_row(2, due_at_ms=70, state=RowState.HELD))
    with store.transaction() as tx:
        tx.set_hold("queue://DLQ", 9)
    begin(store, [taken_row(3)], claim(store), {"queue://DLQ": 4})
    with store.transaction() as tx:
        tx.set_token_created()
    before = everything(store)
    store.close()
    store.close()
    again = make_store()
    again.open()
    assert everything(again) == before


# Transactions and cycles.


def test_a_store_says_where_things_stand_now_and_is_there_again_when_reopened(
    store: OpenableStore,
) -> None:
    begun = store.state()
    take(store, taken_row(1))
    assert store.state().cycle == begun.cycle + 1
    again = store.reopen()
    assert (again.instance, again.uid) == (begun.instance, begun.uid)
    assert again == store.state()
    assert ids_of(store) == [1]
    store.close()
    assert store.reopen() == again, "also after it was closed"


def test_writes_are_durable_when_the_block_is_left(
    store: OpenableStore, make_store: MakeStore
) -> None:
    other = make_store()
    other.open()
    with store.transaction() as tx:
        tx.record_cycle(1, [taken_row(1)], [], [])
        assert other.open().unfinished is None
    assert other.open().unfinished == UnfinishedCycle(cycle=1, taken_count=1, sent_count=0)


def test_a_block_that_is_left_by_an_exception_changes_nothing(store: OpenableStore) -> None:
    take(store, taken_row(1))
    before = everything(store)
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:  # noqa: PT012
        due = tx.claim_due(10_000, 10)
        tx.record_cycle(2, [taken_row(2, destination="queue://new")], due, [took(taken_row(2))])
        tx.finish_cycle(2)
        tx.record([Retried(at_ms=1, redelivery_id="test-000000000001", destination="x", actor="y")])
        tx.set_hold("queue://DLQ", 7)
        tx.set_token_created()
        raise ZeroDivisionError
    assert everything(store) == before
    take(store, taken_row(2, destination="queue://new"))
    assert store.list_rows(ALL, 10)[1].destination == "queue://new"


def test_a_taken_row_counts_only_once_its_cycle_is_finished(store: OpenableStore) -> None:
    take(store, taken_row(1, due_at_ms=900))
    with store.transaction() as tx:
        tx.set_hold("queue://DLQ", 5)
    before = everything(store)
    cycle = begin(store, [taken_row(2, due_at_ms=5)], holds={"queue://DLQ": 2})
    assert store.open().unfinished == UnfinishedCycle(cycle=cycle, taken_count=1, sent_count=0)
    assert everything(store)[1:] == before[1:]
    assert store.message(2) is None
    assert store.count_rows(RowFilter(ids=(1, 2))) == 1
    finish(store, cycle)
    assert ids_of(store) == [1, 2]
    assert store.message(2) == b"message 2"
    assert store.next_due_ms() == 5
    assert [row.id for row in claim(store)] == [2, 1]
    assert store.holds() == {"queue://DLQ": 3}
    assert [type(event).__name__ for event in store.history("test-000000000002")] == [
        "Received",
        "Scheduled",
    ]


def test_a_sent_row_is_in_flight_until_its_cycle_is_finished_and_gone_then(
    store: OpenableStore,
) -> None:
    take(store, taken_row(1), taken_row(2))
    cycle = send(store, 1)
    assert [(row.id, row.in_flight) for row in store.list_rows(ALL, 9)] == [(1, True), (2, False)]
    assert [row.id for row in claim(store)] == [2]
    assert len(store.history("test-000000000001")) == 2
    finish(store, cycle)
    assert ids_of(store) == [2]
    assert store.message(1) is None
    assert store.tallies() == [Tally(destination="queue://orders", state=RowState.WAITING, count=1)]
    assert len(store.history("test-000000000001")) == 3


def test_an_undone_cycle_leaves_no_trace(store: OpenableStore) -> None:
    take(store, taken_row(1), taken_row(2))
    with store.transaction() as tx:
        tx.set_hold("queue://DLQ", 7)
    before = everything(store)
    begin(store, [taken_row(3), taken_row(5)], claim(store), {"queue://DLQ": 3})
    with store.transaction() as tx:
        tx.undo_cycle(2)
    assert everything(store) == before
    assert [row.id for row in claim(store)] == [1, 2]


def test_a_cycle_can_be_undone_and_begun_again_in_one_transaction(store: OpenableStore) -> None:
    take(store, taken_row(1), taken_row(2))
    begin(store, [taken_row(3), taken_row(4)], claim(store))
    with store.transaction() as tx:
        tx.undo_cycle(2)
        due = tx.claim_due(10_000, 1)
        tx.record_cycle(2, [taken_row(4)], due, [])
    assert [row.id for row in claim(store)] == [2]
    finish(store, 2)
    assert ids_of(store) == [2, 4]


def test_in_doubt_what_was_taken_waits_and_what_was_sent_waits_again(store: OpenableStore) -> None:
    take(store, taken_row(1), taken_row(2))
    with store.transaction() as tx:
        tx.set_hold("queue://DLQ", 4)
    begin(store, [taken_row(3)], claim(store), {"queue://DLQ": 1})
    with store.transaction() as tx:
        tx.settle_in_doubt(2)
    assert [row.id for row in claim(store)] == [1, 2, 3]
    assert store.holds() == {"queue://DLQ": 3}
    assert store.tallies()[0].count == store.count_rows(RowFilter(ids=(1, 2, 3))) == 3
    assert [len(store.history(f"test-{row_id:012d}")) for row_id in (1, 2, 3)] == [2, 2, 2]
    state = store.open()
    assert (state.cycle, state.unfinished) == (2, None)


@pytest.mark.parametrize(
    ("end", "events"), [("finish_cycle", 3), ("undo_cycle", 0), ("settle_in_doubt", 0)]
)
def test_what_is_sent_without_being_a_row_leaves_only_its_events(
    store: OpenableStore, end: str, events: int
) -> None:
    take(store, taken_row(1))
    row = taken_row(2)
    with store.transaction() as tx:
        due = tx.claim_due(10_000, 10)
        sent: list[DueRow | TakenRow] = [*due, row]
        told: list[AnyEvent] = [took(row), scheduled(row), *(resent(one) for one in sent)]
        tx.record_cycle(2, [taken_row(3)], sent, told)
    assert [one.sent_count for one in [store.open().unfinished] if one is not None] == [2]
    with store.transaction() as tx:
        getattr(tx, end)(2)
    left = {"finish_cycle": [3], "undo_cycle": [1], "settle_in_doubt": [1, 3]}[end]
    assert ids_of(store) == left
    assert store.tallies()[0].count == len(left)
    assert len(store.history(row.redelivery_id)) == events
    assert store.open().unfinished is None


@pytest.mark.parametrize("end", ["finish_cycle", "undo_cycle", "settle_in_doubt"])
def test_only_the_unfinished_cycle_can_be_ended(store: OpenableStore, end: str) -> None:
    take(store, taken_row(1))
    begin(store, [taken_row(2)])
    for cycle in (1, 3):
        with pytest.raises(AssertionError, match="the unfinished one is 2"):  # noqa: SIM117
            with store.transaction() as tx:
                getattr(tx, end)(cycle)
    assert store.open().unfinished is not None


@pytest.mark.parametrize("cycle", [1, 3])
def test_a_cycle_is_the_last_finished_one_plus_one(store: OpenableStore, cycle: int) -> None:
    take(store, taken_row(1))
    with pytest.raises(AssertionError, match="1 is the last finished one"):  # noqa: SIM117
        with store.transaction() as tx:
            tx.record_cycle(cycle, [], [], [])


def test_there_is_at_most_one_unfinished_cycle(store: OpenableStore) -> None:
    begin(store, [taken_row(1)])
    with pytest.raises(AssertionError), store.transaction() as tx:
        tx.record_cycle(2, [taken_row(2)], [], [])
    with pytest.raises(AssertionError), store.transaction() as tx:
        tx.set_cycle(9)
    assert store.open().unfinished == UnfinishedCycle(cycle=1, taken_count=1, sent_count=0)


@pytest.mark.parametrize("number", [41, 3, 0])
def test_cycles_continue_after_a_number_that_was_set(store: OpenableStore, number: int) -> None:
    for row_id in range(1, 6):
        take(store, taken_row(row_id))
    with store.transaction() as tx:
        tx.set_cycle(number)
    assert store.open().cycle == number
    assert ids_of(store) == [1, 2, 3, 4, 5]
    assert begin(store, [taken_row(6)], claim(store)[:2]) == number + 1
    assert ids_of(store) == [1, 2, 3, 4, 5]
    with store.transaction() as tx:
        tx.undo_cycle(number + 1)
    assert ids_of(store) == [1, 2, 3, 4, 5]


def test_the_first_token_is_remembered(store: OpenableStore) -> None:
    with store.transaction() as tx:
        tx.set_token_created()
    assert store.open().token_created


def test_a_writer_waits_for_another_and_gives_up_with_a_sentence(
    store: OpenableStore, make_store: MakeStore
) -> None:
    other = make_store(busy_timeout_ms=1)
    other.open()
    with store.transaction() as tx:
        tx.set_token_created()
        with pytest.raises(StoreUnavailable, match="another process is writing for too long"):
            begin(other, [taken_row(1)])
        assert other.tallies() == []
    assert begin(other, [taken_row(1)]) == 1


# Claims.


def test_claims_are_ordered_by_due_time_then_number_and_limited(store: OpenableStore) -> None:
    dues = {1: 30, 2: 10, 3: 20, 4: 10, 5: 31}
    take(store, *(taken_row(row_id, due_at_ms=due) for row_id, due in dues.items()))
    assert [row.id for row in claim(store, now_ms=30)] == [2, 4, 3, 1]
    assert [row.id for row in claim(store, now_ms=30, limit=2)] == [2, 4]
    assert claim(store, now_ms=9) == []


def test_a_claim_holds_what_a_send_needs(store: OpenableStore) -> None:
    row = taken_row(
        7, is_final=True, expiration_ms=5, destination="topic://t", encoding="o", message=b"\0" * 9
    )
    take(store, row)
    assert claim(store) == [due_row(row)]


def test_a_claim_reads_only(store: OpenableStore) -> None:
    take(store, taken_row(1))
    assert claim(store) == claim(store) != []


def test_only_waiting_rows_are_claimed(store: OpenableStore) -> None:
    take(store, *(taken_row(number, state=state) for number, state in enumerate(RowState, 1)))
    assert [row.id for row in claim(store)] == [1]
    assert store.next_due_ms() == 1_000


@pytest.mark.parametrize("message", [b"", b"\x00\xff", bytes(range(256)) * 8192])
def test_messages_come_back_byte_for_byte(store: OpenableStore, message: bytes) -> None:
    take(store, taken_row(1, message=message))
    assert store.message(1) == claim(store)[0].message == message
    assert store.list_rows(ALL, 1)[0].size_bytes == len(message)


def test_next_due_is_the_earliest_waiting_row_of_no_unfinished_cycle(store: OpenableStore) -> None:
    assert store.next_due_ms() is None
    take(store, taken_row(1, due_at_ms=50), taken_row(2, due_at_ms=90))
    take(store, taken_row(3, due_at_ms=10, state=RowState.PARKED))
    assert store.next_due_ms() == 50
    cycle = send(store, 1)
    assert store.next_due_ms() == 90
    finish(store, cycle)
    begin(store, [taken_row(4, due_at_ms=1)], claim(store))
    assert store.next_due_ms() is None


# Single rows.


def test_a_postponed_row_is_due_later(store: OpenableStore) -> None:
    take(store, taken_row(1), taken_row(2), taken_row(3, state=RowState.HELD))
    with store.transaction() as tx:
        tx.postpone([1, 3, 99], 20_000, "no queue is bound")
    assert [row.id for row in claim(store, now_ms=19_999)] == [2]
    assert [row.id for row in claim(store, now_ms=20_000)] == [2, 1]
    assert [row.due_at_ms for row in store.list_rows(ALL, 9)] == [20_000, 1_000, 1_000]
    assert store.list_rows(ALL, 1)[0].rule == "policy.yaml:3"


def test_what_a_gate_lets_wait_says_so_until_something_else_becomes_of_it(
    store: OpenableStore,
) -> None:
    take(store, *(taken_row(number) for number in range(1, 8)))

    def gates() -> list[str | None]:
        return [row.gate for row in store.list_rows(ALL, 9)]

    with store.transaction() as tx:
        tx.postpone(range(1, 7), 20_000, "closed", "windows")
    assert gates() == ["windows"] * 6 + [None]
    with store.transaction() as tx:
        tx.postpone([2], 30_000, "no route")
        tx.postpone([3], 30_000, "too fast", "pace")
        tx.park([4], "refused")
    store.change(RowFilter(ids=(5,)), row_changes.hold(5_000, "ann"))
    store.change(RowFilter(ids=(6,)), row_changes.retry(5_000, "ann"))
    assert gates() == ["windows", None, "pace", None, None, None, None]


def places(store: OpenableStore, *ids: int) -> dict[int, tuple[int, int, RowState, int]]:
    """Return where rows stand in their groups."""
    with store.transaction() as tx:
        found = tx.group_places(ids)
    return {
        row_id: (one.before, one.first_id, one.first_state, one.first_due_at_ms)
        for row_id, one in found.items()
    }


def test_rows_stand_in_their_groups_by_first_death_where_a_store_knows_groups(
    store: OpenableStore,
) -> None:
    of_g: dict[str, Any] = {"message_group": "g"}
    if isinstance(store, PostgresStore):
        # Why: a shared schedule is refused with gates that need groups.
        take(store, taken_row(1, **of_g))
        assert places(store, 1) == {}
        return
    take(
        store,
        taken_row(1, **of_g, redelivery_id="c", due_at_ms=30),
        taken_row(2, **of_g, redelivery_id="a", due_at_ms=10),
        taken_row(3, **of_g, redelivery_id="b", due_at_ms=20),
        taken_row(4, **of_g, redelivery_id="0", destination="queue://else"),
        taken_row(5, message_group="\ud800", redelivery_id="1"),
        taken_row(6, redelivery_id="2"),
        taken_row(7, **of_g, redelivery_id="3", is_final=True),
    )
    due = {row.id: row.message_group for row in claim(store)}
    assert due == {1: "g", 2: "g", 3: "g", 4: "g", 5: r"\ud800", 6: None, 7: "g"}
    waiting = RowState.WAITING
    assert places(store, *due) == {
        1: (2, 2, waiting, 10),
        2: (0, 2, waiting, 10),
        3: (1, 2, waiting, 10),
        4: (0, 4, waiting, 1_000),
        5: (0, 5, waiting, 1_000),
    }
    # A held message keeps its place, and so do those of an unfinished cycle.
    store.change(RowFilter(ids=(2,)), row_changes.hold(1_500, "ann", WaitFor("invoice-1", 500)))
    cycle = begin(store, [taken_row(8, **of_g, redelivery_id="aa")], claim(store, limit=1))
    held = RowState.HELD
    assert places(store, 1, 3) == {1: (3, 2, held, 2_000), 3: (2, 2, held, 2_000)}
    with store.transaction() as tx:
        assert tx.group_places([1])[1].first_awaits == "invoice-1"
    finish(store, cycle)
    # Where it goes is where it stands; what is cancelled is final, and stands nowhere.
    store.change(RowFilter(ids=(2,)), row_changes.redirect(1_500, "ann", "queue://else"))
    store.change(RowFilter(ids=(8,)), row_changes.cancel(1_500, "ann", ".x"))
    assert places(store, 1, 2, 8) == {1: (0, 1, waiting, 30), 2: (1, 4, waiting, 1_000)}


def test_of_a_long_group_the_rows_before_one_are_counted_up_to_a_number(
    store: OpenableStore,
) -> None:
    if isinstance(store, PostgresStore):
        return
    take(store, *(taken_row(number, message_group="g") for number in range(1, 301)))
    found = {row_id: one[0] for row_id, one in places(store, *range(1, 301)).items()}
    assert found == {number: min(number - 1, 100) for number in range(1, 301)}


def test_what_a_person_retries_passes_gates_until_it_is_sent_or_acted_on_again(
    store: OpenableStore,
) -> None:
    states = [RowState.WAITING, RowState.HELD, RowState.PARKED, RowState.WAITING]
    take(store, *(taken_row(number, state=state) for number, state in enumerate(states, 1)))

    def passing() -> list[int]:
        return [row.id for row in claim(store, now_ms=10**6) if row.passes_gates]

    assert passing() == []
    store.change(RowFilter(ids=(1, 2, 3)), row_changes.retry(5_000, "ann"))
    assert passing() == [1, 2, 3]
    with store.transaction() as tx:
        tx.postpone([1], 30_000, "no route")
    cycle = send(store, 2)
    with store.transaction() as tx:
        tx.undo_cycle(cycle)
    assert passing() == [2, 3, 1]
    store.change(RowFilter(ids=(1,)), row_changes.hold(6_000, "ann"))
    store.change(RowFilter(ids=(1,)), row_changes.release(6_000, "ann"))
    assert passing() == [2, 3]
    cycle = send(store, 2)
    finish(store, cycle)
    assert passing() == [3]
    take(store, taken_row(9, redelivery_id="test-000000000002", redelivery_count=2))
    assert passing() == [3]


def test_a_parked_row_is_kept_with_its_reason(store: OpenableStore) -> None:
    take(store, taken_row(1), taken_row(2, state=RowState.HELD), taken_row(3))
    with store.transaction() as tx:
        tx.park([1, 2, 99], "refused: too large")
    with store.transaction() as tx:
        tx.park([2], "refused again")
    assert states(store) == {1: RowState.PARKED, 2: RowState.PARKED, 3: RowState.WAITING}
    assert [row.reason for row in store.list_rows(ALL, 2)] == [
        "refused: too large",
        "refused again",
    ]
    assert [row.id for row in claim(store)] == [3]
    assert_tallies(store)


def test_removed_rows_are_gone(store: OpenableStore) -> None:
    take(store, *(taken_row(number, destination=f"queue://{number % 2}") for number in range(1, 7)))
    with store.transaction() as tx:
        tx.remove([1, 3, 4, 99])
    assert ids_of(store) == [2, 5, 6]
    assert [store.message(number) for number in (1, 3, 4)] == [None] * 3
    assert_tallies(store)


@pytest.mark.parametrize("row_id", [1, 2])
@pytest.mark.parametrize("change", ["postpone", "park", "remove"])
def test_rows_of_an_unfinished_cycle_cant_be_changed(
    store: OpenableStore, change: str, row_id: int
) -> None:
    take(store, taken_row(1))
    begin(store, [taken_row(2)], claim(store))
    arguments = {"postpone": (5, "later"), "park": ("why",), "remove": ()}[change]
    with pytest.raises(AssertionError), store.transaction() as tx:
        getattr(tx, change)([row_id], *arguments)


def test_ids_were_never_used_before(store: OpenableStore, make_store: MakeStore) -> None:
    first = store.allocate_ids(3)
    second = store.allocate_ids(50_000)
    third = store.allocate_ids(1)
    begin(store, [taken_row(third)])
    with store.transaction() as tx:
        tx.undo_cycle(1)
    other = make_store()
    other.open()
    fourth, fifth = other.allocate_ids(2), store.allocate_ids(2)
    used = [range(first, first + 3), range(second, second + 50_000), [third]]
    used += [range(fourth, fourth + 2), range(fifth, fifth + 2)]
    numbers = list(itertools.chain(*used))
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) > 0


def test_ids_of_a_transaction_that_failed_are_not_used_again(store: OpenableStore) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012
        first = store.allocate_ids(10)
        raise ZeroDivisionError
    take(store, taken_row(first), taken_row(first + 9))
    assert store.allocate_ids(1) >= first + 10


# Holds.


def test_holds_count_when_the_cycle_is_finished(store: OpenableStore) -> None:
    with store.transaction() as tx:
        tx.set_hold("queue://a", 5)
        tx.set_hold("queue://b", 0)
    cycle = begin(store, [], holds={"queue://a": 2, "queue://b": 1})
    assert store.holds() == {"queue://a": 5, "queue://b": 0}
    with store.transaction() as tx:
        assert tx.holds() == {"queue://a": 3, "queue://b": 0}
        tx.undo_cycle(cycle)
        assert tx.holds() == {"queue://a": 5, "queue://b": 0}
        tx.record_cycle(cycle, [], [], [], {"queue://a": 1})
    finish(store, cycle)
    assert store.holds() == {"queue://a": 4, "queue://b": 0}


# Reading.


def varied_rows(count: int) -> list[TakenRow]:
    causes = ["order refused", "Order refused", "50% of _all_", None]
    return [
        taken_row(
            number,
            state=list(RowState)[number // 2 % 4],
            destination=f"queue://{number % 4}",
            is_final=number % 3 == 1,
            final_queue=[None, "queue://END"][number % 2],
            redelivery_id=f"test-{number // 2}",
            cause=causes[number % 4],
            cause_group=["", "order refused", "(expired)"][number % 3],
            source=f"queue://DLQ.{number % 2}",
            redelivery_count=number % 5,
            due_at_ms=1_000 + number,
            received_at_ms=number * 10,
            gate=["a", "b", None][number % 3],
        )
        for number in range(1, count + 1)
    ]


FILTERS: dict[str, Sequence[object]] = {
    "ids": [(), (3,), (7, 2, 900)],
    "redelivery_id": ["test-4", "test-900"],
    "destination": ["queue://1", "queue://none"],
    "state": list(RowState),
    "cause_contains": ["order", "%", "_all_", ""],
    "cause_group": ["", "order refused", "none"],
    "source": ["queue://DLQ.1", "queue://none"],
    "redelivery_count": [2],
    "received_from_ms": [110],
    "received_before_ms": [0, 110],
    "due_before_ms": [1_000, 1_012],
    "count_at_least": [3],
    "event": ["a", "b", "none"],
    "lies_in": ["queue://END", "queue://2", "queue://none"],
    "destinations": [(), ("queue://1", "queue://none"), ("queue://1", "queue://2")],
}


def matches(row: TakenRow, row_filter: RowFilter) -> bool:
    conditions: dict[str, Callable[[Any], bool]] = {
        "ids": lambda ids: row.id in ids,
        "cause_contains": lambda part: row.cause is not None and part in row.cause,
        "received_from_ms": lambda from_ms: row.received_at_ms >= from_ms,
        "received_before_ms": lambda before_ms: row.received_at_ms < before_ms,
        "due_before_ms": lambda before_ms: row.due_at_ms < before_ms,
        "count_at_least": lambda count: row.redelivery_count >= count,
        "destinations": lambda names: row.destination in names,
        "event": lambda name: (row.state, row.gate) == (RowState.HELD, name),
        "lies_in": lambda queue: (
            (row.state, row.is_final, row.decided_queue) == (RowState.EXHAUSTED, True, queue)
        ),
    }
    return all(
        value is None
        or (conditions[name](value) if name in conditions else getattr(row, name) == value)
        for name, value in msgspec.structs.asdict(row_filter).items()
    )


def test_all_conditions_of_a_filter_must_hold(store: OpenableStore) -> None:
    rows = varied_rows(24)
    take(store, *rows)
    begin(store, [taken_row(100, destination="queue://1", cause="order", received_at_ms=0)])
    singles = [{name: value} for name, values in FILTERS.items() for value in values]
    pairs = [left | right for left, right in itertools.combinations(singles, 2)]
    for conditions in [{}, *singles, *pairs]:
        row_filter = msgspec.structs.replace(RowFilter(), **conditions)
        expected = [row.id for row in rows if matches(row, row_filter)]
        assert (row_filter, ids_of(store, row_filter)) == (row_filter, expected)
        assert (row_filter, store.count_rows(row_filter)) == (row_filter, len(expected))


@pytest.mark.parametrize("destination", [None, "queue://1"])
@pytest.mark.parametrize("state", [None, *RowState])
def test_rows_are_listed_by_number_in_pages(
    store: OpenableStore, destination: str | None, state: RowState | None
) -> None:
    take(store, *varied_rows(30))
    row_filter = RowFilter(destination=destination, state=state)
    listed: list[int] = []
    while page := store.list_rows(row_filter, 4, listed[-1] if listed else 0):
        assert len(page) <= 4
        listed += [row.id for row in page]
    assert listed == sorted(listed) == ids_of(store, row_filter)


def test_a_page_is_full_also_when_an_unfinished_cycle_hides_rows(store: OpenableStore) -> None:
    take(store, *(taken_row(number) for number in (2, 4, 6)))
    begin(store, [taken_row(number) for number in (1, 3, 5)])
    assert [row.id for row in store.list_rows(ALL, 2)] == [2, 4]


def test_a_listed_row_has_all_fields(store: OpenableStore) -> None:
    final = "queue://DLQ.x"
    fields = {"is_final": True, "final_queue": final, "delay_ms": 7, "state": RowState.PARKED}
    row = taken_row(3, cause="order refused", **fields)
    take(store, row)
    (view,) = store.list_rows(ALL, 5)
    for name in set(view.__struct_fields__) & set(row.__struct_fields__):
        assert (name, getattr(view, name)) == (name, getattr(row, name))


def test_texts_that_utf_8_cant_write_are_spelled_out_and_stop_nothing(store: OpenableStore) -> None:
    broken = "caf\u00e9 \ud800"
    row = taken_row(
        1, cause=broken, rule=broken, message_id=broken, destination=f"queue://{broken}"
    )
    take(store, row)
    (view,) = store.list_rows(RowFilter(destination=row.destination, cause_contains=broken), 5)
    assert view.cause == view.rule == view.message_id == "caf\u00e9 \\ud800"
    assert store.history(row.redelivery_id)[0].cause == "caf\u00e9 \\ud800"  # type: ignore[union-attr]
    assert [due.destination for due in claim(store)] == ["queue://caf\u00e9 \\ud800"]
    assert store.change(ALL, row_changes.hold(5, broken)) == 1
    assert store.list_rows(ALL, 5)[0].reason == "held by caf\u00e9 \\ud800"


def test_the_store_knows_its_size(store: OpenableStore) -> None:
    before = store.size_bytes()
    take(store, taken_row(1, message=random.randbytes(1_000_000)))
    assert store.size_bytes() - before > 1_000_000


# History.


def test_history_has_all_events_of_a_message_over_all_its_deaths(store: OpenableStore) -> None:
    rows = [taken_row(number, redelivery_id="same") for number in (1, 2)]
    take(store, rows[0], taken_row(9))
    finish(store, begin(store, [rows[1]], [row for row in claim(store) if row.id == 1]))
    parked = Parked(at_ms=5, id=2, redelivery_id="same", destination="queue://orders", reason="why")
    with store.transaction() as tx:
        tx.record([parked])
    assert store.history("same") == [
        took(rows[0]),
        scheduled(rows[0]),
        took(rows[1]),
        scheduled(rows[1]),
        resent(due_row(rows[0])),
        parked,
    ]
    assert store.history("other") == []


def test_events_outside_of_cycles_count_at_once(store: OpenableStore) -> None:
    cycle = begin(store, [taken_row(1)])
    event = Held(at_ms=4, redelivery_id="x", destination="queue://orders", reason="r")
    with store.transaction() as tx:
        tx.record([event])
        tx.record([])
    assert store.history("x") == [event]
    with store.transaction() as tx:
        tx.undo_cycle(cycle)
    assert store.history("x") == [event]


def record_at(store: OpenableStore, *times: int) -> None:
    with store.transaction() as tx:
        tx.record(
            [Held(at_ms=at_ms, redelivery_id="x", destination="", reason="") for at_ms in times]
        )


def times_of(store: OpenableStore) -> list[int]:
    return [event.at_ms for event in store.history("x")]


def test_the_oldest_events_before_a_time_are_forgotten_at_most_limit(store: OpenableStore) -> None:
    record_at(store, 1, 2, 3)
    record_at(store, 4, 5)
    record_at(store, 6)
    assert store.forget_history(1, 10) == 0
    assert store.forget_history(6, 2) == 2
    assert times_of(store) == [3, 4, 5, 6]
    assert store.forget_history(6, 2) == 2
    assert store.forget_history(6, 2) == 1
    assert store.forget_history(6, 2) == 0
    assert times_of(store) == [6]


def test_the_first_events_beyond_a_number_are_forgotten_at_most_limit(store: OpenableStore) -> None:
    record_at(store, 9, 2, 3)
    record_at(store, 4, 5)
    assert store.trim_history(5, 10) == 0
    assert store.trim_history(2, 1) == 1
    assert times_of(store) == [2, 3, 4, 5]
    assert store.trim_history(2, 10) == 2
    assert store.trim_history(0, 10) == 2
    assert times_of(store) == []
    record_at(store, 7)
    assert times_of(store) == [7]


def test_events_of_an_unfinished_cycle_are_not_forgotten(store: OpenableStore) -> None:
    record_at(store, 1)
    cycle = begin(store, [taken_row(1)])
    assert store.forget_history(10**9, 100) == 1
    assert store.trim_history(0, 100) == 0
    finish(store, cycle)
    assert len(store.history("test-000000000001")) == 2
    assert store.trim_history(0, 100) == 2


# What operators do.


def assert_tallies(store: OpenableStore) -> None:
    """Check that the tallies equal what a scan of the rows gives."""
    rows = store.list_rows(ALL, 100_000)
    expected = Counter((row.destination, row.state) for row in rows)
    found = {(tally.destination, tally.state): tally.count for tally in store.tallies()}
    assert found == dict(expected)
    assert store.count_rows(ALL) == len(rows)


def taken_in_all_states(store: OpenableStore) -> None:
    take(
        store,
        taken_row(1, due_at_ms=50),
        taken_row(2, due_at_ms=5_000),
        taken_row(3, due_at_ms=60, state=RowState.HELD),
        taken_row(4, due_at_ms=6_000, state=RowState.HELD),
        taken_row(5, due_at_ms=70, state=RowState.PARKED),
        taken_row(6, due_at_ms=80, is_final=True, destination="queue://DLQ.final"),
        taken_row(7, due_at_ms=1),
    )
    send(store, 7)


def dues(store: OpenableStore) -> dict[int, tuple[RowState, int]]:
    return {row.id: (row.state, row.due_at_ms) for row in store.list_rows(ALL, 100)}


def last_events(store: OpenableStore) -> dict[int, AnyEvent]:
    histories = [store.history(f"test-{number:012d}") for number in range(1, 8)]
    return {events[-1].id: events[-1] for events in histories}


def test_retry_makes_rows_due_now_also_held_and_parked_ones(store: OpenableStore) -> None:
    taken_in_all_states(store)
    assert store.change(ALL, row_changes.retry(100, "ann")) == 6
    waiting = RowState.WAITING
    assert dues(store) == {
        1: (waiting, 50),
        2: (waiting, 100),
        3: (waiting, 100),
        4: (waiting, 100),
        5: (waiting, 100),
        6: (waiting, 80),
        7: (waiting, 1),
    }
    events = last_events(store)
    assert [number for number, event in events.items() if isinstance(event, Retried)] == [
        1, 2, 3, 4, 5, 6,
    ]  # fmt: skip
    assert events[5] == Retried(
        at_ms=100,
        id=5,
        redelivery_id="test-000000000005",
        destination="queue://orders",
        actor="ann",
    )
    assert_tallies(store)


def test_a_retried_row_has_its_rule_again(store: OpenableStore) -> None:
    take(store, taken_row(1))
    with store.transaction() as tx:
        tx.park([1], "refused")
    store.change(ALL, row_changes.retry(100, "ann"))
    assert store.list_rows(ALL, 1)[0].rule == "policy.yaml:3"


def test_cancel_sends_rows_to_their_final_dead_letter_queue_now(store: OpenableStore) -> None:
    taken_in_all_states(store)
    assert store.change(ALL, row_changes.cancel(100, "ann", ".exhausted")) == 5
    rows = {row.id: row for row in store.list_rows(ALL, 100)}
    for number in range(1, 6):
        row = rows[number]
        assert (row.goes_to, row.is_final, row.state, row.due_at_ms) == (
            "queue://DLQ.exhausted",
            True,
            RowState.WAITING,
            100,
        )
    assert (rows[6].destination, rows[6].due_at_ms) == ("queue://DLQ.final", 80)
    assert not rows[7].is_final
    assert last_events(store)[5] == Cancelled(
        at_ms=100,
        id=5,
        redelivery_id="test-000000000005",
        destination="queue://DLQ.exhausted",
        actor="ann",
    )
    assert store.change(ALL, row_changes.cancel(100, "ann", ".exhausted")) == 0
    assert_tallies(store)


def test_hold_keeps_waiting_rows_until_a_person_releases_them(store: OpenableStore) -> None:
    taken_in_all_states(store)
    assert store.change(ALL, row_changes.hold(100, "ann")) == 3
    held, parked, waiting = RowState.HELD, RowState.PARKED, RowState.WAITING
    assert [state for state, _ in dues(store).values()] == [
        held, held, held, held, parked, held, waiting,
    ]  # fmt: skip
    assert isinstance(last_events(store)[2], Held)
    assert store.next_due_ms() is None
    assert (
        store.change(ALL, row_changes.hold(100, "ann"))
        == store.change(RowFilter(state=parked), row_changes.hold(100, "ann"))
        == 0
    )
    assert_tallies(store)


def test_release_lets_held_rows_go_at_their_due_time_at_once_if_it_has_passed(
    store: OpenableStore,
) -> None:
    taken_in_all_states(store)
    assert store.change(RowFilter(state=RowState.WAITING), row_changes.release(100, "ann")) == 0
    assert store.change(ALL, row_changes.release(100, "ann")) == 2
    assert dues(store)[3] == (RowState.WAITING, 100)
    assert dues(store)[4] == (RowState.WAITING, 6_000)
    event = last_events(store)[4]
    assert isinstance(event, Released)
    assert (event.due_at_ms, event.actor) == (6_000, "ann")
    assert_tallies(store)


@pytest.mark.parametrize("action", [Action.RETRY, Action.CANCEL, Action.HOLD, Action.RELEASE])
def test_actions_leave_rows_of_an_unfinished_cycle(store: OpenableStore, action: Action) -> None:
    held = RowState.HELD if action is Action.RELEASE else RowState.WAITING
    take(store, taken_row(1))
    cycle = begin(store, [taken_row(2, state=held)], claim(store))
    act = effect_of(action)
    assert store.change(ALL, act) == 0
    finish(store, cycle)
    assert store.change(ALL, act) == 1
    assert_tallies(store)


@pytest.mark.parametrize("by_ids", [True, False])
def test_an_action_on_many_rows_reaches_each_once(store: OpenableStore, by_ids: bool) -> None:
    count = 2_500
    take(store, *(taken_row(number) for number in range(1, count + 1)))
    row_filter = RowFilter(ids=(*range(count, 0, -1), 1, 9_999)) if by_ids else ALL
    assert store.change(row_filter, row_changes.hold(100, "ann")) == count
    assert (
        store.change(RowFilter(destination="queue://orders"), row_changes.release(100, "ann"))
        == count
    )
    assert store.change(RowFilter(received_before_ms=10**9), row_changes.retry(100, "ann")) == count
    assert len(store.history("test-000000002400")) == 5
    assert_tallies(store)


def test_an_action_reports_each_step_and_ends_where_it_is_asked_to(store: OpenableStore) -> None:
    taken_in_all_states(store)
    told: list[tuple[int, int]] = []
    store.change(
        ALL, row_changes.cancel(100, "ann", ".exhausted"), lambda *counts: told.append(counts)
    )
    assert [sum(counts) for counts in zip(*told, strict=True)] == [7, 5]

    def stop(_matched: int, _changed: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.change(ALL, row_changes.hold(100, "ann"), stop)
    assert RowState.HELD in {row.state for row in store.list_rows(ALL, 100)}
    assert_tallies(store)


def test_actions_only_reach_what_the_filter_hits(store: OpenableStore) -> None:
    rows = varied_rows(24)
    take(store, *rows)
    row_filter = RowFilter(destination="queue://1", state=RowState.PARKED)
    hit = [row.id for row in rows if matches(row, row_filter)]
    assert store.change(row_filter, row_changes.retry(100, "ann")) == len(hit) > 0
    changed = [row.id for row in store.list_rows(ALL, 100) if row.due_at_ms == 100]
    assert changed == hit


# --- exhausted messages -----------------------------------------------------------------------


def final_row(row_id: int, **fields: Any) -> TakenRow:
    values = {"is_final": True, "final_queue": "queue://DLQ.exhausted", "redelivery_count": 4}
    return taken_row(row_id, **(values | fields))


def test_what_went_to_its_final_queue_stays_in_sight_without_its_message(
    store: OpenableStore,
) -> None:
    take(store, final_row(1), taken_row(2))
    targets = [row.destination for row in claim(store)]
    assert targets == ["queue://DLQ.exhausted", "queue://orders"]
    cycle = send(store, 1, 2)
    assert store.message(1) == b"message 1"
    finish(store, cycle)

    (row,) = store.list_rows(ALL, 9)
    assert (row.id, row.state, row.destination) == (1, RowState.EXHAUSTED, "queue://orders")
    assert (row.goes_to, row.size_bytes, row.in_flight) == ("queue://DLQ.exhausted", 9, False)
    assert row.is_in_final_queue
    assert store.message(1) is None
    assert store.next_due_ms() is None
    for act in (
        row_changes.cancel(100, "ann", ".x"),
        row_changes.hold(100, "ann"),
        row_changes.release(100, "ann"),
        row_changes.give_back(100, {1: 100}),
    ):
        assert store.change(ALL, act) == 0
    assert store.change(ALL, row_changes.redirect(100, "ann", "queue://a")) == 1
    (row,) = store.list_rows(ALL, 9)
    assert (row.is_in_final_queue, row.destination, row.recall) == (True, "queue://a", Recall.SEND)


@pytest.mark.parametrize("end", ["undo_cycle", "settle_in_doubt"])
def test_what_may_not_be_in_its_final_queue_waits_with_its_message(
    store: OpenableStore, end: str
) -> None:
    take(store, final_row(1))
    cycle = send(store, 1)
    with store.transaction() as tx:
        getattr(tx, end)(cycle)
    assert states(store) == {1: RowState.WAITING}
    assert [(row.destination, row.message) for row in claim(store)] == [
        ("queue://DLQ.exhausted", b"message 1")
    ]


def test_a_kept_exhausted_row_begins_a_new_life(store: OpenableStore) -> None:
    take(store, final_row(1, is_final=False, state=RowState.EXHAUSTED))
    assert store.next_due_ms() is None
    assert store.change(ALL, row_changes.hold(100, "ann")) == 0
    assert store.change(ALL, row_changes.retry(100, "ann", "OPS-7")) == 1
    (due,) = claim(store)
    assert (due.destination, due.is_final, due.redelivery_count) == ("queue://orders", False, 1)
    (retried,) = store.history("test-000000000001")[-1:]
    assert isinstance(retried, Retried)
    assert retried.reason == "OPS-7"


@pytest.mark.parametrize("end", ["finish_cycle", "undo_cycle", "settle_in_doubt"])
def test_what_is_taken_back_replaces_the_row_that_knew_where_it_lay(
    store: OpenableStore, end: str
) -> None:
    take(store, final_row(1), taken_row(2, due_at_ms=99_000))
    finish(store, send(store, 1))
    cycle = store.open().cycle + 1
    back = final_row(3, is_final=False, state=RowState.EXHAUSTED, redelivery_id="test-000000000001")
    with store.transaction() as tx:
        tx.record_cycle(cycle, [back], [], [took(back)], None, {3: 1})
    assert {row.id: row.in_flight for row in store.list_rows(ALL, 9)} == {1: True, 2: False}
    with store.transaction() as tx:
        getattr(tx, end)(cycle)

    left = {"finish_cycle": [1, 2], "undo_cycle": [1, 2], "settle_in_doubt": [1, 2, 3]}[end]
    assert ids_of(store) == left
    assert (store.message(1) is not None) == (end == "finish_cycle")
    assert Counter(row.state for row in store.list_rows(ALL, 9)) == {
        tally.state: tally.count for tally in store.tallies()
    }
    if not isinstance(store, MemoryStore):
        assert isinstance(store, SqliteStore | PostgresStore)
        places = {one.is_in_queue: one.count for one in store.exhausted_tallies()}
        kept, lying = (False, 1), (True, 1)
        ends = {"finish_cycle": [kept], "undo_cycle": [lying], "settle_in_doubt": [kept, lying]}
        assert sorted(places.items()) == ends[end]


def test_what_lies_in_final_queues_is_found_by_message_and_by_what_becomes_of_it(
    store: OpenableStore,
) -> None:
    take(store, *(final_row(number) for number in (1, 2, 3, 4)), taken_row(5))
    finish(store, send(store, 1, 2, 3))
    names = [f"test-{number:012d}" for number in (1, 3, 4, 5, 9)]
    assert [row.id for row in store.lying(names)] == [1, 3]
    assert store.lying([]) == []

    assert store.change(RowFilter(ids=(1, 2)), row_changes.retry(100, "ann")) == 2
    assert store.change(RowFilter(ids=(1, 2)), row_changes.retry(100, "ann")) == 0
    assert store.change(RowFilter(ids=(3,)), row_changes.discard(100, "ann", 7)) == 1
    (queue,) = {row.goes_to for row in store.recalled(Recall.SEND, 9)}
    assert [row.id for row in store.recalled(Recall.SEND, 1)] == [1]
    assert store.count_recalled(Recall.SEND) == {queue: 2}
    assert [row.recall_operation for row in store.recalled(Recall.DISCARD, 9)] == [7]
    assert store.change(RowFilter(ids=(1,)), row_changes.cancel(100, "ann", ".x")) == 1
    assert [row.id for row in store.recalled(Recall.LEAVE, 9)] == [1]
    assert all(row.is_in_final_queue for row in store.list_rows(RowFilter(ids=(1, 2, 3)), 9))


def test_what_goes_back_is_given_and_claimed_in_the_order_of_its_due_times(
    store: OpenableStore,
) -> None:
    ended = {"state": RowState.EXHAUSTED, "is_final": False, "recall": Recall.RETURN}
    rows = [final_row(n, due_at_ms=due, **ended) for n, due in ((1, 7), (2, 6), (3, 6), (4, 5))]
    take(store, *rows)
    assert [row.id for row in store.recalled(Recall.RETURN, 9)] == [1, 2, 3, 4]
    assert [row.id for row in store.recalled_by_due(Recall.RETURN, 3)] == [4, 2, 3]
    due_at_ms = {4: 100, 2: 101, 3: 101}
    assert store.change(ALL, row_changes.give_back(100, due_at_ms)) == 3
    assert [row.id for row in store.recalled_by_due(Recall.RETURN, 9)] == [1]
    assert [row.id for row in claim(store)] == [4, 2, 3]


@pytest.mark.parametrize("end", ["finish_cycle", "undo_cycle"])
def test_a_row_that_is_taken_back_is_recalled_only_once(store: OpenableStore, end: str) -> None:
    take(store, final_row(1))
    finish(store, send(store, 1))
    store.change(RowFilter(ids=(1,)), row_changes.take_back(100, "ann"))
    cycle = store.open().cycle + 1
    back = final_row(
        3,
        is_final=False,
        state=RowState.EXHAUSTED,
        redelivery_id="test-000000000001",
        recall=Recall.RETURN,
    )
    with store.transaction() as tx:
        tx.record_cycle(cycle, [back], [], [took(back)], None, {3: 1})
    assert store.recalled(Recall.KEEP, 9) == store.recalled(Recall.RETURN, 9) == []
    assert store.lying(["test-000000000001"]) == []
    with store.transaction() as tx:
        getattr(tx, end)(cycle)
    is_back = end == "finish_cycle"
    assert [row.id for row in store.recalled(Recall.RETURN, 9)] == [1] * is_back
    assert [row.id for row in store.recalled(Recall.KEEP, 9)] == [1] * (not is_back)
    if is_back:
        assert store.change(ALL, row_changes.give_back(100, {1: 100})) == 1
        (due,) = claim(store)
        assert (due.id, due.is_final, due.destination) == (1, True, "queue://DLQ.exhausted")


def test_no_instance_gets_its_own_notes_back(store: OpenableStore) -> None:
    position = store.shared_notes(None).position
    store.share_notes([NOTE])
    found = store.shared_notes(position)
    assert not found.notes
    assert not store.shared_notes(found.position).notes
