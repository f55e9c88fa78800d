"""The conditions by which people select messages, each with its names on every surface.

Command line, API, addresses of the console, descriptions and shown commands all come from this
table, so none of them can leave a condition out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from amqsidecar.model.destination import parse_destination
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.model.signal import signal_name

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER_MAX: Final = 2**63 - 1

Read = Callable[[Sequence[str], int], object]
"""Parses a condition's texts, given the time; ValueError names the expected form."""


class Condition(msgspec.Struct, frozen=True):
    """One condition of a selection.

    Attributes:
        field: of `RowFilter`, or of `Selection`.
        words: its name in a sentence.
        read: returns the value of given texts; the last one counts unless several are allowed.
        parameter: its name in the API; None = it is in no request, address or command.
        short: its name in addresses of the console where it differs.
        needs_store: a schedule that the broker keeps can't answer it.
    """

    field: str
    words: str
    read: Read
    parameter: str | None = None
    short: str | None = None
    needs_store: bool = False

    @property
    def address(self) -> str | None:
        """Its parameter in addresses of the console; None = it has none."""
        return self.short or self.parameter

    @property
    def option(self) -> str | None:
        """Its option on the command line; "" = an argument without a name; None = it has none."""
        if self.parameter is None:
            return None
        return "" if self.field == "ids" else "--" + self.parameter.replace("_", "-")

    @property
    def attribute(self) -> str:
        """Its option as the name of a value; "" = it has none."""
        if self.read is _read_pairs:
            return self.field
        return (self.option or "").removeprefix("--").replace("-", "_")

    @property
    def is_moment(self) -> bool:
        """Whether it is a time, given as an age."""
        return self.read is _read_moment

    def write(self, value: Any) -> list[str]:
        """Return texts that `read` understands, at any time; a list has a text for each entry."""
        if self.is_moment:
            return [f"@{value}"]
        if self.read is _read_pairs:
            return [f"{name}={text}" for name, text in value]
        return [str(one) for one in (value if isinstance(value, tuple) else (value,))]


class ConditionRefused(ValueError):
    """The text of a condition is invalid; the message names the expected form."""

    def __init__(self, condition: Condition, what: str) -> None:
        super().__init__(what)
        self.condition = condition


def _read_text(texts: Sequence[str], _now_ms: int) -> str:
    return texts[-1]


def _read_destination(texts: Sequence[str], _now_ms: int) -> str:
    return str(parse_destination(texts[-1]))


def _read_destinations(texts: Sequence[str], _now_ms: int) -> tuple[str, ...]:
    return tuple(str(parse_destination(text)) for text in texts)


def _read_event(texts: Sequence[str], _now_ms: int) -> str:
    return signal_name(texts[-1])


def _read_state(texts: Sequence[str], _now_ms: int) -> RowState:
    try:
        return RowState(texts[-1])
    except ValueError as error:
        raise ValueError(f"expected {', '.join(RowState)}, found {texts[-1]!r}") from error


def _read_number(texts: Sequence[str], _now_ms: int) -> int:
    text = texts[-1]
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > _NUMBER_MAX:
        raise ValueError(f"expected a whole number, found {text!r}")
    return int(text)


def _read_numbers(texts: Sequence[str], now_ms: int) -> tuple[int, ...]:
    return tuple(_read_number([text], now_ms) for text in texts)


def _read_moment(texts: Sequence[str], now_ms: int) -> int:
    """Return a time before now; `@` begins a time in milliseconds since the epoch."""
    if fixed := re.fullmatch(r"@([0-9]{1,16})", texts[-1]):
        return int(fixed[1])
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", texts[-1].strip())
    if found is None:
        raise ValueError(
            f"expected a number with a unit, such as 90s, 15m, 2h or 3d, found {texts[-1]!r}"
        )
    return now_ms - int(found[1]) * _UNIT_MS[found[2]]


def _read_pairs(texts: Sequence[str], _now_ms: int) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise ValueError(f"expected name=value, found {text!r}")
        pairs.append((name.strip(), value))
    return tuple(pairs)


CONDITIONS: Final = (
    Condition("ids", "message", _read_numbers, "id"),
    Condition("redelivery_id", "message", _read_text),
    Condition("destination", "destination", _read_destination, "destination"),
    Condition("state", "state", _read_state, "state"),
    Condition("cause_group", "cause group", _read_text, "cause_group", "group", needs_store=True),
    Condition("cause_contains", "cause contains", _read_text, "cause", needs_store=True),
    Condition("source", "taken from", _read_destination, "source", needs_store=True),
    Condition("redelivery_count", "attempt", _read_number, "attempt", needs_store=True),
    Condition(
        "count_at_least",
        "attempt at least",
        _read_number,
        "count_at_least",
        "count",
        needs_store=True,
    ),
    Condition("received_before_ms", "taken before", _read_moment, "older_than", "older"),
    Condition(
        "received_from_ms", "taken since", _read_moment, "newer_than", "younger", needs_store=True
    ),
    Condition("due_before_ms", "due before", _read_moment),
    Condition("lies_in", "lies in", _read_destination),
    Condition("event", "waits for", _read_event, "event", needs_store=True),
    Condition("destinations", "one of", _read_destinations),
    Condition("properties", "property", _read_pairs, "property", needs_store=True),
    Condition("contains", "contains", _read_text, "contains", needs_store=True),
)

_ROW_FIELDS: Final = frozenset(RowFilter.__struct_fields__)


def select(texts: Mapping[str, Sequence[str]], now_ms: int) -> Selection:
    """Return the selection of given texts.

    Args:
        texts: by the field of their condition; without texts a condition is not given.
        now_ms: reference time of ages.

    Raises:
        ConditionRefused: a text is not understood.
    """
    values: dict[str, object] = {}
    for condition in CONDITIONS:
        if given_texts := texts.get(condition.field):
            try:
                values[condition.field] = condition.read(given_texts, now_ms)
            except ValueError as error:
                raise ConditionRefused(condition, str(error)) from error
    rows: Any = {name: value for name, value in values.items() if name in _ROW_FIELDS}
    rest: Any = {name: value for name, value in values.items() if name not in _ROW_FIELDS}
    return Selection(rows=RowFilter(**rows), **rest)


def given(selection: Selection) -> Iterator[tuple[Condition, Any]]:
    """Yield the conditions of a selection with their values; without any, it selects everything."""
    for condition in CONDITIONS:
        is_of_rows = condition.field in _ROW_FIELDS
        value = getattr(selection.rows if is_of_rows else selection, condition.field)
        # Why not by truth: only the empty cause group is a condition.
        if value is not None and (value or is_of_rows):
            yield condition, value
