"""Reads notes of consumers and names of events from messages of every wire."""

from typing import Final

from amqsidecar.errors import UndecodableMessage
from amqsidecar.messages.trees.openwire import OpenWireTree
from amqsidecar.messages.trees.stomp import StompTree
from amqsidecar.messages.view import tree_of, view_message
from amqsidecar.model.cause_note import NOTE_BYTES_MAX, CauseNote, parse_cause_note
from amqsidecar.model.message import BodyKind
from amqsidecar.model.signal import signal_name

_OVERHEAD_MAX = 16_384
_KINDS = (BodyKind.TEXT, BodyKind.JSON, BodyKind.BYTES)
_AMQP_SECTION: Final = b"\x00\x53"


def read_cause_note(encoding: str, message: bytes) -> CauseNote:
    """Return the note in the body of a message; see `_text_of`.

    Raises:
        UndecodableMessage: there is none; the message quotes nothing of it.
    """
    return parse_cause_note(_text_of(encoding, message))


def read_event_name(encoding: str, message: bytes) -> str:
    """Return the name of an event outside, which is the body of a message; see `_text_of`.

    Raises:
        UndecodableMessage: there is none; the message quotes nothing of it.
    """
    try:
        return signal_name(_text_of(encoding, message))
    except ValueError as error:
        raise UndecodableMessage(str(error)) from error


def _text_of(encoding: str, message: bytes) -> str:
    """Return the body of a text message, or of bytes that are UTF-8.

    Raises:
        UndecodableMessage: it is another one.
    """
    if len(message) > 2 * NOTE_BYTES_MAX + _OVERHEAD_MAX:
        raise UndecodableMessage(f"{len(message)} bytes are too large for a note")
    body = view_message(encoding, message, NOTE_BYTES_MAX).body
    if body.kind is BodyKind.BYTES and not body.text:
        body = view_message("amqp/1.0", _wrapped(encoding, message), NOTE_BYTES_MAX).body
    if body.is_cut or body.kind not in _KINDS or not body.text:
        raise UndecodableMessage(f"a body of kind {body.kind} with {body.size_bytes} bytes")
    return body.text


def _wrapped(encoding: str, message: bytes) -> bytes:
    """Return the message of an AMQP client, as which Classic's stock connector keeps it in bytes.

    Raises:
        UndecodableMessage: there is none.
    """
    tree = tree_of(encoding)(message)
    data = tree.data() if isinstance(tree, OpenWireTree | StompTree) else None
    if data is None or not data.startswith(_AMQP_SECTION):
        raise UndecodableMessage("bytes that are not UTF-8")
    return data
