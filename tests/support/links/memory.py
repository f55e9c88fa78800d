"""The harnesses of the links in memory: what the simulation runs on keeps the contract, too."""

from __future__ import annotations

import time
from collections.abc import Callable

from amqsidecar.broker import IntakeQueue, Link, LookSession, Resend
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import Destination, queue
from support.brokers.memory import (
    ENCODING,
    AckLaterLink,
    MemoryBroker,
    MemoryLink,
    StoredMessage,
)
from support.brokers.memory_pair import OTHER_ENCODING, MemoryPair
from support.links.harness import Drained, LinkHarness


class MemoryHarness(LinkHarness):
    """A broker in memory of its own; dead letters are put where they would be."""

    name = "memory"
    link_type: Callable[[MemoryBroker], MemoryLink | MemoryPair] = MemoryLink
    encoding = ENCODING

    def __init__(self, _broker: None, prefix: str) -> None:
        self.prefix = prefix
        self.broker = MemoryBroker(refuse_send=self._refuse, unreadable={self._refusing.name})

    @property
    def _refusing(self) -> Destination:
        return queue(f"{self.prefix}.refusing")

    def _refuse(self, resend: Resend) -> str | None:
        return "no permission" if resend.destination == self._refusing else None

    def make_link(self, _instance: str) -> Link:
        link = self.link_type(self.broker)

        # Why the last one: the second wire of a pair waits for both.
        waiting = link.wires[-1] if isinstance(link, MemoryPair) else link

        def wait(timeout_s: float) -> None:
            deadline_s = time.monotonic() + timeout_s
            while not link.has_arrived and not waiting.woken.wait(0.01):
                if time.monotonic() >= deadline_s:
                    break

        waiting.on_wait = wait
        return link

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        ids = [f"{origin}-{number}" for number in range(n)]
        for one in ids:
            message = StoredMessage(
                one.ljust(size_bytes, ".").encode(), message_id=f"ID:{one}", encoding=self.encoding
            )
            self.broker.die(self.intake().destination.name, message, queue(origin))
        return ids

    def kill(self, queue_name: str) -> object:
        waiting = self.broker.queue(queue_name)
        while waiting:
            name = self.intake().destination.name
            self.broker.die(name, waiting.popleft(), queue(queue_name))
        return None

    def forward(self, queue_name: str, to: str) -> None:
        for one in list(self.broker.queues.pop(queue_name, ())):
            copy = StoredMessage(one.body, message_id="ID:copy", encoding=one.encoding)
            self.broker.queue(to).append(copy)

    def intake(self) -> IntakeQueue:
        return IntakeQueue(queue(f"{self.prefix}.DLQ"))

    def drain(self, queue_name: str) -> list[Drained]:
        return [
            Drained(
                one.body.decode().rstrip("."),
                one.body.decode(),
                {
                    "amqsidecarRedeliveryId": one.redelivery_id,
                    "amqsidecarRedeliveryCount": one.redelivery_count,
                    "redeliveryDelay": one.redelivery_delay_ms,
                },
            )
            for one in self.broker.queues.pop(queue_name, ())
        ]

    def depth(self, queue_name: str) -> int:
        if queue_name == f"{self.prefix}.token":
            in_hand = [one.token for one in self.broker.sessions if one.token is not None]
            return len(self.broker.tokens) + len(in_hand)
        return self.broker.count(queue_name)

    def exists(self, queue_name: str) -> bool:
        return queue_name in self.broker.queues

    def refusing_destination(self) -> Destination | None:
        return self._refusing

    def drop(self, link: LookSession) -> None:
        assert isinstance(link, MemoryLink | MemoryPair)
        link.close()

    def close(self) -> None:
        """Nothing is open."""


class AckLaterHarness(MemoryHarness):
    """The shape of STOMP on Artemis."""

    name = "memory-ack-later"
    link_type = AckLaterLink


class MemoryPairHarness(MemoryHarness):
    """Two wires; the messages are those of the first one."""

    name = "memory-pair"

    @staticmethod
    def link_type(broker: MemoryBroker) -> MemoryPair:
        return MemoryPair(broker, SystemClock())


class MemoryPairSecondHarness(MemoryPairHarness):
    """The messages are those of the second one."""

    name = "memory-pair-second"
    encoding = OTHER_ENCODING
