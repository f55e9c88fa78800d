"""The outbox of each store keeps the promises of `journal.py`: each event is in one segment."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from amqsidecar.errors import StoreUnavailable
from amqsidecar.journal import Outbox, Segment
from amqsidecar.model import row_changes
from amqsidecar.model.event import Held
from amqsidecar.model.schedule import RowFilter
from amqsidecar.store import Store
from amqsidecar.stores.postgres.store import PostgresStore
from support.stores.rows import resent, take_rows, taken_row, took
from support.virtual_clock import VirtualClock

FAR_MS = 10**9


class JournaledStore(Store, Outbox, Protocol):
    """A store that a journal is written from."""


MakeStore = Callable[[], JournaledStore]


def record_at(store: Store, *times: int) -> None:
    """Write a block of events."""
    with store.transaction() as tx:
        tx.record(
            [Held(at_ms=at_ms, redelivery_id="x", destination="", reason="") for at_ms in times]
        )


def plan(store: Outbox, max_events: int = 1_000) -> Segment:
    segment = store.plan_segment(max_events)
    assert segment is not None
    return segment


def times_in(store: Outbox, segment: Segment) -> list[list[int]]:
    """Return the times of a segment's events by block."""
    return [[event.at_ms for event in block] for block in store.segment_events(segment)]


def times_of(store: Store) -> list[int]:
    return [event.at_ms for event in store.history("x")]


# Segments.


def test_a_segment_is_whole_blocks_and_at_least_one(store: JournaledStore) -> None:
    assert store.plan_segment(10) is None
    record_at(store, 1, 2, 3)
    record_at(store, 4)
    record_at(store, 5)
    record_at(store, 6)
    found = []
    while (segment := store.plan_segment(2)) is not None:
        found.append((segment.number, segment.event_count, times_in(store, segment)))
        store.segment_written(segment)
    assert found == [(1, 3, [[1, 2, 3]]), (2, 2, [[4], [5]]), (3, 1, [[6]])]


def test_a_planned_segment_stays_the_same_for_everybody_until_it_is_written(
    store: JournaledStore, open_store: MakeStore
) -> None:
    record_at(store, 1)
    segment = plan(store)
    record_at(store, 2)
    store.reopen()
    for one in (store, open_store()):
        assert plan(one) == segment
        assert times_in(one, segment) == [[1]]
    open_store().segment_written(segment)
    assert times_in(store, plan(store)) == [[2]]


def test_a_segment_is_written_once_however_often_that_is_said(
    store: JournaledStore, open_store: MakeStore
) -> None:
    record_at(store, 1)
    first = plan(store)
    store.segment_written(first)
    open_store().segment_written(first)
    record_at(store, 2, 3)
    second = plan(store)
    store.segment_written(first)
    assert plan(store) == second
    assert store.outbox_lag().events == 2
    assert store.written_segments() == [first]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("finish_cycle", [["received", "resent"], ["retried"]]),
        ("undo_cycle", [["retried"]]),
        ("settle_in_doubt", [["received"], ["retried"]]),
    ],
)
def test_events_of_an_unfinished_cycle_are_left_for_a_later_segment(
    store: JournaledStore, open_store: MakeStore, end: str, told: list[list[str]]
) -> None:
    operator = open_store()
    with store.transaction() as tx:
        tx.record_cycle(1, [taken_row(1), taken_row(2)], [], [])
        tx.finish_cycle(1)
        sent = tx.claim_due(FAR_MS, 1)
        tx.record_cycle(2, [taken_row(3)], sent, [took(taken_row(3)), resent(sent[0])])
    assert operator.change(RowFilter(), row_changes.retry(7, "ann")) == 1
    planned = operator.plan_segment(10)
    early = [] if planned is None else kinds_in(operator, planned)
    assert early in ([], [["retried"]])  # of one file in its order, of several sidecars not
    assert operator.outbox_lag().events == 1
    if planned is not None:
        operator.segment_written(planned)
    with store.transaction() as tx:
        getattr(tx, end)(2)
    late = operator.plan_segment(10)
    found = early + ([] if late is None else kinds_in(operator, late))
    assert sorted(found) == sorted(told)


