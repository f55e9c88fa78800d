"""The least that Python can do to move dead letters: one thread, our own wire, no store, no policy.

It consumes, sets the address, replaces properties, sends, acknowledges and commits, in
transactions; what the sidecar takes beyond it is for its promises. Over Core it replaces one
property by the codec; over OpenWire it makes the re-sends by the sidecar's own encoder.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from amqsidecar.broker import Resend
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.consumers import (
    MessageHandle,
    OpenWireConsumer,
    OpenWireConsumers,
    ack_fields,
)
from amqsidecar.clock import SystemClock
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.core.message import (
    CoreProperty,
    CorePropertyType,
    edit_properties,
    encode_headers,
    end_of_body,
)
from amqsidecar.formats.openwire_dead_letter import read_dead_letter
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import queue
from support.brokers.real import ArtemisBroker, Broker
from support.waiting import PATIENCE_S

BATCH = 500
WINDOW_BYTES = 4 * 2**20


class BareMoved(NamedTuple):
    """How fast it was, and the processor time that each message took."""

    per_second: float
    cpu_us: float


def move_bare(broker: Broker, source: str, target: str, count: int) -> BareMoved:
    """Move this many messages over Core or OpenWire; connecting does not count."""
    move = _move_by_core if isinstance(broker, ArtemisBroker) else _move_by_openwire
    return move(broker, source, target, count)


def _move_by_core(broker: Broker, source: str, target: str, count: int) -> BareMoved:
    with closing(CoreConnection(broker.endpoint("PORT"), SystemClock())) as connection:
        session = connection.create_session(is_transacted=True)
        session.create_consumer(source, window_bytes=WINDOW_BYTES)
        session.start()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        for deliveries in _batches(connection, session, count):
            _move(session, deliveries, target)
        cpu_us = (time.process_time() - cpu_s) / count * 1e6
        return BareMoved(count / (time.perf_counter() - began_s), cpu_us)


def _move_by_openwire(broker: Broker, source: str, target: str, count: int) -> BareMoved:
    clock, endpoint = SystemClock(), broker.endpoint("OPENWIRE_PORT")
    with closing(OpenWireConnection(endpoint, clock)) as connection:
        name = connection.connection
        login = codec.connection_info(name, "bare", endpoint.user, endpoint.credentials.secret())
        connection.call(codec.CONNECTION_INFO, login)
        connection.call(codec.SESSION_INFO, codec.session_id(name))
        producer = codec.producer_info(codec.producer_id(name, 1, 1))
        connection.call(codec.PRODUCER_INFO, producer)
        arrived: deque[bytes] = deque()

        def take(_consumer: OpenWireConsumer, _field: bytes, message: bytes | None) -> None:
            arrived.append(message or b"")

        consumers = OpenWireConsumers(connection, clock)
        consumer = consumers.add(queue(source), 2 * BATCH, take=take)
        encoder = OpenWireResendEncoder(name)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        ends_s, left, number = time.monotonic() + PATIENCE_S, count, 0
        while left:
            size = min(BATCH, left)
            consumers.route()
            while len(arrived) < size:
                assert time.monotonic() < ends_s, f"{left} messages did not come"
                connection.wait(1)
                consumers.route()
            number += 1
            batch = [arrived.popleft() for _ in range(size)]
            _move_batch(connection, consumer, encoder, batch, target, number)
            left -= size
        cpu_us = (time.process_time() - cpu_s) / count * 1e6
        return BareMoved(count / (time.perf_counter() - began_s), cpu_us)


def _move_batch(
    connection: OpenWireConnection,
    consumer: OpenWireConsumer,
    encoder: OpenWireResendEncoder,
    messages: list[bytes],
    target: str,
    number: int,
) -> None:
    own = codec.connection_id(connection.connection)
    transaction = codec.transaction_id(connection.connection, number)
    begin = codec.transaction_info(own, transaction, codec.BEGIN)
    connection.send(codec.TRANSACTION_INFO, begin)
    for message in messages:
        resend = Resend(
            destination=queue(target),
            message=message,
            is_final=False,
            redelivery_id="bare",
            redelivery_count=1,
            redelivery_delay_ms=0,
        )
        command = connection.next_number()
        connection.write_soon(encoder.resend(resend, transaction, 0, command))
    first, last = (
        MessageHandle(
            consumer,
            consumer.field,
            read_dead_letter(messages[at], consumer.destination, 0)[1],
            place,
        )
        for at, place in ((0, 1), (-1, len(messages)))
    )
    connection.send(codec.MESSAGE_ACK, ack_fields(transaction, first, last))
    commit = codec.transaction_info(own, transaction, codec.COMMIT_ONE_PHASE)
    connection.call(codec.TRANSACTION_INFO, commit)


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
        sent = message._replace(address=target, properties=properties)
        body = delivery.encoded[: end_of_body(delivery.encoded)]
        session.send(body, encode_headers(sent))
        session.give_back(delivery)
    session.acknowledge(deliveries[-1])
    session.commit()
