"""The service's loop against a broker in memory: one claim per test."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqsidecar.broker import IntakeQueue
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import queue
from amqsidecar.model.event import AnyEvent
from amqsidecar.runtime.service import Service, ServiceHealth, ServiceSettings
from simulation.world import DLQ, CountingRules, World
from support.memory_broker import MemoryLink


class SlowLink(MemoryLink):
    """Hands tokens over only when it was asked some times."""

    refusals = 0

    def take_token(self, timeout_s: float) -> int | None:
        if self.refusals:
            self.refusals -= 1
            return None
        return super().take_token(timeout_s)


def service(world: World, link: MemoryLink, events: list[AnyEvent]) -> Service:
    assert world.store is not None
    made = Service(
        make_link=lambda _instance: link,
        make_decider=lambda _link: world.rules,
        find_intake=lambda _link: [IntakeQueue(queue(DLQ))],
        store=world.store,
        clock=world.clock,
        chance=lambda: 0.5,
        settings=ServiceSettings(),
        health=ServiceHealth(),
        observe=lambda seen, _stats: events.extend(seen),
    )
    link.on_wait = lambda _timeout_s: made.stop()
    return made


def test_a_token_that_comes_late_is_waited_for_after_the_doubt_was_settled(tmp_path: Path) -> None:
    world = World(tmp_path, CountingRules(delay_ms=0))
    world.start()
    world.broker.commit_fault = iter([None, "lost_after"]).__next__
    world.die("a")
    with pytest.raises(LinkLost):
        world.run(5)
    world.broker.commit_fault = lambda: None
    world.broker.tokens.clear()
    world.broker.seen_duplicate_ids.clear()
    link = SlowLink(world.broker)
    link.refusals = 3
    events: list[AnyEvent] = []
    service(world, link, events).run()
    assert world.bodies("orders") == ["a", "a"], "at worst a copy, never a loss"
    world.kill()
