"""Reads the past of a dead letter from its AMQP bytes, makes the bytes of a redelivery; sans-IO.

Where Artemis keeps the origin depends on who made the message: annotations `x-opt-ORIG-*` for AMQP
producers, application properties `_AMQ_ORIG_*` for all others. Either can be written by a producer
where the broker does not overwrite it (`JMS_AMQP_MA_x-opt-ORIG-ADDRESS` of a Core or STOMP producer
becomes such an annotation), so when both are there they have to agree (`spec-artemis.md` 5).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from amqsidecar.broker import IntakeQueue, Resend
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.artemis_properties import (
    ACTUAL_EXPIRIES,
    ANYCAST,
    BROKER_MADE,
    BROKER_MADE_PROPERTIES,
    COMPRESSED,
    DUPLICATE_ID,
    INTERCEPTION_ID_PREFIX,
    MULTICAST,
    ORIGIN_PREFIXES,
    PROPERTY_CLIENT_CAUSE,
    PROPERTY_OPENWIRE_ID,
    STOMP_LEFTOVERS,
    TWO_ORIGINS,
    Origin,
    OriginReader,
    identity_of,
    make_origin,
    number_of,
)
from amqsidecar.formats.redelivery_mark import MARKS, check_on, life_of, marks_of, original_id
from amqsidecar.model.destination import Destination, DestinationKind
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

ENCODING: Final = "amqp/1.0"
"""Of the messages that Artemis hands over by AMQP."""

TTL_MS_MAX: Final = 2**32 - 1

CORE_NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
"""Property with the number that a message had in the broker when it died; AMQP's have none."""

# Bound: longer sections are not cached, so that senders can't fill our memory with them.
_REMEMBERED_SECTION_BYTES: Final = 8 * 1024
_REMEMBERED_HEADER_BYTES: Final = 64
# Why so short: annotations of Core and OpenWire clients are short and always the same.
_REMEMBERED_ANNOTATIONS_BYTES: Final = 128
_ORIGIN_BYTES_MAX: Final = 2 * 1024
_TEXTS = frozenset((0xA1, 0xB1, 0xA3, 0xB3))
# Quirk (Artemis 2.44): the AMQP view of a Core message has its body decompressed and keeps the
# property. A Core client that gets it back would decompress what is not compressed, and fail.
_COMPRESSED = COMPRESSED.encode()
_CORE_NUMBER = CORE_NUMBER.encode()
_CORE_ENCODINGS = frozenset((COMPRESSED, "_AMQ_LARGE_SIZE"))
_BYTES_MESSAGE = amqp.byte(3)
_CREATED: Final = 9
_TIMESTAMP: Final = 0x83


@lru_cache(maxsize=4096)
def _name(key: bytes) -> str:
    """Return the text of an encoded key; "" = not a text."""
    value = amqp.scalar(key)
    return value if isinstance(value, str) else ""


def _pairs(section: bytes | None) -> Mapping[str, bytes]:
    """Return a map section as key text to encoded value."""
    if section is None:
        return {}
    items = amqp.pairs(section)
    name = _name if len(section) <= _REMEMBERED_SECTION_BYTES else _name.__wrapped__
    return dict(zip(map(name, items[::2]), items[1::2], strict=True))


def _annotations_of(section: bytes | None) -> Mapping[str, bytes]:
    is_short = section is None or len(section) <= _REMEMBERED_ANNOTATIONS_BYTES
    return _remembered_pairs(section) if is_short else _pairs(section)


_remembered_pairs = lru_cache(maxsize=256)(_pairs)


def is_cut(message: bytes) -> bool:
    """Return whether the broker's conversion to AMQP has cut the body; never raises.

    Quirk (Artemis 2.44): of a Core BytesMessage that its client has compressed, the AMQP view has
    the decompressed bytes, but only as many as the compressed ones are.

    Source: Artemis, CoreBytesMessageWrapper.getBodyLength.
    """
    if _COMPRESSED not in message:
        return False
    try:
        sections = amqp.split(message)
        return (
            _COMPRESSED.decode() in _pairs(sections.get(amqp.APPLICATION_PROPERTIES))
            and _annotations_of(sections.get(amqp.MESSAGE_ANNOTATIONS)).get("x-opt-jms-msg-type")
            == _BYTES_MESSAGE
        )
    except UndecodableMessage:
        return False


