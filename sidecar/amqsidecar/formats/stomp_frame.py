"""STOMP 1.2 frames as bytes, without IO: taken off the wire, put on it, and kept in the store.

Headers stay bytes in the order received, including repeated headers, of which the first counts:
brokers don't always write UTF-8.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from amqsidecar.errors import RemoteProtocolError, UndecodableMessage
from amqsidecar.formats.payload import (
    BeginPayload,
    Footprint,
    Payload,
    PayloadWriter,
    footprint,
    in_memory,
)

ENCODING = "stomp/1.2"
"""The encoding of messages that `kept` returns."""

_COMMANDS = frozenset((b"MESSAGE", b"RECEIPT", b"ERROR", b"CONNECTED"))
# Why a bound: a head without an end is not STOMP, and would fill the memory.
_HEAD_BYTES_MAX = 1 << 24
# Bound: memory of many short parsed headers, ten times their size on the wire.
_HEADERS_MAX = 100_000
OTHER_BYTES_MAX = 2**20
"""Maximum bytes of a frame that is no MESSAGE, and of any frame before the log-in."""
MESSAGE_BYTES_MAX = 101 * 2**20
"""Bytes of a MESSAGE: Classic's own limit for a body over STOMP (100 MiB), and its headers."""
_TOO_LARGE = f"a message has more than {MESSAGE_BYTES_MAX} bytes, the limit over STOMP"
_TOO_LONG = "a frame is longer than its content-length"
_ESCAPED = re.compile(rb"[\\\r\n:]")
# Source: STOMP 1.1: a carriage return is written as it is, and \\r is an error there.
_ESCAPED_IN_1_1 = re.compile(rb"[\\\n:]")
_ESCAPES = {b"\\": b"\\\\", b"\r": b"\\r", b"\n": b"\\n", b":": b"\\c"}
_UNESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_UNESCAPES = {b"\\": b"\\", b"r": b"\r", b"n": b"\n", b"c": b":"}

Header = tuple[bytes, bytes]
"""Name and value, not escaped."""


