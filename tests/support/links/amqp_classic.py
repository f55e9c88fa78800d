"""The harnesses of the AMQP link to Classic: mapped messages, and native ones."""

import uuid

from proton import Message

from amqsidecar.broker import IntakeQueue, LookSession
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender, is_answered, refusal_words
from amqsidecar.brokers.amqp_classic.link import AmqpClassicLink
from amqsidecar.brokers.amqp_classic.take import AmqpClassicTake
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.clock import SystemClock
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.model.destination import queue
from amqsidecar.model.left_behind import Loss
from support.brokers.real import Broker
from support.links.amqp_messages import copies_of, drained
from support.links.harness import Drained
from support.links.openwire import ClassicHarness
from support.waiting import PATIENCE_S

NO_NAMES = DeadLetterNames(None)


class AmqpClassicHarness(ClassicHarness):
    """OpenWire applications beside a link at the connector with `transport.transformer=jms`."""

    name = "amqp-classic"
    port = "AMQP_JMS_PORT"
    amqp_producers_only = False
    allowed_losses: frozenset[Loss] = frozenset()

    def make_link(self, instance: str, names: DeadLetterNames = NO_NAMES) -> AmqpClassicLink:
        return AmqpClassicLink(
            ClassicLinkSettings(
                self.broker.endpoint(self.port),
                clock=SystemClock(),
                instance=f"{self.prefix}-{instance}",
                names=names,
                amqp_producers_only=self.amqp_producers_only,
                allowed_losses=self.allowed_losses,
            )
        )

    def intake(self) -> IntakeQueue:
        """Return the dead-letter queue in which they are; all died in `PREFIX.orders`."""
        return IntakeQueue(queue(self.dead_letter_queue), origin=queue(f"{self.prefix}.orders"))

    def drop(self, link: LookSession) -> None:
        assert isinstance(link, AmqpClassicTake)
        peer = link._connection._socket
        assert peer is not None
        peer.shutdown(2)


class AmqpClassicNativeHarness(AmqpClassicHarness):
    """AMQP applications, and a link that reads only what they make, at the stock connector."""

    name = "amqp-classic-native"
    port = "AMQP_PORT"
    amqp_producers_only = True

    def __init__(self, broker: Broker, prefix: str) -> None:
        super().__init__(broker, prefix)
        self._links = 0
        self._connect()

    def _connect(self) -> None:
        """Connect the harness itself."""
        self.connection = AmqpConnection(
            self.broker.endpoint(self.port), SystemClock(), f"harness-{uuid.uuid4().hex}"
        )

    def _reconnect(self) -> None:
        """Take a new connection: the broker ends one that was silent while a sidecar worked."""
        self.connection.close()
        self._connect()

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        """Put `n` dead letters of queue `origin` into the dead-letter queue; return their ids."""
        ids = [f"{origin}-{number}" for number in range(n)]
        dead = [
            Message(
                id=f"ID:{one}",
                durable=True,
                address=f"queue://{origin}",
                body=one.ljust(size_bytes, "."),
                properties={"testId": one},
            )
            for one in ids
        ]
        self.send_amqp(self.dead_letter_queue, [bytes(one.encode()) for one in dead])
        return ids

    def send_amqp(self, queue_name: str, messages: list[bytes]) -> None:
        """Send encoded messages outside of any transaction."""
        self._reconnect()
        sender = Sender(self.connection, self._link_name(), f"queue://{queue_name}")
        sent = []
        for message in messages:
            assert self.connection.run_until(lambda: sender.credit > 0, PATIENCE_S), sender.refusal
            sent.append(sender.send(message))
        assert self.connection.run_until(lambda: all(is_answered(one) for one in sent), PATIENCE_S)
        assert [refusal_words(one) for one in sent] == [None] * len(sent)
        self._close(sender)

    def kill(self, queue_name: str) -> None:
        """Make dead letters of all that a queue holds, byte for byte, as the broker does."""
        self.send_amqp(self.dead_letter_queue, self.drain_amqp(queue_name))

    def forward(self, queue_name: str, to: str) -> None:
        copies = [bytes(one.encode()) for one in copies_of(self.drain_amqp(queue_name))]
        self.send_amqp(to, copies)

    def drain(self, queue_name: str) -> list[Drained]:
        return [drained(encoded) for encoded in self.drain_amqp(queue_name)]

    def drain_amqp(self, queue_name: str) -> list[bytes]:
        """Consume all that a queue holds and return it as it is encoded."""
        self._reconnect()
        receiver = Receiver(self.connection, self._link_name(), f"queue://{queue_name}")
        found: list[bytes] = []
        while True:
            receiver.drain(500)
            assert self.connection.run_until(lambda: receiver.is_drained, PATIENCE_S), (
                receiver.refusal
            )
            arrived = receiver.take_arrived(500)
            for in_hand, message in arrived:
                receiver.accept(in_hand)
                found.append(message)
            if not arrived:
                break
        self._close(receiver)
        return found

    def close(self) -> None:
        self.connection.close()
        super().close()

    def _link_name(self) -> str:
        self._links += 1
        return f"harness-link-{self._links}"

    def _close(self, end: Sender | Receiver) -> None:
        end.close()
        assert self.connection.run_until(lambda: end.is_closed, PATIENCE_S)
        end.forget()
