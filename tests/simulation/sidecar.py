"""A simulated process: it starts, runs, loses links, dies, and starts again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.clock import SteadyClock
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.gates import NO_GATES, Gates
from amqsidecar.engine.judging.judge import GroupOf, Judge, Readers
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.loss import Losses
from amqsidecar.errors import LinkLost, StoreUnavailable
from amqsidecar.messages.facts import delivery_facts
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import StoreState
from amqsidecar.plugin import Decider
from amqsidecar.store import Store
from simulation.faults import Faults, FaultyStore
from simulation.rules import DLQ
from support.brokers.memory import Killed, MemoryLink, Session
from support.brokers.memory_pair import MemoryPair
from support.virtual_clock import VirtualClock

TOKEN_WAIT_MS = 2_000


@dataclass
class Surroundings:
    """The surroundings of a process, and what observes it."""

    make_link: Callable[[], MemoryLink | MemoryPair]
    make_store: Callable[[], Store]
    rules: Decider
    clock: VirtualClock
    faults: Faults
    limits: CycleLimits
    backlog_threshold: int
    step: Callable[[Sidecar, str], None]
    observe: Callable[[Sidecar, Sequence[AnyEvent]], None]
    lost: Callable[[Sidecar, LinkLost], None]
    doubt: Callable[[set[str]], None]
    fell: Callable[[Exception], None]
    began: Callable[[], None]
    make_gates: Callable[[], Gates] = lambda: NO_GATES
    group_of: GroupOf | None = None
    in_cycles: dict[int, set[str]] = field(default_factory=dict)


class Sidecar:
    """Does what `runtime/service.py` does with engine, link and store, one turn at a time."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.around = around
        self.is_dead = False
        self.link: MemoryLink | MemoryPair | None = None
        self._begin_process()

    def _begin_process(self) -> None:
        around, machine = self.around, self.around.clock
        self.clock = SteadyClock(machine.now_ms, lambda: machine.current_ms, machine.monotonic_s)
        self._has_read_store = False
        around.began()
        self.is_dead = False
        self.engine: CycleEngine | None = None
        self.is_owner = False
        self._blockages, self._losses = Blockages(), Losses()
        self._gates = around.make_gates()
        self.store = FaultyStore(
            around.make_store(), around.faults, self._step, around.doubt, around.in_cycles
        )

    def turn(self, max_wait_s: float) -> None:
        """Do one turn, whatever it takes; the process starts again when it is dead."""
        try:
            if self.is_dead:
                self._begin_process()
            if self.engine is None:
                self._connect()
            if self.is_owner or self._become_owner():
                assert self.engine is not None
                self.engine.turn(max_wait_s)
            self.clock.look()
        except LinkLost as lost:
            self.around.lost(self, lost)
            self.disconnect()
        except StoreUnavailable:
            self.disconnect()
        except Killed:
            self._forget_link()
            self.store.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not happen
            self.around.fell(error)
            self.disconnect()

    def stop(self) -> None:
        """End as the service does when it is stopped."""
        try:
            if self.is_owner and self.engine is not None:
                self.engine.settle_up()
        except (LinkLost, StoreUnavailable):
            pass
        self.disconnect()

    def disconnect(self) -> None:
        """Close the link, as after any fault; the next turn connects again."""
        if self.link is not None:
            self.link.close()
        self._forget_link()

    def die(self, *, is_noticed: bool) -> Sequence[Session]:
        """The process is dead; return what the broker still keeps of it."""
        self.is_dead = True
        if self.link is None:
            return ()
        if is_noticed:
            self.link.close()
            return ()
        return self.link.cut_off()

    def _forget_link(self) -> None:
        self.link, self.engine, self.is_owner = None, None, False

    def _connect(self) -> None:
        around = self.around
        self._state: StoreState = self.store.reopen()
        if not self._has_read_store:
            self.clock.start_at_least(self._state.taken_until_ms)
            self._has_read_store = True
        self.link = link = around.make_link()
        link.step = self._step
        link.on_wait = lambda timeout_s: around.clock.advance(max(1, round(timeout_s * 1000)))
        link.take("token")
        self._step("opened")
        self._backlog = BacklogGate(
            lambda source: link.count(IntakeQueue(source), 1_000_000),
            holds=True,
            threshold=around.backlog_threshold,
        )
        self.engine = CycleEngine(
            link=link,
            store=self.store,
            judge=Judge(
                around.rules,
                SendRules(BrokerKind.ARTEMIS, _is_intake, ".exhausted"),
                lambda: 0.5,
                Readers(
                    message_group=around.group_of,
                    facts=delivery_facts if getattr(around.rules, "asks", ()) else None,
                    # Why as it was: messages are known by their bytes here.
                    edit=lambda _encoding, message, _edit: message,
                ),
            ),
            backlog=self._backlog,
            clock=self.clock,
            limits=around.limits,
            observe=self._observe,
            blockages=self._blockages,
            losses=self._losses,
            gates=self._gates,
            crash_point=self._step,
        )

    def _become_owner(self) -> bool:
        assert self.engine is not None
        assert self.link is not None
        if not self.engine.recover(self._state, TOKEN_WAIT_MS / 1000):
            self._state = self.store.state()
            self.around.clock.advance(TOKEN_WAIT_MS)
            return False
        self.link.attach([IntakeQueue(queue(DLQ))], 2 * self.around.limits.max_taken)
        self._backlog.meet(queue(DLQ))
        self.is_owner = True
        return True

    def _step(self, name: str) -> None:
        if self.is_dead:
            raise Killed(name)
        self.around.step(self, name)

    def _observe(self, events: Sequence[AnyEvent], _stats: CycleStats | None) -> None:
        self.around.observe(self, events)


def _is_intake(destination: Destination) -> bool:
    return destination.name == DLQ
