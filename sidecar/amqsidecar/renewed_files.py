"""Values out of files that are replaced while the process runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from amqsidecar.errors import ConfigError

log = structlog.get_logger("amqsidecar.renewed_files")

ValueT = TypeVar("ValueT")


class RenewedFiles(Generic[ValueT]):
    """The value of some files, read again when one of them was replaced.

    If that fails, the former value stays, with a warning. Threads may ask at once: then both read.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], ValueT],
        *paths: Path | None,
        without: ValueT | None = None,
    ) -> None:
        """Read them for the first time.

        Args:
            name: of the files, in the log.
            read: reads them all; raises ConfigError.
            paths: None = an option that names no file.
            without: the value if that fails later; None = the former value stays.

        Raises:
            ConfigError: they can't be used.
        """
        self._name = name
        self._read = read
        self._paths = [path for path in paths if path is not None]
        self._seen = self._stamps()
        self._without = without
        self._value = read()

    def __call__(self) -> ValueT:
        """Return the value."""
        seen = self._stamps()
        if seen != self._seen:
            self._seen = seen
            try:
                self._value = self._read()
                log.info("files_read", files=self._name)
            except ConfigError as error:
                meaning = "the former content stays in use"
                if self._without is not None:
                    self._value, meaning = self._without, "nothing in it counts until it is mended"
                reason = str(error)
                log.warning("files_not_read", files=self._name, reason=reason, meaning=meaning)
        return self._value

    def _stamps(self) -> list[tuple[int, int, int]]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_ino, found.st_size
