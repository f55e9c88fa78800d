"""The link to ActiveMQ Classic over AMQP 1.0.

Rules that keep messages whole, measured on the brokers (`wire-facts.md`, `spec-classic.md` 8):

- Before anything is read, a probe finds out how the connector transforms messages.
- No dead letter shows where it died, so a queue is read only if its name or the operator gives
  the origin.
- One transaction is open at a time: two interleaved transactions lose messages.
- The container id is the broker's client id: one connection of an instance keeps every other out.
- No message of a dead-letter queue is ever rejected, modified or released.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from amqsidecar.broker import MoveSession
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp_classic.look import AmqpClassicLook
from amqsidecar.brokers.amqp_classic.take import AmqpClassicTake
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.engine.broker_held_queues import refuse_to_move
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)


class AmqpClassicLink:
    """Opens AMQP connections to one Classic broker; see `Link` of the broker contract."""

    def __init__(self, settings: ClassicLinkSettings) -> None:
        self._settings = settings

    def look(self) -> AmqpClassicLook:
        """Connect and log in under a unique container id, which blocks no other connection."""
        container = f"{self._settings.client_id}-looks-{uuid4().hex[:12]}"
        with self._connected(container) as connection:
            return AmqpClassicLook(connection, self._settings)

    def take(self, token_queue: str) -> AmqpClassicTake:
        """Connect as the only one of the instance, try the connector, and wait for the token."""
        with self._connected(self._settings.client_id) as connection:
            return AmqpClassicTake(connection, self._settings, token_queue)

    def move(self) -> MoveSession:
        """Refuse: Classic can't keep waiting messages."""
        refuse_to_move(self)

    @contextmanager
    def _connected(self, container: str) -> Iterator[AmqpConnection]:
        """Connect; disconnect if that or the block fails."""
        try:
            connection = AmqpConnection(self._settings.endpoint, self._settings.clock, container)
        except BrokerRefused as refused:
            if "already connected" in str(refused):
                raise LinkLost(
                    f"another connection of this instance is still open: {refused}"
                ) from refused
            raise
        try:
            product = connection.remote_properties().get("product") or "an unknown product"
            if "artemis" in product.lower() or "activemq" not in product.lower():
                raise BrokerRefused(
                    f"{connection.place} is {product}, not ActiveMQ Classic; set broker.kind=auto"
                )
            yield connection
        except BaseException:
            connection.close()
            raise
