"""A volume of some megabytes that a test can fill to its last byte: a tmpfs, which takes root."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.machine.processes import run_program

NEEDED = "needs a root that may mount a tmpfs"


class SmallVolume:
    """A mounted tmpfs.

    Attributes:
        folder: where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stuffing = folder / "stuffing"

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all the space but so much of it."""
        taken = self._stuffing.stat().st_size if self._stuffing.exists() else 0
        with self._stuffing.open("ab", buffering=0) as stuffing:
            while self.free_bytes() > leave_bytes:
                try:
                    taken += stuffing.write(bytes(4096))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return

    def free(self) -> None:
        """Release the space that `fill` took, if any."""
        self._stuffing.unlink(missing_ok=True)

    def make_read_only(self) -> None:
        """Take no writes, as a volume after an error of its disk; no file may be open to write."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)

    def free_bytes(self) -> int:
        """Return how much is left."""
        told = os.statvfs(self.folder)
        return told.f_bavail * told.f_frsize


@contextmanager
def small_volume(folder: Path, mib: int) -> Iterator[SmallVolume]:
    """Mount a volume of this size at a new folder; skip the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755", "tmpfs", str(folder)]
    try:
        done = run_program(mount)
    except FileNotFoundError:
        pytest.skip(NEEDED)
    if done.returncode != 0:
        pytest.skip(f"{NEEDED}: {done.stderr.strip()}")
    try:
        yield SmallVolume(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
