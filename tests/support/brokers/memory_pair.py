"""Two links in memory behind the product's pair: `artemis://` without its wires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from amqsidecar.broker import MoveSession, Resend
from amqsidecar.brokers.artemis_pair.link import PairTake
from amqsidecar.brokers.artemis_pair.look import PairLook
from amqsidecar.clock import Clock
from amqsidecar.engine.broker_held_queues import refuse_to_move
from support.brokers.memory import MemoryBroker, MemoryLink, Session

OTHER_ENCODING = "memory-other/1"


class MemoryPair:
    """Looks to the simulation like one `MemoryLink`; each message is read by its own wire."""

    def __init__(self, broker: MemoryBroker, clock: Clock) -> None:
        self.broker = broker
        self.wires = MemoryLink(broker), MemoryLink(broker, OTHER_ENCODING)
        self._clock = clock
        self._pair: PairLook | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pair, name)

    def look(self) -> Self:
        first, second = self.wires
        self._pair = PairLook(first.look(), second.look(), self._clock)
        return self

    def take(self, token_queue: str) -> Self:
        first, second = self.wires
        self._pair = PairTake(
            first.take(token_queue), second.take(token_queue), self._clock, self.step
        )
        return self

    def move(self) -> MoveSession:
        refuse_to_move(self)

    def close(self) -> None:
        for wire in self.wires:
            wire.close()

    def cut_off(self) -> list[Session]:
        """Lose both connections unnoticed by the broker; return the state that it still keeps."""
        return [session for wire in self.wires for session in wire.cut_off()]

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` would return something."""
        return any(wire.has_arrived for wire in self.wires)

    @property
    def sessions(self) -> list[Session]:
        """What the broker keeps for both connections."""
        return [session for wire in self.wires for session in wire.sessions]

    @property
    def begun_sends(self) -> Sequence[Resend]:
        """Sends begun and not committed."""
        return [one for wire in self.wires for one in wire.begun_sends]

    @property
    def step(self) -> Callable[[str], None]:
        """Called with the name of each step of a wire."""
        return self.wires[0].step

    @step.setter
    def step(self, step: Callable[[str], None]) -> None:
        for wire in self.wires:
            wire.step = step

    @property
    def on_wait(self) -> Callable[[float], None]:
        """What waits."""
        return self.wires[0].on_wait

    @on_wait.setter
    def on_wait(self, on_wait: Callable[[float], None]) -> None:
        for wire in self.wires:
            wire.on_wait = on_wait
