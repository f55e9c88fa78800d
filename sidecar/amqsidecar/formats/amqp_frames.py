"""Cuts a stream of AMQP 1.0 into frames, reads and writes their performatives; without IO.

For who passes frames on: the bytes of all pieces, put together, are the stream.

Source: AMQP 1.0, part 2 (transport), part 4 (transactions), part 5.3 (SASL).
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from amqsidecar.errors import RemoteProtocolError, UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp

HELD_BYTES_MAX: Final = 1 << 18
"""A frame up to this is held back until it is whole; of a longer one only its first part."""

FRAME_BYTES_MIN: Final = 512
"""Every peer takes frames of this size."""

_FIRST_PART_BYTES: Final = 1 << 14
_HEADER_BYTES: Final = 8
_SASL_HEADER: Final = 3
_TLS_HEADER: Final = 2

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ERROR: Final = 0x1D
ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x24, 0x28)
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30
DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL_STATE = range(0x31, 0x35)
SASL_INIT: Final = 0x41

TRUE: Final = b"\x41"
FALSE: Final = b"\x42"

_head = struct.Struct(">IBBH").unpack_from
_make_head = struct.Struct(">IBBH").pack


class FragmentKind(IntEnum):
    """Kind of a fragment."""

    HEADER = 0
    WHOLE = 1
    HEAD = 2
    BODY = 3
    END = 4


class FrameFragment(NamedTuple):
    """A part of a stream.

    Attributes:
        kind: `HEADER` = a protocol header, or the bytes after a header for TLS; `WHOLE` = a
            frame; `HEAD`, any number of `BODY` and `END` = a long frame in parts.
    """

    kind: FragmentKind
    raw: bytes


class FrameCutter:
    """Cuts one direction of a connection."""

    def __init__(self) -> None:
        self._kept = b""
        # Of a long frame: how many of its bytes are missing.
        self._left = 0
        self._may_be_header = True
        self._is_encrypted = False

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame has been returned in part."""
        return not self._left

    @property
    def held_bytes(self) -> int:
        """Bytes that are held back."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[FrameFragment]:
        """Return the pieces that these bytes complete.

        Raises:
            RemoteProtocolError: they are not AMQP; `rest` has them unchanged.
        """
        if self._kept:
            data = self._kept + data
            self._kept = b""
        pieces: list[FrameFragment] = []
        at, end = 0, len(data)
        if self._left and data:
            at = min(self._left, end)
            self._left -= at
            pieces.append(
                FrameFragment(FragmentKind.BODY if self._left else FragmentKind.END, data[:at])
            )
        while end - at >= _HEADER_BYTES and not self._is_encrypted:
            size, offset, _, _ = _head(data, at)
            if self._may_be_header and data.startswith(b"AMQP", at):
                after = at + _HEADER_BYTES
                self._is_encrypted = data[at + 4] == _TLS_HEADER
                # Why: only log-in is followed by another header.
                self._may_be_header = data[at + 4] == _SASL_HEADER
                pieces.append(FrameFragment(FragmentKind.HEADER, data[at:after]))
                at = after
                continue
            if not pieces and self._may_be_header and size >= 1 << 30:
                return self._refuse(data[at:], pieces, "it does not begin with a protocol header")
            if not _HEADER_BYTES <= 4 * offset <= size:
                return self._refuse(data[at:], pieces, f"a frame of {size} bytes, offset {offset}")
            if size <= HELD_BYTES_MAX:
                if end - at < size:
                    break
                pieces.append(FrameFragment(FragmentKind.WHOLE, data[at : at + size]))
                at += size
                continue
            if end - at < _FIRST_PART_BYTES:
                break
            after = min(end, at + size)
            pieces.append(FrameFragment(FragmentKind.HEAD, data[at:after]))
            self._left = size - (after - at)
            at = after
            if not self._left:
                pieces.append(FrameFragment(FragmentKind.END, b""))
        if self._is_encrypted and at < end:
            pieces.append(FrameFragment(FragmentKind.HEADER, data[at:]))
            at = end
        self._kept = data[at:]
        return pieces

    def _refuse(self, rest: bytes, pieces: list[FrameFragment], what: str) -> list[FrameFragment]:
        self._kept = b"".join(piece.raw for piece in pieces) + rest
        raise RemoteProtocolError(what)

    def rest(self) -> bytes:
        """Return the bytes that were held back, once."""
        rest, self._kept = self._kept, b""
        return rest


class Performative(NamedTuple):
    """The performative of a frame.

    Attributes:
        code: of its descriptor; 0 = an empty frame, which keeps the connection alive.
        fields: encoded; those at the end may be missing.
        payload_at: where its payload begins in the frame.
    """

    code: int
    channel: int
    fields: list[bytes]
    payload_at: int

    def field(self, number: int) -> bytes:
        """Return an encoded field; null when it is missing."""
        return self.fields[number] if number < len(self.fields) else amqp.NULL

    def number(self, number: int, default: int = 0) -> int:
        """Return the number in a field."""
        value = amqp.scalar(self.field(number))
        return value if isinstance(value, int) else default

    def text(self, number: int) -> str:
        """Return the text in a field; "" = none."""
        value = amqp.scalar(self.field(number))
        return value if isinstance(value, str) else ""

    def flag(self, number: int) -> bool:
        """Return the boolean in a field."""
        return amqp.scalar(self.field(number)) is True


def read_performative(frame: bytes) -> Performative:
    """Return the performative of a frame; the first part of a long frame is enough.

    Raises:
        UndecodableMessage: it is not well-formed.
    """
    _, offset, _, channel = _head(frame)
    at = 4 * offset
    if at >= len(frame):
        return Performative(0, channel, [], at)
    try:
        code, value_at = _descriptor(frame, at)
        after = amqp.skip(frame, value_at)
        if after > len(frame):
            raise UndecodableMessage("a performative is longer than its frame")
        return Performative(code, channel, amqp.items(frame[value_at:after]), after)
    except (IndexError, struct.error):
        raise UndecodableMessage("a performative is cut off") from None


def read_described(element: bytes) -> tuple[int, list[bytes]]:
    """Return the code and the fields of an encoded list with a descriptor; 0 = it is none.

    Raises:
        UndecodableMessage: it is not well-formed.
    """
    if not element or element[0]:
        return 0, []
    try:
        code, at = _descriptor(element, 0)
        return code, amqp.items(element[at:])
    except (IndexError, struct.error):
        raise UndecodableMessage("a described value is cut off") from None


def _descriptor(encoded: bytes, at: int) -> tuple[int, int]:
    """Return the code that begins at `at`, and where its value begins."""
    if encoded[at] == 0 and encoded[at + 1] == 0x53:
        return encoded[at + 2], at + 3
    if encoded[at] == 0 and encoded[at + 1] == 0x80:
        return int.from_bytes(encoded[at + 2 : at + 10]), at + 10
    raise UndecodableMessage("a descriptor that is no number")


def described(code: int, fields: list[bytes]) -> bytes:
    """Return an encoded list with a descriptor."""
    return amqp.make_list(code, fields) if fields else bytes((0, 0x53, code, 0x45))


def frame_of(channel: int, code: int, fields: list[bytes], payload: bytes = b"") -> bytes:
    """Return a frame."""
    body = described(code, fields) + payload
    return _make_head(8 + len(body), 2, 0, channel) + body


def binary(value: bytes) -> bytes:
    """Return encoded bytes, at most 255."""
    return bytes((0xA0, len(value))) + value
