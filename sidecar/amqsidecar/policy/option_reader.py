"""Checked reading of one mapping of options; every problem is collected, none is raised.

Plugins use it for their part of a YAML policy.
"""

from collections.abc import Callable, Mapping, Sequence

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.destination import Destination, DestinationKind, parse_destination
from amqsidecar.policy.destination_map import V
from amqsidecar.policy.rule_source import RuleSource

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

PATTERN_KEYS = {
    "queue": DestinationKind.QUEUE,
    "topic": DestinationKind.TOPIC,
    "temp_queue": DestinationKind.TEMP_QUEUE,
    "temp_topic": DestinationKind.TEMP_TOPIC,
}
"""Keys of an entry that name its destinations."""


class OptionReader:
    """Reads the options of one mapping; call `finish` last to find keys that were not read.

    Attributes:
        source: where the mapping stands: its own line where the mapping knows it (attribute `lc`
            of the YAML reader's mappings, 0-based), else the line of its parent.
    """

    def __init__(
        self, options: Mapping[str, object], source: RuleSource, problems: list[Problem]
    ) -> None:
        self._options = options
        self._problems = problems
        self._read: set[str] = set()
        line = getattr(getattr(options, "lc", None), "line", None)
        self.source = RuleSource(source.path, line + 1) if isinstance(line, int) else source

    def __contains__(self, key: str) -> bool:
        """Return whether an option is given, even as null."""
        return key in self._options

    def fail(self, key: str, what: str) -> None:
        """Note one problem with one option."""
        self._problems.append(Problem(str(self.source), f"{key}: {what}"))

    def finish(self) -> None:
        """Note every key that was not read."""
        for key in self._options:
            if key not in self._read:
                known = ", ".join(sorted(self._read))
                self.fail(str(key), f"there is no such option; known here: {known}")

    def _typed(self, key: str, default: object, kinds: tuple[type, ...], expected: str) -> object:
        self._read.add(key)
        value = self._options.get(key, default)
        # Why: a Python bool is an int, but `true` is no number.
        if value is default or (
            isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        ):
            return value
        self.fail(key, f"expected {expected}, found {value!r}")
        return default

    def written(self, key: str) -> object:
        """Return an option as it is written, for options of several forms; None = not given."""
        self._read.add(key)
        return self._options.get(key)

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return a boolean option."""
        return self.flag(key, default) is True

    def flag(self, key: str, default: bool | None) -> bool | None:
        """Return a boolean option, or the default, which may be None."""
        value = self._typed(key, default, (bool,), "true or false")
        return value if isinstance(value, bool) else default

    def text(self, key: str, default: str) -> str:
        """Return a text option."""
        return str(self._typed(key, default, (str,), "a text"))

    def integer(
        self, key: str, default: int, *, least: int = LONG_MIN, most: int = LONG_MAX
    ) -> int:
        """Return an integer option between two bounds, both included."""
        value = self._typed(key, default, (int,), "an integer")
        assert isinstance(value, int)  # noqa: S101 - _typed has checked it
        if least <= value <= most:
            return int(value)
        self.fail(key, f"expected an integer from {least} to {most}, found {value}")
        return default

    def limit(self, key: str, default: int | None, *, most: int = LONG_MAX) -> int | None:
        """Return an integer option for which null and the broker's -1 mean that there is none."""
        self._read.add(key)
        if key in self._options and self._options[key] in (None, -1):
            return None
        if key not in self._options:
            return default
        return self.integer(key, 0, least=-most - 1, most=most)

    def number(self, key: str, default: float) -> float:
        """Return a floating-point option."""
        value = self._typed(key, default, (int, float), "a number")
        assert isinstance(value, int | float)  # noqa: S101 - _typed has checked it
        return float(value)

    def mapping(self, key: str) -> "OptionReader | None":
        """Return a reader of a nested mapping; None = not given."""
        self._read.add(key)
        value = self._options.get(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return OptionReader(value, self.source, self._problems)
        self.fail(key, f"expected a mapping, found {value!r}")
        return None

    def mappings(self, key: str) -> list["OptionReader"]:
        """Return readers of a list of mappings."""
        readers = []
        for index, value in enumerate(self._list(key)):
            if isinstance(value, Mapping):
                readers.append(OptionReader(value, self.source, self._problems))
            else:
                self.fail(f"{key}[{index}]", f"expected a mapping, found {value!r}")
        return readers

    def words(self, key: str) -> str | None:
        """Return a text, or a list of texts joined by blanks; None = not given."""
        if isinstance(self._options.get(key), str):
            return self.text(key, "")
        words = []
        for index, value in enumerate(self._list(key)):
            if isinstance(value, str) and " " not in value:
                words.append(value)
            else:
                self.fail(f"{key}[{index}]", f"expected a text without blanks, found {value!r}")
        return " ".join(words) if words else None

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; one text counts as a list of one."""
        if isinstance(self._options.get(key), str):
            return (self.text(key, ""),)
        texts = []
        for index, value in enumerate(self._list(key)):
            if isinstance(value, str):
                texts.append(str(value))
            else:
                self.fail(f"{key}[{index}]", f"expected a text, found {value!r}")
        return tuple(texts)

    def _list(self, key: str) -> Sequence[object]:
        self._read.add(key)
        value = self._options.get(key)
        if value is None:
            return ()
        if isinstance(value, Sequence) and not isinstance(value, str):
            return value
        self.fail(key, f"expected a list, found {value!r}")
        return ()

    def destination(self, key: str, default: Destination) -> Destination:
        """Return a destination such as `A`, `queue://A` or `topic://B`."""
        text = self.text(key, str(default))
        try:
            return parse_destination(text)
        except ValueError as error:
            self.fail(key, str(error))
            return default

    def pattern(self) -> tuple[Destination, ...]:
        """Return the destinations of an entry: exactly one of the four kinds, a text or a list."""
        given = [key for key in PATTERN_KEYS if key in self._options]
        self._read.update(PATTERN_KEYS)
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            self.fail(", ".join(PATTERN_KEYS), f"expected exactly one of these, found {found}")
            return ()
        key = given[0]
        value = self._options[key]
        texts = value.split(",") if isinstance(value, str) else self._list(key)
        parts: list[Destination] = []
        for text in texts:
            if not isinstance(text, str) or not text.strip():
                continue
            try:
                part = parse_destination(text, PATTERN_KEYS[key])
            except ValueError as error:
                self.fail(key, str(error))
                continue
            if part not in parts:
                parts.append(part)
        if not parts:
            self.fail(key, f"expected a destination or a pattern, found {value!r}")
        return tuple(parts)


def read_whole(
    options: Mapping[str, object], source: RuleSource, read: Callable[[OptionReader], V]
) -> V:
    """Return what a function reads of options; it must read all of them.

    Raises:
        ConfigError: with every problem found.
    """
    problems: list[Problem] = []
    reader = OptionReader(options, source, problems)
    found = read(reader)
    reader.finish()
    if problems:
        raise ConfigError(problems)
    return found
