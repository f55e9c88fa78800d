"""Contracts of the demo's producers and consumers, which fail on purpose."""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from amqsidecar.brokers.connection.byte_stream import Waker
from amqsidecar.brokers.connection.credentials import NO_PASSWORD, Credentials
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.errors import LinkLost

LOOK_EVERY_S: Final = 1.0
"""How often a consumer looks whether it is to stop, at the latest."""
_STOP_WITHIN_S: Final = 10.0
ALWAYS: Final = -1
"""A number of failures that has no end."""
ID: Final = "demoId"
"""The property that holds the demo's id of a message."""
SENT_BY_DEMO: Final = f"{ID} IS NOT NULL"
"""The selector of the demo's messages."""


@dataclass(frozen=True)
class ConsumedMessage:
    """One thing that a consumer reports.

    Attributes:
        outcome: `succeeding` or `failing` on receipt; `succeeded` or `failed` once this is sent to
            the broker; `disconnected` when the connection was lost.
        at_ms: when, in milliseconds since 1970.
        id: the demo's id of the message.
        delivery: how often this consumer has seen the message, 1-based.
        message_id: its JMSMessageID; a message that was sent again may have a new one.
    """

    outcome: str
    at_ms: int = 0
    id: str = ""
    delivery: int = 0
    message_id: str = ""


def endpoint_at(
    host: str, port: int, user: str | None = None, credentials: Credentials = NO_PASSWORD
) -> Endpoint:
    """Return a connector with the patience that a demo has on one machine."""
    return Endpoint(host, port, user, credentials, connect_timeout_s=10.0, idle_timeout_s=30.0)


class BackgroundConsumer(ABC):
    """Consumes a queue in a thread, and fails with each message as often as it is to fail.

    Its thread writes the reports; any may read them.
    """

    def __init__(self, endpoint: Endpoint, queue: str, failures: int) -> None:
        self._endpoint = endpoint
        self._queue = queue
        self._failures = failures
        self._events: deque[ConsumedMessage] = deque()
        self._seen: Counter[str] = Counter()
        self._is_stopping = threading.Event()
        self._waker = Waker()
        self._thread = threading.Thread(target=self._run, name=f"consumes {queue}", daemon=True)

    def start(self) -> None:
        """Consume from now on."""
        self._thread.start()

    def events(self) -> Sequence[ConsumedMessage]:
        """Return the reports so far, in order."""
        # Why a copy in one call: another thread appends.
        return self._events.copy()

    def stop(self) -> None:
        """Stop after the delivery in hand; further prefetched messages stay in the queue."""
        self._is_stopping.set()
        self._waker.wake()
        self._thread.join(_STOP_WITHIN_S)

    def _run(self) -> None:
        try:
            with closing(self._waker):
                self._consume()
        except LinkLost:
            if not self._is_stopping.is_set():
                self._report("disconnected", "", "")

    def _receive(self, one: str, message_id: str) -> bool:
        """Report a delivery; return whether the consumer fails with it."""
        self._seen[one] += 1
        fails = self._failures == ALWAYS or self._seen[one] <= self._failures
        self._report("failing" if fails else "succeeding", one, message_id)
        return fails

    def _finish(self, one: str, message_id: str, *, fails: bool) -> None:
        """Report that the broker has the outcome of a delivery."""
        self._report("failed" if fails else "succeeded", one, message_id)

    def _report(self, outcome: str, one: str, message_id: str) -> None:
        now_ms = int(time.time() * 1000)
        self._events.append(ConsumedMessage(outcome, now_ms, one, self._seen[one], message_id))

    @abstractmethod
    def _consume(self) -> None:
        """Connect, and consume until `_is_stopping` is set; the waker ends a wait.

        Raises:
            LinkLost: the connection was lost, or the broker refuses.
        """


class WireApplications(ABC):
    """Applications that send messages to one broker and consume them, by a wire of ours.

    Each method raises LinkLost where the broker can't be reached, or refuses.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._consumers: list[BackgroundConsumer] = []

    def consume(self, queue: str, failures: int) -> BackgroundConsumer:
        """Start a consumer."""
        consumer = self._consumer(queue, failures)
        self._consumers.append(consumer)
        consumer.start()
        return consumer

    def disconnect(self) -> None:
        """Stop every consumer; unacknowledged messages stay in their queue."""
        for consumer in self._consumers:
            consumer.stop()

    @abstractmethod
    def _consumer(self, queue: str, failures: int) -> BackgroundConsumer:
        """Return a consumer that has not started, of a queue that there is."""

    @abstractmethod
    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        """Send a message for each id, at most `per_second`; None = as fast as possible.

        Makes the queue if it is missing; the broker has all messages at the return.
        """

    @abstractmethod
    def is_empty(self, queue: str) -> bool:
        """Return whether no message is in a queue, or there is no such queue; takes none."""

    @abstractmethod
    def discard(self, queue: str) -> None:
        """Consume the messages of `fill`, of this or another demo, that are still in a queue.

        Messages of others stay. If the process dies inside, some of them may be consumed.
        """


def paced(ids: Sequence[str], per_second: float | None) -> Iterator[str]:
    """Yield the ids, at most this many in a second; None = without a wait."""
    began_s = time.monotonic()
    for number, one in enumerate(ids):
        if per_second is not None:
            time.sleep(max(0.0, began_s + number / per_second - time.monotonic()))
        yield one
