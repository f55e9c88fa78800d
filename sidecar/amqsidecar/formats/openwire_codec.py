"""OpenWire version 12, loose encoding without cache: the commands a sidecar needs, without IO.

A frame is an int size and a command: type byte, command id, response-required flag, fields. A
nested object is a flag byte, its type and its fields; a text is a flag byte, a length and modified
UTF-8.
Messages are not decoded here (`openwire_dead_letter.py`).

Source: ActiveMQ Classic, org.apache.activemq.openwire.v12.*Marshaller.looseMarshal.
"""

import re
from collections.abc import Mapping
from struct import Struct, error
from typing import NamedTuple

from amqsidecar.errors import RemoteProtocolError, UndecodableMessage
from amqsidecar.formats.openwire_properties import (
    PropertyValue,
    decode_text,
    encode_text,
    read_properties,
)
from amqsidecar.formats.payload import (
    BeginPayload,
    Footprint,
    Payload,
    PayloadWriter,
    Spooled,
    footprint,
    in_memory,
)
from amqsidecar.model.destination import Destination, DestinationKind

VERSION = 12
ENCODING = "openwire/12"

WIRE_FORMAT_INFO, BROKER_INFO, CONNECTION_INFO, SESSION_INFO, CONSUMER_INFO = range(1, 6)
PRODUCER_INFO, TRANSACTION_INFO, DESTINATION_INFO = range(6, 9)
KEEP_ALIVE_INFO, SHUTDOWN_INFO, REMOVE_INFO = range(10, 13)
CONNECTION_ERROR, CONSUMER_CONTROL, CONNECTION_CONTROL, PRODUCER_ACK = range(16, 20)
MESSAGE_DISPATCH, MESSAGE_ACK = 21, 22
TEXT_MESSAGE, BLOB_MESSAGE = 28, 29
RESPONSE, EXCEPTION_RESPONSE = 30, 31
RESPONSES = range(30, 35)

BEGIN, COMMIT_ONE_PHASE, ROLLBACK = 0, 2, 4
STANDARD_ACK, INDIVIDUAL_ACK = 2, 4
# Source: RemoveInfo.LAST_DELIVERED_UNSET; the broker then raises no redelivery counter.
NOTHING_DELIVERED = -1

NULL = b"\0"
_DESTINATION_CODES = {
    DestinationKind.QUEUE: 100,
    DestinationKind.TOPIC: 101,
    DestinationKind.TEMP_QUEUE: 102,
    DestinationKind.TEMP_TOPIC: 103,
}
_DESTINATION_KINDS = {code: kind for kind, code in _DESTINATION_CODES.items()}

SIZE = Struct(">i")
HEAD = Struct(">iBi?")
_SHORT = Struct(">H")
_INT = Struct(">i")
_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")
_MAGIC = b"ActiveMQ"
_FRAME_BYTES_MIN = 1
_UNTOLD = bytes(9)
# Source: sys.getsizeof of the tuple and its items.
_MEMORY_OF_DISPATCH = 300
# Why: more than two names of 64 KiB, a connection's and a destination's.
_DISPATCH_HEAD_BYTES = 2**18


class FrameSplitter:
    """Cuts the received bytes into frames."""

    def __init__(self, frame_bytes_max: int, begin: BeginPayload = in_memory) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._begin = begin
        self._begun: PayloadWriter = in_memory(0)
        self._missing_bytes = 0
        self._size_begun = b""

    def feed(self, data: bytes) -> list[Payload]:
        """Return the frames, without their sizes, that are complete with these bytes.

        Raises:
            RemoteProtocolError: a frame claims a size that is not possible.
        """
        frames: list[Payload] = []
        at = 0
        if self._missing_bytes:
            at = self._begun.write(memoryview(data)[: self._missing_bytes])
            self._missing_bytes -= at
            if self._missing_bytes:
                return frames
            frames.append(self._begun.getvalue())
            self._begun = in_memory(0)
        elif self._size_begun:
            data = self._size_begun + data
        end = len(data)
        while end - at >= 4:
            size = SIZE.unpack_from(data, at)[0]
            if not _FRAME_BYTES_MIN <= size <= self.frame_bytes_max:
                raise RemoteProtocolError(
                    f"the broker announced a frame of {size} bytes; at most {self.frame_bytes_max}"
                    " were agreed"
                )
            at += 4
            if end - at < size:
                self._begun = self._begin(size)
                self._begun.write(memoryview(data)[at:])
                self._missing_bytes = size - (end - at)
                at = end
                break
            frames.append(data[at : at + size])
            at += size
        self._size_begun = data[at:]
        return frames


