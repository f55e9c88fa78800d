"""The listener's copies of messages given up over AMQP on Artemis; no IO."""

from collections.abc import Iterator
from hashlib import sha256
from secrets import token_hex
from typing import Final, NamedTuple

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_artemis_message import (
    ENCODING,
    RejectedMessage,
    encode_interception,
)
from amqsidecar.formats.amqp_frames import Performative
from amqsidecar.formats.artemis_properties import ANYCAST, MULTICAST, Origin
from amqsidecar.formats.interception_seal import OF_AMQP, seal
from amqsidecar.listener.amqp.deliveries import ClientChannel, ConsumerLink, UnsettledMessage
from amqsidecar.listener.amqp.notes import Answer
from amqsidecar.listener.amqp.own_session import COPIES, NOTES, Parcel
from amqsidecar.listener.session import NackOutcome, Settled
from amqsidecar.messages.interceptions import read_sealed

BEGINNING_BYTES_MAX: Final = 1 << 20
"""Maximum bytes before a body; a message with more can't be saved."""


class ClientIdentity(NamedTuple):
    """The client that rejects messages."""

    login: str
    container: str
    prefixes: tuple[str, ...]

    def cause(self, outcome: str, reason: str) -> str:
        """Return why a message died, for its history.

        Args:
            outcome: the client's answer.
            reason: in its own words; "" = none.
        """
        who = self.login or "an AMQP client"
        return f"intercepted at the {outcome} of {who}" + (f": {reason}" if reason else "")

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
    """A copy of a message for the intake queue."""

    def __init__(
        self, message: UnsettledMessage, client: ClientIdentity, cause: str, key: bytes | None
    ) -> None:
        """Take a message apart.

        Raises:
            UndecodableMessage: that can't be done.
            OSError: kept bytes can't be read.
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
        self._body = message.body
        given_up = RejectedMessage(sections, client.origin(message.link), cause)
        self._head = encode_interception(given_up)
        if key is not None:
            properties = read_sealed(ENCODING, self._head) or {}
            # Why chance: AMQP does not show the broker's number.
            number = token_hex(16) + OF_AMQP
            sealed = seal(key, number, properties, self._body_digest())
            self._head = encode_interception(given_up._replace(seal=sealed))
        self.size = len(self._head) + message.body.size - self._body_at

    @property
    def parcel(self) -> Parcel:
        """It as a message to send."""
        return Parcel(COPIES, self.size, self.content)

    def content(self) -> Iterator[bytes]:
        """Yield the encoded message."""
        yield self._head
        yield from self._body_pieces()

    def _body_digest(self) -> bytes:
        found = sha256()
        for piece in self._body_pieces():
            found.update(piece)
        return found.digest()

    def _body_pieces(self) -> Iterator[bytes]:
        skipped = 0
        for piece in self._body.pieces():
            left = max(0, self._body_at - skipped)
            skipped += len(piece)
            if left < len(piece):
                yield piece[left:]


class Rescue(NamedTuple):
    """One disposition, and the messages to send before it is settled.

    Attributes:
        said: the client's disposition.
        raw: its frame.
        forward: bytes for the broker after all sends; b"" = the transaction has the acceptance.
    """

    channel: ClientChannel
    said: Performative
    raw: bytes
    answer: Answer
    messages: list[UnsettledMessage]
    parcels: list[Parcel]
    forward: bytes

    @property
    def numbers(self) -> list[bytes]:
        """The first and the last delivery that it is about, encoded."""
        first = self.said.number(1)
        return [amqp.unsigned(first), amqp.unsigned(self.said.number(2, first))]

    @property
    def needs_notes(self) -> bool:
        """Whether the messages to send include a note."""
        return any(one.link == NOTES for one in self.parcels)

    def settled(self, outcome: NackOutcome, why: str = "") -> Settled:
        """Return the outcome of its messages."""
        return Settled(self.answer.how, outcome, len(self.messages), why)
