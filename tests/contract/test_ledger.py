"""Every ledger keeps the promises of `ledger.py`; the test names quote them."""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from amqsidecar.ledger import Ledger, MemberOutcome, MemberUpdate, RowKey, RowOrder
from amqsidecar.model import row_changes
from amqsidecar.model.cause import NO_REASON
from amqsidecar.model.event import (
    AnyEvent,
    Discarded,
    Edited,
    Explained,
    Held,
    Marked,
    OutcomeProved,
    Received,
    Resent,
    Returned,
)
from amqsidecar.model.failure import (
    BUCKET_MS,
    LATEST_KEPT,
    MORE,
    CountKey,
    CountKind,
    FailureGroup,
    GroupNote,
    GroupTally,
    failure_cause,
)
from amqsidecar.model.marker import MARKS_KEPT, Marker, ServiceMark, ServiceMarkKind
from amqsidecar.model.operation import (
    Action,
    Member,
    Operation,
    OperationState,
    OutcomeKind,
    Selection,
)
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import DueRow, Recall, RowFilter, RowState, RowView, TakenRow
from amqsidecar.operations.operate import undoable
from amqsidecar.schedule import Schedule
from amqsidecar.store import Store
from amqsidecar.stores import rows as common_rows
from amqsidecar.stores.postgres import counts as postgres_counts
from amqsidecar.stores.postgres import transaction as postgres_transaction
from amqsidecar.stores.sqlite import changes as sqlite_changes
from amqsidecar.stores.sqlite import counts as sqlite_counts
from amqsidecar.stores.sqlite import operations as sqlite_operations
from amqsidecar.stores.sqlite import pages as sqlite_pages
from amqsidecar.stores.sqlite import rows as sqlite_rows
from support.stores.rows import resent, scheduled, taken_row, took
from support.stores.unsynced import UnsyncedStore

ALL = RowFilter()
FAR_MS = 10**12
KINDS = list(CountKind)


MakeStore = Callable[[], Schedule]


def grouped_row(row_id: int, **fields: Any) -> TakenRow:
    """Return a row whose group is that of its cause."""
    row = taken_row(row_id, **({"cause": "a.Refused: order 7"} | fields))
    return msgspec.structs.replace(row, cause_group=failure_cause(row.cause, expired=False))


def begin(store: Store, taken: list[TakenRow], sent: list[DueRow] | None = None) -> int:
    """Begin the next cycle with the events that belong to it; returns its number."""
    events: list[AnyEvent] = [event for row in taken for event in (took(row), scheduled(row))]
    events += [resent(row) for row in sent or []]
    cycle = store.reopen().cycle + 1
    with store.transaction() as tx:
        tx.record_cycle(cycle, taken, sent or [], events)
    return cycle


def finish(store: Store, cycle: int, end: str = "finish_cycle") -> None:
    with store.transaction() as tx:
        getattr(tx, end)(cycle)


def take(store: Store, *rows: TakenRow) -> None:
    finish(store, begin(store, list(rows)))


def send(store: Store, *ids: int) -> int:
    """Begin a cycle that sends these rows; returns its number."""
    with store.transaction() as tx:
        claimed = [row for row in tx.claim_due(FAR_MS, 1_000) if row.id in ids]
    return begin(store, [], claimed)


def record(store: Store, *events: AnyEvent) -> None:
    with store.transaction() as tx:
        tx.record(events)


def died(at_ms: int, **fields: Any) -> Received:
    values = {"source": "queue://DLQ", "origin": "queue://a", "redelivery_id": f"m-{at_ms}"}
    return Received(at_ms=at_ms, **(values | fields))


def counts(store: Ledger, from_ms: int = 0, until_ms: int = 10**15) -> Counter[CountKey]:
    return Counter({one.key: one.count for one in store.failure_counts(from_ms, until_ms, KINDS)})


def kinds(store: Ledger) -> Counter[CountKind]:
    found = Counter[CountKind]()
    for key, count in counts(store).items():
        found[key.kind] += count
    return found


# Failures.


def test_groups_of_which_one_died_since_the_latest_death_first(store: Schedule) -> None:
    record(store, died(100, cause="a.B: 1"), died(300, cause="a.B: 2"), died(200, cause="a.C: 1"))
    record(store, died(50, cause="a.B: 3"), died(250, origin=None))
    first, second, third = store.failure_groups(0, 10)
    assert first == FailureGroup(
        destination="queue://a",
        cause_group="a.B: *",
        first_at_ms=50,
        last_at_ms=300,
        total=3,
        example_id="m-300",
    )
    assert (second.destination, second.cause_group) == ("queue://DLQ", NO_REASON)
    assert third.cause_group == "a.C: *"
    assert store.failure_groups(250, 10) == [first, second]
    assert store.failure_groups(301, 10) == []
    assert store.failure_groups(0, 1) == [first]


def test_counts_of_buckets_that_begin_in_a_range(store: Schedule) -> None:
    record(store, *(died(at_ms) for at_ms in (0, BUCKET_MS - 1, BUCKET_MS, 2 * BUCKET_MS)))
    record(
        store,
        Returned(at_ms=5, source="queue://DLQ", redelivery_count=3),
        Discarded(at_ms=5, destination="queue://a", rule="r", actor="ann"),
    )
    assert kinds(store) == {CountKind.DIED: 4, CountKind.RETURNED: 1, CountKind.DISCARDED: 1}
    found = counts(store, BUCKET_MS, 2 * BUCKET_MS)
    assert found == {
        CountKey(
            bucket_ms=BUCKET_MS,
            kind=CountKind.DIED,
            destination="queue://a",
            cause_group=NO_REASON,
        ): 1
    }
    assert counts(store, 1, BUCKET_MS) == {}
    only = store.failure_counts(0, 10**9, [CountKind.RETURNED, CountKind.PARKED])
    assert [(one.key.kind, one.key.attempt, one.count) for one in only] == [
        (CountKind.RETURNED, 3, 1)
    ]


def test_counts_are_summed_up_by_steps(store: Schedule) -> None:
    hour_ms = 12 * BUCKET_MS
    record(store, *(died(at_ms) for at_ms in (0, BUCKET_MS, hour_ms - 1, hour_ms)))
    found = store.failure_counts(BUCKET_MS, 2 * hour_ms, [CountKind.DIED], hour_ms)
    assert sorted((one.key.bucket_ms, one.count) for one in found) == [(0, 2), (hour_ms, 1)]


@pytest.mark.parametrize("end", ["finish_cycle", "undo_cycle", "settle_in_doubt"])
def test_events_of_an_unfinished_cycle_count_nowhere_yet(store: Schedule, end: str) -> None:
    take(store, grouped_row(1))
    before = counts(store)
    with store.transaction() as tx:
        claimed = tx.claim_due(FAR_MS, 10)
    cycle = begin(store, [grouped_row(2, cause="b.Other: 1")], claimed)
    assert counts(store) == before
    assert [group.cause_group for group in store.failure_groups(0, 10)] == ["a.Refused: order *"]
    assert store.group_tallies() == [tally("a.Refused: order *", 1)]

    finish(store, cycle, end)

    took_2, sent_1 = {
        "finish_cycle": (1, 1),
        "undo_cycle": (0, 0),
        "settle_in_doubt": (1, 0),
    }[end]
    assert kinds(store) == +Counter({CountKind.DIED: 1 + took_2, CountKind.RESENT: sent_1})
    groups = {group.cause_group: group.total for group in store.failure_groups(0, 10)}
    assert groups == {"a.Refused: order *": 1} | ({"b.Other: *": 1} if took_2 else {})
    assert sorted(store.group_tallies(), key=lambda one: one.cause_group) == (
        [tally("a.Refused: order *", 1)] * (not sent_1) + [tally("b.Other: *", 1)] * took_2
    )


def test_a_note_gives_a_row_another_cause_and_moves_its_death_to_another_group(
    store: Schedule,
) -> None:
    take(store, grouped_row(1), grouped_row(2))
    [row] = store.list_rows(RowFilter(ids=(1,)), 1)
    [key] = counts(store)
    event = Explained(
        at_ms=row.received_at_ms + 5,
        id=1,
        redelivery_id=row.redelivery_id,
        destination=key.destination,
        cause="b.Broken: item 9",
        died_at_ms=key.bucket_ms,
        cause_group="b.Broken: item *",
        former_group="a.Refused: order *",
    )
    assert store.change(RowFilter(ids=(1,)), row_changes.explain(event)) == 1
    assert store.change(RowFilter(ids=(1,)), row_changes.hold(950, "ann")) == 1
    told = {one.id: (one.cause, one.cause_group) for one in store.list_rows(ALL, 10)}
    assert told == {
        1: ("b.Broken: item 9", "b.Broken: item *"),
        2: ("a.Refused: order 7", "a.Refused: order *"),
    }
    assert store.history(row.redelivery_id).count(event) == 1
    expected = {"a.Refused: order *": 1, "b.Broken: item *": 1}
    assert {one.cause_group: one.total for one in store.failure_groups(0, 10)} == expected
    assert {one.cause_group: one.count for one in store.group_tallies()} == expected
    assert {one.cause_group: count for one, count in counts(store).items()} == expected


