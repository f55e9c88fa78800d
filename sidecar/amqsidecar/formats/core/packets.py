"""The packets of Core that a client needs: a class each, its fields in the order of the wire.

`encode` and `decode` turn them into the fields of a packet and back. A field with a default may be
missing at the end of what a broker sends. What a newer broker appends is ignored.

Source: Artemis, org.apache.activemq.artemis.core.protocol.core.impl.PacketImpl and the classes in
`wireformat`; each class names the broker's.
"""

from collections.abc import Callable
from struct import Struct
from typing import Annotated, Any, NamedTuple, Self, TypeVar, get_type_hints

from amqsidecar.formats.core.message import (
    CoreMessage,
    decode_headers,
    decode_message,
    decode_message_until,
    encode_headers,
    encode_message,
)
from amqsidecar.formats.core.primitives import (
    BOOLEAN,
    BYTE,
    INT,
    LONG,
    NULLABLE_BOOLEAN,
    NULLABLE_CONNECTOR,
    NULLABLE_INT,
    NULLABLE_LONG,
    NULLABLE_SIMPLE_STRING,
    NULLABLE_STRING,
    SIMPLE_STRING,
    SIMPLE_STRINGS,
    SIZED_BYTES,
    STRING,
    Connector,
    CoreProtocolError,
    CoreReader,
    FieldType,
)

VERSION_MIN, VERSION_MAX = 134, 136
"""Of the protocol: 2.28, and 2.37 or later. A broker refuses one that it does not know."""

ANYCAST, MULTICAST = 1, 0
NO_CORRELATION = -1
NO_PRODUCER = -1


class _Field(NamedTuple):
    name: str
    kind: FieldType[Any]
    is_optional: bool


class PacketFormat(NamedTuple):
    """How one packet is written.

    Attributes:
        code: of the packet.
        source: the broker's class.
        fields: name and type of each, in the order of the wire.
    """

    code: int
    source: str
    fields: tuple[_Field, ...]


CorePacket = tuple[Any, ...]
"""An instance of one of the classes below."""

FORMATS: dict[type[CorePacket], PacketFormat] = {}
"""The format of each class."""

_CLASSES: dict[int, type[CorePacket]] = {}
_PacketClass = TypeVar("_PacketClass", bound=type[CorePacket])


def _packet(code: int, source: str) -> Callable[[_PacketClass], _PacketClass]:
    def register(packet: _PacketClass) -> _PacketClass:
        defaults = getattr(packet, "_field_defaults", {})
        fields = []
        for name, hint in get_type_hints(packet, include_extras=True).items():
            fields.append(_Field(name, hint.__metadata__[0], name in defaults))
        FORMATS[packet] = PacketFormat(code, source, tuple(fields))
        _CLASSES[code] = packet
        return packet

    return register


def code_of(packet: CorePacket) -> int:
    """Return the code of a packet."""
    return FORMATS[type(packet)].code


def encode(packet: CorePacket) -> bytes:
    """Return a packet's fields."""
    fields = FORMATS[type(packet)].fields
    return b"".join(field.kind.write(value) for field, value in zip(fields, packet, strict=True))


def decode(code: int, fields: bytes) -> CorePacket | None:
    """Return the packet of a code; None = a code that is not one of these.

    Raises:
        CoreProtocolError: the fields can't be read.
    """
    packet = _CLASSES.get(code)
    if packet is None:
        return None
    reader = CoreReader(fields)
    own = getattr(packet, "read_fields", None)
    if own is not None:
        found: CorePacket = own(reader)
        return found
    values = []
    for field in FORMATS[packet].fields:
        if field.is_optional and not reader.left:
            break
        values.append(field.kind.read(reader))
    return packet(*values)


Byte = Annotated[int, BYTE]
Int = Annotated[int, INT]
Long = Annotated[int, LONG]
Boolean = Annotated[bool, BOOLEAN]
String = Annotated[str, STRING]
NullableString = Annotated[str | None, NULLABLE_STRING]
SimpleString = Annotated[str, SIMPLE_STRING]
NullableSimpleString = Annotated[str | None, NULLABLE_SIMPLE_STRING]
NullableBoolean = Annotated[bool | None, NULLABLE_BOOLEAN]
NullableInt = Annotated[int | None, NULLABLE_INT]
NullableLong = Annotated[int | None, NULLABLE_LONG]
NullableConnector = Annotated[Connector | None, NULLABLE_CONNECTOR]