def core_number(message: bytes) -> int | None:
    """Return the `CORE_NUMBER` of a message that the broker has converted; never raises."""
    if _CORE_NUMBER not in message:
        return None
    try:
        properties = _pairs(amqp.split(message).get(amqp.APPLICATION_PROPERTIES))
        number = amqp.plain_value(properties.get(CORE_NUMBER))
    except UndecodableMessage:
        return None
    return number if isinstance(number, int) else None


def read_provenance(message: bytes, queue: IntakeQueue, *, read_origin: OriginReader) -> Provenance:
    """Return the provenance that a dead letter shows; never raises.

    Args:
        message: encoded AMQP message.
        queue: where it was found.
        read_origin: turns the broker's text into a destination.

    Source: Artemis, Message.referenceOriginalMessage; AMQPMessageSupport.toAnnotationName.
    """
    try:
        return _read_provenance(message, queue, read_origin)
    except UndecodableMessage as undecodable:
        return Provenance(expired=queue.expires, problem=f"it can't be parsed: {undecodable}")


def _read_provenance(message: bytes, queue: IntakeQueue, read_origin: OriginReader) -> Provenance:
    sections = amqp.split(message)
    annotations = _annotations_of(sections.get(amqp.MESSAGE_ANNOTATIONS))
    properties = _pairs(sections.get(amqp.APPLICATION_PROPERTIES))
    annotated, origin = _origins(annotations, properties)
    destination: Destination | None = None
    problem: str | None = "it does not show where it comes from"
    if annotated is not None and origin is not None and annotated[:2] != origin[:2]:
        problem = TWO_ORIGINS.format(_words(annotated), _words(origin))
        origin = None
    else:
        origin = annotated or origin
    if any(name in properties for name in BROKER_MADE_PROPERTIES):
        problem = BROKER_MADE
    elif origin is not None:
        destination, problem = read_origin(origin)
    expired = queue.expires or "x-opt-ACTUAL-EXPIRY" in annotations
    if not expired and properties:
        expired = any(name in properties for name in ACTUAL_EXPIRIES)
    redelivery_id, redelivery_count = None, 0
    section = sections.get(amqp.PROPERTIES)
    message_id = _message_id(section)
    if PROPERTY_REDELIVERY_ID in properties:
        marks = marks_of(
            _text(properties[PROPERTY_REDELIVERY_ID]),
            amqp.plain_value(properties.get(PROPERTY_REDELIVERY_COUNT)),
            _text(properties.get(PROPERTY_REDELIVERY_CHECK)),
        )
        redelivery_id, redelivery_count, _ = marks
        # Why: a person chose the messages that a selector names, by this very id.
        if not queue.selector:
            redelivery_id, redelivery_count = life_of(
                marks,
                (destination, queue.destination),
                _identity(message_id, [] if section is None else amqp.elements(section)),
                # Quirk (Artemis): the broker records the number of a dead message; a consumer that
                # gives it up by a copy can't know the number.
                is_given_up="x-opt-ORIG-MESSAGE-ID" not in annotations
                and CORE_NUMBER not in properties,
            )
    return Provenance(
        origin=destination,
        cause=kept_cause(
            _text(properties.get(PROPERTY_CAUSE)) or _text(properties.get(PROPERTY_CLIENT_CAUSE))
        ),
        expired=expired,
        message_id=message_id,
        openwire_id=_text(properties.get(PROPERTY_OPENWIRE_ID)),
        number=_number(annotations, properties, section),
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=_is_durable(sections.get(amqp.HEADER)),
        # Why only there: only final queues need it, and it costs time for each message.
        expires_at_ms=_expires_at_ms(section) if queue.is_final else 0,
        problem=problem,
    )


def _number(
    annotations: Mapping[str, bytes], properties: Mapping[str, bytes], section: bytes | None
) -> str:
    """Return `Provenance.number`."""
    found = annotations.get("x-opt-ORIG-MESSAGE-ID") or properties.get(CORE_NUMBER)
    if found is None:
        return ""
    items = [] if section is None else amqp.elements(section)
    created = amqp.scalar(items[_CREATED]) if len(items) > _CREATED else None
    return number_of(amqp.scalar(found), created if isinstance(created, int) else 0)


