"""Looking into a dead-letter queue of Artemis over Core, without taking anything."""

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import QUEUE_MISSING, CoreRefused
from amqsidecar.brokers.core.session import CoreSession, is_forced
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.artemis_properties import OriginReader
from amqsidecar.formats.core_artemis_message import ENCODING, keep_large, read_provenance

_BYTES_MAX = 64 * 1024 * 1024
_WINDOW_BYTES = 1 << 20


def browse_core(
    session: CoreSession,
    queue: IntakeQueue,
    at_most: int,
    read_origin: OriginReader,
    timeout_s: float,
    selector: str,
) -> list[Delivery]:
    """Return a queue's messages, up to a number and a size; a missing one is empty.

    A message that is too large to be taken is left out.

    Raises:
        BrokerRefused: the user may not browse.
        LinkLost: the connection is gone, or nothing comes in `timeout_s`.
    """
    name = queue.destination.name.rpartition("::")[2]
    try:
        browser = session.create_consumer(
            name, selector or None, window_bytes=_WINDOW_BYTES, browse_only=True
        )
    except CoreRefused as refused:
        if refused.kind == QUEUE_MISSING:
            return []
        raise BrokerRefused(
            f"can't browse {name}: {refused}; allow the user to browse it"
        ) from refused
    found: list[Delivery] = []
    held_bytes = 0
    is_done, has_come = False, False
    session.force_delivery(browser)
    clock = session.wire.clock
    deadline_s = clock.monotonic_s() + timeout_s
    try:
        while not is_done:
            for delivery in session.take_from(browser):
                session.give_back(delivery)
                if is_forced(delivery.message):
                    is_done = is_done or not (has_come or session.is_receiving(browser))
                    has_come = False
                    session.force_delivery(browser)
                    continue
                has_come = True
                if delivery.too_large_bytes:
                    continue
                encoded = encoded_of(delivery)
                if is_done or len(found) >= at_most or held_bytes > _BYTES_MAX:
                    is_done = True
                    continue
                provenance = read_provenance(delivery.message, queue, read_origin=read_origin)
                found.append(Delivery(None, queue.destination, encoded, provenance, ENCODING))
                held_bytes += len(encoded)
                deadline_s = clock.monotonic_s() + timeout_s
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                raise LinkLost(f"browsing {name} did not end in {timeout_s:g} s")
            if not is_done:
                session.wire.wait(left_s)
    finally:
        session.close_consumer(browser)
    return found


def encoded_of(delivery: CoreDelivery) -> bytes:
    """Return a delivery's message as the store keeps it; closes its large body."""
    if delivery.large_body is None:
        return delivery.encoded
    with delivery.large_body as body:
        return keep_large(delivery.message, body.read())
