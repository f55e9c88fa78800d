"""Bodies of messages that consumers hold: in memory, large bodies in unnamed files.

A crash leaves no file. A body without room is passed on, but its message can't be saved.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import Final

import structlog

log = structlog.get_logger("amqsidecar.listener")

LARGE_BYTES: Final = 1 << 16
"""A body beyond this goes to a file."""

FILES_MAX: Final = 512
"""Maximum bodies in files, each of which is an open one."""

_SILENT_S: Final = 60.0
_PIECE_BYTES: Final = 1 << 16


class BodyBudget:
    """Limits of memory and disk for all bodies together.

    Attributes:
        memory_bytes, spooled_bytes: taken now.
    """

    def __init__(
        self,
        memory_bytes_max: int,
        spool_bytes_max: int,
        folder: Path,
        count_unkept: Callable[[], None] = lambda: None,
    ) -> None:
        self.memory_bytes = self.spooled_bytes = 0
        self.files = 0
        self._count_unkept = count_unkept
        self._silent_until_s = 0.0
        self.memory_bytes_max = memory_bytes_max
        self.spool_bytes_max = spool_bytes_max
        self.folder = folder

    def full(self, why: str) -> None:
        """Count a message that is not kept; log the first one of each minute."""
        self._count_unkept()
        if (now_s := monotonic()) >= self._silent_until_s:
            self._silent_until_s = now_s + _SILENT_S
            log.warning("not_kept", reason=why)

    def new_body(self, head_bytes: int) -> "KeptBody":
        """Return a body without content; its head counts as memory."""
        return KeptBody(self, head_bytes)


class KeptBody:
    """One body; its maker discards it.

    Attributes:
        size: bytes of it so far.
        has_nul: it holds a NUL, so that only its length can say where it ends.
        is_kept: False = there was no room, its content is gone.
    """

    __slots__ = (
        *("_budget", "_file", "_memory_bytes", "_pieces", "_spooled_bytes"),
        *("has_nul", "is_kept", "size"),
    )

    def __init__(self, budget: BodyBudget, head_bytes: int) -> None:
        self._budget = budget
        self._pieces: list[bytes] = []
        self._file: FileIO | None = None
        self._memory_bytes = self._spooled_bytes = 0
        self.size = 0
        self.has_nul = False
        self.is_kept = True
        self._take_memory(head_bytes)

    def add(self, data: bytes) -> None:
        """Add the next bytes; never raises."""
        if not self.is_kept:
            return
        budget = self._budget
        self.size += len(data)
        self.has_nul = self.has_nul or b"\0" in data
        is_small = self._file is None and self.size <= LARGE_BYTES
        if is_small and budget.memory_bytes + len(data) <= budget.memory_bytes_max:
            self._pieces.append(data)
            self._take_memory(len(data))
            return
        try:
            self._spool(data)
        except OSError as error:
            budget.full(f"the files in {budget.folder} can't be written: {error}")
            self.discard()

    def _take_memory(self, size: int) -> None:
        budget = self._budget
        self._memory_bytes += size
        budget.memory_bytes += size
        if budget.memory_bytes > budget.memory_bytes_max:
            budget.full("listener.memory_mib is taken")
            self.discard()

    def _spool(self, data: bytes) -> None:
        budget = self._budget
        moved = sum(map(len, self._pieces))
        size = moved + len(data)
        is_new = self._file is None
        if budget.spooled_bytes + size > budget.spool_bytes_max or (
            is_new and budget.files >= FILES_MAX
        ):
            budget.full("listener.spool_mib or its number of files is taken")
            self.discard()
            return
        if self._file is None:
            # Why unbuffered: else a full volume shows only when the file is closed.
            made = TemporaryFile(dir=budget.folder, prefix="amqsidecar-", buffering=0)  # noqa: SIM115
            self._file = made
            budget.files += 1
        budget.spooled_bytes += size
        self._spooled_bytes += size
        for piece in (*self._pieces, data):
            left = memoryview(piece)
            while left:
                left = left[self._file.write(left) :]
        self._pieces.clear()
        self._memory_bytes -= moved
        budget.memory_bytes -= moved

    def pieces(self) -> Iterator[bytes]:
        """Yield the content, whole.

        Raises:
            OSError: the file can't be read.
        """
        yield from self._pieces
        if self._file is None:
            return
        self._file.seek(0)
        while piece := self._file.read(_PIECE_BYTES):
            yield piece

    def digest(self) -> bytes:
        """Return the SHA-256 of the content.

        Raises:
            OSError: the file can't be read.
        """
        found = sha256()
        for piece in self.pieces():
            found.update(piece)
        return found.digest()

    def discard(self) -> None:
        """Release its space; safe to call twice."""
        self.is_kept = False
        self._budget.memory_bytes -= self._memory_bytes
        self._memory_bytes = 0
        self._pieces = []
        if self._file is not None:
            self._budget.spooled_bytes -= self._spooled_bytes
            self._spooled_bytes = 0
            self._budget.files -= 1
            self._file.close()
            self._file = None
