"""Payloads of messages and frames that may be large: in memory, or in files while they wait."""

from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple, Protocol


class Spooled(Protocol):
    """Bytes that lie elsewhere; `bytes` reads them into memory each time."""

    def __len__(self) -> int:
        """Return their number."""
        ...

    def __bytes__(self) -> bytes:
        """Return them.

        Raises:
            LinkLost: they can't be read any more.
        """
        ...

    def part(self, begin: int, end: int) -> "Spooled":
        """Return some of them, without reading; `end` may lie behind the last one."""
        ...

    def ending_with(self, end: bytes) -> "Spooled":
        """Return them with the last ones replaced, also where they were taken from.

        Raises:
            LinkLost: they can't be written any more.
        """
        ...


Payload = bytes | Spooled
"""`bytes` returns it as it is where it is in memory, without a copy."""


class PayloadWriter(Protocol):
    """Takes a payload piece by piece."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of the next bytes; return their number."""
        ...

    def getvalue(self) -> Payload:
        """Return what was written."""
        ...


BeginPayload = Callable[[int], PayloadWriter]
"""Begins a payload that has at least this number of bytes."""


def in_memory(_size_bytes: int) -> PayloadWriter:
    """Begin a payload in memory.

    Why this: it grows in place and gives its bytes away, so a large payload is never copied.
    """
    return BytesIO()


class Footprint(NamedTuple):
    """What a message takes while it waits."""

    memory_bytes: int
    spooled_bytes: int = 0


def footprint(payload: Payload, others_bytes: int) -> Footprint:
    """Return what a payload takes together with bytes that are in memory."""
    if isinstance(payload, bytes):
        return Footprint(len(payload) + others_bytes)
    return Footprint(others_bytes, len(payload))
