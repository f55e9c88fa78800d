"""Seeded histories of sidecars with gates: all claims hold, those of the gates too."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import amqsidecar_windows
from amqsidecar.engine.gates import Gates
from amqsidecar.model.schedule import DueRow, GroupPlace, RowState
from amqsidecar.plugin import DueMessage, Wait
from amqsidecar_breaker import Circuit
from amqsidecar_order import OrderGate
from amqsidecar_pace import PaceGate
from simulation.gated import GATE_CHECKERS
from simulation.planted import seeds_for
from simulation.run import Run
from support.stores.memory import MemoryStore, MemoryTransaction

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "500")) // 2
FIRST_SEED = int(os.environ.get("SEED", "0"))
SEEDS_FOR_A_PLANTED_FAULT = 1_000

Patch = pytest.MonkeyPatch


def test_every_claim_holds_with_gates() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        assert Run(seed, has_gates=True).go() == [], seed


def what_passes_is_not_counted(patch: Patch) -> None:
    patch.setattr(PaceGate, "passed", lambda _gate, _message, _now: None)


def one_answer_serves_a_whole_destination(patch: Patch) -> None:
    """It was dear to ask for each message."""
    stop = Gates._stop
    answers: dict[tuple[str, int], tuple[str, Wait] | None] = {}

    def stop_once(gates: Gates, row: DueRow, now_ms: int, *place: Any) -> tuple[str, Wait] | None:
        key = (str(row.destination), now_ms)
        if key not in answers:
            answers[key] = stop(gates, row, now_ms, *place)
        return answers[key]

    patch.setattr(Gates, "_stop", stop_once)


def a_window_is_looked_at_once(patch: Patch) -> None:
    look = amqsidecar_windows.look

    def look_once(windows: amqsidecar_windows.Windows, now_ms: int) -> object:
        known = look(windows, now_ms)
        return amqsidecar_windows._Known(-(10**12), 10**12, known.opens_at_ms)

    patch.setattr(amqsidecar_windows, "look", look_once)


def a_breaker_asks_nobody_to_wait_twice(patch: Patch) -> None:
    wait_of = Circuit.wait_of

    def wait_once(circuit: Circuit, now_ms: int) -> Wait | None:
        wait = wait_of(circuit, now_ms)
        return wait if wait is not None and wait.is_news else None

    patch.setattr(Circuit, "wait_of", wait_once)


def who_waits_is_dropped(patch: Patch) -> None:
    def remove(tx: MemoryTransaction, ids: list[int], *_told: object) -> None:
        tx.remove(ids)

    patch.setattr(MemoryTransaction, "postpone", remove)


def a_person_has_to_wait_like_everybody(patch: Patch) -> None:
    stop = Gates._stop

    def stop_all(gates: Gates, row: DueRow, now_ms: int, *place: Any) -> tuple[str, Wait] | None:
        return stop(gates, msgspec.structs.replace(row, passes_gates=False), now_ms, *place)

    patch.setattr(Gates, "_stop", stop_all)


def what_a_person_releases_goes_past_too(patch: Patch) -> None:
    change = MemoryStore.change

    def change_and_release(store: MemoryStore, *about: Any) -> int:
        held = {row.id for row in store._contents.rows.values() if row.state is RowState.HELD}
        changed = change(store, *about)
        store._contents.passing.update(held)
        return changed

    patch.setattr(MemoryStore, "change", change_and_release)


def after_a_start_nothing_is_out(patch: Patch) -> None:
    patch.setattr(OrderGate, "_began", lambda _gate, _now: 0)


def it_counts_from_when_it_passed(patch: Patch) -> None:
    passed = OrderGate.passed

    def passed_and_arrived(gate: OrderGate, message: DueMessage, now_ms: int) -> None:
        passed(gate, message, now_ms)
        arrived(gate, message, now_ms)

    arrived = OrderGate.arrived
    patch.setattr(OrderGate, "passed", passed_and_arrived)
    patch.setattr(OrderGate, "arrived", lambda _gate, _message, _now: None)


def what_a_person_sends_is_not_out(patch: Patch) -> None:
    passed = OrderGate.passed

    def passed_by_rules(gate: OrderGate, message: DueMessage, now_ms: int) -> None:
        if not message.passes_gates:
            passed(gate, message, now_ms)

    patch.setattr(OrderGate, "passed", passed_by_rules)


def what_was_held_up_is_forgotten(patch: Patch) -> None:
    """The first of a group is looked for among those that wait, and not among those held."""
    places = MemoryTransaction.group_places

    def places_of_waiting(tx: MemoryTransaction, ids: list[int]) -> dict[int, GroupPlace]:
        rows = tx._contents.rows
        waiting = {one: row for one, row in rows.items() if row.state is RowState.WAITING}
        tx._contents.rows = waiting
        found = places(tx, ids)
        tx._contents.rows = rows
        return found

    patch.setattr(MemoryTransaction, "group_places", places_of_waiting)


def who_came_back_stands_last(patch: Patch) -> None:
    places = MemoryTransaction.group_places

    def places_by_number(tx: MemoryTransaction, ids: list[int]) -> dict[int, GroupPlace]:
        rows = tx._contents.rows
        tx._contents.rows = {
            one: msgspec.structs.replace(row, redelivery_id=f"{one:020}")
            for one, row in rows.items()
        }
        found = places(tx, ids)
        tx._contents.rows = rows
        return found

    patch.setattr(MemoryTransaction, "group_places", places_by_number)


PLANTED: tuple[tuple[Callable[[Patch], None], str], ...] = (
    (what_passes_is_not_counted, "Paced"),
    (one_answer_serves_a_whole_destination, "Paced"),
    (a_window_is_looked_at_once, "InWindow"),
    (a_breaker_asks_nobody_to_wait_twice, "StaysOpen"),
    (who_waits_is_dropped, "Conserved"),
    (a_person_has_to_wait_like_everybody, "NowMeansNow"),
    (what_a_person_releases_goes_past_too, "InWindow"),
    (after_a_start_nothing_is_out, "OneOfAGroup"),
    (it_counts_from_when_it_passed, "OneOfAGroup"),
    (what_a_person_sends_is_not_out, "OneOfAGroup"),
    (what_was_held_up_is_forgotten, "InOrder"),
    (who_came_back_stands_last, "InOrder"),
)


@pytest.mark.parametrize(
    ("plant", "found_by"), PLANTED, ids=lambda one: getattr(one, "__name__", one)
)
def test_a_planted_fault_is_found(
    plant: Callable[[Patch], None], found_by: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    for seed in seeds_for(plant.__name__, SEEDS_FOR_A_PLANTED_FAULT):
        run = Run(seed, on_sqlite=False, has_gates=True)
        if any(one.checker == found_by for one in run.go()):
            return
    raise AssertionError(f"not found in {SEEDS_FOR_A_PLANTED_FAULT} seeds")


def test_every_checker_of_gates_finds_a_planted_fault() -> None:
    assert {checker.__name__ for checker in GATE_CHECKERS} <= {found_by for _, found_by in PLANTED}
