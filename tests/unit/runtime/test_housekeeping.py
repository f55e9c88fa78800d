"""Housekeeping leaves the store to cycles between its steps, and ends in time."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event

import msgspec
import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.model import row_changes
from amqsidecar.model.failure import CountKind
from amqsidecar.model.operation import UNDO_MS
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.runtime.housekeeping import (
    FORGOTTEN_AT_ONCE,
    HOURS_AFTER_MS,
    NEW_MS,
    WORK_S,
    Housekeeping,
)
from amqsidecar.runtime.service_clock import ServiceClock
from amqsidecar.store import Room
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.webhooks.outbox import PREFIX, WebhookOutbox, forget_outboxes
from support.stores.opened import opened
from support.stores.rows import take_rows, taken_row, took
from support.virtual_clock import VirtualClock
from support.waiting import PATIENCE_S


def keeping_house(folder: Path, clock: VirtualClock, metrics: Metrics) -> Housekeeping:
    """Return the work on the store of a folder, which keeps all history."""
    return Housekeeping(
        open_schedule=lambda: opened(SqliteStore(folder / "schedule.db", clock=clock)),
        clock=clock,
        metrics=metrics,
        keep_ms=10**9,
        max_events=0,
    )


def filled(path: Path, clock: VirtualClock, blocks: int) -> SqliteStore:
    store = SqliteStore(path, clock=clock)
    store.open()
    with store.transaction() as tx:
        for _ in range(blocks):
            tx.record([took(taken_row(number)) for number in range(FORGOTTEN_AT_ONCE)])
    return store


def housekeeping(
    path: Path, clock: VirtualClock, sleep: Callable[[float], None], step_ms: int
) -> Housekeeping:
    """Each of its steps takes this time."""

    def open_schedule() -> SqliteStore:
        store = opened(SqliteStore(path, clock=clock))
        trim = store.trim_history

        def slow_trim(max_events: int, limit: int) -> int:
            clock.advance(step_ms)
            return trim(max_events, limit)

        store.trim_history = slow_trim  # type: ignore[method-assign]
        return store

    return Housekeeping(
        open_schedule=open_schedule,
        clock=clock,
        metrics=Metrics(),
        keep_ms=10**9,
        max_events=0,
        sleep=sleep,
    )


def test_the_store_is_free_as_long_as_a_step_took(tmp_path: Path) -> None:
    clock, slept = VirtualClock(), list[float]()
    store = filled(tmp_path / "schedule.db", clock, 3)

    housekeeping(tmp_path / "schedule.db", clock, slept.append, 70).forget()

    assert store.history(taken_row(1).redelivery_id) == []
    assert [round(seconds, 3) for seconds in slept] == [0.07] * 3
    store.close()


def test_work_that_takes_too_long_is_gone_on_with_next_time(tmp_path: Path) -> None:
    clock, slept = VirtualClock(), list[float]()
    store = filled(tmp_path / "schedule.db", clock, 3)
    work = housekeeping(tmp_path / "schedule.db", clock, slept.append, int(WORK_S * 1000 / 2))

    work.forget()

    assert len(store.history(taken_row(1).redelivery_id)) == 1
    work.forget()
    assert store.history(taken_row(1).redelivery_id) == []
    store.close()


def test_long_work_ends_when_the_clock_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test ends by its own limit."""
    monkeypatch.setattr("amqsidecar.runtime.housekeeping.WORK_S", 3_600)
    has_begun = Event()

    def open_schedule() -> SqliteStore:
        store = opened(SqliteStore(tmp_path / "schedule.db", clock=SystemClock()))

        def endless_trim(_max_events: int, limit: int) -> int:
            has_begun.set()
            return limit

        monkeypatch.setattr(store, "trim_history", endless_trim)
        return store

    clock = ServiceClock(lambda: None, SystemClock())
    clock.start()
    Housekeeping(
        open_schedule=open_schedule,
        clock=SystemClock(),
        metrics=Metrics(),
        keep_ms=10**9,
        max_events=0,
    ).plan(clock)
    assert has_begun.wait(PATIENCE_S)
    clock.stop()


