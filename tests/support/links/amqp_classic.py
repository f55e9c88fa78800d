"""The harnesses of the AMQP link to Classic: mapped messages, and native ones."""

from proton import Message

from amqsidecar.broker import IntakeQueue, LookSession
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp_classic.link import AmqpClassicLink
from amqsidecar.brokers.amqp_classic.take import AmqpClassicTake
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.clock import SystemClock
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.model.destination import queue
from amqsidecar.model.left_behind import Loss
from support.brokers.real import Broker
from support.links.amqp_messages import AmqpClient, copies_of, drained
from support.links.harness import Drained
from support.links.openwire import ClassicHarness

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
        # Why 0: the broker ends a connection that was silent while a sidecar worked.
        self._client = AmqpClient(broker.endpoint(self.port), 0)

    @property
    def connection(self) -> AmqpConnection:
        """A new connection."""
        return self._client.connection

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
        self._client.send(f"queue://{queue_name}", messages)

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
        return self._client.drain(f"queue://{queue_name}", None, lambda: 0)

    def close(self) -> None:
        self._client.close()
        super().close()
