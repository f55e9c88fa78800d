"""The keys by which the listener seals its copies, in a file that may be replaced."""

from pathlib import Path

import structlog

from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.formats.interception_seal import KEY_CHARACTERS_MIN

log = structlog.get_logger("amqsidecar.config.copy_keys")

_KEY: str = "listener.copy_key_file"
_CURE = "write one key a line, the newest first: `openssl rand -hex 32`"


def copy_keys(config: Config) -> "CopyKeys | None":
    """Return the keys that the configuration names; None = it names none.

    Raises:
        ConfigError: their file can't be used.
    """
    path = config.listener.copy_key_file
    return None if path is None else CopyKeys(path)


class CopyKeys:
    """A file with a key in each line: the first seals, each opens; for one thread.

    A replaced file is read again. If that fails, the former keys stay, with a warning.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: it can't be read, is empty, or a key is too short.
        """
        self._path = path
        self._seen = self._stamp()
        self._keys = _read(path)

    def __call__(self) -> tuple[bytes, ...]:
        """Return the keys, at least one."""
        seen = self._stamp()
        if seen != self._seen:
            self._seen = seen
            try:
                self._keys = _read(self._path)
                log.info("copy_keys_read", keys=len(self._keys))
            except ConfigError as error:
                log.warning("copy_keys_not_read", reason=str(error), meaning="the former stay")
        return self._keys

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return found.st_mtime_ns, found.st_ino, found.st_size


def _read(path: Path) -> tuple[bytes, ...]:
    try:
        keys = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(_KEY, f"{path} can't be read: {error}")]) from error
    if not keys:
        raise ConfigError([Problem(_KEY, f"{path} is empty; {_CURE}")])
    if any(len(one) < KEY_CHARACTERS_MIN for one in keys):
        what = f"a key in {path} has fewer than {KEY_CHARACTERS_MIN} characters; {_CURE}"
        raise ConfigError([Problem(_KEY, what)])
    return tuple(one.encode() for one in keys)
