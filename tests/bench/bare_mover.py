"""The least that Python can do to move dead letters: one thread, our own wire, no store, no policy.

It consumes, sets the address, replaces one property, sends, acknowledges and commits, in
transactions; what the sidecar takes beyond it is for its promises.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from amqsidecar.brokers.connection.waker import Waker
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.session import CoreDelivery, CoreSession
from amqsidecar.clock import SystemClock
from amqsidecar.formats.core.message import CoreProperty, CorePropertyType, edit_properties
from support.brokers import Broker
from support.waiting import PATIENCE_S

BATCH = 500
WINDOW_BYTES = 4 * 2**20


class BareMoved(NamedTuple):
    """How fast it was, and the processor time that each message took."""

    per_second: float
    cpu_us: float


def move_bare(broker: Broker, source: str, target: str, count: int) -> BareMoved:
    """Move so many messages over Core, without those of the connection's beginning and end."""
    with closing(Waker()) as waker:
        connection = CoreConnection(broker.endpoint("PORT"), SystemClock(), waker)
        connection.open()
        with closing(connection):
            session = connection.create_session(is_transacted=True)
            session.create_consumer(source, window_bytes=WINDOW_BYTES)
            session.start()
            began_s, cpu_s = time.perf_counter(), time.process_time()
            for deliveries in _batches(connection, session, count):
                _move(session, deliveries, target)
            cpu_us = (time.process_time() - cpu_s) / count * 1e6
            return BareMoved(count / (time.perf_counter() - began_s), cpu_us)


def _batches(
    connection: CoreConnection, session: CoreSession, count: int
) -> Iterator[list[CoreDelivery]]:
    ends_s = time.monotonic() + PATIENCE_S
    while count:
        size = min(BATCH, count)
        while len(session.deliveries) < size:
            assert time.monotonic() < ends_s, f"{count} messages did not come"
            connection.wait(1)
        yield [session.deliveries.popleft() for _ in range(size)]
        count -= size


def _move(session: CoreSession, deliveries: list[CoreDelivery], target: str) -> None:
    for delivery in deliveries:
        message = delivery.message
        duplicate = CoreProperty(CorePropertyType.STRING, f"bare-{message.message_id}")
        properties = edit_properties(message.properties, {"_AMQ_DUPL_ID": duplicate})
        session.send(message._replace(address=target, properties=properties))
        session.give_back(delivery)
    session.acknowledge(deliveries[-1])
    session.commit()