def kinds_in(store: Outbox, segment: Segment) -> list[list[str]]:
    return [
        [str(type(event).__struct_config__.tag) for event in block]
        for block in store.segment_events(segment)
    ]


# Retention.


def test_what_is_not_in_a_written_segment_is_kept(
    store: JournaledStore, open_store: MakeStore
) -> None:
    store.keep_for_journal(True)
    other = open_store()
    record_at(store, 1)
    record_at(store, 2)
    segment = plan(store, 1)
    for forgetful in (store, other):
        assert forgetful.forget_history(FAR_MS, 10) == 0
        assert forgetful.trim_history(0, 10) == 0
    store.segment_written(segment)
    assert other.forget_history(FAR_MS, 10) == 1
    assert times_of(store) == [2]


def test_a_planned_segment_is_kept_also_when_the_journal_is_off_again(
    store: JournaledStore, open_store: MakeStore
) -> None:
    store.keep_for_journal(True)
    for at_ms in (1, 2, 3, 4):
        record_at(store, at_ms)
    store.segment_written(plan(store, 1))
    segment = plan(store, 1)
    store.keep_for_journal(False)
    other = open_store()
    assert other.trim_history(3, 10) == 1
    assert other.trim_history(2, 10) == 1
    assert other.forget_history(FAR_MS, 10) == 1
    assert other.trim_history(0, 10) == 0
    assert times_of(store) == [2]
    assert times_in(store, segment) == [[2]]
    store.segment_written(segment)
    assert other.forget_history(FAR_MS, 10) == 1
    assert store.outbox_lag().events == 0


def test_a_segment_of_which_something_was_forgotten_no_longer_counts_as_written(
    store: JournaledStore,
) -> None:
    segments = []
    for first in (1, 4, 7):
        record_at(store, first, first + 1)
        record_at(store, first + 2)
        segments.append(plan(store))
        store.segment_written(segments[-1])
    assert store.trim_history(8, 10) == 1
    assert store.written_segments() == segments[1:]
    with pytest.raises(StoreUnavailable, match="does not keep all events of segment 1 of the"):
        list(store.segment_events(segments[0]))
    assert times_in(store, segments[1]) == [[4, 5], [6]]
    assert store.forget_history(6, 10) == 4
    assert store.written_segments() == segments[2:]
    record_at(store, 10)
    assert plan(store).number == 4


def test_what_is_left_of_a_segment_goes_without_an_earlier_one(store: JournaledStore) -> None:
    """The clock was set back: what is the oldest is not what was written first."""
    record_at(store, 10)
    earlier = plan(store)
    store.segment_written(earlier)
    record_at(store, 1)
    record_at(store, 2)
    store.segment_written(plan(store))
    assert store.forget_history(2, 10) == 1
    assert store.forget_history(3, 10) == 1
    assert store.written_segments() == [earlier]


def test_what_is_forgotten_while_it_is_read_is_noticed(
    store: JournaledStore, open_store: MakeStore
) -> None:
    times = list(range(1, 101))
    for at_ms in times:
        record_at(store, at_ms)
    segment = plan(store)
    store.segment_written(segment)
    read = store.segment_events(segment)
    next(read)
    assert open_store().trim_history(0, 1_000) == 100
    with pytest.raises(StoreUnavailable, match="does not keep all events"):
        list(read)


# Streams.


def test_a_renewed_uid_begins_a_stream_after_the_planned_segment(store: JournaledStore) -> None:
    for at_ms in (1, 2, 3):
        record_at(store, at_ms)
    written = plan(store, 1)
    store.segment_written(written)
    planned = plan(store, 1)
    with store.transaction() as tx:
        tx.renew_uid()
    assert plan(store) == planned
    store.segment_written(planned)
    first = plan(store)
    assert (planned.stream, planned.number) == (written.stream, 2)
    assert first.stream != planned.stream
    assert first.number == 1
    assert times_in(store, first) == [[3]]
    store.segment_written(first)
    assert store.written_segments() == [written, planned, first]
    record_at(store, 4)
    assert (plan(store).stream, plan(store).number) == (first.stream, 2)


