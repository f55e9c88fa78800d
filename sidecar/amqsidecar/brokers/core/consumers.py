"""Deliveries to one consumer of Core: credits, and a large message in pieces.

Large messages are spooled: in memory while they are small, then in a file without a name.
"""

from tempfile import SpooledTemporaryFile
from typing import IO, NamedTuple

from amqsidecar.formats.core import message_packets
from amqsidecar.formats.core.message import CoreMessage, decode_message
from amqsidecar.formats.core.primitives import CoreProtocolError

_SPOOLED_IN_MEMORY_BYTES = 1 << 20
LARGE_BYTES_MAX = 256 * 2**20
"""Of a larger message nothing is kept but its head."""

# Why not 0: the broker answers `force_delivery` without credit.
_UNCREDITED_BYTES_MAX = 1 << 20


class CoreDelivery(NamedTuple):
    """A message that was handed out to a consumer.

    Attributes:
        consumer: its number.
        message: its headers and properties.
        delivery_count: 1 = delivered for the first time.
        credit_bytes: that it holds; `CoreSession.give_back` returns them.
        encoded: the message as the packet has it; b"" where it is large.
        large_body: at its beginning; the caller closes it. None = it is not large, or too large.
        too_large_bytes: of a body above `LARGE_BYTES_MAX`, which was not kept; 0 = it is not.
    """

    consumer: int
    message: CoreMessage
    delivery_count: int
    credit_bytes: int
    encoded: bytes
    large_body: IO[bytes] | None = None
    too_large_bytes: int = 0

    def whole(self) -> CoreMessage:
        """Return the message with its body, unless it is large."""
        return decode_message(self.encoded) if self.encoded else self.message


class _Arriving(NamedTuple):
    """A large message arrives in pieces.

    Attributes:
        head: its first packet.
        body: its bytes so far.
        held_bytes: the credits that it holds.
    """

    head: message_packets.ReceiveLarge
    body: IO[bytes]
    held_bytes: int


class _Skipping(NamedTuple):
    """A large message arrives in pieces that are dropped: it is too large."""


class _Whole(NamedTuple):
    """Every message handed out has arrived whole."""


class SessionConsumer:
    """The counters of a consumer, and the large message that it is receiving.

    Attributes:
        window_bytes: maximum credit.
        granted_bytes: credit left to the broker; negative = its last message took more.
        uncredited_bytes: handed out since the credits were used up.
        owed_bytes: credit returned by the caller, and not yet granted to the broker.
        large: how far a large message has arrived.
    """

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.granted_bytes = 0
        self.uncredited_bytes = 0
        self.owed_bytes = 0
        self.large: _Whole | _Arriving | _Skipping = _Whole()

    def use(self, size_bytes: int) -> None:
        """Note that the broker has handed out bytes.

        Raises:
            CoreProtocolError: there was no credit for it.
        """
        self.uncredited_bytes = 0 if self.granted_bytes > 0 else self.uncredited_bytes + size_bytes
        if self.uncredited_bytes > _UNCREDITED_BYTES_MAX:
            raise CoreProtocolError("more was handed out than there was credit for")
        self.granted_bytes -= size_bytes

    def drop_large(self) -> None:
        """Drop a large message that is arriving; its credits are owed."""
        if isinstance(self.large, _Arriving):
            self.large.body.close()
            self.owed_bytes += self.large.held_bytes
        self.large = _Whole()

    @property
    def is_receiving(self) -> bool:
        """Whether it has the beginning of a large message, and not its end."""
        return not isinstance(self.large, _Whole)

    def begin_large(
        self, packet: message_packets.ReceiveLarge, frame_bytes: int
    ) -> list[CoreDelivery]:
        """Take in the head of a large message; return it alone where it is too large.

        Raises:
            CoreProtocolError: there was no credit for it.
        """
        self.use(frame_bytes)
        self.drop_large()
        if packet.body_bytes <= LARGE_BYTES_MAX:
            body = SpooledTemporaryFile(max_size=_SPOOLED_IN_MEMORY_BYTES)  # noqa: SIM115
            self.large = _Arriving(packet, body, frame_bytes)
            return []
        self.large = _Skipping()
        head = CoreDelivery(
            packet.consumer_id,
            packet.message,
            packet.delivery_count,
            frame_bytes,
            b"",
            too_large_bytes=packet.body_bytes,
        )
        return [head]

    def continue_large(
        self, packet: message_packets.ReceiveContinuation, frame_bytes: int
    ) -> list[CoreDelivery]:
        """Take in a piece of a large message; return the message if it is the last one.

        Raises:
            CoreProtocolError: there was no credit for it, or the message is not as announced.
        """
        self.use(frame_bytes)
        if not isinstance(self.large, _Arriving):
            # It is too large, or was dropped while it arrived.
            self.owed_bytes += frame_bytes
            if not packet.continues:
                self.large = _Whole()
            return []
        head, body, held_bytes = self.large
        body.write(packet.piece)
        # Why half: two large messages may be ahead; more would fill the disk.
        kept_bytes = min(frame_bytes, max(0, self.window_bytes // 2 - held_bytes))
        held_bytes += kept_bytes
        self.owed_bytes += frame_bytes - kept_bytes
        self.large = _Arriving(head, body, held_bytes)
        if packet.continues and body.tell() <= head.body_bytes:
            return []
        if packet.continues or body.tell() != head.body_bytes:
            raise CoreProtocolError(
                f"a large message has {body.tell()} bytes where {head.body_bytes} were announced"
            )
        body.seek(0)
        self.large = _Whole()
        number, count = packet.consumer_id, head.delivery_count
        return [CoreDelivery(number, head.message, count, held_bytes, b"", body)]