def text_field(text: str | None) -> bytes:
    """Return a text field, or the null field."""
    if text is None:
        return NULL
    data = encode_text(text)
    return b"\x01" + _SHORT.pack(len(data)) + data


def connection_id(connection: str) -> bytes:
    """Return a nested ConnectionId."""
    return b"\x01\x78" + text_field(connection)


def session_id(connection: str) -> bytes:
    """Return the nested SessionId of a connection's only session."""
    return b"\x01\x79" + text_field(connection) + _LONG.pack(1)


def consumer_id(connection: str, session: int, value: int) -> bytes:
    """Return a nested ConsumerId."""
    return b"\x01\x7a" + text_field(connection) + _TWO_LONGS.pack(session, value)


def producer_id(connection: str, session: int, value: int) -> bytes:
    """Return a nested ProducerId; other than in a ConsumerId its value comes before its session."""
    return b"\x01\x7b" + text_field(connection) + _TWO_LONGS.pack(value, session)


def transaction_id(connection: str, value: int) -> bytes:
    """Return a nested LocalTransactionId."""
    return b"\x01\x6f" + _LONG.pack(value) + connection_id(connection)


def destination_field(destination: Destination) -> bytes:
    """Return a nested destination."""
    return bytes((1, _DESTINATION_CODES[destination.kind])) + text_field(destination.name)


def read_destination(field: bytes) -> Destination | None:
    """Return the destination of a nested destination field; None = the null field.

    Raises:
        UndecodableMessage: it is none of the four kinds, or it has no name.
    """
    if field[:1] == NULL:
        return None
    kind = _DESTINATION_KINDS.get(field[1]) if len(field) >= 5 and field[2] else None
    if kind is None:
        raise UndecodableMessage("a destination is neither a queue nor a topic")
    return Destination(kind, decode_text(field[5:]))


def wire_format_info(*, inactivity_ms: int, frame_bytes_max: int) -> bytes:
    """Return the frame of our offer: no cache, loose encoding, no stack traces."""
    flags = {
        b"TightEncodingEnabled": False,
        b"CacheEnabled": False,
        b"SizePrefixDisabled": False,
        b"StackTraceEnabled": False,
        b"TcpNoDelayEnabled": True,
    }
    numbers = {
        b"MaxInactivityDuration": inactivity_ms,
        b"MaxInactivityDurationInitalDelay": min(inactivity_ms, 10_000),
        b"MaxFrameSize": frame_bytes_max,
    }
    entries = [_SHORT.pack(len(name)) + name + bytes((1, on)) for name, on in flags.items()]
    entries += [
        _SHORT.pack(len(name)) + name + b"\x06" + _LONG.pack(value)
        for name, value in numbers.items()
    ]
    properties = _INT.pack(len(entries)) + b"".join(entries)
    body = b"\x01%b%b\x01%b%b" % (
        _MAGIC,
        _INT.pack(VERSION),
        _INT.pack(len(properties)),
        properties,
    )
    return SIZE.pack(len(body)) + body


_FRAME_BYTES_UNLIMITED = 2**31 - 1


class WireFormat(NamedTuple):
    """The broker's offer.

    Attributes:
        version: the highest version it speaks.
        inactivity_ms: silence after which it drops us; 0 = never.
        frame_bytes_max: the largest frame that it accepts.
        provider_version: version of the product; "" = not sent.
    """

    version: int
    inactivity_ms: int
    frame_bytes_max: int
    provider_version: str


