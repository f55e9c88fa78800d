"""AMQP messages of applications, as the harnesses of both brokers send and take them."""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from proton import Message

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender, is_answered, refusal_words
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import SystemClock
from support.links.harness import Drained
from support.waiting import PATIENCE_S

_DRAIN_S = 15.0
_VAIN_DRAINS_MAX = 20


class AmqpClient:
    """A plain producer and consumer; a broker ends its connection when that is silent."""

    def __init__(self, endpoint: Endpoint, silent_s_max: float) -> None:
        self._endpoint = endpoint
        self._silent_s_max = silent_s_max
        self._numbers = count(1)
        self._connect()

    def _connect(self) -> None:
        self._used_at_s = time.monotonic()
        name = f"harness-{uuid.uuid4().hex}"
        self._connection = AmqpConnection(self._endpoint, SystemClock(), name)

    @property
    def connection(self) -> AmqpConnection:
        """An open connection: one that was silent for too long is replaced."""
        if time.monotonic() - self._used_at_s > self._silent_s_max:
            self.close()
            self._connect()
        self._used_at_s = time.monotonic()
        return self._connection

    def send(self, address: str, messages: Iterable[bytes], capability: str | None = None) -> None:
        """Send encoded messages outside of any transaction."""
        connection = self.connection
        sender = Sender(connection, self._name(), address, capability=capability)
        sent = []
        for message in messages:
            assert connection.run_until(lambda: sender.credit > 0, PATIENCE_S), sender.refusal
            sent.append(sender.send(message))
        assert connection.run_until(lambda: all(is_answered(one) for one in sent), PATIENCE_S)
        assert [refusal_words(one) for one in sent] == [None] * len(sent)
        _close(connection, sender)

    def drain(self, address: str, capability: str | None, depth: Callable[[], int]) -> list[bytes]:
        """Consume all that a queue holds and return it as it is encoded."""
        connection = self.connection
        receiver = Receiver(connection, self._name(), address, capability=capability)
        found: list[bytes] = []
        vain = 0
        # Why more than once: a busy broker drains the credit before it has looked into the queue.
        while vain < _VAIN_DRAINS_MAX:
            receiver.drain(500)
            # Quirk (Artemis 2.44): a busy broker rarely never answers (once in a whole run).
            is_answered = connection.run_until(lambda: receiver.is_drained, _DRAIN_S)
            assert not receiver.refusal, receiver.refusal
            arrived = receiver.take_arrived(500)
            for in_hand, message in arrived:
                receiver.accept(in_hand)
                found.append(message)
            if not arrived:
                if is_answered and not depth():
                    break
                vain += 1
        _close(connection, receiver)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _name(self) -> str:
        return f"harness-link-{next(self._numbers)}"


def _close(connection: AmqpConnection, end: Sender | Receiver) -> None:
    end.close()
    assert connection.run_until(lambda: end.is_closed, PATIENCE_S)
    end.forget()


def copies_of(encoded: Sequence[bytes]) -> list[Message]:
    """Return new messages with the bodies and the properties of others."""
    return [
        Message(
            id=f"ID:{uuid.uuid4()}",
            creation_time=SystemClock().now_ms() / 1000,
            durable=True,
            body=found.body,
            properties=found.properties,
        )
        for found in map(_decoded, encoded)
    ]


def drained(encoded: bytes) -> Drained:
    """Return a consumer's view of a message."""
    message = _decoded(encoded)
    properties: dict[str, Any] = message.properties or {}
    plain = {
        name: int(one) if isinstance(one, int) and not isinstance(one, bool) else one
        for name, one in properties.items()
    }
    return Drained(str(properties.get("testId")), str(message.body), plain)


def _decoded(encoded: bytes) -> Message:
    message = Message()
    message.decode(encoded)
    return message
