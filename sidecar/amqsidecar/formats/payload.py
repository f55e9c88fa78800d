"""Payloads of messages and frames that may be large: in memory, or in files while they wait."""

from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple, Protocol


class Spooled(Protocol):
    """Bytes outside of memory; each `bytes` reads them into memory."""

    def __len__(self) -> int:
        """Return their number."""

    def __bytes__(self) -> bytes:
        """Return them.

        Raises:
            LinkLost: they can't be read any more.
        """

    def part(self, begin: int, end: int) -> "Spooled":
        """Return some of the bytes, without reading; `end` may be beyond the last byte."""

    def ending_with(self, end: bytes) -> "Spooled":
        """Return them with the last bytes replaced, in the spool that they share as well.

        Raises:
            LinkLost: they can't be written any more.
        """


Payload = bytes | Spooled
"""`bytes` returns it as it is where it is in memory, without a copy."""


class PayloadWriter(Protocol):
    """Takes a payload piece by piece."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of the next bytes; return their number."""

    def getvalue(self) -> Payload:
        """Return all written bytes."""


BeginPayload = Callable[[int], PayloadWriter]
"""Begins a payload that has at least this number of bytes."""


def in_memory(_size_bytes: int) -> PayloadWriter:
    """Begin a payload in memory.

    Why this: it grows in place and gives its bytes away, so a large payload is never copied.
    """
    return BytesIO()


class Footprint(NamedTuple):
    """Space of a waiting message, in memory and outside of it."""

    memory_bytes: int
    spooled_bytes: int = 0


def footprint(payload: Payload, others_bytes: int) -> Footprint:
    """Return the footprint of a payload with further bytes in memory."""
    if isinstance(payload, bytes):
        return Footprint(len(payload) + others_bytes)
    return Footprint(others_bytes, len(payload))
