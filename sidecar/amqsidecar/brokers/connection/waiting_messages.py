"""Bounds the messages that a broker hands over before we take them, asked for or not."""

import threading

from amqsidecar.brokers.connection.message_sizes import AHEAD_AT_FIRST
from amqsidecar.errors import RemoteProtocolError
from amqsidecar.formats.payload import Footprint

# Bound: bytes in memory, and as many in files. STOMP on Classic asks for as many ahead at most once
# the mean size of messages is known.
_BYTES_MAX = 128 * 1024 * 1024
# Bound: twice the memory of a small message that waits.
_BYTES_OF_ONE = 2 * 4 * 1024


class WaitingMessages:
    """The memory of messages that wait over one connection; two threads may use it.

    An honest broker stays below the bounds, since it hands over only as many messages as it is
    asked for. Exception: a burst of large messages after many small messages. The reopened link
    asks for few messages until it knows their size.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory = _Waiting("in memory")
        self._spooled = _Waiting("in files")
        self._consumers = 0
        self._prefetch = 0

    def expect(self, consumers: int, prefetch: int) -> None:
        """Note how many messages are asked for ahead over all; each queue may have a large one."""
        self._consumers, self._prefetch = consumers, prefetch

    def arrive(self, taken: Footprint) -> None:
        """Note a message that came.

        Raises:
            RemoteProtocolError: more wait than the broker was asked for.
        """
        with self._lock:
            large = AHEAD_AT_FIRST + self._consumers
            self._memory.arrive(taken.memory_bytes, large, self._prefetch * _BYTES_OF_ONE)
            self._spooled.arrive(taken.spooled_bytes, large, 0)

    def keep(self, taken: Footprint) -> None:
        """Record that a message has moved to another place of waiting."""
        with self._lock:
            self._memory.size += taken.memory_bytes
            self._spooled.size += taken.spooled_bytes

    def take(self, taken: Footprint) -> None:
        """Note that a message waits no longer."""
        with self._lock:
            self._memory.size -= taken.memory_bytes
            self._spooled.size -= taken.spooled_bytes


class _Waiting:
    """Bytes that wait, and the size of the largest message so far."""

    def __init__(self, where: str) -> None:
        self.size = 0
        self._largest = 0
        self._where = where

    def arrive(self, size: int, large_count: int, small: int) -> None:
        self.size += size
        self._largest = max(self._largest, size)
        most = _BYTES_MAX + large_count * self._largest + small
        if self.size > most:
            raise RemoteProtocolError(
                f"it handed over more messages than it was asked for: {self.size} bytes wait"
                f" {self._where}, at most {most} may"
            )
