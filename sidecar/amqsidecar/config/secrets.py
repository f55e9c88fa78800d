"""Values that must not be seen."""

from typing import Final

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
