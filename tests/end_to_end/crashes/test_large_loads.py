"""Kills while much is in hand, and for want of memory: no message is lost, doubled or altered."""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from amqsidecar.engine import crash_points
from end_to_end.crashes.test_kills import ARTEMIS_SETTINGS, CLASSIC_POLICY
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS
from support.brokers.real import FULL_SPEED, QUICK_START, ArtemisBroker, Broker, ClassicBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.machine.cgroup import memory_group
from support.sidecar.policy import FOUR_ATTEMPTS, write_policy
from support.sidecar.process import COMMAND, FORKED, SidecarProcess
from support.tier import at_length
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

LARGE_BYTES = 20_000_000
LARGE_KILLS = at_length(crash_points.NAMES, otherwise=("sent", "committed"))
ORIGINS = at_length(1_000, otherwise=100)
BACKLOG = at_length(16, otherwise=12)
BACKLOG_BYTES = 5_000_000
# Enough to start, and too little to load what is handed over before sizes are known.
TOO_LITTLE_BYTES = 90 * 2**20
OUT_OF_MEMORY_KILLS = at_length(4, otherwise=1)
FLAGS = at_length(FULL_SPEED, otherwise=QUICK_START)
OPTIONS = ("intake.backlog=process", "broker.idle_timeout_s=2")


@pytest.fixture(
    scope="module", params=["openwire", pytest.param("artemis", marks=pytest.mark.proof)]
)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker by the wire of its sidecar."""
    settings = STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS
    with (
        ClassicBroker(jvm_flags=FLAGS)
        if request.param == "openwire"
        else ArtemisBroker(address_settings=settings, jvm_flags=FLAGS)
    ) as running:
        yield running


@pytest.fixture
def peer(broker: Broker) -> JmsPeer:
    return JmsPeer.of(broker, "qpid" if isinstance(broker, ArtemisBroker) else "openwire")


@pytest.fixture
def how(broker: Broker) -> str:
    """How a consumer gives a message up at once."""
    return "reject" if isinstance(broker, ArtemisBroker) else "rollback"


def sidecar_of(
    broker: Broker, folder: Path, *sets: str, program: Sequence[str] = FORKED
) -> SidecarProcess:
    is_artemis = isinstance(broker, ArtemisBroker)
    policy = write_policy(folder, FOUR_ATTEMPTS if is_artemis else CLASSIC_POLICY)
    url = broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url
    return SidecarProcess(folder, url, policy=policy, sets=(*OPTIONS, *sets), program=program)


def digests(messages: Sequence[JmsMessage]) -> Counter[tuple[str, str]]:
    """Return how often each message is there, with a digest of its body."""
    return Counter((one.test_id, sha256(str(one.body).encode()).hexdigest()) for one in messages)


def kill_one(peer: JmsPeer, queue: str, how: str, body_size: int) -> Counter[tuple[str, str]]:
    """Let one message of a size die; return its digest."""
    sent = peer.produce(queue, "Bytes", body_size=body_size, group=None)
    peer.fail(queue, how, messages=1)
    return digests(sent)


def consume_all(peer: JmsPeer, queue: str, count: int) -> Counter[tuple[str, str]]:
    """Take this many, one by one, and what else is there; return their digests."""
    found: Counter[tuple[str, str]] = Counter()
    for _ in range(count):
        found += digests(peer.consume(queue, count=1))
    return found + digests(peer.consume(queue))


def wait_sent(sidecar: SidecarProcess) -> None:
    eventually(lambda: sidecar.unsent() == 0, within_s=PATIENCE_S, what="nothing waits")
    assert "cycle_in_doubt" not in sidecar.log()


def test_bodies_of_20_mb_come_back_once_and_whole_under_kills(
    broker: Broker, peer: JmsPeer, how: str, unique: str, tmp_path: Path
) -> None:
    sent: Counter[tuple[str, str]] = Counter()
    with sidecar_of(broker, tmp_path) as sidecar:
        for name in LARGE_KILLS:
            sent += kill_one(peer, unique, how, LARGE_BYTES)
            sidecar.die_at(f"{name}:1")
        sidecar.start()
        assert consume_all(peer, unique, sent.total()) == sent
        wait_sent(sidecar)
        assert sidecar.stop() == 0


def test_many_origins_get_each_message_once_under_kills(
    broker: Broker, peer: JmsPeer, how: str, unique: str, tmp_path: Path
) -> None:
    queues = [f"{unique}.{number:04}" for number in range(ORIGINS)]
    sent = peer.produce_each(
        [
            {"destination": one, "type": "Text", "properties": {"testId": ["String", one]}}
            for one in queues
        ]
    )
    assert len(sent) == ORIGINS
    if isinstance(broker, ClassicBroker):
        peer.fail(f"{unique}.>", how, messages=ORIGINS)
    else:
        for one in queues:
            peer.fail(one, how, messages=1)
    with sidecar_of(broker, tmp_path, f"cycle.max_messages={ORIGINS // 50}") as sidecar:
        for name in crash_points.NAMES:
            sidecar.die_at(f"{name}:4")
        sidecar.start()
        wait_sent(sidecar)
        found: list[JmsMessage] = []
        if isinstance(broker, ClassicBroker):
            found = peer.consume(f"{unique}.>", count=ORIGINS)
            found += peer.consume(f"{unique}.>")
        else:
            for one in queues:
                found += peer.consume(one, wait_ms=50)
        assert sidecar.stop() == 0
    places = Counter((one.test_id, one.headers["JMSDestination"]) for one in found)
    assert places == Counter((one, f"queue://{one}") for one in queues)


def test_a_process_that_the_kernel_kills_for_want_of_memory_loses_and_doubles_nothing(
    broker: Broker, peer: JmsPeer, how: str, unique: str, tmp_path: Path
) -> None:
    sent: Counter[tuple[str, str]] = Counter()
    for _ in range(BACKLOG):
        sent += kill_one(peer, unique, how, BACKLOG_BYTES)
    # Why the command: what a forked process has of its parent counts for the parent.
    with sidecar_of(broker, tmp_path, program=COMMAND) as sidecar:
        with memory_group(TOO_LITTLE_BYTES) as group:
            for _ in range(OUT_OF_MEMORY_KILLS):
                process = sidecar.start(ready=False).process
                assert process is not None
                group.add(process.pid)
                assert process.wait(PATIENCE_S) == -signal.SIGKILL, sidecar.log()[-4000:]
        sidecar.start()
        assert consume_all(peer, unique, sent.total()) == sent
        wait_sent(sidecar)
        assert sidecar.stop() == 0
