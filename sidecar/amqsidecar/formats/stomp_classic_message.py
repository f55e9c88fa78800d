"""Messages of Classic over STOMP, as they are received and sent.

Classic writes the fields of a message as headers, then all properties as text, each over a header
of the same name; group and property types are not shown, and of the bodies only Text (without
`content-length`) and Bytes (with it).

Source: ActiveMQ Classic, FrameTranslator.Helper and LegacyFrameTranslator.
"""

import re
from collections.abc import Sequence

import msgspec

from amqsidecar.broker import Resend
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.classic_death import (
    KeepsNonPersistent,
    always_keeps,
    has_expired,
    tells_store_duplicate,
)
from amqsidecar.formats.payload import Footprint, Payload
from amqsidecar.formats.redelivery_mark import (
    ENCODED_MARK_NAMES,
    ENCODED_MARKS,
    life_of,
    mark_headers,
    marks_of,
    original_id,
)
from amqsidecar.formats.stomp_frame import (
    Frame,
    Header,
    encode,
    first,
    footprint_of,
    kept,
    parse_kept,
    write_head,
)
from amqsidecar.model.destination import Destination, DestinationKind
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.provenance import Provenance, kept_cause
from amqsidecar.model.sidecar_names import (
    PROPERTY_CAUSE,
    PROPERTY_ORIGINAL_DESTINATION,
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_REDELIVERY_ID,
    PROPERTY_RULES_DIGEST,
)

CYCLE = b"amqsidecarCycle"
RULES_DIGEST = PROPERTY_RULES_DIGEST.encode()
NOT_ACKNOWLEDGEABLE = "not_acknowledgeable"
NOT_CARRIED = "not_carried"

_CAUSE = b"dlqDeliveryFailureCause"
_ORIGINAL_EXPIRATION = b"originalExpiration"
_ORIGINAL_DELIVERY_MODE = b"originalDeliveryMode"
_ORIGINAL_DESTINATION = b"original-destination"
_REDELIVERY_ID = PROPERTY_REDELIVERY_ID.encode()
_ORIGINAL_MESSAGE_ID = PROPERTY_ORIGINAL_MESSAGE_ID.encode()
_OWN_ORIGINAL_DESTINATION = PROPERTY_ORIGINAL_DESTINATION.encode()

# Why: they belong to one handing out, not to the message.
_OF_DELIVERY = frozenset((b"ack", b"subscription", b"redelivered"))
_FIELDS = _OF_DELIVERY | {
    *(b"destination", b"message-id", b"correlation-id", b"expires", b"priority", b"reply-to"),
    *(b"timestamp", b"type", b"persistent", b"content-length", b"JMSXUserID"),
    _ORIGINAL_DESTINATION,
}
_SCHEDULED = b"AMQ_SCHEDULED_"
# Why: a redelivery has them no more, so their types don't matter.
_STRIPPED = frozenset(
    (
        *(_ORIGINAL_EXPIRATION, _ORIGINAL_DELIVERY_MODE, _CAUSE, b"scheduledJobId"),
        *(_OWN_ORIGINAL_DESTINATION, PROPERTY_CAUSE.encode()),
        *(_ORIGINAL_MESSAGE_ID, *ENCODED_MARKS),
    )
)
_STRIPPED_OF_FINAL = ENCODED_MARKS | {b"scheduledJobId", _ORIGINAL_MESSAGE_ID}

_INT_MAX = 2**31 - 1
_REAL_ID = re.compile(rb".+:-?\d+:-?\d+:\d+", re.DOTALL)
_STOMP_MADE_ID = re.compile(rb".+:-1:\d+:\d+", re.DOTALL)
# Source: Java's toString of Boolean, the numbers, null, and a Map or List as a property.
_MAYBE_TYPED = re.compile(
    rb"true|false|null|NaN|-?Infinity|-?\d+(?:\.\d+)?(?:E-?\d+)?|\{.*\}|\[.*\]", re.DOTALL
)
# Why: Classic's MQTT connector makes ids like STOMP's, but these properties are numbers.
_OF_MQTT = b"ActiveMQ."
_UTF8_OF_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]")
# Source: StompWireFormat.MAX_HEADER_LENGTH, 10 KiB, of a line.
_LINE_BYTES_MAX = 10 * 1024 - 1
# Why: a selector has to name it twice.
_ORIGIN_BYTES_MAX = 1000
_KINDS = {
    b"/queue/": DestinationKind.QUEUE,
    b"/topic/": DestinationKind.TOPIC,
    b"/remote-temp-queue/": DestinationKind.TEMP_QUEUE,
    b"/remote-temp-topic/": DestinationKind.TEMP_TOPIC,
}
_PREFIXES = {kind: prefix for prefix, kind in _KINDS.items()}


