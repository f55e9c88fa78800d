"""Tries on Classic over STOMP, on a separate connection, whether a destination has room."""

import secrets

from amqsidecar.brokers.classic.room import PATIENCE_S, of_a_trial
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp.connection import StompConnection, error_text
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.stomp_classic_message import StompResendEncoder
from amqsidecar.model.destination import Destination

_TRANSACTION = b"trial"
_CLOSE_TIMEOUT_S = 1.0


def takes(endpoint: Endpoint, clock: Clock, destination: Destination) -> bool:
    """Send a message, roll it back, and return whether the broker did so without waiting for room.

    Raises:
        BrokerError: it can't be asked.
    """
    client_id = f"amqsidecar-room-{secrets.token_hex(6)}"
    connection = StompConnection(of_a_trial(endpoint), clock, client_id=client_id)
    transaction = (b"transaction", _TRANSACTION)
    try:
        begin = connection.ask("BEGIN", [transaction])
        answer = connection.answers([begin], endpoint.connect_timeout_s)[0]
        if answer.command == "ERROR":
            raise BrokerRefused(error_text(answer))
        # Why without a receipt: the broker lays aside a send that asks for one, and never forgets
        # it.
        connection.put(StompResendEncoder.token(destination, 0, _TRANSACTION, []))
        abort = connection.ask("ABORT", [transaction])
        try:
            connection.answers([abort], PATIENCE_S)
        except LinkLost:
            return False
        connection.disconnect(_CLOSE_TIMEOUT_S)
    finally:
        connection.reset()
    return True
