"""The packets of Core that carry messages, and quick ways to read and write them."""

from struct import Struct
from typing import Annotated, NamedTuple, Self

from amqsidecar.formats.core.message import (
    CoreMessage,
    decode_headers,
    decode_message,
    encode_headers,
    encode_message,
    end_of_body,
)
from amqsidecar.formats.core.packet_format import Boolean, Int, Long, packet
from amqsidecar.formats.core.primitives import (
    BOOLEAN,
    INT,
    LONG,
    SIZED_BYTES,
    CoreProtocolError,
    CoreReader,
    FieldType,
)

SEND_MESSAGE, RECEIVE_MESSAGE = 71, 75
NO_PRODUCER = -1


def _not_read_alone(reader: CoreReader) -> CoreMessage:
    raise CoreProtocolError(f"a message in {reader.left} bytes has no length of its own")


_SEND_TAIL = Struct(">bqi")
_RECEIVE_TAIL = Struct(">qi")
_WHOLE_MESSAGE = FieldType("message", encode_message, _not_read_alone)
_HEADERS_ONLY = FieldType(
    "headers and properties",
    encode_headers,
    lambda reader: decode_headers(reader.raw(reader.left)),
)


@packet(SEND_MESSAGE, "SessionSendMessage_V3")
class SendMessage(NamedTuple):
    """Send a message; `NullResponse` or `CoreException` with the correlation id, if asked for.

    Attributes:
        producer_id: a number for the metrics of the broker; -1 = none.
    """

    message: Annotated[CoreMessage, _WHOLE_MESSAGE]
    requires_response: Boolean
    correlation_id: Long
    producer_id: Int

    @classmethod
    def read_fields(cls, reader: CoreReader) -> Self:
        """Read the packet."""
        message = decode_message(reader.raw(reader.left - _SEND_TAIL.size))
        flag, correlation_id, producer_id = _SEND_TAIL.unpack(reader.raw(_SEND_TAIL.size))
        return cls(message, flag != 0, correlation_id, producer_id)


@packet(72, "SessionSendLargeMessage")
class SendLarge(NamedTuple):
    """Begin to send a large message; its body follows in `SendContinuation`."""

    message: Annotated[CoreMessage, _HEADERS_ONLY]


def _size_if_last(size: int | None) -> bytes:
    return b"" if size is None else LONG.write(size)


_SIZE_IF_LAST = FieldType("long, only if not continues", _size_if_last, LONG.read)


@packet(73, "SessionSendContinuationMessage_V3")
class SendContinuation(NamedTuple):
    """A piece of a large message's body; answered like `SendMessage`, if asked for.

    Attributes:
        continues: another piece follows; then `body_bytes` is None.
        body_bytes: size of the whole body before compression, which the broker stores as a
            property; -1 = the message has this property already.
    """

    piece: Annotated[bytes, SIZED_BYTES]
    continues: Boolean
    body_bytes: Annotated[int | None, _SIZE_IF_LAST]
    requires_response: Boolean
    correlation_id: Long
    producer_id: Int

    @classmethod
    def read_fields(cls, reader: CoreReader) -> Self:
        """Read the packet."""
        piece, continues = SIZED_BYTES.read(reader), BOOLEAN.read(reader)
        body_bytes = None if continues else LONG.read(reader)
        flag, correlation_id = BOOLEAN.read(reader), LONG.read(reader)
        return cls(piece, continues, body_bytes, flag, correlation_id, INT.read(reader))


@packet(RECEIVE_MESSAGE, "SessionReceiveMessage")
class ReceiveMessage(NamedTuple):
    """A message for a consumer.

    Attributes:
        delivery_count: 1 = delivered for the first time.
    """

    message: Annotated[CoreMessage, _WHOLE_MESSAGE]
    consumer_id: Long
    delivery_count: Int


UNANSWERED = _SEND_TAIL.pack(0, 0, NO_PRODUCER)


def decode_received(fields: bytes) -> ReceiveMessage:
    """Return the `ReceiveMessage` of a packet's fields.

    Raises:
        CoreProtocolError: the fields can't be read.
    """
    _, encoded, consumer_id, delivery_count = split_received(fields)
    return ReceiveMessage(decode_message(encoded), consumer_id, delivery_count)


def split_received(fields: bytes) -> tuple[CoreMessage, bytes, int, int]:
    """Return the parts of a `ReceiveMessage`: its message without a body, and whole but encoded.

    Raises:
        CoreProtocolError: the fields can't be read.
    """
    at = len(fields) - _RECEIVE_TAIL.size
    encoded = fields[:at]
    message = decode_headers(encoded, end_of_body(encoded))
    return message, encoded, *_RECEIVE_TAIL.unpack_from(fields, at)


def asked_tail(correlation_id: int) -> bytes:
    """Return the fields after the message of a `SendMessage` that asks for an answer."""
    return _SEND_TAIL.pack(1, correlation_id, NO_PRODUCER)


@packet(76, "SessionReceiveLargeMessage")
class ReceiveLarge(NamedTuple):
    """A large message for a consumer; its body follows in `ReceiveContinuation`.

    Attributes:
        body_bytes: of all pieces.
    """

    consumer_id: Long
    delivery_count: Int
    body_bytes: Long
    message: Annotated[CoreMessage, _HEADERS_ONLY]


@packet(77, "SessionReceiveContinuationMessage")
class ReceiveContinuation(NamedTuple):
    """A piece of a large message's body."""

    piece: Annotated[bytes, SIZED_BYTES]
    continues: Boolean
    consumer_id: Long