# The connection, on channel 0 if not said otherwise.


@_packet(10, "Ping")
class Ping(NamedTuple):
    """I am alive; the broker answers with the same packet.

    Attributes:
        connection_ttl_ms: the broker drops a connection that is silent for longer; -1 = never.
    """

    connection_ttl_ms: Long


@_packet(11, "DisconnectMessage")
class Disconnect(NamedTuple):
    """The broker closes the connection."""

    node_id: NullableSimpleString


@_packet(124, "DisconnectMessage_V2")
class DisconnectScaledDown(NamedTuple):
    """The broker closes the connection; another node takes over its messages."""

    node_id: NullableSimpleString
    scale_down_node_id: NullableSimpleString


REDIRECT, REDIRECT_ON_CRITICAL_ERROR, SCALE_DOWN, SCALE_DOWN_ON_CRITICAL_ERROR = range(4)
SHUT_DOWN, SHUT_DOWN_ON_CRITICAL_ERROR = 4, 5


@_packet(-19, "DisconnectMessage_V3")
class DisconnectWithReason(NamedTuple):
    """The broker closes the connection and says why.

    Attributes:
        reason: `SHUT_DOWN` and so on (api.core.DisconnectReason); -1 = none.
        target_node_id: the node to connect to instead.
        target_connector: how to reach it.
    """

    node_id: NullableSimpleString
    reason: Byte
    target_node_id: NullableSimpleString
    target_connector: NullableConnector


class TopologyNode(NamedTuple):
    """A pair of brokers.

    Attributes:
        primary: None = it has none.
        backup: None = it has none.
        is_last: it ends the first answer.
    """

    primary: Connector | None
    backup: Connector | None
    is_last: bool


def _write_node(node: TopologyNode | None) -> bytes:
    if node is None:
        return b""
    pair = NULLABLE_CONNECTOR.write(node.primary) + NULLABLE_CONNECTOR.write(node.backup)
    return pair + BOOLEAN.write(node.is_last)


def _read_node(reader: CoreReader) -> TopologyNode:
    primary, backup = NULLABLE_CONNECTOR.read(reader), NULLABLE_CONNECTOR.read(reader)
    return TopologyNode(primary, backup, BOOLEAN.read(reader))


_NODE = FieldType("node, only if not is_gone", _write_node, _read_node)


@_packet(-17, "ClusterTopologyChangeMessage_V4")
class Topology(NamedTuple):
    """A node has come, changed or gone.

    Attributes:
        is_gone: then `node` is None.
        node_id: of the pair.
        event_id: the later event has the higher one.
    """

    is_gone: Boolean
    node_id: String
    event_id: Long
    node: Annotated[TopologyNode | None, _NODE]
    backup_group: NullableString
    scale_down_group: NullableString
    server_version: Int

    @classmethod
    def read_fields(cls, reader: CoreReader) -> Self:
        """Read the packet."""
        is_gone = BOOLEAN.read(reader)
        node_id, event_id = STRING.read(reader), LONG.read(reader)
        node = None if is_gone else _read_node(reader)
        groups = NULLABLE_STRING.read(reader), NULLABLE_STRING.read(reader)
        return cls(is_gone, node_id, event_id, node, *groups, INT.read(reader))


# Channel 1: sessions are created.


@_packet(-18, "CreateSessionMessage_V2")
class CreateSession(NamedTuple):
    """Ask for a session; the answer is `SessionCreated` or `CoreException`.

    Attributes:
        name: unique in the broker.
        channel: that the client chose for the session, from 10 on.
        version: of the protocol that both then speak on this connection.
        large_message_bytes_min: the size of the pieces in which large messages come.
        confirmation_bytes: -1 = the session can't be attached to another connection, and the
            broker confirms no packets.
        pre_acknowledge: what is handed out is acknowledged at once.
    """

    name: String
    channel: Long
    version: Int
    user: NullableString
    password: NullableString
    large_message_bytes_min: Int
    is_xa: Boolean
    auto_commit_sends: Boolean
    auto_commit_acknowledgements: Boolean
    confirmation_bytes: Int
    pre_acknowledge: Boolean
    default_address: NullableString
    client_id: NullableString


