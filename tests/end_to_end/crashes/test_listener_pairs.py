"""A listener that dies between copy and acknowledgement leaves two of one delivery: one counts."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from end_to_end.crashes.test_listener_kills import managing
from support.brokers.broker_xml import STOCK_ADDRESSES
from support.brokers.real import ArtemisBroker
from support.machine.proxy import Proxy
from support.sidecar.listener import ListenerProcess, copy_keys
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.stores.postgres_server import PostgresServer
from support.tier import at_length
from support.waiting import PATIENCE_S, eventually
from support.wires.stomp_peer import Frame, StompError, StompPeer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(3600, otherwise=300))]

ATTEMPTS = (1, 2, 3, -1)
KILLS = at_length(300, otherwise=8)
MESSAGES = KILLS * 12
"""In each queue."""
COPIES = """
<address name="amqsidecar.intercepted">
  <anycast><queue name="amqsidecar.intercepted"/></anycast>
</address>
"""
BROKER_HELD, SHARED = "broker:", "postgres"
LEASE_S = 15
"""How long a killed one of two takes until it goes on; the other one works meanwhile."""
ANYCAST = {"subscription-type": "ANYCAST"}
TO_ANYCAST = {"destination-type": "ANYCAST"}
PASSED = ("DLQ", "amqsidecar.intercepted", "amqsidecar.waiting")
"""Queues in which no message stays."""
REDELIVERED = "amqsidecarRedeliveryCount"
SETTINGS = "".join(
    f'<address-setting match="{match}"><max-delivery-attempts>{attempts}</max-delivery-attempts>'
    "<dead-letter-address>DLQ</dead-letter-address></address-setting>"
    for match, attempts in [("#", -1), *((f"pairs.{one}", one) for one in ATTEMPTS)]
)
POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 100, redelivery_delay_ms: 0}
"""


class Client(threading.Thread):
    """A consumer that comes back whenever its connection ends.

    Attributes:
        answered: how often the broker confirmed the answer to a message.
        seen: all messages that came; whether the last one was answered may be unknown.
    """

    def __init__(self, port: int, queue: str, selector: str) -> None:
        super().__init__(daemon=True)
        self.answered: Counter[str] = Counter()
        self.seen: set[str] = set()
        self._port, self._queue, self._selector = port, queue, selector
        self._is_over = False
        self._peer: StompPeer | None = None

    def run(self) -> None:
        while not self._is_over:
            with suppress(OSError, StompError), StompPeer(self._port) as self._peer:
                self._peer.subscribe(self._queue, self._selector, headers=ANYCAST)
                while True:
                    message = self._peer.receive()
                    self.seen.add(message.headers["app-id"])
                    self.answer(self._peer, message)
                    self.answered[message.headers["app-id"]] += 1

    def answer(self, peer: StompPeer, message: Frame) -> None:
        """Accept a redelivery."""
        peer.ack(message)

    def end(self) -> None:
        """Stop, wherever it is."""
        self._is_over = True
        if self._peer is not None:
            with suppress(OSError):
                self._peer.reset()
        self.join(PATIENCE_S)


class Refuser(Client):
    """Gives up each message in its first life."""

    def answer(self, peer: StompPeer, message: Frame) -> None:
        """Give it up."""
        peer.nack(message, reason="no stock")


