"""The link to ActiveMQ Classic over OpenWire.

It relies on these facts (measured on 5.18.3 and 6.3.1): acks and sends of one local transaction are
atomic; after a rollback the messages stay dispatched and can be acked again; a failed command that
asked for no answer marks its transaction as rollback-only; the broker admits one connection per
client id, and releases the id only after it has rolled back that connection's open transactions.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from amqsidecar.broker import MoveSession
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.brokers.openwire.look import OpenWireLook, hang_up
from amqsidecar.brokers.openwire.take import OpenWireTake
from amqsidecar.engine.broker_held_queues import refuse_to_move
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.model.destination import queue


class OpenWireLink:
    """Opens connections to one Classic broker; the contract is `broker.Link`."""

    def __init__(self, settings: ClassicLinkSettings) -> None:
        self._settings = settings

    def look(self) -> OpenWireLook:
        """Connect and log in under a unique client id, which blocks no other connection."""
        with self._logged_in(
            f"{self._settings.client_id}-looks-{secrets.token_hex(6)}"
        ) as connection:
            return OpenWireLook(connection, self._settings)

    def take(self, token_queue: str) -> OpenWireTake:
        with self._logged_in(self._settings.client_id) as connection:
            return OpenWireTake(connection, self._settings, queue(token_queue))

    def move(self) -> MoveSession:
        """Refuse: Classic can't keep waiting messages."""
        refuse_to_move(self)

    @contextmanager
    def _logged_in(self, client_id: str) -> Iterator[OpenWireConnection]:
        """Connect and log in; disconnect if that or the block fails."""
        settings = self._settings
        connection = OpenWireConnection(settings.endpoint, settings.clock)
        try:
            self._log_in(connection, client_id)
            yield connection
            if connection.is_artemis:
                raise BrokerRefused(
                    f"{connection.name} is Apache Artemis, and openwire:// is for Classic: write "
                    "artemis:// into broker.url"
                )
        except CommandRefused as cause:
            hang_up(connection)
            raise BrokerRefused(f"{connection.name} refused: {cause}") from cause
        except BaseException:
            hang_up(connection)
            raise

    def _log_in(self, connection: OpenWireConnection, client_id: str) -> None:
        name, endpoint = connection.connection, self._settings.endpoint
        try:
            info = codec.connection_info(
                name, client_id, endpoint.user, endpoint.credentials.secret()
            )
            connection.call(codec.CONNECTION_INFO, info)
        except CommandRefused as cause:
            if cause.reason.kind.endswith("InvalidClientIDException"):
                raise LinkLost(
                    f"another connection of this instance is still open: {cause}"
                ) from cause
            raise
        connection.call(codec.SESSION_INFO, codec.session_id(name))
