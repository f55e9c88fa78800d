"""Producers and consumers that speak STOMP, by stomp.py; consumers fail with a NACK.

Classic puts a message that a consumer over STOMP refuses with NACK into the dead-letter queue at
once, without a redelivery of its own.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

# Why: stomp.py asks the DNS for this host's names when it is imported, which may take seconds.
os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
import stomp
from stomp.exception import StompException
from stomp.utils import Frame

from amqsidecar.demo.applications import ID, SENT_BY_DEMO, ConsumedMessage, ConsumerRecord, paced
from amqsidecar.demo.waiting import eventually
from amqsidecar.errors import LinkLost

_RECEIPT_WITHIN_S: Final = 30.0


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
        self._consumers: list[StompConsumer] = []
        # Why: what is worth a word to a person is raised; stomp.py would log it beside the view.
        logging.getLogger("stomp.py").setLevel(logging.CRITICAL)

    def consume(self, queue: str, failures: int) -> "StompConsumer":
        """Start a consumer; see `Applications`.

        Raises:
            LinkLost: the broker can't be reached.
        """
        consumer = StompConsumer(self._connected, failures)
        self._consumers.append(consumer)
        consumer.start(queue)
        return consumer

    def disconnect(self) -> None:
        """Stop every consumer; what they have not answered stays in its queue."""
        for consumer in self._consumers:
            consumer.stop()

    def discard(self, queue: str) -> None:
        """Consume what `fill` of this or another demo sent and is still in a queue.

        Messages of others stay. If the process dies inside, some of them are consumed.

        Raises:
            LinkLost: the broker can't be reached, or does not hand them out.
        """
        if self._has_none(queue, SENT_BY_DEMO):
            return
        consumer = StompConsumer(self._connected, failures=0)
        try:
            consumer.start(queue, SENT_BY_DEMO)
            eventually(
                lambda: self._has_none(queue, SENT_BY_DEMO),
                within_s=_RECEIPT_WITHIN_S,
                what=f"the demo's messages in {queue} are consumed",
                every_s=0.2,
            )
        except TimeoutError as error:
            raise LinkLost(str(error)) from error
        finally:
            consumer.stop()

    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        """Send messages and wait until the broker has them; see `Applications`.

        Raises:
            LinkLost: the connection was lost, or the broker did not answer.
        """
        receipts = _Receipts()
        connection = self._connected(receipts)
        try:
            for one in paced(ids, per_second):
                connection.send(
                    f"/queue/{queue}",
                    f"message {one}",
                    headers={ID: one, "persistent": "true", "receipt": one},
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
        return self._has_none(queue, None)

    def _has_none(self, queue: str, selector: str | None) -> bool:
        browser = _Browser()
        connection = self._connected(browser)
        headers = {"browser": "true", **_selecting(selector)}
        try:
            connection.subscribe(f"/queue/{queue}", "browse", headers=headers)
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


def _selecting(selector: str | None) -> dict[str, str]:
    return {} if selector is None else {"selector": selector}


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


class StompConsumer(stomp.ConnectionListener):  # type: ignore[misc]
    """Consumes a queue, and refuses each message with NACK as often as it is to fail."""

    def __init__(
        self, connected: Callable[[stomp.ConnectionListener], stomp.Connection12], failures: int
    ) -> None:
        self._record = ConsumerRecord(failures)
        self._is_stopping = False
        self._connection = connected(self)

    def start(self, queue: str, selector: str | None = None) -> None:
        """Subscribe; a selector limits to which messages."""
        self._connection.subscribe(
            f"/queue/{queue}", "demo", ack="client-individual", headers=_selecting(selector)
        )

    def events(self) -> Sequence[ConsumedMessage]:
        """Return the reports so far, in order."""
        return self._record.events()

    def stop(self) -> None:
        """Disconnect; what the consumer was given and has not answered stays in the queue."""
        self._is_stopping = True
        self._connection.disconnect()

    def on_message(self, frame: Frame) -> None:
        """Fail with the message, or consume it; called by stomp.py's thread."""
        headers = frame.headers
        message_id = headers["message-id"]
        one = headers.get(ID, message_id)
        fails = self._record.receive(one, message_id)
        answer = self._connection.nack if fails else self._connection.ack
        answer(headers["ack"])
        self._record.finish(one, message_id, fails=fails)

    def on_disconnected(self) -> None:
        """Report a lost connection; called by stomp.py's thread."""
        if not self._is_stopping:
            self._record.lose_connection()
