"""The link to ActiveMQ Classic over AMQP 1.0.

What keeps messages whole here, each measured on the brokers (`wire-facts.md`, `spec-classic.md` 8):

- Before anything is read, a probe finds out what the connector makes of messages.
- No dead letter shows where it died, so only queues are read whose origin the name, or the
  operator, gives.
- One transaction is open at a time: two interleaved ones lose messages.
- The container id is the broker's client id: one connection of an instance keeps every other out.
- Nothing is ever rejected, modified or released on a dead-letter queue.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from amqsidecar.broker import MoveSession
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.parts import AmqpParts
from amqsidecar.brokers.amqp_classic.look import AmqpClassicLook, AmqpClassicSettings
from amqsidecar.brokers.amqp_classic.take import AmqpClassicTake
from amqsidecar.brokers.amqp_classic.watch import OriginNames
from amqsidecar.brokers.classic.statistics import AskStatistics
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import Clock
from amqsidecar.engine.broker_held_queues import refuse_to_move
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.formats.classic_persistence import KeepsNonPersistent, always_keeps
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.sidecar_names import FINAL_SUFFIX


class AmqpClassicLink:
    """Opens AMQP connections to one Classic broker; see `Link` of the broker contract."""

    takes_chosen = False

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        names: OriginNames,
        final_suffix: str = FINAL_SUFFIX,
        amqp_producers_only: bool = False,
        allowed_losses: frozenset[Loss] = frozenset(),
        keeps_non_persistent: KeepsNonPersistent = always_keeps,
        crash_point: CrashPoint = no_crash,
        rules_digest: str = "",
        ask_counters: AskStatistics | None = None,
    ) -> None:
        """Prepare a link; nothing is connected yet.

        Args:
            endpoint: of a connector that speaks AMQP.
            clock: where the time comes from.
            instance: name of this sidecar, part of the container id: one connection has it.
            names: where the messages of a dead-letter queue died, unless `IntakeQueue.origin` says.
            final_suffix: what final dead-letter queues end with; they are not read.
            amqp_producers_only: read only what AMQP applications have made, where the connector
                keeps such messages whole and no others.
            allowed_losses: what messages may lose; only `Loss.BODY_TYPE` acts.
            keeps_non_persistent: see `classic_mode`.
            crash_point: called at each step of a transaction.
            rules_digest: of the rules that this sidecar decides by, shown by its token.
            ask_counters: where counters of queues are read; None = over the connection.
        """
        self._endpoint = endpoint
        self._instance = instance
        self._settings = AmqpClassicSettings(
            clock,
            names,
            endpoint.connect_timeout_s,
            final_suffix,
            amqp_producers_only,
            allowed_losses,
            keeps_non_persistent,
            crash_point,
            rules_digest,
            ask_counters,
        )

    def look(self) -> AmqpClassicLook:
        """Connect and log in under a unique container id, which blocks no other connection."""
        container = f"amqsidecar-{self._instance}-looks-{uuid4().hex[:12]}"
        with self._connected(container) as (connection, parts):
            return AmqpClassicLook(connection, parts, self._settings)

    def take(self, token_queue: str) -> AmqpClassicTake:
        """Connect as the only one of the instance, try the connector, and wait for the token."""
        with self._connected(f"amqsidecar-{self._instance}") as (connection, parts):
            return AmqpClassicTake(connection, parts, self._settings, token_queue)

    def move(self) -> MoveSession:
        """Refuse: Classic can't keep what waits."""
        refuse_to_move(self)

    @contextmanager
    def _connected(self, container: str) -> Iterator[tuple[AmqpConnection, AmqpParts]]:
        """Connect; disconnect if that or the block fails."""
        try:
            connection = AmqpConnection(self._endpoint, self._settings.clock, container)
        except BrokerRefused as refused:
            if "already connected" in str(refused):
                raise LinkLost(
                    f"another connection of this instance is still open: {refused}"
                ) from refused
            raise
        parts = AmqpParts(connection)
        with parts.kept():
            product = connection.remote_properties().get("product") or "an unknown product"
            if "artemis" in product.lower() or "activemq" not in product.lower():
                raise BrokerRefused(
                    f"{connection.place} is {product}, not ActiveMQ Classic; set broker.kind=auto"
                )
            yield connection, parts
