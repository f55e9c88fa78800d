"""Sends one frame to Artemis and waits for its answer."""

from collections.abc import Iterable

from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.errors import LinkLost
from amqsidecar.formats.stomp_frame import Header


def call(
    connection: StompConnection,
    command: str,
    headers: Iterable[Header],
    body: bytes | memoryview = b"",
) -> None:
    """Send a frame and wait for its receipt; no other request of the connection may be pending.

    Quirk (Artemis): an ERROR about a missing permission does not say which frame it answers.

    Raises:
        FrameRefused: the broker answers with an ERROR; the connection is of no use any more.
        LinkLost: no answer.
    """
    try:
        connection.call(command, headers, body)
    except LinkLost as lost:
        if not connection.errors:
            raise
        raise FrameRefused(connection.errors[-1]) from lost
