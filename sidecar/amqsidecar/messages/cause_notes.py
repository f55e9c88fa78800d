"""Reads notes of consumers out of messages, whatever their wire."""

from amqsidecar.errors import UndecodableMessage
from amqsidecar.messages.view import view_message
from amqsidecar.model.cause_note import NOTE_BYTES_MAX, CauseNote, parse_cause_note
from amqsidecar.model.message import BodyKind

_OVERHEAD_MAX = 16_384
_KINDS = (BodyKind.TEXT, BodyKind.JSON, BodyKind.BYTES)


def read_cause_note(encoding: str, message: bytes) -> CauseNote:
    """Return the note in the body of a text message, or of bytes that are UTF-8.

    Raises:
        UndecodableMessage: there is none; the message quotes nothing of it.
    """
    if len(message) > 2 * NOTE_BYTES_MAX + _OVERHEAD_MAX:
        raise UndecodableMessage(f"{len(message)} bytes are too large for a note")
    body = view_message(encoding, message, NOTE_BYTES_MAX).body
    if body.is_cut or body.kind not in _KINDS or not body.text:
        raise UndecodableMessage(f"a body of kind {body.kind} with {body.size_bytes} bytes")
    return parse_cause_note(body.text)
