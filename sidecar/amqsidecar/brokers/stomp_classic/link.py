"""The link to ActiveMQ Classic over STOMP.

What it rests on (measured on 5.18.3 and 6.3.1): acks and sends of one transaction are atomic; after
ABORT the messages stay in hand and can be acked again, after a COMMIT that fails they can't; a send
that fails without having asked for a receipt makes COMMIT fail, and its ERROR comes at any time;
the broker admits one connection per client id.

NACK is never sent: on a dead-letter queue it destroys the message.
"""

import secrets

from amqsidecar.broker import MoveSession
from amqsidecar.brokers.classic.room import Rooms
from amqsidecar.brokers.classic.statistics import AskStatistics
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.stomp_classic.frame_limit import FrameLimit
from amqsidecar.brokers.stomp_classic.look import PRODUCT, StompClassicLook, StompClassicSettings
from amqsidecar.brokers.stomp_classic.take import StompClassicTake
from amqsidecar.clock import Clock
from amqsidecar.engine.broker_held_queues import refuse_to_move
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.formats.classic_persistence import KeepsNonPersistent, always_keeps
from amqsidecar.model.destination import queue
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.sidecar_names import FINAL_SUFFIX

_CLOSE_TIMEOUT_S = 5.0


class StompClassicLink:
    """Opens connections to one Classic broker; the contract is `broker.Link`."""

    takes_chosen = False

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        final_suffix: str = FINAL_SUFFIX,
        allowed_losses: frozenset[Loss] = frozenset(),
        unreadable: dict[str, str] | None = None,
        keeps_non_persistent: KeepsNonPersistent = always_keeps,
        rooms: Rooms | None = None,
        frame_limit: FrameLimit | None = None,
        crash_point: CrashPoint = no_crash,
        rules_digest: str = "",
        ask_counters: AskStatistics | None = None,
    ) -> None:
        """Prepare; nothing is connected yet.

        Args:
            endpoint: of a connector that speaks STOMP.
            clock: where the time comes from.
            instance: name of this sidecar: one connection has it.
            final_suffix: what final dead-letter queues end with; they are not read.
            allowed_losses: what may get lost by taking a message.
            unreadable: ids of messages whose frames broke a connection, with their queues; added
                to.
            keeps_non_persistent: see `classic_persistence`.
            rooms: which destinations held up a connection; outlives links.
            frame_limit: what size of a frame ended a connection; outlives links.
            crash_point: called at each step of a transaction.
            rules_digest: of the rules that this sidecar decides by, shown by its token.
            ask_counters: where counters of queues are read; None = over the connection.
        """
        self._client_id = f"amqsidecar-{instance}"
        self._settings = StompClassicSettings(
            endpoint,
            clock,
            final_suffix,
            keeps_non_persistent,
            allowed_losses,
            {} if unreadable is None else unreadable,
            Rooms() if rooms is None else rooms,
            FrameLimit() if frame_limit is None else frame_limit,
            crash_point,
            rules_digest,
            ask_counters,
        )

    def look(self) -> StompClassicLook:
        """Connect and log in under a unique client id, which blocks no other connection.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: credentials, permissions or another product.
        """
        connection = self._connect(f"{self._client_id}-looks-{secrets.token_hex(6)}")
        return StompClassicLook(connection, self._settings)

    def take(self, token_queue: str) -> StompClassicTake:
        """Connect, log in as the only connection of this instance, and ask for the token.

        Raises:
            LinkLost: the broker can't be reached, or another connection of this instance is open.
            BrokerRefused: credentials, permissions or another product.
        """
        connection = self._connect(self._client_id)
        try:
            return StompClassicTake(connection, self._settings, queue(token_queue))
        except FrameRefused as cause:
            raise BrokerRefused(f"{connection.name} refused: {cause}") from cause

    def move(self) -> MoveSession:
        """Refuse: Classic can't keep what waits."""
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
