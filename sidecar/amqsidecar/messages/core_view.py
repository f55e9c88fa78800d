"""The view of a kept Core message; sans-IO."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.artemis_properties import COMPRESSED
from amqsidecar.formats.core import message as core
from amqsidecar.formats.core.message import CoreMessage
from amqsidecar.formats.core.primitives import (
    NULLABLE_SIMPLE_STRING,
    CoreProtocolError,
    CoreReader,
)
from amqsidecar.formats.core_artemis_message import (
    CoreProperties,
    key_of,
    message_id_of,
    take_apart,
)
from amqsidecar.messages import core_values as values
from amqsidecar.messages.body_text import JAVA_LOCK, beginning, bytes_body, text_body
from amqsidecar.messages.readable import (
    UNREADABLE_BODY,
    attempt,
    entries_body,
    jms_headers,
    jms_view,
    undecodable,
)
from amqsidecar.messages.slots import Slot
from amqsidecar.model.message import BodyKind, BodyView, MessageView, TypedValue, ValueType

WIRE: Final = "Core"
COMPRESSED_LOCK: Final = "its client compressed it"
_OTHER_LOCK: Final = "only a text, bytes or the entries of a map can be changed"
_SIZE_BYTES: Final = 4


def view(message: bytes, max_bytes: int) -> MessageView:
    """Return the view of a message; never raises."""
    try:
        found = take_apart(message).message
    except UndecodableMessage as cause:
        return undecodable(WIRE, message, max_bytes, cause)
    problems: list[str] = []
    slots: list[Slot] = attempt(
        lambda: values.slots_of(found.properties), [], "its properties", problems
    )
    body = attempt(lambda: _body(found, max_bytes), UNREADABLE_BODY, "its body", problems)
    kind = values.KINDS.get(found.kind, "")
    return jms_view(WIRE, kind, _headers(found), slots, body, len(message), problems)


def is_compressed(message: CoreMessage) -> bool:
    """Return whether its client has compressed the body.

    Raises:
        UndecodableMessage: its properties can't be read.
    """
    return CoreProperties(message.properties).value(key_of(COMPRESSED)) is True


def text_of_body(body: bytes) -> str | None:
    """Return the text of the body of a text message; None = null.

    Raises:
        UndecodableMessage: it can't be read.
    """
    try:
        return NULLABLE_SIMPLE_STRING.read(CoreReader(body)) if body else None
    except CoreProtocolError as cause:
        raise UndecodableMessage(str(cause)) from None


def _body(message: CoreMessage, max_bytes: int) -> BodyView:
    is_packed = is_compressed(message)
    data = values.unpack(message.body) if is_packed else message.body
    found = _plain_body(message.kind, data, max_bytes)
    lock = COMPRESSED_LOCK if is_packed else found.locked
    return replace(found, is_compressed=is_packed, locked=lock)


def _plain_body(kind: int, data: bytes, max_bytes: int) -> BodyView:
    if kind == core.TEXT_MESSAGE:
        text = text_of_body(data)
        if text is None:
            return BodyView(kind=BodyKind.EMPTY)
        encoded = text.encode(errors="replace")
        begin, is_cut = beginning(encoded, max_bytes)
        return text_body(begin, len(encoded), is_cut=is_cut)
    if kind in (core.MAP_MESSAGE, core.STREAM_MESSAGE):
        is_map = kind == core.MAP_MESSAGE
        entries = (
            (values.slots_of(data) if data else []) if is_map else values.entries_of_stream(data)
        )
        return entries_body(entries, len(data), is_map=is_map)
    if kind == core.OBJECT_MESSAGE:
        data = data[_SIZE_BYTES:]
    lock = {core.OBJECT_MESSAGE: JAVA_LOCK, core.BYTES_MESSAGE: None}.get(kind, _OTHER_LOCK)
    if not data:
        return BodyView(kind=BodyKind.EMPTY, locked=lock)
    found = bytes_body(data[:max_bytes], len(data))
    return replace(found, locked=lock or found.locked)


def _headers(message: CoreMessage) -> Iterator[TypedValue]:
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
    return jms_headers(texts, numbers)


def _words(text: str | None) -> str | None:
    """Return a text that can be encoded: half of a surrogate pair becomes a question mark."""
    return None if text is None else text.encode(errors="replace").decode()
