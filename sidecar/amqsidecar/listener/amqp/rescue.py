"""The copies by which the listener saves what was given up over AMQP, on Artemis; no IO."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_artemis_message import RejectedMessage, encode_interception
from amqsidecar.formats.amqp_frames import (
    ERROR,
    FALSE,
    TRANSACTIONAL_STATE,
    TRANSFER,
    TRUE,
    binary,
    described,
    frame_of,
    read_described,
)
from amqsidecar.formats.artemis_properties import ANYCAST, MULTICAST, Origin
from amqsidecar.listener.amqp.deliveries import ConsumerLink, UnsettledMessage

BEGINNING_BYTES_MAX: Final = 1 << 20
"""What precedes a body may be so long; a message with more can't be saved."""

_FRAME_HEAD_BYTES_MAX: Final = 128


class ClientIdentity(NamedTuple):
    """Who rejects messages.

    Attributes:
        login: user; "" = not known.
        container: id of the connection.
        prefixes: that the acceptor cuts off the names of addresses.
    """

    login: str
    container: str
    prefixes: tuple[str, ...]

    def cause(self, error: bytes) -> str:
        """Return why a message died, for its history, from an encoded error or null."""
        code, fields = read_described(error)
        said = [amqp.scalar(one) for one in (fields[:2] if code == ERROR else [])]
        reason = ": ".join(one for one in said if isinstance(one, str) and one)
        who = self.login or "an AMQP client"
        return f"intercepted at the reject of {who}" + (f": {reason}" if reason else "")

    def origin(self, link: ConsumerLink) -> Origin:
        """Return the queue that a link reads.

        Source: Artemis, ProtonServerSenderContext.createQueueName.
        """
        prefix = next((one for one in self.prefixes if link.address.startswith(one)), "")
        address, _, queue = link.address.removeprefix(prefix).partition("::")
        if queue or not link.is_topic:
            return Origin(address, queue or address, ANYCAST)
        if not link.is_durable:
            # Why: the name of no queue, so that a redelivery is parked and reaches no other one.
            return Origin(address, f"amqsidecar.not-durable.{self.container}", MULTICAST)
        has_client = bool(self.container) and not link.is_global
        queue = f"{self.container}.{link.name}" if has_client else link.name
        if link.is_shared:
            queue = queue.partition("|")[0] + (":global" if link.is_global else "")
        return Origin(address, queue, MULTICAST)


class Copy:
    """A copy of a message for the intake queue.

    Attributes:
        size: of the encoded message.
    """

    def __init__(self, message: UnsettledMessage, client: ClientIdentity, cause: str) -> None:
        """Take a message apart.

        Raises:
            UndecodableMessage: that can't be done.
            OSError: what was kept can't be read.
        """
        beginning = b""
        for piece in message.body.pieces():
            beginning += piece
            if len(beginning) >= BEGINNING_BYTES_MAX:
                break
        try:
            sections, self._body_at = amqp.split_head(beginning)
        except UndecodableMessage as error:
            raise UndecodableMessage(f"its properties can't be read: {error}") from None
        self._head = encode_interception(
            RejectedMessage(sections, client.origin(message.link), cause)
        )
        self._body = message.body
        self.size = len(self._head) + message.body.size - self._body_at

    def frames(self, frame_bytes: int) -> int:
        """Return how many frames it takes."""
        return -(-self.size // (frame_bytes - _FRAME_HEAD_BYTES_MAX))

    def transfer(
        self, channel: int, handle: int, number: int, transaction: bytes, frame_bytes: int
    ) -> "FramedCopy":
        """Return the transfer of it in a transaction."""
        state = described(TRANSACTIONAL_STATE, [binary(transaction)])
        first = [
            amqp.unsigned(handle),
            amqp.unsigned(number),
            binary(number.to_bytes(4)),
            amqp.unsigned(0),
            FALSE,
        ]
        return FramedCopy(self, channel, first, state, frame_bytes - _FRAME_HEAD_BYTES_MAX)

    def content(self) -> Iterator[bytes]:
        """Yield the encoded message."""
        yield self._head
        skipped = 0
        for piece in self._body.pieces():
            left = max(0, self._body_at - skipped)
            skipped += len(piece)
            if left < len(piece):
                yield piece[left:]


class FramedCopy(NamedTuple):
    """The frames of a copy, which are made as they are sent."""

    copy: Copy
    channel: int
    fields: list[bytes]
    state: bytes
    payload_bytes: int

    def pieces(self) -> Iterator[bytes]:
        """Yield the frames.

        Raises:
            OSError: what was kept can't be read.
        """
        left = self.copy.size
        waiting = bytearray()
        for piece in self.copy.content():
            waiting += piece
            while len(waiting) >= self.payload_bytes or (waiting and len(waiting) == left):
                payload = bytes(waiting[: self.payload_bytes])
                del waiting[: self.payload_bytes]
                left -= len(payload)
                more = TRUE if left else FALSE
                fields = [*self.fields, more, amqp.NULL, self.state]
                yield frame_of(self.channel, TRANSFER, fields, payload)
