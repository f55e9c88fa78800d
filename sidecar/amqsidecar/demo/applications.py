"""Producers and consumers in Python, by stomp.py: consumers fail on purpose with a NACK.

Classic puts a message that a consumer over STOMP refuses with NACK into the dead-letter queue at
once, without a redelivery of its own.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import stomp
from stomp.exception import StompException
from stomp.utils import Frame

from amqsidecar.errors import LinkLost

ALWAYS: Final = -1
"""A number of failures that has no end."""

_CONNECT_WITHIN_S: Final = 10.0
_RECEIPT_WITHIN_S: Final = 30.0
_ID = "demoId"


@dataclass(frozen=True)
class ConsumedMessage:
    """One thing that a consumer reports.

    Attributes:
        outcome: `succeeding` or `failing` on receipt; `succeeded` or `failed` when the broker was
            told; `disconnected` when the connection was lost.
        at_ms: when, in milliseconds since 1970.
        id: the demo's id of the message.
        delivery: how often this consumer has seen the message, 1-based.
        message_id: its JMSMessageID; a message that was sent again has a new one.
    """

    outcome: str
    at_ms: int = 0
    id: str = ""
    delivery: int = 0
    message_id: str = ""


class FailingConsumer(Protocol):
    """A consumer in the background that fails on purpose."""

    def events(self) -> Sequence[ConsumedMessage]:
        """Return what was reported so far, in order."""

    def stop(self) -> None:
        """Stop after the delivery in hand."""


class Applications(Protocol):
    """What sends messages to a broker and consumes them."""

    def consume(self, queue: str, failures: int) -> FailingConsumer:
        """Start a consumer.

        Args:
            queue: its name.
            failures: how often it fails with each message, or `ALWAYS`.
        """

    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        """Send a message for each id, at most so many per second; None = as fast as it goes."""

    def is_empty(self, queue: str) -> bool:
        """Return whether no message is in a queue."""


@dataclass(frozen=True)
class StompAddress:
    """Where a broker listens for STOMP.

    Attributes:
        user, password: None = anonymous.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = None


class StompApplications:
    """Applications that speak STOMP, each on a connection of its own."""

    def __init__(self, address: StompAddress) -> None:
        self._address = address
        # Why: what is worth a word to a person is raised; stomp.py would log it beside the view.
        logging.getLogger("stomp.py").setLevel(logging.CRITICAL)

    def consume(self, queue: str, failures: int) -> "StompConsumer":
        """Start a consumer; see `Applications`.

        Raises:
            LinkLost: the broker can't be reached.
        """
        consumer = StompConsumer(self._connected, failures)
        consumer.start(queue)
        return consumer

    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        """Send messages and wait until the broker has them; see `Applications`.

        Raises:
            LinkLost: the connection was lost, or the broker did not answer.
        """
        receipts = _Receipts()
        connection = self._connected(receipts)
        try:
            began_s = time.monotonic()
            for number, one in enumerate(ids):
                if per_second is not None:
                    time.sleep(max(0.0, began_s + number / per_second - time.monotonic()))
                connection.send(
                    f"/queue/{queue}",
                    f"message {one}",
                    headers={_ID: one, "persistent": "true", "receipt": one},
                )
            receipts.wait_for(set(ids))
        except (StompException, OSError) as error:
            raise LinkLost(f"sending to {queue} over STOMP failed: {error}") from error
        finally:
            connection.disconnect()

    def is_empty(self, queue: str) -> bool:
        """Return whether no message is in a queue; takes none.

        Raises:
            LinkLost: the broker can't be reached, or did not answer.
        """
        browser = _Browser()
        connection = self._connected(browser)
        try:
            connection.subscribe(f"/queue/{queue}", "browse", headers={"browser": "true"})
            return browser.saw_nothing()
        finally:
            connection.disconnect()

    def _connected(self, listener: stomp.ConnectionListener) -> stomp.Connection12:
        one = self._address
        place = f"{one.host}:{one.port}"
        connection = stomp.Connection12(
            [(one.host, one.port)], reconnect_attempts_max=1, auto_content_length=False
        )
        connection.set_listener("demo", listener)
        try:
            connection.connect(one.user, one.password, wait=True, with_connect_command=True)
        except (StompException, OSError) as error:
            raise LinkLost(f"no STOMP connection to {place}: {error or 'refused'}") from error
        return connection


