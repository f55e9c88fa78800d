"""Producers and consumers that speak Core; consumers fail by undoing their transaction.

Artemis puts a message into the dead-letter queue when its last delivery attempt is undone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import uuid1

from typing_extensions import override

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import QUEUE_EXISTS, CoreRefused
from amqsidecar.brokers.core.session import CoreSession, is_forced
from amqsidecar.brokers.core_artemis.look import hang_up
from amqsidecar.clock import SystemClock
from amqsidecar.demo.applications import (
    ID,
    LOOK_EVERY_S,
    SENT_BY_DEMO,
    BackgroundConsumer,
    WireApplications,
    paced,
)
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

# Why so few: one message at a time, so that a consumer that fails hands nothing else back.
_WINDOW_BYTES: Final = 1
_DISCARD_BYTES: Final = 1 << 20


class CoreApplications(WireApplications):
    """Applications that speak Core, each on a connection of its own."""

    @override
    def _consumer(self, queue: str, failures: int) -> "CoreConsumer":
        with _session(self._endpoint) as (_, session):
            _make_sure_of(session, queue)
        return CoreConsumer(self._endpoint, queue, failures)

    @override
    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        with _session(self._endpoint) as (_, session):
            _make_sure_of(session, queue)
            for one in paced(ids, per_second):
                [refused] = session.answers([session.ask_send(_message(queue, one))])
                if refused is not None:
                    raise refused

    @override
    def is_empty(self, queue: str) -> bool:
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

    @override
    def discard(self, queue: str) -> None:
        if self.is_empty(queue):
            return
        with _session(self._endpoint, is_transacted=True) as (connection, session):
            consumer = session.create_consumer(queue, SENT_BY_DEMO, window_bytes=_DISCARD_BYTES)
            session.start()
            while _acknowledge_all(connection, session, consumer):
                pass
            session.commit()


class CoreConsumer(BackgroundConsumer):
    """Consumes a queue, and undoes the delivery of each message as often as it is to fail."""

    @override
    def _consume(self) -> None:
        with _session(self._endpoint, is_transacted=True) as (connection, session):
            connection.wait_beside(self._waker.receiver.fileno())
            session.create_consumer(self._queue, window_bytes=_WINDOW_BYTES)
            session.start()
            while not self._is_stopping.is_set():
                if session.deliveries:
                    self._answer(session, session.deliveries.popleft())
                else:
                    connection.wait(LOOK_EVERY_S)

    def _answer(self, session: CoreSession, delivery: CoreDelivery) -> None:
        message = delivery.message
        message_id = message_id_of(message) or ""
        one = str(read_core_properties(message.properties)[ID].value)
        # Why only the first: a broker with more delivery attempts hands a failed one out again.
        is_first = delivery.delivery_count == 1
        fails = self._receive(one, message_id) if is_first else True
        session.acknowledge(delivery, only_this=True)
        session.give_back(delivery)
        if fails:
            session.rollback()
        else:
            session.commit()
        if is_first:
            self._finish(one, message_id, fails=fails)


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
        connection.wait(LOOK_EVERY_S)


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
