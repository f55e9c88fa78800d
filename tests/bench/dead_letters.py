"""Makes dead letters in bulk, faster than consumers can fail.

Artemis: a message with the properties of a death is sent to the dead-letter queue. Classic: one
real dead letter is sent there again and again with new message ids, as a final dead letter of no
known redelivery: origin and cause stay as the broker wrote them, and it counts as a first death.
"""

import time
from typing import Any, Self

from amqsidecar.broker import Delivery, IntakeQueue, Resend
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.openwire.link import OpenWireLink
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import queue
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.links.cycles import resend_of
from support.waiting import PATIENCE_S, eventually

BODY_BYTES = 1024
BATCH = 200


def dead_letter_queue(broker: Broker) -> str:
    return "DLQ" if isinstance(broker, ArtemisBroker) else "ActiveMQ.DLQ"


def application_peer(broker: Broker) -> JmsPeer:
    """The broker's own JMS client."""
    return JmsPeer.of(broker, "core" if isinstance(broker, ArtemisBroker) else "openwire")


def dead_again(message: bytes) -> Resend:
    """Return the send of a dead letter of Classic as one that died for the first time."""
    return resend_of(
        message,
        destination=queue("ActiveMQ.DLQ"),
        is_final=True,
        redelivery_id="",
        redelivery_count=0,
    )


class DeadLetters:
    """Puts dead letters of one origin into the broker's dead-letter queue."""

    def __init__(self, broker: Broker, origin: str) -> None:
        self.broker = broker
        self.origin = origin
        self.peer = application_peer(broker)
        self.properties: dict[str, str] = {}

    def put(self, count: int, *, per_second: float = 0) -> None:
        """Put this many, as fast as possible or at a pace."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ArtemisDeadLetters(DeadLetters):
    def __enter__(self) -> Self:
        self.peer.fill(self.origin, 1)
        self.peer.drain(self.origin, 1)
        return self

    def put(self, count: int, *, per_second: float = 0) -> None:
        self.peer.fill(
            "DLQ",
            count,
            size=BODY_BYTES,
            batch=max(1, int(per_second / 100)) if per_second else BATCH,
            properties={
                "_AMQ_ORIG_ADDRESS": self.origin,
                "_AMQ_ORIG_QUEUE": self.origin,
                "_AMQ_ORIG_MESSAGE_ID": 2**40,
                **self.properties,
            },
            per_second=per_second,
        )


class ClassicDeadLetters(DeadLetters):
    def __enter__(self) -> Self:
        assert isinstance(self.broker, ClassicBroker)
        self._link = OpenWireLink(
            ClassicLinkSettings(
                self.broker.endpoint("OPENWIRE_PORT"),
                clock=SystemClock(),
                instance=f"clones-{self.origin}",
            )
        ).take(f"token.clones-{self.origin}")
        self._link.token.create(1)
        assert self._link.token.take(PATIENCE_S) == 1
        self._cycle = 1
        self._model = self._take_model()
        return self

    def __exit__(self, *_: Any) -> None:
        self._link.close()

    def put(self, count: int, *, per_second: float = 0) -> None:
        batch = max(1, int(per_second / 100)) if per_second else BATCH
        clone = dead_again(self._model)
        began = time.monotonic()
        for first in range(0, count, batch):
            self._commit([], [clone] * min(batch, count - first))
            if per_second:
                due = began + (first + batch) / per_second
                time.sleep(max(0.0, due - time.monotonic()))

    def _take_model(self) -> bytes:
        self.peer.fill(self.origin, 1, size=BODY_BYTES)
        self.peer.fail(self.origin, messages=1)
        self._link.attach([IntakeQueue(queue("ActiveMQ.DLQ"))], 1)
        [dead] = eventually(lambda: self._link.receive(1), what="a dead letter arrives")
        self._commit([dead], [])
        self._link.attach([], 1)
        return dead.message

    def _commit(self, accepts: list[Delivery], sends: list[Resend]) -> None:
        self._cycle += 1
        self._link.commit_cycle(accepts, sends, self._cycle)


def dead_letters(broker: Broker, origin: str) -> DeadLetters:
    kind = ArtemisDeadLetters if isinstance(broker, ArtemisBroker) else ClassicDeadLetters
    return kind(broker, origin)
