"""Hears over STOMP which queues Artemis makes and deletes; without permission nothing is heard.

It has a connection of its own, since the broker ends a connection when it refuses a frame.
"""

import logging
from collections.abc import Callable, Iterator

from amqsidecar.brokers.artemis.queue_watch import BINDING_SELECTOR, NOTIFICATIONS
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.errors import BrokerRefused, LinkLost

_log = logging.getLogger(__name__)


class StompNotifications:
    """The subscription to the broker's notifications."""

    def __init__(self, connect: Callable[[], StompConnection]) -> None:
        self._connect = connect
        self._connection: StompConnection | None = None
        self._is_refused = False

    def begin(self) -> None:
        """Subscribe, unless that was done or refused; never raises."""
        if self._connection is not None or self._is_refused:
            return
        connection = None
        try:
            connection = self._connect()
            connection.call(
                "SUBSCRIBE",
                [
                    (b"destination", NOTIFICATIONS.encode()),
                    (b"subscription-type", b"MULTICAST"),
                    (b"id", b"notifications"),
                    (b"ack", b"auto"),
                    (b"selector", BINDING_SELECTOR.encode()),
                ],
            )
        except (FrameRefused, BrokerRefused, LinkLost) as cause:
            if connection is not None:
                connection.close()
            self._is_refused = True
            _log.info(
                "new dead-letter queues are found at the next look and not at once: the broker's "
                "notifications can't be read (%s); grant createNonDurableQueue and consume on %s",
                cause,
                NOTIFICATIONS,
            )
        else:
            self._connection = connection

    def take(self) -> Iterator[tuple[str, str, bool]]:
        """Return name and address of each queue that came or went, and whether it came."""
        connection = self._connection
        if connection is None:
            return
        try:
            connection.poll()
        except LinkLost:
            connection.close()
            self._connection = None
        while connection.messages:
            frame = connection.next_message()
            name, address = frame.text(b"_AMQ_RoutingName"), frame.text(b"_AMQ_Address")
            if name and address:
                yield name, address, frame.text(b"_AMQ_NotifType") == "BINDING_ADDED"

    def close(self) -> None:
        """End the subscription."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
