"""The packets of Core that a client needs: a class each, its fields in wire order.

Packets that carry messages are in `message_packets.py`.

`encode` and `decode` turn them into the fields of a packet and back. A broker may omit a
field with a default at the end of a packet. Fields that a newer broker appends are ignored.

Source: Artemis, org.apache.activemq.artemis.core.protocol.core.impl.PacketImpl and the classes in
`wireformat`; each class names the broker's.
"""

from typing import Annotated, NamedTuple

from amqsidecar.formats.core.message_packets import RECEIVE_MESSAGE, decode_received
from amqsidecar.formats.core.packet_format import (
    DECLARED,
    Boolean,
    Byte,
    CorePacket,
    Int,
    Long,
    NullableBoolean,
    NullableConnector,
    NullableInt,
    NullableLong,
    NullableSimpleString,
    NullableString,
    SimpleString,
    String,
    packet,
)
from amqsidecar.formats.core.primitives import (
    SIMPLE_STRINGS,
    CoreReader,
)

VERSION_MIN, VERSION_MAX = 134, 136
"""Of the protocol: 2.28, and 2.37 or later. A broker refuses one that it does not know."""

ANYCAST, MULTICAST = 1, 0
NO_CORRELATION = -1
NULL_RESPONSE = 21


# The connection, on channel 0 if not said otherwise.


@packet(10, "Ping")
class Ping(NamedTuple):
    """Sign of life; the broker answers with the same packet.

    Attributes:
        connection_ttl_ms: the broker drops a connection that is silent for longer; -1 = never.
    """

    connection_ttl_ms: Long


@packet(11, "DisconnectMessage")
class Disconnect(NamedTuple):
    """The broker closes the connection."""

    node_id: NullableSimpleString


@packet(124, "DisconnectMessage_V2")
class DisconnectScaledDown(NamedTuple):
    """The broker closes the connection; another node takes over its messages."""

    node_id: NullableSimpleString
    scale_down_node_id: NullableSimpleString


REDIRECT, REDIRECT_ON_CRITICAL_ERROR, SCALE_DOWN, SCALE_DOWN_ON_CRITICAL_ERROR = range(4)
SHUT_DOWN, SHUT_DOWN_ON_CRITICAL_ERROR = 4, 5


@packet(-19, "DisconnectMessage_V3")
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


# Channel 1: sessions are created.


