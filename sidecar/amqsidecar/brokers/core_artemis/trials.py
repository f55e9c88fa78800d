"""What a doctor tries on an Artemis over Core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from typing_extensions import override

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.left_behind import left_amqp_made
from amqsidecar.brokers.artemis.trials import EMPTIED, ArtemisTrials
from amqsidecar.brokers.connection.refusal import refusal_of
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.refusal import QUEUE_MISSING, CoreRefused
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.core_artemis.management import CoreManagement
from amqsidecar.brokers.core_artemis.targets import make_missing_queue
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import (
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    new_message,
)
from amqsidecar.formats.core_artemis_message import ROUTING_TYPE
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class CoreTrials(ArtemisTrials):
    """Trials over one Core connection, each in a session of its own that is never started."""

    def __init__(
        self,
        connection: CoreConnection,
        management: CoreManagement,
        selector: str,
        why_amqp_left: Callable[[], str],
    ) -> None:
        super().__init__(management)
        self._connection = connection
        self._selector = selector
        self._why_amqp_left = why_amqp_left

    @contextmanager
    def _session(self) -> Iterator[CoreSession]:
        session = self._connection.create_session(is_transacted=True)
        try:
            yield session
        finally:
            session.close()

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The broker makes a queue that is missing where it may.
        """
        return refusal_of(lambda: self._consume_nothing(destination))

    def _consume_nothing(self, destination: Destination) -> None:
        with self._session() as session:
            if "::" not in destination.name:
                make_missing_queue(session, destination)
            session.create_consumer(destination.name.rpartition("::")[2], window_bytes=1)

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        What is sent is undone. The broker makes a queue that is missing where it may.
        """
        return refusal_of(lambda: self._send_nothing(destination))

    def _send_nothing(self, destination: Destination) -> None:
        with self._session() as session:
            if destination.is_queue and "::" not in destination.name:
                make_missing_queue(session, destination)
            refused = session.answers([session.ask_send(_empty_message(destination))])[0]
            if refused is not None:
                raise refused

    @override
    def _empty(self, destination: Destination) -> str | None:
        try:
            with self._session() as session:
                session.delete_queue(destination.name)
        except CoreRefused as refused:
            return None if refused.kind == QUEUE_MISSING else EMPTIED
        return None

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return what AMQP clients have made."""
        why = self._why_amqp_left() if self._selector else ""
        if why:
            self._management.demand(
                "only users with the manage permission can see which messages AMQP clients have "
                "made, which stay"
            )
        return left_amqp_made(self._management, [queue.destination], why)


def _empty_message(destination: Destination) -> CoreMessage:
    kind = packets.ANYCAST if destination.is_queue else packets.MULTICAST
    routing = {ROUTING_TYPE: CoreProperty(CorePropertyType.BYTE, kind)}
    return new_message(destination.name, routing, timestamp_ms=0)
