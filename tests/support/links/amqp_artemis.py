"""The harness of the AMQP link to Artemis."""

from collections.abc import Sequence

from proton import Message

from amqsidecar.broker import Delivery, LookSession
from amqsidecar.brokers.amqp.links import AmqpDelivery
from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.clock import SystemClock
from support.brokers.real import spoken
from support.links.amqp_messages import AmqpClient, copies_of, drained
from support.links.artemis import ArtemisHarness
from support.links.harness import Drained
from support.waiting import PATIENCE_S

_SILENT_S_MAX = 20.0
"""The broker ends a connection that is silent for a minute."""


class AmqpArtemisHarness(ArtemisHarness):
    """Dead letters come from AMQP and die by the broker's own management."""

    name = "amqp-artemis"

    def connect(self) -> None:
        """Connect the harness itself."""
        spoken(self.broker.release, "amqp")
        super().connect()
        self._client = AmqpClient(self.broker.endpoint("PORT"), _SILENT_S_MAX)

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
        self._client.send(address, [bytes(one.encode()) for one in messages], capability)

    def forward(self, queue_name: str, to: str) -> None:
        self.send(to, copies_of(self.drain_raw(queue_name)))

    def drain(self, queue_name: str) -> list[Drained]:
        return [drained(encoded) for encoded in self.drain_raw(queue_name)]

    def drain_raw(self, queue_name: str) -> list[bytes]:
        """Consume all that a queue holds and return it as it is encoded."""
        capability = None if "::" in queue_name else "queue"
        return self._client.drain(queue_name, capability, lambda: self.depth(queue_name))

    def drop(self, link: LookSession) -> None:
        assert isinstance(link, AmqpArtemisTake)
        peer = link._connection._socket
        assert peer is not None
        peer.shutdown(2)

    def close(self) -> None:
        self._client.close()
        super().close()


def leave_before_commit(link: AmqpArtemisTake, deliveries: Sequence[Delivery]) -> None:
    """Accept deliveries in a transaction, and stop reading before it commits."""
    transaction = link._cycle._tools.coordinator.begin()
    for delivery in deliveries:
        assert isinstance(delivery.handle, AmqpDelivery)
        transaction.accept(delivery.handle)
    link._connection.pump(0)
    assert link.intake is not None
    intake = link.intake
    intake.close()
    link._connection.run_until(lambda: intake.is_closed, PATIENCE_S)
