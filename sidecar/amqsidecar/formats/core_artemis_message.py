"""Reads the past of a dead letter from its Core bytes, makes the message of a redelivery; sans-IO.

A kept message has the bytes of the wire: `int end of body`, body, headers and properties. That
number is negative for a large message, whose body comes in pieces and is sent in pieces again.

The broker writes `_AMQ_ORIG_*` into every message that it moves to a dead-letter address, unless an
AMQP client made it. AMQP messages are not read over Core: the broker would convert them.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple

from amqsidecar.broker import IntakeQueue, Resend
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.artemis_properties import (
    ACTUAL_EXPIRIES,
    ANYCAST,
    BROKER_MADE,
    BROKER_MADE_PROPERTIES,
    DUPLICATE_ID,
    INTERCEPTION_ID_PREFIX,
    MULTICAST,
    ORIGIN_PREFIXES,
    PROPERTY_CLIENT_CAUSE,
    PROPERTY_OPENWIRE_ID,
    STOMP_LEFTOVERS,
    Origin,
    OriginReader,
    identity_of,
    make_origin,
    number_of,
)
from amqsidecar.formats.core.message import (
    PIECE_BYTES,
    PROPERTIES_HEAD,
    CoreLayout,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    CoreValue,
    core_entry,
    decode_headers,
    decode_message,
    encode_headers,
    encode_message,
    header_places,
    layout_of,
    read_core_value,
)
from amqsidecar.formats.core.primitives import CoreProtocolError, decode_simple_text, simple_string
from amqsidecar.formats.redelivery_mark import MARKS, check_on, life_of, marks_of, original_id
from amqsidecar.model.destination import Destination
from amqsidecar.model.provenance import Provenance, kept_cause
from amqsidecar.model.sidecar_names import (
    PROPERTY_CAUSE,
    PROPERTY_ORIGINAL_DUPLICATE_ID,
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_REDELIVERY_CHECK,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_DELAY,
    PROPERTY_REDELIVERY_ID,
    PROPERTY_SEAL,
)

ENCODING: Final = "core/1"

ROUTING_TYPE: Final = "_AMQ_ROUTING_TYPE"
DELIVERY_TIME: Final = "_AMQ_SCHED_DELIVERY"

_ORIGIN_NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
# Bound: longer names and origins are not remembered.
_NAME_BYTES_MAX: Final = 256
_ORIGIN_BYTES_MAX: Final = 4 * 1024
_NO_NUMBER_YET: Final = bytes(8)
# Where these stand after the begin of the fixed headers; see `header_places`.
_EXPIRATION_AT: Final = 2
_TIMESTAMP_AT: Final = 10
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
# Source: CoreMessage.BUFFER_HEADER_SPACE; the end of body counts from there.
_END_OF_EMPTY_BODY: Final = 13


class CoreResend(NamedTuple):
    """A message to send.

    Attributes:
        body: with the `int end of body` before it; of a large message without.
        headers: with the properties, as `encode_headers` writes them.
        is_large: its body is sent in pieces: it came so, or is too large for one packet.
        body_bytes: size that the broker notes in it; -1 = it has been noted, or it is not large.
    """

    body: bytes
    headers: bytes
    is_large: bool
    body_bytes: int


class KeptCore(NamedTuple):
    """A kept message taken apart.

    Attributes:
        is_large: its body came in pieces, and is sent in pieces.
    """

    message: CoreMessage
    is_large: bool


def keep(message: CoreMessage) -> bytes:
    """Return a message as the store keeps it."""
    return encode_message(message)


def keep_large(message: CoreMessage, body: bytes) -> bytes:
    """Return a large message as the store keeps it."""
    size = _INT.pack(-_END_OF_EMPTY_BODY - len(body))
    return b"".join((size, body, encode_headers(message)))


def keep_again(kept: KeptCore) -> bytes:
    """Return the kept form of the parts, as `take_apart` made them or edited."""
    return keep_large(kept.message, kept.message.body) if kept.is_large else keep(kept.message)


def take_apart(kept: bytes) -> KeptCore:
    """Take a kept message apart.

    Raises:
        UndecodableMessage: it can't be parsed.
    """
    try:
        end = _INT.unpack_from(kept)[0]
        if end >= 0:
            # Why not its constructor, here and below: that takes twice as long.
            return tuple.__new__(KeptCore, (decode_message(kept), False))
        body_end = _body_end(kept, -end)
        return KeptCore(decode_headers(kept, body_end, kept[_INT.size : body_end]), is_large=True)
    except (error, CoreProtocolError) as cause:
        raise UndecodableMessage(str(cause)) from None


def _body_end(kept: bytes, end: int) -> int:
    """Return where the body ends that ends there in a packet."""
    body_end = end - _END_OF_EMPTY_BODY + _INT.size
    if not _INT.size <= body_end <= len(kept):
        raise UndecodableMessage("the body is cut off")
    return body_end


class CoreProperties:
    """The properties of a message, each decoded on demand; of two with a name the later.

    Attributes:
        layout: where they stand.
    """

    def __init__(self, encoded: bytes) -> None:
        """Find them.

        Raises:
            UndecodableMessage: they can't be read.
        """
        self._encoded = encoded
        self.layout = _layout(encoded)
        self._by_key = self.layout.by_key

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    def value(self, key: bytes) -> CoreValue:
        """Return a value by its encoded name; None = there is none, or it is null."""
        entry = self._by_key.get(key)
        if entry is None:
            return None
        _, _, value, end = entry
        try:
            return read_core_value(self._encoded, value, end)
        except ValueError as cause:
            raise UndecodableMessage(str(cause)) from None

    def text(self, key: bytes) -> str | None:
        """Return a text by its encoded name; None = there is none, or it is something else."""
        value = self.value(key)
        return value if isinstance(value, str) else None

    def encoded(self, key: bytes) -> bytes | None:
        """Return type and value as they are encoded; None = there is none."""
        entry = self._by_key.get(key)
        return None if entry is None else self._encoded[entry[2] - 1 : entry[3]]


def key_of(name: str) -> bytes:
    """Return a property's name in its encoding."""
    return name.encode("utf-16-le", "surrogatepass")


