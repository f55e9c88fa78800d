"""Hears over STOMP which queues Artemis makes and deletes; without permission nothing is heard.

It has a connection of its own, since the broker ends a connection when it refuses a frame.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from amqsidecar.brokers.artemis.queue_watch import BINDING_SELECTOR, NOTIFICATIONS
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.errors import BrokerRefused, LinkLost

_log = logging.getLogger(__name__)


class _Silent(NamedTuple):
    """There is no subscription now."""


class _Subscribed(NamedTuple):
    """Notifications come over this connection."""

    connection: StompConnection


class _Refused(NamedTuple):
    """The broker gives no subscription."""


class StompNotifications:
    """The subscription to the broker's notifications."""

    def __init__(self, connect: Callable[[], StompConnection]) -> None:
        self._connect = connect
        self._state: _Silent | _Subscribed | _Refused = _Silent()

    def begin(self) -> None:
        """Subscribe, unless that was done or refused; never raises."""
        if not isinstance(self._state, _Silent):
            return
        try:
            self._state = _Subscribed(self._subscribed())
        except (FrameRefused, BrokerRefused, LinkLost) as cause:
            self._state = _Refused()
            _log.info(
                "new dead-letter queues are found at the next look and not at once: the broker's "
                "notifications can't be read (%s); grant createNonDurableQueue and consume on %s",
                cause,
                NOTIFICATIONS,
            )

    def _subscribed(self) -> StompConnection:
        connection = self._connect()
        try:
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
        except BaseException:
            connection.close()
            raise
        return connection

    def take(self) -> Iterator[tuple[str, str, bool]]:
        """Return name and address of each created or deleted queue, and whether it was created."""
        if not isinstance(self._state, _Subscribed):
            return
        connection = self._state.connection
        try:
            connection.poll()
        except LinkLost:
            self.close()
        while connection.messages:
            frame = connection.next_message()
            name, address = frame.text(b"_AMQ_RoutingName"), frame.text(b"_AMQ_Address")
            if name and address:
                yield name, address, frame.text(b"_AMQ_NotifType") == "BINDING_ADDED"

    def close(self) -> None:
        """End the subscription."""
        if isinstance(self._state, _Subscribed):
            self._state.connection.close()
            self._state = _Silent()