def test_counts_are_kept_by_the_hour_at_last_and_forgotten_with_the_history(
    tmp_path: Path,
) -> None:
    clock, hour_ms, kinds = VirtualClock(), 3_600_000, [CountKind.DIED]
    path = tmp_path / "schedule.db"
    now_ms = clock.now_ms() // hour_ms * hour_ms
    store = SqliteStore(path, clock=clock)
    store.open()
    with store.transaction() as tx:
        for minute in range(0, 60, 10):
            row = taken_row(minute, received_at_ms=now_ms + minute * 60_000)
            tx.record([took(row)])
    work = housekeeping(path, clock, lambda _seconds: None, 0)

    work.forget()
    assert len(store.failure_counts(0, 2**62, kinds)) == 6

    clock.advance(HOURS_AFTER_MS + 2 * hour_ms)
    work.forget()
    (count,) = store.failure_counts(0, 2**62, kinds)
    assert (count.key.bucket_ms, count.count) == (now_ms, 6)
    assert len(store.failure_groups(0, 10)) == 1

    clock.advance(10**9 + 2 * hour_ms)
    work.forget()
    assert store.failure_counts(0, 2**62, kinds) == []
    assert store.failure_groups(0, 10) == []
    store.close()


def test_what_gates_let_wait_is_shown_and_is_not_overdue(tmp_path: Path) -> None:
    clock, metrics = VirtualClock(), Metrics()
    store = SqliteStore(tmp_path / "schedule.db", clock=clock)
    store.open()
    rows = [taken_row(number, due_at_ms=clock.now_ms()) for number in (1, 2)]
    with store.transaction() as tx:
        tx.record_cycle(1, rows, [], [])
        tx.finish_cycle(1)
        tx.postpone([1, 2], clock.now_ms() + 3_600_000, "closed", "windows")
    work = keeping_house(tmp_path, clock, metrics)

    def shown() -> tuple[dict[tuple[str, ...], float], float]:
        work.show()
        work.show_ledger()
        waiting = metrics.labelled("amqsidecar_gate_waiting")
        return waiting, metrics.value("amqsidecar_oldest_overdue_seconds")

    clock.advance(1_000_000)
    assert shown() == ({("queue://orders", "windows"): 2}, 0)
    # Its time has come and nobody asks the gate: that is overdue.
    clock.advance(2_610_000)
    assert shown() == ({}, 10)
    store.close()


def test_messages_that_lie_in_a_queue_are_counted_with_the_age_of_the_oldest(
    tmp_path: Path,
) -> None:
    clock, metrics = VirtualClock(), Metrics()
    lying = [
        taken_row(
            number,
            state=RowState.EXHAUSTED,
            is_final=True,
            final_queue="queue://DLQ",
            received_at_ms=clock.now_ms() + number * 1_000,
        )
        for number in (1, 2)
    ]
    store = opened(SqliteStore(tmp_path / "schedule.db", clock=clock))
    with closing(store), store.adding_lying() as add:
        add(lying, [])
    work = keeping_house(tmp_path, clock, metrics)
    clock.advance(11_000)
    work.show_ledger()
    assert metrics.labelled("amqsidecar_in_place") == {("queue://DLQ",): 2}
    assert metrics.labelled("amqsidecar_oldest_seconds") == {("exhausted",): 10}


def test_the_age_of_the_oldest_is_that_of_each_state_which_waits_for_a_person(
    tmp_path: Path,
) -> None:
    clock, metrics = VirtualClock(), Metrics()
    work = keeping_house(tmp_path, clock, metrics)
    states = [RowState.WAITING, RowState.PARKED, RowState.HELD, RowState.HELD]
    rows = [
        taken_row(number, state=state, received_at_ms=clock.now_ms() + number * 1_000)
        for number, state in enumerate(states)
    ]
    with closing(opened(SqliteStore(tmp_path / "schedule.db", clock=clock))) as store:
        take_rows(store, 1, rows)
        clock.advance(11_000)
        work.show_ledger()
        assert metrics.labelled("amqsidecar_oldest_seconds") == {("parked",): 10, ("held",): 9}

        with store.transaction() as tx:
            tx.remove([1, 2])
        work.show_ledger()
        assert metrics.labelled("amqsidecar_oldest_seconds") == {("held",): 8}