@_packet(31, "CreateSessionResponseMessage")
class SessionCreated(NamedTuple):
    """The session is there.

    Attributes:
        server_version: the highest that the broker speaks.
    """

    server_version: Int


# Each session has a channel of its own.


@_packet(20, "ActiveMQExceptionMessage_V2")
class CoreException(NamedTuple):
    """The broker refused what was asked.

    Attributes:
        kind: a code of ActiveMQExceptionType.
        correlation_id: of the packet; -1 = it had none.
    """

    kind: Int
    message: NullableString
    correlation_id: Long = NO_CORRELATION


@_packet(21, "NullResponseMessage_V2")
class NullResponse(NamedTuple):
    """Done."""

    correlation_id: Long = NO_CORRELATION


@_packet(67, "PacketImpl(SESS_START)")
class StartSession(NamedTuple):
    """Start the delivery to the consumers; without an answer."""


@_packet(68, "PacketImpl(SESS_STOP)")
class StopSession(NamedTuple):
    """Stop the delivery to the consumers; `NullResponse`."""


@_packet(69, "SessionCloseMessage")
class CloseSession(NamedTuple):
    """End the session and roll back; `NullResponse`."""


@_packet(40, "SessionCreateConsumerMessage")
class CreateConsumer(NamedTuple):
    """Open a consumer; `QueueAnswer`, if asked for.

    Attributes:
        consumer_id: chosen by the client.
        selector: None = every message.
        priority: a higher one is served first.
    """

    consumer_id: Long
    queue: SimpleString
    selector: NullableSimpleString
    browse_only: Boolean
    requires_response: Boolean
    priority: Int


@_packet(74, "SessionConsumerCloseMessage")
class CloseConsumer(NamedTuple):
    """Close a consumer; `NullResponse`."""

    consumer_id: Long


@_packet(12, "DisconnectConsumerMessage")
class ConsumerDisconnected(NamedTuple):
    """The broker closed a consumer, for example because its queue was deleted."""

    consumer_id: Long


@_packet(70, "SessionConsumerFlowCreditMessage")
class ConsumerCredits(NamedTuple):
    """Grant a consumer more bytes of packets, headers included.

    Attributes:
        credits: -1 = without end; 0 = stop and forget what is left.
    """

    consumer_id: Long
    credits: Int


@_packet(78, "SessionForceConsumerDelivery")
class ForceDelivery(NamedTuple):
    """Ask for a sign that the queue has nothing more for a consumer.

    The sign is a message with the long property `_hornetq.forced.delivery.seq`.
    """

    consumer_id: Long
    sequence: Long


@_packet(41, "SessionAcknowledgeMessage")
class Acknowledge(NamedTuple):
    """Acknowledge all messages of a consumer up to one; `NullResponse` if asked for."""

    consumer_id: Long
    message_id: Long
    requires_response: Boolean


@_packet(81, "SessionIndividualAcknowledgeMessage")
class AcknowledgeOne(NamedTuple):
    """Acknowledge one message of a consumer; `NullResponse` if asked for."""

    consumer_id: Long
    message_id: Long
    requires_response: Boolean


@_packet(43, "SessionCommitMessage_V2")
class Commit(NamedTuple):
    """Commit, and begin a new transaction; `NullResponse`, or `CoreException` and nothing done."""

    correlation_id: Long


@_packet(44, "RollbackMessage")
class Rollback(NamedTuple):
    """Roll back, and begin a new transaction; `NullResponse`.

    Attributes:
        last_is_delivered: the last message of each consumer counts as delivered.
    """

    last_is_delivered: Boolean


@_packet(45, "SessionQueueQueryMessage")
class AskQueue(NamedTuple):
    """Ask for a `QueueAnswer`."""

    queue: SimpleString


