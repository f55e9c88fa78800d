"""Values and bodies of Core messages as people see them, and values that people set; sans-IO."""

import zlib
from collections.abc import Iterator
from typing import Final

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.core import message as core
from amqsidecar.formats.core.message import CoreProperty, CorePropertyType
from amqsidecar.formats.core.primitives import (
    NULLABLE_STRING,
    CoreProtocolError,
    CoreReader,
    decode_simple_text,
)
from amqsidecar.messages.slots import Plain, Slot, number_text
from amqsidecar.model.message import FIELDS_MAX, VALUE_CHARACTERS_MAX, ValueType

KINDS: Final = {
    core.DEFAULT_MESSAGE: "Message",
    core.OBJECT_MESSAGE: "ObjectMessage",
    core.TEXT_MESSAGE: "TextMessage",
    core.BYTES_MESSAGE: "BytesMessage",
    core.MAP_MESSAGE: "MapMessage",
    core.STREAM_MESSAGE: "StreamMessage",
}

_TYPES: Final = {
    CorePropertyType.NULL: ValueType.NULL,
    CorePropertyType.BOOLEAN: ValueType.BOOLEAN,
    CorePropertyType.BYTE: ValueType.BYTE,
    CorePropertyType.BYTES: ValueType.BYTES,
    CorePropertyType.SHORT: ValueType.SHORT,
    CorePropertyType.INT: ValueType.INT,
    CorePropertyType.LONG: ValueType.LONG,
    CorePropertyType.FLOAT: ValueType.FLOAT,
    CorePropertyType.DOUBLE: ValueType.DOUBLE,
    CorePropertyType.STRING: ValueType.STRING,
    CorePropertyType.CHAR: ValueType.CHAR,
}
_CODES: Final = {type_: code for code, type_ in _TYPES.items()}
# Bound: what is unpacked of a body that its client has compressed.
_UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024


def slots_of(encoded: bytes) -> list[Slot]:
    """Return the values of encoded properties, or of the body of a map.

    Raises:
        UndecodableMessage: they can't be read.
    """
    try:
        return [_slot(encoded, entry) for entry in core.split_properties(encoded)]
    except ValueError as cause:
        raise UndecodableMessage(str(cause)) from None


def _slot(encoded: bytes, entry: core.CoreEntry) -> Slot:
    key, start, value, end = entry
    found = core.read_core_property(encoded, value, end)
    name, looks = decode_simple_text(key), ""
    try:
        name.encode()
    except UnicodeEncodeError:
        looks = name.encode(errors="replace").decode()
    text = _text(found)
    return Slot(None if looks else name, _TYPES[found.kind], text, encoded[start:end], looks)


def _text(found: CoreProperty) -> str:
    value = found.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value, _TYPES[found.kind])
    if isinstance(value, bytes):
        return value[:VALUE_CHARACTERS_MAX].hex()
    return str(value).encode(errors="replace").decode() if isinstance(value, str) else str(value)


def encode_entry(name: str, type_: ValueType, value: Plain) -> bytes:
    """Return a value with its name, as it stands among others."""
    return core.core_entry(name, CoreProperty(_CODES[type_], value))


def unpack(body: bytes) -> bytes:
    """Return a body that its client has compressed.

    Raises:
        UndecodableMessage: it is not compressed so, or has too many bytes.
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(body, _UNPACKED_BYTES_MAX)
    except zlib.error as cause:
        raise UndecodableMessage(f"it can't be decompressed: {cause}") from None
    if not inflater.eof:
        raise UndecodableMessage(f"it has more than {_UNPACKED_BYTES_MAX} bytes, or is cut off")
    return found


def entries_of_stream(body: bytes) -> list[Slot]:
    """Return the values of a stream, at most one more than a view shows.

    Raises:
        UndecodableMessage: they can't be read.
    """
    try:
        return list(_stream(CoreReader(body)))
    except ValueError as cause:
        raise UndecodableMessage(str(cause)) from None


def _stream(reader: CoreReader) -> Iterator[Slot]:
    for at in range(FIELDS_MAX + 1):
        if not reader.left:
            return
        start = reader.at
        kind = _kind(reader.raw(1)[0])
        if kind is CorePropertyType.STRING:
            found = CoreProperty(kind, NULLABLE_STRING.read(reader))
        else:
            value = reader.at
            size = core.FIXED_BYTES.get(kind)
            reader.raw(int.from_bytes(reader.raw(4), "big") if size is None else size)
            found = core.read_core_property(reader.data, value, reader.at)
        encoded = reader.data[start : reader.at]
        yield Slot(str(at), _TYPES[kind], _text(found), encoded)


def _kind(code: int) -> CorePropertyType:
    try:
        return CorePropertyType(code)
    except ValueError:
        raise CoreProtocolError(f"a value has the type {code}") from None
