"""Reads a marshalled OpenWire message's past by offsets, and never its body.

Source: ActiveMQ Classic, org.apache.activemq.openwire.v12.MessageMarshaller.looseMarshal.
"""

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, error

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.classic_death import has_expired, tells_store_duplicate
from amqsidecar.formats.openwire_properties import (
    PropertyValue,
    decode_text,
    encode_text,
    read_properties,
)
from amqsidecar.formats.redelivery_mark import ENCODED_MARK_NAMES, life_of, marks_of
from amqsidecar.model.destination import Destination
from amqsidecar.model.provenance import Provenance, kept_cause
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST

CAUSE = b"dlqDeliveryFailureCause"
ORIGINAL_EXPIRATION = b"originalExpiration"
ORIGINAL_DELIVERY_MODE = b"originalDeliveryMode"
CYCLE = b"amqsidecarCycle"
_RULES_DIGEST = PROPERTY_RULES_DIGEST.encode()
_PROVENANCE_NAMES = frozenset(
    (CAUSE, ORIGINAL_EXPIRATION, ORIGINAL_DELIVERY_MODE, *ENCODED_MARK_NAMES)
)

_SHORT = Struct(">H")
_INT = Struct(">I")
_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")
_short = _SHORT.unpack_from
_int = _INT.unpack_from
_long = _LONG.unpack_from

_MESSAGE_ID, _CONNECTION_ID, _PRODUCER_ID, _BROKER_ID = 110, 120, 123, 124
_LOCAL_TRANSACTION, _XA_TRANSACTION, _CONSUMER_ID = 111, 112, 122
_AFTER_TEXT = {
    **dict.fromkeys((100, 101, 102, 103, _CONNECTION_ID, _BROKER_ID), 0),
    **dict.fromkeys((_PRODUCER_ID, _CONSUMER_ID), 16),
}
"""Bytes behind the text that a destination or an id begins with, by its type."""


@dataclass(init=False, slots=True)
class MessageParts:
    """Where the fields of one marshalled message are.

    Attributes:
        data: type byte and fields.
        body: a view of it, since a copy of a large one would take as much memory again.
        original_destination, message_id, text_view, properties: the fields' bytes; null included.
    """

    data: bytes
    original_destination: bytes
    message_id: bytes
    text_view: bytes
    producer_at: int
    expiration_at: int
    group: bytes
    persistent: int
    priority: bytes
    timestamp_ms: int
    body: memoryview
    properties: bytes | None
    structure: bytes
    compressed: int
    user: bytes
    tail: bytes


def map_content(data: bytes) -> bytes | None:
    """Return the marshalled map that is the body of a message; None = it has no body.

    Raises:
        UndecodableMessage: it can't be read to its end.
    """
    body = take_apart(data).body
    at = _skip_text(body, 0)
    return bytes(body[at + 5 :]) if body[at] else None


def group_field(parts: MessageParts) -> str | None:
    """Return the message group; None = it has none."""
    field = parts.group
    return decode_text(field[3 : _skip_text(field, 0)]) if field[0] else None


def take_apart(data: bytes) -> MessageParts:
    """Return the fields of a marshalled message.

    Raises:
        UndecodableMessage: it can't be read to its end.
    """
    try:
        parts = _take_apart(data)
    except (error, IndexError) as cause:
        raise UndecodableMessage("the message ends in the middle of a field") from cause
    return parts


def _take_apart(data: bytes) -> MessageParts:
    parts, start = _take_head_apart(data)
    at = _skip_nested(data, start)
    parts.structure = data[start:at]
    at = _skip_nested(data, at)
    parts.compressed = data[at]
    start = _skip_array(data, at + 5) + 8
    at = _skip_text(data, start)
    parts.user = data[start:at]
    at = _skip_array(data, at + 2) + 17
    if at > len(data):
        raise UndecodableMessage("the message ends in the middle of a field")
    parts.tail = data[at:]
    return parts


