"""Edits of a kept OpenWire message; sans-IO."""

from collections.abc import Collection, Sequence
from struct import Struct
from typing import Final

from amqsidecar.errors import EditRefused
from amqsidecar.formats.openwire_dead_letter import take_apart
from amqsidecar.formats.openwire_properties import decode_text, encode_text
from amqsidecar.messages import openwire_values as values
from amqsidecar.messages.body_text import JAVA_LOCK, is_java
from amqsidecar.messages.openwire_view import content_of, unpacked
from amqsidecar.messages.slots import Lock, Plain, check_classic, check_text, edit_slots
from amqsidecar.model.message import EDITABLE_TYPES, MessageEdit, PropertyEdit, ValueType
from amqsidecar.model.property_locks import lock_of

_INT: Final = Struct(">i")


def edit(message: bytes, change: MessageEdit) -> bytes:
    """Return a message after an edit; fields that it does not name are the same bytes.

    A compressed body is compressed again.

    Raises:
        EditRefused: the edit can't be made.
        UndecodableMessage: the message can't be taken apart.
    """
    parts = take_apart(message)
    content = content_of(parts)
    code, is_packed = message[0], bool(parts.compressed)
    body, properties = content.data, parts.properties
    if change.text is not None or change.data is not None:
        before = unpacked(code, body, is_packed=is_packed)
        after = _replaced(code, before, change.text, change.data)
        if after != before:
            body = values.pack(code, after) if is_packed else after
    if change.set_entries or change.remove_entries:
        if code != values.MAP:
            raise EditRefused("body: it is no map; entries can only be changed in one")
        before = unpacked(code, body, is_packed=is_packed)
        edited = _edited(before, change.set_entries, change.remove_entries, "entry", _unlocked)
        if edited is not None and edited != before:
            body = values.pack(code, edited) if is_packed else edited
    if change.set_properties or change.remove_properties:
        properties = _edited(
            properties, change.set_properties, change.remove_properties, "property", lock_of
        )
    end = content.at + len(_field(content.data)) + len(_field(parts.properties))
    return message[: content.at] + _field(body) + _field(properties) + message[end:]


def _field(data: bytes | None) -> bytes:
    return b"\0" if data is None else b"\x01" + _INT.pack(len(data)) + data


def _replaced(code: int, before: bytes | None, text: str | None, data: bytes | None) -> bytes:
    """Return the content of a new body; the same where nothing changes."""
    if text is not None:
        check_text("body", text)
    if code == values.TEXT:
        if text is None:
            raise EditRefused("body: it is a text; a text is expected instead of bytes")
        is_same = before is not None and decode_text(values.text_content(before)) == text
        return before if before is not None and is_same else values.make_text(text)
    if code != values.BYTES:
        kind = values.KINDS[code]
        raise EditRefused(f"body: only that of a text or bytes can be replaced, this is {kind}")
    if is_java(before or b""):
        raise EditRefused(f"body: it can't be changed, {JAVA_LOCK}")
    return data if data is not None else (text or "").encode()


def _edited(
    data: bytes | None,
    sets: Sequence[PropertyEdit],
    removed: Collection[str],
    what: str,
    lock: Lock,
) -> bytes | None:
    """Return a map after an edit; the same where nothing changes."""
    slots = values.slots_of(data)

    def encode(name: str, type_: ValueType, value: Plain) -> bytes:
        check_classic(f"{what} {name!r}", f"{name}{value}")
        if len(encode_text(name)) > values.NAME_BYTES_MAX:
            raise EditRefused(
                f"{what} {name[:40]!r}...: its name is longer than the {values.NAME_BYTES_MAX}"
                " bytes that OpenWire can carry"
            )
        return values.encode_entry(name, type_, value)

    pieces = edit_slots(
        slots, sets, removed, what=what, types=EDITABLE_TYPES, lock=lock, encode=encode
    )
    return data if pieces == [slot.encoded for slot in slots] else values.join_map(pieces)


def _unlocked(_name: str) -> None:
    return None