def _origins(
    annotations: Mapping[str, bytes], properties: Mapping[str, bytes]
) -> tuple[Origin | None, Origin | None]:
    """Return the origin that the annotations name, and the one that the properties name."""
    annotated = found = None
    address = annotations.get("x-opt-ORIG-ADDRESS")
    if address is not None:
        annotated = _parse_origin(
            address,
            annotations.get("x-opt-ORIG-QUEUE", amqp.NULL),
            annotations.get("x-opt-ORIG-ROUTING-TYPE", amqp.NULL),
        )
    for prefix in ORIGIN_PREFIXES:
        address = properties.get(prefix + "ADDRESS")
        if address is not None:
            found = _parse_origin(
                address,
                properties.get(prefix + "QUEUE", amqp.NULL),
                properties.get(prefix + "ROUTING_TYPE", amqp.NULL),
            )
            break
    return annotated, found


def _words(origin: Origin) -> str:
    return origin.address if origin.queue is None else f"{origin.address}::{origin.queue}"


def _parse_origin(address: bytes, queue: bytes, routing_type: bytes) -> Origin | None:
    if len(address) + len(queue) + len(routing_type) > _ORIGIN_BYTES_MAX:
        raise UndecodableMessage("the name of its origin is longer than any")
    return _remembered_origin(address, queue, routing_type)


@lru_cache(maxsize=4096)
def _remembered_origin(address: bytes, queue: bytes, routing_type: bytes) -> Origin | None:
    return make_origin(_text(address), _text(queue), amqp.scalar(routing_type))


def _text(element: bytes | None) -> str | None:
    if element is None:
        return None
    if element[0] == 0xA1:
        try:
            return element[2:].decode()
        except UnicodeDecodeError:
            raise UndecodableMessage("a text is not UTF-8") from None
    value = amqp.scalar(element) if element[0] in _TEXTS else None
    return value if isinstance(value, str) else None


def _expires_at_ms(section: bytes | None) -> int:
    """Return the absolute expiry time of the properties; 0 = there is none."""
    items = [] if section is None else amqp.elements(section)
    at_ms = amqp.plain_value(items[8]) if len(items) > 8 else None
    return max(0, at_ms) if isinstance(at_ms, int) else 0


def _is_durable(header: bytes | None) -> bool:
    if header is None:
        return False
    is_short = len(header) <= _REMEMBERED_HEADER_BYTES
    return _reads_durable(header) if is_short else _reads_durable.__wrapped__(header)


@lru_cache(maxsize=256)
def _reads_durable(header: bytes) -> bool:
    return amqp.scalar(amqp.first_element(header)) is True


def _message_id(properties: bytes | None) -> str | None:
    if properties is None:
        return None
    element = amqp.first_element(properties)
    if element[0] == 0xA1:
        return _text(element)
    return amqp.shown_id(amqp.scalar(element))


def _identity(message_id: str | None, items: list[bytes]) -> bytes:
    """Return the part that survives death, and differs on another client's send.

    Args:
        message_id: as text.
        items: elements of the properties section.
    """
    created = items[_CREATED] if len(items) > _CREATED else amqp.NULL
    created_ms = amqp.scalar(created) if created[0] == _TIMESTAMP else None
    return identity_of(message_id, created_ms if isinstance(created_ms, int) else 0)


