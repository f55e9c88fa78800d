"""AMQP messages taken apart; sans-IO."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.openwire_properties import decode_text
from amqsidecar.messages.body_text import bytes_body, text_body
from amqsidecar.messages.slots import Plain, Slot, number_text, shown
from amqsidecar.messages.tree import Form, MessageTree, noted
from amqsidecar.model.message import (
    DEPTH_MAX,
    FIELDS_MAX,
    VALUE_CHARACTERS_MAX,
    BodyKind,
    BodyView,
    ValueType,
)

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
_HEADERS = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
_PROPERTIES = (
    *("message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type"),
    *("content-encoding", "absolute-expiry-time", "creation-time", "group-id", "group-sequence"),
    "reply-to-group-id",
)
_KINDS = ("Message", "ObjectMessage", "MapMessage", "BytesMessage", "StreamMessage", "TextMessage")
_STREAM: Final = 4

_LOCKED = "only a text, bytes or the entries of a map can be changed"
_SHORT_BYTES_MAX: Final = 255


class AmqpTree(MessageTree):
    """A kept AMQP message."""

    wire: ClassVar[str] = "AMQP 1.0"
    properties_name: ClassVar[str] = "its application properties"
    not_replaceable = "only a text or bytes can be replaced, it is neither"

    def __init__(self, message: bytes) -> None:
        self.size_bytes = len(message)
        self._sections = amqp.split(message)
        self._body = read_body(self._sections.get(amqp.VALUE, b""))
        self._type = None
        with suppress(UndecodableMessage):
            self._type = self._read_type()
        with suppress(UndecodableMessage):
            self.content_type = self._read_content_type()
        is_known = self._type is not None and 0 <= self._type < len(_KINDS)
        self.kind = _KINDS[self._type] if self._type is not None and is_known else ""
        self.form = None
        if self._encoded_text() is not None:
            self.form = Form.TEXT
        elif self._body.data is not None:
            self.form = Form.BYTES
        elif self._body.is_of(ValueType.MAP):
            self.form = Form.MAP

    def _read_type(self) -> int | None:
        """Return the JMS message type that an AMQP client recorded; None = none."""
        for one in self._slots(amqp.MESSAGE_ANNOTATIONS):
            if one.name == "x-opt-jms-msg-type" and one.type is ValueType.BYTE:
                return int(one.text)
        return None

    def _read_content_type(self) -> str:
        section = self._sections.get(amqp.PROPERTIES)
        found = [] if section is None else amqp.elements(section)
        return text_of(found[_CONTENT_TYPE]) if len(found) > _CONTENT_TYPE else ""

    def _encoded_text(self) -> bytes | None:
        """Return a body's encoded text, b"" for null; None = the body is not a text."""
        value = self._body.single(amqp.VALUE)
        if value is not None and type_of(value) is ValueType.STRING:
            return content(value)
        is_none = not self._body.values or value == amqp.NULL
        return b"" if is_none and self._type == _TEXT_MESSAGE else None

    def _slots(self, code: int, names: Sequence[str] = ()) -> list[Slot]:
        """Return the values of a section: of a map all, of a list the values that are not null."""
        section = self._sections.get(code)
        if section is None:
            return []
        if not names:
            return slots_of(amqp.pairs(section))
        return [
            slot_of(amqp.symbol(name), element)
            for name, element in zip(names, amqp.elements(section), strict=False)
            if element != amqp.NULL
        ]

    def headers(self, problems: list[str]) -> Sequence[Slot]:
        found: list[Slot] = []
        for what, code, names in (
            ("its header", amqp.HEADER, _HEADERS),
            ("its delivery annotations", amqp.DELIVERY_ANNOTATIONS, ()),
            ("its message annotations", amqp.MESSAGE_ANNOTATIONS, ()),
            ("its standard properties", amqp.PROPERTIES, _PROPERTIES),
        ):
            with noted(what, problems):
                found += self._slots(code, names)
        return found

    def properties(self) -> list[Slot]:
        return self._slots(amqp.APPLICATION_PROPERTIES)

    def body(self, max_bytes: int) -> BodyView:
        body, content_type = self._body, self.content_type
        if (text := self._encoded_text()) is not None:
            return text_body(text, max_bytes, content_type)
        if body.data is not None:
            return bytes_body(body.data, max_bytes, content_type)
        value = body.single(amqp.VALUE)
        if not body.values or value == amqp.NULL:
            return BodyView(kind=BodyKind.EMPTY, content_type=content_type, locked="it has none")
        if value is not None and type_of(value) not in (ValueType.MAP, ValueType.LIST):
            # A single number, time, ... as AMQP applications may send it.
            slots, kind = [slot_of(amqp.string("0"), value)], BodyKind.LIST
        else:
            slots = [slot for _, one in body.values for slot in entries_of(one)]
            is_stream = self._type == _STREAM
            kind = BodyKind.STREAM if is_stream else BodyKind.LIST
            kind = BodyKind.MAP if self.form is Form.MAP else kind
        lock = None if kind is BodyKind.MAP else _LOCKED
        return BodyView(
            kind=kind,
            content_type=content_type,
            size_bytes=sum(len(one) for _, one in body.values),
            is_cut=len(slots) > FIELDS_MAX,
            entries=shown(slots, lambda _name: lock),
            locked=lock,
        )

    def text(self) -> str | None:
        encoded = self._encoded_text() if self._body.values else None
        return None if encoded is None else decode_text(encoded)

    def data(self) -> bytes | None:
        return self._body.data

    def entries(self) -> Sequence[Slot]:
        return slots_of(amqp.items(self._body.single(amqp.VALUE) or amqp.NULL))

    def encode(self, what: str, name: str, type_: ValueType, value: Plain) -> bytes:
        return amqp.string(name) + encode_value(type_, value)

    def set_text(self, text: str) -> None:
        self._set_body(bytes((0, 0x53, amqp.VALUE)) + amqp.string(text))

    def set_data(self, data: bytes) -> None:
        size = len(data)
        is_short = size <= _SHORT_BYTES_MAX
        head = bytes((0xA0, size)) if is_short else b"\xb0" + size.to_bytes(4, "big")
        self._set_body(bytes((0, 0x53, self._body.values[0][0])) + head + data)

    def set_entries(self, pieces: list[bytes]) -> None:
        self._set_body(_make_map(amqp.VALUE, pieces))

    def _set_body(self, section: bytes) -> None:
        self._sections[amqp.VALUE] = section + self._body.footer

    def set_lines(self, pieces: list[bytes]) -> None:
        code = amqp.APPLICATION_PROPERTIES
        self._sections[code] = _make_map(code, pieces)

    def encoded(self) -> bytes:
        return amqp.join(self._sections)