def message_id_of(message: CoreMessage) -> str | None:
    """Return the JMS message id; None = it has none."""
    return None if message.user_id is None else _shown_id(message.user_id)


def _shown_id(user_id: bytes) -> str:
    # Why not by the class UUID: it takes five times as long.
    fours = user_id.hex("-", 2)
    return f"ID:{fours[:4]}{fours[5:29]}{fours[30:34]}{fours[35:]}"


def read_provenance(
    message: CoreMessage, queue: IntakeQueue, *, read_origin: OriginReader
) -> Provenance:
    """Return the provenance that a dead letter shows; never raises.

    Args:
        message: with or without its body.
        queue: where it was found.
        read_origin: turns the broker's text into a destination.

    Source: Artemis, Message.referenceOriginalMessage.
    """
    try:
        return _read_provenance(message, queue, read_origin)
    except UndecodableMessage as undecodable:
        return Provenance(
            expired=queue.expires,
            persistent=message.durable,
            problem=f"it can't be parsed: {undecodable}",
        )


def _read_provenance(
    message: CoreMessage, queue: IntakeQueue, read_origin: OriginReader
) -> Provenance:
    encoded = message.properties
    properties = CoreProperties(encoded)
    layout = properties.layout
    past = (_past_in if layout.is_shared else _past_in.__wrapped__)(layout)
    destination: Destination | None = None
    problem: str | None = "it does not show where it comes from"
    if past.is_broker_made:
        problem = BROKER_MADE
    elif past.origin is not None:
        address, queue_name, kind = past.origin
        origin = _origin(encoded[address], encoded[queue_name], encoded[kind])
        if origin is not None:
            destination, problem = read_origin(origin)
    message_id = message_id_of(message)
    redelivery_id, redelivery_count = None, 0
    if past.is_marked:
        marks = marks_of(
            properties.text(_KEY_ID), properties.value(_KEY_COUNT), properties.text(_KEY_CHECK)
        )
        redelivery_id, redelivery_count, _ = marks
        # Why: a person chose the messages that a selector names, by this very id.
        if not queue.selector:
            redelivery_id, redelivery_count = life_of(
                marks,
                (destination, queue.destination),
                identity_of(message_id, message.timestamp_ms),
                # Quirk (Artemis): the broker records the number of a dead message; a consumer that
                # gives it up by a copy can't know the number.
                is_given_up=_KEY_ORIGIN_NUMBER not in properties,
            )
    cause: str | None = None
    if past.has_cause:
        cause = kept_cause(properties.text(_KEY_CAUSE) or properties.text(_KEY_CLIENT_CAUSE))
    return Provenance(
        origin=destination,
        cause=cause,
        expired=queue.expires or past.has_expired,
        message_id=message_id,
        openwire_id=properties.text(_KEY_OPENWIRE_ID) if past.has_openwire_id else None,
        number=number_of(properties.value(_KEY_ORIGIN_NUMBER), message.timestamp_ms),
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=message.durable,
        expires_at_ms=max(0, message.expiration_ms) if queue.is_final else 0,
        problem=problem,
    )


