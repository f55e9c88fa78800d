"""Reads notes of consumers out of messages, whatever their wire."""

from typing import Final

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import openwire_codec
from amqsidecar.formats.openwire_dead_letter import take_apart
from amqsidecar.messages import amqp_view, openwire_view, stomp_view
from amqsidecar.messages.view import view_message
from amqsidecar.model.cause_note import NOTE_BYTES_MAX, CauseNote, parse_cause_note
from amqsidecar.model.message import BodyKind

_OVERHEAD_MAX = 16_384
_KINDS = (BodyKind.TEXT, BodyKind.JSON, BodyKind.BYTES)
_AMQP_SECTION: Final = b"\x00\x53"


def read_cause_note(encoding: str, message: bytes) -> CauseNote:
    """Return the note in the body of a text message, or of bytes that are UTF-8.

    Raises:
        UndecodableMessage: there is none; the message quotes nothing of it.
    """
    if len(message) > 2 * NOTE_BYTES_MAX + _OVERHEAD_MAX:
        raise UndecodableMessage(f"{len(message)} bytes are too large for a note")
    body = view_message(encoding, message, NOTE_BYTES_MAX).body
    if body.kind is BodyKind.BYTES and not body.text:
        body = amqp_view.view(_wrapped(encoding, message), NOTE_BYTES_MAX).body
    if body.is_cut or body.kind not in _KINDS or not body.text:
        raise UndecodableMessage(f"a body of kind {body.kind} with {body.size_bytes} bytes")
    return parse_cause_note(body.text)


def _wrapped(encoding: str, message: bytes) -> bytes:
    """Return the message of an AMQP client, as which Classic's stock connector keeps it in bytes.

    Raises:
        UndecodableMessage: there is none.
    """
    data: bytes | None = b""
    if encoding == openwire_codec.ENCODING:
        parts = take_apart(message)
        content = openwire_view.content_of(parts).data
        data = openwire_view.unpacked(message[0], content, is_packed=bool(parts.compressed))
    elif encoding.startswith("stomp"):
        data = stomp_view.take_apart(message).body
    if data is None or not data.startswith(_AMQP_SECTION):
        raise UndecodableMessage("bytes that are not UTF-8")
    return data
