"""Housekeeping leaves the store to cycles between its steps, and ends in time."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.model import row_changes
from amqsidecar.model.failure import CountKind
from amqsidecar.model.operation import UNDO_MS
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.clock_gap import read_clock_gap
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


class House:
    """A store, and the work on it, which keeps all history."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "schedule.db"
        self.clock, self.metrics = VirtualClock(), Metrics()
        self.store = self.open()
        self.work = self.keeping()

    def open(self) -> SqliteStore:
        return opened(SqliteStore(self.path, clock=self.clock))

    def keeping(self, **options: Any) -> Housekeeping:
        return Housekeeping(
            **{
                "open_schedule": self.open,
                "clock": self.clock,
                "metrics": self.metrics,
                "keep_ms": 10**9,
                "max_events": 0,
                "sleep": lambda _seconds: None,
                **options,
            }
        )

    def slowly(self, sleep: Callable[[float], None], step_ms: int) -> Housekeeping:
        """Return work of which each step takes this time."""

        def open_schedule() -> SqliteStore:
            store = self.open()
            trim = store.trim_history

            def slow_trim(max_events: int, limit: int) -> int:
                self.clock.advance(step_ms)
                return trim(max_events, limit)

            store.trim_history = slow_trim  # type: ignore[method-assign]
            return store

        return self.keeping(open_schedule=open_schedule, sleep=sleep)

    def fill(self, blocks: int) -> None:
        with self.store.transaction() as tx:
            for _ in range(blocks):
                tx.record([took(taken_row(number)) for number in range(FORGOTTEN_AT_ONCE)])

    def die(self, number: int, **fields: Any) -> None:
        row = taken_row(number, **{"received_at_ms": self.clock.now_ms(), **fields})
        with self.store.transaction() as tx:
            tx.record([took(row)])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.store.close()


def test_the_store_is_free_as_long_as_a_step_took(house: House) -> None:
    slept = list[float]()
    house.fill(3)
    house.slowly(slept.append, 70).forget()
    assert house.store.history(taken_row(1).redelivery_id) == []
    assert [round(seconds, 3) for seconds in slept] == [0.07] * 3


def test_work_that_takes_too_long_is_gone_on_with_next_time(house: House) -> None:
    house.fill(3)
    work = house.slowly(list[float]().append, int(WORK_S * 1000 / 2))
    work.forget()
    assert len(house.store.history(taken_row(1).redelivery_id)) == 1
    work.forget()
    assert house.store.history(taken_row(1).redelivery_id) == []


