"""Hears over Core which queues Artemis makes and deletes; without permission nothing is heard."""

import logging
from collections.abc import Iterator
from uuid import uuid4

from amqsidecar.brokers.artemis.queue_watch import BINDING_SELECTOR, NOTIFICATIONS
from amqsidecar.brokers.core.refusal import CoreRefused
from amqsidecar.brokers.core.session import NO_CONSUMER, CoreSession
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import CoreMessage, read_core_properties
from amqsidecar.formats.core.primitives import CoreProtocolError

_WINDOW_BYTES = 1 << 20

_log = logging.getLogger(__name__)


class CoreNotifications:
    """The subscription to the broker's notifications over one settled session."""

    def __init__(self, session: CoreSession) -> None:
        """Subscribe, where the user may.

        Raises:
            LinkLost: the connection is gone.
        """
        self._session = session
        self._consumer = NO_CONSUMER
        name = str(uuid4())
        try:
            session.create_queue(
                name,
                address=NOTIFICATIONS,
                routing_type=packets.MULTICAST,
                temporary=True,
                selector=BINDING_SELECTOR,
            )
            self._consumer = session.create_consumer(name, window_bytes=_WINDOW_BYTES)
        except CoreRefused as refused:
            _log.info(
                "new dead-letter queues are found at the next look and not at once: the broker's "
                "notifications can't be read (%s); grant createNonDurableQueue and consume on %s",
                refused,
                NOTIFICATIONS,
            )

    def take(self) -> Iterator[tuple[str, str, bool]]:
        """Return name and address of each created or deleted queue, and whether it was created."""
        for delivery in self._session.take_from(self._consumer):
            self._session.give_back(delivery)
            if delivery.large_body is not None:
                delivery.large_body.close()
            told = _read(delivery.message)
            if told is not None:
                yield told


def _read(message: CoreMessage) -> tuple[str, str, bool] | None:
    try:
        found = read_core_properties(message.properties)
        name, address = found["_AMQ_RoutingName"].value, found["_AMQ_Address"].value
        kind = found["_AMQ_NotifType"].value
    except (CoreProtocolError, KeyError):
        return None
    if not isinstance(name, str) or not isinstance(address, str):
        return None
    return name, address, kind == "BINDING_ADDED"
