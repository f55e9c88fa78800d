"""Reads a dead letter of Classic from its AMQP bytes, makes the bytes of a redelivery; sans-IO.

Classic delivers two kinds of messages. It holds **mapped** messages as JMS messages: OpenWire or
STOMP applications made them, or a connector with `transport.transformer=jms` received them. It
encodes them anew, with the dead-letter queue in `to` and its own dead-letter properties among the
application's. **Native** messages came through a connector with another transformer. They arrive
byte for byte as their producer sent them, without a trace of their death.

Source: ActiveMQ Classic, JMSMappingOutboundTransformer, AMQPNativeOutboundTransformer,
JMSMappingInboundTransformer; `spec-classic.md` 8.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from amqsidecar.broker import Resend
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_classic_text import mended_section
from amqsidecar.formats.classic_death import (
    KeepsNonPersistent,
    always_keeps,
    has_expired,
    tells_store_duplicate,
)
from amqsidecar.formats.redelivery_mark import (
    MARK_NAMES,
    MARKS,
    check_on,
    life_of,
    marks_of,
    original_id,
)
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.provenance import Provenance, kept_cause
from amqsidecar.model.sidecar_names import (
    PROPERTY_CAUSE,
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_REDELIVERY_CHECK,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_DELAY,
    PROPERTY_REDELIVERY_ID,
)

CAUSE: Final = "dlqDeliveryFailureCause"
ORIGINAL_EXPIRATION: Final = "originalExpiration"
ORIGINAL_DELIVERY_MODE: Final = "originalDeliveryMode"
TTL_MS_MAX: Final = 2**32 - 1

_TO, _EXPIRY, _CREATED = 2, 8, 9
_TTL, _DELIVERY_COUNT = 2, 4
_LONG_MAX: Final = 2**63 - 1
_TRUE, _FALSE = b"\x41", b"\x42"
_DEATH = frozenset((CAUSE, ORIGINAL_EXPIRATION, ORIGINAL_DELIVERY_MODE))
# Why: a message that still carries its schedule is scheduled again when it is sent again.
_SCHEDULE = frozenset(
    (
        *("scheduledJobId", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD"),
        *("AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"),
    )
)
# Why: connection, which a client may name as it likes, session, producer, sequence. An id of
# another form was text from the start.
_REAL_ID = re.compile(r".+:-?\d+:-?\d+:-?\d+", re.DOTALL)
_REMEMBERED_NAME_BYTES: Final = 256


class DeadLetterParts(NamedTuple):
    """The parts of a dead letter that more than one question needs.

    Attributes:
        sections: as `amqp_sections.split` returns them.
        properties: elements of the properties section.
        pairs: keys and values of the application properties.
    """

    sections: dict[int, bytes]
    properties: list[bytes]
    pairs: list[bytes]


def take_apart(message: bytes) -> DeadLetterParts:
    """Return the parts of an encoded message.

    Raises:
        UndecodableMessage: it is no AMQP message.
    """
    return _found(amqp.split(message))


def _found(sections: dict[int, bytes]) -> DeadLetterParts:
    properties = sections.get(amqp.PROPERTIES)
    pairs = sections.get(amqp.APPLICATION_PROPERTIES)
    return DeadLetterParts(
        sections,
        [] if properties is None else amqp.elements(properties),
        [] if pairs is None else amqp.pairs(pairs),
    )


def mended(found: DeadLetterParts) -> DeadLetterParts | None:
    """Return a mapped message with all its texts in UTF-8; the same bytes if they are already.

    None = one of them can't be corrected. See `amqp_classic_text`.
    """
    try:
        sections = {code: mended_section(section) for code, section in found.sections.items()}
    except UndecodableMessage:
        return None
    return found if sections == found.sections else _found(sections)


def is_native(found: DeadLetterParts, source: Destination) -> bool:
    """Return whether the broker hands on the producer's bytes, and did not encode a JMS message.

    Args:
        source: the queue it was read from: the broker writes it into each message it encodes.
    """
    return _text_at(found.properties, _TO) != str(source)


def named_destination(found: DeadLetterParts) -> Destination | None:
    """Return the destination in the `to` of a message; None = none."""
    text = _text_at(found.properties, _TO)
    return parse_destination(text) if text and text.strip() else None


def damage(found: DeadLetterParts, source: Destination) -> str | None:
    """Return the damage that a connector with `transformer=jms` does; None = no damage.

    Quirk (Classic): a JMS message without a body has no body on the wire either, and comes back as
    a BytesMessage. AMQP applications' messages without a body were BytesMessages from the start;
    only JMS clients of AMQP mark theirs, so that others are left alone with the first.
    """
    body = found.sections.get(amqp.VALUE, b"")
    if is_native(found, source):
        # Why: a body with AMQP binary could not be mapped on arrival, and can't be mapped again.
        # Any other native message came over a connector that maps nothing.
        is_whole = _is_sequence_with_bytes(body)
        return None if is_whole else "a message that came in unmapped would be mapped now"
    if not body and not _is_marked_by_jms(found.sections.get(amqp.MESSAGE_ANNOTATIONS)):
        return "a JMS message without a body would become a BytesMessage"
    if mended(found) is None:
        return "the broker could not read one of its texts"
    return None


def _is_sequence_with_bytes(body: bytes) -> bool:
    """Return whether a body is a sequence that Classic can't turn into a StreamMessage.

    Source: ActiveMQ Classic, ActiveMQStreamMessage.writeObject, which knows no AMQP binary.
    """
    if body[1:3] != bytes((0x53, amqp.SEQUENCE)):
        return False
    return any(element[0] in (0xA0, 0xB0) for element in amqp.elements(body))


def read_provenance(
    found: DeadLetterParts,
    source: Destination,
    *,
    origin: Destination | None,
    now_ms: int,
    is_native_made: bool,
) -> Provenance:
    """Return the provenance of a dead letter, completed by facts about its queue.

    Args:
        found: the message.
        source: the queue that it was found in.
        origin: where all messages of its queue died; None = it is not known.
        now_ms: the time, to recognize an expired message without a cause.
        is_native_made: the properties are the producer's alone.
    """
    properties = dict(zip(map(_name, found.pairs[::2]), found.pairs[1::2], strict=True))
    cause = None if is_native_made else _text(properties.get(CAUSE))
    created_ms = _number_at(found.properties, _CREATED)
    expires_at_ms = _expires_at_ms(found)
    original_ms = expires_at_ms if is_native_made else _number(properties.get(ORIGINAL_EXPIRATION))
    redelivery_id, redelivery_count = life_of(
        marks_of(*(amqp.plain_value(properties.get(name)) for name in MARK_NAMES)),
        (origin, source),
        _identity(found.properties),
        is_given_up=PROPERTY_CAUSE in properties,
    )
    delivery_mode = None if is_native_made else _text(properties.get(ORIGINAL_DELIVERY_MODE))
    return Provenance(
        origin=origin,
        cause=kept_cause(cause),
        expired=has_expired(cause, created_ms, original_ms, now_ms),
        is_store_duplicate=tells_store_duplicate(cause),
        message_id=_message_id(found.properties),
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=_is_durable(found) and delivery_mode != "NON_PERSISTENT",
        expires_at_ms=max(0, expires_at_ms),
        problem=None if origin is not None else "neither it nor its queue shows where it died",
    )


def _identity(properties: list[bytes]) -> bytes:
    """Return values that survive death, but differ when another client sends a copy.

    An id that the broker made is left out: the broker makes a new one for each send.
    """
    message_id = _message_id(properties) or ""
    kept_id = "" if _REAL_ID.fullmatch(message_id) else message_id
    return f"{kept_id}\0{_number_at(properties, _CREATED)}".encode(errors="surrogatepass")


def _expires_at_ms(found: DeadLetterParts) -> int:
    """Return when a native message expires; 0 = never."""
    expires_at_ms = _number_at(found.properties, _EXPIRY)
    created_ms = _number_at(found.properties, _CREATED)
    if expires_at_ms <= 0 < created_ms:
        ttl_ms = _number_at(_header(found), _TTL)
        return created_ms + ttl_ms if ttl_ms > 0 else 0
    return expires_at_ms


def encode_resend(
    resend: Resend,
    now_ms: int,
    *,
    is_native_wire: bool,
    keeps_non_persistent: KeepsNonPersistent = always_keeps,
) -> bytes:
    """Return the message to send: a redelivery without its death, or a final dead letter.

    Body, footers, group, correlation and the producer's own properties keep the bytes of
    `resend.message`.

    Args:
        resend: the planned re-send.
        now_ms: the time to live starts here.
        is_native_wire: the connector hands on bytes as they are; else it makes JMS messages.
        keeps_non_persistent: see `classic_mode`.

    Raises:
        UndecodableMessage: the message can't be taken apart.
    """
    found = take_apart(resend.message)
    if not is_native_wire:
        found = mended(found) or found
    sections = dict(found.sections)
    names = [_name(key) for key in found.pairs[::2]]
    own = dict(zip(names, found.pairs[1::2], strict=True))
    told = {} if is_native_wire else own
    is_marked = _is_marked_by_jms(sections.get(amqp.MESSAGE_ANNOTATIONS))
    ttl_ms = resend.expiration_ms
    if not resend.is_final:
        ttl_ms = _producers_ttl_ms(found) if is_native_wire else _ttl_ms(found, told)
    properties, dropped_id = _edit_properties(
        found.properties,
        to=None if is_native_wire else resend.destination,
        expires_at_ms=min(now_ms + ttl_ms, _LONG_MAX) if ttl_ms > 0 else 0,
        created_ms=now_ms if ttl_ms > 0 and not resend.is_final else 0,
        keeps_id=is_native_wire,
    )
    if properties != found.properties:
        sections[amqp.PROPERTIES] = amqp.make_list(amqp.PROPERTIES, properties)
    sections[amqp.HEADER] = _edit_header(
        _header(found),
        durable=_durable(resend, told, keeps_non_persistent),
        ttl_ms=ttl_ms,
        # Why: it is the count that the in-broker plugin writes. AMQP clients with a limit of their
        # own would reject at once, so their messages keep no count.
        count=0 if resend.is_final or is_native_wire or is_marked else resend.redelivery_count,
    )
    annotations = sections.get(amqp.MESSAGE_ANNOTATIONS)
    if annotations is not None:
        items = amqp.pairs(annotations)
        kept = _edit_annotations(items, drops_jms=not is_native_wire and not is_marked)
        if items and not kept:
            del sections[amqp.MESSAGE_ANNOTATIONS]
        elif len(kept) < len(items):
            sections[amqp.MESSAGE_ANNOTATIONS] = amqp.make_map(amqp.MESSAGE_ANNOTATIONS, kept)
    shown_id = original_id(
        own.get(PROPERTY_ORIGINAL_MESSAGE_ID),
        None if dropped_id is None else amqp.string(dropped_id),
        is_return=_text(own.get(PROPERTY_REDELIVERY_ID)) == resend.redelivery_id,
    )
    stripped = MARKS | _SCHEDULE | {PROPERTY_ORIGINAL_MESSAGE_ID}
    if not resend.is_final:
        stripped |= {PROPERTY_CAUSE} if is_native_wire else {PROPERTY_CAUSE, *_DEATH}
    sections[amqp.APPLICATION_PROPERTIES] = amqp.make_map(
        amqp.APPLICATION_PROPERTIES,
        [
            *_without(found.pairs, names, stripped),
            *_our_properties(resend, _identity(properties), shown_id),
        ],
    )
    return amqp.join(sections)


def _producers_ttl_ms(found: DeadLetterParts) -> int:
    """Return the time to live of a native message; 0 = for ever."""
    ttl_ms = _number_at(_header(found), _TTL)
    if ttl_ms > 0:
        return ttl_ms
    created_ms = _number_at(found.properties, _CREATED)
    expires_at_ms = _number_at(found.properties, _EXPIRY)
    return expires_at_ms - created_ms if expires_at_ms > created_ms > 0 else 0


def _ttl_ms(found: DeadLetterParts, told: dict[str, bytes]) -> int:
    """Return the time to live of a mapped message; 0 = for ever, or the broker hides it.

    Quirk (Classic): `originalExpiration` of a mapped message is on the wire only when the broker
    has read the message back from its store, such as after a restart.
    """
    created_ms = _number_at(found.properties, _CREATED)
    expires_at_ms = _number(told.get(ORIGINAL_EXPIRATION))
    return expires_at_ms - created_ms if expires_at_ms > created_ms > 0 else 0


def _durable(
    resend: Resend, told: dict[str, bytes], keeps_non_persistent: KeepsNonPersistent
) -> bytes | None:
    """Return the durability that the header needs; None = the present value."""
    if resend.is_final:
        return _TRUE
    was_non_persistent = _text(told.get(ORIGINAL_DELIVERY_MODE)) == "NON_PERSISTENT"
    return _FALSE if was_non_persistent and keeps_non_persistent(resend.destination) else None


def _edit_header(items: list[bytes], *, durable: bytes | None, ttl_ms: int, count: int) -> bytes:
    kept = items[:2]
    if durable is not None:
        kept[:1] = [durable]
    if 0 < ttl_ms <= TTL_MS_MAX:
        kept += [amqp.NULL] * (_TTL - len(kept))
        kept.append(amqp.unsigned(ttl_ms))
    if count > 0:
        kept += [amqp.NULL] * (_DELIVERY_COUNT - len(kept))
        kept.append(amqp.unsigned(count))
    return amqp.make_list(amqp.HEADER, kept)


def _edit_properties(
    items: list[bytes],
    *,
    to: Destination | None,
    expires_at_ms: int,
    created_ms: int,
    keeps_id: bool,
) -> tuple[list[bytes], str | None]:
    """Return the properties to send, and the message id that was dropped from them.

    Quirk (Classic): a message id that comes over AMQP is text to the broker, and STOMP consumers
    can't acknowledge such a message. One that the broker had made itself is left out, so that the
    broker replaces a real one; one that was text already stays.
    """
    edited = list(items)
    dropped: str | None = None
    message_id = _message_id(items)
    if not keeps_id and message_id is not None and _REAL_ID.fullmatch(message_id):
        edited[0] = amqp.NULL
        dropped = message_id
    if to is not None:
        _put(edited, _TO, amqp.string(str(to)))
    if expires_at_ms:
        _put(edited, _EXPIRY, amqp.timestamp(expires_at_ms))
        if created_ms:
            _put(edited, _CREATED, amqp.timestamp(created_ms))
    elif len(edited) > _EXPIRY:
        edited[_EXPIRY] = amqp.NULL
    return edited, dropped


def _put(items: list[bytes], at: int, element: bytes) -> None:
    items += [amqp.NULL] * (at + 1 - len(items))
    items[at] = element


def _edit_annotations(items: list[bytes], *, drops_jms: bool) -> list[bytes]:
    kept: list[bytes] = []
    for key, value in zip(items[::2], items[1::2], strict=True):
        name = _name(key)
        # Why: the broker would schedule it again, and says the kinds of destinations by itself.
        is_dropped = name.startswith("x-opt-delivery-") or (
            drops_jms and name in ("x-opt-jms-dest", "x-opt-jms-reply-to")
        )
        if not is_dropped:
            kept += (key, value)
    return kept


def _without(pairs: list[bytes], names: list[str], stripped: frozenset[str]) -> list[bytes]:
    kept: list[bytes] = []
    for at, name in enumerate(names):
        if name not in stripped:
            kept += pairs[2 * at : 2 * at + 2]
    return kept


def _our_properties(resend: Resend, identity: bytes, shown_id: bytes | None) -> list[bytes]:
    # Quirk (Classic): a number of another width makes the broker give up mapping the whole message.
    ours = [
        amqp.string(PROPERTY_REDELIVERY_ID),
        amqp.string(resend.redelivery_id),
        amqp.string(PROPERTY_REDELIVERY_COUNT),
        amqp.integer(resend.redelivery_count),
        amqp.string(PROPERTY_REDELIVERY_DELAY),
        amqp.long(resend.redelivery_delay_ms),
        amqp.string(PROPERTY_REDELIVERY_CHECK),
        amqp.string(check_on(resend, identity)),
    ]
    if shown_id is not None:
        ours += (amqp.string(PROPERTY_ORIGINAL_MESSAGE_ID), shown_id)
    return ours


def _header(found: DeadLetterParts) -> list[bytes]:
    header = found.sections.get(amqp.HEADER)
    return [] if header is None else amqp.elements(header)


def _is_durable(found: DeadLetterParts) -> bool:
    header = found.sections.get(amqp.HEADER)
    return header is not None and amqp.scalar(amqp.first_element(header)) is True


def _is_marked_by_jms(annotations: bytes | None) -> bool:
    """Return whether a JMS client of AMQP recorded the type of the message."""
    if annotations is None:
        return False
    return any(_name(key) == "x-opt-jms-msg-type" for key in amqp.pairs(annotations)[::2])


def _name(key: bytes) -> str:
    return _remembered_name(key) if len(key) <= _REMEMBERED_NAME_BYTES else _read_name(key)


def _read_name(key: bytes) -> str:
    value = amqp.scalar(key)
    return value if isinstance(value, str) else ""


_remembered_name = lru_cache(maxsize=4096)(_read_name)


def _text(element: bytes | None) -> str | None:
    value = amqp.plain_value(element)
    return value if isinstance(value, str) else None


def _text_at(items: list[bytes], at: int) -> str | None:
    return _text(items[at]) if len(items) > at else None


def _number(element: bytes | None) -> int:
    value = amqp.plain_value(element)
    return value if type(value) is int else 0


def _number_at(items: list[bytes], at: int) -> int:
    return _number(items[at]) if len(items) > at else 0


def _message_id(properties: list[bytes]) -> str | None:
    return amqp.shown_id(amqp.plain_value(properties[0]) if properties else None)
