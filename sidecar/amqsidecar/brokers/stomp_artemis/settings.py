"""The settings of a link to Artemis over STOMP."""

from dataclasses import dataclass

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.left_behind import Loss


@dataclass(frozen=True, kw_only=True)
class StompArtemisSettings(ArtemisLinkSettings):
    """Settings of a `StompArtemisLink`.

    Attributes:
        allowed_losses: what messages may lose that are taken nevertheless.
    """

    allowed_losses: frozenset[Loss] = frozenset()

    def connect(self) -> StompConnection:
        """Connect and log in.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: credentials, permissions or another product.
        """
        connection = StompConnection(self.endpoint, self.clock)
        if "artemis" not in connection.server.lower():
            connection.close()
            name = connection.server or "an unknown product"
            raise BrokerRefused(f"{connection.name} is {name}, not Apache Artemis")
        return connection
