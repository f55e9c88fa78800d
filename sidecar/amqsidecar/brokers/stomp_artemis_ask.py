"""Sends one frame to Artemis and waits for its answer."""

from collections.abc import Iterable

from amqsidecar.brokers.stomp_connection import Refused, StompConnection
from amqsidecar.brokers.stomp_frame import Header
from amqsidecar.errors import LinkLost


def call(
    connection: StompConnection, command: str, headers: Iterable[Header], body: bytes = b""
) -> None:
    """Send a frame and wait for its receipt; nothing else of the connection is under way.

    Quirk (Artemis): an ERROR about a missing permission does not say which frame it answers.

    Raises:
        Refused: the broker answers with an ERROR; the connection is of no use any more.
        LinkLost: no answer.
    """
    try:
        connection.call(command, headers, body)
    except LinkLost as lost:
        if not connection.errors:
            raise
        raise Refused(connection.errors[-1]) from lost
