"""Space on the volume of a SQLite store that is kept for sending, discarding and housekeeping.

A ballast file beside the store holds the space. Where the volume gets short, the file is cut: from
then on no dead letters are taken. Housekeeping works in the rest of the volume. If another program
fills that, the file is removed, and its space serves the work that frees space. The service makes
the file whole again once there is enough. So the file itself is the state: every process sees it,
also after a restart.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from amqsidecar.clock import Clock
from amqsidecar.errors import StoreUnavailable
from amqsidecar.private_files import open_private
from amqsidecar.store import ENOUGH_ROOM, Room

FULL_PAUSE_S: Final = 30.0
"""After a write that found the volume full, nothing is taken for this long, or until it grows.

Why: quotas and single large messages can fill a volume that seems to have room.
"""
SMALLEST_BYTES: Final = 1024 * 1024
"""A reserve is at least as large as a transaction that sends or removes a few messages."""

_SHARE_OF_VOLUME: Final = 4
_WITHOUT_END: Final = 1 << 62


class Reserve:
    """The reserve beside one store.

    Args:
        store: the store's file.
        size_bytes: size of the reserve; at most a quarter of the volume is used. 0 = none.
        clock: measures the pause after a write that found the volume full.
    """

    def __init__(self, store: Path, size_bytes: int, clock: Clock) -> None:
        self._path = store.with_name(store.name + ".reserve")
        self._log = store.with_name(store.name + "-wal")
        self._wanted_bytes = size_bytes
        self._clock = clock
        self._full_until_s = -1.0
        self._left_by_others_when_full = 0

    def give_way(self) -> None:
        """Cut the ballast if the volume is short, remove it if it is full; else cheap."""
        if self._wanted_bytes:
            free, size = self._free_and_size()
            if free < size // 8:
                self._remove()
            elif free < size // 2:
                self._cut(_left_when_short(size))

    def note_full(self) -> None:
        """Note that a write found the volume full: remove the ballast, stop taking."""
        if self._wanted_bytes:
            self._remove()
            self._full_until_s = self._clock.monotonic_s() + FULL_PAUSE_S
            self._left_by_others_when_full = self._left_by_others(self._free_and_size()[0])

    @property
    def is_used(self) -> bool:
        """Whether the ballast is incomplete, so that nothing may be taken."""
        return bool(self._wanted_bytes) and not self._is_whole(self._free_and_size()[1])

    @property
    def log_bytes(self) -> int:
        """Return the size of the write-ahead log that fits into the reserve beside new writes."""
        if not self._wanted_bytes:
            return _WITHOUT_END
        return self._free_and_size()[1] // 4

    def keep(self) -> Room:
        """Make, cut or remove the ballast, by the free space; for the service.

        Promise: if the process dies inside, the ballast is as before, or as it should be.

        Raises:
            StoreUnavailable: the volume can't be looked at.
        """
        if not self._wanted_bytes:
            return ENOUGH_ROOM
        self.give_way()
        room = self.look()
        size = self._free_and_size()[1]
        if room.is_enough and not self._is_whole(size):
            try:
                self._make(_whole(size))
            except OSError:
                self.note_full()
                return self.look()
        return room

    def look(self) -> Room:
        """Return whether dead letters may be taken; changes nothing.

        Raises:
            StoreUnavailable: the volume can't be looked at.
        """
        if not self._wanted_bytes:
            return ENOUGH_ROOM
        free, size = self._free_and_size()
        is_whole, held = self._is_whole(size), self._held_bytes()
        is_paused = (
            self._clock.monotonic_s() < self._full_until_s
            and self._left_by_others(free) < self._left_by_others_when_full + size
        )
        # Why half more: the log is cut once taking has stopped, and what that gives back, a quarter
        # or somewhat more (`log_bytes`), must not start it again.
        again = size + size // 2
        if not is_whole and (free + held < again or is_paused):
            return Room(
                at_once_bytes=0,
                reason=f"the volume of {self._path.parent} has {_mib(free + held)} MiB left; no "
                f"dead letters are taken until it has {_mib(again)} MiB; due messages are sent",
            )
        return Room(at_once_bytes=max(size // 8, (free - size // 2) // 3))

    def _left_by_others(self, free: int) -> int:
        """Return the free bytes of the volume, counting the store's own log as free.

        Why: the log returns the space of a failed write by itself, later.
        """
        try:
            return free + self._log.stat().st_blocks * 512
        except OSError:
            return free

    def _free_and_size(self) -> tuple[int, int]:
        """Return the free bytes of the volume, and the size of the reserve there."""
        try:
            told = os.statvfs(self._path.parent)
        except OSError as error:
            raise self._unknown(error) from error
        largest = told.f_blocks * told.f_frsize // _SHARE_OF_VOLUME
        size = max(SMALLEST_BYTES, min(self._wanted_bytes, largest))
        return told.f_bavail * told.f_frsize, size

    def _is_whole(self, size: int) -> bool:
        return self._held_bytes() >= _whole(size)

    def _held_bytes(self) -> int:
        """Return the size of the ballast; 0 = there is none."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._unknown(error) from error

    def _unknown(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(
            f"the volume of {self._path.parent} can't be examined: {error.strerror}"
        )

    def _remove(self) -> None:
        # Why suppress: on a volume that can't be changed the write itself fails, and says why.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _cut(self, size_bytes: int) -> None:
        """Cut the ballast to this size; do nothing where it is not longer."""
        if self._held_bytes() > size_bytes:
            # Why suppress: another process has just removed it; or see `_remove`.
            with suppress(OSError):
                os.truncate(self._path, size_bytes)

    def _make(self, size_bytes: int) -> None:
        part = self._path.with_name(self._path.name + ".part")
        part.unlink(missing_ok=True)
        file = open_private(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.posix_fallocate(file, 0, size_bytes)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        part.rename(self._path)


def _whole(size: int) -> int:
    """Return how large a ballast is whole."""
    return size // 2


def _left_when_short(size: int) -> int:
    """Return how much of the ballast is left where the volume is short.

    Why this share: the log (`Reserve.log_bytes`) and one transaction have room in it.
    """
    return size // 8 * 3


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 1024 / 1024:.1f}"
