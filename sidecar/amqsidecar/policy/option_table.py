"""The options of Classic's rules, once for every notation: XML, YAML and connection URIs.

An option is a field of a rule in `classic_rules.py` that holds a number, a text, true or false. Its
name, type, default and metadata say how it is read; a notation only finds values and checks them.
"""

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, Final, Protocol, get_args

from amqsidecar.policy.destination_map import V

INT: Final[Mapping[str, object]] = {"bits": 32}
"""Metadata of a whole number of 32 bits; without metadata it has 64."""
SHORT: Final[Mapping[str, object]] = {"bits": 16}
"""Metadata of a whole number of 16 bits."""
LIMIT: Final[Mapping[str, object]] = {"is_limit": True}
"""Metadata of a whole number for which the broker's -1 means that there is no limit (None)."""
_TYPES: Final = (bool, int, float, str)


class Notation(Protocol):
    """Reads the options of one rule, each by its name in snake case; it collects all problems."""

    def flag(self, key: str, default: bool | None) -> bool | None:
        """Return true or false, or the default where it is not given."""
        ...

    def integer(self, key: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number between two bounds, both included."""
        ...

    def limit(self, key: str, default: int | None, *, most: int) -> int | None:
        """Return a whole number; None = there is no limit, which the broker writes as -1."""
        usual = -1 if default is None else default
        value = self.integer(key, usual, least=-most - 1, most=most)
        return None if value == -1 else value

    def number(self, key: str, default: float) -> float:
        """Return a decimal number."""
        ...

    def text(self, key: str, default: str) -> str:
        """Return a text."""
        ...


def read_options(kind: type[V], notation: Notation, **given: object) -> V:
    """Return a rule with the options that a notation writes, over the broker's defaults."""
    found = {one.name: _read(one, notation) for one in _options(kind) if one.name not in given}
    return kind(**given, **found)


def names_of(kind: type) -> frozenset[str]:
    """Return the broker's names of the options of a rule."""
    return frozenset(broker_name(one.name) for one in _options(kind))


def broker_name(key: str) -> str:
    """Return the broker's name of an option: `redelivery_delay_ms` is `redeliveryDelay`."""
    first, *words = key.removesuffix("_ms").split("_")
    return first + "".join(word.capitalize() for word in words)


def without_defaults(rule: object, left_out: frozenset[str] = frozenset()) -> dict[str, object]:
    """Return the fields of a rule that differ from its kind's defaults, as YAML writes them.

    Args:
        rule: a dataclass.
        left_out: fields that are written in another way; `source` is always left out.
    """
    found = {}
    for one in fields(rule):  # type: ignore[arg-type]
        value = getattr(rule, one.name)
        default = one.default_factory() if callable(one.default_factory) else one.default
        if one.name not in left_out and one.name != "source" and value != default:
            found[one.name] = -1 if value is None and one.metadata.get("is_limit") else value
    return found


def _options(kind: type) -> list[Field[Any]]:
    return [one for one in fields(kind) if _type_of(one) in _TYPES]


def _type_of(one: Field[Any]) -> object:
    return (*get_args(one.type), one.type)[0]


def _read(one: Field[Any], notation: Notation) -> object:
    default: Any = one.default
    kind = _type_of(one)
    if kind is bool:
        return notation.flag(one.name, default)
    if kind is str:
        return notation.text(one.name, default)
    if kind is float:
        return notation.number(one.name, default)
    most = 2 ** (one.metadata.get("bits", 64) - 1) - 1
    if one.metadata.get("is_limit"):
        return notation.limit(one.name, default, most=most)
    return notation.integer(one.name, default, least=-most - 1, most=most)