def read_wire_format_info(frame: bytes) -> WireFormat:
    """Return the offer of the broker's first frame.

    Raises:
        RemoteProtocolError: it is no WireFormatInfo.
    """
    if frame[:9] != b"\x01" + _MAGIC:
        raise RemoteProtocolError("the broker's first frame is no OpenWire greeting")
    try:
        properties = read_properties(frame[18:] if frame[13] else None, _WireFormatNames())
    except (UndecodableMessage, IndexError) as cause:
        raise RemoteProtocolError("the broker's OpenWire greeting can't be read") from cause
    return WireFormat(
        version=_INT.unpack_from(frame, 9)[0],
        inactivity_ms=_number(properties, b"MaxInactivityDuration", 0),
        frame_bytes_max=_FRAME_BYTES_UNLIMITED
        if properties.get(b"MaxFrameSizeEnabled") is False
        else _number(properties, b"MaxFrameSize", _FRAME_BYTES_UNLIMITED),
        provider_version=str(properties.get(b"ProviderVersion") or ""),
    )


def is_artemis(broker_info: bytes) -> bool:
    """Return whether a BrokerInfo is Apache Artemis's.

    Its greeting says ActiveMQ, too; but its broker id is a node id, Classic's begins with `ID:`.
    """
    # Fields: command id, response required, then the broker id: its type and one text.
    if broker_info[6:9] != b"\x01\x7c\x01":
        return False
    size = int.from_bytes(broker_info[9:11], "big")
    return _NODE_ID.fullmatch(broker_info[11 : 11 + size]) is not None


_NODE_ID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _WireFormatNames:
    """Every property name."""

    def __contains__(self, name: object) -> bool:
        return True


def _number(properties: Mapping[bytes, PropertyValue], name: bytes, default: int) -> int:
    value = properties.get(name)
    return value if isinstance(value, int) else default


def command(code: int, number: int, *fields: bytes | memoryview, answer: bool) -> bytes:
    """Return a frame: size, type, command id, response-required flag, fields."""
    size = 6 + sum(map(len, fields))
    return b"".join((HEAD.pack(size, code, number, answer), *fields))


def connection_info(
    connection: str, client_id: str, user: str | None, password: str | None
) -> bytes:
    """Return the fields of a ConnectionInfo, with the flags that a JMS client sets."""
    fields = (connection_id(connection), text_field(client_id), text_field(password))
    return b"".join((*fields, text_field(user), NULL, b"\0\x01\x01\0\0", NULL))


def producer_info(producer: bytes) -> bytes:
    """Return the fields of a ProducerInfo without destination and without window."""
    return producer + NULL + NULL + b"\0" + _INT.pack(0)


def consumer_info(
    consumer: bytes,
    destination: bytes,
    *,
    prefetch: int,
    browser: bool,
    exclusive: bool,
    asynchronous: bool,
    selector: str | None = None,
) -> bytes:
    """Return the fields of a ConsumerInfo."""
    head = consumer + bytes((browser,)) + destination
    flow = _INT.pack(prefetch) + _INT.pack(0) + bytes((asynchronous,))
    # Why: client id, subscription; three flags; priority; path, predicate; flags; path.
    flags = bytes((0, exclusive, 0))
    return (
        head + flow + text_field(selector) + b"\0\0" + flags + b"\0" + b"\0\0" + b"\0\0\0" + b"\0"
    )


def consumer_control(consumer: bytes, destination: bytes, prefetch: int) -> bytes:
    """Return the fields of a ConsumerControl that changes the prefetch."""
    return destination + b"\0" + consumer + _INT.pack(prefetch) + b"\0\0\0"


def remove_info(nested_id: bytes) -> bytes:
    """Return the fields of a RemoveInfo that counts nothing as delivered."""
    return nested_id + _LONG.pack(NOTHING_DELIVERED)


