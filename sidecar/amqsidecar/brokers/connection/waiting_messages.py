"""Bounds the messages that a broker hands over before we take them, asked for or not."""

import threading

from amqsidecar.errors import RemoteProtocolError

# Bound: what STOMP on Classic asks for ahead at most once the mean size of messages is known.
_BYTES_MAX = 128 * 1024 * 1024
# Why: what is asked for before the size of any message is known.
_COUNT_AT_FIRST = 4
# Bound: twice what a small message takes while it waits.
_BYTES_OF_ONE = 2 * 4 * 1024


class WaitingMessages:
    """How many bytes of messages wait over one connection; two threads may use it.

    An honest broker stays below the bound, since it hands over no more than it is asked for. One
    exception: a burst of large messages behind many small ones. The link that is opened again asks
    for few messages until it knows their size.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._largest = 0
        self._consumers = 0
        self._prefetch = 0

    def expect(self, consumers: int, prefetch: int) -> None:
        """Note how many messages are asked for ahead over all consumers; each may have a large one.

        Args:
            consumers: of dead-letter queues.
            prefetch: messages.
        """
        self._consumers, self._prefetch = consumers, prefetch

    def arrive(self, size_bytes: int) -> None:
        """Note a message that came.

        Raises:
            RemoteProtocolError: more wait than the broker was asked for.
        """
        with self._lock:
            self._bytes += size_bytes
            self._largest = max(self._largest, size_bytes)
            large = (_COUNT_AT_FIRST + self._consumers) * self._largest
            bytes_max = _BYTES_MAX + large + self._prefetch * _BYTES_OF_ONE
            if self._bytes > bytes_max:
                raise RemoteProtocolError(
                    f"it handed over more messages than it was asked for: {self._bytes} bytes wait,"
                    f" at most {bytes_max} may"
                )

    def keep(self, size_bytes: int) -> None:
        """Note that a message, taken from where it came in, waits elsewhere."""
        with self._lock:
            self._bytes += size_bytes

    def take(self, size_bytes: int) -> None:
        """Note that a message waits no longer."""
        with self._lock:
            self._bytes -= size_bytes
