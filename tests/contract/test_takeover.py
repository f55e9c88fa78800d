"""An instance that is gone is settled by its token, on a real PostgreSQL and a broker in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.broker import BrokerKind, TakeSession
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.errors import BrokerRefused
from amqsidecar.model import row_changes
from amqsidecar.model.event import CycleInDoubt, CycleRecovered
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.runtime.takeover import Takeover
from amqsidecar.store import Store
from amqsidecar.stores.postgres.store import PostgresStore
from simulation.rules import DLQ, CountingRules
from simulation.world import StoreWorld
from support.brokers.memory import Killed, MemoryLink
from support.stores.opened import opened
from support.stores.postgres_server import PostgresServer
from support.waiting import eventually


class SharedWorld(StoreWorld[PostgresStore]):
    """The same with a schedule in PostgreSQL, and a sidecar that takes over from dead ones."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, CountingRules(delay_ms=1000))
        self.url = url
        self.taken_over = self.abandoned = 0
        self.takeover = Takeover(
            open_schedule=lambda: opened(self.make_store(None)),
            open_instance=lambda instance: opened(self.make_store(instance)),
            make_link=lambda _instance: self.make_link(),
            make_engine=self.make_engine,
            every_s=1.0,
            report=self.note,
        )

    def make_link(self) -> MemoryLink:
        return MemoryLink(self.broker)

    def make_store(self, instance: str | None, *, is_service: bool = False) -> PostgresStore:
        store = PostgresStore(self.url, clock=self.clock, instance_name=instance)
        if instance is not None or is_service:
            store.lock_for_service()
        return store

    def make_engine(self, link: TakeSession, store: Store) -> CycleEngine:
        return CycleEngine(
            link=link,
            store=store,
            judge=Judge(
                self.rules,
                SendRules(BrokerKind.CLASSIC, lambda _: False, ".exhausted"),
                random.Random(1).random,
            ),
            backlog=BacklogGate(lambda _: 0, holds=False, threshold=0),
            clock=self.clock,
            limits=CycleLimits(max_taken=10, max_sent=10),
            observe=self._observe,
        )

    def note(self, settled: int, left: int) -> None:
        self.taken_over += settled
        self.abandoned = left

    def _new_store(self) -> PostgresStore:
        return self.make_store(None, is_service=True)

    def end_at(self, place: str) -> None:
        """Let a message die, and the process when it gets to a place in the cycle that takes it."""
        self.start()
        self.die("a")
        self.crash_at = lambda name: name == place
        with pytest.raises(Killed):
            self.run()

    def end_connections(self) -> None:
        """Broker and server see that the process is gone."""
        self.link.close()
        self.store._database.close()

    def waiting(self) -> int:
        """Return how many messages wait, as everybody sees it."""
        store = self.make_store(None)
        store.open()
        try:
            return sum(tally.count for tally in store.tallies() if tally.state is RowState.WAITING)
        finally:
            store.close()

    def verdicts(self) -> list[str]:
        return [event.verdict for event in self.events if isinstance(event, CycleRecovered)]


@pytest.fixture
def world(tmp_path: Path, postgres_url: str) -> Iterator[SharedWorld]:
    made = SharedWorld(tmp_path, postgres_url)
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("place", "verdict", "waiting", "left"),
    [("stored", "rolled_back", 0, 1), ("committed", "committed", 1, 0)],
)
def test_the_token_shows_how_the_last_cycle_ended(
    world: SharedWorld, place: str, verdict: str, waiting: int, left: int
) -> None:
    world.end_at(place)
    world.end_connections()
    assert world.waiting() == 0
    world.takeover.look()
    assert world.verdicts() == [verdict]
    assert world.waiting() == waiting
    assert world.broker.count(DLQ) == left
    assert world.taken_over == 1
    world.takeover.look()
    assert world.taken_over == 1


def test_while_the_token_is_held_nothing_is_decided(world: SharedWorld) -> None:
    """The server has lost the process, the broker hasn't: it may still commit."""
    world.end_at("stored")
    world.store._database.close()
    world.takeover.look()
    assert (world.verdicts(), world.taken_over, world.abandoned) == ([], 0, 1)
    world.end_connections()
    world.takeover.look()
    assert (world.verdicts(), world.taken_over, world.abandoned) == (["rolled_back"], 1, 0)


def test_an_instance_whose_broker_refuses_is_abandoned_until_it_does_not(
    world: SharedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> MemoryLink:
        raise BrokerRefused("the user may not read the token queue")

    world.end_at("stored")
    world.end_connections()
    monkeypatch.setattr(world, "make_link", refused)
    world.takeover.look()
    world.takeover.look()
    assert (world.verdicts(), world.taken_over, world.abandoned) == ([], 0, 1)
    monkeypatch.undo()
    world.takeover.look()
    assert (world.verdicts(), world.taken_over, world.abandoned) == (["rolled_back"], 1, 0)


def test_a_live_instance_is_left_alone(world: SharedWorld) -> None:
    world.end_at("stored")
    world.takeover.look()
    assert (world.verdicts(), world.taken_over) == ([], 0)


def test_a_fault_of_ours_does_not_end_the_looking(world: SharedWorld) -> None:
    world.end_at("stored")
    world.end_connections()
    faults = iter([ZeroDivisionError()])

    def open_schedule() -> PostgresStore:
        for fault in faults:
            raise fault
        return opened(world.make_store(None))

    takeover = Takeover(
        open_schedule=open_schedule,
        open_instance=lambda instance: opened(world.make_store(instance)),
        make_link=lambda _instance: MemoryLink(world.broker),
        make_engine=world.make_engine,
        every_s=0.01,
        report=world.note,
    )
    with takeover.worker:
        eventually(lambda: world.taken_over == 1, what="it is taken over")


def test_the_instance_is_free_for_the_next_sidecar(world: SharedWorld) -> None:
    world.end_at("committed")
    dead = world.store.open().instance
    world.end_connections()
    world.takeover.look()
    world.crash_at = lambda _: False
    world.start()
    assert world.store.open().instance == dead
    world.clock.advance(1000)
    world.run(3)
    assert world.bodies("orders") == ["a"]


def test_a_database_that_lost_commits_is_found_out_and_used_on(
    world: SharedWorld, postgres: PostgresServer
) -> None:
    """As after a failover to a standby that was behind: its losses are lost, and reported."""
    world.start()
    world.die("before")
    world.run(2)
    world.kill()
    past = postgres.make_database(world.url.rpartition("/")[2])
    try:
        world.start()
        world.die("lost")
        world.run(2)
        world.kill()
        world.url = postgres.url(past)
        world.start()
        assert [type(event) for event in world.events].count(CycleInDoubt) == 1
        assert world.waiting() == 0
        assert (
            world.store.change(RowFilter(), row_changes.release(world.clock.now_ms(), "ann")) == 1
        )
        world.die("after")
        world.run()
        assert sorted(world.bodies("orders")) == ["after", "before"]
        world.kill()
    finally:
        postgres.drop_database(past)
