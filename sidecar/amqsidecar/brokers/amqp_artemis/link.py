"""The link to Apache Artemis over AMQP 1.0.

These rules keep messages whole, each measured on the broker (`wire-facts.md`, `spec-artemis.md`):

- Deliveries are accepted under the transaction but settled only after the commit: after an abort
  they are still in hand, and can be accepted by the next transaction.
- Accepts, also the token's, are sent only after every send was accepted: each transaction that
  fails with accepts in it counts as a failed delivery of them, and ten destroy the origin.
- The discharge is sent only after that, for it overtakes sends that wait for credit.
- Links are closed before the connection: messages in hand then go back uncounted.
- No message of a dead-letter queue is ever rejected, modified or released.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.transaction import Coordinator
from amqsidecar.brokers.amqp_artemis.look import AmqpArtemisLook, AmqpArtemisOpened
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisMove, AmqpArtemisTake
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.trials import meeting
from amqsidecar.errors import BrokerRefused


class AmqpArtemisLink:
    """Opens AMQP connections to one Artemis broker; see `Link` of the broker contract."""

    def __init__(self, settings: ArtemisLinkSettings) -> None:
        self._settings = settings

    def look(self) -> AmqpArtemisLook:
        with self._connected() as (connection, client_id):
            opened = AmqpArtemisOpened(connection, client_id, ArtemisManagement(connection))
            return AmqpArtemisLook(opened, self._settings)

    def take(self, token_queue: str) -> AmqpArtemisTake:
        with self._transacted() as (opened, coordinator):
            return AmqpArtemisTake(opened, self._settings, coordinator, token_queue)

    def move(self) -> AmqpArtemisMove:
        clock = self._settings.clock
        began_ms, began_s = clock.now_ms(), clock.monotonic_s()
        with self._transacted() as (opened, coordinator):
            met = meeting(opened.management, opened.client_id, began_ms, began_s)
            return AmqpArtemisMove(opened, self._settings, coordinator, met)

    @contextmanager
    def _transacted(self) -> Iterator[tuple[AmqpArtemisOpened, Coordinator]]:
        with self._connected() as (connection, client_id):
            coordinator = Coordinator(connection, self._settings.crash_point)
            management = ArtemisManagement(connection)
            yield AmqpArtemisOpened(connection, client_id, management), coordinator

    @contextmanager
    def _connected(self) -> Iterator[tuple[AmqpConnection, str]]:
        """Connect; disconnect when that fails, or the body of the `with` does."""
        client_id = f"{self._settings.client_id}-{uuid4().hex[:12]}"
        connection = AmqpConnection(self._settings.endpoint, self._settings.clock, client_id)
        try:
            product = connection.remote_properties().get("product", "")
            if "artemis" not in product.lower():
                raise BrokerRefused(
                    f"{connection.place} is {product or 'an unknown product'}, not Apache Artemis; "
                    "for ActiveMQ Classic use an openwire:// URL"
                )
            yield connection, client_id
        except BaseException:
            connection.close()
            raise
