"""The view of a kept AMQP message; sans-IO."""

from collections.abc import Sequence
from typing import Final

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.messages import amqp_values as values
from amqsidecar.messages.body_text import beginning, bytes_body, text_body
from amqsidecar.messages.readable import UNREADABLE_BODY, attempt, undecodable
from amqsidecar.messages.slots import Slot, shown
from amqsidecar.model.message import (
    EDITABLE_TYPES,
    FIELDS_MAX,
    BodyKind,
    BodyView,
    MessageView,
    ValueType,
)
from amqsidecar.model.property_locks import HEADER, lock_of

WIRE: Final = "AMQP 1.0"
_HEADERS = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
_PROPERTIES = (
    *("message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type"),
    *("content-encoding", "absolute-expiry-time", "creation-time", "group-id", "group-sequence"),
    "reply-to-group-id",
)
_KINDS = ("Message", "ObjectMessage", "MapMessage", "BytesMessage", "StreamMessage", "TextMessage")
_STREAM: Final = 4

_LOCKED = "only a text, bytes or the entries of a map can be changed"


def view(message: bytes, max_bytes: int) -> MessageView:
    """Return the view of a message; never raises."""
    problems: list[str] = []
    try:
        sections = amqp.split(message)
    except UndecodableMessage as error:
        return undecodable(WIRE, message, max_bytes, error)

    def read(what: str, code: int, names: Sequence[str] = ()) -> list[Slot]:
        return attempt(lambda: _slots(sections.get(code), names), [], what, problems)

    headers = [
        *read("its header", amqp.HEADER, _HEADERS),
        *read("its delivery annotations", amqp.DELIVERY_ANNOTATIONS),
        *read("its message annotations", amqp.MESSAGE_ANNOTATIONS),
        *read("its standard properties", amqp.PROPERTIES, _PROPERTIES),
    ]
    properties = read("its application properties", amqp.APPLICATION_PROPERTIES)
    type_ = attempt(lambda: values.jms_type(sections), None, "its type", [])
    content_type = attempt(lambda: values.content_type(sections), "", "", [])
    body = values.read_body(sections.get(amqp.VALUE, b""))
    entries = body.single(amqp.VALUE)
    is_map = entries is not None and values.type_of(entries) is ValueType.MAP
    looks = attempt(
        lambda: _body(body, type_, content_type, max_bytes),
        UNREADABLE_BODY,
        "its body",
        problems,
    )
    return MessageView(
        wire=WIRE,
        kind=_KINDS[type_] if type_ is not None and 0 <= type_ < len(_KINDS) else "",
        headers=shown(headers, lambda _name: HEADER),
        properties=shown(properties, lock_of),
        left_out=max(0, len(headers) - FIELDS_MAX) + max(0, len(properties) - FIELDS_MAX),
        body=looks,
        size_bytes=len(message),
        problems=tuple(problems),
        property_types=EDITABLE_TYPES,
        entry_types=EDITABLE_TYPES if is_map and looks.locked is None else (),
        body_as_bytes=body.data is not None and looks.locked is None,
        body_as_text=(values.text_body_of(body, type_) is not None or body.data is not None)
        and looks.locked is None,
    )


def _slots(section: bytes | None, names: Sequence[str]) -> list[Slot]:
    """Return the values of a section of a map, or those of a list that are not null."""
    if section is None:
        return []
    if not names:
        return values.slots_of(amqp.pairs(section))
    return [
        values.slot(amqp.symbol(name), element)
        for name, element in zip(names, amqp.elements(section), strict=False)
        if element != amqp.NULL
    ]


def _body(body: values.Body, jms_type: int | None, content_type: str, max_bytes: int) -> BodyView:
    text = values.text_body_of(body, jms_type)
    if text is not None:
        begin, is_cut = beginning(text, max_bytes)
        return text_body(begin, len(text), is_cut=is_cut, content_type=content_type)
    data = body.data
    if data is not None:
        return bytes_body(data[:max_bytes], len(data), content_type=content_type)
    value = body.single(amqp.VALUE)
    if not body.values or value == amqp.NULL:
        return BodyView(kind=BodyKind.EMPTY, content_type=content_type, locked="it has none")
    size_bytes = sum(len(one) for _, one in body.values)
    if value is not None and values.type_of(value) not in (ValueType.MAP, ValueType.LIST):
        # A single number, time, ... as AMQP applications may send it.
        slots, kind = [values.slot(amqp.string("0"), value)], BodyKind.LIST
    else:
        slots = [slot for _, one in body.values for slot in values.entries_of(one)]
        is_map = value is not None and values.type_of(value) is ValueType.MAP
        is_stream = jms_type == _STREAM
        kind = BodyKind.MAP if is_map else BodyKind.STREAM if is_stream else BodyKind.LIST
    return BodyView(
        kind=kind,
        content_type=content_type,
        size_bytes=size_bytes,
        is_cut=len(slots) > FIELDS_MAX,
        entries=shown(slots, lambda _name: None if kind is BodyKind.MAP else _LOCKED),
        locked=None if kind is BodyKind.MAP else _LOCKED,
    )
