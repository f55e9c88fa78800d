"""One service per store: a lock that the kernel releases when its process dies."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from amqsidecar.errors import StoreUnavailable
from amqsidecar.private_files import open_private


class ServiceLock:
    """A lock on a file beside the store; the file holds the owner's process id and stays behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> None:
        """Hold the lock until `release` or the end of the process; safe to call twice.

        Raises:
            StoreUnavailable: another process owns it, or the file can't be written.
        """
        if self._file is not None:
            return
        try:
            file = open_private(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreUnavailable(
                f"the lock file {self._path} can't be written: {error.strerror}; "
                "make its folder writable for this user"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise StoreUnavailable(
                f"the store beside {self._path} is in use by another service, process {owner} "
                f"({error.strerror}); stop that one, or give this one a store.url of its own"
            ) from error
        # Why so: the lock counts, the number helps a person. On a full volume it can't be written.
        with suppress(OSError):
            length = os.pwrite(file, str(os.getpid()).encode(), 0)
            os.ftruncate(file, length)
        self._file = file

    def release(self) -> None:
        """Release the lock; safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