class _Past(NamedTuple):
    """Facts about a death that the layout of the properties shows.

    Attributes:
        origin: places of the values of address, queue and routing type, with their types; empty =
            there is none. None = no origin at all.
        is_broker_made: the broker made the message itself.
        is_marked: a sidecar has sent it.
    """

    origin: tuple[slice, slice, slice] | None
    is_broker_made: bool
    has_expired: bool
    is_marked: bool
    has_cause: bool
    has_openwire_id: bool


@lru_cache(maxsize=1024)
def _past_in(layout: CoreLayout) -> _Past:
    by_key = layout.by_key
    is_broker_made = not _BROKER_MADE_KEYS.isdisjoint(by_key)
    origin = None
    for keys in _ORIGIN_KEYS:
        if keys[0] in by_key:
            places = [by_key.get(key, (b"", 0, 1, 0))[2:] for key in keys]
            size = sum(end - value + 1 for value, end in places)
            if size > _ORIGIN_BYTES_MAX and not is_broker_made:
                raise UndecodableMessage("the name of its origin is longer than any")
            address, queue, kind = (slice(value - 1, end) for value, end in places)
            origin = address, queue, kind
            break
    return _Past(
        origin,
        is_broker_made=is_broker_made,
        has_expired=not _ACTUAL_EXPIRY_KEYS.isdisjoint(by_key),
        is_marked=_KEY_ID in by_key,
        has_cause=not by_key.keys().isdisjoint((_KEY_CAUSE, _KEY_CLIENT_CAUSE)),
        has_openwire_id=_KEY_OPENWIRE_ID in by_key,
    )


@lru_cache(maxsize=4096)
def _origin(address: bytes, queue: bytes, routing_type: bytes) -> Origin | None:
    return make_origin(_plain(address), _plain(queue), _plain(routing_type))


def _plain(encoded: bytes) -> CoreValue:
    """Return a value of its type and bytes; None = there is none."""
    try:
        return read_core_value(encoded, 1, len(encoded)) if encoded else None
    except ValueError as cause:
        raise UndecodableMessage(str(cause)) from None


def make_resend(resend: Resend, address: str, now_ms: int) -> CoreResend:
    """Return the message to send: a redelivery without its death, or a final dead letter.

    Body, user id, type, durability, timestamp, priority and the producer's own properties keep the
    bytes of `resend.message`.

    Args:
        resend: the planned re-send.
        address: the address of `resend.destination`, or the fully qualified name of one queue.
        now_ms: the time, for the expiration of a final dead letter.

    Raises:
        UndecodableMessage: the message can't be taken apart.
    """
    kept = resend.message
    try:
        end = _INT.unpack_from(kept)[0]
        is_large = end < 0
        body_end = _body_end(kept, -end if is_large else end)
        user_id, fixed, properties = header_places(kept, body_end)
    except (error, CoreProtocolError) as cause:
        raise UndecodableMessage(str(cause)) from None
    timestamp = fixed + _TIMESTAMP_AT
    is_expiring = resend.is_final and resend.expiration_ms > 0
    expires_at_ms = now_ms + resend.expiration_ms if is_expiring else 0
    shown_id = _shown_id(kept[user_id + 1 : fixed]) if kept[user_id] else None
    headers = (
        _NO_NUMBER_YET,
        _address_field(address),
        kept[user_id : fixed + _EXPIRATION_AT],
        _LONG.pack(expires_at_ms),
        kept[timestamp:properties],
        *_entries(kept[properties:], resend, shown_id, _LONG.unpack_from(kept, timestamp)[0]),
    )
    encoded = b"".join(headers)
    # Why: messages of other wires come in one packet however large they are.
    grows_large = not is_large and body_end + len(encoded) > PIECE_BYTES
    is_large |= grows_large
    body = kept[_INT.size if is_large else 0 : body_end]
    body_bytes = len(body) if grows_large else -1
    # Why not its constructor: that takes twice as long.
    return tuple.__new__(CoreResend, (body, encoded, is_large, body_bytes))