class Shown(msgspec.Struct, frozen=True, gc=False):
    """The content of one MESSAGE frame.

    Attributes:
        headers: all of them, in order.
        payload: its body, exactly.
        message_id: the header's bytes.
        ack: the id that an ACK has to name.
        origin: where it died by its own headers; a text = why that is unknown.
    """

    headers: list[Header]
    payload: Payload
    message_id: bytes
    ack: bytes
    origin: Destination | str

    @property
    def kept(self) -> bytes:
        """The message as the store keeps it."""
        headers = [one for one in self.headers if one[0] not in _OF_DELIVERY]
        return kept(headers, bytes(self.payload))

    @property
    def footprint(self) -> Footprint:
        """Its footprint."""
        return footprint_of(self.headers, self.payload)


def shown(frame: Frame) -> Shown:
    """Return the content of a MESSAGE frame."""
    headers = frame.headers()
    return Shown(
        headers=headers,
        payload=frame.payload,
        message_id=first(headers, b"message-id") or b"",
        ack=first(headers, b"ack") or b"",
        origin=_origin(first(headers, _ORIGINAL_DESTINATION)),
    )


def destination_header(destination: Destination) -> Header:
    """Return the header that names a destination."""
    return b"destination", _PREFIXES[destination.kind] + destination.name.encode()


def read_destination(value: bytes) -> Destination | None:
    """Return the destination of a header's value; None = it names none."""
    for prefix, kind in _KINDS.items():
        if value.startswith(prefix):
            try:
                name = value[len(prefix) :].decode()
            except UnicodeDecodeError:
                return None
            return Destination(kind, name) if name else None
    return None


def _origin(value: bytes | None) -> Destination | str:
    if value is None:
        return "it has no original destination: it was put here, it did not die here"
    origin = read_destination(value)
    if origin is None:
        return "the name of its original destination can't be read"
    if len(value) > _ORIGIN_BYTES_MAX:
        return "the name of its original destination is longer than any"
    if {",", "*", ">"} & set(origin.name):
        # Why the wildcards: a send to `A.>` reaches every queue below A.
        return "it was sent to several destinations at once and does not show on which it died"
    if origin.name != origin.name.strip():
        return "the name of its original destination begins or ends with a space"
    return origin


def provenance(
    message: Shown, source: Destination, origin: Destination | str, now_ms: int
) -> Provenance:
    """Return the provenance of a dead letter.

    Args:
        message: the content of its frame.
        source: the queue where it was found.
        origin: where it died; a text = why that is unknown.
        now_ms: without a cause, a message whose expiration is before this has expired.
    """
    found = dict(reversed(message.headers))
    cause = found.get(_CAUSE)
    cause_text = None if cause is None else cause.decode(errors="replace")
    sent_ms, original_ms = (_number(found.get(n)) for n in (b"timestamp", _ORIGINAL_EXPIRATION))
    place = None if isinstance(origin, str) else origin
    redelivery_id, redelivery_count = None, 0
    # Why: a sidecar sends over STOMP; a message from another kind of client is a copy.
    is_stomp_made = _STOMP_MADE_ID.fullmatch(message.message_id) is not None
    if is_stomp_made:
        marks = (found.get(name, b"").decode(errors="replace") for name in ENCODED_MARK_NAMES)
        redelivery_id, redelivery_count = life_of(
            marks_of(*marks),
            (place, source),
            _identity(sent_ms),
            is_given_up=False,
        )
    mode = found.get(_ORIGINAL_DELIVERY_MODE)
    return Provenance(
        origin=place,
        cause=kept_cause(cause_text),
        expired=has_expired(cause_text, sent_ms, original_ms, now_ms),
        is_store_duplicate=tells_store_duplicate(cause_text),
        message_id=message.message_id.decode(errors="replace"),
        redelivery_id=redelivery_id,
        redelivery_count=redelivery_count,
        persistent=found.get(b"persistent") == b"true" and mode != b"NON_PERSISTENT",
        expires_at_ms=max(0, _number(found.get(b"expires"))),
        problem=origin if isinstance(origin, str) else None,
    )