def tally(cause_group: str, count: int, state: RowState = RowState.WAITING) -> GroupTally:
    return GroupTally(
        destination="queue://orders", state=state, cause_group=cause_group, count=count
    )


def test_rows_by_destination_state_and_cause_group_whatever_becomes_of_them(
    store: Schedule,
) -> None:
    rows = [grouped_row(number, cause=f"a.{'BC'[number % 2]}: x") for number in range(1, 9)]
    take(store, *rows, taken_row(9))
    store.change(RowFilter(cause_group="a.B: x"), row_changes.hold(5, "ann"))
    store.change(RowFilter(ids=(1,)), row_changes.cancel(5, "ann", ".final"))
    with store.transaction() as tx:
        tx.park([3], "no route")
        tx.remove([5])
    finish(store, send(store, 7))
    found = Counter(
        (row.destination, row.state, row.cause_group) for row in store.list_rows(ALL, 100)
    )
    told = store.group_tallies()
    assert {(one.destination, one.state, one.cause_group): one.count for one in told} == found
    assert len(told) == len(found)
    plain = Counter[tuple[str, RowState]]()
    for (destination, state, _), count in found.items():
        plain[destination, state] += count
    assert {(one.destination, one.state): one.count for one in store.tallies()} == plain
    for group in ("a.B: x", "a.C: x", "", "none"):
        chosen = RowFilter(cause_group=group)
        assert store.count_rows(chosen) == len(store.list_rows(chosen, 100))


def test_more_groups_than_are_remembered_count_as_more(
    store: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_counts, "GROUPS_MAX", 3)
    monkeypatch.setitem(postgres_counts.ROOM, "groups_max", 3)
    for at_ms in range(5):
        record(store, died(at_ms, cause=f"a.{'ABCDE'[at_ms]}: x"))
    record(store, died(7, cause="a.A: x"), died(8, cause="a.Z: x"))
    groups = {group.cause_group: group.total for group in store.failure_groups(0, 10)}
    assert groups == {"a.A: x": 2, "a.B: x": 1, "a.C: x": 1, MORE: 3}
    assert {key.cause_group: count for key, count in counts(store).items()} == groups


# Rows.


