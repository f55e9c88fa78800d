"""Values and bodies of OpenWire messages as people see them, and values that people set; sans-IO.

Source: ActiveMQ Classic, org.apache.activemq.util.MarshallingSupport; ActiveMQTextMessage,
ActiveMQBytesMessage, ActiveMQMapMessage and ActiveMQStreamMessage (storeContent, doCompress).
"""

import zlib
from collections.abc import Callable, Iterator
from struct import Struct, error
from typing import Final

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.openwire_properties import (
    decode_text,
    encode_text,
    end_of_value,
    string_entry,
)
from amqsidecar.messages.slots import Plain, Slot, number_text
from amqsidecar.model.message import DEPTH_MAX, FIELDS_MAX, VALUE_CHARACTERS_MAX, ValueType

MESSAGE, BYTES, MAP, OBJECT, STREAM, TEXT, BLOB = range(23, 30)
KINDS: Final = {
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

NAME_BYTES_MAX: Final = 2**16 - 1

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


def slots_of(data: bytes | None) -> list[Slot]:
    """Return the values of a marshalled map, without what is in nested ones.

    Raises:
        UndecodableMessage: the map is not well formed.
    """
    if not data:
        return []
    return _guarded(lambda: [slot for slot, _ in _pairs(data, 0, 0)], "a map")


def entries_of_map(data: bytes) -> list[Slot]:
    """Return the values of a marshalled map, nested ones after the one that holds them.

    At most one more than `FIELDS_MAX`, so that a caller sees that there are more.

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


def encode_entry(name: str, type_: ValueType, value: Plain) -> bytes:
    """Return an encoded entry of a map."""
    if isinstance(value, str):
        return string_entry(name, value)
    encoded = encode_text(name)
    head = _SHORT.pack(len(encoded)) + encoded + bytes((_TYPES.index(type_),))
    return head + (bytes((value,)) if isinstance(value, bool) else _NUMBERS[type_].pack(value))


def join_map(entries: list[bytes]) -> bytes:
    """Return the map of encoded entries."""
    return _INT.pack(len(entries)) + b"".join(entries)


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


def pack(code: int, data: bytes) -> bytes:
    """Return a body compressed as a message of this type has it."""
    packed = zlib.compress(data)
    return _INT.pack(len(data)) + packed if code == BYTES else packed


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


def make_text(text: str) -> bytes:
    """Return the content of a TextMessage."""
    encoded = encode_text(text)
    return _INT.pack(len(encoded)) + encoded