def transaction_info(connection: bytes, transaction: bytes, operation: int) -> bytes:
    """Return the fields of a TransactionInfo."""
    return connection + transaction + bytes((operation,))


def destination_info(connection: bytes, destination: bytes, *, is_removed: bool = True) -> bytes:
    """Return the fields of a DestinationInfo that removes a destination, or makes it."""
    return connection + destination + bytes((is_removed,)) + _LONG.pack(0) + b"\0"


def message_ack(
    destination: bytes, transaction: bytes, consumer: bytes, first: bytes, last: bytes, count: int
) -> bytes:
    """Return the fields of a MessageAck from one message id to another, both included."""
    kind = INDIVIDUAL_ACK if count == 1 else STANDARD_ACK
    ids = first + last + _INT.pack(count)
    return b"".join((destination, transaction, consumer, bytes((kind,)), ids, NULL))


class MessageDispatch(NamedTuple):
    """A message that the broker hands to a consumer.

    Attributes:
        consumer: value of our consumer's id.
        destination: the nested destination where it was found.
        message: type and fields, without the fields of this dispatch; None = the end of a
            browser's queue.
    """

    consumer: int
    destination: bytes
    message: Payload | None
    footprint: Footprint


def read_dispatch(payload: Payload) -> MessageDispatch:
    """Return the payload of a MessageDispatch.

    Raises:
        RemoteProtocolError: it can't be read.
    """
    frame = payload if isinstance(payload, bytes) else bytes(payload.part(0, _DISPATCH_HEAD_BYTES))
    try:
        # Why: flag, type 122, flag, length of the connection id.
        at = 10 + _SHORT.unpack_from(frame, 9)[0]
        consumer = _LONG.unpack_from(frame, at + 9)[0]
        at += 17
        start = at
        if frame[at]:
            at += 5 + _SHORT.unpack_from(frame, at + 3)[0]
        else:
            at += 1
        message = _message_of(payload, frame[at + 1], at + 1) if frame[at] else None
    except (error, IndexError) as cause:
        raise RemoteProtocolError(
            "the broker sent a message dispatch that can't be read"
        ) from cause
    taken = footprint(message or b"", at - start + _MEMORY_OF_DISPATCH)
    return MessageDispatch(consumer, frame[start:at], message, taken)


def _message_of(frame: Payload, kind: int, at: int) -> Payload:
    # Why: a message ends with the time at which the broker handed it out and whether it opens a
    # group for this consumer; without them its bytes are the same each time it is handed out.
    if not isinstance(frame, bytes):
        message: Spooled = frame.part(at, len(frame) - 4)
        return message if kind == BLOB_MESSAGE else message.ending_with(_UNTOLD)
    if kind == BLOB_MESSAGE:
        return frame[at:-4]
    return b"".join((memoryview(frame)[at:-13], _UNTOLD))


class Throwable(NamedTuple):
    """A Java exception of the broker, without its stack."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind.rpartition('.')[2]}: {self.message}" if self.kind else self.message


def read_throwable(frame: bytes, at: int) -> Throwable:
    """Return the exception that an ExceptionResponse (at 10) or ConnectionError (at 6) carries."""
    try:
        if not frame[at]:
            return Throwable("", "the broker gave no reason")
        kind, at = _read_text(frame, at + 1)
        message, at = _read_text(frame, at)
    except (error, IndexError):
        return Throwable("", "the broker's reason can't be read")
    return Throwable(kind or "", message or "")


def _read_text(frame: bytes, at: int) -> tuple[str | None, int]:
    if not frame[at]:
        return None, at + 1
    end = at + 3 + _SHORT.unpack_from(frame, at + 1)[0]
    return decode_text(frame[at + 3 : end]), end


def correlation_of(frame: bytes) -> int:
    """Return the command id that a response answers.

    Raises:
        RemoteProtocolError: it is cut off.
    """
    try:
        return int(_INT.unpack_from(frame, 6)[0])
    except error as cause:
        raise RemoteProtocolError("the broker sent a response that can't be read") from cause
