"""The link to Apache Artemis over STOMP 1.2: exactly once although an ACK knows no transaction.

An ACK in a STOMP transaction acts at once on Artemis and is not undone. So a cycle is:

1. BEGIN, all SENDs, SEND of token k, COMMIT, and its receipt;
2. only then ACK of token k-1 and of every dead letter, and the receipt of the last one.

Token k names the dead letters that cycle k accepts by the numbers that the broker gave them, which
no producer can forge and which stay while they lie in their queue. Whatever ends in between:

- before the commit: the broker undoes the transaction with the connection, and gives token k-1 and
  the dead letters back;
- between the commit and the last ACK (crash point `accepting`): the heir finds tokens k-1 and k,
  removes the first, and acknowledges what k names when it comes again, without handing it over.
  A later token goes on naming what has not come yet, until it is known to be gone;
- a broker that is killed there: commit and ACKs go through one journal in order, and an ACK is
  answered once it is written. What was answered is durable, what was not is named by token k;
- an ACK of cycle k is answered before cycle k+1 is committed, so a token needs no older names.

What remains as a window: a named dead letter that is moved before it comes again (by its expiry, an
operator, or the broker after too many failed deliveries) has a new number, and is a copy there;
and another sidecar that reads the same dead-letter queue doesn't know the names.

Four connections, since the broker ends a connection with each ERROR: the token's, which carries
the transactions, so that the token fences them; that of the dead letters, which therefore stay in
hand when a send is refused; the management's; and one that hears of new queues.
"""

from collections.abc import Collection

from amqsidecar.broker import MoveSession
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_artemis.look import StompArtemisLook, StompArtemisSettings
from amqsidecar.brokers.stomp_artemis.take import StompArtemisTake
from amqsidecar.clock import Clock
from amqsidecar.engine.broker_held_queues import refuse_to_move
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.resend_effect import ResendEffect
from amqsidecar.model.sidecar_names import FINAL_SUFFIX


class StompArtemisLink:
    """Opens STOMP connections to one Artemis broker; see `Link` of the broker contract."""

    takes_chosen = False

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        final_suffix: str = FINAL_SUFFIX,
        allowed_losses: Collection[Loss] = (),
        allowed_effects: Collection[ResendEffect] = (),
        crash_point: CrashPoint = no_crash,
        rules_digest: str = "",
    ) -> None:
        """Prepare a link; nothing is connected yet.

        Args:
            endpoint: of an acceptor that speaks STOMP.
            clock: where the time comes from.
            instance: name of this sidecar, part of the address for answers of the management.
            final_suffix: what final dead-letter queues end with; they are not read.
            allowed_losses: what messages may lose that are taken nevertheless.
            allowed_effects: what redeliveries may do besides going to their queue.
            crash_point: called at each step of a transaction.
            rules_digest: of the rules that this sidecar decides by, shown by its token.
        """
        self._endpoint = endpoint
        self._settings = StompArtemisSettings(
            self._connect,
            endpoint.user or "anonymous",
            clock,
            instance,
            final_suffix,
            frozenset(allowed_losses),
            allowed_effects,
            crash_point,
            rules_digest,
        )

    def _connect(self) -> StompConnection:
        connection = StompConnection(self._endpoint, self._settings.clock)
        if "artemis" not in connection.server.lower():
            connection.close()
            name = connection.server or "an unknown product"
            raise BrokerRefused(f"{connection.name} is {name}, not Apache Artemis")
        return connection

    def look(self) -> StompArtemisLook:
        """Connect and log in, only to look."""
        return StompArtemisLook(self._settings)

    def take(self, token_queue: str) -> StompArtemisTake:
        """Connect, log in, and begin to wait for the token."""
        return StompArtemisTake(self._settings, token_queue)

    def move(self) -> MoveSession:
        """Refuse: over STOMP Artemis can't move what it keeps in one transaction."""
        refuse_to_move(self)
