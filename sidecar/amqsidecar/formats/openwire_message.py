"""Puts messages together for one OpenWire connection: redeliveries, final dead letters, tokens.

Fields that a redelivery changes are replaced, all others copied; the body is never read.
"""

from collections.abc import Mapping, Sequence
from struct import Struct

from amqsidecar.broker import Resend
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.classic_death import KeepsNonPersistent, always_keeps
from amqsidecar.formats.openwire_dead_letter import (
    CAUSE,
    CYCLE,
    ORIGINAL_DELIVERY_MODE,
    ORIGINAL_EXPIRATION,
    MessageParts,
    message_id_text,
    number_of,
    take_apart,
)
from amqsidecar.formats.openwire_properties import (
    EditedProperties,
    PropertyValue,
    int_entry,
    long_entry,
    string_entry,
)
from amqsidecar.formats.redelivery_mark import ENCODED_MARKS, check_on, original_id
from amqsidecar.model.destination import Destination
from amqsidecar.model.sidecar_names import (
    PROPERTY_CAUSE,
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_REDELIVERY_CHECK,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_DELAY,
    PROPERTY_REDELIVERY_ID,
    PROPERTY_RULES_DIGEST,
)

_ORIGINAL_MESSAGE_ID = PROPERTY_ORIGINAL_MESSAGE_ID.encode()
_REDELIVERY_ID = PROPERTY_REDELIVERY_ID.encode()
_READ = frozenset(
    (ORIGINAL_EXPIRATION, ORIGINAL_DELIVERY_MODE, _ORIGINAL_MESSAGE_ID, _REDELIVERY_ID)
)
# Why the last: STOMP shows properties over fields, so that it would hide the true origin.
_STRIPPED_OF_FINAL = ENCODED_MARKS | {_ORIGINAL_MESSAGE_ID, b"original-destination"}
_STRIPPED = _STRIPPED_OF_FINAL | {
    *(CAUSE, ORIGINAL_EXPIRATION, ORIGINAL_DELIVERY_MODE, b"scheduledJobId"),
    PROPERTY_CAUSE.encode(),
}

_INT = Struct(">I")
_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")

_LONG_MAX = 2**63 - 1
_DESTINATIONS_MAX = 4096
# Why: group null, its sequence 0, correlation id null.
_NO_GROUP = b"\0" * 6
# Why: path of brokers null, arrival 0.
_NO_PATH = b"\0" * 9
# Why: two flags, cluster null, two broker times 0, first of its group false.
_NO_BROKER_FIELDS = b"\0" * 20


