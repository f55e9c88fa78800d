"""Listener, broker and consumers are killed while messages are given up: each is saved once."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.artemis.left_behind import StuckMessages
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import queue
from support.brokers.real import ArtemisBroker
from support.sidecar.listener import ListenerProcess, kill_in_turn
from support.tier import at_length
from support.waiting import PATIENCE_S, eventually
from support.wires.stomp_peer import StompError, StompPeer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(3600, otherwise=300))]

QUEUE, INTERCEPTED = "kills", "amqsidecar.intercepted"
ANYCAST = {"subscription-type": "ANYCAST"}
MESSAGES = at_length(100_000, otherwise=200)
CONSUMERS = 4
KILLS = at_length(60, otherwise=3)
# Why many in hand: more NACKs are on their way when somebody is killed.
CREDIT = {"consumer-window-size": "100000"}


class Consumer(threading.Thread):
    """Gives up all that it gets, comes back whenever its connection ends, and may be cut off.

    Attributes:
        given_up, confirmed: how often, by message.
        is_idle: nothing came for two seconds.
    """

    def __init__(self, port: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.given_up: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()
        self.is_idle = False
        self._port = port
        self._over = over
        self._peer: StompPeer | None = None

    def run(self) -> None:
        while not self._over.is_set():
            with (
                suppress(OSError, StompError),
                StompPeer(self._port, timeout_s=2) as self._peer,
            ):
                self._peer.subscribe(QUEUE, headers={**ANYCAST, **CREDIT})
                self._consume(self._peer)

    def _consume(self, peer: StompPeer) -> None:
        while not self._over.is_set():
            try:
                message = peer.receive()
            except TimeoutError:
                self.is_idle = True
                return
            self.is_idle = False
            name = message.headers["app-id"]
            self.given_up[name] += 1
            peer.nack(message, reason="no stock")
            self.confirmed[name] += 1

    def cut(self) -> None:
        """End its connection wherever it is."""
        if self._peer is not None:
            with suppress(OSError):
                self._peer.reset()


def test_each_message_is_saved_once_whoever_is_killed(tmp_path: Path) -> None:
    """A message whose give-up was confirmed is never delivered to that consumer again."""
    over = threading.Event()
    with ArtemisBroker() as broker, ListenerProcess(tmp_path, broker.ports["PORT"]) as listener:
        sent = _produce(broker)
        consumers = [Consumer(listener.port, over) for _ in range(CONSUMERS)]

        def given_up() -> int:
            return sum(one.given_up.total() for one in consumers)

        def is_idle() -> bool:
            return all(one.is_idle for one in consumers)

        for one in consumers:
            one.start()
        kill_in_turn(
            listener,
            broker,
            lambda: random.choice(consumers).cut(),
            given_up=given_up,
            is_near_end=is_idle,
            messages=MESSAGES,
            kills=KILLS,
        )
        _wait_until_empty(broker)
        over.set()
        for one in consumers:
            one.join(30)
        saved = _drain(broker)
        assert sorted(saved) == sorted(sent), "none is lost, none is there twice"
        assert saved == sent, "nothing is altered"
        confirmed = sum((one.confirmed for one in consumers), Counter[str]())
        assert set(confirmed.values()) == {1}, "what was confirmed did not come again"


def _produce(broker: ArtemisBroker) -> dict[str, bytes]:
    """Send all messages; return the digest of each body by id."""
    sent = {}
    with StompPeer(broker.ports["PORT"]) as producer:
        for number in range(MESSAGES):
            # Every twentieth goes through the listener's spool.
            body = b"%d " % number * (20_000 if number % 20 == 0 else 4)
            headers = {"destination-type": "ANYCAST", "app-id": str(number)}
            producer.send(QUEUE, headers, body)
            sent[str(number)] = sha256(body).digest()
    return sent


@contextmanager
def managing(broker: ArtemisBroker) -> Iterator[ArtemisManagement]:
    """Ask the broker's management."""
    endpoint = broker.endpoint("PORT")
    with closing(AmqpConnection(endpoint, SystemClock(), "test")) as connection:
        yield ArtemisManagement(connection, PATIENCE_S)


def _wait_until_empty(broker: ArtemisBroker) -> None:
    """Wait until all is given up; restart a broker that keeps a message from its consumers.

    Raises:
        TimeoutError: a message stays.
    """

    def is_empty_or_stuck() -> bool:
        return not management.message_count(QUEUE) or bool(stuck.look([queue(QUEUE)]))

    while True:
        with managing(broker) as management:
            stuck = StuckMessages(management)
            eventually(is_empty_or_stuck, within_s=600, what="all are given up", every_s=0.5)
            if not management.message_count(QUEUE):
                return
        broker.restart()


def _drain(broker: ArtemisBroker) -> dict[str, bytes]:
    """Take all saved messages; return the digest of each body by id."""
    saved = {}
    with managing(broker) as management:
        management.ask(ManagementQuestion(f"queue.{INTERCEPTED}", "flushExecutor"))
        count = management.message_count(INTERCEPTED) or 0
    with StompPeer(broker.ports["PORT"]) as peer:
        peer.subscribe(INTERCEPTED, headers=ANYCAST)
        for _ in range(count):
            message = peer.receive()
            peer.ack(message)
            name = message.headers["app-id"]
            assert name not in saved, f"{name} was saved twice"
            assert message.headers["_AMQ_ORIG_ADDRESS"] == QUEUE
            saved[name] = sha256(message.body).digest()
    return saved