def _make_map(code: int, pieces: list[bytes]) -> bytes:
    items: list[bytes] = []
    for piece in pieces:
        value_at = amqp.skip(piece, 0)
        items += (piece[:value_at], piece[value_at:])
    return amqp.make_map(code, items)


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


def slot_of(key: bytes, element: bytes, depth: int = 0) -> Slot:
    """Return a key and its value."""
    type_ = type_of(key)
    looks = text_of(key)
    is_read = type_ in _TEXTS and looks.encode(errors="replace") == content(key)
    name = looks if is_read else None
    return Slot(name, type_of(element), text_of(element), key + element, looks, depth)


def slots_of(pairs: Sequence[bytes]) -> list[Slot]:
    """Return the values of a map, which is given as keys and values in turn."""
    return [slot_of(key, value) for key, value in zip(pairs[::2], pairs[1::2], strict=True)]


def entries_of(element: bytes) -> list[Slot]:
    """Return the values in a map or list, nested values after the value that holds them.

    At most one more than `FIELDS_MAX`: the extra value shows that there are more.

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
        yield slot_of(key, value, depth)
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


class Body(NamedTuple):
    """The body of a message."""

    values: list[tuple[int, bytes]]
    footer: bytes

    def single(self, code: int) -> bytes | None:
        """Return the value of the only section if it has this code."""
        if len(self.values) != 1 or self.values[0][0] != code:
            return None
        return self.values[0][1]

    def is_of(self, type_: ValueType) -> bool:
        """Return whether the only section is a value of this type."""
        value = self.single(amqp.VALUE)
        return value is not None and type_of(value) is type_

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
    """Return the body in the bytes that `amqp_sections.split` has under `VALUE`."""
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
