"""Edits of a kept STOMP message; sans-IO."""

from amqsidecar.errors import EditRefused
from amqsidecar.formats.openwire_properties import decode_text, encode_text
from amqsidecar.formats.stomp_classic_message import is_too_long
from amqsidecar.formats.stomp_frame import read_head, write_head
from amqsidecar.messages.body_text import JAVA_LOCK, is_java
from amqsidecar.messages.slots import (
    LAST_OF_THREE_BYTES,
    Plain,
    check_classic,
    check_text,
    edit_slots,
)
from amqsidecar.messages.stomp_view import (
    LENGTH,
    ORIGINAL_DESTINATION,
    Parts,
    lock_of_header,
    take_apart,
)
from amqsidecar.model.message import MessageEdit, ValueType


def edit(message: bytes, change: MessageEdit) -> bytes:
    """Return a message after an edit; headers that it does not name are the same lines.

    Raises:
        EditRefused: the edit can't be made.
        UndecodableMessage: the message can't be taken apart.
    """
    parts = take_apart(message)
    if change.set_entries or change.remove_entries:
        raise EditRefused("body: STOMP carries no maps; a text or bytes are expected")
    lines = [slot.encoded for slot in parts.slots]
    if change.set_properties or change.remove_properties:
        lines = edit_slots(
            parts.slots,
            change.set_properties,
            change.remove_properties,
            what="property",
            types=(ValueType.STRING,),
            lock=lock_of_header,
            encode=_line,
        )
        if parts.has(ORIGINAL_DESTINATION):
            before = {slot.encoded for slot in parts.slots}
            _check_new([line for line in lines if line not in before])
    body = parts.body
    if change.text is not None or change.data is not None:
        body = _replaced(parts, change.text, change.data)
        if parts.is_bytes and body != parts.body:
            length = write_head([(LENGTH.encode(), b"%d" % len(body))])
            lines = [length if _is_length(line) else line for line in lines]
    return b"".join((*lines, b"\n", body))


def _line(name: str, _type: ValueType, value: Plain) -> bytes:
    return write_head([(name.encode(), str(value).encode())])


def _is_length(line: bytes) -> bool:
    return read_head(line)[0][0] == LENGTH.encode()


def _check_new(lines: list[bytes]) -> None:
    for line in lines:
        [(name, value)] = read_head(line)
        check_classic(f"property {name.decode()!r}", f"{name.decode()}{value.decode()}")
        if is_too_long((name, value)):
            raise EditRefused(
                f"property {name.decode()!r}: with its name it is longer than the 10 KiB that"
                " Classic takes over STOMP"
            )


def _replaced(parts: Parts, text: str | None, data: bytes | None) -> bytes:
    """Return the new body; the same where nothing changes."""
    if parts.is_bytes:
        if is_java(parts.body):
            raise EditRefused(f"body: it can't be changed, {JAVA_LOCK}")
        if text is not None:
            check_text("body", text)
        return data if data is not None else (text or "").encode()
    if text is None:
        raise EditRefused("body: it is a text; a text is expected instead of bytes")
    check_text("body", text)
    before = decode_text(parts.body)
    if text == before:
        return parts.body
    if "\0" in text:
        raise EditRefused("body: over STOMP a text can't hold the character U+0000")
    if max(text, default="") <= LAST_OF_THREE_BYTES:
        return text.encode()
    if parts.body != before.encode():
        # Why: it came in Java's form of UTF-8, and so the broker hands it on.
        return encode_text(text)
    if parts.has(ORIGINAL_DESTINATION) and max(before, default="") <= LAST_OF_THREE_BYTES:
        found = next(one for one in text if one > LAST_OF_THREE_BYTES)
        raise EditRefused(
            f"body: over STOMP Classic before 6.2 can't hold characters beyond U+FFFF, such as"
            f" {found!r}"
        )
    return text.encode()