def test_long_work_ends_when_the_clock_is_stopped(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test ends by its own limit."""
    monkeypatch.setattr("amqsidecar.runtime.housekeeping.WORK_S", 3_600)
    has_begun = Event()

    def open_schedule() -> SqliteStore:
        store = house.open()

        def endless_trim(_max_events: int, limit: int) -> int:
            has_begun.set()
            return limit

        monkeypatch.setattr(store, "trim_history", endless_trim)
        return store

    clock = ServiceClock(lambda: None, SystemClock())
    clock.start()
    house.keeping(open_schedule=open_schedule, clock=SystemClock()).plan(clock)
    assert has_begun.wait(PATIENCE_S)
    clock.stop()


def test_counts_are_kept_by_the_hour_at_last_and_forgotten_with_the_history(house: House) -> None:
    store, hour_ms, kinds = house.store, 3_600_000, [CountKind.DIED]
    now_ms = house.clock.now_ms() // hour_ms * hour_ms
    for minute in range(0, 60, 10):
        house.die(minute, received_at_ms=now_ms + minute * 60_000)

    house.work.forget()
    assert len(store.failure_counts(0, 2**62, kinds)) == 6

    house.clock.advance(HOURS_AFTER_MS + 2 * hour_ms)
    house.work.forget()
    (count,) = store.failure_counts(0, 2**62, kinds)
    assert (count.key.bucket_ms, count.count) == (now_ms, 6)
    assert len(store.failure_groups(0, 10)) == 1

    house.clock.advance(10**9 + 2 * hour_ms)
    house.work.forget()
    assert store.failure_counts(0, 2**62, kinds) == []
    assert store.failure_groups(0, 10) == []


def test_what_gates_let_wait_is_shown_and_is_not_overdue(house: House) -> None:
    now_ms = house.clock.now_ms()
    take_rows(house.store, 1, [taken_row(number, due_at_ms=now_ms) for number in (1, 2)])
    with house.store.transaction() as tx:
        tx.postpone([1, 2], now_ms + 3_600_000, "closed", "windows")

    def shown() -> tuple[dict[tuple[str, ...], float], float]:
        house.work.show()
        house.work.show_ledger()
        waiting = house.metrics.labelled("amqsidecar_gate_waiting")
        return waiting, house.metrics.value("amqsidecar_oldest_overdue_seconds")

    house.clock.advance(1_000_000)
    assert shown() == ({("queue://orders", "windows"): 2}, 0)
    # Its time has come and nobody asks the gate: that is overdue.
    house.clock.advance(2_610_000)
    assert shown() == ({}, 10)


def test_messages_that_lie_in_a_queue_are_counted_with_the_age_of_the_oldest(house: House) -> None:
    lying = [
        taken_row(
            number,
            state=RowState.EXHAUSTED,
            is_final=True,
            final_queue="queue://DLQ",
            received_at_ms=house.clock.now_ms() + number * 1_000,
        )
        for number in (1, 2)
    ]
    with house.store.adding_lying() as add:
        add(lying, [])
    house.clock.advance(11_000)
    house.work.show_ledger()
    assert house.metrics.labelled("amqsidecar_in_place") == {("queue://DLQ",): 2}
    assert house.metrics.labelled("amqsidecar_oldest_seconds") == {("exhausted",): 10}


def test_the_age_of_the_oldest_is_that_of_each_state_which_waits_for_a_person(house: House) -> None:
    states = [RowState.WAITING, RowState.PARKED, RowState.HELD, RowState.HELD]
    rows = [
        taken_row(number, state=state, received_at_ms=house.clock.now_ms() + number * 1_000)
        for number, state in enumerate(states)
    ]
    take_rows(house.store, 1, rows)
    house.clock.advance(11_000)
    house.work.show_ledger()
    oldest_s = house.metrics.labelled("amqsidecar_oldest_seconds")
    assert oldest_s == {("parked",): 10, ("held",): 9}

    with house.store.transaction() as tx:
        tx.remove([1, 2])
    house.work.show_ledger()
    assert house.metrics.labelled("amqsidecar_oldest_seconds") == {("held",): 8}


def test_a_cause_is_new_for_an_hour_after_the_first_death_ever(house: House) -> None:
    work = house.keeping(folder=house.path.parent)

    def new_causes() -> dict[tuple[str, ...], float]:
        work.show_ledger()
        return house.metrics.labelled("amqsidecar_new_causes")

    house.die(1, cause="a.Refused: no stock")
    house.die(2, cause="a.Timeout: no answer")
    (place,) = new_causes()
    assert new_causes() == {place: 2}

    house.clock.advance(NEW_MS + 1)
    house.die(3, cause="a.Refused: no stock")
    assert new_causes() == {}

    work.show()
    assert house.metrics.value("amqsidecar_store_available_bytes") > 0


def test_what_was_discarded_is_kept_for_an_hour_and_gives_way_where_there_is_no_room(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = house.store, house.clock
    store.allocate_ids(9)
    take_rows(store, 1, [taken_row(1), taken_row(2)])

    store.change(RowFilter(ids=(1,)), row_changes.discard(clock.now_ms(), "ann", 7))
    clock.advance(UNDO_MS)
    store.change(RowFilter(ids=(2,)), row_changes.discard(clock.now_ms(), "ann", 7))
    house.work.forget()
    assert store.count_discarded(7) == 2
    clock.advance(1)
    house.work.forget()
    assert store.count_discarded(7) == 1

    monkeypatch.setattr(SqliteStore, "room", lambda _store: Room(at_once_bytes=0, reason="full"))
    house.work.forget()
    assert store.count_discarded(7) == 0


def test_what_a_command_discards_can_be_undone_for_an_hour_after_a_step_back(house: House) -> None:
    """The clock of the service stays ahead of the wall clock, by which a command goes."""
    store, clock = house.store, house.clock
    clock.advance(10 * UNDO_MS)
    store.allocate_ids(9)
    take_rows(store, 1, [taken_row(1)])
    work = house.keeping(wall_ms=lambda: clock.now_ms() - 2 * UNDO_MS)
    wall_ms = clock.now_ms() - 2 * UNDO_MS
    store.change(RowFilter(ids=(1,)), row_changes.discard(wall_ms, "cli:ann", 7))
    clock.advance(UNDO_MS)
    work.forget()
    assert store.count_discarded(7) == 1
    clock.advance(1)
    work.forget()
    assert store.count_discarded(7) == 0


def test_commands_learn_how_far_the_clock_of_the_service_is_behind(tmp_path: Path) -> None:
    clock, path = VirtualClock(), tmp_path / "schedule.db"
    behind_ms = [UNDO_MS]

    def work(*, keeps: bool) -> Housekeeping:
        return Housekeeping(
            open_schedule=lambda: opened(SqliteStore(path, clock=clock)),
            clock=clock,
            metrics=Metrics(),
            keep_ms=10**9,
            max_events=0,
            wall_ms=lambda: clock.now_ms() + behind_ms[0],
            keeps_clock_gap=keeps,
        )

    store = opened(SqliteStore(path, clock=clock))
    work(keeps=True).show()
    assert read_clock_gap(store) == UNDO_MS
    # Others share it, to which it was moved.
    work(keeps=False).show()
    assert read_clock_gap(store) == 0
    work(keeps=True).show()
    for ahead_ms in (0, 999, -UNDO_MS):
        behind_ms[0] = ahead_ms
        work(keeps=True).show()
        assert read_clock_gap(store) == 0
    store.close()


def test_the_outboxes_of_removed_subscriptions_are_forgotten(house: House) -> None:
    house.clock.advance(10**12)
    body = msgspec.json.encode(WebhookOutbox(stream="s", begun_ms=0))
    for name in ("ops", "old"):
        assert house.store.swap_value(PREFIX + name, b"", body)
    house.keeping(
        forget_outboxes=lambda schedule, now_ms: forget_outboxes(schedule, {"ops"}, now_ms)
    ).forget()
    assert house.store.value_names(PREFIX) == [PREFIX + "ops"]
