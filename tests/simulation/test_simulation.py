"""Seeded histories with faults at every step: every claim holds, and planted faults are found."""

from __future__ import annotations

import os

import pytest

from amqsidecar.engine.crash_points import ACCEPTING, NAMES
from simulation.checkers import CHECKERS
from simulation.faults import BROKER_KINDS, KINDS, STORE_KINDS
from simulation.planted import PLANTED, Planted, seeds_for
from simulation.regressions import REGRESSIONS
from simulation.run import SQLITE_EVERY, Run
from simulation.simulate import simulate

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "500"))
FIRST_SEED = int(os.environ.get("SEED", "0"))
SEEDS_FOR_A_PLANTED_FAULT = 600


def test_every_claim_holds_in_every_history_and_every_fault_happened() -> None:
    """`make simulate SEEDS=100000` goes on from here."""
    outcome = simulate(range(FIRST_SEED, FIRST_SEED + SEEDS))
    assert outcome.broken == {}
    if SEEDS >= 500:
        assert {*KINDS, *STORE_KINDS, *BROKER_KINDS} <= set(outcome.happened)
        assert {*NAMES, ACCEPTING} <= set(outcome.died_at)


def test_every_claim_holds_with_a_table_of_rules() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS // 10):
        assert Run(seed, has_table=True).go() == [], seed


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_was_found_once_does_not_come_back(seed: int) -> None:
    assert Run(seed).go() == [], REGRESSIONS[seed]


@pytest.mark.parametrize("seed", [31, SQLITE_EVERY - 1])
def test_a_seed_replays_exactly(seed: int) -> None:
    first, second = Run(seed, traces=True), Run(seed, traces=True)
    first.go()
    second.go()
    assert len(first.trace) > 100
    assert first.trace == second.trace


def moves(run: Run) -> list[str]:
    """Return what a run took and sent, and when."""
    run.go()
    return [line for line in run.trace if " sent " in line or " accepted " in line]


def may_be_on_either_store(seed: int) -> bool:
    run = Run(seed, on_sqlite=False)
    return not run.has_heir and not run.faults.purge_token


@pytest.mark.parametrize("seed", [seed for seed in range(12) if may_be_on_either_store(seed)])
def test_the_real_store_gives_the_same_history(seed: int) -> None:
    told = moves(Run(seed, traces=True, on_sqlite=False))
    assert len(told) > 20
    assert moves(Run(seed, traces=True, on_sqlite=True)) == told


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_fault_is_found(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.plant(monkeypatch)
    for seed in seeds_for(planted.name, SEEDS_FOR_A_PLANTED_FAULT):
        if any(one.checker in planted.found_by for one in Run(seed, on_sqlite=False).go()):
            return
    raise AssertionError(f"not found in {SEEDS_FOR_A_PLANTED_FAULT} seeds")


def test_every_checker_finds_a_planted_fault() -> None:
    assert {name for one in PLANTED for name in one.found_by} == {
        checker.__name__ for checker in CHECKERS
    }