def encode_resend(resend: Resend, now_ms: int) -> bytes:
    """Return the message to send: a redelivery without its death, or a final dead letter.

    Body, footers, delivery annotations, message id, group, correlation and the producer's own
    properties keep the bytes of `resend.message`.

    Args:
        resend: the planned re-send.
        now_ms: the time, for the expiration of a final dead letter.

    Raises:
        UndecodableMessage: the message can't be taken apart.
    """
    sections = amqp.split(resend.message)
    address = resend.destination.address
    expires_in_ms = resend.expiration_ms if resend.is_final and resend.expiration_ms > 0 else 0
    if amqp.HEADER in sections:
        header = sections[amqp.HEADER]
        edit = _header if len(header) <= _REMEMBERED_HEADER_BYTES else _header.__wrapped__
        sections[amqp.HEADER] = edit(header, expires_in_ms)
    elif expires_in_ms:
        sections[amqp.HEADER] = _header(amqp.make_list(amqp.HEADER, []), expires_in_ms)
    sections[amqp.MESSAGE_ANNOTATIONS] = _annotations(
        sections.get(amqp.MESSAGE_ANNOTATIONS, b""), resend
    )
    properties = sections.get(amqp.PROPERTIES)
    message_id = _message_id(properties)
    items = [] if properties is None else amqp.elements(properties)
    identity = _identity(message_id, items)
    if properties is not None or expires_in_ms:
        expires_at_ms = now_ms + expires_in_ms if expires_in_ms else 0
        sections[amqp.PROPERTIES] = _properties(items, address, expires_at_ms)
    application = sections.get(amqp.APPLICATION_PROPERTIES)
    pairs = [] if application is None else amqp.pairs(application)
    is_short = application is None or len(application) <= _REMEMBERED_SECTION_BYTES
    fates = list(map(_property_fate if is_short else _property_fate.__wrapped__, pairs[::2]))
    sections[amqp.APPLICATION_PROPERTIES] = amqp.make_map(
        amqp.APPLICATION_PROPERTIES,
        _application_properties(pairs, fates, resend, message_id, identity),
    )
    return amqp.join(sections)


@lru_cache(maxsize=256)
def _header(header: bytes, expires_in_ms: int) -> bytes:
    # Why: durable and priority stay. A delivery count of ours would be shown once only, and makes
    # clients with a limit of their own reject at once; Artemis has cleared the time to live.
    items = amqp.elements(header)[:2]
    if 0 < expires_in_ms <= TTL_MS_MAX:
        items += [amqp.NULL] * (2 - len(items))
        items.append(amqp.unsigned(expires_in_ms))
    return amqp.make_list(amqp.HEADER, items)


def _properties(items: list[bytes], address: str, expires_at_ms: int) -> bytes:
    items += [amqp.NULL] * (3 - len(items))
    items[2] = _encoded_name(address)
    if expires_at_ms:
        items += [amqp.NULL] * (9 - len(items))
        items[8] = amqp.timestamp(expires_at_ms)
    elif len(items) > 8:
        items[8] = amqp.NULL
    return amqp.make_list(amqp.PROPERTIES, items)


_encoded_name = lru_cache(maxsize=4096)(amqp.string)


def _annotations(section: bytes, resend: Resend) -> bytes:
    """Return the section of annotations to send; empty when there are none."""
    is_short = len(section) <= _REMEMBERED_ANNOTATIONS_BYTES
    edit = _edited_annotations if is_short else _edited_annotations.__wrapped__
    is_topic = resend.destination.kind is DestinationKind.TOPIC
    edited = edit(section, resend.is_final, is_topic)
    if resend.deliver_at_ms:
        items = amqp.pairs(edited) if edited else []
        items += (_KEY_DELIVERY_TIME, amqp.long(resend.deliver_at_ms))
        edited = amqp.make_map(amqp.MESSAGE_ANNOTATIONS, items)
    return edited


@lru_cache(maxsize=256)
def _edited_annotations(section: bytes, is_final: bool, is_topic: bool) -> bytes:
    is_short = len(section) <= _REMEMBERED_SECTION_BYTES
    fate_of = _annotation_fate if is_short else _annotation_fate.__wrapped__
    items = amqp.pairs(section) if section else []
    kept: list[bytes] = []
    for at in range(0, len(items), 2):
        key, value = items[at], items[at + 1]
        fate = fate_of(key)
        if fate == "always" or (fate == "redelivery" and not is_final):
            continue
        if fate == "kind" and not is_final:
            value = amqp.byte(1 if is_topic else 0)
        kept += (key, value)
    return amqp.make_map(amqp.MESSAGE_ANNOTATIONS, kept) if kept else b""


@lru_cache(maxsize=1024)
def _annotation_fate(key: bytes) -> str:
    """Return when an annotation is stripped ("always", "redelivery"), or "kind", or "" = kept."""
    name = _name.__wrapped__(key)
    if name.startswith("x-opt-delivery-") or name == "x-opt-routing-type":
        return "always"
    if name.startswith("x-opt-ORIG-") or name == "x-opt-ACTUAL-EXPIRY":
        return "redelivery"
    if name == "x-opt-jms-dest":
        return "kind"
    return ""


