"""The frames by which the listener saves a message, on Artemis; no IO."""

from typing import Final, NamedTuple

from amqsidecar.formats.artemis_properties import INTERCEPTION_ID_PREFIX, number_of
from amqsidecar.formats.interception_seal import seal
from amqsidecar.formats.stomp_artemis_message import (
    SEAL,
    GivenUp,
    created_ms_of,
    interception_headers,
)
from amqsidecar.formats.stomp_frame import first, read_head, write_head
from amqsidecar.formats.stomp_stream import header_lines, raw_header
from amqsidecar.listener.stomp.unacked import UnackedMessage
from amqsidecar.model.sidecar_names import PROPERTY_CAUSE

REASON_HEADERS: Final = (PROPERTY_CAUSE, "reason", "message", "error", "cause")
"""Headers of a NACK in which a client may say why, the first one first."""

_OF_AN_ACK: Final = (b"id", b"message-id", b"subscription")


class Nack(NamedTuple):
    """The consumer that gave messages up, and its reason.

    Attributes:
        user: login, else client id.
        client_id: of its connection; "" = none.
        session: the broker's name of the connection.
        reason: in its own words; "" = none.
        prefixes: prefixes of destination names that the acceptor removes.
        version: of STOMP on its connection.
    """

    user: str
    client_id: str
    session: str
    reason: str
    prefixes: tuple[str, ...]
    version: bytes = b"1.2"

    def without_prefix(self, destination: str) -> str:
        """Return a destination without the acceptor's prefix."""
        found = next((one for one in self.prefixes if destination.startswith(one)), "")
        return destination.removeprefix(found)

    @property
    def cause(self) -> str:
        """Why the message died, for its history."""
        said = f": {self.reason}" if self.reason else ""
        return f"intercepted at the NACK of {self.user}{said}"


def reason_of(head: bytes) -> str:
    """Return the reason that the headers of a NACK give; "" = none."""
    headers = read_head(header_lines(head))
    found = (first(headers, name.encode()) for name in REASON_HEADERS)
    return next((value.decode(errors="replace") for value in found if value), "")


def ack_frame(head: bytes, receipt: bytes = b"") -> bytes:
    """Return the ACK of the messages that an ACK or a NACK names.

    Args:
        receipt: to ask for, escaped; b"" = none.
    """
    lines = [b"%b:%b\n" % (name, value) for name in _OF_AN_ACK if (value := raw_header(head, name))]
    if receipt:
        lines.append(b"receipt:%b\n" % receipt)
    return b"ACK\n%b\n\0" % b"".join(lines)


def send_head(
    message: UnackedMessage, nack: Nack, receipt: bytes, key: bytes | None = None
) -> bytes:
    """Return the head of the SEND that saves a message.

    Args:
        message: the given-up message.
        receipt: to ask for.
        key: key that seals the copy; None = no seal.

    Raises:
        OSError: kept bytes of the message can't be read.
    """
    headers = read_head(header_lines(message.head))
    address = nack.without_prefix((first(headers, b"destination") or b"").decode(errors="replace"))
    queue = _queue_of(message, nack)
    number = (first(headers, b"message-id") or b"").rpartition(b",")[2].decode(errors="replace")
    sent = interception_headers(
        GivenUp(headers, message.body.size, message.body.has_nul, address, queue, nack.cause),
        # Why the subscription: a message has one number in all its queues.
        f"{INTERCEPTION_ID_PREFIX}{number}:{message.subscription.destination}:{queue or address}",
    )
    if key is not None:
        properties = {
            name.decode(errors="replace"): value.decode(errors="replace")
            for name, value in reversed(sent)
        }
        named = number_of(number, created_ms_of(headers))
        sent.append((SEAL, seal(key, named, properties, message.body.digest()).encode()))
    sent.append((b"receipt", receipt))
    return b"SEND\n%b\n" % write_head(sent, is_1_1=nack.version == b"1.1")


def _queue_of(message: UnackedMessage, nack: Nack) -> str:
    """Return the queue that a message was in; "" = that with the name of its address.

    A subscription of a topic that is not durable has a queue that ends with its connection. Its
    name is not shown. The name in its place is that of no queue, so that a redelivery is not sent
    to the other subscribers of the topic: it is parked.
    """
    subscription = message.subscription
    destination = nack.without_prefix(subscription.destination)
    _, separator, queue = destination.partition("::")
    if separator:
        return queue
    if raw_header(message.head, b"destination-type") != b"MULTICAST":
        return destination if "*" in destination or "#" in destination else ""
    if subscription.durable_name:
        return f"{nack.client_id}.{subscription.durable_name}"
    return f"amqsidecar.not-durable.{nack.session}"
