"""Looking into a dead-letter queue of Artemis over AMQP, without taking anything."""

import cproton

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp_connection import AmqpConnection
from amqsidecar.brokers.amqp_intake import readable_selector
from amqsidecar.brokers.amqp_links import InHand, Receiver
from amqsidecar.brokers.amqp_message import OriginReader, read_provenance
from amqsidecar.errors import BrokerRefused, LinkLost

_BYTES_MAX = 64 * 1024 * 1024
_FIRST_ASKED = 10
_ASKED_MAX = 500


def browse(
    connection: AmqpConnection,
    link_name: str,
    queue: IntakeQueue,
    at_most: int,
    read_origin: OriginReader,
    timeout_s: float,
) -> list[Delivery]:
    """Return what lies in a queue, from its head, until they are many or hold many bytes.

    Raises:
        BrokerRefused: the user may not browse.
        LinkLost: the connection is gone, or the broker does not answer in `timeout_s`.
    """
    name = queue.destination.name
    is_plain = "::" not in name
    receiver = Receiver(
        connection,
        link_name,
        name,
        capability="queue" if is_plain else None,
        is_browsing=True,
        selector=readable_selector(name) if is_plain else "",
    )
    found: list[Delivery] = []
    held_bytes = 0
    asked = _FIRST_ASKED
    try:
        while len(found) < at_most and held_bytes < _BYTES_MAX:
            asked = min(asked, at_most - len(found))
            arrived = _next(connection, receiver, asked, timeout_s)
            for in_hand, message in arrived:
                receiver.settle(in_hand, cproton.PN_ACCEPTED)
                provenance = read_provenance(
                    message, expires=queue.expires, read_origin=read_origin
                )
                found.append(Delivery(None, queue.destination, message, provenance))
                held_bytes += len(message)
            if len(arrived) < asked:
                break
            mean_bytes = held_bytes // len(found) + 1
            asked = max(1, min(_ASKED_MAX, (_BYTES_MAX - held_bytes) // mean_bytes))
    finally:
        receiver.close()
    if connection.run_until(lambda: receiver.is_closed, timeout_s):
        receiver.forget()
    return found


def _next(
    connection: AmqpConnection, receiver: Receiver, asked: int, timeout_s: float
) -> list[tuple[InHand, bytes]]:
    """Return the next messages; fewer than asked for = there are no more."""
    receiver.drain(asked)
    is_done = connection.run_until(lambda: receiver.is_drained or receiver.refusal, timeout_s)
    if receiver.refusal is not None:
        raise BrokerRefused(
            f"can't browse {receiver.address}: {receiver.refusal}; allow the user to browse it"
        )
    if not is_done:
        raise LinkLost(f"browsing {receiver.address} did not come to an end in {timeout_s:g} s")
    return receiver.take_arrived(asked)