class OpenWireResendEncoder:
    """Encodes the sends of one connection, with its own message ids."""

    def __init__(
        self, connection: str, keeps_non_persistent: KeepsNonPersistent = always_keeps
    ) -> None:
        self._keeps_non_persistent = keeps_non_persistent
        self._producer = codec.producer_id(connection, 1, 1)
        self._sequence = 0
        self._destinations: dict[Destination, bytes] = {}

    def resend(
        self, resend: Resend, transaction: bytes, now_ms: int, number: int, *, answer: bool = False
    ) -> bytes:
        """Return the frame of a redelivery or of a final dead letter, with a new message id.

        Args:
            resend: the planned re-send.
            transaction: the nested transaction id.
            now_ms: the time to live starts here.
            number: the command id.
            answer: whether the broker must answer.

        Raises:
            UndecodableMessage: the dead letter can't be taken apart.

        Source: ActiveMQ Classic, RedeliveryPlugin.scheduleRedelivery and DestinationView.retry; the
            new id because the dead letter strategy's audit drops the second death of an old one.
        """
        parts = take_apart(resend.message)
        stripped = _STRIPPED_OF_FINAL if resend.is_final else _STRIPPED
        edited = EditedProperties(parts.properties, stripped, _READ)
        found = edited.found
        message_id = self._next_id()
        # Why: the broker's own number and the original transaction are no part of it.
        check = check_on(resend, message_id[:-9])
        added = [
            string_entry(PROPERTY_REDELIVERY_ID, resend.redelivery_id),
            int_entry(PROPERTY_REDELIVERY_COUNT, resend.redelivery_count),
            long_entry(PROPERTY_REDELIVERY_DELAY, resend.redelivery_delay_ms),
            string_entry(PROPERTY_REDELIVERY_CHECK, check),
            *_original_id(resend, parts, found),
        ]
        timestamp_ms, expiration_ms = parts.timestamp_ms, 0
        if resend.is_final:
            original_destination, persistent, counter = parts.original_destination, 1, 0
            if resend.expiration_ms > 0:
                expiration_ms = now_ms + resend.expiration_ms
        else:
            original_destination, persistent = codec.NULL, parts.persistent
            counter = resend.redelivery_count
            was_non_persistent = found.get(ORIGINAL_DELIVERY_MODE) == "NON_PERSISTENT"
            if was_non_persistent and self._keeps_non_persistent(resend.destination):
                persistent = 0
            original_expiration_ms = number_of(found.get(ORIGINAL_EXPIRATION))
            if original_expiration_ms > timestamp_ms > 0:
                # Why: producers write the largest long for "never", or numbers close to it.
                expiration_ms = min(now_ms + original_expiration_ms - timestamp_ms, _LONG_MAX)
                timestamp_ms = now_ms
        properties = edited.with_entries(added)
        return codec.command(
            parts.data[0],
            number,
            self._producer,
            self._destination(resend.destination),
            transaction,
            original_destination,
            b"\x01\x6e",
            parts.text_view,
            message_id,
            parts.group,
            bytes((persistent,)),
            _LONG.pack(expiration_ms),
            parts.priority,
            _LONG.pack(timestamp_ms),
            parts.body,
            b"\x01",
            _INT.pack(len(properties)),
            properties,
            parts.structure,
            bytes((0, parts.compressed)),
            _INT.pack(counter),
            _NO_PATH,
            parts.user,
            _NO_BROKER_FIELDS,
            parts.tail,
            answer=answer,
        )

    def token(
        self,
        queue: Destination,
        cycle: int,
        transaction: bytes,
        now_ms: int,
        number: int,
        *,
        rules_digest: str = "",
        answer: bool = False,
    ) -> bytes:
        """Return the frame of a token: a persistent text message, so that a console can show it.

        Args:
            cycle: the cycle number.
            transaction: the nested transaction id, or the null field.
            now_ms: its timestamp.
            number: the command id.
            rules_digest: shown by it.
            answer: whether the broker must answer.
        """
        lasting = b"\x01" + _LONG.pack(0)
        entries = (
            long_entry(CYCLE.decode(), cycle),
            string_entry(PROPERTY_RULES_DIGEST, rules_digest),
        )
        body = self._text(queue, transaction, lasting, codec.NULL, now_ms, str(cycle), entries)
        return codec.command(codec.TEXT_MESSAGE, number, body, answer=answer)

    def question(
        self,
        destination: Destination,
        reply_to: Destination,
        entries: Sequence[bytes],
        now_ms: int,
        expires_at_ms: int,
        number: int,
    ) -> bytes:
        """Return the frame of a question to the broker: an empty text that is not persistent.

        Args:
            destination: where to.
            reply_to: where the answer goes to.
            entries: its properties.
            now_ms: its timestamp.
            expires_at_ms: it is dropped then.
            number: the command id.
        """
        fleeting = b"\0" + _LONG.pack(expires_at_ms)
        reply_field = self._destination(reply_to)
        body = self._text(destination, codec.NULL, fleeting, reply_field, now_ms, "", entries)
        return codec.command(codec.TEXT_MESSAGE, number, body, answer=False)

    def _text(
        self,
        destination: Destination,
        transaction: bytes,
        lifetime: bytes,
        reply_to: bytes,
        now_ms: int,
        text: str,
        entries: Sequence[bytes],
    ) -> bytes:
        """Return the fields of a text message; `lifetime`: whether it is persistent, expiration."""
        encoded = text.encode()
        content = _INT.pack(len(encoded)) + encoded
        properties = EditedProperties(None, (), ()).with_entries(entries)
        return b"".join(
            (
                self._producer,
                self._destination(destination),
                transaction,
                codec.NULL,
                b"\x01\x6e",
                codec.NULL,
                self._next_id(),
                _NO_GROUP,
                lifetime,
                b"\x04",
                reply_to,
                _LONG.pack(now_ms),
                codec.NULL,
                b"\x01",
                _INT.pack(len(content)),
                content,
                b"\x01",
                _INT.pack(len(properties)),
                properties,
                b"\0\0\0",
                _INT.pack(0),
                _NO_PATH,
                codec.NULL,
                _NO_BROKER_FIELDS,
            )
        )

    def _destination(self, destination: Destination) -> bytes:
        field = self._destinations.get(destination)
        if field is None:
            if len(self._destinations) >= _DESTINATIONS_MAX:
                self._destinations.clear()
            field = self._destinations[destination] = codec.destination_field(destination)
        return field

    def _next_id(self) -> bytes:
        """Return producer, sequences and the null original transaction that follow a text view."""
        self._sequence += 1
        return self._producer + _TWO_LONGS.pack(self._sequence, 0) + codec.NULL


def _original_id(
    resend: Resend, parts: MessageParts, found: Mapping[bytes, PropertyValue]
) -> list[bytes]:
    """Return the entry of the original message id; none where the message shows it itself."""
    kept = found.get(_ORIGINAL_MESSAGE_ID)
    shown = original_id(
        kept if isinstance(kept, str) else None,
        None if parts.text_view[0] else message_id_text(parts),
        is_return=found.get(_REDELIVERY_ID) == resend.redelivery_id,
    )
    return [] if shown is None else [string_entry(PROPERTY_ORIGINAL_MESSAGE_ID, shown)]
