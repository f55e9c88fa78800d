"""Listener, broker and clients are killed while messages are given up: each is saved once."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from proton import Condition, Delivery, Message, ProtonException, Timeout
from proton.utils import BlockingConnection, BlockingReceiver

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
from support.wires.amqp_options import Anycast
from support.wires.stomp_peer import StompError, StompPeer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(3600, otherwise=300))]

QUEUE, INTERCEPTED = "kills", "amqsidecar.intercepted"
ANYCAST = {"subscription-type": "ANYCAST"}
MESSAGES = at_length(100_000, otherwise=200)
CONSUMERS = 4
KILLS = at_length(60, otherwise=3)
# Why many in hand: more NACKs are on their way when somebody is killed.
CREDIT = {"consumer-window-size": "100000"}
RECONNECTS_S = 0.2
AT_ONCE = 10
"""Rejects that a consumer has on their way: some are open when somebody is killed."""


class Consumer(threading.Thread):
    """Gives up all that it gets, comes back whenever its connection ends, and may be cut off.

    Attributes:
        given_up, confirmed: how often, by message.
    """

    def __init__(self, port: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.given_up: Counter[str] = Counter()
        self.confirmed: Counter[str] = Counter()
        self._port = port
        self._over = over

    def cut(self) -> None:
        """End its connection wherever it is."""


class StompConsumer(Consumer):
    """Gives up by NACK.

    Attributes:
        is_idle: nothing came for two seconds.
    """

    is_idle = False
    _peer: StompPeer | None = None

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


def connect(port: int, timeout_s: float = 30) -> BlockingConnection:
    url = f"amqp://127.0.0.1:{port}"
    return BlockingConnection(url, timeout_s, user="admin", password="admin", allowed_mechs="PLAIN")


class AmqpConsumer(Consumer):
    """Gives up by `rejected`."""

    _is_cut = False

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
                    self.given_up[name] += 1
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


def bodies() -> Iterator[tuple[str, bytes]]:
    """Yield id and body of each message; every twentieth goes through the listener's spool."""
    for number in range(MESSAGES):
        yield str(number), b"%d " % number * (20_000 if number % 20 == 0 else 4)


def produce_over_stomp(broker: ArtemisBroker) -> None:
    with StompPeer(broker.ports["PORT"]) as producer:
        for name, body in bodies():
            producer.send(QUEUE, {"destination-type": "ANYCAST", "app-id": name}, body)


def drain_over_stomp(broker: ArtemisBroker) -> dict[str, bytes]:
    """Take all saved messages, once all are given up; return the digest of each body by id."""
    _wait_until_empty(broker)
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


def produce_over_amqp(broker: ArtemisBroker) -> None:
    with closing(connect(broker.ports["PORT"], 60)) as connection:
        link: Any = connection.create_sender(QUEUE, options=Anycast()).link
        messages = bodies()
        while some := list(islice(messages, 500)):
            sent = [link.send(Message(id=name, body=body, durable=True)) for name, body in some]
            connection.wait(lambda: all(one.settled for one in sent), 120)  # noqa: B023


def drain_over_amqp(broker: ArtemisBroker) -> dict[str, bytes]:
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


class Wire(NamedTuple):
    """How a wire's clients give up.

    Attributes:
        is_near_end: whether no more progress is to be waited for.
    """

    consumer: Callable[[int, threading.Event], Any]
    produce: Callable[[ArtemisBroker], None]
    drain: Callable[[ArtemisBroker], dict[str, bytes]]
    is_near_end: Callable[[list[Any]], bool]


def given_up(consumers: list[Any]) -> int:
    return sum(one.given_up.total() for one in consumers)


WIRES = {
    "stomp": Wire(
        StompConsumer,
        produce_over_stomp,
        drain_over_stomp,
        lambda consumers: all(one.is_idle for one in consumers),
    ),
    "amqp": Wire(
        AmqpConsumer,
        produce_over_amqp,
        drain_over_amqp,
        lambda consumers: given_up(consumers) >= MESSAGES - CONSUMERS * AT_ONCE,
    ),
}


@pytest.mark.parametrize("wire", WIRES.values(), ids=list(WIRES))
def test_each_message_is_saved_once_whoever_is_killed(wire: Wire, tmp_path: Path) -> None:
    """A message whose give-up was confirmed is never delivered to that consumer again.

    Over AMQP one transaction saves the copy and accepts the original.
    """
    over = threading.Event()
    with ArtemisBroker() as broker, ListenerProcess(tmp_path, broker.ports["PORT"]) as listener:
        wire.produce(broker)
        consumers = [wire.consumer(listener.port, over) for _ in range(CONSUMERS)]
        for one in consumers:
            one.start()
        kill_in_turn(
            listener,
            broker,
            lambda: random.choice(consumers).cut(),
            given_up=lambda: given_up(consumers),
            is_near_end=lambda: wire.is_near_end(consumers),
            messages=MESSAGES,
            kills=KILLS,
        )
        saved = wire.drain(broker)
        over.set()
        for one in consumers:
            one.join(60)
        sent = {name: sha256(body).digest() for name, body in bodies()}
        assert sorted(saved) == sorted(sent), "none is lost, none is there twice"
        assert saved == sent, "nothing is altered"
        confirmed = sum((one.confirmed for one in consumers), Counter[str]())
        assert set(confirmed.values()) == {1}, "what was confirmed did not come again"