@packet(-18, "CreateSessionMessage_V2")
class CreateSession(NamedTuple):
    """Ask for a session; the answer is `SessionCreated` or `CoreException`.

    Attributes:
        name: unique in the broker.
        channel: the session's channel, chosen by the client, from 10 on.
        version: the protocol version that both then speak on this connection.
        large_message_bytes_min: the size of the pieces in which large messages come.
        confirmation_bytes: -1 = the session can't be attached to another connection, and the
            broker confirms no packets.
        pre_acknowledge: the broker acknowledges messages when it delivers them.
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


@packet(31, "CreateSessionResponseMessage")
class SessionCreated(NamedTuple):
    """The session is open.

    Attributes:
        server_version: the highest that the broker speaks.
    """

    server_version: Int


# Each session has a channel of its own.


@packet(20, "ActiveMQExceptionMessage_V2")
class CoreException(NamedTuple):
    """The broker refused a request.

    Attributes:
        kind: a code of ActiveMQExceptionType.
        correlation_id: of the packet; -1 = it had none.
    """

    kind: Int
    message: NullableString
    correlation_id: Long = NO_CORRELATION


@packet(NULL_RESPONSE, "NullResponseMessage_V2")
class NullResponse(NamedTuple):
    """Done."""

    correlation_id: Long = NO_CORRELATION


@packet(67, "PacketImpl(SESS_START)")
class StartSession(NamedTuple):
    """Start the delivery to the consumers; without an answer."""


@packet(68, "PacketImpl(SESS_STOP)")
class StopSession(NamedTuple):
    """Stop the delivery to the consumers; `NullResponse`."""


@packet(69, "SessionCloseMessage")
class CloseSession(NamedTuple):
    """End the session and roll back; `NullResponse`."""


@packet(40, "SessionCreateConsumerMessage")
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


@packet(74, "SessionConsumerCloseMessage")
class CloseConsumer(NamedTuple):
    """Close a consumer; `NullResponse`."""

    consumer_id: Long


@packet(12, "DisconnectConsumerMessage")
class ConsumerDisconnected(NamedTuple):
    """The broker closed a consumer, for example because its queue was deleted."""

    consumer_id: Long


@packet(70, "SessionConsumerFlowCreditMessage")
class ConsumerCredits(NamedTuple):
    """Grant a consumer more bytes of packets, headers included.

    Attributes:
        credits: -1 = unlimited; 0 = stop and drop the remaining credits.
    """

    consumer_id: Long
    credits: Int


@packet(78, "SessionForceConsumerDelivery")
class ForceDelivery(NamedTuple):
    """Ask for an answer that follows the last message for a consumer.

    The sign is a message with the long property `_hornetq.forced.delivery.seq`.
    """

    consumer_id: Long
    sequence: Long


@packet(41, "SessionAcknowledgeMessage")
class Acknowledge(NamedTuple):
    """Acknowledge all messages of a consumer up to one; `NullResponse` if asked for."""

    consumer_id: Long
    message_id: Long
    requires_response: Boolean


@packet(81, "SessionIndividualAcknowledgeMessage")
class AcknowledgeOne(NamedTuple):
    """Acknowledge one message of a consumer; `NullResponse` if asked for."""

    consumer_id: Long
    message_id: Long
    requires_response: Boolean


@packet(43, "SessionCommitMessage_V2")
class Commit(NamedTuple):
    """Commit, and begin a new transaction; `NullResponse`, or `CoreException` and nothing done."""

    correlation_id: Long


@packet(44, "RollbackMessage")
class Rollback(NamedTuple):
    """Roll back, and begin a new transaction; `NullResponse`.

    Attributes:
        last_is_delivered: the last message of each consumer counts as delivered.
    """

    last_is_delivered: Boolean


@packet(45, "SessionQueueQueryMessage")
class AskQueue(NamedTuple):
    """Ask for a `QueueAnswer`."""

    queue: SimpleString


@packet(-14, "SessionQueueQueryResponseMessage_V3")
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


@packet(49, "SessionBindingQueryMessage")
class AskAddress(NamedTuple):
    """Ask for an `AddressAnswer`, or from version 135 on for an `AddressAnswerV5`."""

    address: SimpleString


@packet(-15, "SessionBindingQueryResponseMessage_V4")
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


@packet(-22, "SessionBindingQueryResponseMessage_V5")
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


@packet(-12, "CreateQueueMessage_V2")
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


@packet(35, "SessionDeleteQueueMessage")
class DeleteQueue(NamedTuple):
    """Delete a queue; `NullResponse`."""

    queue: SimpleString


@packet(79, "SessionRequestProducerCreditsMessage")
class RequestCredits(NamedTuple):
    """Ask whether an address has room; a `ProducerCredits` comes as soon as it has.

    The broker does not enforce it: a client that sends without asking overfills the address.
    """

    credits: Int
    address: SimpleString


@packet(80, "SessionProducerCreditsMessage")
class ProducerCredits(NamedTuple):
    """An address has room for this many bytes."""

    credits: Int
    address: SimpleString


@packet(82, "SessionProducerCreditsFailMessage")
class ProducerCreditsFail(NamedTuple):
    """An address is full, and sends to it fail (address-full-policy FAIL)."""

    credits: Int
    address: SimpleString


FORMATS = DECLARED
"""The format of each packet, including packets that carry messages."""

_KINDS = {found.code: kind for kind, found in FORMATS.items()}


def code_of(sent: CorePacket) -> int:
    """Return the code of a packet."""
    return FORMATS[type(sent)].code


def encode(sent: CorePacket) -> bytes:
    """Return a packet's fields."""
    fields = FORMATS[type(sent)].fields
    return b"".join(field.kind.write(value) for field, value in zip(fields, sent, strict=True))


def decode(code: int, fields: bytes) -> CorePacket | None:
    """Return the packet of a code; None = a code that is not one of these.

    Raises:
        CoreProtocolError: the fields can't be read.
    """
    kind = _KINDS.get(code)
    if kind is None:
        return None
    if code == RECEIVE_MESSAGE:
        return decode_received(fields)
    reader = CoreReader(fields)
    own = getattr(kind, "read_fields", None)
    if own is not None:
        found: CorePacket = own(reader)
        return found
    values = []
    for field in FORMATS[kind].fields:
        if field.is_optional and not reader.left:
            break
        values.append(field.kind.read(reader))
    return kind(*values)
