"""Bounds the prefetch by message size, so that large messages don't fill the memory."""

from typing import Final

TAKEN_BYTES_MAX: Final = 32 << 20
"""Bytes of the dead letters that a link returns at once; the last one may go beyond it."""

AHEAD_AT_FIRST: Final = 3
"""Messages to prefetch before the size of any is known.

Why so few: Classic takes messages of up to 100 MiB. While a frame grows it takes an eighth more,
the store copies one message at a time, and chart and unit give the process 512 MiB.
"""
# Why two: overestimating the size costs time, underestimating it costs memory.
_GROWS_BY, _SHRINKS_BY = 1 / 8, 1 / 64


class MessageSizes:
    """The mean size of the messages that arrived lately.

    Args:
        bytes_max: of all prefetched messages, estimated by their mean size.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._mean_bytes = 0.0
        self._count = 0

    def note(self, size_bytes: int) -> None:
        """Note the size of a message that arrived."""
        self._count += 1
        difference = size_bytes - self._mean_bytes
        weight = _GROWS_BY if difference > 0 else _SHRINKS_BY
        self._mean_bytes += difference * max(weight, 1 / self._count)

    def ahead(self, at_most: int) -> int:
        """Return how many messages to prefetch: the maximum, or a power of two below it.

        Why no number between: each change is a question to the broker.
        """
        if not self._count:
            return min(at_most, AHEAD_AT_FIRST)
        room = int(self._bytes_max / max(1.0, self._mean_bytes))
        return at_most if room >= at_most else 1 << max(0, room.bit_length() - 1)
