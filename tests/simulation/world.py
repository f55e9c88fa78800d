"""A world of one sidecar, one broker in memory, one real store, and one clock."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.clock import SteadyClock
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.gates import NO_GATES, Gates
from amqsidecar.engine.in_place import in_place_row
from amqsidecar.engine.judging.judge import GroupOf, Judge, Readers
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.manual import ALL, Manual
from amqsidecar.engine.recall import FinalQueues, RecallJudge
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.provenance import lying_id
from amqsidecar.model.schedule import RowView
from amqsidecar.runtime.in_place import is_in_flight
from amqsidecar.runtime.recalling import Recalling
from amqsidecar.stores.postgres.store import PostgresStore
from simulation.rules import DLQ, CountingRules
from support.brokers.memory import ENCODING, Killed, MemoryBroker, MemoryLink, StoredMessage
from support.brokers.memory_pair import MemoryPair
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

S = TypeVar("S", UnsyncedStore, PostgresStore)

FINAL = "DLQ.exhausted"


class StoreWorld(Generic[S]):
    """Restartable: `start` rebuilds everything but the broker, the store's file, and time."""

    def __init__(self, folder: Path, rules: CountingRules | None = None, **limits: int) -> None:
        self.path = folder / "schedule.db"
        self.broker = MemoryBroker()
        self.clock = VirtualClock()
        self.own_clock = self._start_clock()
        self.rules = rules or CountingRules()
        self.limits = CycleLimits(
            max_taken=limits.get("max_taken", 10), max_sent=limits.get("max_sent", 10)
        )
        self.threshold = limits.get("threshold", 1_000_000)
        self.events: list[AnyEvent] = []
        self.stats: list[CycleStats] = []
        self.crash_at: Callable[[str], bool] = lambda _name: False
        self.link_type: Callable[[MemoryBroker], MemoryLink | MemoryPair] = MemoryLink
        self.blockages = Blockages()
        self.losses = Losses()
        self.gates: Gates = NO_GATES
        self.keeps_exhausted = False
        self.is_in_place = False
        self.finals = FinalQueues()
        self.group_of: GroupOf | None = None
        self._store: S | None = None
        self._link: MemoryLink | MemoryPair | None = None
        self._engine: CycleEngine | None = None
        self._recalling: Recalling | None = None

    @property
    def store(self) -> S:
        """The store of the process that runs or was killed last."""
        assert self._store is not None, "not started"
        return self._store

    @property
    def link(self) -> MemoryLink | MemoryPair:
        """The newest link."""
        assert self._link is not None, "not connected"
        return self._link

    @property
    def engine(self) -> CycleEngine:
        """The engine of the process that runs."""
        assert self._engine is not None, "not running"
        return self._engine

    def start(self) -> CycleEngine:
        """Start the sidecar's process."""
        self.blockages, self.losses = Blockages(), Losses()
        self.finals = FinalQueues()
        self._store = self._new_store()
        self.own_clock = self._start_clock()
        self.own_clock.start_at_least(self.store.open().taken_until_ms)
        return self.connect()

    @abstractmethod
    def _new_store(self) -> S:
        """Return the store of a process that starts; it is not open."""

    def _start_clock(self) -> SteadyClock:
        machine = self.clock
        return SteadyClock(machine.now_ms, lambda: machine.current_ms, machine.monotonic_s)

    def connect(self) -> CycleEngine:
        """Connect the running process to the broker (again)."""
        if self._link is not None:
            self._link.close()
        self.store.close()
        state = self.store.open()
        self._link = link = self.link_type(self.broker)
        link.take("token")
        link.on_wait = lambda timeout_s: self.clock.advance(max(1, round(timeout_s * 1000)))
        finals = self.finals = self.finals if self.is_in_place else FinalQueues()
        self._recalling = Recalling(
            self.store,
            link,
            finals,
            self.clock,
            final_suffix=".exhausted",
            keeps_exhausted=self.keeps_exhausted,
            admit=self._admit if self.is_in_place else None,
        )
        self._attach(link)
        self._judge = judge = Judge(
            self.rules,
            SendRules(BrokerKind.ARTEMIS, lambda one: one.name == DLQ, ".exhausted"),
            random.Random(1).random,
            Readers(message_group=self.group_of),
            keeps_exhausted=self.keeps_exhausted,
        )
        backlog = BacklogGate(
            lambda source: (
                0 if finals.covers(source) else link.count(IntakeQueue(source), 1_000_000)
            ),
            holds=True,
            threshold=self.threshold,
        )
        self._engine = engine = CycleEngine(
            link=link,
            store=self.store,
            judge=RecallJudge(
                judge,
                self.store,
                finals,
                None if self.is_in_place else (),
                Manual([ALL], redelivers=True) if self.is_in_place else Manual(),
                keeps_exhausted=self.keeps_exhausted,
                holds_backlog=True,
            ),
            backlog=backlog,
            clock=self.own_clock,
            limits=self.limits,
            observe=self._observe,
            blockages=self.blockages,
            losses=self.losses,
            gates=self.gates,
            crash_point=self._crash_point,
            from_place=finals.place,
        )
        assert engine.recover(state, 1.0)
        return engine

    def _attach(self, link: MemoryLink | MemoryPair) -> None:
        assert self._recalling is not None
        finals: list[IntakeQueue] = self._recalling.queues()
        link.attach([*finals] if self.is_in_place else [IntakeQueue(queue(DLQ)), *finals], 100)

    def _observe(self, events: Sequence[AnyEvent], stats: CycleStats | None) -> None:
        self.events.extend(events)
        if stats is not None:
            self.stats.append(stats)

    def _crash_point(self, name: str) -> None:
        if self.crash_at(name):
            raise Killed(name)

    def kill(self) -> None:
        """The process dies: the broker takes back what it had in hand."""
        if self._link is not None:
            self._link.close()
        if self._store is not None:
            self._store.close()
        self._engine = None

    def die(self, body: str, origin: str = "orders", encoding: str = ENCODING) -> None:
        """Make the broker dead-letter a message."""
        self.broker.die(DLQ, StoredMessage(body.encode(), encoding=encoding), queue(origin))

    def die_again(self, name: str) -> None:
        """Make everything in a destination fail again."""
        waiting = self.broker.queue(name)
        while waiting:
            self.broker.die(DLQ, waiting.popleft(), Destination(queue(name).kind, name))

    def bodies(self, name: str) -> list[str]:
        """Return the bodies in a queue of the broker."""
        return [message.body.decode() for message in self.broker.queue(name)]

    def run(self, turns: int = 50) -> None:
        """Run a turn of the sidecar."""
        assert self._recalling is not None
        for _ in range(turns):
            self.engine.turn(0.5)
            if self.is_in_place:
                self._index()
            if self._recalling.tend():
                self._attach(self.link)
            if self.finals.place.gives_back:
                self.engine.settle_up()
                self.connect()

    def _admit(self, rows: Sequence[RowView]) -> None:
        self.engine.admit(rows)

    def _index(self) -> None:
        """Give each message that lies in the dead-letter queue its row, as the watcher does."""
        found = {
            lying_id(one.provenance): one
            for one in self.link.browse(IntakeQueue(queue(DLQ)), 1_000_000)
        }
        with self.store.adding_lying() as add:
            known = {row.redelivery_id for row in self.store.lying(found)}
            new = [
                one
                for name, one in found.items()
                if name not in known and not is_in_flight(self.store, name)
            ]
            if new:
                row_id, now_ms = self.store.allocate_ids(len(new)), self.own_clock.now_ms()
                rows = [
                    in_place_row(self._judge, one, row_id + at, now_ms, redelivers=True)
                    for at, one in enumerate(self._judge.prepare(new))
                ]
                add([one.row for one in rows], [event for one in rows for event in one.events])


class World(StoreWorld[UnsyncedStore]):
    """A world whose store is a file."""

    def _new_store(self) -> UnsyncedStore:
        return UnsyncedStore(self.path, clock=self.clock)
