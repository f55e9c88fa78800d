"""Listener, broker and clients are killed while AMQP messages are rejected: each is saved once."""

import random
import threading
from collections import Counter
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from proton import Condition, Delivery, Message, ProtonException, Timeout
from proton.utils import BlockingConnection, BlockingReceiver

from support.brokers.real import ArtemisBroker
from support.sidecar.listener import ListenerProcess, kill_in_turn
from support.tier import at_length
from support.waiting import PATIENCE_S
from support.wires.amqp_options import Anycast

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(3600, otherwise=300))]

QUEUE, INTERCEPTED = "kills.amqp", "amqsidecar.intercepted"
MESSAGES = at_length(100_000, otherwise=200)
CONSUMERS = 4
KILLS = at_length(60, otherwise=3)
RECONNECTS_S = 0.2
AT_ONCE = 10
"""Rejects that a consumer has on their way: some are open when somebody is killed."""


def connect(port: int, timeout_s: float = 30) -> BlockingConnection:
    url = f"amqp://127.0.0.1:{port}"
    return BlockingConnection(url, timeout_s, user="admin", password="admin", allowed_mechs="PLAIN")


class Consumer(threading.Thread):
    """Rejects all that it gets, comes back whenever its connection ends, and may be cut off.

    Attributes:
        rejected, confirmed: how often, by message.
    """

    def __init__(self, port: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.rejected: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()
        self._port = port
        self._over = over
        self._is_cut = False

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, ProtonException):
                connection = connect(self._port)
                try:
                    self._consume(
                        connection,
                        connection.create_receiver(QUEUE, credit=AT_ONCE, options=Anycast()),
                    )
                finally:
                    self._leave(connection)
            # Why: a broker that starts needs the processors more.
            self._over.wait(RECONNECTS_S)

    def _consume(self, connection: BlockingConnection, receiver: BlockingReceiver) -> None:
        while not self._over.is_set():
            waiting: list[tuple[str, Any]] = []
            with suppress(Timeout):
                while len(waiting) < AT_ONCE:
                    name = str(receiver.receive(1 if not waiting else 0.05).id)
                    waiting.append((name, self._reject(receiver)))
                    self.rejected[name] += 1
            if self._is_cut:
                self._is_cut = False
                return
            connection.wait(lambda: all(one.settled for _, one in waiting), 20)  # noqa: B023
            assert {one.remote_state for _, one in waiting} <= {Delivery.REJECTED}
            self.confirmed.update(name for name, _ in waiting)
            for _, one in waiting:
                one.settle()

    @staticmethod
    def _reject(receiver: BlockingReceiver) -> Any:
        fetcher: Any = receiver.fetcher
        delivery = fetcher.unsettled.pop()
        delivery.local.condition = Condition("com.acme:no-stock", "article 4711")
        delivery.update(Delivery.REJECTED)
        return delivery

    @staticmethod
    def _leave(connection: BlockingConnection) -> None:
        """End the connection without a word, as a process that is killed."""
        connected: Any = connection.conn
        transport = None if connected is None else connected.transport
        if transport is not None:
            transport.close_head()
            transport.close_tail()
        # Why: it would ask again and again, for all its time, whether the peer has closed it, too.
        connection.timeout = 0
        with suppress(OSError, ProtonException):
            connection.close()

    def cut(self) -> None:
        """End its connection with rejects on their way."""
        self._is_cut = True


def test_each_rejected_message_is_saved_once_whoever_is_killed(tmp_path: Path) -> None:
    """One transaction saves the copy and accepts the original: none is lost, none is doubled."""
    over = threading.Event()
    with ArtemisBroker() as broker, ListenerProcess(tmp_path, broker.ports["PORT"]) as listener:
        sent = _produce(broker)
        consumers = [Consumer(listener.port, over) for _ in range(CONSUMERS)]

        def rejected() -> int:
            return sum(one.rejected.total() for one in consumers)

        def is_near_end() -> bool:
            return rejected() >= MESSAGES - CONSUMERS * AT_ONCE

        for one in consumers:
            one.start()
        kill_in_turn(
            listener,
            broker,
            lambda: random.choice(consumers).cut(),
            given_up=rejected,
            is_near_end=is_near_end,
            messages=MESSAGES,
            kills=KILLS,
        )
        saved = _drain(broker)
        over.set()
        for one in consumers:
            one.join(60)
        assert saved == sent, "none is lost, nothing is altered"
        confirmed = sum((one.confirmed for one in consumers), Counter[str]())
        assert set(confirmed.values()) == {1}, "what was confirmed did not come again"


def _produce(broker: ArtemisBroker) -> dict[str, bytes]:
    """Send all messages; return the digest of each body by id."""
    sent = {}
    connection = connect(broker.ports["PORT"], 60)
    link: Any = connection.create_sender(QUEUE, options=Anycast()).link
    for begin in range(0, MESSAGES, 500):
        deliveries = []
        for number in range(begin, min(begin + 500, MESSAGES)):
            # Every twentieth goes through the listener's spool.
            body = b"%d " % number * (20_000 if number % 20 == 0 else 4)
            deliveries.append(link.send(Message(id=str(number), body=body, durable=True)))
            sent[str(number)] = sha256(body).digest()
        connection.wait(lambda: all(one.settled for one in deliveries), 120)  # noqa: B023
    connection.close()
    return sent


def _drain(broker: ArtemisBroker) -> dict[str, bytes]:
    """Take saved messages until all are there and no more come; return their digests by id."""
    saved: dict[str, bytes] = {}
    connection = connect(broker.ports["PORT"], 60)
    receiver = connection.create_receiver(INTERCEPTED, credit=100, options=Anycast())
    with suppress(Timeout):
        while True:
            message = receiver.receive(PATIENCE_S if len(saved) < MESSAGES else 2)
            receiver.accept()
            name, body = str(message.id), cast("bytes", message.body)
            assert name not in saved, f"{name} was saved twice"
            saved[name] = sha256(body).digest()
    connection.close()
    return saved
