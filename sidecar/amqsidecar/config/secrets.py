"""Values that must not be seen."""

from pathlib import Path
from typing import Final

from amqsidecar.errors import ConfigError, Problem

STARS: Final = "********"


class Secret:
    """A text that prints as stars; only `reveal` gives it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself; never put it into a message, an event or a log line."""
        return self._text

    def __repr__(self) -> str:
        return STARS

    def __str__(self) -> str:
        return STARS

    def __format__(self, format_spec: str) -> str:
        return STARS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Secret is not pickled")


def revealed(secret: Secret | None) -> str | None:
    """Return the text of a secret; None = there is none."""
    return None if secret is None else secret.reveal()


def secret_in(path: Path, key: str) -> Secret:
    """Return the content of a file, without the line end.

    Raises:
        ConfigError: it can't be read or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(key, f"{path} can't be read: {_reason(error)}")]) from error
    if not text:
        raise ConfigError([Problem(key, f"{path} is empty")])
    return Secret(text)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