def varied_rows(count: int) -> list[TakenRow]:
    causes = ["a.Refused: order 7", "b.Late: 2", None]
    return [
        grouped_row(
            number,
            state=[RowState.WAITING, RowState.WAITING, RowState.HELD, RowState.PARKED][number % 4],
            destination=f"queue://{number % 3}",
            source=f"queue://DLQ.{number % 2}",
            cause=causes[number * 7 // 5 % 3],
            redelivery_count=number % 5,
            due_at_ms=100 + number * 37 % 20,
            received_at_ms=number * 10,
        )
        for number in range(1, count + 1)
    ]


FILTERS = [
    ALL,
    RowFilter(state=RowState.WAITING),
    RowFilter(state=RowState.HELD),
    RowFilter(destination="queue://1"),
    RowFilter(destination="queue://1", cause_group="b.Late: *"),
    RowFilter(cause_group="a.Refused: order *"),
    RowFilter(cause_group="none"),
    RowFilter(cause_contains="order"),
    RowFilter(destination="queue://2", count_at_least=2, received_before_ms=300),
    RowFilter(state=RowState.PARKED, source="queue://DLQ.1", received_from_ms=70),
    RowFilter(due_before_ms=110, redelivery_count=3),
    RowFilter(ids=(3, 5, 8, 900)),
    RowFilter(redelivery_id="test-000000000009"),
]


def look_at(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set how many rows SQLite looks at in one step."""
    monkeypatch.setattr(sqlite_rows, "LOOKED_AT", rows)
    monkeypatch.setattr(sqlite_pages, "LOOKED_AT", rows)
    monkeypatch.setattr(sqlite_pages, "LOOKED_AT_BY_DUE", rows)


@pytest.mark.parametrize("looked_at", [3, 20_000])
@pytest.mark.parametrize("order", list(RowOrder))
def test_pages_in_each_order_hold_all_rows_of_a_filter_once(
    store: Schedule, order: RowOrder, looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at(looked_at, monkeypatch)
    take(store, *varied_rows(40))
    cycle = begin(store, [grouped_row(41, destination="queue://1", due_at_ms=0)])
    for row_filter in FILTERS:
        rows = store.list_rows(row_filter, 100)
        if order is RowOrder.NEWEST:
            rows.sort(key=lambda row: -row.id)
        else:
            rows.sort(key=lambda row: (row.due_at_ms, row.id))
        listed: list[RowView] = []
        after: RowKey | None = None
        for _ in range(50):
            page = store.page_rows(row_filter, order, 4, after)
            assert len(page.rows) <= 4
            listed += page.rows
            after = page.next_after
            if after is None:
                break
        assert (row_filter, [row.id for row in listed]) == (row_filter, [row.id for row in rows])
        assert listed == rows
    finish(store, cycle)
    first = store.page_rows(RowFilter(destination="queue://1"), RowOrder.DUE, 1).rows
    assert [row.id for row in first] == [41]


def test_a_page_looks_at_a_bounded_number_of_rows(
    store: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(store, UnsyncedStore):
        pytest.skip("its bound is a constant of the SQLite store")
    look_at(10, monkeypatch)
    take(store, *(grouped_row(number, due_at_ms=number) for number in range(1, 41)))
    for order, key in ((RowOrder.NEWEST, RowKey(0, 31)), (RowOrder.DUE, RowKey(10, 10))):
        page = store.page_rows(RowFilter(cause_contains="nothing"), order, 5)
        assert (page.rows, page.next_after) == ([], key)


def test_a_page_shows_which_rows_are_in_flight(store: Schedule) -> None:
    take(store, grouped_row(1), grouped_row(2))
    send(store, 2)
    rows = store.page_rows(ALL, RowOrder.NEWEST, 5).rows
    assert [(row.id, row.in_flight) for row in rows] == [(2, True), (1, False)]


def test_waiting_rows_that_are_due_in_ranges(store: Schedule) -> None:
    dues = [10, 19, 20, 35, 90]
    take(store, *(grouped_row(number, due_at_ms=due) for number, due in enumerate(dues, 1)))
    take(store, grouped_row(8, due_at_ms=15, state=RowState.HELD))
    begin(store, [grouped_row(9, due_at_ms=15)])
    assert store.due_counts([10, 20, 30, 40]) == [2, 1, 1]
    assert store.due_counts([10]) == []


def test_what_gates_let_wait_by_destination_and_gate(store: Schedule) -> None:
    assert store.gate_tallies(0) == []
    take(store, *(grouped_row(number) for number in range(1, 6)))
    take(store, grouped_row(6, destination="queue://b"), grouped_row(7))
    with store.transaction() as tx:
        tx.postpone([1, 2], 9_000, "full", "pace")
        tx.postpone([3], 9_500, "full", "pace")
        tx.postpone([4, 6], 8_000, "closed", "windows")
        tx.postpone([7], 8_000, "no route")
    found = [
        tuple(getattr(one, name) for name in one.__struct_fields__)
        for one in store.gate_tallies(7_999)
    ]
    assert found[0] == ("queue://orders", "pace", 3, 9_000, 9_500)
    assert sorted(found[1:]) == [
        ("queue://b", "windows", 1, 8_000, 8_000),
        ("queue://orders", "windows", 1, 8_000, 8_000),
    ]
    # What is due again is not let wait by them: they are asked anew.
    assert [one.count for one in store.gate_tallies(9_000)] == [1]
    # A person's word takes it out at once.
    store.change(ALL, row_changes.retry(7_000, "ann"))
    assert store.gate_tallies(0) == []


def test_what_a_person_sends_elsewhere_passes_gates_too(store: Schedule) -> None:
    take(store, grouped_row(1), grouped_row(2, is_final=True))
    operation = store.add_operation(new_operation())
    store.step_operation(
        operation.id,
        row_changes.redirect(5_000, "ann", "queue://b"),
        None,
        9,
        lambda one: one,
        False,
    )
    with store.transaction() as tx:
        assert [row.passes_gates for row in tx.claim_due(FAR_MS, 9)] == [True, True]


# Events in the order in which they became visible.


def held(at_ms: int) -> Held:
    return Held(at_ms=at_ms, redelivery_id="x", destination="", reason="")


def times_after(store: Ledger, position: str, max_events: int = 100) -> tuple[list[int], str]:
    tail = store.events_after(position, max_events)
    return [event.at_ms for event in tail.events], tail.position


def test_events_that_became_visible_after_a_position(store: Schedule) -> None:
    begun = store.tail()
    record(store, held(1), held(2))
    middle = store.tail()
    record(store, held(3))
    assert times_after(store, begun)[0] == [1, 2, 3]
    assert times_after(store, middle) == ([3], store.tail())
    assert times_after(store, store.tail()) == ([], store.tail())


def test_whole_blocks_one_at_least(store: Schedule) -> None:
    position = store.tail()
    record(store, held(1), held(2), held(3))
    record(store, held(4))
    record(store, held(5))
    times, position = times_after(store, position, 2)
    assert times == [1, 2, 3]
    times, position = times_after(store, position, 2)
    assert times == [4, 5]


@pytest.mark.parametrize("end", ["finish_cycle", "undo_cycle", "settle_in_doubt"])
def test_what_becomes_visible_later_still_comes_and_comes_once(store: Schedule, end: str) -> None:
    start = store.tail()
    cycle = begin(store, [grouped_row(1, received_at_ms=7)])
    record(store, held(1))
    times, position = times_after(store, start)
    assert times == [1]
    assert position == store.tail()
    record(store, held(2))
    with store.transaction() as tx:
        getattr(tx, end)(cycle)
        tx.record([held(3)])

    times, position = times_after(store, position)

    own = [] if end == "undo_cycle" else [7, 7]
    assert sorted(times) == sorted([*own, 2, 3])
    assert times_after(store, position)[0] == []
    assert sorted(times_after(store, start)[0]) == sorted([*own, 1, 2, 3])


def test_a_tail_in_the_middle_of_a_cycle_leaves_the_cycle_to_come(store: Schedule) -> None:
    cycle = begin(store, [grouped_row(1, received_at_ms=7)])
    position = store.tail()
    finish(store, cycle)
    assert times_after(store, position)[0] == [7, 7]


def test_what_was_forgotten_meanwhile_is_left_out(store: Schedule) -> None:
    position = store.tail()
    record(store, held(1))
    record(store, held(2))
    assert store.trim_history(1, 10) == 1
    assert times_after(store, position)[0] == [2]
    assert store.trim_history(0, 10) == 1
    assert times_after(store, position)[0] == []
    end = store.tail()
    record(store, held(3))
    assert times_after(store, end)[0] == [3]


# Operations.


def new_operation(**fields: Any) -> Operation:
    values: dict[str, Any] = {
        "id": 0,
        "action": Action.RETRY,
        "selection": Selection(),
        "actor": "console:anna",
        "reason": "the \ud800 fix is out",
        "created_at_ms": 5,
        "until_id": 0,
    }
    return Operation(**(values | fields))


def change(number: int, **fields: Any) -> Callable[[Operation], Operation]:
    return lambda operation: msgspec.structs.replace(operation, **fields)


def as_it_is(operation: Operation) -> Operation:
    return operation


def run(
    store: Ledger,
    operation: Operation,
    act: row_changes.RowChange,
    limit: int = 100,
    **options: Any,
) -> Operation:
    """Take steps until the last."""
    for _ in range(200):
        operation = store.step_operation(
            operation.id, act, options.get("select"), limit, as_it_is, True
        )
        if operation.after_id == operation.until_id:
            return operation
    raise AssertionError("it does not end")


def test_an_operation_is_kept_with_its_number_and_the_newest_row(
    store: Schedule, open_store: MakeStore
) -> None:
    take(store, grouped_row(4))
    selection = Selection(rows=RowFilter(ids=(4,), state=RowState.HELD), properties=(("a", "b"),))
    first = store.add_operation(new_operation(selection=selection))
    second = store.add_operation(new_operation())
    assert (first.until_id, first.selection) == (4, selection)
    assert second.id > first.id > 0
    assert open_store().operation(first.id) == first
    assert store.operation(first.id + 100) is None
    assert store.operations(10) == [second, first]
    assert store.operations(1) == [second]
    assert store.operations(10, before=second.id) == [first]


def test_an_operation_is_replaced_by_what_a_change_makes_of_it(store: Schedule) -> None:
    operation = store.add_operation(new_operation())
    paused = store.change_operation(
        operation.id, change(operation.id, state=OperationState.PAUSED, ended_at_ms=9)
    )
    assert store.operation(operation.id) == paused
    assert (paused.state, paused.ended_at_ms) == (OperationState.PAUSED, 9)
    with pytest.raises(KeyError):
        store.change_operation(operation.id + 100, as_it_is)
    with pytest.raises(KeyError):
        store.step_operation(
            operation.id + 100, row_changes.retry(5, "ann"), None, 1, as_it_is, True
        )


def test_a_change_that_fails_changes_nothing(store: Schedule) -> None:
    take(store, grouped_row(1, state=RowState.HELD))
    operation = store.add_operation(new_operation())

    def fail(_operation: Operation) -> Operation:
        raise RuntimeError("lost the lease")

    with pytest.raises(RuntimeError, match="lost"):
        store.change_operation(operation.id, fail)
    with pytest.raises(RuntimeError, match="lost"):
        store.step_operation(operation.id, row_changes.retry(5, "ann"), None, 9, fail, True)
    assert store.operation(operation.id) == operation
    assert [row.state for row in store.list_rows(ALL, 5)] == [RowState.HELD]
    assert store.members(operation.id, None, 5) == []
    assert store.history("test-000000000001") == [
        took(grouped_row(1)),
        scheduled(grouped_row(1)),
    ]


def test_a_step_changes_the_next_rows_with_events_members_and_progress(
    store: Schedule,
) -> None:
    take(store, *(grouped_row(number, due_at_ms=5_000) for number in range(1, 8)))
    operation = store.add_operation(new_operation())
    take(store, grouped_row(8, due_at_ms=5_000))
    seen: list[Operation] = []

    def progress(after: Operation) -> Operation:
        seen.append(after)
        return msgspec.structs.replace(after, not_before_ms=77)

    act = row_changes.retry(1_000, "ann")
    after = store.step_operation(operation.id, act, None, 3, progress, True)
    assert (after.after_id, after.matched, after.changed, after.not_before_ms) == (3, 3, 3, 77)
    assert [msgspec.structs.replace(one, not_before_ms=77) for one in seen] == [after]
    assert [row.due_at_ms for row in store.list_rows(ALL, 9)] == [1_000] * 3 + [5_000] * 5
    assert store.history("test-000000000002")[-1].at_ms == 1_000
    assert store.members(operation.id, None, 9) == [
        Member(
            redelivery_id=f"test-{number:012d}",
            destination="queue://orders",
            changed_at_ms=1_000,
        )
        for number in (1, 2, 3)
    ]
    assert store.member_counts(operation.id) == {None: 3}
    last = run(store, operation, act, 3)
    assert (last.after_id, last.matched, last.changed) == (7, 7, 7)
    assert store.list_rows(RowFilter(ids=(8,)), 1)[0].due_at_ms == 5_000
    assert kinds(store)[CountKind.DIED] == 8


@pytest.mark.parametrize("state", [one for one in OperationState if one != "running"])
def test_nothing_is_done_of_an_operation_that_is_not_running(
    store: Schedule, state: OperationState
) -> None:
    take(store, grouped_row(1, state=RowState.HELD))
    operation = store.add_operation(new_operation(state=state))
    after = store.step_operation(operation.id, row_changes.retry(5, "ann"), None, 9, as_it_is, True)
    assert after == operation
    assert store.list_rows(ALL, 5)[0].state is RowState.HELD


def test_in_flight_rows_are_left_as_they_are(store: Schedule) -> None:
    take(store, *(grouped_row(number) for number in (1, 2, 3)))
    cycle = send(store, 2)
    operation = run(store, store.add_operation(new_operation()), row_changes.hold(5, "ann"))
    assert (operation.matched, operation.changed) == (3, 2)
    finish(store, cycle, "undo_cycle")
    assert [row.state for row in store.list_rows(ALL, 5)] == [
        RowState.HELD,
        RowState.WAITING,
        RowState.HELD,
    ]


@pytest.mark.parametrize("looked_at", [4, 20_000])
@pytest.mark.parametrize("row_filter", FILTERS)
def test_an_operation_is_about_the_rows_that_its_filter_hits(
    store: Schedule,
    row_filter: RowFilter,
    looked_at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_at(looked_at, monkeypatch)
    take(store, *varied_rows(40))
    hit = {row.id for row in store.list_rows(row_filter, 100)}
    before = {row.id: row for row in store.list_rows(ALL, 100)}
    operation = store.add_operation(new_operation(selection=Selection(rows=row_filter)))
    operation = run(store, operation, row_changes.redirect(50, "ann", "queue://new"), 7)
    assert (operation.matched, operation.changed) == (len(hit), len(hit))
    for row in store.list_rows(ALL, 100):
        changed = row.destination == "queue://new"
        assert changed == (row.id in hit), row
        assert changed or row == before[row.id]


def test_an_operation_selects_rows_by_row_and_message(store: Schedule) -> None:
    rows = [grouped_row(n, message=b"red" if n % 3 else b"blue" * 2_000) for n in range(1, 31)]
    take(store, *rows)
    cycle = begin(store, [grouped_row(99, message=b"blue")])
    looked_at: list[int] = []

    def is_blue(row: RowView, message: bytes) -> bool:
        looked_at.append(row.id)
        return message.startswith(b"blue") and row.size_bytes == len(message)

    operation = store.add_operation(new_operation())
    after = store.step_operation(
        operation.id, row_changes.hold(5, "ann"), is_blue, 4, as_it_is, False
    )
    assert (after.after_id, after.matched, after.changed) == (12, 4, 4)
    assert looked_at[:12] == list(range(1, 13))
    assert 99 not in looked_at
    after = run(store, operation, row_changes.hold(5, "ann"), 4, select=is_blue)
    assert (after.matched, after.changed) == (10, 10)
    finish(store, cycle)
    held_ids = [row.id for row in store.list_rows(RowFilter(state=RowState.HELD), 99)]
    assert held_ids == [row.id for row in rows if row.id % 3 == 0]


def test_a_step_that_reads_large_messages_is_bounded(
    store: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(store, UnsyncedStore):
        pytest.skip("its bound is a constant of the SQLite store")
    monkeypatch.setattr(sqlite_operations, "READ_AT_ONCE_BYTES", 1_000)
    take(store, *(grouped_row(number, message=bytes(400)) for number in range(1, 10)))
    operation = store.add_operation(new_operation())
    after = store.step_operation(
        operation.id, row_changes.hold(5, "ann"), lambda _row, _message: False, 9, as_it_is, False
    )
    assert (after.after_id, after.matched) == (3, 0)


def test_rows_that_an_action_removes_are_gone_with_their_messages(store: Schedule) -> None:
    take(store, *(grouped_row(number, state=RowState.PARKED) for number in (1, 2, 3)))
    selection = Selection(rows=RowFilter(ids=(1, 3)))
    operation = store.add_operation(new_operation(action=Action.DISCARD, selection=selection))
    after = store.step_operation(
        operation.id, row_changes.discard(5, "ann"), None, 9, as_it_is, False
    )
    assert (after.matched, after.changed) == (2, 2)
    assert [row.id for row in store.list_rows(ALL, 9)] == [2]
    assert store.message(1) is None
    assert [tally.count for tally in store.tallies()] == [1]
    assert store.members(operation.id, None, 9) == []
    assert kinds(store)[CountKind.DISCARDED] == 2
    assert isinstance(store.history("test-000000000001")[-1], Discarded)


def edit(store: Schedule, number: int) -> None:
    row = store.list_rows(RowFilter(ids=(number,)), 1)[0]
    message = store.message(number)
    event = Edited(
        at_ms=7, id=number, redelivery_id=row.redelivery_id, destination=row.destination, actor="b"
    )
    assert message is not None
    assert store.replace_message(number, message, message + b"!", event, "b")


@pytest.mark.parametrize(
    "act",
    [
        row_changes.retry(50, "ann"),
        row_changes.redirect(50, "ann", "queue://new"),
        row_changes.cancel(50, "ann", ".x"),
        row_changes.discard(50, "ann"),
        row_changes.hold(50, "ann"),
    ],
)
@pytest.mark.parametrize("is_selected", [False, True])
def test_rows_that_people_changed_since_are_left_to_them(
    store: Schedule, act: row_changes.RowChange, is_selected: bool
) -> None:
    """Held stays held, whatever runs; and what was done before is no reason to leave a row."""
    take(store, *(grouped_row(number, due_at_ms=5_000) for number in range(1, 11)))
    store.change(RowFilter(ids=(1, 2, 3)), row_changes.hold(4, "ben"))
    store.change(RowFilter(ids=(2, 3)), row_changes.release(4, "ben"))
    operation = store.add_operation(new_operation(since=store.event_mark()))
    select = (lambda _row, _message: True) if is_selected else None
    first = store.step_operation(operation.id, act, select, 3, as_it_is, True)
    assert (first.after_id, first.matched, first.overtaken) == (3, 3, 0)

    store.change(RowFilter(ids=(4, 5)), row_changes.hold(6, "ben"))
    store.change(RowFilter(ids=(5,)), row_changes.release(6, "ben"))
    edit(store, 6)
    store.change(RowFilter(ids=(7,)), row_changes.retry(6, "ben"))
    redirect = store.add_operation(new_operation(selection=Selection(rows=RowFilter(ids=(8,)))))
    run(store, redirect, row_changes.redirect(6, "ben", "queue://repair"))
    cycle = send(store, 10)
    others = {row.id: row for row in store.list_rows(RowFilter(ids=(4, 5, 6, 7, 8, 10)), 9)}

    done = run(store, first, act, 2, select=select)
    assert (done.matched, done.overtaken) == (10, 5)
    assert done.changed == first.changed + 1
    assert {row.id: row for row in store.list_rows(RowFilter(ids=tuple(others)), 9)} == others
    finish(store, cycle)


def test_of_two_operations_the_one_that_began_last_has_the_last_word(store: Schedule) -> None:
    take(store, *(grouped_row(number, due_at_ms=5_000) for number in range(1, 5)))
    first = store.add_operation(new_operation(since=store.event_mark()))
    beside = ((Action.RETRY, "ann"),)
    last = store.add_operation(
        new_operation(action=Action.HOLD, since=store.event_mark(), beside=beside)
    )
    run_two = store.step_operation(first.id, row_changes.retry(50, "ann"), None, 2, as_it_is, True)
    held = run(store, last, row_changes.hold(60, "ben"))
    done = run(store, run_two, row_changes.retry(70, "ann"))
    assert (held.changed, held.overtaken, done.changed, done.overtaken) == (4, 0, 2, 2)
    assert {row.state for row in store.list_rows(ALL, 9)} == {RowState.HELD}


def test_only_the_row_of_a_message_that_was_changed_is_left(store: Schedule) -> None:
    take(store, *(grouped_row(number, redelivery_id="twice") for number in (1, 2)))
    operation = store.add_operation(new_operation(since=store.event_mark()))
    store.change(RowFilter(ids=(1,)), row_changes.hold(6, "ben"))
    done = run(store, operation, row_changes.retry(50, "ann"))
    assert (done.changed, done.overtaken) == (1, 1)
    assert [row.state for row in store.list_rows(ALL, 9)] == [RowState.HELD, RowState.WAITING]


# Members.


def followed(store: Schedule, count: int = 3) -> Operation:
    """Return an operation that has changed this many rows at time 100."""
    take(store, *(grouped_row(number, due_at_ms=5_000) for number in range(1, count + 1)))
    operation = store.add_operation(new_operation())
    return run(store, operation, row_changes.retry(100, "ann"))


def update(number: int, at_ms: int, *, has_returned: bool = False) -> MemberUpdate:
    return MemberUpdate(f"test-{number:012d}", at_ms, has_returned)


def seen_of(store: Schedule, operation: Operation) -> tuple[int, int]:
    """Return how many members were sent again, and how many came back."""
    now = store.operation(operation.id)
    assert now is not None
    return now.resent, now.came_back


def outcomes(store: Ledger, operation: Operation) -> list[OutcomeKind | None]:
    return [member.outcome for member in store.members(operation.id, None, 100)]


def test_what_is_seen_of_members_is_noted_with_how_far_was_read(
    store: Schedule, open_store: MakeStore
) -> None:
    operation = followed(store)
    assert store.followed_until() is None
    store.update_members([update(1, 150), update(2, 160), update(99, 170)], "x/1")
    assert open_store().followed_until() == "x/1"
    assert outcomes(store, operation) == [OutcomeKind.RESENT, OutcomeKind.RESENT, None]
    store.update_members([update(2, 200, has_returned=True)], "x/2")
    assert outcomes(store, operation) == [OutcomeKind.RESENT, OutcomeKind.CAME_BACK, None]
    first, second, third = store.members(operation.id, None, 9)
    assert (first.resent_at_ms, second.resent_at_ms, third.resent_at_ms) == (150, 160, None)
    assert second.evidence
    assert seen_of(store, operation) == (2, 1)
    assert store.followed_until() == "x/2"


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_a_message_that_waits_twice_is_waited_for_once(store: Schedule, limit: int) -> None:
    """One that died for several subscribers of a topic has several rows and one redelivery id."""
    name = "test-000000000001"
    take(store, *(grouped_row(number, redelivery_id=name) for number in range(1, 4)))
    operation = run(
        store, store.add_operation(new_operation()), row_changes.retry(9_000, "ann"), limit
    )
    assert (operation.changed, operation.resent) == (3, 2)
    store.update_members([update(1, 9_050)], "a")
    assert seen_of(store, operation) == (3, 0)


@pytest.mark.parametrize("is_one_read", [True, False])
def test_what_was_sent_elsewhere_has_its_outcome(store: Schedule, is_one_read: bool) -> None:
    """Another person's redirect, or cancel, came between; what becomes of it there is theirs."""
    operation = followed(store, 1)
    seen = [
        update(1, 150)._replace(destination="queue://\udcff\0"),
        update(1, 200, has_returned=True),
    ]
    for number, one in enumerate([seen] if is_one_read else [[sight] for sight in seen]):
        store.update_members(one, str(number))
    assert outcomes(store, operation) == [OutcomeKind.UNKNOWN]
    assert "changed by another action" in store.members(operation.id, None, 1)[0].evidence
    assert seen_of(store, operation) == (1, 0)


def test_only_what_lies_after_the_change_counts_and_counts_once(store: Schedule) -> None:
    operation = followed(store, 1)
    store.update_members([update(1, 50), update(1, 60, has_returned=True)], "a")
    assert outcomes(store, operation) == [None]
    for _ in range(2):
        store.update_members([update(1, 150)], "b")
    for _ in range(2):
        store.update_members([update(1, 200, has_returned=True), update(1, 300)], "c")
    assert seen_of(store, operation) == (1, 1)
    assert outcomes(store, operation) == [OutcomeKind.CAME_BACK]


def test_a_death_proves_a_re_send_that_was_not_recorded(store: Schedule) -> None:
    operation = followed(store, 1)
    store.update_members([update(1, 200, has_returned=True)], "a")
    assert seen_of(store, operation) == (1, 1)
    assert outcomes(store, operation) == [OutcomeKind.CAME_BACK]


def test_members_that_are_due_for_a_verdict_the_oldest_first(store: Schedule) -> None:
    operation = followed(store, 5)
    times = {1: 300, 2: 150, 3: 200, 4: 160}
    store.update_members([update(number, at_ms) for number, at_ms in times.items()], "a")
    store.update_members([update(4, 170, has_returned=True)], "b")
    due = store.due_members(operation.id, 300, 9)
    assert [member.redelivery_id[-1] for member in due] == ["2", "3"]
    assert len(store.due_members(operation.id, 301, 9)) == 3
    assert len(store.due_members(operation.id, 301, 2)) == 2

    store.settle_members(
        operation.id,
        [
            MemberOutcome("test-000000000002", OutcomeKind.CONSUMED, "its queue \ud800 was empty"),
            MemberOutcome("test-000000000003", OutcomeKind.UNKNOWN, "nobody looked"),
        ],
    )

    assert store.member_counts(operation.id) == {
        None: 1,
        OutcomeKind.RESENT: 1,
        OutcomeKind.CONSUMED: 1,
        OutcomeKind.UNKNOWN: 1,
        OutcomeKind.CAME_BACK: 1,
    }
    (consumed,) = store.members(operation.id, OutcomeKind.CONSUMED, 9)
    assert (consumed.redelivery_id, consumed.resent_at_ms) == ("test-000000000002", 150)
    assert consumed.evidence.startswith("its queue ")
    store.update_members([update(2, 400, has_returned=True)], "c")
    assert store.members(operation.id, OutcomeKind.CONSUMED, 9) == [consumed]


def test_members_come_by_redelivery_id(store: Schedule) -> None:
    operation = followed(store, 7)
    store.update_members([update(number, 150) for number in (2, 4, 6)], "a")
    pages, after = [], ""
    while page := store.members(operation.id, None, 3, after):
        pages.append([int(member.redelivery_id[-2:]) for member in page])
        after = page[-1].redelivery_id
    assert pages == [[1, 2, 3], [4, 5, 6], [7]]
    found = store.members(operation.id, OutcomeKind.RESENT, 2, "test-000000000002")
    assert [int(member.redelivery_id[-2:]) for member in found] == [4, 6]


def test_open_operations_run_or_have_members_without_an_outcome(store: Schedule) -> None:
    operation = followed(store, 2)
    running = store.add_operation(new_operation())
    paused = store.add_operation(new_operation(state=OperationState.PAUSED))

    def numbers() -> set[int]:
        return {one.id for one in store.open_operations()}

    assert numbers() == {operation.id, running.id}
    store.change_operation(operation.id, change(0, state=OperationState.DONE, ended_at_ms=9))
    assert numbers() == {operation.id, running.id}
    store.update_members([update(1, 150), update(2, 150)], "a")
    assert numbers() == {operation.id, running.id}
    verdict = [MemberOutcome(f"test-{n:012d}", OutcomeKind.UNKNOWN, "x") for n in (1, 2)]
    store.settle_members(operation.id, verdict[:1])
    assert numbers() == {operation.id, running.id}
    store.settle_members(operation.id, verdict)
    assert numbers() == {running.id}
    assert paused.id not in numbers()


def test_an_outcome_that_is_known_stays(store: Schedule) -> None:
    operation = followed(store, 1)
    store.update_members([update(1, 150)], "a")
    name = f"test-{1:012d}"
    for outcome in (OutcomeKind.CONSUMED, OutcomeKind.UNKNOWN):
        store.settle_members(operation.id, [MemberOutcome(name, outcome, outcome.value)])
    [member] = store.members(operation.id, None, 10)
    assert (member.outcome, member.evidence) == (OutcomeKind.CONSUMED, "consumed")


# Editing.


def edited(row_id: int, at_ms: int = 700) -> Edited:
    return Edited(
        at_ms=at_ms,
        id=row_id,
        redelivery_id=f"test-{row_id:012d}",
        destination="queue://orders",
        actor="ann",
    )


def test_a_row_gets_other_bytes_and_the_old_ones_become_an_original(
    store: Schedule, open_store: MakeStore
) -> None:
    old, new, third = b"x" * 9_000, b"changed", b"y" * 50_000
    take(store, grouped_row(1, message=old))
    assert store.replace_message(1, old, new, edited(1), "ann")
    assert store.replace_message(1, new, third, edited(1, 800), "bob")
    assert store.message(1) == third
    assert store.list_rows(ALL, 1)[0].size_bytes == len(third)
    with store.transaction() as tx:
        assert [row.message for row in tx.claim_due(FAR_MS, 5)] == [third]
    first, second = open_store().originals("test-000000000001")
    assert (first.message, first.actor, first.edited_at_ms) == (old, "ann", 700)
    assert (second.message, second.actor, second.row_id) == (new, "bob", 1)
    assert second.encoding == "amqp/1.0"
    assert [event.at_ms for event in store.history("test-000000000001")][-2:] == [700, 800]
    assert store.originals("test-000000000002") == []


def test_nothing_is_replaced_of_a_row_that_is_gone_in_flight_or_changed(
    store: Schedule,
) -> None:
    take(store, grouped_row(1, message=b"12345"), grouped_row(2, message=b"12345"))
    send(store, 2)
    for row_id, old in ((9, b"12345"), (2, b"12345"), (1, b"54321")):
        assert not store.replace_message(row_id, old, b"no", edited(row_id), "ann")
    assert store.message(1) == store.message(2) == b"12345"
    assert store.originals("test-000000000001") == []
    assert len(store.history("test-000000000001")) == 2


def test_the_outcome_of_a_resend_is_recorded_once(store: Schedule) -> None:
    """Whoever proves it; and not after the message died again."""

    def proved(at_ms: int, redelivery_count: int = 1) -> OutcomeProved:
        about: dict[str, Any] = {"at_ms": at_ms, "redelivery_id": "m-1", "destination": "queue://a"}
        return OutcomeProved(
            **about, outcome="consumed", redelivery_count=redelivery_count, lateness_ms=0
        )

    def sent(at_ms: int, redelivery_count: int) -> Resent:
        about: dict[str, Any] = {"at_ms": at_ms, "redelivery_id": "m-1", "destination": "queue://a"}
        return Resent(**about, redelivery_count=redelivery_count, lateness_ms=0)

    back = Returned(at_ms=3, redelivery_id="m-1", source="queue://DLQ", redelivery_count=1)
    record(store, died(1), sent(2, 1))
    store.record_outcomes([proved(9, 2)])
    record(store, back)
    store.record_outcomes([proved(4)])
    record(store, sent(5, 2))
    store.record_outcomes([proved(7, 2)])
    store.record_outcomes([proved(8, 2)])
    history = [event for event in store.history("m-1") if isinstance(event, OutcomeProved)]
    assert [event.at_ms for event in history] == [7]


# What was seen of destinations.


def observed(at_ms: int, destination: str = "queue://a", depth: int | None = 0) -> Observation:
    return Observation(destination=destination, at_ms=at_ms, depth=depth, acknowledged=5)


def test_of_each_destination_one_a_minute_is_kept_the_latest(store: Schedule) -> None:
    store.add_observations([observed(60_000, depth=1), observed(119_999, depth=2)])
    store.add_observations([observed(90_000, depth=3), observed(60_500, "queue://b")])
    store.add_observations([observed(120_000, depth=4), observed(30_000, depth=5)])
    found = store.observations("queue://a", 0, 10**9)
    assert [(one.at_ms, one.depth) for one in found] == [
        (30_000, 5),
        (119_999, 2),
        (120_000, 4),
    ]
    assert found[1] == observed(119_999, depth=2)
    assert [one.at_ms for one in store.observations("queue://a", 119_999, 120_000)] == [119_999]
    assert store.observations("queue://none", 0, 10**9) == []


# Retention.

HOUR_MS = 3_600_000


def forget(store: Ledger, *bounds: int) -> None:
    """Forget what is older, step by step."""
    while store.forget_ledger(*bounds):
        pass


def test_older_counts_are_merged_to_hours(store: Schedule) -> None:
    record(store, *(died(minute * 60_000, cause="a.B: 1") for minute in range(0, 180, 5)))
    whole = sum(counts(store).values())
    forget(store, 0, 2 * HOUR_MS, 7)
    found = counts(store)
    assert sum(found.values()) == whole == 36
    hours = {key.bucket_ms: count for key, count in found.items() if key.bucket_ms < 2 * HOUR_MS}
    assert hours == {0: 12, HOUR_MS: 12}
    assert len(found) == 2 + 12


def test_what_is_older_than_a_time_is_removed(store: Schedule) -> None:
    before_ms = 10 * HOUR_MS
    for at_ms in (HOUR_MS, 11 * HOUR_MS):
        record(store, died(at_ms, cause=f"a.{'AB'[at_ms > before_ms]}: x"))
        record(store, Discarded(at_ms=at_ms, destination="queue://gone", rule="r"))
        store.add_observations([observed(at_ms, depth=n) for n in (1, 2)])
    take(store, *(grouped_row(n, received_at_ms=before_ms + 5) for n in range(1, 10)))
    for row_id, at_ms in ((1, HOUR_MS), (2, 11 * HOUR_MS)):
        kept = store.message(row_id)
        assert kept is not None
        assert store.replace_message(row_id, kept, b"x", edited(row_id, at_ms), "ann")
    old = run(store, store.add_operation(new_operation()), row_changes.retry(HOUR_MS, "ann"))
    late = run(store, store.add_operation(new_operation()), row_changes.retry(HOUR_MS, "ann"))
    for operation, ended_at_ms in ((old, HOUR_MS), (late, 11 * HOUR_MS)):
        done = {"state": OperationState.DONE, "ended_at_ms": ended_at_ms}
        store.change_operation(operation.id, change(0, **done))

    steps = 0
    while store.forget_ledger(before_ms, 0, 2):
        steps += 1
    assert 4 < steps < 20

    assert {group.cause_group for group in store.failure_groups(0, 9)} == {
        "a.B: x",
        "a.Refused: order *",
    }
    assert all(key.bucket_ms >= before_ms for key in counts(store))
    assert kinds(store) == {CountKind.DIED: 10, CountKind.DISCARDED: 1}
    assert [one.at_ms for one in store.observations("queue://a", 0, 10**9)] == [11 * HOUR_MS]
    assert store.originals("test-000000000001") == []
    assert len(store.originals("test-000000000002")) == 1
    assert store.operation(old.id) is None
    assert store.members(old.id, None, 9) == []
    assert len(store.members(late.id, None, 99)) == 9
    assert [one.id for one in store.operations(9)] == [late.id]


def note(text: str, **fields: Any) -> GroupNote:
    plain = GroupNote(
        destination="queue://a", cause_group="a.B: x", at_ms=5, author="ann", text=text
    )
    return msgspec.structs.replace(plain, **fields)


def test_notes_on_a_group_the_latest_first_and_of_each_group_the_latest(
    open_store: MakeStore,
) -> None:
    first, other = note("1"), note("3", destination="queue://b")
    second = note("2", author="bob", owner="carl", snoozed_until_ms=10**13, muted_deaths=7)
    second = msgspec.structs.replace(second, merged_into="a.D: x")
    elsewhere = note("4", cause_group="a.C: x")
    store = open_store()
    for one in (first, second, other, elsewhere):
        store.add_note(one)
    again = open_store()
    assert again.notes("queue://a", "a.B: x") == [second, first]
    assert again.notes("queue://none", "a.B: x") == []
    assert again.latest_notes(9) == [elsewhere, other, second]
    assert again.latest_notes(2) == [elsewhere, other]


def test_of_each_group_the_latest_notes_are_kept(store: Schedule) -> None:
    store.add_note(note("other", cause_group="a.C: x"))
    for number in range(LATEST_KEPT + 3):
        store.add_note(note(str(number)))
    kept = [int(one.text) for one in store.notes("queue://a", "a.B: x")]
    assert kept == list(range(LATEST_KEPT + 2, 2, -1))
    assert len(store.notes("queue://a", "a.C: x")) == 1


def test_older_counts_are_merged_to_five_minutes_and_the_last_ones_stay_by_the_minute(
    store: Schedule,
) -> None:
    begin_ms = 100 * HOUR_MS
    record(store, *(died(begin_ms + minute * BUCKET_MS) for minute in range(10)))
    forget(store, 0, 0, 2, begin_ms + 5 * BUCKET_MS)
    found = {key.bucket_ms - begin_ms: count for key, count in counts(store).items()}
    assert found == {0: 5} | {minute * BUCKET_MS: 1 for minute in range(5, 10)}


def test_what_was_seen_lately_is_found_for_all_destinations(store: Schedule) -> None:
    def seen(name: str, at_ms: int) -> Observation:
        return Observation(destination=f"queue://{name}", at_ms=at_ms, depth=None, unknown=3)

    old, early, late = seen("a", 1), seen("b", 10 * BUCKET_MS + 1), seen("a", 10 * BUCKET_MS + 2)
    store.add_observations([late, early, old])
    assert store.recent_observations(10 * BUCKET_MS) == [early, late]
    assert store.recent_observations(10 * BUCKET_MS + 2) == [late]


def service_mark(at_ms: int, instance: str = "a", **fields: Any) -> ServiceMark:
    plain = ServiceMark(
        kind=ServiceMarkKind.START, rules_digest="one", at_ms=at_ms, instance=instance
    )
    return msgspec.structs.replace(plain, **fields)


def test_what_services_did_is_kept_the_latest_first(open_store: MakeStore) -> None:
    began = service_mark(1)
    again = service_mark(3, rules_digest="two")
    changed = service_mark(4, kind=ServiceMarkKind.RULES)
    store = open_store()
    for one in (began, again, changed):
        store.add_service_mark(one)
    reopened = open_store()
    assert reopened.service_marks(9) == [changed, again, began]
    assert reopened.service_marks(2) == [changed, again]
    assert reopened.latest_starts() == [again]


def test_a_value_is_swapped_only_for_the_expected_one(open_store: MakeStore) -> None:
    store = open_store()
    assert store.read_value("a") is None
    assert store.swap_value("a", b"", b"1")
    assert not store.swap_value("a", b"", b"2")
    assert not store.swap_value("a", b"2", b"3")
    assert store.swap_value("a", b"1", b"2")
    assert store.swap_value("b", b"", b"\x00\xff")
    reopened = open_store()
    assert [reopened.read_value(name) for name in ("a", "b", "c")] == [b"2", b"\x00\xff", None]


def test_values_are_found_by_a_prefix_and_removed_only_as_expected(open_store: MakeStore) -> None:
    store = open_store()
    for name in ("hook:a", "hook:b", "Hook:c", "hooks", "a hook:"):
        assert store.swap_value(name, b"", b"1")
    assert not store.swap_value("hook:a", b"2", b"")
    assert store.swap_value("hook:b", b"1", b"")
    assert not store.swap_value("hook:b", b"1", b"")
    reopened = open_store()
    assert reopened.value_names("hook:") == ["hook:a"]
    assert reopened.read_value("hook:b") is None
    assert reopened.swap_value("hook:b", b"", b"3")


def test_the_latest_service_marks_are_kept_and_old_ones_forgotten_but_for_the_last(
    store: Schedule,
) -> None:
    name = store.state().instance
    for number in range(MARKS_KEPT + 3):
        store.add_service_mark(service_mark(number, name))
    kept = [one.at_ms for one in store.service_marks(999)]
    assert kept == list(range(MARKS_KEPT + 2, 2, -1))
    forget(store, 10**6, 0, 7)
    assert [one.at_ms for one in store.service_marks(999)] == [MARKS_KEPT + 2]


def marker(at_ms: int, destination: str = "queue://orders.>") -> Marker:
    return Marker(at_ms=at_ms, text=f"rollout {at_ms}", destination=destination, author="cli:ann")


def test_markers_are_kept_beside_service_marks_with_their_events(open_store: MakeStore) -> None:
    store = open_store()
    began = service_mark(1)
    store.add_service_mark(began)
    position = store.tail()
    early, late, everywhere = marker(2), marker(4), marker(3, "")
    for one in (early, everywhere, late):
        store.add_marker(one)
    reopened = open_store()
    assert reopened.markers(0, 9) == [late, everywhere, early]
    assert reopened.markers(3, 1) == [late]
    assert reopened.service_marks(9) == reopened.latest_starts() == [began]
    assert [*store.events_after(position, 9).events] == [
        Marked(at_ms=one.at_ms, destination=one.destination, actor=one.author, reason=one.text)
        for one in (early, everywhere, late)
    ]


def test_the_latest_markers_of_a_pattern_are_kept_and_old_ones_forgotten(store: Schedule) -> None:
    store.add_service_mark(service_mark(1, store.state().instance))
    store.add_marker(marker(1, "queue://pay"))
    for number in range(MARKS_KEPT + 3):
        store.add_marker(marker(number))
    kept = [one.at_ms for one in store.markers(0, 999)]
    assert kept == [*range(MARKS_KEPT + 2, 2, -1), 1]
    forget(store, MARKS_KEPT, 0, 7)
    assert [one.at_ms for one in store.markers(0, 999)] == [
        *range(MARKS_KEPT + 2, MARKS_KEPT - 1, -1)
    ]
    forget(store, 10**6, 0, 7)
    assert (store.markers(0, 999), len(store.service_marks(9))) == ([], 1)


def test_notes_are_kept_as_long_as_their_group(store: Schedule) -> None:
    record(store, died(HOUR_MS, cause="a.B: x"))
    for cause_group, at_ms in (("a.B: x", 5), ("gone", 5), ("late", 11 * HOUR_MS)):
        store.add_note(note("n", cause_group=cause_group, at_ms=at_ms))
    [group] = store.failure_groups(0, 9)
    kept = note("n", destination=group.destination, cause_group=group.cause_group)
    store.add_note(kept)
    forget(store, HOUR_MS, 0, 2)
    assert kept in store.latest_notes(9)
    assert store.notes("queue://a", "gone") == []
    assert len(store.notes("queue://a", "late")) == 1
    forget(store, 10 * HOUR_MS, 0, 2)
    assert [one.cause_group for one in store.latest_notes(9)] == ["late"]


@pytest.mark.parametrize("recall", [Recall.DISCARD, Recall.DROP, Recall.EXPORT])
def test_an_operation_is_kept_until_all_that_it_wants_discarded_is(
    store: Schedule, recall: Recall
) -> None:
    """Else what it exports would be discarded without a file, or stay for ever."""
    other, number = undoing(store), undoing(store)
    row = grouped_row(1, state=RowState.EXHAUSTED, final_queue="queue://DLQ")
    take(store, msgspec.structs.replace(row, recall=recall, recall_operation=number))
    end = {"state": OperationState.DONE, "ended_at_ms": 5}
    for one in (other, number):
        store.change_operation(one, lambda now: msgspec.structs.replace(now, **end))
    forget(store, 10**6, 0, 1)
    assert store.operation(other) is None
    assert store.operation(number) is not None
    with store.transaction() as tx:
        tx.remove([1])
    forget(store, 10**6, 0, 1)
    assert store.operation(number) is None


def test_an_operation_that_goes_on_is_kept(store: Schedule) -> None:
    operation = followed(store, 2)
    assert store.forget_ledger(10**12, 10**12, 100) > 0
    assert store.operation(operation.id) == operation
    assert len(store.members(operation.id, None, 9)) == 2


def test_texts_from_anyone_are_kept(store: Schedule) -> None:
    hostile = ["caf\u00e9 \ud800", "x" * 5_000, "'; DROP TABLE operation; --", "\u202e<script>"]
    chance = random.Random(5)
    for number, text in enumerate(hostile, 1):
        row = grouped_row(
            number, destination=f"queue://{text}", cause=text, redelivery_id=text[:200]
        )
        take(store, row)
    operation = run(
        store, store.add_operation(new_operation(actor=hostile[0])), row_changes.retry(5, "x")
    )
    assert operation.changed == len(hostile)
    assert len(store.members(operation.id, None, 9)) == len(hostile)
    assert sum(group.total for group in store.failure_groups(0, 9)) == len(hostile)
    for text in hostile:
        place = {"destination": f"queue://{text}", "cause_group": text}
        store.add_note(note(text, **place, author=text))
        assert len(store.notes(**place)) == 1
    for group, text in itertools.product(store.group_tallies(), hostile):
        assert group.count == 1
        store.add_observations([observed(chance.randrange(10**6), f"queue://{text}")])
    assert len(store.observations(f"queue://{hostile[0]}", 0, 10**7)) >= 1


def test_messages_are_found_by_the_id_that_consumers_saw(store: Schedule) -> None:
    odd = 'ID:"odd"\\caf\u00e9'
    take(store, grouped_row(1, message_id="ID:a"), grouped_row(2, message_id=odd))
    record(store, died(100, message_id="ID:a"), died(200, message_id="ID:b"))
    record(store, *(died(one, message_id=f"ID:{one}") for one in range(1_000, 1_400)))
    assert store.messages_called("ID:a", 9) == ["test-000000000001", "m-100"]
    assert store.messages_called("ID:a", 1) == ["test-000000000001"]
    assert store.messages_called(odd, 9) == ["test-000000000002"]
    assert store.messages_called("ID:b", 9) == ["m-200"]
    assert store.messages_called("ID:1000", 9) == ["m-1000"]
    assert store.messages_called("ID:", 9) == []


def test_messages_are_found_by_the_number_of_a_former_row(store: Schedule) -> None:
    record(store, *(died(one, message_id=f"ID:{one}", id=one) for one in (7, 70, 71)))
    assert store.messages_called("7", 9) == ["m-7"]
    assert store.messages_called("70", 9) == ["m-70"]
    assert store.messages_called("0", 9) == []
    assert store.messages_called("9" * 30, 9) == []


# What was discarded.


def undoing(store: Schedule) -> int:
    """Keep a discard that is being undone; returns its number."""
    operation = Operation(
        id=0,
        action=Action.DISCARD,
        selection=Selection(),
        actor="ann",
        reason="",
        created_at_ms=0,
        until_id=0,
        state=OperationState.UNDOING,
    )
    return store.add_operation(operation).id


def put_back(store: Schedule, number: int, limit: int = 100) -> int:
    def restored(row: RowView) -> AnyEvent:
        return row_changes.restored(row, 9_000, "ann")

    before = store.operation(number)
    assert before is not None
    return store.put_back(number, restored, limit, lambda now: now).restored - before.restored


def discard(store: Schedule, number: int, at_ms: int = 1_000, **conditions: Any) -> None:
    store.change(RowFilter(**conditions), row_changes.discard(at_ms, "ann", number))


def test_what_was_discarded_is_put_back_as_it_was(store: Schedule) -> None:
    take(
        store,
        grouped_row(1, due_at_ms=10**14),
        grouped_row(2, state=RowState.HELD),
        grouped_row(3, state=RowState.PARKED, message=b"large" * 5_000),
        grouped_row(4, state=RowState.EXHAUSTED, final_queue="queue://DLQ.exhausted"),
        grouped_row(5, is_final=True, due_at_ms=10**14, destination="queue://b"),
        grouped_row(6),
    )
    before, tallies = store.list_rows(ALL, 10), store.group_tallies()
    places, messages = store.exhausted_tallies(), [store.message(row.id) for row in before]
    number = undoing(store)
    discard(store, number, ids=(1, 2, 3, 4, 5))
    assert [row.id for row in store.list_rows(ALL, 10)] == [6]
    assert [store.message(row.id) for row in before[:5]] == [None] * 5
    assert store.exhausted_tallies() == []
    assert store.count_discarded(number) == 5

    assert [put_back(store, number, 3), put_back(store, number, 3), put_back(store, number)] == [
        *(3, 2, 0)
    ]
    assert store.list_rows(ALL, 10) == before
    assert [store.message(row.id) for row in before] == messages
    assert (store.group_tallies(), store.exhausted_tallies()) == (tallies, places)
    assert store.count_discarded(number) == 0
    kinds_of = [type(event).__name__ for event in store.history(before[0].redelivery_id)]
    assert kinds_of[-2:] == ["Discarded", "Restored"]
    with store.transaction() as tx:
        assert [row.id for row in tx.claim_due(FAR_MS, 10)] == [6]


def test_what_lies_in_a_queue_that_is_not_read_is_counted_as_what_went_there(
    store: Schedule,
) -> None:
    """Added at once or sent there by a cycle: rows, counts and groups are equal."""
    went = grouped_row(1, is_final=True, final_queue="queue://DLQ")
    take(store, went)
    finish(store, send(store, 1))
    [row] = store.list_rows(ALL, 10)
    lying = msgspec.structs.replace(
        went, id=2, state=RowState.EXHAUSTED, redelivery_id="in-place:ID:2"
    )
    with store.adding_lying() as add:
        add([lying], [took(lying)])
    found = store.list_rows(RowFilter(ids=(2,)), 10)
    same = {"id": 1, "redelivery_id": row.redelivery_id}
    assert [msgspec.structs.replace(one, **same) for one in found] == [row]
    assert [one.count for one in store.exhausted_tallies()] == [2]
    assert [(one.state, one.count) for one in store.group_tallies()] == [(RowState.EXHAUSTED, 2)]
    assert store.message(2) is None
    large = msgspec.structs.replace(lying, id=3, message=bytes(3 << 20))
    with store.adding_lying() as add:
        add([large], [])
    [found_large] = store.list_rows(RowFilter(ids=(3,)), 10)
    assert (found_large.size_bytes, store.message(3)) == (3 << 20, None)
    assert [one.id for one in store.lying(["in-place:ID:2"])] == [2, 3]
    assert len(store.history("in-place:ID:2")) == 1
    assert store.change(RowFilter(ids=(2, 3)), row_changes.miss(5, "queue://DLQ")) == 2
    assert [one.count for one in store.exhausted_tallies()] == [1]


def test_what_came_out_of_its_final_queue_to_be_discarded_is_to_return_there(
    store: Schedule,
) -> None:
    number = undoing(store)
    row = grouped_row(1, state=RowState.EXHAUSTED, final_queue="queue://DLQ.exhausted")
    take(store, msgspec.structs.replace(row, recall=Recall.DROP, recall_operation=number))
    discard(store, number)
    assert put_back(store, number) == 1
    [found] = store.list_rows(ALL, 10)
    assert (found.recall, found.recall_operation) == (Recall.RETURN, 0)
    assert [one.id for one in store.recalled(Recall.RETURN, 10)] == [1]


def test_what_was_exported_and_discarded_is_put_back_as_it_was(store: Schedule) -> None:
    """Parked and kept messages wait for the export in their state."""
    number = undoing(store)
    take(
        store,
        grouped_row(1, state=RowState.PARKED),
        grouped_row(2, state=RowState.EXHAUSTED, final_queue="queue://DLQ.exhausted"),
    )
    before = [msgspec.structs.replace(one, reason=None) for one in store.list_rows(ALL, 10)]
    act = row_changes.discard(1_000, "ann", number, exports=True)
    assert store.change(ALL, act) == 2
    assert [(row.id, row.state) for row in store.recalled(Recall.EXPORT, 10)] == [
        (1, RowState.PARKED),
        (2, RowState.EXHAUSTED),
    ]
    assert store.change(RowFilter(ids=(1,)), row_changes.undo_discard(1_000, "ann", number)) == 1
    assert store.list_rows(ALL, 10)[:1] == before[:1]
    discard(store, number)
    assert store.list_rows(ALL, 10) == []
    assert put_back(store, number) == 2
    assert store.list_rows(ALL, 10) == before


def test_a_message_that_is_discarded_between_two_reads_can_be_put_back(
    store: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = undoing(store)
    row = grouped_row(1, state=RowState.EXHAUSTED, final_queue="queue://DLQ.exhausted")
    take(store, msgspec.structs.replace(row, recall=Recall.DROP, recall_operation=number))
    operation = store.change_operation(
        number, lambda now: msgspec.structs.replace(now, state=OperationState.DONE, changed=1)
    )

    def discarding_after(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*asked: Any) -> Any:
            found = read(*asked)
            if store.list_rows(ALL, 10):
                discard(store, number)
            return found

        return reading

    for name in ("count_discarded", "recalled"):
        monkeypatch.setattr(store, name, discarding_after(getattr(store, name)))
    assert undoable(store, operation) == 1
    assert undoable(store, operation) == 1


def test_nothing_is_put_back_of_what_is_not_being_undone(store: Schedule) -> None:
    number = undoing(store)
    take(store, grouped_row(1), grouped_row(2))
    discard(store, 0, ids=(1,))
    discard(store, number, ids=(2,))
    store.change_operation(
        number, lambda now: msgspec.structs.replace(now, state=OperationState.UNDONE)
    )
    assert put_back(store, number) == 0
    assert store.list_rows(ALL, 10) == []
    assert store.count_discarded(number) == 1


def test_a_step_of_putting_back_that_fails_changes_nothing(store: Schedule) -> None:
    number = undoing(store)
    take(store, grouped_row(1))
    discard(store, number)

    def fail(_now: Operation) -> Operation:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.put_back(number, lambda row: row_changes.restored(row, 9, "ann"), 10, fail)
    assert (store.list_rows(ALL, 10), store.count_discarded(number)) == ([], 1)
    assert put_back(store, number) == 1


def test_what_was_discarded_is_forgotten_by_its_age(store: Schedule) -> None:
    number = undoing(store)
    take(store, *(grouped_row(one) for one in range(1, 5)))
    for one in range(1, 5):
        discard(store, number, at_ms=one * 100, ids=(one,))
    assert [store.forget_discarded(301, 1), store.forget_discarded(301, 5)] == [1, 2]
    assert store.forget_discarded(301, 5) == 0
    assert put_back(store, number) == 1
    assert [row.id for row in store.list_rows(ALL, 10)] == [4]


def test_of_what_was_discarded_the_latest_is_kept_up_to_a_size(
    store: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (common_rows, sqlite_changes, postgres_transaction):
        monkeypatch.setattr(module, "UNDO_BYTES", 3 * 3_048)
    number = undoing(store)
    take(store, *(grouped_row(one, message=bytes(1_000)) for one in range(1, 9)))
    discard(store, number, at_ms=100, ids=(1, 2))
    discard(store, number, at_ms=200, ids=(3, 4))
    assert store.count_discarded(number) == 3
    discard(store, number, at_ms=300, ids=(5, 6, 7, 8))
    assert put_back(store, number) == 3
    assert [row.id for row in store.list_rows(ALL, 10)] == [6, 7, 8]


def test_operations_that_undo_are_open(store: Schedule) -> None:
    number = undoing(store)
    assert [one.id for one in store.open_operations()] == [number]
    store.change_operation(
        number, lambda now: msgspec.structs.replace(now, state=OperationState.UNDONE)
    )
    assert store.open_operations() == []
