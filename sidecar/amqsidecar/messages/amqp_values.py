"""Values and bodies of AMQP messages as people see them, and values that people set; sans-IO."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.openwire_properties import decode_text
from amqsidecar.messages.slots import Plain, Slot, number_text
from amqsidecar.model.message import DEPTH_MAX, FIELDS_MAX, VALUE_CHARACTERS_MAX, ValueType

_CONSTRUCTORS: Final = {
    ValueType.NULL: (0x40,),
    ValueType.BOOLEAN: (0x41, 0x42, 0x56),
    ValueType.BYTE: (0x51,),
    ValueType.SHORT: (0x61,),
    ValueType.INT: (0x54, 0x71),
    ValueType.LONG: (0x55, 0x81),
    ValueType.UBYTE: (0x50,),
    ValueType.USHORT: (0x60,),
    ValueType.UINT: (0x43, 0x52, 0x70),
    ValueType.ULONG: (0x44, 0x53, 0x80),
    ValueType.FLOAT: (0x72,),
    ValueType.DOUBLE: (0x82,),
    ValueType.CHAR: (0x73,),
    ValueType.TIMESTAMP: (0x83,),
    ValueType.UUID: (0x98,),
    ValueType.BYTES: (0xA0, 0xB0),
    ValueType.STRING: (0xA1, 0xB1),
    ValueType.SYMBOL: (0xA3, 0xB3),
    ValueType.LIST: (0x45, 0xC0, 0xD0),
    ValueType.MAP: (0xC1, 0xD1),
}
_TYPES: Final = {code: type_ for type_, codes in _CONSTRUCTORS.items() for code in codes}
_TEXTS: Final = (ValueType.STRING, ValueType.SYMBOL)
_SMALL: Final = frozenset((0xA0, 0xA1, 0xA3))
"""Constructors of texts and bytes whose length is one byte."""

_CONTENT_TYPE: Final = 6
_TEXT_MESSAGE: Final = 5


def type_of(element: bytes) -> ValueType:
    """Return the type of an element."""
    return _TYPES.get(element[0], ValueType.OTHER)


def content(element: bytes) -> bytes:
    """Return the bytes of an element that is a text or bytes."""
    return element[2 if element[0] in _SMALL else 5 :]


def text_of(element: bytes) -> str:
    """Return the text of a value for people, see `TypedValue.value`; never raises."""
    type_ = type_of(element)
    if type_ in _TEXTS:
        return decode_text(content(element))
    if type_ is ValueType.BYTES:
        return content(element)[:VALUE_CHARACTERS_MAX].hex()
    if type_ in (ValueType.MAP, ValueType.LIST, ValueType.NULL):
        return ""
    try:
        value = None if type_ is ValueType.OTHER else amqp.scalar(element)
    except UndecodableMessage:
        value = None
    return _plain_text(element, type_, value)


def _plain_text(element: bytes, type_: ValueType, value: amqp.Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value, type_)
    if type_ is ValueType.CHAR and isinstance(value, bytes):
        return value.decode("utf-32-be", "replace")
    if value is None or isinstance(value, bytes):
        return element[:VALUE_CHARACTERS_MAX].hex()
    return str(value)


def slot(key: bytes, element: bytes, depth: int = 0) -> Slot:
    """Return a key and its value."""
    type_ = type_of(key)
    looks = text_of(key)
    is_read = type_ in _TEXTS and looks.encode(errors="replace") == content(key)
    name = looks if is_read else None
    return Slot(name, type_of(element), text_of(element), key + element, looks, depth)


def slots_of(pairs: Sequence[bytes]) -> list[Slot]:
    """Return the values of a map, which is given as keys and values in turn."""
    return [slot(key, value) for key, value in zip(pairs[::2], pairs[1::2], strict=True)]


def entries_of(element: bytes) -> list[Slot]:
    """Return the values in a map or list, nested ones after the one that holds them.

    At most one more than `FIELDS_MAX`, so that a caller sees that there are more.

    Raises:
        UndecodableMessage: it is not well-formed.
    """
    found: list[Slot] = []
    for one in _walk(element, 0):
        found.append(one)
        if len(found) > FIELDS_MAX:
            break
    return found


def _walk(element: bytes, depth: int) -> Iterator[Slot]:
    items = amqp.items(element)
    if type_of(element) is ValueType.MAP:
        keys, items = items[::2], items[1::2]
    else:
        keys = [amqp.string(str(index)) for index in range(len(items))]
    for key, value in zip(keys, items, strict=True):
        yield slot(key, value, depth)
        if depth + 1 < DEPTH_MAX and type_of(value) in (ValueType.MAP, ValueType.LIST):
            yield from _walk(value, depth + 1)


def encode_value(type_: ValueType, value: Plain) -> bytes:
    """Return an encoded value of one of `EDITABLE_TYPES`."""
    match value:
        case bool():
            return b"\x41" if value else b"\x42"
        case str():
            return amqp.string(value)
        case float():
            is_short = type_ is ValueType.FLOAT
            return struct.pack(">Bf" if is_short else ">Bd", 0x72 if is_short else 0x82, value)
    if type_ is ValueType.BYTE:
        return amqp.byte(value)
    if type_ is ValueType.SHORT:
        return struct.pack(">Bh", 0x61, value)
    return amqp.integer(value) if type_ is ValueType.INT else amqp.long(value)


def encode_pair(name: str, type_: ValueType, value: Plain) -> bytes:
    """Return an encoded name and its value."""
    return amqp.string(name) + encode_value(type_, value)


class Body(NamedTuple):
    """The body of a message.

    Attributes:
        values: code and value of each section.
        footer: the section behind it; may be empty.
    """

    values: list[tuple[int, bytes]]
    footer: bytes

    def single(self, code: int) -> bytes | None:
        """Return the value of the only section if it has this code."""
        if len(self.values) != 1 or self.values[0][0] != code:
            return None
        return self.values[0][1]

    @property
    def data(self) -> bytes | None:
        """The bytes of a body of data sections, or of one value of bytes; None = it is neither."""
        value = self.single(amqp.VALUE)
        if value is not None and type_of(value) is ValueType.BYTES:
            return content(value)
        if not self.values or any(code != amqp.DATA for code, _ in self.values):
            return None
        if any(type_of(value) is not ValueType.BYTES for _, value in self.values):
            return None
        return b"".join(content(value) for _, value in self.values)


def read_body(rest: bytes) -> Body:
    """Return the body of what `amqp_sections.split` has under `VALUE`."""
    values: list[tuple[int, bytes]] = []
    at = 0
    while at < len(rest):
        is_small = rest[at + 1] == 0x53
        code = rest[at + 2] if is_small else rest[at + 9]
        value_at = at + (3 if is_small else 10)
        end = amqp.skip(rest, value_at)
        if code == amqp.FOOTER:
            return Body(values, rest[at:])
        values.append((code, rest[value_at:end]))
        at = end
    return Body(values, b"")


def jms_type(sections: dict[int, bytes]) -> int | None:
    """Return the JMS message type that an AMQP client recorded; None = none."""
    section = sections.get(amqp.MESSAGE_ANNOTATIONS)
    for one in [] if section is None else slots_of(amqp.pairs(section)):
        if one.name == "x-opt-jms-msg-type" and one.type is ValueType.BYTE:
            return int(one.text)
    return None


def content_type(sections: dict[int, bytes]) -> str:
    """Return the content type of a message; "" = none."""
    section = sections.get(amqp.PROPERTIES)
    found = [] if section is None else amqp.elements(section)
    return text_of(found[_CONTENT_TYPE]) if len(found) > _CONTENT_TYPE else ""


def text_body_of(body: Body, jms_type: int | None) -> bytes | None:
    """Return the encoded text of a body that is one, b"" of null; None = it is no text."""
    value = body.single(amqp.VALUE)
    if value is not None and type_of(value) is ValueType.STRING:
        return content(value)
    is_none = not body.values or value == amqp.NULL
    return b"" if is_none and jms_type == _TEXT_MESSAGE else None
