"""Edits of a kept AMQP message; sans-IO."""

from collections.abc import Collection, Sequence
from typing import Final

from amqsidecar.errors import EditRefused
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.openwire_properties import decode_text
from amqsidecar.messages import amqp_values as values
from amqsidecar.messages.body_text import JAVA_LOCK, is_java
from amqsidecar.messages.slots import Lock, check_text, edit_slots
from amqsidecar.model.message import EDITABLE_TYPES, MessageEdit, PropertyEdit, ValueType
from amqsidecar.model.property_locks import lock_of

_SHORT_BYTES_MAX: Final = 255


def edit(message: bytes, change: MessageEdit) -> bytes:
    """Return a message after an edit; sections that it does not name are the same bytes.

    Raises:
        EditRefused: the edit can't be made.
        UndecodableMessage: the message can't be taken apart.
    """
    sections = amqp.split(message)
    body = values.read_body(sections.get(amqp.VALUE, b""))
    if change.text is not None or change.data is not None:
        made = _replaced(body, sections, change.text, change.data)
        if made is not None:
            sections[amqp.VALUE] = made + body.footer
    if change.set_entries or change.remove_entries:
        value = body.single(amqp.VALUE)
        if value is None or values.type_of(value) is not ValueType.MAP:
            raise EditRefused("body: it is no map; entries can only be changed in one")
        items = amqp.items(value)
        edited = _edited(items, change.set_entries, change.remove_entries, "entry", _unlocked)
        if edited != items:
            sections[amqp.VALUE] = amqp.make_map(amqp.VALUE, edited) + body.footer
    if change.set_properties or change.remove_properties:
        code = amqp.APPLICATION_PROPERTIES
        items = amqp.pairs(sections[code]) if code in sections else []
        edited = _edited(
            items, change.set_properties, change.remove_properties, "property", lock_of
        )
        if edited != items:
            sections[code] = amqp.make_map(code, edited)
    return amqp.join(sections)


def _edited(
    items: list[bytes],
    sets: Sequence[PropertyEdit],
    removed: Collection[str],
    what: str,
    lock: Lock,
) -> list[bytes]:
    pieces = edit_slots(
        values.slots_of(items),
        sets,
        removed,
        what=what,
        types=EDITABLE_TYPES,
        lock=lock,
        encode=values.encode_pair,
    )
    edited: list[bytes] = []
    for piece in pieces:
        value_at = amqp.skip(piece, 0)
        edited += (piece[:value_at], piece[value_at:])
    return edited


def _unlocked(_name: str) -> None:
    return None


def _replaced(
    body: values.Body, sections: dict[int, bytes], text: str | None, data: bytes | None
) -> bytes | None:
    """Return the sections of a new body; None = it is as it was."""
    encoded = values.text_body_of(body, values.jms_type(sections))
    if encoded is not None:
        if text is None:
            raise EditRefused("body: it is a text; a text is expected instead of bytes")
        check_text("body", text)
        if body.values and text == decode_text(encoded):
            return None
        return bytes((0, 0x53, amqp.VALUE)) + amqp.string(text)
    before = body.data
    if before is None:
        raise EditRefused("body: only a text or bytes can be replaced, it is neither")
    if is_java(before, values.content_type(sections)):
        raise EditRefused(f"body: it can't be changed, {JAVA_LOCK}")
    if text is not None:
        check_text("body", text)
        data = text.encode()
    if data is None or data == before:
        return None
    return bytes((0, 0x53, body.values[0][0])) + _binary(data)


def _binary(data: bytes) -> bytes:
    if len(data) <= _SHORT_BYTES_MAX:
        return bytes((0xA0, len(data))) + data
    return b"\xb0" + len(data).to_bytes(4, "big") + data
