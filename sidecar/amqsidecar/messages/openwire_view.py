"""The view of a kept OpenWire message; sans-IO."""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from msgspec.structs import replace

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import MessageParts, message_id_text, take_apart
from amqsidecar.formats.openwire_properties import decode_text
from amqsidecar.messages import openwire_values as values
from amqsidecar.messages.body_text import JAVA_LOCK, beginning, bytes_body, text_body
from amqsidecar.messages.readable import (
    STREAM_LOCK,
    UNREADABLE_BODY,
    attempt,
    entries_body,
    jms_headers,
    jms_view,
    undecodable,
)
from amqsidecar.messages.slots import Slot
from amqsidecar.model.message import BodyKind, BodyView, MessageView, TypedValue, ValueType

WIRE: Final = "OpenWire 12"
_LOCKS: Final = {
    values.MESSAGE: "a Message has none",
    values.OBJECT: JAVA_LOCK,
    values.STREAM: STREAM_LOCK,
    values.BLOB: "a BlobMessage has its body elsewhere",
}
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")


class Content(NamedTuple):
    """Where the content of a message is.

    Attributes:
        at: where its field begins in the message, behind the field of the JMSType.
        data: as it is on the wire; None = null.
        jms_type: None = null.
    """

    at: int
    data: bytes | None
    jms_type: str | None


def content_of(parts: MessageParts) -> Content:
    """Return the content of a message and its JMSType."""
    # Why: expiration and timestamp are eight bytes each.
    at = parts.expiration_at + 8 + len(parts.priority) + 8
    body = bytes(parts.body)
    jms_type, used = _text(body, 0)
    data = body[used + 5 :] if body[used] else None
    return Content(at + used, data, jms_type)


def view(message: bytes, max_bytes: int) -> MessageView:
    """Return the view of a message; never raises."""
    try:
        parts = take_apart(message)
        content = content_of(parts)
    except UndecodableMessage as cause:
        return undecodable(WIRE, message, max_bytes, cause)
    problems: list[str] = []
    code = message[0]
    slots: list[Slot] = attempt(
        lambda: values.slots_of(parts.properties), [], "its properties", problems
    )
    is_packed = bool(parts.compressed)
    body = attempt(
        lambda: _body(code, content.data, is_packed=is_packed, max_bytes=max_bytes),
        UNREADABLE_BODY,
        "its body",
        problems,
    )
    headers = _headers(message, parts, content)
    return jms_view(WIRE, values.KINDS[code], headers, slots, body, len(message), problems)


def unpacked(code: int, data: bytes | None, *, is_packed: bool) -> bytes | None:
    """Return the content as its type has it, uncompressed; None = null.

    Raises:
        UndecodableMessage: it can't be unpacked.
    """
    return values.unpack(code, data) if data is not None and is_packed else data


def _body(code: int, data: bytes | None, *, is_packed: bool, max_bytes: int) -> BodyView:
    body = _plain_body(code, unpacked(code, data, is_packed=is_packed), max_bytes)
    lock = _LOCKS.get(code, body.locked)
    return replace(body, is_compressed=is_packed, locked=lock)


def _plain_body(code: int, data: bytes | None, max_bytes: int) -> BodyView:
    if code == values.TEXT:
        if data is None:
            return BodyView(kind=BodyKind.EMPTY)
        encoded = values.text_content(data)
        text, is_cut = beginning(encoded, max_bytes)
        return text_body(text, len(encoded), is_cut=is_cut)
    if not data:
        return BodyView(kind=BodyKind.MAP if code == values.MAP else BodyKind.EMPTY)
    if code in (values.MAP, values.STREAM):
        is_map = code == values.MAP
        entries = values.entries_of_map(data) if is_map else values.entries_of_stream(data)
        return entries_body(entries, len(data), is_map=is_map)
    return bytes_body(data[:max_bytes], len(data))


def _headers(message: bytes, parts: MessageParts, content: Content) -> Iterator[TypedValue]:
    group, used = _text(parts.group, 0)
    sequence = _INT.unpack_from(parts.group, used)[0]
    correlation, _ = _text(parts.group, used + 4)
    expiration_ms = _LONG.unpack_from(message, parts.expiration_at)[0]
    texts = {
        "JMSMessageID": _message_id(parts),
        "originalDestination": _destination(parts.original_destination),
        "JMSCorrelationID": correlation,
        "JMSReplyTo": _destination(parts.priority[1:]),
        "JMSType": content.jms_type,
        "JMSDeliveryMode": "PERSISTENT" if parts.persistent else "NON_PERSISTENT",
        "JMSXGroupID": group,
        "JMSXUserID": _text(parts.user, 0)[0],
    }
    numbers = {
        "JMSPriority": (ValueType.BYTE, parts.priority[0]),
        "JMSTimestamp": (ValueType.LONG, parts.timestamp_ms),
        "JMSExpiration": (ValueType.LONG, expiration_ms),
        "JMSXGroupSeq": (ValueType.INT, sequence),
    }
    return jms_headers(texts, numbers)


def _message_id(parts: MessageParts) -> str | None:
    try:
        return message_id_text(parts)
    except UndecodableMessage:
        return None


def _destination(field: bytes) -> str | None:
    try:
        destination = codec.read_destination(field)
    except UndecodableMessage:
        return None
    return None if destination is None else str(destination)


def _text(field: bytes, at: int) -> tuple[str | None, int]:
    """Return the text of a field and where it ends."""
    if not field[at]:
        return None, at + 1
    end = at + 3 + int.from_bytes(field[at + 1 : at + 3], "big")
    return decode_text(field[at + 3 : end]), end
