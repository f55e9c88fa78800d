"""Asks the management of a real Artemis over Core, which each release speaks."""

from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core_artemis.management import CoreManagement
from amqsidecar.clock import SystemClock
from support.brokers.real import ArtemisBroker
from support.waiting import PATIENCE_S


class ArtemisManager(CoreManagement):
    """The management, over a connection of its own.

    Attributes:
        connection: the broker keeps it, however long nobody asks.
    """

    answer_s = PATIENCE_S

    def __init__(self, broker: ArtemisBroker) -> None:
        self.connection = CoreConnection(broker.endpoint("PORT", idle_timeout_s=0), SystemClock())
        session = self.connection.create_session(is_transacted=False, is_settled=True)
        session.start()
        super().__init__(session)
        assert self.is_usable, self.why_unusable

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