def _application_properties(
    items: list[bytes],
    fates: list[int],
    resend: Resend,
    message_id: str | None,
    identity: bytes,
) -> list[bytes]:
    dropped = _DROPPED_OF_FINAL if resend.is_final else _DROPPED
    if _STOMP in fates and not resend.is_final and _is_stomp_made(items, message_id):
        dropped |= {_STOMP}
    if (_text(_value_of(_DUPLICATE, items, fates)) or "").startswith(INTERCEPTION_ID_PREFIX):
        dropped |= {_DUPLICATE, _STOMP}
    elif _DUPLICATE in fates:
        # Why: an id kept beside one belongs to the message from which this one was copied.
        dropped |= {_DUPLICATE_KEPT}
    redelivery_id = amqp.string(resend.redelivery_id)
    is_return = _value_of(_LIFE, items, fates) == redelivery_id
    own_id = None if message_id is None else amqp.string(message_id)
    shown_id = original_id(_value_of(_ORIGINAL_ID, items, fates), own_id, is_return=is_return)
    kept: list[bytes] = []
    for at, fate in zip(range(0, len(items), 2), fates, strict=True):
        key, value = items[at], items[at + 1]
        if fate in dropped or (fate == _COUNT and value == amqp.NULL):
            continue
        kept += (_KEY_ORIGINAL_DUPLICATE_ID if fate == _DUPLICATE else key, value)
    kept += (
        _KEY_REDELIVERY_ID,
        redelivery_id,
        _KEY_REDELIVERY_COUNT,
        amqp.integer(resend.redelivery_count),
        _KEY_REDELIVERY_DELAY,
        amqp.long(resend.redelivery_delay_ms),
        _KEY_REDELIVERY_CHECK,
        amqp.string(check_on(resend, identity)),
    )
    if shown_id is not None:
        kept += (_KEY_ORIGINAL_MESSAGE_ID, shown_id)
    return kept


def _value_of(fate: int, items: list[bytes], fates: list[int]) -> bytes | None:
    return items[2 * fates.index(fate) + 1] if fate in fates else None


_KEY_DELIVERY_TIME = amqp.symbol("x-opt-delivery-time")
_KEY_REDELIVERY_ID = amqp.string(PROPERTY_REDELIVERY_ID)
_KEY_REDELIVERY_COUNT = amqp.string(PROPERTY_REDELIVERY_COUNT)
_KEY_REDELIVERY_DELAY = amqp.string(PROPERTY_REDELIVERY_DELAY)
_KEY_REDELIVERY_CHECK = amqp.string(PROPERTY_REDELIVERY_CHECK)
_KEY_ORIGINAL_DUPLICATE_ID = amqp.string(PROPERTY_ORIGINAL_DUPLICATE_ID)
_KEY_ORIGINAL_MESSAGE_ID = amqp.string(PROPERTY_ORIGINAL_MESSAGE_ID)

_KEEP, _LIFE, _MARK, _DEATH, _DUPLICATE, _DUPLICATE_KEPT, _COUNT, _STOMP, _ORIGINAL_ID = range(9)
_DROPPED_OF_FINAL = frozenset((_LIFE, _MARK, _ORIGINAL_ID))
_DROPPED = _DROPPED_OF_FINAL | {_DEATH}


@lru_cache(maxsize=4096)
def _property_fate(key: bytes) -> int:
    """Return the change of an application property, by its encoded name."""
    name = _name.__wrapped__(key)
    if name in MARKS:
        return _LIFE if name == PROPERTY_REDELIVERY_ID else _MARK
    if name.startswith((*ORIGIN_PREFIXES, "_AMQ_ROUTE_TO")) or name in ACTUAL_EXPIRIES:
        return _DEATH
    if name in _CORE_ENCODINGS or name == PROPERTY_SEAL:
        return _MARK
    return {
        DUPLICATE_ID: _DUPLICATE,
        PROPERTY_ORIGINAL_DUPLICATE_ID: _DUPLICATE_KEPT,
        PROPERTY_CAUSE: _DEATH,
        PROPERTY_CLIENT_CAUSE: _DEATH,
        # Quirk (Artemis): the AMQP view of a Core message that failed has it as null.
        "JMSXDeliveryCount": _COUNT,
        PROPERTY_ORIGINAL_MESSAGE_ID: _ORIGINAL_ID,
    }.get(name, _STOMP if name in STOMP_LEFTOVERS else _KEEP)


