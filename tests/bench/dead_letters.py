"""Makes dead letters in bulk, faster than consumers can fail.

Artemis: a message with the properties of a death is sent to the dead-letter queue. Classic: one
real dead letter is cloned there with new message ids, origin and cause as the broker wrote them.
"""

import struct
import time
from types import TracebackType
from typing import Any, Self

from amqsidecar.broker import Delivery, IntakeQueue, Resend
from amqsidecar.brokers import openwire_codec as codec
from amqsidecar.brokers.openwire_link import OpenWireLink
from amqsidecar.brokers.openwire_message import (
    _NO_BROKER_FIELDS,
    _NO_PATH,
    ResendEncoder,
    take_apart,
)
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import queue
from support.brokers import ArtemisBroker, Broker, ClassicBroker
from support.jms_peer import JmsPeer
from support.waiting import eventually

BODY_BYTES = 1024
BATCH = 200


def dead_letter_queue(broker: Broker) -> str:
    return "DLQ" if isinstance(broker, ArtemisBroker) else "ActiveMQ.DLQ"


def application_peer(broker: Broker) -> JmsPeer:
    """The broker's own JMS client."""
    return JmsPeer.of(broker, "core" if isinstance(broker, ArtemisBroker) else "openwire")


class DeadLetters:
    """Puts dead letters of one origin into the broker's dead-letter queue."""

    def __init__(self, broker: Broker, origin: str) -> None:
        self.broker = broker
        self.origin = origin
        self.peer = application_peer(broker)

    def put(self, count: int, *, per_second: float = 0) -> None:
        """Put so many, as fast as it goes or at a pace."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
            properties={"_AMQ_ORIG_ADDRESS": self.origin, "_AMQ_ORIG_QUEUE": self.origin},
            per_second=per_second,
        )


class ClassicDeadLetters(DeadLetters):
    def __enter__(self) -> Self:
        assert isinstance(self.broker, ClassicBroker)
        self._link = OpenWireLink(
            host="127.0.0.1",
            port=self.broker.ports["OPENWIRE_PORT"],
            user=self.broker.user,
            password=self.broker.password,
            clock=SystemClock(),
            instance=f"clones-{self.origin}",
        )
        self._link.open(f"token.clones-{self.origin}")
        self._link.create_token(1)
        assert self._link.take_token(10) == 1
        # Why: the same object makes the tokens, too, and no message id may come twice.
        self._link._encoder.__class__ = _CloneEncoder
        self._cycle = 1
        self._model = self._take_model()
        return self

    def __exit__(self, *_: Any) -> None:
        self._link.close()

    def put(self, count: int, *, per_second: float = 0) -> None:
        batch = max(1, int(per_second / 100)) if per_second else BATCH
        clone = Resend(
            destination=queue("ActiveMQ.DLQ"),
            message=self._model,
            duplicate_id="",
            is_final=True,
            redelivery_id="",
            redelivery_count=0,
            redelivery_delay_ms=0,
        )
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


class _CloneEncoder(ResendEncoder):
    """Encodes a dead letter as it is, but for a new message id."""

    def resend(
        self, resend: Resend, transaction: bytes, now_ms: int, number: int, *, answer: bool = False
    ) -> bytes:
        parts = take_apart(resend.message)
        assert parts.properties is not None
        body = b"".join(
            (
                self._producer,
                self._destination(resend.destination),
                transaction,
                parts.original_destination,
                b"\x01\x6e",
                parts.text_view,
                self._next_id(),
                parts.group,
                b"\x01",
                bytes(8),
                parts.priority,
                struct.pack(">q", now_ms),
                parts.body,
                b"\x01",
                struct.pack(">i", len(parts.properties)),
                parts.properties,
                parts.structure,
                bytes((0, parts.compressed)),
                bytes(4),
                _NO_PATH,
                parts.user,
                _NO_BROKER_FIELDS,
                parts.tail,
            )
        )
        return codec.command(parts.data[0], number, body, answer=answer)


def dead_letters(broker: Broker, origin: str) -> DeadLetters:
    kind = ArtemisDeadLetters if isinstance(broker, ArtemisBroker) else ClassicDeadLetters
    return kind(broker, origin)
