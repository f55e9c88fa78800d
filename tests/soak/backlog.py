"""Puts dead letters of many origins into a broker's dead-letter queue, fast.

Names of origins have all the same length, so that one real dead letter of Classic serves for all.
"""

from collections.abc import Sequence
from typing import Any, Self

from cproton import lib
from proton import Message, byte

from amqsidecar.broker import Resend
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Sender, is_answered
from amqsidecar.clock import SystemClock
from bench.dead_letters import BATCH, BODY_BYTES, ClassicDeadLetters, dead_again
from support.brokers.real import ArtemisBroker, Broker

_ANSWER_TIMEOUT_S = 60.0


def origin_names(count: int) -> list[str]:
    """Return this many names of the same length."""
    return [f"soak.{number:06}" for number in range(count)]


class ArtemisBacklog:
    """Writes what Artemis writes on a dead letter, as its own AMQP annotations."""

    def __init__(self, broker: Broker) -> None:
        self._connection = AmqpConnection(broker.endpoint("PORT"), SystemClock(), "soak-backlog")

    def __enter__(self) -> Self:
        self._sender = Sender(self._connection, "soak-backlog", "DLQ", capability="queue")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def put(self, count: int, origins: Sequence[str]) -> None:
        sender = self._sender
        bodies = [_dead_letter(origin) for origin in origins]
        unanswered: list[Any] = []
        for number in range(count):
            if sender.credit <= 0 or len(unanswered) >= BATCH:
                self._settle(unanswered)
            unanswered.append(sender.send(bodies[number % len(bodies)]))
        self._settle(unanswered)

    def _settle(self, unanswered: list[Any]) -> None:
        """Wait until the broker has all of these, and accepts more."""
        done = self._connection.run_until(
            lambda: self._sender.credit > 0 and all(map(is_answered, unanswered)),
            _ANSWER_TIMEOUT_S,
        )
        assert done, f"Artemis does not take dead letters: {self._sender.refusal or 'no credit'}"
        for delivery in unanswered:
            lib.pn_delivery_settle(delivery)
        unanswered.clear()


def _dead_letter(origin: str) -> bytes:
    message = Message(
        body="x" * BODY_BYTES,
        durable=True,
        annotations={
            "x-opt-ORIG-ADDRESS": origin,
            "x-opt-ORIG-QUEUE": origin,
            "x-opt-ORIG-ROUTING-TYPE": byte(1),
        },
    )
    return bytes(message.encode())


class ClassicBacklog:
    """Writes the origin's name into clones of one real dead letter."""

    def __init__(self, broker: Broker) -> None:
        self._model_origin = origin_names(1)[0]
        self._dead = ClassicDeadLetters(broker, self._model_origin)

    def __enter__(self) -> Self:
        self._dead.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._dead.__exit__()

    def put(self, count: int, origins: Sequence[str]) -> None:
        clones = [self._clone(origin) for origin in origins]
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            self._dead._commit([], [clones[number % len(clones)] for number in numbers])

    def _clone(self, origin: str) -> Resend:
        message = self._dead._model.replace(self._model_origin.encode(), origin.encode())
        return dead_again(message)


def backlog(broker: Broker) -> ArtemisBacklog | ClassicBacklog:
    return ArtemisBacklog(broker) if isinstance(broker, ArtemisBroker) else ClassicBacklog(broker)
