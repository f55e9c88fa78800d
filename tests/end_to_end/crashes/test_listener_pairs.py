"""A listener that dies between copy and acknowledgement leaves two of one delivery: one counts."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.brokers.broker_xml import artemis_xml
from support.brokers.real import ArtemisBroker
from support.machine.proxy import Proxy
from support.sidecar.listener import ListenerProcess, copy_keys
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually
from support.wires.stomp_peer import StompError, StompPeer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(3600, otherwise=300))]

ATTEMPTS = (1, 2, 3, -1)
KILLS = at_length(300, otherwise=8)
MESSAGES = KILLS * 12
"""In each queue."""
ANYCAST = {"subscription-type": "ANYCAST"}
TO_ANYCAST = {"destination-type": "ANYCAST"}
IN_FIRST_LIFE = "amqsidecarRedeliveryCount IS NULL"
SETTINGS = "".join(
    f'<address-setting match="{match}"><max-delivery-attempts>{attempts}</max-delivery-attempts>'
    "<dead-letter-address>DLQ</dead-letter-address></address-setting>"
    for match, attempts in [("#", -1), *((f"pairs.{one}", one) for one in ATTEMPTS)]
)
POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 100, redelivery_delay_ms: 0}
"""


class Refuser(threading.Thread):
    """Gives up each message of a queue through the listener, and comes back after each kill."""

    def __init__(self, port: int, queue: str, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.given_up = 0
        self._port, self._queue, self._over = port, queue, over

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, StompError), StompPeer(self._port, timeout_s=2) as peer:
                peer.subscribe(self._queue, IN_FIRST_LIFE, headers=ANYCAST)
                while not self._over.is_set():
                    message = peer.receive()
                    self.given_up += 1
                    peer.nack(message, reason="no stock")


class Accepter(threading.Thread):
    """Accepts each redelivery of a queue, without the listener."""

    def __init__(self, port: int, queue: str, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.accepted: Counter[str] = Counter()
        self._port, self._queue, self._over = port, queue, over

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, StompError), StompPeer(self._port, timeout_s=5) as peer:
                peer.subscribe(
                    self._queue, "amqsidecarRedeliveryCount IS NOT NULL", headers=ANYCAST
                )
                while not self._over.is_set():
                    message = peer.receive()
                    peer.ack(message)
                    self.accepted[message.headers["app-id"]] += 1


@pytest.fixture
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(artemis_xml(address_settings=SETTINGS)) as started:
        yield started


@pytest.mark.parametrize("url", ["pair_url", pytest.param("stomp_url", marks=pytest.mark.proof)])
def test_after_kills_each_message_is_redelivered_once(
    broker: ArtemisBroker, tmp_path: Path, url: str
) -> None:
    """The link to the broker is slow, so that most kills come between copy and acknowledgement."""
    over = threading.Event()
    port, chance = broker.ports["PORT"], random.Random()
    sidecar = SidecarProcess(
        tmp_path,
        getattr(broker, url),
        policy=write_policy(tmp_path, POLICY),
        sets=[
            copy_keys(tmp_path),
            "intake.allow_lossy=[body_type, property_types]",
            "journal.properties=[app-id]",
        ],
    )
    with Proxy(port) as proxy, ListenerProcess(tmp_path, proxy.port) as listener:
        proxy.slow(0.01, 65_536)
        queues = [f"pairs.{one}" for one in ATTEMPTS]
        with StompPeer(port) as producer:
            for number in range(MESSAGES):
                for queue in queues:
                    producer.send(queue, {**TO_ANYCAST, "app-id": str(number)}, b"x")
        refusers = [Refuser(listener.port, queue, over) for queue in queues]
        accepters = [Accepter(port, queue, over) for queue in queues]
        with sidecar.start():
            for one in (*refusers, *accepters):
                one.start()
            for number in range(KILLS):
                mark = sum(one.given_up for one in refusers) + chance.randrange(1, 30)
                with suppress(TimeoutError):
                    eventually(
                        lambda: sum(one.given_up for one in refusers) >= mark,  # noqa: B023
                        within_s=5,
                        what="messages are given up",
                    )
                listener.kill()
                if number % 4 == 1:
                    sidecar.kill()
                    sidecar.start()
                listener.start()
            proxy.resume()
            # Why: Artemis 2.44 may keep messages of connections that died (`StuckMessages`).
            _restart_until_all_came(broker, accepters)
            over.set()
            for one in (*refusers, *accepters):
                one.join(30)
    for queue, one in zip(queues, accepters, strict=True):
        assert set(one.accepted.values()) == {1}, f"{queue}: {one.accepted.most_common(5)}"
        assert len(one.accepted) == MESSAGES, queue


def _restart_until_all_came(broker: ArtemisBroker, accepters: list[Accepter]) -> None:
    def counts() -> list[int]:
        return [len(one.accepted) for one in accepters]

    before: list[int] = []
    while min(counts()) < MESSAGES:
        if counts() == before:
            broker.restart()
        before = counts()
        until_s = time.monotonic() + 10
        eventually(
            lambda: min(counts()) >= MESSAGES or time.monotonic() > until_s,  # noqa: B023
            what="all have come back, or nothing comes",
        )
