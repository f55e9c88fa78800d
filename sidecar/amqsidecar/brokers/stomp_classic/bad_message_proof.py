"""Proves whether a message breaks STOMP connections to Classic, or was only near when one broke."""

import secrets
from contextlib import suppress

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerError
from amqsidecar.model.destination import Destination

_ANSWER_TIMEOUT_S = 5.0


def breaks_connections(
    endpoint: Endpoint, clock: Clock, destination: Destination, message_id: str
) -> bool:
    """Receive one message alone on a separate connection; return whether that ends it.

    Why: an error of the broker's own, such as an unasked ERROR while a queue is full or a right is
    taken away, comes after some message, too. False also when the broker can't be asked: who
    breaks connections will break the next one.
    """
    client_id = f"amqsidecar-suspects-{secrets.token_hex(6)}"
    try:
        connection = StompConnection(endpoint, clock, client_id=client_id)
    except BrokerError:
        return False
    try:
        with suppress(BrokerError, FrameRefused):
            StompSubscriptions(connection, clock).browse(destination, 1, selectors.only(message_id))
        # Why: what follows a body that ended early comes before this answer; and one that goes on
        # for too long swallows it.
        connection.answers([connection.ask("BEGIN", [(b"transaction", b"1")])], _ANSWER_TIMEOUT_S)
    except BrokerError:
        pass
    finally:
        connection.close()
    return connection.suspect is not None
