"""Whether a port speaks AMQP, found out by its greeting alone.

Quirk (Artemis 2.44): an acceptor without AMQP takes our greeting for the beginning of a large Core
packet. It waits for the rest, and answers nothing.
"""

from contextlib import suppress

from amqsidecar.brokers.amqp.sasl import HEADER
from amqsidecar.brokers.connection.broker_socket import connect
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.errors import LinkLost

_NAME = HEADER[:4]


class AmqpKnock:
    """A connection on which only the greeting of AMQP was sent."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Connect, and send the greeting.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: TLS does not fit the configuration.
        """
        self._place = endpoint.place
        self._socket = connect(endpoint)
        try:
            self._socket.sendall(HEADER)
        except OSError as error:
            self._socket.close()
            raise LinkLost(f"the connection to {self._place} broke: {error}") from error

    def is_answered(self, timeout_s: float) -> bool:
        """Return whether the peer answers as AMQP does, at the latest after this time.

        Call it no more once it has.
        """
        try:
            self._socket.settimeout(timeout_s)
            return self._socket.recv(len(_NAME)) == _NAME
        except OSError:
            return False

    def close(self) -> None:
        """Hang up; never raises, safe to call twice."""
        with suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self.close()
