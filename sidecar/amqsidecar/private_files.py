"""Files and folders that only their owner can read: messages lie in them."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_OF_OTHERS: Final = 0o077


def open_private(path: Path, flags: int) -> int:
    """Return a descriptor of a file that only its owner can read, for any umask.

    Args:
        path: the file; the permissions of an existing file are corrected.
        flags: of `os.open`.

    Raises:
        OSError: as `os.open`.
    """
    file = os.open(path, flags | os.O_CLOEXEC, 0o600)
    mend(path)
    return file


def private_opener(path: str, flags: int) -> int:
    """Return a descriptor for `open`; only the owner can read a file that is new.

    Why an existing file keeps its mode: it may be a device.
    """
    return os.open(path, flags, 0o600)


def mend(path: Path) -> None:
    """Remove others' permissions on a file or folder; does nothing if it is missing.

    A file of another user stays unchanged.
    """
    # Invariant: by name. A descriptor of a SQLite file that is closed drops the process's locks.
    with suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OF_OTHERS:
            path.chmod(mode & ~_OF_OTHERS)


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner can enter, and those above it that are missing; durable.

    Raises:
        OSError: it can't be made.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        mend(one)
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable.

    Raises:
        OSError: they can't be.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