# Source: sys.getsizeof: a header is a tuple of two bytes objects, each with a head of its own.
_MEMORY_OF_HEADER = 160
_MEMORY_OF_FRAME = 600


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame off the wire.

    Attributes:
        command: such as `MESSAGE`.
        head: the header lines as received, each ended by a line feed.
        payload: the body, exactly.
    """

    command: str
    head: bytes
    payload: Payload

    @property
    def body(self) -> bytes:
        """The body; each call reads a body that is not in memory."""
        return bytes(self.payload)

    @property
    def footprint(self) -> Footprint:
        """Its footprint once its headers are read."""
        headers = self.head.count(b"\n") * _MEMORY_OF_HEADER
        return footprint(self.payload, len(self.head) + headers + _MEMORY_OF_FRAME)

    def headers(self) -> list[Header]:
        """Return all headers in order."""
        return read_head(self.head)

    def first(self, name: bytes) -> bytes | None:
        """Return the first value of a header, the one that counts; None = none."""
        return first(self.headers(), name)

    def text(self, name: bytes) -> str:
        """Return the value of a header for people to read; "" = there is none."""
        return (self.first(name) or b"").decode(errors="replace")


def footprint_of(headers: Sequence[Header], payload: Payload) -> Footprint:
    """Return the footprint of a message whose headers are read."""
    texts = sum(len(name) + len(value) for name, value in headers)
    return footprint(payload, texts + len(headers) * _MEMORY_OF_HEADER + _MEMORY_OF_FRAME)


def first(headers: Iterable[Header], name: bytes) -> bytes | None:
    """Return the first value of a name, the one that counts; None = none."""
    for key, value in headers:
        if key == name:
            return value
    return None


def read_head(head: bytes) -> list[Header]:
    """Return the headers in lines that each end with a line feed.

    A line without a colon is a name with the value "". Only a line feed ends a line: Classic writes
    a carriage return of a value as it is.
    """
    headers = []
    for line in head.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if b"\\" in line:
            name, value = _unescape(name), _unescape(value)
        headers.append((name, value))
    return headers


def _unescape(data: bytes) -> bytes:
    """Return the unescaped bytes; unknown escapes stay."""
    return _UNESCAPED.sub(lambda found: _UNESCAPES.get(found[1], found[0]), data)


_REMEMBERED_BYTES = 256


@lru_cache(maxsize=4096)
def _escape_name(data: bytes, escaped: re.Pattern[bytes]) -> bytes:
    return _escape(data, escaped)


def _escape(data: bytes, escaped: re.Pattern[bytes]) -> bytes:
    return escaped.sub(lambda found: _ESCAPES[found[0]], data)


def write_head(headers: Iterable[Header], *, is_1_1: bool = False) -> bytes:
    """Return header lines, each ended by a line feed, for a connection of 1.2 or of 1.1."""
    escaped = _ESCAPED_IN_1_1 if is_1_1 else _ESCAPED
    lines = []
    for name, value in headers:
        escape_name = _escape_name if len(name) <= _REMEMBERED_BYTES else _escape
        lines.append(b"%b:%b\n" % (escape_name(name, escaped), _escape(value, escaped)))
    return b"".join(lines)


def encode(command: str, headers: Iterable[Header], body: bytes | memoryview = b"") -> bytes:
    """Return a frame for the wire; the caller adds `content-length`."""
    return b"".join((command.encode(), b"\n", write_head(headers), b"\n", body, b"\0"))


def encode_connect(headers: Iterable[Header]) -> bytes:
    r"""Return a CONNECT frame, the one whose headers are not escaped.

    Raises:
        ValueError: a value holds a line break, which it therefore can't carry.
    """
    lines = []
    for name, value in headers:
        if b"\n" in value or b"\r" in value:
            raise ValueError(f"{name.decode()} holds a line break")
        lines.append(b"%b:%b\n" % (name, value))
    return b"CONNECT\n%b\n\0" % b"".join(lines)


def kept(headers: Sequence[Header], body: bytes) -> bytes:
    """Return a message as the store keeps it: its headers, an empty line, its body."""
    return b"".join((write_head(headers), b"\n", body))


def parse_kept(message: bytes) -> tuple[list[Header], memoryview]:
    """Return headers and a view of the body of a message that `kept` returned.

    Raises:
        UndecodableMessage: `kept` can't have returned it.
    """
    if message.startswith(b"\n"):
        return [], memoryview(message)[1:]
    end = message.find(b"\n\n")
    if end < 0:
        raise UndecodableMessage("the message's headers have no end")
    return read_head(message[: end + 1]), memoryview(message)[end + 2 :]


class _LargeMessage:
    """The body of a MESSAGE that arrives.

    Attributes:
        length: of the body; None = it ends with the first NUL.
        size: how many bytes came.
    """

    def __init__(self, head: bytes, writer: PayloadWriter, length: int | None, size: int) -> None:
        self.head = head
        self.writer = writer
        self.length = length
        self.size = size


class FrameReader:
    """Cuts a stream of bytes into frames; line feeds between frames are heart-beats.

    Attributes:
        problem: why nothing more can be read: bytes came that are no frame, or a frame that is
            too large.
        broken: the frame whose size, or number of headers, caused the problem; without its body.
        is_let_in: the log-in has succeeded, so that a MESSAGE may have `MESSAGE_BYTES_MAX`;
            all else, and before that everything, has `OTHER_BYTES_MAX` at most.

    Args:
        begin: begins the body of a MESSAGE that has more than `OTHER_BYTES_MAX`.
    """

    def __init__(self, *, is_let_in: bool = True, begin: BeginPayload = in_memory) -> None:
        self.is_let_in = is_let_in
        self._begin = begin
        self._large: _LargeMessage | None = None
        self._buffer = bytearray()
        self._scanned = 0
        self._needed = 0
        self.problem: str | None = None
        self.broken: Frame | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete; those before a problem, too."""
        frames: list[Frame] = []
        if self.problem is None:
            try:
                self._read(data, frames)
            except RemoteProtocolError as cause:
                self.problem = str(cause)
                self._buffer.clear()
                self._large = None
        return frames

    def _read(self, data: bytes, frames: list[Frame]) -> None:
        if self._large is not None:
            data = self._continue(self._large, data, frames)
            if self._large is not None:
                return
        buffer = self._buffer
        buffer += data
        if len(buffer) < self._needed:
            return
        self._needed = at = 0
        while True:
            while at < len(buffer) and buffer[at] in b"\r\n":
                at += 1
            found = self._frame(at)
            if found is None:
                break
            frame, at = found
            frames.append(frame)
            self._scanned = 0
        del buffer[:at]

    def _frame(self, at: int) -> tuple[Frame, int] | None:
        """Return the frame that begins at `at` and where it ends; None = it isn't whole yet.

        `_scanned` counts from `at`: bytes that a search has seen before and needn't see again.
        """
        buffer = self._buffer
        end = buffer.find(b"\n\n", at)
        if end < 0:
            self._check_begin(at)
            self._check_size(at, len(buffer))
            return None
        line_end = buffer.index(b"\n", at)
        command = bytes(buffer[at:line_end])
        if command not in _COMMANDS:
            raise RemoteProtocolError(f"{command[:40]!r} is no STOMP command of a broker")
        head = bytes(buffer[line_end + 1 : end + 1])
        if head.count(b"\n") > _HEADERS_MAX:
            self.broken = Frame(command.decode(), head, b"")
            raise RemoteProtocolError(f"a frame has more than {_HEADERS_MAX} headers")
        begin = end + 2
        length = _content_length(head)
        if length is None:
            stop = buffer.find(b"\0", max(begin, at + self._scanned))
            if stop < 0:
                self._scanned = len(buffer) - at
                self._check_size(at, len(buffer), head)
                if len(buffer) - begin > OTHER_BYTES_MAX:
                    self._begin_large(head, begin, None)
                return None
        else:
            stop = begin + length
            self._check_size(at, stop, head)
            if len(buffer) <= stop:
                if length > OTHER_BYTES_MAX:
                    self._begin_large(head, begin, length)
                self._needed = stop + 1 - at
                return None
            if buffer[stop]:
                self.broken = Frame(command.decode(), head, b"")
                raise RemoteProtocolError(_TOO_LONG)
        # Why a view: a slice of the buffer would be one more copy of a large body.
        with memoryview(buffer) as view:
            body = bytes(view[begin:stop])
        return Frame(command.decode(), head, body), stop + 1

    def _begin_large(self, head: bytes, begin: int, length: int | None) -> None:
        """Move the received part of a body out of the buffer."""
        writer = self._begin(len(self._buffer) - begin if length is None else length)
        with memoryview(self._buffer) as view:
            size = writer.write(view[begin:])
        self._buffer.clear()
        self._scanned = 0
        self._large = _LargeMessage(head, writer, length, size)

    def _continue(self, large: "_LargeMessage", data: bytes, frames: list[Frame]) -> bytes:
        """Return the bytes behind a large message."""
        if large.length is None:
            stop = data.find(b"\0")
            end = len(data) if stop < 0 else stop
        else:
            end = min(large.length - large.size, len(data))
        with memoryview(data) as view:
            large.size += large.writer.write(view[:end])
        if large.size > MESSAGE_BYTES_MAX:
            self.broken = Frame("MESSAGE", large.head, b"")
            raise RemoteProtocolError(_TOO_LARGE)
        if end == len(data):
            return b""
        if data[end]:
            self.broken = Frame("MESSAGE", large.head, b"")
            raise RemoteProtocolError(_TOO_LONG)
        self._large, self._needed = None, 0
        frames.append(Frame("MESSAGE", large.head, large.writer.getvalue()))
        return data[end + 1 :]

    def unfinished(self) -> Frame | None:
        """Return the received part of a frame without an end; None = there is none.

        Call it after the last bytes were fed.
        """
        if self._large is not None:
            return Frame("MESSAGE", self._large.head, self._large.writer.getvalue())
        line_end, end = self._buffer.find(b"\n"), self._buffer.find(b"\n\n")
        if end < 0:
            return None
        command = self._buffer[:line_end].decode(errors="replace")
        with memoryview(self._buffer) as view:
            return Frame(command, bytes(view[line_end + 1 : end + 1]), bytes(view[end + 2 :]))

    def _check_size(self, at: int, stop: int, head: bytes = b"") -> None:
        if stop - at <= OTHER_BYTES_MAX:
            return
        if not self.is_let_in or not self._buffer.startswith(b"MESSAGE\n", at):
            raise RemoteProtocolError(
                f"a frame that is no message has more than {OTHER_BYTES_MAX} bytes"
            )
        if stop - at > MESSAGE_BYTES_MAX:
            self.broken = Frame("MESSAGE", head, b"")
            raise RemoteProtocolError(_TOO_LARGE)

    def _check_begin(self, at: int) -> None:
        size = len(self._buffer) - at
        name = bytes(self._buffer[at : at + 10]).partition(b"\n")
        is_command = (
            name[0] in _COMMANDS
            if name[1]
            else any(command.startswith(name[0]) for command in _COMMANDS)
        )
        if not is_command or size > _HEAD_BYTES_MAX:
            raise RemoteProtocolError("the input is not a STOMP frame")


def _content_length(head: bytes) -> int | None:
    if head.startswith(b"content-length:"):
        begin = 0
    else:
        begin = head.find(b"\ncontent-length:") + 1
        if not begin:
            return None
    value = head[begin + 15 : head.index(b"\n", begin)].strip()
    if not value.isdigit() or len(value) > 18:
        raise RemoteProtocolError("a content-length is no number, or more than any body has")
    return int(value)
