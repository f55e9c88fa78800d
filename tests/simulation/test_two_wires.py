"""Seeded histories of one broker over two wires with one token; each message keeps its wire."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from amqsidecar.brokers.artemis_pair.link import PairTake
from amqsidecar.engine.crash_points import CHANGING_WIRES, NAMES
from simulation.run import Run
from simulation.world import World
from support.brokers.memory import ENCODING
from support.brokers.memory_pair import OTHER_ENCODING, MemoryPair

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "500")) // 2
FIRST_SEED = int(os.environ.get("SEED", "0"))


def test_every_claim_holds_with_two_wires() -> None:
    died_at: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        run = Run(seed, has_two_wires=True)
        assert run.go() == [], seed
        died_at.update(run.faults.died_at)
    if SEEDS >= 250:
        assert {*NAMES, CHANGING_WIRES, "token released"} <= set(died_at)


def test_a_token_that_stays_where_it_was_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wire that commits without the token would be a second owner."""
    monkeypatch.setattr(PairTake, "_change_to", lambda _pair, _wire: None)
    assert any(Run(seed, has_two_wires=True).go() for seed in range(50))


@pytest.mark.parametrize("busy", [ENCODING, OTHER_ENCODING])
def test_a_busy_wire_does_not_starve_the_other(tmp_path: Path, busy: str) -> None:
    """More than a cycle is always due and in hand over one wire; the other gets its turns."""
    world = World(tmp_path)
    world.link_type = lambda broker: MemoryPair(broker, world.clock)
    rare = OTHER_ENCODING if busy == ENCODING else ENCODING
    engine = world.start()

    def pass_time(_name: str) -> bool:
        world.clock.advance(2)
        return False

    world.crash_at = pass_time
    for number in range(40):
        for of_all in range(200):
            world.die(f"busy-{number}-{of_all}", encoding=busy)
        if number < 20:
            world.die(f"rare-{number}", encoding=rare)
        engine.turn(0.1)
    died_at_ms = world.clock.now_ms()
    assert len(world.broker.queue("DLQ")) > 10
    while len([one for one in world.bodies("orders") if one.startswith("rare")]) < 20:
        for of_all in range(200):
            world.die(f"more-{world.clock.now_ms()}-{of_all}", encoding=busy)
        engine.turn(0.1)
        assert world.clock.now_ms() < died_at_ms + 3_000
    assert {one.encoding for one in world.broker.queue("orders") if b"rare" in one.body} == {rare}
    world.kill()


def test_both_wires_are_used_and_the_token_changes_seldom() -> None:
    commits = changes = 0
    for seed in range(FIRST_SEED, FIRST_SEED + 50):
        run = Run(seed, has_two_wires=True, traces=True)
        assert run.go() == []
        commits += run.broker.commits
        changes += sum(CHANGING_WIRES in line for line in run.trace)
    assert 100 < changes < commits * 0.6
