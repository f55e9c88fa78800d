"""The view of a kept STOMP message; sans-IO."""

from typing import Final, NamedTuple

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.stomp_frame import read_head
from amqsidecar.messages.body_text import beginning, bytes_body, text_body
from amqsidecar.messages.readable import undecodable
from amqsidecar.messages.slots import Slot, shown
from amqsidecar.model.message import FIELDS_MAX, BodyKind, BodyView, MessageView, ValueType
from amqsidecar.model.property_locks import HEADER, lock_of

WIRE: Final = "STOMP 1.2"
LENGTH: Final = "content-length"
"""Its presence distinguishes bytes from a text."""

ORIGINAL_DESTINATION: Final = "original-destination"
"""Only dead letters of Classic have it."""

_HEADERS: Final = frozenset(
    (
        *("destination", "destination-type", "subscription-type", "message-id", "correlation-id"),
        *("expires", "priority", "reply-to", "timestamp", "type", "persistent", "redelivered"),
        *("subscription", "ack", "id", "receipt", "transaction", "transformation", "selector"),
        *("amq-msg-type", "content-type", LENGTH, ORIGINAL_DESTINATION),
    )
)


class Parts(NamedTuple):
    """A kept message.

    Attributes:
        slots: its headers, each with its line.
        body: exactly.
    """

    slots: list[Slot]
    body: bytes

    @property
    def is_bytes(self) -> bool:
        """Whether the body is bytes and not a text."""
        return self.has(LENGTH)

    def has(self, name: str) -> bool:
        """Return whether there is a header of this name."""
        return any(slot.name == name for slot in self.slots)


def take_apart(message: bytes) -> Parts:
    """Return the headers and the body of a kept message.

    Raises:
        UndecodableMessage: it has no end of its headers.
    """
    if message.startswith(b"\n"):
        return Parts([], message[1:])
    head, separator, body = message.partition(b"\n\n")
    if not separator:
        raise UndecodableMessage("the message's headers have no end")
    return Parts([_slot(line + b"\n") for line in head.split(b"\n")], body)


def _slot(line: bytes) -> Slot:
    [(name, value)] = read_head(line)
    looks = name.decode(errors="replace")
    is_read = looks.encode() == name
    text = value.decode(errors="replace")
    return Slot(looks if is_read else None, ValueType.STRING, text, line, looks)


def lock_of_header(name: str) -> str | None:
    """Return why a header stays as it is; None = it is a property of the application."""
    return "STOMP reserves this name" if name in _HEADERS else lock_of(name)


def view(message: bytes, max_bytes: int) -> MessageView:
    """Return the view of a message; never raises."""
    try:
        parts = take_apart(message)
    except UndecodableMessage as error:
        return undecodable(WIRE, message, max_bytes, error)
    headers = [slot for slot in parts.slots if slot.name in _HEADERS]
    properties = [slot for slot in parts.slots if slot.name not in _HEADERS]
    body = _body(parts, max_bytes)
    is_open = body.locked is None
    return MessageView(
        wire=WIRE,
        kind="BytesMessage" if parts.is_bytes else "TextMessage",
        headers=shown(headers, lambda _name: HEADER),
        properties=shown(properties, lock_of_header),
        left_out=max(0, len(headers) - FIELDS_MAX) + max(0, len(properties) - FIELDS_MAX),
        body=body,
        size_bytes=len(message),
        property_types=(ValueType.STRING,),
        body_as_bytes=parts.is_bytes and is_open,
        body_as_text=is_open,
    )


def _body(parts: Parts, max_bytes: int) -> BodyView:
    content_type = next((slot.text for slot in parts.slots if slot.name == "content-type"), "")
    body = parts.body
    if not body:
        return BodyView(kind=BodyKind.EMPTY, content_type=content_type)
    if parts.is_bytes:
        return bytes_body(body[:max_bytes], len(body), content_type=content_type)
    text, is_cut = beginning(body, max_bytes)
    return text_body(text, len(body), is_cut=is_cut, content_type=content_type)
