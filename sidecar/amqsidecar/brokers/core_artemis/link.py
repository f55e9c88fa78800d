"""The link to Apache Artemis over Core, its own protocol.

What keeps messages whole here, each measured on the broker (`core-protocol.md`):

- Each send is answered, so that the one that fails is known before anything is acknowledged.
- Acknowledgements, that of the token too, follow only after every send was taken: each transaction
  that fails with acknowledgements in it counts as a failed delivery, and ten destroy the origin.
- Over Core the broker drops what no queue takes without a word: queues are asked for before and
  after.
- Sessions are closed before the connection: what is in hand then goes back uncounted.
- What AMQP clients have made is not read: the broker would convert it.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from uuid import uuid4

from amqsidecar.brokers.artemis.amqp_made import MADE_BY_OTHERS, why_left_by_core
from amqsidecar.brokers.artemis.meeting import meeting
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.refusal import CoreRefused
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.core_artemis.look import (
    CoreArtemisLook,
    CoreArtemisOpened,
    CoreArtemisSettings,
    hang_up,
)
from amqsidecar.brokers.core_artemis.management import CoreManagement
from amqsidecar.brokers.core_artemis.take import CoreArtemisMove, CoreArtemisTake
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.resend_effect import ResendEffect
from amqsidecar.model.sidecar_names import FINAL_SUFFIX


class CoreArtemisLink:
    """Opens Core connections to one Artemis broker; see `Link` of the broker contract."""

    takes_chosen = True

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        final_suffix: str = FINAL_SUFFIX,
        allowed_effects: Collection[ResendEffect] = (),
        selector: str = MADE_BY_OTHERS,
        why_amqp_left: Callable[[], str] = why_left_by_core,
        rules_digest: str = "",
        crash_point: CrashPoint = no_crash,
    ) -> None:
        """Prepare a link; nothing is connected yet.

        Args:
            endpoint: of an acceptor that speaks CORE.
            clock: where the time comes from.
            instance: name of this sidecar, part of the unique client id.
            final_suffix: what final dead-letter queues end with; they are not read.
            allowed_effects: what redeliveries may do besides going to their queue.
            selector: of what may be read; what it leaves is reported. "" = everything.
            why_amqp_left: returns why messages of AMQP clients stay; raises LinkLost where another
                link would take them by now.
            rules_digest: of the rules that this sidecar decides by, shown by its token.
            crash_point: called at each step of a transaction.
        """
        self._endpoint = endpoint
        self._settings = CoreArtemisSettings(
            clock,
            instance,
            endpoint.connect_timeout_s,
            final_suffix,
            allowed_effects,
            selector,
            why_amqp_left,
            rules_digest,
            crash_point,
        )

    def look(self) -> CoreArtemisLook:
        """Connect and log in, only to look."""
        with self._connected() as opened:
            return CoreArtemisLook(opened, self._settings)

    def take(self, token_queue: str) -> CoreArtemisTake:
        """Connect, log in, prepare transactions and begin to wait for the token."""
        with self._connected() as opened:
            session = _transacted(opened)
            return CoreArtemisTake(opened, self._settings, session, token_queue)

    def move(self) -> CoreArtemisMove:
        """Connect, log in and prepare transactions, without a token."""
        clock = self._settings.clock
        began_ms, began_s = clock.now_ms(), clock.monotonic_s()
        with self._connected() as opened:
            met = meeting(opened.management, opened.client_id, began_ms, began_s)
            return CoreArtemisMove(opened, self._settings, _transacted(opened), met)

    @contextmanager
    def _connected(self) -> Iterator[CoreArtemisOpened]:
        """Connect; disconnect when that fails, or the body of the `with` does."""
        clock = self._settings.clock
        client_id = f"amqsidecar-{self._settings.instance}-{uuid4().hex[:12]}"
        connection = CoreConnection(self._endpoint, clock)
        try:
            service = connection.create_session(
                is_transacted=False, is_settled=True, client_id=client_id
            )
            service.start()
            management = CoreManagement(connection, service, clock)
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
