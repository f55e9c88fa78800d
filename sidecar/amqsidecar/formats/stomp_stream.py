"""Cuts a stream of STOMP into pieces whose bytes, put together, are the stream; without IO.

For who passes frames on: a head is held back until it is whole, a body never.
"""

import re
from enum import IntEnum
from typing import Final, NamedTuple

from amqsidecar.formats.stomp_frame import read_head

HEAD_BYTES_MAX: Final = 1 << 20
"""Bytes of a head, which are held back until its end."""

LOGIN_BYTES_MAX: Final = 1 << 16
"""Likewise before the log-in, which has a user, a password or a token."""

# Why the optional carriage return: STOMP 1.2 permits one at the end of each line.
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r?\n")
_TOO_LONG: Final = "a frame is longer than its content-length"
_BLANK: Final = re.compile(rb"[\r\n]+")


class PieceKind(IntEnum):
    """Kind of a piece."""

    BLANK = 0
    WHOLE = 1
    HEAD = 2
    BODY = 3
    END = 4


class Piece(NamedTuple):
    """A part of a stream.

    Attributes:
        kind: `BLANK` = line ends between frames, which are heart-beats; `WHOLE` = a frame;
            `HEAD`, any number of `BODY` and `END` = a frame that arrives in parts.
        raw: its bytes.
        head_end: of `WHOLE` and `HEAD`: how many of them are the head, its empty line included.
    """

    kind: PieceKind
    raw: bytes
    head_end: int = 0

    @property
    def head(self) -> bytes:
        """The head of a frame: its command, headers and the empty line."""
        return self.raw[: self.head_end]

    @property
    def body(self) -> bytes:
        """The body of a whole frame."""
        return self.raw[self.head_end : -1]


class StreamCutter:
    """Cuts one direction of a connection.

    Attributes:
        head_bytes_max: bytes of a head at most.
        problem: why the bytes that `rest` returns are not STOMP; "" = they may be.
    """

    def __init__(self) -> None:
        self.head_bytes_max = HEAD_BYTES_MAX
        self.problem = ""
        self._kept = b""
        self._in_body = False
        # Of the body: how many bytes are missing; None = it ends with the first NUL.
        self._left: int | None = None

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame has been returned in part."""
        return not self._in_body

    @property
    def held_bytes(self) -> int:
        """Bytes that are held back."""
        return len(self._kept)

    def feed(self, data: bytes) -> list[Piece]:
        """Return the pieces that these bytes complete; those before a `problem`, too."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
        pieces: list[Piece] = []
        at, size = 0, len(data)
        while at < size and not self.problem:
            if self._in_body:
                at = self._cut_body(data, at, pieces)
                continue
            if data[at] in b"\r\n":
                blank = _BLANK.match(data, at)
                stop = size if blank is None else blank.end()
                pieces.append(Piece(PieceKind.BLANK, data[at:stop]))
                at = stop
                continue
            found = _HEAD_END.search(data, at)
            if found is None:
                if size - at > self.head_bytes_max:
                    self.problem = f"a frame has more than {self.head_bytes_max} bytes of headers"
                break
            at = self._cut_head(data, at, found.end(), pieces)
        self._kept = data[at:]
        return pieces

    def _cut_head(self, data: bytes, at: int, end: int, pieces: list[Piece]) -> int:
        length = _LENGTH.search(data, at, end)
        if length is None:
            stop = data.find(b"\0", end)
        else:
            stop = end + int(length[1])
            if stop < len(data) and data[stop]:
                self.problem = _TOO_LONG
                return at
        if 0 <= stop < len(data):
            pieces.append(Piece(PieceKind.WHOLE, data[at : stop + 1], end - at))
            return stop + 1
        pieces.append(Piece(PieceKind.HEAD, data[at:end], end - at))
        self._in_body = True
        self._left = None if length is None else int(length[1])
        return end

    def _cut_body(self, data: bytes, at: int, pieces: list[Piece]) -> int:
        if self._left is None:
            end = data.find(b"\0", at)
            stop = len(data) if end < 0 else end
        else:
            stop = min(len(data), at + self._left)
            self._left -= stop - at
        if stop > at:
            pieces.append(Piece(PieceKind.BODY, data[at:stop]))
        if stop == len(data):
            return stop
        if data[stop]:
            self.problem = _TOO_LONG
            return stop
        pieces.append(Piece(PieceKind.END, b"\0"))
        self._in_body = False
        return stop + 1

    def hold(self, data: bytes) -> None:
        """Hold back the first bytes of a stream, in place of those held back before."""
        self._kept = data

    def rest(self) -> bytes:
        """Return the bytes that were held back, once: when the stream ends or is given up."""
        rest, self._kept = self._kept, b""
        return rest


def command_of(head: bytes) -> bytes:
    """Return the command of a head."""
    return head[: head.index(b"\n")].rstrip(b"\r")


def header_lines(head: bytes) -> bytes:
    """Return the header lines of a head as `stomp_frame.read_head` takes them."""
    begin = head.index(b"\n") + 1
    if head.endswith(b"\n\r\n"):
        return head[begin:-2].replace(b"\r\n", b"\n")
    return head[begin:-1]


def raw_header(head: bytes, name: bytes) -> bytes:
    """Return the first value of a header, still escaped; b"" = none.

    For values that are written again as they are.
    """
    at = head.find(b"\n%b:" % name)
    if at < 0:
        return b""
    begin = at + len(name) + 2
    return head[begin : head.index(b"\n", begin)].rstrip(b"\r")


def header_value(head: bytes, name: bytes) -> bytes:
    """Return the first value of a header; b"" = none."""
    raw = raw_header(head, name)
    return read_head(b"x:%b\n" % raw)[0][1] if b"\\" in raw else raw
