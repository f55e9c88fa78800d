"""The link to Apache Artemis over Core, its own protocol.

These rules keep messages whole, each measured on the broker (`core-protocol.md`):

- Each send is answered, so a failing send is known before anything is acknowledged.
- Acknowledgements, also the token's, follow only after every send was accepted: each transaction
  that fails with acknowledgements in it counts as a failed delivery, and ten destroy the origin.
- Over Core the broker silently drops a message that no queue takes: the link asks for the queues
  before and after.
- Sessions are closed before the connection: messages in hand then go back uncounted.
- Messages of AMQP clients are not read: the broker would convert them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.trials import meeting
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.refusal import CoreRefused
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.core_artemis.look import CoreArtemisLook, CoreArtemisOpened, hang_up
from amqsidecar.brokers.core_artemis.management import CoreManagement
from amqsidecar.brokers.core_artemis.take import CoreArtemisMove, CoreArtemisTake
from amqsidecar.errors import BrokerRefused


class CoreArtemisLink:
    """Opens Core connections to one Artemis broker; see `Link` of the broker contract."""

    def __init__(self, settings: ArtemisLinkSettings) -> None:
        self._settings = settings

    def look(self) -> CoreArtemisLook:
        with self._connected() as opened:
            return CoreArtemisLook(opened, self._settings)

    def take(self, token_queue: str) -> CoreArtemisTake:
        with self._connected() as opened:
            session = _transacted(opened)
            return CoreArtemisTake(opened, self._settings, session, token_queue)

    def move(self) -> CoreArtemisMove:
        clock = self._settings.clock
        began_ms, began_s = clock.now_ms(), clock.monotonic_s()
        with self._connected() as opened:
            met = meeting(opened.management, opened.client_id, began_ms, began_s)
            return CoreArtemisMove(opened, self._settings, _transacted(opened), met)

    @contextmanager
    def _connected(self) -> Iterator[CoreArtemisOpened]:
        """Connect; disconnect when that fails, or the body of the `with` does."""
        clock = self._settings.clock
        client_id = f"{self._settings.client_id}-{uuid4().hex[:12]}"
        connection = CoreConnection(self._settings.endpoint, clock)
        try:
            service = connection.create_session(
                is_transacted=False, is_settled=True, client_id=client_id
            )
            service.start()
            management = CoreManagement(service)
            yield CoreArtemisOpened(connection, client_id, service, management)
        except CoreRefused as refused:
            hang_up(connection, ())
            raise BrokerRefused(f"{connection.name} refused: {refused}") from refused
        except BaseException:
            hang_up(connection, ())
            raise


def _transacted(opened: CoreArtemisOpened) -> CoreSession:
    session = opened.connection.create_session(is_transacted=True)
    session.start()
    return session
