"""Hears over AMQP which queues Artemis makes and deletes; without permission nothing is heard."""

import logging
from collections.abc import Iterator

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.artemis.queue_watch import BINDING_SELECTOR, NOTIFICATIONS
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp

_CREDIT = 1000
_WAITING_BYTES_MAX = 16 * 1024 * 1024

_log = logging.getLogger(__name__)


class Notifications:
    """The subscription to the broker's notifications of one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        """Begin to subscribe; the answer is not waited for."""
        self._receiver = Receiver(
            connection,
            "amqsidecar-notifications",
            NOTIFICATIONS,
            capability="topic",
            selector=BINDING_SELECTOR,
            # Why: one in hand would be a dead letter after a death (see `ArtemisManagement`).
            is_settled=True,
            waiting_bytes_max=_WAITING_BYTES_MAX,
        )
        self._receiver.flow(_CREDIT)
        self._is_refusal_told = False

    def take(self) -> Iterator[tuple[str, str, bool]]:
        """Return name and address of each created or deleted queue, and whether it was created."""
        receiver = self._receiver
        if receiver.refusal is not None and not self._is_refusal_told:
            self._is_refusal_told = True
            _log.info(
                "new dead-letter queues are found at the next look and not at once: the broker's "
                "notifications can't be read (%s); grant createNonDurableQueue and consume on %s",
                receiver.refusal,
                NOTIFICATIONS,
            )
        for in_hand, message in receiver.take_arrived(_CREDIT):
            receiver.accept(in_hand)
            if receiver.is_open:
                receiver.flow(1)
            told = _read(message)
            if told is not None:
                yield told

    def close(self) -> None:
        """Begin to end the subscription."""
        self._receiver.close()

    @property
    def is_closed(self) -> bool:
        """Whether both sides have ended it."""
        return self._receiver.is_closed


def _read(message: bytes) -> tuple[str, str, bool] | None:
    try:
        pairs = amqp.elements(amqp.split(message).get(amqp.APPLICATION_PROPERTIES, b""))
        found = {
            amqp.scalar(key): amqp.scalar(value)
            for key, value in zip(pairs[::2], pairs[1::2], strict=True)
        }
    except (UndecodableMessage, ValueError):
        return None
    name, address = found.get("_AMQ_RoutingName"), found.get("_AMQ_Address")
    if not isinstance(name, str) or not isinstance(address, str):
        return None
    return name, address, found.get("_AMQ_NotifType") == "BINDING_ADDED"