@lru_cache(maxsize=4096)
def _address_field(address: str) -> bytes:
    return b"\x01" + simple_string(address)


def _entries(
    encoded: bytes, resend: Resend, message_id: str | None, timestamp_ms: int
) -> list[bytes]:
    """Return the properties of a re-send in pieces.

    Args:
        encoded: properties of the dead letter.
        resend: the planned re-send.
        message_id: the id that JMS shows; None = it has none.
        timestamp_ms: when the message was made.
    """
    layout = _layout(encoded)
    dropped = _DROPPED_OF_FINAL if resend.is_final else _DROPPED
    if _KEY_DUPLICATE in layout.by_key:
        dropped |= _dropped_beside_duplicate_id(CoreProperties(encoded))
    find_cuts = _cuts if layout.is_shared else _cuts.__wrapped__
    entry_count, cuts = find_cuts(layout, dropped)
    count, delay_ms = resend.redelivery_count, resend.redelivery_delay_ms
    check = check_on(resend, identity_of(message_id, timestamp_ms))
    redelivery_id = _text(resend.redelivery_id)
    shown_id = None if message_id is None else _text(message_id)
    if _KEY_ORIGINAL_ID in layout.by_key:
        marks = CoreProperties(encoded)
        is_return = marks.encoded(_KEY_ID) == redelivery_id
        shown_id = original_id(marks.encoded(_KEY_ORIGINAL_ID), shown_id, is_return=is_return)
    entry_count += _ENTRIES_WRITTEN + (shown_id is not None) + (resend.deliver_at_ms != 0)
    pieces = [PROPERTIES_HEAD.pack(True, entry_count)]
    for before, start, end in cuts:
        pieces += (before, encoded[start:end])
    pieces += (
        _BEGIN_OF_QUEUE if resend.destination.is_queue else _BEGIN_OF_TOPIC,
        redelivery_id,
        _COUNT_AND_DELAY.pack(_ENTRY_COUNT, count, _ENTRY_DELAY, delay_ms),
        _ENTRY_CHECK,
        _text(check),
    )
    if shown_id is not None:
        pieces += (_ENTRY_ORIGINAL_ID, shown_id)
    if resend.deliver_at_ms:
        at = CoreProperty(CorePropertyType.LONG, resend.deliver_at_ms)
        pieces.append(core_entry(DELIVERY_TIME, at))
    return pieces


@lru_cache(maxsize=1024)
def _cuts(
    layout: CoreLayout, dropped: frozenset[int]
) -> tuple[int, Sequence[tuple[bytes, int, int]]]:
    """Return how many properties a re-send keeps, and the pieces: bytes before it, start, end."""
    count, cuts = 0, list[tuple[bytes, int, int]]()
    for key, start, value, end in layout.entries:
        fate = _fate(key) if len(key) <= _NAME_BYTES_MAX else _fate.__wrapped__(key)
        if fate in dropped:
            continue
        count += 1
        if fate == _DUPLICATE:
            cuts.append((_ENTRY_ORIGINAL_DUPLICATE, value - 1, end))
        elif cuts and cuts[-1][2] == start:
            cuts[-1] = (*cuts[-1][:2], end)
        else:
            cuts.append((b"", start, end))
    return count, cuts


def _layout(encoded: bytes) -> CoreLayout:
    try:
        return layout_of(encoded)
    except CoreProtocolError as cause:
        raise UndecodableMessage(str(cause)) from None


def _dropped_beside_duplicate_id(properties: CoreProperties) -> frozenset[int]:
    if (properties.text(_KEY_DUPLICATE) or "").startswith(INTERCEPTION_ID_PREFIX):
        return _DROPPED_OF_INTERCEPTED
    # Why: an id kept beside one belongs to the message from which this one was copied.
    return _DROPPED_OF_COPY


