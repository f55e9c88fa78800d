"""The keys by which the listener seals its copies, in a file that may be replaced."""

from functools import partial
from pathlib import Path

from amqsidecar.config.schema import Config
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.formats.interception_seal import KEY_CHARACTERS_MIN
from amqsidecar.renewed_files import RenewedFiles

_KEY: str = "listener.copy_key_file"
_CURE = "write one key a line, the newest first: `openssl rand -hex 32`"


def copy_keys(config: Config) -> RenewedFiles[tuple[bytes, ...]] | None:
    """Return the keys of the file that the configuration names; None = it names none.

    There is at least one: the first seals, each opens.

    Raises:
        ConfigError: the file can't be used.
    """
    path = config.listener.copy_key_file
    return None if path is None else RenewedFiles(_KEY, partial(_read, path), path)


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
