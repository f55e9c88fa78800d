"""Joins pieces to write, without copying large ones."""

from collections.abc import Iterable, Iterator
from typing import Final

LARGE_BYTES: Final = 1 << 16
"""From here on a write of its own costs less than a copy."""


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in order: small neighbours together, each large piece as it is."""
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < LARGE_BYTES:
            small.append(piece)
            continue
        if small:
            yield b"".join(small)
            small.clear()
        yield piece
    if small:
        yield b"".join(small)