def test_a_cause_is_new_for_an_hour_after_the_first_death_ever(tmp_path: Path) -> None:
    clock, metrics = VirtualClock(), Metrics()
    store = SqliteStore(tmp_path / "schedule.db", clock=clock)
    store.open()
    work = Housekeeping(
        open_schedule=lambda: opened(SqliteStore(tmp_path / "schedule.db", clock=clock)),
        clock=clock,
        metrics=metrics,
        keep_ms=10**9,
        max_events=0,
        folder=tmp_path,
    )

    def new_causes() -> dict[tuple[str, ...], float]:
        work.show_ledger()
        return metrics.labelled("amqsidecar_new_causes")

    def die(number: int, cause: str) -> None:
        row = taken_row(number, cause=cause, received_at_ms=clock.now_ms())
        with store.transaction() as tx:
            tx.record([took(row)])

    die(1, "a.Refused: no stock")
    die(2, "a.Timeout: no answer")
    (place,) = new_causes()
    assert new_causes() == {place: 2}

    clock.advance(NEW_MS + 1)
    die(3, "a.Refused: no stock")
    assert new_causes() == {}

    work.show()
    assert metrics.value("amqsidecar_store_available_bytes") > 0
    store.close()


def test_what_was_discarded_is_kept_for_an_hour_and_gives_way_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    store = SqliteStore(tmp_path / "schedule.db", clock=clock)
    store.open()
    store.allocate_ids(9)
    take_rows(store, 1, [taken_row(1), taken_row(2)])
    work = housekeeping(tmp_path / "schedule.db", clock, lambda _s: None, 0)

    store.change(RowFilter(ids=(1,)), row_changes.discard(clock.now_ms(), "ann", 7))
    clock.advance(UNDO_MS)
    store.change(RowFilter(ids=(2,)), row_changes.discard(clock.now_ms(), "ann", 7))
    work.forget()
    assert store.count_discarded(7) == 2
    clock.advance(1)
    work.forget()
    assert store.count_discarded(7) == 1

    monkeypatch.setattr(SqliteStore, "room", lambda _store: Room(at_once_bytes=0, reason="full"))
    work.forget()
    assert store.count_discarded(7) == 0
    store.close()


def test_what_a_command_discards_can_be_undone_for_an_hour_after_a_step_back(
    tmp_path: Path,
) -> None:
    """The clock of the service stays ahead of the wall clock, by which a command goes."""
    clock = VirtualClock(10 * UNDO_MS)
    store = SqliteStore(tmp_path / "schedule.db", clock=clock)
    store.open()
    store.allocate_ids(9)
    take_rows(store, 1, [taken_row(1)])
    work = Housekeeping(
        open_schedule=lambda: opened(SqliteStore(tmp_path / "schedule.db", clock=clock)),
        clock=clock,
        metrics=Metrics(),
        keep_ms=10**9,
        max_events=0,
        wall_ms=lambda: clock.now_ms() - 2 * UNDO_MS,
    )
    wall_ms = clock.now_ms() - 2 * UNDO_MS
    store.change(RowFilter(ids=(1,)), row_changes.discard(wall_ms, "cli:ann", 7))
    clock.advance(UNDO_MS)
    work.forget()
    assert store.count_discarded(7) == 1
    clock.advance(1)
    work.forget()
    assert store.count_discarded(7) == 0
    store.close()


def test_the_outboxes_of_removed_subscriptions_are_forgotten(tmp_path: Path) -> None:
    clock = VirtualClock(10**12)
    work = Housekeeping(
        open_schedule=lambda: opened(SqliteStore(tmp_path / "schedule.db", clock=clock)),
        clock=clock,
        metrics=Metrics(),
        keep_ms=10**9,
        max_events=0,
        forget_outboxes=lambda schedule, now_ms: forget_outboxes(schedule, {"ops"}, now_ms),
    )
    store = SqliteStore(tmp_path / "schedule.db", clock=clock)
    store.open()
    body = msgspec.json.encode(WebhookOutbox(stream="s", begun_ms=0))
    for name in ("ops", "old"):
        assert store.swap_value(PREFIX + name, b"", body)
    work.forget()
    assert store.value_names(PREFIX) == [PREFIX + "ops"]
    store.close()