_TEXT_CODE: Final = bytes((CorePropertyType.STRING,))


def _text(value: str) -> bytes:
    return _TEXT_CODE + simple_string(value)


_KEY_ID: Final = key_of(PROPERTY_REDELIVERY_ID)
_KEY_COUNT: Final = key_of(PROPERTY_REDELIVERY_COUNT)
_KEY_CHECK: Final = key_of(PROPERTY_REDELIVERY_CHECK)
_KEY_ORIGINAL_ID: Final = key_of(PROPERTY_ORIGINAL_MESSAGE_ID)
_KEY_CAUSE: Final = key_of(PROPERTY_CAUSE)
_KEY_CLIENT_CAUSE: Final = key_of(PROPERTY_CLIENT_CAUSE)
_KEY_OPENWIRE_ID: Final = key_of(PROPERTY_OPENWIRE_ID)
_KEY_DUPLICATE: Final = key_of(DUPLICATE_ID)
_KEY_ORIGIN_NUMBER: Final = key_of(_ORIGIN_NUMBER)
_BROKER_MADE_KEYS: Final = frozenset(map(key_of, BROKER_MADE_PROPERTIES))
_ACTUAL_EXPIRY_KEYS: Final = frozenset(map(key_of, ACTUAL_EXPIRIES))
_ORIGIN_KEYS: Final = tuple(
    (key_of(f"{prefix}ADDRESS"), key_of(f"{prefix}QUEUE"), key_of(f"{prefix}ROUTING_TYPE"))
    for prefix in ORIGIN_PREFIXES
)
_ENTRY_COUNT: Final = simple_string(PROPERTY_REDELIVERY_COUNT) + bytes((CorePropertyType.INT,))
_ENTRY_DELAY: Final = simple_string(PROPERTY_REDELIVERY_DELAY) + bytes((CorePropertyType.LONG,))
_COUNT_AND_DELAY: Final = Struct(f">{len(_ENTRY_COUNT)}si{len(_ENTRY_DELAY)}sq")
_ENTRY_CHECK: Final = simple_string(PROPERTY_REDELIVERY_CHECK)
_ENTRY_ORIGINAL_ID: Final = simple_string(PROPERTY_ORIGINAL_MESSAGE_ID)
_ENTRY_ORIGINAL_DUPLICATE: Final = simple_string(PROPERTY_ORIGINAL_DUPLICATE_ID)
_BEGIN_OF_QUEUE, _BEGIN_OF_TOPIC = (
    core_entry(ROUTING_TYPE, CoreProperty(CorePropertyType.BYTE, one))
    + simple_string(PROPERTY_REDELIVERY_ID)
    for one in (ANYCAST, MULTICAST)
)

_ENTRIES_WRITTEN: Final = 5  # The routing type and the four marks.

_KEEP, _MARK, _DEATH, _DUPLICATE, _DUPLICATE_KEPT, _STOMP = range(6)
_DROPPED_OF_FINAL: Final = frozenset((_MARK,))
_DROPPED: Final = _DROPPED_OF_FINAL | {_DEATH}
_DROPPED_OF_INTERCEPTED: Final = frozenset((_DUPLICATE, _STOMP))
_DROPPED_OF_COPY: Final = frozenset((_DUPLICATE_KEPT,))
_REWRITTEN: Final = MARKS | {
    *(PROPERTY_ORIGINAL_MESSAGE_ID, PROPERTY_SEAL, ROUTING_TYPE, DELIVERY_TIME)
}


@lru_cache(maxsize=4096)
def _fate(key: bytes) -> int:
    """Return the change of a property, by its encoded name."""
    try:
        name = decode_simple_text(key)
    except CoreProtocolError:
        return _KEEP
    if name in _REWRITTEN:
        return _MARK
    is_death = name.startswith((*ORIGIN_PREFIXES, "_AMQ_ROUTE_TO")) or name in ACTUAL_EXPIRIES
    if is_death or name in (PROPERTY_CAUSE, PROPERTY_CLIENT_CAUSE):
        return _DEATH
    if name == DUPLICATE_ID:
        return _DUPLICATE
    if name in STOMP_LEFTOVERS:
        return _STOMP
    return _DUPLICATE_KEPT if name == PROPERTY_ORIGINAL_DUPLICATE_ID else _KEEP