@pytest.mark.parametrize(
    ("url", "store", "attempts"),
    [
        pytest.param("pair_url", "", ATTEMPTS, id="pair"),
        # Why -1: without a history the dead letter beside a copy is not known for its twin.
        pytest.param("pair_url", BROKER_HELD, (-1,), id="broker-held"),
        pytest.param(
            "pair_url",
            SHARED,
            ATTEMPTS,
            id="shared",
            marks=[pytest.mark.postgres, pytest.mark.proof],
        ),
        pytest.param("stomp_url", "", ATTEMPTS, id="stomp", marks=pytest.mark.proof),
    ],
)
def test_after_kills_each_message_is_redelivered_once(
    request: pytest.FixtureRequest, tmp_path: Path, url: str, store: str, attempts: Sequence[int]
) -> None:
    """The link to the broker is slow, so that most kills come between copy and acknowledgement.

    With a history the queue of the copies is made by use, so that the broker removes it when it is
    empty, and with it the duplicate ids of the copies.
    """
    chance = random.Random()
    queues = [f"pairs.{one}" for one in attempts]
    addresses = STOCK_ADDRESSES + (COPIES if store == BROKER_HELD else "")
    with ExitStack() as running:
        if store == SHARED:
            server = request.getfixturevalue("postgres")
            store = running.enter_context(server.database())
        broker = running.enter_context(
            ArtemisBroker(address_settings=SETTINGS, addresses=addresses)
        )
        port = broker.ports["PORT"]
        sidecars = _sidecars(tmp_path, getattr(broker, url), store)
        proxy = running.enter_context(Proxy(port))
        listener = running.enter_context(ListenerProcess(tmp_path, proxy.port))
        proxy.slow(0.01, 65_536)
        with StompPeer(port) as producer:
            for number in range(MESSAGES):
                for queue in queues:
                    producer.send(queue, {**TO_ANYCAST, "app-id": str(number)}, b"x")
        refusers = [Refuser(listener.port, queue, f"{REDELIVERED} IS NULL") for queue in queues]
        accepters = [Client(port, queue, f"{REDELIVERED} IS NOT NULL") for queue in queues]
        for sidecar in sidecars:
            running.enter_context(sidecar.start())
        for one in (*refusers, *accepters):
            one.start()
        for number in range(KILLS):
            _await_answers(refusers, chance.randrange(1, 30))
            listener.kill()
            if number % 4 == 1:
                sidecar = chance.choice(sidecars)
                sidecar.kill()
                sidecar.start(ready=len(sidecars) == 1)
            listener.start()
        proxy.resume()
        _restart_until_all_came(broker, dict(zip(queues, accepters, strict=True)), sidecars)
        for one in (*refusers, *accepters):
            one.end()
        sidecars[0].wait_ready()
        has_history = store != BROKER_HELD
        left = sidecars[0].rows() if has_history else []
    assert left == [], "nothing waits for a person"
    for queue, one in zip(queues, accepters, strict=True):
        assert set(one.answered.values()) == {1}, f"{queue}: {one.answered.most_common(5)}"


@pytest.mark.postgres
def test_a_copy_of_an_undone_cycle_is_redelivered_by_another_instance(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The broker gives it back at once; that the cycle is undone is known after the lease only."""
    name = f"pairs.{ATTEMPTS[-1]}"
    with (
        postgres.database() as store,
        ArtemisBroker(address_settings=SETTINGS, addresses=STOCK_ADDRESSES) as broker,
    ):
        one, two = _sidecars(tmp_path, broker.pair_url, store)
        with (
            ListenerProcess(tmp_path, broker.ports["PORT"]) as listener,
            one,
            two,
            StompPeer(broker.ports["PORT"]) as producer,
        ):
            one.start(environ={CRASH_POINT_VARIABLE: "stored:1"})
            with StompPeer(listener.port) as refuser:
                refuser.subscribe(name, headers=ANYCAST)
                producer.send(name, {**TO_ANYCAST, "app-id": "1"}, b"x")
                refuser.nack(refuser.receive(), reason="no stock")
            assert one.process is not None
            assert one.process.wait(PATIENCE_S) == -signal.SIGKILL
            two.start()
            with StompPeer(broker.ports["PORT"]) as consumer:
                consumer.subscribe(name, headers=ANYCAST)
                message = consumer.receive()
                assert message.headers[REDELIVERED] == "1"
                consumer.ack(message)
            eventually(lambda: two.rows() == [], what="nothing waits")


def _sidecars(folder: Path, url: str, store: str) -> list[SidecarProcess]:
    """Return the sidecars of a store; "" = a file."""
    sets = [
        copy_keys(folder),
        "intake.allow_lossy=[body_type, property_types]",
        "intake.backlog=process",
        *([f"store.url={store}"] if store else []),
    ]
    policy = write_policy(folder, POLICY)
    if not store.startswith("postgres"):
        return [SidecarProcess(folder, url, policy=policy, sets=sets)]
    made = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        own = [*sets, f"store.instance={name}", f"store.lease_s={LEASE_S}"]
        made.append(SidecarProcess(folder / name, url, policy=policy, sets=own))
    return made


def _await_answers(refusers: Sequence[Client], count: int) -> None:
    def answers() -> int:
        return sum(one.answered.total() for one in refusers)

    mark = answers() + count
    with suppress(TimeoutError):
        eventually(lambda: answers() >= mark, within_s=5, what="messages are given up")


def _restart_until_all_came(
    broker: ArtemisBroker, accepters: Mapping[str, Client], sidecars: Sequence[SidecarProcess]
) -> None:
    """Wait until all came and no queue has a message.

    Restarts a broker that keeps messages of connections that died (`StuckMessages`).
    """

    def missing() -> list[int]:
        with managing(broker) as management:
            left = [management.message_count(one) or 0 for one in (*accepters, *PASSED)]
        return [*left, *(MESSAGES - len(one.seen) for one in accepters.values())]

    before: list[int] = []
    now = missing()
    while any(now):
        if now == before:
            broker.restart()
            for one in sidecars:
                one.wait_ready()
        before = now
        until_s = time.monotonic() + 10
        eventually(
            lambda: not any(missing()) or time.monotonic() > until_s,  # noqa: B023
            what="all have come back, or nothing comes",
            every_s=1,
        )
        now = missing()
