"""OpenWire messages taken apart; sans-IO.

Source: ActiveMQ Classic, org.apache.activemq.util.MarshallingSupport; ActiveMQTextMessage,
ActiveMQBytesMessage, ActiveMQMapMessage and ActiveMQStreamMessage (storeContent, doCompress).
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from struct import Struct, error
from typing import ClassVar, Final

from msgspec.structs import replace

from amqsidecar.errors import EditRefused, UndecodableMessage
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import message_id_text, take_apart
from amqsidecar.formats.openwire_properties import (
    decode_text,
    encode_text,
    end_of_value,
    string_entry,
)
from amqsidecar.messages.body_text import JAVA_LOCK, bytes_body, text_body
from amqsidecar.messages.slots import Plain, Slot, check_classic, number_text
from amqsidecar.messages.tree import (
    STREAM_LOCK,
    Form,
    MessageTree,
    entries_body,
    jms_headers,
)
from amqsidecar.model.message import (
    DEPTH_MAX,
    FIELDS_MAX,
    VALUE_CHARACTERS_MAX,
    BodyKind,
    BodyView,
    ValueType,
)

MESSAGE, BYTES, MAP, OBJECT, STREAM, TEXT, BLOB = range(23, 30)
_KINDS: Final = {
    MESSAGE: "Message",
    BYTES: "BytesMessage",
    MAP: "MapMessage",
    OBJECT: "ObjectMessage",
    STREAM: "StreamMessage",
    TEXT: "TextMessage",
    BLOB: "BlobMessage",
}

UNPACKED_BYTES_MAX: Final = 32 << 20
"""A compressed body that is larger is not unpacked."""

_NAME_BYTES_MAX: Final = 2**16 - 1

_TYPES: Final = (
    *(ValueType.NULL, ValueType.BOOLEAN, ValueType.BYTE, ValueType.CHAR, ValueType.SHORT),
    *(ValueType.INT, ValueType.LONG, ValueType.DOUBLE, ValueType.FLOAT, ValueType.STRING),
    *(ValueType.BYTES, ValueType.MAP, ValueType.LIST, ValueType.STRING),
)
"""Types by their type byte; the last is of long texts."""
_NUMBERS: Final = {
    ValueType.BYTE: Struct(">b"),
    ValueType.SHORT: Struct(">h"),
    ValueType.INT: Struct(">i"),
    ValueType.LONG: Struct(">q"),
    ValueType.FLOAT: Struct(">f"),
    ValueType.DOUBLE: Struct(">d"),
}
_STRING_CODE: Final = 9
_NESTED: Final = (ValueType.MAP, ValueType.LIST)
_SHORT: Final = Struct(">H")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_LOCKS: Final = {
    MESSAGE: "a Message has none",
    OBJECT: JAVA_LOCK,
    STREAM: STREAM_LOCK,
    BLOB: "a BlobMessage has its body elsewhere",
}
_FORMS: Final = {TEXT: Form.TEXT, BYTES: Form.BYTES, MAP: Form.MAP}


class OpenWireTree(MessageTree):
    """A kept OpenWire message; a compressed body is compressed again after a change."""

    wire: ClassVar[str] = "OpenWire 12"

    def __init__(self, message: bytes) -> None:
        self.size_bytes = len(message)
        self._message = message
        self._parts = parts = take_apart(message)
        self._code = message[0]
        self._is_packed = bool(parts.compressed)
        body = bytes(parts.body)
        self._jms_type, used = _text_field(body, 0)
        # Why: expiration and timestamp are eight bytes each.
        self._at = parts.expiration_at + 8 + len(parts.priority) + 8 + used
        self._content = body[used + 5 :] if body[used] else None
        self._old_bytes = len(_field(self._content)) + len(_field(parts.properties))
        self._properties: bytes | None = parts.properties
        self.kind = _KINDS[self._code]
        self.form = _FORMS.get(self._code)
        self.not_replaceable = f"only that of a text or bytes can be replaced, this is {self.kind}"

    def headers(self, problems: list[str]) -> Sequence[Slot]:
        parts = self._parts
        group, used = _text_field(parts.group, 0)
        message_id = None
        with suppress(UndecodableMessage):
            message_id = message_id_text(parts)
        texts = {
            "JMSMessageID": message_id,
            "originalDestination": _destination(parts.original_destination),
            "JMSCorrelationID": _text_field(parts.group, used + 4)[0],
            "JMSReplyTo": _destination(parts.priority[1:]),
            "JMSType": self._jms_type,
            "JMSDeliveryMode": "PERSISTENT" if parts.persistent else "NON_PERSISTENT",
            "JMSXGroupID": group,
            "JMSXUserID": _text_field(parts.user, 0)[0],
        }
        expiration_ms = _LONG.unpack_from(self._message, parts.expiration_at)[0]
        numbers = {
            "JMSPriority": (ValueType.BYTE, parts.priority[0]),
            "JMSTimestamp": (ValueType.LONG, parts.timestamp_ms),
            "JMSExpiration": (ValueType.LONG, expiration_ms),
            "JMSXGroupSeq": (ValueType.INT, _INT.unpack_from(parts.group, used)[0]),
        }
        return [*jms_headers(texts, numbers)]

    def properties(self) -> list[Slot]:
        return slots_of(self._properties)

    def body(self, max_bytes: int) -> BodyView:
        body = self._plain_body(self.data(), max_bytes)
        lock = _LOCKS.get(self._code, body.locked)
        return replace(body, is_compressed=self._is_packed, locked=lock)

    def _plain_body(self, data: bytes | None, max_bytes: int) -> BodyView:
        code = self._code
        if code == TEXT:
            if data is None:
                return BodyView(kind=BodyKind.EMPTY)
            return text_body(text_content(data), max_bytes)
        if not data:
            return BodyView(kind=BodyKind.MAP if code == MAP else BodyKind.EMPTY)
        if code == MAP:
            return entries_body(entries_of_map(data), len(data), is_map=True)
        if code == STREAM:
            return entries_body(entries_of_stream(data), len(data), is_map=False)
        return bytes_body(data, max_bytes)

    def text(self) -> str | None:
        data = self.data()
        return None if data is None else decode_text(text_content(data))

    def data(self) -> bytes | None:
        if self._content is not None and self._is_packed:
            return unpack(self._code, self._content)
        return self._content

    def entries(self) -> Sequence[Slot]:
        return slots_of(self.data())

    def encode(self, what: str, name: str, type_: ValueType, value: Plain) -> bytes:
        check_classic(f"{what} {name!r}", f"{name}{value}")
        encoded = encode_text(name)
        if len(encoded) > _NAME_BYTES_MAX:
            raise EditRefused(
                f"{what} {name[:40]!r}...: its name is longer than the {_NAME_BYTES_MAX}"
                " bytes that OpenWire can carry"
            )
        if isinstance(value, str):
            return string_entry(name, value)
        head = _SHORT.pack(len(encoded)) + encoded + bytes((_TYPES.index(type_),))
        return head + (bytes((value,)) if isinstance(value, bool) else _NUMBERS[type_].pack(value))

    def set_text(self, text: str) -> None:
        encoded = encode_text(text)
        self.set_data(_INT.pack(len(encoded)) + encoded)

    def set_data(self, data: bytes) -> None:
        self._content = data
        if self._is_packed:
            packed = zlib.compress(data)
            is_bytes = self._code == BYTES
            self._content = _INT.pack(len(data)) + packed if is_bytes else packed

    def set_entries(self, pieces: list[bytes]) -> None:
        self.set_data(_join_map(pieces))

    def set_lines(self, pieces: list[bytes]) -> None:
        self._properties = _join_map(pieces)

    def encoded(self) -> bytes:
        fields = _field(self._content) + _field(self._properties)
        return self._message[: self._at] + fields + self._message[self._at + self._old_bytes :]


def _field(data: bytes | None) -> bytes:
    return b"\0" if data is None else b"\x01" + _INT.pack(len(data)) + data


def _join_map(entries: list[bytes]) -> bytes:
    return _INT.pack(len(entries)) + b"".join(entries)


def _destination(field: bytes) -> str | None:
    try:
        destination = codec.read_destination(field)
    except UndecodableMessage:
        return None
    return None if destination is None else str(destination)


def _text_field(field: bytes, at: int) -> tuple[str | None, int]:
    """Return the text of a field and where it ends."""
    if not field[at]:
        return None, at + 1
    end = at + 3 + int.from_bytes(field[at + 1 : at + 3], "big")
    return decode_text(field[at + 3 : end]), end


def slots_of(data: bytes | None) -> list[Slot]:
    """Return the values of a marshalled map, without the values of nested maps.

    Raises:
        UndecodableMessage: the map is not well formed.
    """
    if not data:
        return []
    return _guarded(lambda: [slot for slot, _ in _pairs(data, 0, 0)], "a map")


def entries_of_map(data: bytes) -> list[Slot]:
    """Return the values of a marshalled map, nested values after the map that holds them.

    At most one more than `FIELDS_MAX`: the extra value shows that there are more.

    Raises:
        UndecodableMessage: the map is not well formed.
    """
    return _guarded(lambda: _some(_deep(_pairs(data, 0, 0), data)), "a map")


def entries_of_stream(data: bytes) -> list[Slot]:
    """Return the values of a stream, as `entries_of_map`.

    Raises:
        UndecodableMessage: the stream is not well formed.
    """
    return _guarded(lambda: _some(_deep(_items(data, 0, None, 0), data)), "a stream")


def _guarded(read: Callable[[], list[Slot]], what: str) -> list[Slot]:
    try:
        return read()
    except (error, IndexError) as cause:
        raise UndecodableMessage(f"{what} ends in the middle of a value") from cause


def _some(slots: Iterator[Slot]) -> list[Slot]:
    return [slot for slot, _ in zip(slots, range(FIELDS_MAX + 1), strict=False)]


_Found = tuple[Slot, int]
"""A value, and where its type byte is."""


def _pairs(data: bytes, at: int, depth: int) -> Iterator[_Found]:
    """Yield the values of the map whose count is at `at`."""
    count = _INT.unpack_from(data, at)[0]
    at += 4
    for _ in range(count):
        value_at = at + 2 + int(_SHORT.unpack_from(data, at)[0])
        name = data[at + 2 : value_at]
        looks = decode_text(name)
        end = _end(data, value_at)
        yield _slot(looks, encode_text(looks) == name, data, at, value_at, end, depth), value_at
        at = end


def _items(data: bytes, at: int, count: int | None, depth: int) -> Iterator[_Found]:
    """Yield `count` values that begin at `at`; None = all there are."""
    index = 0
    while at < len(data) if count is None else index < count:
        end = _end(data, at)
        yield _slot(str(index), True, data, at, at, end, depth), at
        at = end
        index += 1


def _end(data: bytes, at: int) -> int:
    end = end_of_value(data, at, 0)
    if end > len(data):
        raise UndecodableMessage("a value is longer than its container")
    return end


def _deep(found: Iterator[_Found], data: bytes) -> Iterator[Slot]:
    for slot, at in found:
        yield slot
        if slot.type in _NESTED and slot.depth + 1 < DEPTH_MAX:
            count = _INT.unpack_from(data, at + 1)[0]
            is_map = slot.type is ValueType.MAP
            depth = slot.depth + 1
            nested = _pairs(data, at + 1, depth) if is_map else _items(data, at + 5, count, depth)
            yield from _deep(nested, data)


def _slot(
    looks: str, is_read: bool, data: bytes, start: int, at: int, end: int, depth: int
) -> Slot:
    type_ = _TYPES[data[at]]
    text = _text(type_, data, at, end)
    return Slot(looks if is_read else None, type_, text, data[start:end], looks, depth)


def _text(type_: ValueType, data: bytes, at: int, end: int) -> str:
    if type_ is ValueType.STRING:
        return decode_text(data[at + (3 if data[at] == _STRING_CODE else 5) : end])
    if type_ is ValueType.BYTES:
        return data[at + 5 : min(end, at + 5 + VALUE_CHARACTERS_MAX)].hex()
    if type_ is ValueType.BOOLEAN:
        return "true" if data[at + 1] else "false"
    if type_ is ValueType.CHAR:
        return data[at + 1 : end].decode("utf-16-be", "replace")
    if type_ in _NUMBERS:
        value = _NUMBERS[type_].unpack_from(data, at + 1)[0]
        return number_text(value, type_) if isinstance(value, float) else str(value)
    return ""


def unpack(code: int, content: bytes) -> bytes:
    """Return a compressed body as it was.

    Raises:
        UndecodableMessage: it can't be unpacked, or is larger than `UNPACKED_BYTES_MAX`.
    """
    # Why 4: a BytesMessage has the size of its bytes before them.
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content[4 if code == BYTES else 0 :], UNPACKED_BYTES_MAX)
    except zlib.error as cause:
        raise UndecodableMessage("its compressed body can't be unpacked") from cause
    if stream.unconsumed_tail or (not stream.eof and len(data) == UNPACKED_BYTES_MAX):
        raise UndecodableMessage(f"unpacked its body is larger than {UNPACKED_BYTES_MAX} bytes")
    if not stream.eof:
        raise UndecodableMessage("its compressed body is cut off")
    return data


def text_content(data: bytes) -> bytes:
    """Return the encoded text of the unpacked content of a TextMessage; b"" where it is null.

    Raises:
        UndecodableMessage: it is not well formed.
    """
    if len(data) < 4:
        raise UndecodableMessage("its text has no length")
    size = _INT.unpack_from(data)[0]
    if size > len(data) - 4:
        raise UndecodableMessage("its text is cut off")
    return data[4 : 4 + max(0, size)]