def _take_head_apart(data: bytes) -> tuple[MessageParts, int]:
    """Return the fields before the data structure, and where that begins."""
    if not 23 <= data[0] <= 29:
        raise UndecodableMessage(f"type {data[0]} is no message")
    parts = MessageParts()
    parts.data = data
    # Producer id, destination, transaction id.
    start = _skip_nested(data, _skip_nested(data, _skip_nested(data, 6)))
    at = _skip_nested(data, start)
    parts.original_destination = data[start:at]
    start = at
    if not data[at] or data[at + 1] != _MESSAGE_ID:
        raise UndecodableMessage("the message has no message id")
    at = _skip_text(data, at + 2)
    parts.text_view = data[start + 2 : at]
    parts.producer_at = at
    at = _skip_nested(data, at) + 16
    parts.message_id = data[start:at]
    start = _skip_nested(data, at)
    at = _skip_text(data, start) + 4
    at = _skip_text(data, at)
    parts.group = data[start:at]
    parts.persistent = data[at]
    parts.expiration_at = at + 1
    start = at + 9
    at = _skip_nested(data, start + 1)
    parts.priority = data[start:at]
    parts.timestamp_ms = _long(data, at)[0]
    start = at + 8
    at = _skip_bytes(data, _skip_text(data, start))
    parts.body = memoryview(data)[start:at]
    start = at
    at = _skip_bytes(data, start)
    parts.properties = data[start + 5 : at] if data[start] else None
    return parts, at


def _skip_text(data: bytes | memoryview, at: int) -> int:
    return at + 3 + int(_short(data, at + 1)[0]) if data[at] else at + 1


def _skip_bytes(data: bytes, at: int) -> int:
    return at + 5 + int(_int(data, at + 1)[0]) if data[at] else at + 1


def _skip_nested(data: bytes, at: int) -> int:
    """Return where a nested id or destination ends."""
    if not data[at]:
        return at + 1
    code = data[at + 1]
    if code in _AFTER_TEXT:
        text_bytes = 3 + _short(data, at + 3)[0] if data[at + 2] else 1
        return at + 2 + int(text_bytes) + _AFTER_TEXT[code]
    if code == _LOCAL_TRANSACTION:
        return _skip_text(data, at + 12) if data[at + 10] else at + 11
    if code == _XA_TRANSACTION:
        return _skip_bytes(data, _skip_bytes(data, at + 6))
    if code == codec.DESTINATION_INFO:
        # Connection id, destination, operation and time-out, path of brokers.
        return _skip_array(data, _skip_nested(data, _skip_nested(data, at + 7)) + 9)
    raise UndecodableMessage(f"the message has a nested structure of the unknown type {code}")


def _skip_array(data: bytes, at: int) -> int:
    if not data[at]:
        return at + 1
    count = _short(data, at + 1)[0]
    at += 3
    for _ in range(count):
        at = _skip_nested(data, at)
    return at


def message_id_text(parts: MessageParts) -> str:
    """Return the id as a JMS client prints it.

    Source: ActiveMQ Classic, MessageId.toString.
    """
    if parts.text_view[0]:
        text = decode_text(parts.text_view[3:])
        return text if text.startswith("ID:") else f"ID:{text}"
    data, at = parts.data, parts.producer_at
    if not data[at] or not data[at + 2]:
        raise UndecodableMessage("the message id has no producer")
    end = _skip_text(data, at + 2)
    value, session, sequence = (
        *_TWO_LONGS.unpack_from(data, end),
        _long(data, end + 16)[0],
    )
    return f"{decode_text(data[at + 5 : end])}:{session}:{value}:{sequence}"


_REMEMBERED_ORIGIN_BYTES = 2_048


@lru_cache(maxsize=4096)
def _origin(field: bytes) -> Destination | str:
    """Return the origin of an original-destination field, or why there is none."""
    try:
        origin = codec.read_destination(field)
    except UndecodableMessage as cause:
        return str(cause)
    if origin is None:
        return "it has no original destination: it was put here, it did not die here"
    if {",", "*", ">"} & set(origin.name):
        # Why the wildcards: a send to `A.>` reaches every queue below A.
        return "it was sent to several destinations at once and does not show on which it died"
    if not origin.name:
        return "its original destination has no name"
    if encode_text(origin.name) != field[5:]:
        return "the name of its original destination can't be read letter by letter"
    return origin


def identity_of(parts: MessageParts) -> bytes:
    """Return the unique id of a message: the real message id, without the broker's own number."""
    return parts.message_id[2 + len(parts.text_view) : -8]


