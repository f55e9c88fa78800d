"""The harness of the AMQP link to Artemis."""

import time
import uuid

from proton import Message

from amqsidecar.broker import LookSession
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender, is_answered, refusal_words
from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.clock import SystemClock
from support.brokers.real import spoken
from support.links.amqp_messages import copies_of, drained
from support.links.artemis import ArtemisHarness
from support.links.harness import Drained
from support.waiting import PATIENCE_S

_DRAIN_S = 15.0
_VAIN_DRAINS_MAX = 20
_UNUSED_S_MAX = 20.0


class AmqpArtemisHarness(ArtemisHarness):
    """Dead letters come from AMQP and die by the broker's own management."""

    name = "amqp-artemis"
    _numbers = 0
    _used_at_s = 0.0

    def connect(self) -> None:
        """Connect the harness itself."""
        spoken(self.broker.release, "amqp")
        super().connect()
        self._connection = self._connected()

    @property
    def connection(self) -> AmqpConnection:
        """An open connection: the broker ends one that is silent for a minute."""
        if time.monotonic() - self._used_at_s > _UNUSED_S_MAX:
            self._connection.close()
            self._connection = self._connected()
        self._used_at_s = time.monotonic()
        return self._connection

    def _connected(self) -> AmqpConnection:
        self._used_at_s = time.monotonic()
        name = f"harness-{uuid.uuid4().hex}"
        return AmqpConnection(self.broker.endpoint("PORT"), SystemClock(), name)

    def make_link(self, instance: str) -> AmqpArtemisLink:
        return AmqpArtemisLink(
            ArtemisLinkSettings(
                self.broker.endpoint("PORT"), clock=SystemClock(), instance=instance
            )
        )

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        ids = [f"{origin}-{number}" for number in range(n)]
        self.send(
            origin,
            [
                Message(
                    id=f"ID:{one}",
                    durable=True,
                    body=one.ljust(size_bytes, "."),
                    properties={"testId": one},
                )
                for one in ids
            ],
        )
        self.kill(origin)
        return ids

    def send(self, address: str, messages: list[Message], capability: str = "queue") -> None:
        """Send messages outside of any transaction."""
        connection = self.connection
        sender = Sender(connection, self._name(), address, capability=capability)
        sent = []
        for message in messages:
            assert connection.run_until(lambda: sender.credit > 0, PATIENCE_S), sender.refusal
            sent.append(sender.send(bytes(message.encode())))
        assert connection.run_until(lambda: all(is_answered(one) for one in sent), PATIENCE_S)
        assert [refusal_words(one) for one in sent] == [None] * len(sent)
        _close(connection, sender)

    def forward(self, queue_name: str, to: str) -> None:
        self.send(to, copies_of(self.drain_raw(queue_name)))

    def drain(self, queue_name: str) -> list[Drained]:
        return [drained(encoded) for encoded in self.drain_raw(queue_name)]

    def drain_raw(self, queue_name: str) -> list[bytes]:
        """Consume all that a queue holds and return it as it is encoded."""
        capability = None if "::" in queue_name else "queue"
        connection = self.connection
        receiver = Receiver(connection, self._name(), queue_name, capability=capability)
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
                if is_answered and not self.depth(queue_name):
                    break
                vain += 1
        _close(connection, receiver)
        return found

    def drop(self, link: LookSession) -> None:
        assert isinstance(link, AmqpArtemisTake)
        peer = link._connection._socket
        assert peer is not None
        peer.shutdown(2)

    def close(self) -> None:
        self._connection.close()
        super().close()

    def _name(self) -> str:
        self._numbers += 1
        return f"harness-link-{self._numbers}"


def _close(connection: AmqpConnection, end: Sender | Receiver) -> None:
    end.close()
    assert connection.run_until(lambda: end.is_closed, PATIENCE_S)
    end.forget()
