"""Looking into a dead-letter queue of Artemis without taking anything.

Quirk (Artemis 2.44): a browse over AMQP is not harmless. A message that the broker can't convert to
AMQP (a StreamMessage with bytes, made by a Core or OpenWire client) stays in its queue, and a copy
of it goes to the dead-letter address: one more at each look. So the broker's management is asked
to list what is there; where that is not possible, only what needs no conversion is browsed.
"""

from amqsidecar.broker import (
    Delivery,
    IntakeQueue,
)
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import AmqpDelivery, Receiver
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.amqp_artemis_message import ENCODING, read_provenance
from amqsidecar.formats.artemis_properties import OriginReader

NEEDS_NO_CONVERSION = "__AMQ_CID IS NULL"
"""Selector of messages of STOMP and MQTT clients: those of Core and OpenWire clients have this."""

BROWSABLE = f"{MADE_BY_AMQP} OR {NEEDS_NO_CONVERSION}"
"""Selector of what can be browsed without a conversion that may fail."""

_BYTES_MAX = 64 * 1024 * 1024
_FIRST_ASKED = 10
_ASKED_MAX = 500


def browse_convertible(
    connection: AmqpConnection,
    link_name: str,
    queue: IntakeQueue,
    at_most: int,
    read_origin: OriginReader,
    selector: str,
) -> list[Delivery]:
    """Return the messages that match a selector, up to a number and a size.

    Raises:
        BrokerRefused: the user may not browse, or it is a queue that can't be browsed safely.
        LinkLost: the connection is gone, or the broker does not answer in `timeout_s`.
    """
    name = queue.destination.name
    if "::" in name:
        # Quirk (Artemis): without the capability `queue`, a selector on a multicast queue by its
        # fully qualified name ends the connection.
        raise BrokerRefused(
            f"can't look into {name} without the right to manage the broker: allow the user to "
            "send and manage on activemq.management"
        )
    receiver = Receiver(
        connection,
        link_name,
        name,
        capability="queue",
        is_browsing=True,
        selector=selector,
    )
    found: list[Delivery] = []
    held_bytes = 0
    asked = _FIRST_ASKED
    try:
        while len(found) < at_most and held_bytes < _BYTES_MAX:
            asked = min(asked, at_most - len(found))
            arrived = _next(connection, receiver, asked)
            for in_hand, message in arrived:
                receiver.accept(in_hand)
                provenance = read_provenance(message, queue, read_origin=read_origin)
                found.append(Delivery(None, queue.destination, message, provenance, ENCODING))
                held_bytes += len(message)
            if len(arrived) < asked:
                break
            mean_bytes = held_bytes // len(found) + 1
            asked = max(1, min(_ASKED_MAX, (_BYTES_MAX - held_bytes) // mean_bytes))
    finally:
        receiver.end()
    return found


def _next(
    connection: AmqpConnection, receiver: Receiver, asked: int
) -> list[tuple[AmqpDelivery, bytes]]:
    """Return the next messages; fewer than requested = the last ones."""
    receiver.drain(asked)
    is_done = connection.run_until(lambda: receiver.is_drained or receiver.refusal)
    if receiver.refusal is not None:
        raise BrokerRefused(
            f"can't browse {receiver.address}: {receiver.refusal}; allow the user to browse it"
        )
    if not is_done:
        raise LinkLost(f"browsing {receiver.address} did not end in {connection.timeout_s:g} s")
    return receiver.take_arrived(asked)
