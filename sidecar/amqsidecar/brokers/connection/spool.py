"""Keeps large messages in unnamed files until they are taken, so that they fill no memory.

A crash leaves no file. Bytes that can't be written stay in memory: a full disk must not end sends.
"""

import os
from collections.abc import Callable
from errno import ENOSPC
from io import BytesIO
from pathlib import Path
from tempfile import mkstemp
from threading import RLock
from typing import Final
from weakref import ref

from amqsidecar.errors import LinkLost
from amqsidecar.formats.payload import Payload, PayloadWriter

LARGE_BYTES: Final = 1 << 20
"""A payload of at least this many bytes goes to a file."""

SPOOLED_BYTES_MAX: Final = 768 << 20
"""Bytes in all files of one connection; beyond it a payload stays in memory."""

# Why several payloads in one file: open files are few. Why not all: a file is gone with the last
# payload in it.
_FILE_BYTES: Final = 16 << 20


def _no_file() -> None:
    """Return None, as a reference to a file that is gone does."""


class Spool:
    """The files of one connection, which one thread writes and any thread reads.

    Attributes:
        size_bytes: of all files that are still used.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        # Why one that may be entered twice: a file can end at any allocation.
        self._lock = RLock()
        self._latest: Callable[[], _File | None] = _no_file

    def begin(self, size_bytes: int) -> PayloadWriter:
        """Begin a payload of this size or more, once the one before is complete or abandoned."""
        return BytesIO() if size_bytes < LARGE_BYTES else _SpooledWriter(self)

    def file(self) -> "_File":
        """Return a file to append to.

        Raises:
            OSError: none can be made.
        """
        latest = self._latest()
        if latest is None or latest.size_bytes >= _FILE_BYTES:
            descriptor, name = mkstemp(prefix="amqsidecar-")
            latest = _File(descriptor, self)
            Path(name).unlink()
            self._latest = ref(latest)
        return latest

    def count(self, size_bytes: int) -> None:
        """Count bytes that are written, or, less than 0, that are gone.

        Raises:
            OSError: there would be too many.
        """
        with self._lock:
            if size_bytes > 0 and self.size_bytes + size_bytes > SPOOLED_BYTES_MAX:
                raise OSError(ENOSPC, f"at most {SPOOLED_BYTES_MAX} bytes may be spooled")
            self.size_bytes += size_bytes


class _File:
    """A file that closes with its last reference."""

    def __init__(self, descriptor: int, spool: Spool) -> None:
        self._descriptor = descriptor
        self._spool = spool
        self.size_bytes = 0

    def __del__(self) -> None:
        os.close(self._descriptor)
        self._spool.count(-self.size_bytes)

    def append(self, data: bytes | memoryview) -> None:
        self._spool.count(len(data))
        self.size_bytes += len(data)
        rest = memoryview(data)
        at = self.size_bytes - len(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, at)
            rest, at = rest[written:], at + written

    def overwrite(self, data: bytes, at: int) -> None:
        os.pwrite(self._descriptor, data, at)

    def read(self, begin: int, size_bytes: int) -> bytes:
        return os.pread(self._descriptor, size_bytes, begin)


class _SpooledPayload:
    """A `Spooled` in a file."""

    __slots__ = ("_begin", "_file", "_size_bytes")

    def __init__(self, file: _File, begin: int, size_bytes: int) -> None:
        self._file = file
        self._begin = begin
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def __bytes__(self) -> bytes:
        try:
            data = self._file.read(self._begin, self._size_bytes)
        except OSError as cause:
            raise LinkLost(f"a large message can't be read from its file: {cause}") from cause
        if len(data) != self._size_bytes:
            raise LinkLost(f"the file of a large message has {len(data)} bytes of {len(self)}")
        return data

    def append(self, data: bytes | memoryview) -> None:
        """Append bytes; this must be the last entry in the file.

        Raises:
            OSError: they can't be written; the earlier bytes stay.
        """
        self._file.append(data)
        self._size_bytes += len(data)

    def part(self, begin: int, end: int) -> "_SpooledPayload":
        end = min(end, self._size_bytes)
        return _SpooledPayload(self._file, self._begin + begin, max(0, end - begin))

    def ending_with(self, end: bytes) -> "_SpooledPayload":
        try:
            self._file.overwrite(end, self._begin + self._size_bytes - len(end))
        except OSError as cause:
            raise LinkLost(f"a large message can't be written to its file: {cause}") from cause
        return self


class _SpooledWriter:
    """A `PayloadWriter` to a file; falls back to memory on the first write error."""

    def __init__(self, spool: Spool) -> None:
        self._content: _SpooledPayload | BytesIO
        try:
            file = spool.file()
            self._content = _SpooledPayload(file, file.size_bytes, 0)
        except OSError:
            self._content = BytesIO()

    def write(self, data: bytes | memoryview, /) -> int:
        if isinstance(self._content, _SpooledPayload):
            try:
                self._content.append(data)
            except OSError:
                spooled, self._content = self._content, BytesIO()
                self._content.write(bytes(spooled))
            else:
                return len(data)
        return self._content.write(data)

    def getvalue(self) -> Payload:
        content = self._content
        return content if isinstance(content, _SpooledPayload) else content.getvalue()
