"""Seeded runs with faults at every step; the safety laws hold in each, and everything drains."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from amqsidecar.errors import LinkLost
from amqsidecar.model.schedule import RowFilter
from simulation.world import DLQ, CountingRules, World
from support.memory_broker import Killed

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "25"))
FIRST_SEED = int(os.environ.get("SEED", "0"))


def everywhere(world: World) -> Counter[str]:
    """Count each body in the broker and in the schedule; both at once would be a double."""
    found: Counter[str] = Counter()
    for waiting in world.broker.queues.values():
        found.update(message.body.decode() for message in waiting)
    for row in world.store.list_rows(RowFilter(), 10_000):
        found[world.store.message(row.id).decode()] += 1
    return found


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_is_lost_or_doubled_under_faults(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(
        tmp_path,
        CountingRules(maximum=chance.randrange(4), delay_ms=chance.choice([0, 10, 700])),
        max_taken=chance.choice([1, 3, 10]),
        max_sent=chance.choice([1, 3, 10]),
    )
    faults_on = True
    commit_faults = ["lost_before", "lost_after", "killed_before", "killed_after"]
    world.broker.commit_fault = lambda: (
        chance.choice(commit_faults) if faults_on and chance.random() < 0.15 else None
    )
    world.broker.refuse_send = lambda _resend: (
        "no room" if faults_on and chance.random() < 0.05 else None
    )
    world.crash_at = lambda _name: faults_on and chance.random() < 0.03
    sent: list[str] = []
    world.start()
    for step in range(120):
        if step < 60:
            for _ in range(chance.randrange(4)):
                body = f"m{len(sent)}"
                sent.append(body)
                world.die(body, origin=chance.choice(["orders", "invoices"]))
        if chance.random() < 0.3:
            world.die_again(chance.choice(["orders", "invoices"]))
        try:
            world.run(chance.randrange(1, 4))
        except LinkLost:
            world.connect()
        except Killed:
            world.kill()
            world.start()
    faults_on = False
    for _ in range(100):
        world.run(5)
        world.clock.advance(2_000)
    world.engine.settle_up()
    assert everywhere(world) == Counter(sent), f"seed {seed}"
    assert world.bodies(DLQ) == []
    parked = world.store.count_rows(RowFilter())
    delivered = sum(len(world.bodies(name)) for name in ("orders", "invoices", "DLQ.exhausted"))
    assert parked + delivered == len(sent)
    world.kill()
