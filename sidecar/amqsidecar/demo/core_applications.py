"""Producers and consumers that speak Core; consumers fail by undoing their transaction.

Artemis puts a message into the dead-letter queue when its last delivery attempt is undone.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final
from uuid import uuid1

from amqsidecar.brokers.connection.byte_stream import Waker
from amqsidecar.brokers.connection.credentials import NO_PASSWORD, Credentials
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import QUEUE_EXISTS, CoreRefused
from amqsidecar.brokers.core.session import CoreSession, is_forced
from amqsidecar.brokers.core_artemis.look import hang_up
from amqsidecar.clock import SystemClock
from amqsidecar.demo.applications import ID, SENT_BY_DEMO, ConsumedMessage, ConsumerRecord, paced
from amqsidecar.errors import LinkLost
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import (
    TEXT_MESSAGE,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    new_message,
    read_core_properties,
)
from amqsidecar.formats.core.primitives import NULLABLE_SIMPLE_STRING
from amqsidecar.formats.core_artemis_message import message_id_of

_LOOK_EVERY_S: Final = 1.0
_STOP_WITHIN_S: Final = 10.0
# Why so few: one message at a time, so that a consumer that fails hands nothing else back.
_WINDOW_BYTES: Final = 1
_DISCARD_BYTES: Final = 1 << 20


def endpoint_at(
    host: str, port: int, user: str | None = None, credentials: Credentials = NO_PASSWORD
) -> Endpoint:
    """Return a connector with the patience that a demo has on one machine."""
    return Endpoint(host, port, user, credentials, connect_timeout_s=10.0, idle_timeout_s=30.0)


class CoreApplications:
    """Applications that speak Core, each on a connection of its own."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._consumers: list[CoreConsumer] = []

    def consume(self, queue: str, failures: int) -> "CoreConsumer":
        """Start a consumer; see `Applications`. Makes the queue if it is missing.

        Raises:
            LinkLost: the broker can't be reached, or refuses.
        """
        with _session(self._endpoint) as (_, session):
            _make_sure_of(session, queue)
        consumer = CoreConsumer(self._endpoint, queue, failures)
        self._consumers.append(consumer)
        consumer.start()
        return consumer

    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        """Send messages and wait until the broker has them; see `Applications`.

        Makes the queue if it is missing.

        Raises:
            LinkLost: the connection was lost, or the broker did not take a message.
        """
        with _session(self._endpoint) as (_, session):
            _make_sure_of(session, queue)
            for one in paced(ids, per_second):
                [refused] = session.answers([session.ask_send(_message(queue, one))])
                if refused is not None:
                    raise refused

    def is_empty(self, queue: str) -> bool:
        """Return whether no message is in a queue, or there is no such queue.

        Raises:
            LinkLost: the broker can't be reached, or refuses.
        """
        with _session(self._endpoint) as (_, session):
            answer = session.ask_queue(queue)
        return not (answer.exists and answer.message_count)

    def existing(self, queues: Sequence[str]) -> frozenset[str]:
        """Return which of these queues the broker has.

        Raises:
            LinkLost: the broker can't be reached, or refuses.
        """
        with _session(self._endpoint) as (_, session):
            return frozenset(one for one in queues if session.ask_queue(one).exists)

    def disconnect(self) -> None:
        """Stop every consumer; what they have not answered stays in its queue."""
        for consumer in self._consumers:
            consumer.stop()

    def discard(self, queue: str) -> None:
        """Consume what `fill` of this or another demo sent and is still in a queue.

        Messages of others stay. If the process dies inside, none of them is consumed.

        Raises:
            LinkLost: the broker can't be reached, or refuses.
        """
        if self.is_empty(queue):
            return
        with _session(self._endpoint, is_transacted=True) as (connection, session):
            consumer = session.create_consumer(queue, SENT_BY_DEMO, window_bytes=_DISCARD_BYTES)
            session.start()
            while _acknowledge_all(connection, session, consumer):
                pass
            session.commit()