@_packet(-14, "SessionQueueQueryResponseMessage_V3")
class QueueAnswer(NamedTuple):
    """The properties of a queue."""

    exists: Boolean
    durable: Boolean
    temporary: Boolean
    consumer_count: Int
    message_count: Long
    selector: NullableSimpleString
    address: NullableSimpleString
    name: NullableSimpleString
    auto_create_queues: Boolean
    auto_created: Boolean
    purge_on_no_consumers: Boolean
    routing_type: Byte
    max_consumers: Int
    exclusive: NullableBoolean = None
    last_value: NullableBoolean = None
    default_consumer_window: NullableInt = None
    last_value_key: NullableSimpleString = None
    non_destructive: NullableBoolean = None
    consumers_before_dispatch: NullableInt = None
    delay_before_dispatch_ms: NullableLong = None
    group_rebalance: NullableBoolean = None
    group_buckets: NullableInt = None
    auto_delete: NullableBoolean = None
    auto_delete_delay_ms: NullableLong = None
    auto_delete_message_count: NullableLong = None
    group_first_key: NullableSimpleString = None
    ring_size: NullableLong = None
    enabled: NullableBoolean = None
    group_rebalance_pause_dispatch: NullableBoolean = None
    configuration_managed: NullableBoolean = None


@_packet(49, "SessionBindingQueryMessage")
class AskAddress(NamedTuple):
    """Ask for an `AddressAnswer`, or from version 135 on for an `AddressAnswerV5`."""

    address: SimpleString


@_packet(-15, "SessionBindingQueryResponseMessage_V4")
class AddressAnswer(NamedTuple):
    """The properties of an address."""

    exists: Boolean
    queues: Annotated[tuple[str, ...], SIMPLE_STRINGS]
    auto_create_queues: Boolean
    auto_create_addresses: Boolean
    default_purge_on_no_consumers: Boolean
    default_max_consumers: Int
    default_exclusive: NullableBoolean = None
    default_last_value: NullableBoolean = None
    default_last_value_key: NullableSimpleString = None
    default_non_destructive: NullableBoolean = None
    default_consumers_before_dispatch: NullableInt = None
    default_delay_before_dispatch_ms: NullableLong = None


@_packet(-22, "SessionBindingQueryResponseMessage_V5")
class AddressAnswerV5(NamedTuple):
    """The properties of an address, with its routing types."""

    exists: Boolean
    queues: Annotated[tuple[str, ...], SIMPLE_STRINGS]
    auto_create_queues: Boolean
    auto_create_addresses: Boolean
    default_purge_on_no_consumers: Boolean
    default_max_consumers: Int
    default_exclusive: NullableBoolean = None
    default_last_value: NullableBoolean = None
    default_last_value_key: NullableSimpleString = None
    default_non_destructive: NullableBoolean = None
    default_consumers_before_dispatch: NullableInt = None
    default_delay_before_dispatch_ms: NullableLong = None
    supports_multicast: Boolean = False
    supports_anycast: Boolean = False


@_packet(-12, "CreateQueueMessage_V2")
class CreateQueue(NamedTuple):
    """Create a queue; `NullResponse` if asked for. None = by the address settings.

    Attributes:
        temporary: it ends with the connection.
        max_consumers: -1 = any number.
    """

    address: SimpleString
    queue: SimpleString
    selector: NullableSimpleString
    durable: Boolean
    temporary: Boolean
    requires_response: Boolean
    auto_created: Boolean
    routing_type: Byte
    max_consumers: Int
    purge_on_no_consumers: Boolean
    exclusive: NullableBoolean = None
    last_value: NullableBoolean = None
    last_value_key: NullableSimpleString = None
    non_destructive: NullableBoolean = None
    consumers_before_dispatch: NullableInt = None
    delay_before_dispatch_ms: NullableLong = None
    group_rebalance: NullableBoolean = None
    group_buckets: NullableInt = None
    auto_delete: NullableBoolean = None
    auto_delete_delay_ms: NullableLong = None
    auto_delete_message_count: NullableLong = None
    group_first_key: NullableSimpleString = None
    ring_size: NullableLong = None
    enabled: NullableBoolean = None
    group_rebalance_pause_dispatch: NullableBoolean = None


@_packet(35, "SessionDeleteQueueMessage")
class DeleteQueue(NamedTuple):
    """Delete a queue; `NullResponse`."""

    queue: SimpleString


