"""Edits of a kept Core message; sans-IO."""

from collections.abc import Collection, Sequence

from amqsidecar.errors import EditRefused
from amqsidecar.formats.core import message as core
from amqsidecar.formats.core.message import CoreMessage, join_properties
from amqsidecar.formats.core.primitives import NULLABLE_SIMPLE_STRING
from amqsidecar.formats.core_artemis_message import keep_again, take_apart
from amqsidecar.messages import core_values as values
from amqsidecar.messages.body_text import JAVA_LOCK, is_java
from amqsidecar.messages.core_view import COMPRESSED_LOCK, is_compressed, text_of_body
from amqsidecar.messages.slots import Lock, check_text, edit_slots
from amqsidecar.model.message import EDITABLE_TYPES, MessageEdit, PropertyEdit
from amqsidecar.model.property_locks import lock_of


def edit(message: bytes, change: MessageEdit) -> bytes:
    """Return a message after an edit; what it does not name is the same bytes.

    Raises:
        EditRefused: the edit can't be made.
        UndecodableMessage: the message can't be taken apart.
    """
    kept = take_apart(message)
    found = kept.message
    body, properties = found.body, found.properties
    changes_entries = bool(change.set_entries or change.remove_entries)
    if change.text is not None or change.data is not None or changes_entries:
        if is_compressed(found):
            raise EditRefused(f"body: it can't be changed, {COMPRESSED_LOCK}")
        if changes_entries and found.kind != core.MAP_MESSAGE:
            raise EditRefused("body: it is no map; entries can only be changed in one")
    if change.text is not None or change.data is not None:
        body = _replaced(found, change.text, change.data)
    if changes_entries:
        body = _edited(body, change.set_entries, change.remove_entries, "entry", _unlocked)
    if change.set_properties or change.remove_properties:
        properties = _edited(
            properties, change.set_properties, change.remove_properties, "property", lock_of
        )
    edited = found._replace(body=body, properties=properties)
    return keep_again(kept._replace(message=edited))


def _replaced(message: CoreMessage, text: str | None, data: bytes | None) -> bytes:
    """Return a new body; the same where nothing changes."""
    if text is not None:
        check_text("body", text)
    if message.kind == core.TEXT_MESSAGE:
        if text is None:
            raise EditRefused("body: it is a text; a text is expected instead of bytes")
        is_same = text_of_body(message.body) == text
        return message.body if is_same else NULLABLE_SIMPLE_STRING.write(text)
    if message.kind != core.BYTES_MESSAGE:
        kind = values.KINDS.get(message.kind, "neither")
        raise EditRefused(f"body: only that of a text or bytes can be replaced, this is {kind}")
    if is_java(message.body):
        raise EditRefused(f"body: it can't be changed, {JAVA_LOCK}")
    return data if data is not None else (text or "").encode()


def _edited(
    encoded: bytes,
    sets: Sequence[PropertyEdit],
    removed: Collection[str],
    what: str,
    lock: Lock,
) -> bytes:
    """Return properties or a map after an edit; the same where nothing changes."""
    slots = values.slots_of(encoded) if encoded else []
    pieces = edit_slots(
        slots,
        sets,
        removed,
        what=what,
        types=EDITABLE_TYPES,
        lock=lock,
        encode=values.encode_entry,
    )
    is_same = pieces == [slot.encoded for slot in slots]
    return encoded if is_same else join_properties(pieces)


def _unlocked(_name: str) -> None:
    return None