class _Receipts(stomp.ConnectionListener):  # type: ignore[misc]
    """Waits for the broker's word that it has what was sent."""

    def __init__(self) -> None:
        self._got: set[str] = set()
        self._lost: str | None = None
        self._changed = threading.Condition()

    def on_receipt(self, frame: Frame) -> None:
        with self._changed:
            self._got.add(frame.headers["receipt-id"])
            self._changed.notify_all()

    def on_error(self, frame: Frame) -> None:
        with self._changed:
            self._lost = frame.headers.get("message", "the broker refused a message")
            self._changed.notify_all()

    def on_disconnected(self) -> None:
        with self._changed:
            self._lost = self._lost or "the connection was lost"
            self._changed.notify_all()

    def wait_for(self, ids: set[str]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._lost or ids <= self._got, _RECEIPT_WITHIN_S)
            if not ids <= self._got:
                raise LinkLost(self._lost or f"no receipt within {_RECEIPT_WITHIN_S:g} s")


class _Browser(stomp.ConnectionListener):  # type: ignore[misc]
    """Learns whether there is a message before the end of a browse."""

    def __init__(self) -> None:
        self._messages = 0
        self._ended = threading.Event()

    def on_message(self, frame: Frame) -> None:
        if frame.headers.get("browser") == "end":
            self._ended.set()
        else:
            self._messages += 1

    def saw_nothing(self) -> bool:
        if not self._ended.wait(_RECEIPT_WITHIN_S):
            raise LinkLost(f"the broker did not end a browse within {_RECEIPT_WITHIN_S:g} s")
        return self._messages == 0


class _Connects(Protocol):
    def __call__(self, listener: stomp.ConnectionListener) -> stomp.Connection12: ...


class StompConsumer(stomp.ConnectionListener):  # type: ignore[misc]
    """Consumes a queue, and refuses each message with NACK as often as it is to fail."""

    def __init__(self, connected: _Connects, failures: int) -> None:
        self._failures = failures
        self._events: deque[ConsumedMessage] = deque()
        self._seen: Counter[str] = Counter()
        self._is_stopping = False
        self._connection = connected(self)

    def start(self, queue: str) -> None:
        """Subscribe."""
        self._connection.subscribe(f"/queue/{queue}", "demo", ack="client-individual")

    def events(self) -> Sequence[ConsumedMessage]:
        """Return what was reported so far, in order."""
        # Why a copy in one call: stomp.py's thread appends.
        return self._events.copy()

    def stop(self) -> None:
        """Disconnect; what the consumer was given and has not answered stays in the queue."""
        self._is_stopping = True
        self._connection.disconnect()

    def on_message(self, frame: Frame) -> None:
        """Fail with the message, or consume it; called by stomp.py's thread."""
        headers = frame.headers
        one = headers.get(_ID, headers["message-id"])
        self._seen[one] += 1
        fails = self._failures == ALWAYS or self._seen[one] <= self._failures
        message_id = headers["message-id"]
        self._report("failing" if fails else "succeeding", one, message_id)
        answer = self._connection.nack if fails else self._connection.ack
        answer(headers["ack"])
        self._report("failed" if fails else "succeeded", one, message_id)

    def on_disconnected(self) -> None:
        """Report a lost connection; called by stomp.py's thread."""
        if not self._is_stopping:
            self._report("disconnected", "", "")

    def _report(self, outcome: str, one: str, message_id: str) -> None:
        now_ms = int(time.time() * 1000)
        self._events.append(ConsumedMessage(outcome, now_ms, one, self._seen[one], message_id))
