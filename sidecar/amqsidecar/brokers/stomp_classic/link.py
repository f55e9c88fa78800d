"""The link to ActiveMQ Classic over STOMP.

It relies on these facts (measured on 5.18.3 and 6.3.1): acks and sends of one transaction are
atomic; after ABORT the messages stay in hand and can be acked again, after a failed COMMIT they
can't; a failed send that asked for no receipt makes COMMIT fail, and its ERROR comes at any time;
the broker admits one connection per client id.

NACK is never sent: on a dead-letter queue it destroys the message.
"""

import secrets

from amqsidecar.broker import MoveSession
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_classic.look import PRODUCT, StompClassicLook
from amqsidecar.brokers.stomp_classic.take import StompClassicTake
from amqsidecar.engine.broker_held_queues import refuse_to_move
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.model.destination import queue

_CLOSE_TIMEOUT_S = 5.0


class StompClassicLink:
    """Opens connections to one Classic broker; the contract is `broker.Link`."""

    def __init__(self, settings: ClassicLinkSettings) -> None:
        self._settings = settings

    def look(self) -> StompClassicLook:
        """Connect and log in under a unique client id, which blocks no other connection."""
        connection = self._connect(f"{self._settings.client_id}-looks-{secrets.token_hex(6)}")
        return StompClassicLook(connection, self._settings)

    def take(self, token_queue: str) -> StompClassicTake:
        connection = self._connect(self._settings.client_id)
        return StompClassicTake(connection, self._settings, queue(token_queue))

    def move(self) -> MoveSession:
        """Refuse: Classic can't keep waiting messages."""
        refuse_to_move(self)

    def _connect(self, client_id: str) -> StompConnection:
        settings = self._settings
        try:
            connection = StompConnection(settings.endpoint, settings.clock, client_id=client_id)
        except BrokerRefused as cause:
            if "already connected" in str(cause):
                raise LinkLost(
                    f"another connection of this instance is still open: {cause}"
                ) from cause
            raise
        if not connection.server.startswith(PRODUCT):
            connection.disconnect(_CLOSE_TIMEOUT_S)
            raise BrokerRefused(
                f"{connection.name} is {connection.server or 'an unknown product'}, not ActiveMQ "
                "Classic"
            )
        return connection
