"""STOMP messages taken apart; sans-IO."""

from collections.abc import Sequence
from typing import ClassVar, Final

from amqsidecar.errors import EditRefused, UndecodableMessage
from amqsidecar.formats.openwire_properties import decode_text, encode_text
from amqsidecar.formats.stomp_classic_message import is_too_long
from amqsidecar.formats.stomp_frame import read_head, write_head
from amqsidecar.messages.body_text import bytes_body, text_body
from amqsidecar.messages.slots import LAST_OF_THREE_BYTES, Plain, Slot, check_classic
from amqsidecar.messages.tree import Form, MessageTree
from amqsidecar.model.message import BodyKind, BodyView, ValueType, lock_of

_LENGTH: Final = "content-length"
"""Its presence distinguishes bytes from a text."""

_ORIGINAL_DESTINATION: Final = "original-destination"
"""Only dead letters of Classic have it."""

_HEADERS: Final = frozenset(
    (
        *("destination", "destination-type", "subscription-type", "message-id", "correlation-id"),
        *("expires", "priority", "reply-to", "timestamp", "type", "persistent", "redelivered"),
        *("subscription", "ack", "id", "receipt", "transaction", "transformation", "selector"),
        *("amq-msg-type", "content-type", _LENGTH, _ORIGINAL_DESTINATION),
    )
)


class StompTree(MessageTree):
    """A kept STOMP message; an edit keeps the lines of headers that it does not name."""

    wire: ClassVar[str] = "STOMP 1.2"
    property_types: ClassVar[Sequence[ValueType]] = (ValueType.STRING,)
    no_map: ClassVar[str] = "STOMP carries no maps; a text or bytes are expected"
    not_replaceable = ""

    def __init__(self, message: bytes) -> None:
        self.size_bytes = len(message)
        head, separator, self._body = message.partition(b"\n\n")
        if message.startswith(b"\n"):
            head, self._body = b"", message[1:]
        elif not separator:
            raise UndecodableMessage("the message's headers have no end")
        self._slots = [_slot(line + b"\n") for line in head.split(b"\n")] if head else []
        self._lines = [slot.encoded for slot in self._slots]
        texts = {slot.name: slot.text for slot in reversed(self._slots)}
        self.content_type = texts.get("content-type", "")
        self._is_of_classic = _ORIGINAL_DESTINATION in texts
        self._is_resized = False
        self.form = Form.BYTES if _LENGTH in texts else Form.TEXT
        self.kind = "BytesMessage" if self.form is Form.BYTES else "TextMessage"

    def headers(self, problems: list[str]) -> Sequence[Slot]:
        return [slot for slot in self._slots if slot.name in _HEADERS]

    def properties(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.name not in _HEADERS]

    def lines(self) -> list[Slot]:
        return self._slots

    def lock(self, name: str) -> str | None:
        return "STOMP reserves this name" if name in _HEADERS else lock_of(name)

    def body(self, max_bytes: int) -> BodyView:
        if not self._body:
            return BodyView(kind=BodyKind.EMPTY, content_type=self.content_type)
        shown = bytes_body if self.form is Form.BYTES else text_body
        return shown(self._body, max_bytes, self.content_type)

    def text(self) -> str | None:
        return decode_text(self._body)

    def data(self) -> bytes | None:
        return self._body

    def entries(self) -> Sequence[Slot]:
        return ()

    def encode(self, what: str, name: str, type_: ValueType, value: Plain) -> bytes:
        header = (name.encode(), str(value).encode())
        if self._is_of_classic:
            check_classic(f"{what} {name!r}", f"{name}{value}")
            if is_too_long(header):
                raise EditRefused(
                    f"{what} {name!r}: with its name it is longer than the 10 KiB that"
                    " Classic takes over STOMP"
                )
        return write_head([header])

    def set_text(self, text: str) -> None:
        before = decode_text(self._body)
        if "\0" in text:
            raise EditRefused("body: over STOMP a text can't hold the character U+0000")
        is_astral = max(text, default="") > LAST_OF_THREE_BYTES
        # Why: a body that came in Java's form of UTF-8 is handed on so by the broker.
        is_java_form = is_astral and self._body != before.encode()
        was_astral = max(before, default="") > LAST_OF_THREE_BYTES
        if is_astral and not is_java_form and self._is_of_classic and not was_astral:
            found = next(one for one in text if one > LAST_OF_THREE_BYTES)
            raise EditRefused(
                f"body: over STOMP Classic before 6.2 can't hold characters beyond U+FFFF, such as"
                f" {found!r}"
            )
        self._body = encode_text(text) if is_java_form else text.encode()

    def set_data(self, data: bytes) -> None:
        self._body, self._is_resized = data, True

    def set_entries(self, pieces: list[bytes]) -> None:
        """Not reached: no STOMP message is a MAP."""

    def set_lines(self, pieces: list[bytes]) -> None:
        self._lines = pieces

    def encoded(self) -> bytes:
        lines = self._lines
        if self._is_resized:
            length = write_head([(_LENGTH.encode(), b"%d" % len(self._body))])
            lines = [length if _is_length(line) else line for line in lines]
        return b"".join((*lines, b"\n", self._body))


def _is_length(line: bytes) -> bool:
    return read_head(line)[0][0] == _LENGTH.encode()


def _slot(line: bytes) -> Slot:
    [(name, value)] = read_head(line)
    looks = name.decode(errors="replace")
    is_read = looks.encode() == name
    text = value.decode(errors="replace")
    return Slot(looks if is_read else None, ValueType.STRING, text, line, looks)