def _identity(timestamp_ms: int) -> bytes:
    """Return values that survive death; clients set another time on their sends.

    The connection, the prefix of the broker's message id, would prove more, but a client can't
    learn its own: `session` of the CONNECTED frame is the client id.
    """
    return b"%d" % timestamp_ms


def _number(value: bytes | None) -> int:
    """Return a header that should be a number; 0 = it is none."""
    if value is None or len(value) > 20 or not value.removeprefix(b"-").isdigit():
        return 0
    return int(value)


def lost_by_taking(message: Shown, *, utf8_is_modified: bool) -> str | None:
    """Return the loss, a value of `Loss` or another reason; None = nothing is lost.

    Property types: all properties of a STOMP-made message are strings. In other messages
    a property counts as a string only if no number, boolean or null has such a text. So no more is
    lost than this returns, but a string such as "42" counts as lost.

    Not visible on this wire: OpenWire clients may give a property the name `correlation-id`,
    `reply-to`, `message-id` or `content-length`, which no JMS client does. The first two would
    become the field, the last turns a Text into a Bytes. None harms another message.

    Args:
        message: the content of its frame.
        utf8_is_modified: the broker writes Text as modified UTF-8 (before 6.2.0).
    """
    if not _REAL_ID.fullmatch(message.message_id):
        return NOT_ACKNOWLEDGEABLE
    is_stomp_made = _STOMP_MADE_ID.fullmatch(message.message_id) is not None
    for header in message.headers:
        if header[0] in _FIELDS or header[0] in _STRIPPED:
            continue
        reason = _lost_by_property(header, is_stomp_made=is_stomp_made)
        if reason is not None:
            return reason
    if first(message.headers, b"content-length") is None and not is_stomp_made:
        # Why: a Map, Object, Stream or null has no body here. What was compressed comes as real
        # UTF-8, which the broker would take for modified.
        is_unlike_text = utf8_is_modified and _UTF8_OF_FOUR_BYTES.search(bytes(message.payload))
        if not len(message.payload) or is_unlike_text:
            return Loss.BODY_TYPE
    return None


def _lost_by_property(header: Header, *, is_stomp_made: bool) -> str | None:
    name, value = header
    if is_too_long(header):
        return NOT_CARRIED
    if name == b"amq-msg-type":
        # Why: the broker would convert any body to the type that this header names.
        return Loss.BODY_TYPE
    is_string = is_stomp_made and not name.startswith(_OF_MQTT)
    if is_string or name.startswith(_SCHEDULED) or name == _ORIGINAL_MESSAGE_ID:
        return None
    return Loss.PROPERTY_TYPES if _MAYBE_TYPED.fullmatch(value) else None


def is_too_long(header: Header) -> bool:
    """Return whether a header is longer than Classic accepts."""
    name, value = header
    # Why: most are short even if each byte needed another one as an escape.
    if 2 * (len(name) + len(value)) < _LINE_BYTES_MAX:
        return False
    return len(write_head([header])) > _LINE_BYTES_MAX


