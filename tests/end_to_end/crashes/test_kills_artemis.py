"""Over `artemis://` the sidecar is killed while clients of four kinds share a dead-letter queue.

Each kind of producer has its own queue and its own consumer; what each consumer sees is
compared field by field with what its producer sent.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.engine import crash_points
from end_to_end.crashes.test_kills import CORE_SETTINGS, OPTIONS
from support.brokers.real import ArtemisBroker
from support.jms.ledger import assert_each_ended_once
from support.jms.message import JmsMessage
from support.jms.peer import ALL_TYPES, JmsPeer
from support.sidecar.policy import FOUR_ATTEMPTS, write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

MESSAGES = at_length(2_000, otherwise=300)
KILLS_PER_CRASH_POINT = at_length(3, otherwise=1)
POINTS = (*crash_points.NAMES, crash_points.CHANGING_WIRES)
HOW = {"core": "rollback", "qpid": "reject", "openwire": "rollback"}
# Most are sent by the cycle that takes them; those that are due beside a kill wait in the store.
AT_ONCE = FOUR_ATTEMPTS.replace("redelivery_delay_ms: 100", "redelivery_delay_ms: 0")
# Artemis shows it to OpenWire clients, and does from the first delivery on.
OF_BROKER = "__AMQ_CID"


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=CORE_SETTINGS) as running:
        yield running


class Application:
    """A producer and a consumer of one kind."""

    def __init__(self, broker: ArtemisBroker, kind: str, queue: str) -> None:
        self.peer = JmsPeer.of(broker, kind)
        self.queue = queue
        self.types = (*ALL_TYPES, "NullObject") if kind == "core" else ALL_TYPES
        self.sent: list[JmsMessage] = []
        self.consumer = self.peer.start_flaky_consumer(
            queue, failures_property="failures", how=HOW[kind], full=True
        )

    def produce(self, rounds: int, failures: int, group: str | None) -> None:
        """Send all types some times; each message fails as often."""
        self.sent += self.peer.produce(
            self.queue,
            self.types,
            count=rounds,
            properties={"failures": failures},
            group=group,
            transacted=True,
        )

    @property
    def sent_count(self) -> int:
        """How many messages were sent."""
        return len(self.sent)


class StompApplication(Application):
    """A STOMP producer and a Core consumer, whose first look at a message is what was sent."""

    def __init__(self, broker: ArtemisBroker, queue: str) -> None:
        super().__init__(broker, "core", queue)
        self.port = broker.ports["PORT"]
        self.ids: list[str] = []

    def produce(self, rounds: int, failures: int, group: str | None) -> None:
        """Send as many as the others do."""
        headers = {"destination-type": "ANYCAST", "failures": str(failures), "price": "1.50"}
        if group is not None:
            headers["JMSXGroupID"] = group
        with StompPeer(self.port) as peer:
            for _ in range(rounds * len(ALL_TYPES)):
                one = f"{self.queue}-{len(self.ids)}"
                peer.send(self.queue, {**headers, "testId": one}, one.encode())
                self.ids.append(one)

    @property
    def sent_count(self) -> int:
        """How many messages were sent."""
        return len(self.ids)

    def read_sent(self) -> None:
        """Take the first look at each message."""
        first: dict[str, JmsMessage] = {}
        for event in self.consumer.events():
            if event.message is not None:
                first.setdefault(event.message.test_id, event.message)
        assert sorted(first) == sorted(self.ids)
        assert all(message.body == one for one, message in first.items())
        self.sent = list(first.values())


@pytest.mark.parametrize("group", [None, "group-1"])
def test_mixed_producers_lose_double_and_alter_nothing(
    broker: ArtemisBroker, unique: str, tmp_path: Path, group: str | None
) -> None:
    policy = write_policy(tmp_path, AT_ONCE)
    chance = random.Random()
    names = [name for name in POINTS for _ in range(KILLS_PER_CRASH_POINT)]
    chance.shuffle(names)
    kinds = broker.jms_providers
    rounds = max(1, MESSAGES // len(kinds) // len(ALL_TYPES) // (len(names) + 1))
    stomp = StompApplication(broker, f"stomp.{unique}")
    applications = [stomp, *(Application(broker, kind, f"{kind}.{unique}") for kind in kinds)]
    with SidecarProcess(tmp_path, broker.pair_url, policy=policy, sets=OPTIONS) as sidecar:
        for name in names:
            for one in applications:
                one.produce(rounds, chance.randint(1, 2), group)
            sidecar.die_at(f"{name}:1")
        for one in applications:
            one.produce(rounds, 1, group)
        sidecar.start()
        for one in applications:
            one.consumer.wait_for_successes(one.sent_count)
        eventually(lambda: sidecar.unsent() == 0, what="all is sent")
        assert sidecar.stop() == 0
        assert "cycle_in_doubt" not in sidecar.log()
    stomp.read_sent()
    for one in applications:
        events = one.consumer.events()
        assert_each_ended_once(one.sent, events, added=[OF_BROKER])
        seen = [event.message for event in events if event.message is not None]
        shown = {(message.test_id, message.value(OF_BROKER)) for message in seen}
        assert len(shown) == len(one.sent)
        assert one.peer.browse(one.queue) == []
        one.consumer.stop()
    assert applications[0].peer.browse("DLQ") == []