class CoreConsumer:
    """Consumes a queue in a thread, and fails with each message as often as it is to fail."""

    def __init__(self, endpoint: Endpoint, queue: str, failures: int) -> None:
        """Prepare; nothing is connected yet."""
        self._endpoint = endpoint
        self._queue = queue
        self._record = ConsumerRecord(failures)
        self._is_stopping = threading.Event()
        self._waker = Waker()
        self._thread = threading.Thread(target=self._run, name=f"consumes {queue}", daemon=True)

    def start(self) -> None:
        """Consume from now on."""
        self._thread.start()

    def events(self) -> Sequence[ConsumedMessage]:
        """Return the reports so far, in order."""
        return self._record.events()

    def stop(self) -> None:
        """Stop after the delivery in hand; what was handed out beyond it stays in the queue."""
        self._is_stopping.set()
        self._waker.wake()
        self._thread.join(_STOP_WITHIN_S)

    def _run(self) -> None:
        try:
            with (
                closing(self._waker),
                _session(self._endpoint, is_transacted=True) as (connection, session),
            ):
                connection.wait_beside(self._waker.receiver.fileno())
                session.create_consumer(self._queue, window_bytes=_WINDOW_BYTES)
                session.start()
                while not self._is_stopping.is_set():
                    if session.deliveries:
                        self._answer(session, session.deliveries.popleft())
                    else:
                        connection.wait(_LOOK_EVERY_S)
        except LinkLost:
            if not self._is_stopping.is_set():
                self._record.lose_connection()

    def _answer(self, session: CoreSession, delivery: CoreDelivery) -> None:
        message = delivery.message
        message_id = message_id_of(message) or ""
        one = str(read_core_properties(message.properties)[ID].value)
        # Why only the first: a broker with more delivery attempts hands a failed one out again.
        is_first = delivery.delivery_count == 1
        fails = self._record.receive(one, message_id) if is_first else True
        session.acknowledge(delivery, only_this=True)
        session.give_back(delivery)
        if fails:
            session.rollback()
        else:
            session.commit()
        if is_first:
            self._record.finish(one, message_id, fails=fails)


def _acknowledge_all(connection: CoreConnection, session: CoreSession, consumer: int) -> int:
    """Acknowledge the messages that a queue delivers now; return their number."""
    session.force_delivery(consumer)
    count = 0
    while True:
        for one in session.take_from(consumer):
            session.give_back(one)
            if is_forced(one.message):
                return count
            session.acknowledge(one, only_this=True)
            count += 1
        connection.wait(_LOOK_EVERY_S)


def _message(queue: str, one: str) -> CoreMessage:
    properties = {
        ID: CoreProperty(CorePropertyType.STRING, one),
        "_AMQ_ROUTING_TYPE": CoreProperty(CorePropertyType.BYTE, packets.ANYCAST),
    }
    return new_message(
        queue,
        properties,
        timestamp_ms=SystemClock().now_ms(),
        kind=TEXT_MESSAGE,
        body=NULLABLE_SIMPLE_STRING.write(f"message {one}"),
    )._replace(user_id=uuid1().bytes)


def _make_sure_of(session: CoreSession, queue: str) -> None:
    """Make a queue that is missing."""
    if session.ask_queue(queue).exists:
        return
    try:
        session.create_queue(queue, address=queue, routing_type=packets.ANYCAST)
    except CoreRefused as refused:
        if refused.kind != QUEUE_EXISTS:
            raise


@contextmanager
def _session(
    endpoint: Endpoint, *, is_transacted: bool = False
) -> Iterator[tuple[CoreConnection, CoreSession]]:
    """Connect and create a session; close both afterwards.

    Raises:
        LinkLost: the broker can't be reached, or refuses something.
    """
    connection = CoreConnection(endpoint, SystemClock())
    sessions: list[CoreSession] = []
    try:
        sessions.append(connection.create_session(is_transacted=is_transacted))
        yield connection, sessions[0]
    except CoreRefused as refused:
        raise LinkLost(f"{connection.name} refused: {refused}") from refused
    finally:
        hang_up(connection, sessions)
