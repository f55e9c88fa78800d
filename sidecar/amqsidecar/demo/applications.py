"""Contracts of the demo's producers and consumers, and the record of a consumer's failures."""

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

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


class FailingConsumer(Protocol):
    """A consumer in the background that fails on purpose."""

    def events(self) -> Sequence[ConsumedMessage]:
        """Return the reports so far, in order."""

    def stop(self) -> None:
        """Stop after the delivery in hand."""


class Applications(Protocol):
    """Applications that send messages to a broker and consume them."""

    def consume(self, queue: str, failures: int) -> FailingConsumer:
        """Start a consumer."""

    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        """Send a message for each id, at most `per_second`; None = as fast as possible."""

    def is_empty(self, queue: str) -> bool:
        """Return whether no message is in a queue."""


class ConsumerRecord:
    """Decides which deliveries of a consumer fail, and keeps its reports.

    One thread writes, any may read.
    """

    def __init__(self, failures: int) -> None:
        """Begin without a report."""
        self._failures = failures
        self._events: deque[ConsumedMessage] = deque()
        self._seen: Counter[str] = Counter()

    def receive(self, one: str, message_id: str) -> bool:
        """Report a delivery; return whether the consumer fails with it."""
        self._seen[one] += 1
        fails = self._failures == ALWAYS or self._seen[one] <= self._failures
        self._report("failing" if fails else "succeeding", one, message_id)
        return fails

    def finish(self, one: str, message_id: str, *, fails: bool) -> None:
        """Report that the broker has the outcome of a delivery."""
        self._report("failed" if fails else "succeeded", one, message_id)

    def lose_connection(self) -> None:
        """Report a lost connection."""
        self._report("disconnected", "", "")

    def events(self) -> Sequence[ConsumedMessage]:
        """Return the reports so far, in order."""
        # Why a copy in one call: another thread appends.
        return self._events.copy()

    def _report(self, outcome: str, one: str, message_id: str) -> None:
        now_ms = int(time.time() * 1000)
        self._events.append(ConsumedMessage(outcome, now_ms, one, self._seen[one], message_id))


def paced(ids: Sequence[str], per_second: float | None) -> Iterator[str]:
    """Yield the ids, at most this many in a second; None = without a wait."""
    began_s = time.monotonic()
    for number, one in enumerate(ids):
        if per_second is not None:
            time.sleep(max(0.0, began_s + number / per_second - time.monotonic()))
        yield one