class StompResendEncoder:
    """Encodes sends: redeliveries, final dead letters, tokens."""

    def __init__(self, keeps_non_persistent: KeepsNonPersistent = always_keeps) -> None:
        self._keeps_non_persistent = keeps_non_persistent

    def resend(
        self, resend: Resend, transaction: bytes, now_ms: int, receipt: Sequence[Header] = ()
    ) -> bytes:
        """Return the SEND frame of a redelivery or of a final dead letter.

        Args:
            resend: the planned re-send.
            transaction: its name.
            now_ms: the time to live starts here.
            receipt: the header that asks for a receipt.

        Raises:
            UndecodableMessage: the dead letter can't be taken apart.

        Source: ActiveMQ Classic, RedeliveryPlugin.scheduleRedelivery.
        """
        headers, body = parse_kept(resend.message)
        found = dict(reversed(headers))
        out = [destination_header(resend.destination), (b"transaction", transaction), *receipt]
        timestamp_ms, lifetime = self._lifetime(resend, found, now_ms)
        out += lifetime
        out += [
            (name, found[name])
            for name in (b"priority", b"correlation-id", b"reply-to", b"type")
            if name in found
        ]
        if b"content-length" in found:
            out.append((b"content-length", b"%d" % len(body)))
        stripped = _STRIPPED_OF_FINAL if resend.is_final else _STRIPPED
        out += [
            (name, value)
            for name, value in headers
            if name not in _FIELDS and name not in stripped and not name.startswith(_SCHEDULED)
        ]
        out += self._ours(resend, found, timestamp_ms)
        for header in out:
            if header[0] != _CAUSE and is_too_long(header):
                raise UndecodableMessage(
                    f"its header {header[0].decode(errors='replace')!r} is longer than the"
                    f" {_LINE_BYTES_MAX} bytes that Classic takes over STOMP"
                )
        return encode("SEND", [_cut(header) for header in out], body)

    def _lifetime(
        self, resend: Resend, found: dict[bytes, bytes], now_ms: int
    ) -> tuple[int, list[Header]]:
        """Return the timestamp, and the headers for it, for persistence and expiry."""
        timestamp_ms, expiration_ms = _number(found.get(b"timestamp")), 0
        persistent = b"true"
        if resend.is_final:
            expiration_ms = now_ms + resend.expiration_ms if resend.expiration_ms > 0 else 0
        else:
            is_noted = found.get(_ORIGINAL_DELIVERY_MODE) == b"NON_PERSISTENT"
            was_non_persistent = is_noted and self._keeps_non_persistent(resend.destination)
            if found.get(b"persistent") != b"true" or was_non_persistent:
                persistent = b"false"
            original_ms = _number(found.get(_ORIGINAL_EXPIRATION))
            if original_ms > timestamp_ms > 0:
                # Why: producers write the largest long for "never", or numbers close to it.
                expiration_ms = min(now_ms + original_ms - timestamp_ms, 2**63 - 1)
                timestamp_ms = now_ms
        headers = [(b"persistent", persistent), (b"timestamp", b"%d" % timestamp_ms)]
        if expiration_ms:
            headers.append((b"expires", b"%d" % expiration_ms))
        return timestamp_ms, headers

    @staticmethod
    def _ours(resend: Resend, found: dict[bytes, bytes], timestamp_ms: int) -> list[Header]:
        headers = mark_headers(resend, _identity(timestamp_ms))
        shown_id = original_id(
            found.get(_ORIGINAL_MESSAGE_ID) or None,
            found.get(b"message-id"),
            is_return=found.get(_REDELIVERY_ID) == resend.redelivery_id.encode(),
        )
        if shown_id is not None:
            headers.append((_ORIGINAL_MESSAGE_ID, shown_id))
        if not resend.is_final:
            # Why: Classic takes it as the delivery count that consumers see, 1-based, and ends the
            # connection where it is no int of Java.
            count = min(resend.redelivery_count + 1, _INT_MAX)
            headers.append((b"JMSXDeliveryCount", b"%d" % count))
        elif _ORIGINAL_DESTINATION in found and _OWN_ORIGINAL_DESTINATION not in found:
            headers.append((_OWN_ORIGINAL_DESTINATION, found[_ORIGINAL_DESTINATION]))
        return headers

    @staticmethod
    def token(
        queue: Destination,
        cycle: int,
        transaction: bytes | None,
        receipt: Sequence[Header],
        rules_digest: str = "",
    ) -> bytes:
        """Return the SEND frame of a token: a persistent Text, so that a console can show it."""
        headers = [
            destination_header(queue),
            (b"persistent", b"true"),
            (CYCLE, b"%d" % cycle),
            (RULES_DIGEST, rules_digest.encode()),
            *receipt,
        ]
        if transaction is not None:
            headers.append((b"transaction", transaction))
        return encode("SEND", headers, b"%d" % cycle)


def _cut(header: Header) -> Header:
    """Return a cause that fits into a line; other headers as they are."""
    name, value = header
    if name == _CAUSE and len(value) > _LINE_BYTES_MAX // 2:
        # Why half: each of its bytes may need another one as an escape.
        text = value[: _LINE_BYTES_MAX // 2].decode(errors="ignore")
        return name, text.encode()
    return header


def read_cycle(frame: Frame) -> int | None:
    """Return the cycle number of a token; None = not a token."""
    value = frame.first(CYCLE)
    return int(value) if value is not None and value.isdigit() and len(value) < 20 else None