def test_a_segment_with_other_content_in_the_journal_is_planned_again(
    store: JournaledStore, open_store: MakeStore
) -> None:
    for at_ms in (1, 2, 3):
        record_at(store, at_ms)
    written = plan(store, 1)
    store.segment_written(written)
    taken = plan(store, 1)
    for one in (store, open_store()):
        one.plan_anew(written)
        one.plan_anew(taken)
    with pytest.raises(StoreUnavailable):
        list(store.segment_events(taken))
    assert store.outbox_lag().events == 2
    first = plan(store)
    assert (first.number, first.stream == taken.stream) == (1, False)
    assert times_in(store, first) == [[2], [3]]
    store.segment_written(first)
    assert store.written_segments() == [written, first]


# Lag.


def test_lag_is_what_counts_and_is_not_written(store: JournaledStore) -> None:
    assert (store.outbox_lag().events, store.outbox_lag().oldest_at_ms) == (0, None)
    record_at(store, 5, 3)
    record_at(store, 2)
    segment = plan(store, 1)
    with store.transaction() as tx:
        tx.record_cycle(1, [taken_row(1)], [], [took(taken_row(1))])
    assert (store.outbox_lag().events, store.outbox_lag().oldest_at_ms) == (3, 3)
    store.segment_written(segment)
    assert (store.outbox_lag().events, store.outbox_lag().oldest_at_ms) == (1, 2)
    with store.transaction() as tx:
        tx.finish_cycle(1)
    assert store.outbox_lag().events == 2


# Several sidecars.


@pytest.fixture
def sidecar(postgres_url: str) -> Iterator[Callable[..., PostgresStore]]:
    """Opens stores of sidecars that share a schedule."""
    made = list[PostgresStore]()

    def open_sidecar() -> PostgresStore:
        made.append(PostgresStore(postgres_url, clock=VirtualClock()))
        made[-1].lock_for_service()
        made[-1].open()
        return made[-1]

    yield open_sidecar
    for store in made:
        store.close()


Sidecar = Callable[..., PostgresStore]


@pytest.mark.postgres
def test_an_unfinished_cycle_delays_no_other_sidecar(sidecar: Sidecar) -> None:
    slow, fast = sidecar(), sidecar()
    with slow.transaction() as tx:
        tx.record_cycle(1, [taken_row(1)], [], [took(taken_row(1, received_at_ms=1))])
    take_rows(fast, 1, [taken_row(2)], [took(taken_row(2, received_at_ms=2))])
    segment = plan(slow)
    assert times_in(slow, segment) == [[2]]
    slow.segment_written(segment)
    assert fast.plan_segment(10) is None
    with slow.transaction() as tx:
        tx.finish_cycle(1)
    assert times_in(fast, plan(fast)) == [[1]]


@pytest.mark.postgres
def test_several_that_plan_at_once_plan_the_same(sidecar: Sidecar) -> None:
    stores = [sidecar() for _ in range(4)]
    for at_ms in range(1, 41):
        record_at(stores[0], at_ms)
    with ThreadPoolExecutor(len(stores)) as pool:
        for number in range(1, 5):
            planned = set(pool.map(lambda store: plan(store, 10), stores))
            assert [(one.number, one.event_count) for one in planned] == [(number, 10)]
            list(pool.map(lambda store: store.segment_written(*planned), stores))  # noqa: B023
    assert stores[0].outbox_lag().events == 0


@pytest.mark.postgres
def test_what_is_forgotten_meanwhile_is_in_no_segment(sidecar: Sidecar) -> None:
    """With the journal off everything may go that is not planned, at any moment."""
    planner, forgetful = sidecar(), sidecar()
    for at_ms in range(1, 301):
        record_at(planner, at_ms)

    def forget() -> int:
        return sum(forgetful.trim_history(0, 3) for _ in range(60))

    with ThreadPoolExecutor(1) as pool:
        forgotten = pool.submit(forget)
        for _ in range(30):
            segment = planner.plan_segment(3)
            if segment is not None:
                assert sum(map(len, times_in(planner, segment))) == segment.event_count
                planner.segment_written(segment)
        assert forgotten.result() > 0