def read_dead_letter(
    data: bytes, source: Destination | None, now_ms: int
) -> tuple[Provenance, bytes | None]:
    """Return the provenance of a marshalled dead letter, and its message id field.

    Never raises. If the id can't be found it is None, and the message can't be acked.

    Args:
        source: the queue where it was found; None = irrelevant.
        now_ms: without a cause, a message whose expiration is before this has expired.
    """
    try:
        parts = take_apart(data)
        provenance = _provenance(parts, parts.original_destination, source, now_ms)
    except (UndecodableMessage, error, IndexError) as cause:
        return Provenance(problem=f"it can't be parsed: {cause}"), _message_id(data)
    return provenance, parts.message_id


def _provenance(
    parts: MessageParts, died_in: bytes, source: Destination | None, now_ms: int
) -> Provenance:
    found = read_properties(parts.properties, _PROVENANCE_NAMES)
    message_id = message_id_text(parts)
    is_short = len(died_in) <= _REMEMBERED_ORIGIN_BYTES
    origin = _origin(died_in) if is_short else _origin.__wrapped__(died_in)
    cause_text = found.get(CAUSE)
    cause_text = cause_text if isinstance(cause_text, str) else None
    original_ms = number_of(found.get(ORIGINAL_EXPIRATION))
    place = None if isinstance(origin, str) else origin
    redelivery_id, redelivery_count = life_of(
        marks_of(*map(found.get, ENCODED_MARK_NAMES)),
        (place, source),
        identity_of(parts),
        is_given_up=False,
    )
    return Provenance(
        origin=place,
        cause=kept_cause(cause_text),
        expired=has_expired(cause_text, parts.timestamp_ms, original_ms, now_ms),
        is_store_duplicate=tells_store_duplicate(cause_text),
        message_id=message_id,
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=bool(parts.persistent) and found.get(ORIGINAL_DELIVERY_MODE) != "NON_PERSISTENT",
        expires_at_ms=max(0, _long(parts.data, parts.expiration_at)[0]),
        problem=origin if isinstance(origin, str) else None,
    )


def _message_id(data: bytes) -> bytes | None:
    try:
        start = _skip_nested(data, 6)
        for _ in range(3):
            start = _skip_nested(data, start)
        if not data[start] or data[start + 1] != _MESSAGE_ID:
            return None
        end = _skip_nested(data, _skip_text(data, start + 2)) + 16
    except (UndecodableMessage, error, IndexError):
        return None
    return data[start:end] if end <= len(data) else None


def number_of(value: PropertyValue) -> int:
    """Return a property that should be a number; 0 = it is none."""
    return value if isinstance(value, int) else 0


def read_cycle(data: bytes) -> int | None:
    """Return the cycle number of a token; None = not a token.

    One that was sent over STOMP has it as a string.
    """
    try:
        cycle = read_properties(take_apart(data).properties, (CYCLE,)).get(CYCLE)
    except UndecodableMessage:
        return None
    if isinstance(cycle, str) and cycle.isascii() and cycle.isdigit() and len(cycle) < 20:
        return int(cycle)
    return cycle if isinstance(cycle, int) else None


def read_rules_digest(data: bytes) -> str:
    """Return the digest of rules that a token shows; "" = none."""
    try:
        found = read_properties(take_apart(data).properties, (_RULES_DIGEST,)).get(_RULES_DIGEST)
    except UndecodableMessage:
        return ""
    return found if isinstance(found, str) else ""


def read_destination_info(data: bytes) -> tuple[Destination, bool] | None:
    """Return the destination of an advisory, and whether it was removed; None = it names none.

    Source: ActiveMQ Classic, DestinationInfoMarshaller; the operation is 0 = added, 1 = removed.
    """
    try:
        structure = take_apart(data).structure
        if structure[:1] == codec.NULL or structure[1] != codec.DESTINATION_INFO:
            return None
        start = _skip_nested(structure, 7)
        end = _skip_nested(structure, start)
        destination = codec.read_destination(structure[start:end])
        return None if destination is None else (destination, structure[end] == 1)
    except (UndecodableMessage, error, IndexError):
        return None
