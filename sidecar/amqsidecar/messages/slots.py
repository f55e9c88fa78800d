"""Named values of a message as slices of it, on every wire: shown to people, set, removed.

An edit keeps the slices of values that it does not name.
"""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from amqsidecar.errors import EditRefused
from amqsidecar.model.message import (
    FIELDS_MAX,
    UNREADABLE,
    VALUE_CHARACTERS_MAX,
    TypedValue,
    ValueType,
)

Plain = bool | int | float | str
Lock = Callable[[str], str | None]
"""Returns why the value of this name can't be changed; None = it can be."""


class Slot(NamedTuple):
    """A named value.

    Attributes:
        name: None = the name can't be decoded exactly.
        text: the value as `TypedValue.value`; complete for types that can be set.
        encoded: the value's bytes with its name.
        looks: an approximation of a name that can't be decoded.
        depth: see `TypedValue`.
    """

    name: str | None
    type: ValueType
    text: str
    encoded: bytes
    looks: str = ""
    depth: int = 0


def shown(slots: Sequence[Slot], lock: Lock) -> tuple[TypedValue, ...]:
    """Return the view of values; at most `FIELDS_MAX` of them."""
    return tuple(
        TypedValue(
            name=clip(slot.looks if slot.name is None else slot.name),
            type=slot.type,
            value=clip(slot.text),
            is_cut=len(slot.text) > VALUE_CHARACTERS_MAX,
            locked=UNREADABLE if slot.name is None else lock(slot.name),
            depth=slot.depth,
        )
        for slot in slots[:FIELDS_MAX]
    )


def clip(text: str) -> str:
    """Return the beginning of a value that a view shows."""
    return text[:VALUE_CHARACTERS_MAX]


_BITS: Final = {ValueType.BYTE: 8, ValueType.SHORT: 16, ValueType.INT: 32, ValueType.LONG: 64}
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,5})?")
_SPECIAL: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_FLOAT: Final = struct.Struct(">f")


def read_value(where: str, type_: ValueType, text: str) -> Plain:
    """Return the value that a text means as a type of `EDITABLE_TYPES`.

    Raises:
        EditRefused: the text is not of that type; says where.
    """
    if type_ is ValueType.STRING:
        check_text(where, text)
        return text
    given = text[:40]
    if type_ is ValueType.BOOLEAN:
        if text not in ("true", "false"):
            raise EditRefused(f"{where}: {given!r} is no boolean; expected: true or false")
        return text == "true"
    if type_ in _BITS:
        top = 1 << (_BITS[type_] - 1)
        if not _WHOLE.fullmatch(text) or not -top <= int(text) < top:
            expected = f"a whole number from {-top} to {top - 1}"
            raise EditRefused(f"{where}: {given!r} is no {type_}; expected: {expected}")
        return int(text)
    if text in _SPECIAL:
        return float(_SPECIAL[text])
    if not _DECIMAL.fullmatch(text) or not _fits(type_, float(text)):
        raise EditRefused(f"{where}: {given!r} is no {type_}; expected: a number such as 1.5")
    return float(text)


def check_text(where: str, text: str) -> None:
    """Refuse a text with half a character in it.

    Raises:
        EditRefused: there is a surrogate without its other half.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EditRefused(
            f"{where}: character {error.start + 1} is half of one; whole characters are expected"
        ) from None


def check_classic(where: str, text: str) -> None:
    """Refuse a name or value of a property that Classic would hand on broken.

    Quirk (Classic, 5.18.3 and 6.3.1): clients write properties and entries of maps in Java's form
    of UTF-8 and read them as UTF-8; where the two differ they get replacement characters.

    Raises:
        EditRefused: there is such a character.
    """
    broken = next((one for one in text if one > LAST_OF_THREE_BYTES or one == "\0"), None)
    if broken is not None:
        raise EditRefused(
            f"{where}: Classic garbles U+{ord(broken):04X}; characters from U+0001 to "
            "U+FFFF are expected"
        )


LAST_OF_THREE_BYTES: Final = "\uffff"
"""The last character that UTF-8 and Java's form of it write alike."""


def _fits(type_: ValueType, value: float) -> bool:
    if type_ is ValueType.DOUBLE:
        return value not in (float("inf"), float("-inf"))
    try:
        _FLOAT.pack(value)
    except OverflowError:
        return False
    return True


def number_text(value: float, type_: ValueType) -> str:
    """Return a number as people write it; a float with the fewest digits that identify it."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if type_ is ValueType.FLOAT:
        encoded = _FLOAT.pack(value)
        for digits in range(1, 10):
            text = repr(float(f"{value:.{digits}g}"))
            if _packed(float(text)) == encoded:
                return text
    return repr(value)


def _packed(value: float) -> bytes:
    try:
        return _FLOAT.pack(value)
    except OverflowError:
        return b""
