"""Tries over OpenWire, on a separate connection, whether a destination has room."""

import secrets
from contextlib import suppress

from amqsidecar.brokers.classic.room import PATIENCE_S, of_a_trial
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination


def takes(endpoint: Endpoint, clock: Clock, destination: Destination) -> bool:
    """Send a message, roll it back, and return whether the broker did so without waiting for room.

    Raises:
        BrokerError: it can't be asked.
    """
    connection = OpenWireConnection(of_a_trial(endpoint), clock)
    try:
        return _takes(connection, endpoint, clock, destination)
    finally:
        connection.reset()


def _takes(
    connection: OpenWireConnection, endpoint: Endpoint, clock: Clock, destination: Destination
) -> bool:
    name = connection.connection
    owner = codec.connection_id(name)
    client_id = f"amqsidecar-room-{secrets.token_hex(6)}"
    info = codec.connection_info(name, client_id, endpoint.user, endpoint.credentials.secret())
    transaction = codec.transaction_id(name, 1)
    begin, rollback = (
        codec.transaction_info(owner, transaction, operation)
        for operation in (codec.BEGIN, codec.ROLLBACK)
    )
    asked = [
        connection.ask(codec.CONNECTION_INFO, info),
        connection.ask(codec.SESSION_INFO, codec.session_id(name, 1)),
        connection.ask(codec.PRODUCER_INFO, codec.producer_info(codec.producer_id(name, 1, 1))),
        connection.ask(codec.TRANSACTION_INFO, begin),
    ]
    for reason in connection.answers(asked, endpoint.connect_timeout_s):
        if reason is not None:
            raise BrokerRefused(str(reason))
    # Why without an answer: the broker lays aside a send that asks for one, and never forgets it.
    encoder = OpenWireResendEncoder(name)
    connection.write_soon(
        encoder.token(destination, 0, transaction, clock.now_ms(), connection.next_number())
    )
    try:
        connection.answers([connection.ask(codec.TRANSACTION_INFO, rollback)], PATIENCE_S)
    except LinkLost:
        return False
    with suppress(LinkLost):
        goodbye = connection.ask(codec.REMOVE_INFO, codec.remove_info(owner))
        connection.answers([goodbye], PATIENCE_S)
        connection.send(codec.SHUTDOWN_INFO, b"")
        connection.flush()
    connection.close()
    return True
