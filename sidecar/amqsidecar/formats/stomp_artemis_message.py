"""Dead letters of Artemis as STOMP shows them, and the frames of a redelivery; sans-IO.

How Artemis 2.44 treats headers, measured:

- The real `subscription`, `message-id`, `destination` come first, even if a producer set
  properties of these names; `ack` comes last, so a forged `ack` precedes it. `message-id` and `ack`
  both hold the consumer's number and the broker's number of the message.
- `content-length` comes before `message-id` where the body is bytes, and last where it is text. For
  empty bytes it is kept as a property of their SEND; an empty text has none.
- `_AMQ_ORIG_*` are replaced by the broker whenever it moves a message to a dead-letter address.
- Every header of a SEND is kept as a property and stays for ever, unless it is removed here.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from amqsidecar.broker import Resend
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
    PROPERTY_OPENWIRE_ID,
    Origin,
    OriginReader,
    make_origin,
    number_of,
)
from amqsidecar.formats.payload import Footprint, Payload
from amqsidecar.formats.redelivery_mark import (
    ENCODED_MARK_NAMES,
    ENCODED_MARKS,
    life_of,
    mark_headers,
    marks_of,
)
from amqsidecar.formats.stomp_frame import (
    Frame,
    Header,
    first,
    footprint_of,
    kept,
    parse_kept,
)
from amqsidecar.model.destination import Destination
from amqsidecar.model.provenance import Provenance, kept_cause
from amqsidecar.model.sidecar_names import (
    INTERCEPTED,
    PROPERTY_CAUSE,
    PROPERTY_ORIGINAL_DUPLICATE_ID,
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_SEAL,
)

_LENGTH: Final = b"content-length"
_ORIGIN_PREFIXES = tuple(one.encode() for one in ORIGIN_PREFIXES)
_ANNOTATED_ORIGIN: Final = b"JMS_AMQP_MA_x-opt-ORIG-"
_ACTUAL_EXPIRIES = frozenset(one.encode() for one in ACTUAL_EXPIRIES)
_ORIGIN_BYTES_MAX: Final = 2048
_NUMBER_DIGITS_MAX: Final = 19
_CAUSE_CHARACTERS_MAX: Final = 65_536
# Headers about the delivery, not the message; only the first of each name.
_OF_THE_FRAME = frozenset(
    (b"subscription", b"message-id", b"destination", b"redelivered", b"timestamp", b"expires")
)
# Headers that a SEND frame treats as commands, not as properties.
_ORDERS = frozenset(
    (
        b"destination",
        b"destination-type",
        b"receipt",
        b"transaction",
        _LENGTH,
        b"expires",
        b"AMQ_SCHEDULED_DELAY",
        b"AMQ_SCHEDULED_TIME",
        b"_AMQ_SCHED_DELIVERY",
        # Quirk (Artemis 2.44): as text it keeps a large message from AMQP consumers for ever.
        b"_AMQ_LARGE_SIZE",
        # The mark of the client that made a message; STOMP makes ours.
        b"__AMQ_CID",
        b"JMSXDeliveryCount",
    )
)
_WHOLE = re.compile(rb"[0-9]{1,18}")
_MARKS_OF_OTHERS = frozenset((b"__AMQ_CID", b"JMS_AMQP_MA_x-opt-ORIG-ADDRESS"))
_STANDARD = frozenset((b"correlation-id", b"priority", b"persistent", b"reply-to", b"type"))
_DUPLICATE = DUPLICATE_ID.encode()
_ORIGINAL_DUPLICATE = PROPERTY_ORIGINAL_DUPLICATE_ID.encode()
_INTERCEPTION_ID = INTERCEPTION_ID_PREFIX.encode()
# Why none: nothing known at the SEND stays on the message, and STOMP has no message ids.
_NO_IDENTITY: Final = b""
_ORIGINAL_ID = PROPERTY_ORIGINAL_MESSAGE_ID.encode()
_CAUSE = PROPERTY_CAUSE.encode()
SEAL: Final = PROPERTY_SEAL.encode()
"""Header with the seal of a copy."""


class Arrived(NamedTuple):
    """A MESSAGE frame taken apart.

    Attributes:
        ack: the id to acknowledge it with.
        number: the broker's number of the message; stays the same while it is in its queue.
        subscription: the subscription that it came through.
        created_ms: the time of the message; 0 = none.
        redelivered: whether it was delivered before without being released.
        headers: headers of the message, in order; `content-length` first if the body is bytes.
    """

    ack: bytes
    number: int
    subscription: str
    created_ms: int
    redelivered: bool
    headers: list[Header]
    payload: Payload

    @property
    def body(self) -> bytes:
        """Its body; each call reads a body that is not in memory."""
        return bytes(self.payload)

    @property
    def footprint(self) -> Footprint:
        """Its footprint."""
        return footprint_of(self.headers, self.payload)

    @property
    def message(self) -> bytes:
        """The message as the store keeps it."""
        return kept(self.headers, self.body)

    @property
    def is_bytes(self) -> bool:
        """Whether the body is bytes and not text."""
        return bool(self.headers) and self.headers[0][0] == _LENGTH


def read_frame(frame: Frame) -> Arrived:
    """Take a MESSAGE frame apart.

    Raises:
        UndecodableMessage: it has no number; Artemis gives one to each.
    """
    headers = frame.headers()
    ack = first(headers, b"message-id") or b""
    number = ack.rpartition(b",")[2]
    if not number.isdigit() or len(number) > _NUMBER_DIGITS_MAX:
        raise UndecodableMessage("the broker sent a message without a number")
    own = _own_headers(headers, ack, len(frame.payload))
    return Arrived(
        ack,
        int(number),
        (first(headers, b"subscription") or b"").decode(errors="replace"),
        created_ms_of(headers),
        first(headers, b"redelivered") == b"true",
        own,
        frame.payload,
    )


def created_ms_of(headers: Sequence[Header]) -> int:
    """Return the time in the head of a MESSAGE frame; 0 = none."""
    value = first(headers, b"timestamp") or b""
    return int(value) if _WHOLE.fullmatch(value) else 0


def _own_headers(headers: Sequence[Header], ack: bytes, body_bytes: int) -> list[Header]:
    """Return the headers of the message, in order; `content-length` first where it is bytes."""
    is_bytes = False
    own: list[Header] = []
    seen: set[bytes] = set()
    for name, value in headers:
        if name == _LENGTH:
            is_bytes = is_bytes or b"message-id" not in seen or not body_bytes
            continue
        is_first = name not in seen
        seen.add(name)
        if is_first and name in _OF_THE_FRAME:
            continue
        own.append((name, value))
    if own and own[-1] == (b"ack", ack):
        own.pop()
    if is_bytes:
        own.insert(0, (_LENGTH, b"%d" % body_bytes))
    return own


def has_odd_names(headers: Sequence[Header]) -> bool:
    """Return whether a SEND can't write the names of some properties."""
    names = [name for name, _ in headers if name != _LENGTH]
    return any(name in _STANDARD and names.count(name) > 1 for name in names)