@_packet(79, "SessionRequestProducerCreditsMessage")
class RequestCredits(NamedTuple):
    """Ask whether an address has room; a `ProducerCredits` comes as soon as it has.

    The broker does not enforce it: a client that sends without asking overfills the address.
    """

    credits: Int
    address: SimpleString


@_packet(80, "SessionProducerCreditsMessage")
class ProducerCredits(NamedTuple):
    """An address has room for this many bytes."""

    credits: Int
    address: SimpleString


@_packet(82, "SessionProducerCreditsFailMessage")
class ProducerCreditsFail(NamedTuple):
    """An address is full, and sends to it fail (address-full-policy FAIL)."""

    credits: Int
    address: SimpleString


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


@_packet(71, "SessionSendMessage_V3")
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


@_packet(72, "SessionSendLargeMessage")
class SendLarge(NamedTuple):
    """Begin to send a large message; its body follows in `SendContinuation`."""

    message: Annotated[CoreMessage, _HEADERS_ONLY]


def _size_if_last(size: int | None) -> bytes:
    return b"" if size is None else LONG.write(size)


_SIZE_IF_LAST = FieldType("long, only if not continues", _size_if_last, LONG.read)


@_packet(73, "SessionSendContinuationMessage_V3")
class SendContinuation(NamedTuple):
    """A piece of a large message's body; answered like `SendMessage`, if asked for.

    Attributes:
        continues: another piece follows; then `body_bytes` is None.
        body_bytes: of the body before it was compressed; the broker makes a property of it; -1 =
            the message has this property already.
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


@_packet(75, "SessionReceiveMessage")
class ReceiveMessage(NamedTuple):
    """A message for a consumer.

    Attributes:
        delivery_count: 1 = delivered for the first time.
    """

    message: Annotated[CoreMessage, _WHOLE_MESSAGE]
    consumer_id: Long
    delivery_count: Int

    @classmethod
    def read_fields(cls, reader: CoreReader) -> "ReceiveMessage":
        """Read the packet."""
        return decode_received(reader.raw(reader.left))


RECEIVE_MESSAGE, SEND_MESSAGE, NULL_RESPONSE = 75, 71, 21
_UNANSWERED = _SEND_TAIL.pack(0, 0, NO_PRODUCER)


def decode_received(fields: bytes) -> ReceiveMessage:
    """Return what `decode` does of a `ReceiveMessage`, in half the time.

    Raises:
        CoreProtocolError: the fields can't be read.
    """
    at = len(fields) - _RECEIVE_TAIL.size
    message = decode_message_until(fields, at)
    # Why not its constructor: that takes twice as long.
    return tuple.__new__(ReceiveMessage, (message, *_RECEIVE_TAIL.unpack_from(fields, at)))


def message_of_received(fields: bytes) -> bytes:
    """Return the message in a `ReceiveMessage`, as `encode_message` writes it."""
    return fields[: -_RECEIVE_TAIL.size]


def encode_unanswered(message: CoreMessage) -> bytes:
    """Return what `encode` does of a `SendMessage` that asks for no answer, in half the time."""
    return encode_message(message, _UNANSWERED)


def encode_asked(message: CoreMessage, correlation_id: int) -> bytes:
    """Return what `encode` does of a `SendMessage` that asks for an answer, in half the time."""
    return encode_message(message, asked_tail(correlation_id))


def asked_tail(correlation_id: int) -> bytes:
    """Return what follows the message in a `SendMessage` that asks for an answer."""
    return _SEND_TAIL.pack(1, correlation_id, NO_PRODUCER)


@_packet(76, "SessionReceiveLargeMessage")
class ReceiveLarge(NamedTuple):
    """A large message for a consumer; its body follows in `ReceiveContinuation`.

    Attributes:
        body_bytes: of all pieces.
    """

    consumer_id: Long
    delivery_count: Int
    body_bytes: Long
    message: Annotated[CoreMessage, _HEADERS_ONLY]


@_packet(77, "SessionReceiveContinuationMessage")
class ReceiveContinuation(NamedTuple):
    """A piece of a large message's body."""

    piece: Annotated[bytes, SIZED_BYTES]
    continues: Boolean
    consumer_id: Long
