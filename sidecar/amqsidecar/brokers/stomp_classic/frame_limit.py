"""Classic's limit for STOMP frames: it announces none, so the limit is learned.

What it rests on (measured on 6.3.1): at a body larger than `maxDataLength`, or a frame larger than
`maxFrameSize`, the broker sends an ERROR without a receipt and closes the connection. Dead letters
of that size come from clients of other connectors.
"""

from collections.abc import Iterable
from math import inf

_WORDS = ("maximum data length was exceeded", "maximum frame size was exceeded")


class FrameLimit:
    """Remembers the smallest frame that ended a connection; outlives links, of one thread."""

    def __init__(self) -> None:
        self._refused_bytes: float = inf

    def problem(self, frame_bytes: int) -> str | None:
        """Return why a frame of this size is not sent; None = it may be taken."""
        if frame_bytes < self._refused_bytes:
            return None
        return (
            f"a frame of {frame_bytes} bytes is more than the broker takes "
            "(wireFormat.maxDataLength or wireFormat.maxFrameSize of its STOMP connector)"
        )

    def learn(self, errors: Iterable[str], largest_bytes: int) -> bool:
        """Return whether a connection ended by a frame that was too large, and remember its size.

        Args:
            errors: words of the ERROR frames that answered nothing.
            largest_bytes: of the frames that were not answered; if one is too large, this is.
        """
        is_too_large = any(words in error for error in errors for words in _WORDS)
        if is_too_large and largest_bytes:
            self._refused_bytes = min(self._refused_bytes, largest_bytes)
        return is_too_large