def is_marked_by_others(headers: Sequence[Header]) -> bool:
    """Return whether a JMS or AMQP client made it; STOMP's mark, `destination`, isn't shown."""
    return any(name in _MARKS_OF_OTHERS for name, _ in headers)


def read_provenance(
    headers: Sequence[Header],
    number: int,
    source: Destination,
    *,
    created_ms: int,
    expires: bool,
    read_origin: OriginReader,
) -> Provenance:
    """Return the provenance that a dead letter shows; never raises.

    Args:
        headers: of the message, as `read_frame` leaves them.
        number: the broker's number of it; its identity if it has no other.
        source: the queue where it was found.
        created_ms: the time of the message; 0 = none.
        expires: whether `source` is a queue for expired messages.
        read_origin: turns the broker's text into a destination.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found.setdefault(name, value)
    destination: Destination | None = None
    problem: str | None = "it does not show where it comes from"
    try:
        origin = _origin(found)
        if any(name.encode() in found for name in BROKER_MADE_PROPERTIES):
            problem = BROKER_MADE
        elif origin is not None:
            destination, problem = read_origin(origin)
    except UndecodableMessage as undecodable:
        problem = f"it can't be parsed: {undecodable}"
    redelivery_id, redelivery_count = None, 0
    is_given_up = b"_AMQ_ORIG_MESSAGE_ID" not in found
    # Why: a sidecar sends over STOMP, which leaves no such mark.
    is_copy = not is_given_up and any(
        name in _MARKS_OF_OTHERS or name.startswith(b"__HDR_") for name in found
    )
    if not is_copy:
        redelivery_id, redelivery_count = life_of(
            marks_of(*(_text(found.get(name)) for name in ENCODED_MARK_NAMES)),
            (destination, source),
            _NO_IDENTITY,
            is_given_up=is_given_up,
        )
    expires_at = found.get(b"expires", b"")
    message_id = _text(found.get(_ORIGINAL_ID)) or _text(found.get(b"NATIVE_MESSAGE_ID"))
    return Provenance(
        origin=destination,
        cause=kept_cause(_text(found.get(PROPERTY_CAUSE.encode()))),
        expired=expires or any(name in found for name in _ACTUAL_EXPIRIES),
        message_id=message_id or f"artemis:{number}",
        openwire_id=_text(found.get(PROPERTY_OPENWIRE_ID.encode())),
        number=number_of(_text(found.get(b"_AMQ_ORIG_MESSAGE_ID")), created_ms),
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=found.get(b"persistent") == b"true",
        expires_at_ms=int(expires_at) if _WHOLE.fullmatch(expires_at) else 0,
        problem=problem,
    )


def _origin(found: dict[bytes, bytes]) -> Origin | None:
    for prefix in _ORIGIN_PREFIXES:
        address = found.get(prefix + b"ADDRESS")
        if not address:
            continue
        queue = found.get(prefix + b"QUEUE", b"")
        if len(address) + len(queue) > _ORIGIN_BYTES_MAX:
            raise UndecodableMessage("the name of its origin is longer than any")
        types = {b"%d" % ANYCAST: ANYCAST, b"%d" % MULTICAST: MULTICAST}
        try:
            routing_type = types.get(found.get(prefix + b"ROUTING_TYPE", b""))
            return make_origin(address.decode(), queue.decode(), routing_type)
        except UnicodeDecodeError:
            raise UndecodableMessage("the name of its origin is not UTF-8") from None
    return None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def destination_headers(destination: Destination) -> list[Header]:
    """Return the headers that name a destination and its routing type."""
    kind = b"ANYCAST" if destination.is_queue else b"MULTICAST"
    return [(b"destination", destination.name.encode()), (b"destination-type", kind)]


def resend_frame(resend: Resend, now_ms: int) -> tuple[list[Header], memoryview]:
    """Return headers and body of the SEND of a redelivery or a final dead letter.

    Body, group, correlation and the producer's own properties are unchanged.

    Args:
        resend: the planned re-send.
        now_ms: the time, for the expiration of a final dead letter.

    Raises:
        UndecodableMessage: the message can't be taken apart.
    """
    headers, body = parse_kept(resend.message)
    is_bytes = bool(headers) and headers[0][0] == _LENGTH
    has_duplicate_id = any(
        name == _DUPLICATE and not value.startswith(_INTERCEPTION_ID) for name, value in headers
    )
    sent = destination_headers(resend.destination)
    if is_bytes:
        sent.append((_LENGTH, b"%d" % len(body)))
    if resend.is_final and resend.expiration_ms > 0:
        sent.append((b"expires", b"%d" % (now_ms + resend.expiration_ms)))
    seen: set[bytes] = set()
    for name, value in headers:
        is_second = name in seen
        seen.add(name)
        if name == _DUPLICATE and value.startswith(_INTERCEPTION_ID):
            continue
        if name == _DUPLICATE:
            # Why: under its own name it would make the broker drop the re-send.
            sent.append((_ORIGINAL_DUPLICATE, value))
        elif name == _ORIGINAL_DUPLICATE and has_duplicate_id:
            # Why: it is that of the message from which this one was copied.
            continue
        elif not (is_second and name in _STANDARD) and not _is_cut(name, resend.is_final):
            sent.append((name, value))
    return sent + mark_headers(resend, _NO_IDENTITY), body


class GivenUp(NamedTuple):
    """A message that its consumer gave up over STOMP.

    Attributes:
        has_nul: the body holds a NUL: without its length it would end there. So it is sent as
            bytes, which STOMP consumers see as before.
        address: its destination, without a prefix of the acceptor.
        queue: of the subscription; "" = it has the name of the address.
        cause: why.
    """

    headers: Sequence[Header]
    body_bytes: int
    has_nul: bool
    address: str
    queue: str
    cause: str


def interception_headers(given_up: GivenUp, duplicate_id: str) -> list[Header]:
    """Return the headers of the SEND that saves a message in the intake queue.

    `causes.md` asks for such a copy from a consumer that gives a message up by itself. Body,
    persistence, priority and all properties but the broker's are unchanged. The time to live is
    removed, as for every dead letter.

    Args:
        duplicate_id: makes the broker drop a second copy.
    """
    address = given_up.address.partition("::")[0].encode()
    message_id = first(given_up.headers, b"message-id") or b""
    kind = b"%d" % (
        MULTICAST if first(given_up.headers, b"destination-type") == b"MULTICAST" else ANYCAST
    )
    own = _own_headers(given_up.headers, message_id, given_up.body_bytes)
    sent: list[Header] = [
        (b"destination", INTERCEPTED.encode()),
        (b"destination-type", b"ANYCAST"),
        (b"_AMQ_ORIG_ADDRESS", address),
        (b"_AMQ_ORIG_QUEUE", given_up.queue.encode() or address),
        (b"_AMQ_ORIG_ROUTING_TYPE", kind),
        (_CAUSE, given_up.cause[:_CAUSE_CHARACTERS_MAX].encode()),
        (_DUPLICATE, duplicate_id.encode()),
    ]
    if given_up.has_nul or own[:1] == [(_LENGTH, b"%d" % given_up.body_bytes)]:
        sent.append((_LENGTH, b"%d" % given_up.body_bytes))
    has_duplicate_id = any(name == _DUPLICATE for name, _ in own)
    seen: set[bytes] = set()
    for name, value in own:
        is_second = name in seen
        seen.add(name)
        if name == _DUPLICATE:
            sent.append((_ORIGINAL_DUPLICATE, value))
        elif (name == _ORIGINAL_DUPLICATE and has_duplicate_id) or (
            is_second and name in _STANDARD
        ):
            continue
        elif name in ENCODED_MARKS or not _is_cut(name, is_final=False):
            sent.append((name, value))
    return sent


def _is_cut(name: bytes, is_final: bool) -> bool:
    if (
        name in _ORDERS
        or name in ENCODED_MARKS
        or name == SEAL
        or name.startswith((b"__HDR_", b"_AMQ_ROUTE_TO"))
    ):
        return True
    if is_final:
        return False
    is_origin = name.startswith((*_ORIGIN_PREFIXES, _ANNOTATED_ORIGIN))
    return is_origin or name in (*_ACTUAL_EXPIRIES, _CAUSE)
