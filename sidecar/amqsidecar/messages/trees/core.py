"""Core messages taken apart; sans-IO."""

import zlib
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from msgspec.structs import replace

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.artemis_properties import COMPRESSED
from amqsidecar.formats.core import message as core
from amqsidecar.formats.core.message import CoreProperty, CorePropertyType
from amqsidecar.formats.core.primitives import (
    NULLABLE_SIMPLE_STRING,
    NULLABLE_STRING,
    CoreProtocolError,
    CoreReader,
    decode_simple_text,
)
from amqsidecar.formats.core_artemis_message import (
    CoreProperties,
    keep_again,
    key_of,
    message_id_of,
    take_apart,
)
from amqsidecar.messages.body_text import JAVA_LOCK, bytes_body, text_body
from amqsidecar.messages.slots import Plain, Slot, number_text
from amqsidecar.messages.tree import Form, MessageTree, entries_body, jms_headers
from amqsidecar.model.message import (
    FIELDS_MAX,
    VALUE_CHARACTERS_MAX,
    BodyKind,
    BodyView,
    ValueType,
)

_KINDS: Final = {
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
# Bound: unpacked bytes of a body that its client compressed.
_UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024
_FORMS: Final = {
    core.TEXT_MESSAGE: Form.TEXT,
    core.BYTES_MESSAGE: Form.BYTES,
    core.MAP_MESSAGE: Form.MAP,
}
_COMPRESSED_LOCK: Final = "its client compressed it"
_OTHER_LOCK: Final = "only a text, bytes or the entries of a map can be changed"
_SIZE_BYTES: Final = 4


class CoreTree(MessageTree):
    """A kept Core message."""

    wire: ClassVar[str] = "Core"

    def __init__(self, message: bytes) -> None:
        self.size_bytes = len(message)
        self._kept = take_apart(message)
        self._message = self._kept.message
        self.kind = _KINDS.get(self._message.kind, "")
        self.form = _FORMS.get(self._message.kind)
        this = self.kind or "neither"
        self.not_replaceable = f"only that of a text or bytes can be replaced, this is {this}"

    def _is_compressed(self) -> bool:
        properties = CoreProperties(self._message.properties)
        return properties.value(key_of(COMPRESSED)) is True

    def headers(self, problems: list[str]) -> Sequence[Slot]:
        message = self._message
        texts = {
            "JMSMessageID": _words(message_id_of(message)),
            "address": _words(message.address),
            "JMSDeliveryMode": "PERSISTENT" if message.durable else "NON_PERSISTENT",
        }
        numbers = {
            "JMSPriority": (ValueType.BYTE, message.priority),
            "JMSTimestamp": (ValueType.LONG, message.timestamp_ms),
            "JMSExpiration": (ValueType.LONG, message.expiration_ms),
        }
        return [*jms_headers(texts, numbers)]

    def properties(self) -> list[Slot]:
        return slots_of(self._message.properties)

    def body(self, max_bytes: int) -> BodyView:
        is_packed = self._is_compressed()
        data = unpack(self._message.body) if is_packed else self._message.body
        found = self._plain_body(data, max_bytes)
        lock = _COMPRESSED_LOCK if is_packed else found.locked
        return replace(found, is_compressed=is_packed, locked=lock)

    def _plain_body(self, data: bytes, max_bytes: int) -> BodyView:
        kind = self._message.kind
        if kind == core.TEXT_MESSAGE:
            text = text_of_body(data)
            if text is None:
                return BodyView(kind=BodyKind.EMPTY)
            return text_body(text.encode(errors="replace"), max_bytes)
        if kind == core.MAP_MESSAGE:
            return entries_body(slots_of(data), len(data), is_map=True)
        if kind == core.STREAM_MESSAGE:
            return entries_body(entries_of_stream(data), len(data), is_map=False)
        if kind == core.OBJECT_MESSAGE:
            data = data[_SIZE_BYTES:]
        lock = {core.OBJECT_MESSAGE: JAVA_LOCK, core.BYTES_MESSAGE: None}.get(kind, _OTHER_LOCK)
        if not data:
            return BodyView(kind=BodyKind.EMPTY, locked=lock)
        found = bytes_body(data, max_bytes)
        return replace(found, locked=lock or found.locked)

    def text(self) -> str | None:
        return text_of_body(self._message.body)

    def data(self) -> bytes | None:
        return self._message.body

    def entries(self) -> Sequence[Slot]:
        return slots_of(self._message.body)

    def encode(self, what: str, name: str, type_: ValueType, value: Plain) -> bytes:
        return core.core_entry(name, CoreProperty(_CODES[type_], value))

    def body_lock(self) -> str | None:
        return _COMPRESSED_LOCK if self._is_compressed() else None

    def set_text(self, text: str) -> None:
        self.set_data(NULLABLE_SIMPLE_STRING.write(text))

    def set_data(self, data: bytes) -> None:
        self._message = self._message._replace(body=data)

    def set_entries(self, pieces: list[bytes]) -> None:
        self.set_data(core.join_properties(pieces))

    def set_lines(self, pieces: list[bytes]) -> None:
        self._message = self._message._replace(properties=core.join_properties(pieces))

    def encoded(self) -> bytes:
        return keep_again(self._kept._replace(message=self._message))


def _words(text: str | None) -> str | None:
    """Return a text that can be encoded: half of a surrogate pair becomes a question mark."""
    return None if text is None else text.encode(errors="replace").decode()


def text_of_body(body: bytes) -> str | None:
    """Return the text of the body of a text message; None = null.

    Raises:
        UndecodableMessage: it can't be read.
    """
    try:
        return NULLABLE_SIMPLE_STRING.read(CoreReader(body)) if body else None
    except CoreProtocolError as cause:
        raise UndecodableMessage(str(cause)) from None


def slots_of(encoded: bytes) -> list[Slot]:
    """Return the values of encoded properties, or of the body of a map.

    Raises:
        UndecodableMessage: they can't be read.
    """
    try:
        return (
            [_slot(encoded, entry) for entry in core.split_properties(encoded)] if encoded else []
        )
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


def unpack(body: bytes) -> bytes:
    """Return a body that its client has compressed.

    Raises:
        UndecodableMessage: it is not valid, or has too many bytes.
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