_KEY_SEAL: Final = amqp.string(PROPERTY_SEAL)


def _is_stomp_made(items: list[bytes], message_id: str | None) -> bool:
    """Return whether the frame headers among the properties are Artemis's own leftovers.

    Artemis keeps every header of a STOMP SEND as a property. An application may use the same names,
    so all must fit: origin among the properties, no message id, `destination` is the origin.
    """
    if message_id is not None:
        return False
    found = dict(zip(map(_name.__wrapped__, items[::2]), items[1::2], strict=True))
    destination = _text(found.get("destination"))
    address = _text(found.get("_AMQ_ORIG_ADDRESS"))
    return bool(address) and destination is not None and destination.endswith(address or "")


class RejectedMessage(NamedTuple):
    """A message that its consumer gave up over AMQP.

    Attributes:
        sections: sections before the body, as `split_head` gives them.
        origin: where it was.
        cause: why.
        seal: of the copy; "" = none.
    """

    sections: dict[int, bytes]
    origin: Origin
    cause: str
    seal: str = ""


def encode_interception(given_up: RejectedMessage) -> bytes:
    """Return the sections of the copy for the intake queue up to its body, which stays unchanged.

    `causes.md` asks for such a copy from a consumer that gives a message up by itself. Its
    time to live is removed, as for every dead letter, and so is a past delivery time.

    Raises:
        UndecodableMessage: the sections can't be taken apart.
    """
    sections = dict(given_up.sections)
    sections.pop(amqp.DELIVERY_ANNOTATIONS, None)
    if amqp.HEADER in sections:
        sections[amqp.HEADER] = _header.__wrapped__(sections[amqp.HEADER], 0)
    if amqp.MESSAGE_ANNOTATIONS in sections:
        sections[amqp.MESSAGE_ANNOTATIONS] = _kept_annotations(sections[amqp.MESSAGE_ANNOTATIONS])
    if amqp.PROPERTIES in sections:
        items = amqp.elements(sections[amqp.PROPERTIES])
        if len(items) > _EXPIRY:
            items[_EXPIRY] = amqp.NULL
        sections[amqp.PROPERTIES] = amqp.make_list(amqp.PROPERTIES, items)
    application = sections.get(amqp.APPLICATION_PROPERTIES)
    pairs = [] if application is None else amqp.pairs(application)
    origin = given_up.origin
    kept = [
        amqp.string("_AMQ_ORIG_ADDRESS"),
        amqp.string(origin.address),
        amqp.string("_AMQ_ORIG_QUEUE"),
        amqp.string(origin.queue or origin.address),
        amqp.string("_AMQ_ORIG_ROUTING_TYPE"),
        amqp.byte(MULTICAST if origin.routing_type == MULTICAST else ANYCAST),
        amqp.string(PROPERTY_CAUSE),
        amqp.string(given_up.cause[:_CAUSE_CHARACTERS_MAX]),
    ]
    if given_up.seal:
        kept += (_KEY_SEAL, amqp.string(given_up.seal))
    has_duplicate_id = any(_property_fate.__wrapped__(key) == _DUPLICATE for key in pairs[::2])
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        fate = _property_fate.__wrapped__(key)
        is_older = fate == _DUPLICATE_KEPT and has_duplicate_id
        if fate in (_DEATH, _COUNT) or key == _KEY_SEAL or is_older:
            continue
        kept += (_KEY_ORIGINAL_DUPLICATE_ID if fate == _DUPLICATE else key, value)
    sections[amqp.APPLICATION_PROPERTIES] = amqp.make_map(amqp.APPLICATION_PROPERTIES, kept)
    return amqp.join(sections)


def _kept_annotations(section: bytes) -> bytes:
    items = amqp.pairs(section)
    kept: list[bytes] = []
    for key, value in zip(items[::2], items[1::2], strict=True):
        if _annotation_fate.__wrapped__(key) in ("", "kind"):
            kept += (key, value)
    return amqp.make_map(amqp.MESSAGE_ANNOTATIONS, kept) if kept else b""


_EXPIRY: Final = 8
_CAUSE_CHARACTERS_MAX: Final = 65_536
