"""Producers and consumers that speak STOMP; consumers fail with a NACK.

Classic puts a message that a consumer over STOMP refuses with NACK into the dead-letter queue at
once, without a redelivery of its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from typing_extensions import override

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import SystemClock
from amqsidecar.demo.applications import (
    ID,
    LOOK_EVERY_S,
    SENT_BY_DEMO,
    BackgroundConsumer,
    WireApplications,
    paced,
)
from amqsidecar.demo.waiting import eventually
from amqsidecar.errors import LinkLost
from amqsidecar.formats.stomp_frame import Frame
from amqsidecar.model.destination import queue as queue_named

_DISCARDED_WITHIN_S: Final = 30.0
_GOODBYE_S: Final = 2.0
_PREFETCH: Final = 1_000


class StompApplications(WireApplications):
    """Applications that speak STOMP, each on a connection of its own."""

    @override
    def _consumer(self, queue: str, failures: int) -> "StompConsumer":
        return StompConsumer(self._endpoint, queue, failures)

    @override
    def discard(self, queue: str) -> None:
        if self._has_none(queue, SENT_BY_DEMO):
            return
        consumer = StompConsumer(self._endpoint, queue, failures=0, selector=SENT_BY_DEMO)
        consumer.start()
        try:
            eventually(
                lambda: self._has_none(queue, SENT_BY_DEMO),
                within_s=_DISCARDED_WITHIN_S,
                what=f"the demo's messages in {queue} are consumed",
                every_s=0.2,
            )
        except TimeoutError as error:
            raise LinkLost(str(error)) from error
        finally:
            consumer.stop()

    @override
    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        with _connected(self._endpoint) as connection:
            for one in paced(ids, per_second):
                headers = [
                    (b"destination", f"/queue/{queue}".encode()),
                    (ID.encode(), one.encode()),
                    (b"persistent", b"true"),
                ]
                connection.call("SEND", headers, f"message {one}".encode())

    @override
    def is_empty(self, queue: str) -> bool:
        return self._has_none(queue)

    def _has_none(self, queue: str, selector: str = "") -> bool:
        with _connected(self._endpoint) as connection:
            subscriptions = StompSubscriptions(connection, connection.clock)
            return not subscriptions.browse(queue_named(queue), 1, selector)


class StompConsumer(BackgroundConsumer):
    """Consumes a queue, and refuses each message with NACK as often as it is to fail."""

    def __init__(self, endpoint: Endpoint, queue: str, failures: int, selector: str = "") -> None:
        """Prepare; a selector limits to which messages."""
        super().__init__(endpoint, queue, failures)
        self._selector = selector

    @override
    def _consume(self) -> None:
        with _connected(self._endpoint) as connection:
            subscriptions = StompSubscriptions(connection, connection.clock)
            subscriptions.add(
                queue_named(self._queue),
                _PREFETCH,
                lambda frame: self._answer(connection, frame),
                selector=self._selector,
            )
            while not self._is_stopping.is_set():
                subscriptions.route()
                connection.wait(LOOK_EVERY_S)

    def _answer(self, connection: StompConnection, frame: Frame) -> None:
        message_id = frame.text(b"message-id")
        one = frame.text(ID.encode()) or message_id
        fails = self._receive(one, message_id)
        connection.send("NACK" if fails else "ACK", [(b"id", frame.first(b"ack") or b"")])
        connection.flush()
        self._finish(one, message_id, fails=fails)


@contextmanager
def _connected(endpoint: Endpoint) -> Iterator[StompConnection]:
    """Connect; disconnect afterwards.

    Raises:
        LinkLost: the broker can't be reached, or refuses something.
    """
    connection = StompConnection(endpoint, SystemClock())
    try:
        yield connection
    except FrameRefused as refused:
        raise LinkLost(f"{connection.name} refused: {refused}") from refused
    finally:
        connection.disconnect(_GOODBYE_S)
