"""The brokers start, stop, crash and come back; real JMS clients produce, fail and consume on them.

What other tests rest on: a message that never failed arrives as it was sent, and a message that
failed too often arrives in the dead-letter queue.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.brokers.jvm import Jvm
from support.brokers.real import ArtemisBroker, Broker, BrokerStartError, ClassicBroker
from support.jms.peer import ALL_TYPES, JmsPeer, PeerError, PeerProcess, Typed
from support.machine.processes import run_program
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

CLIENTS = [
    ("classic_5", "openwire"),
    ("classic_6", "openwire"),
    ("classic_5", "qpid"),
    ("classic_6", "qpid"),
    ("classic_5", "qpid-jms"),
    ("artemis", "core"),
    ("artemis", "qpid"),
]
# Why: the stock max-delivery-attempts is 10, and a Core client has no limit of its own.
WAYS_TO_FAIL = [
    *(
        (broker, "openwire", how, 1)
        for broker in ("classic_5", "classic_6")
        for how in ("rollback", "recover", "listener", "close")
    ),
    *(
        (broker, "qpid", how, 1)
        for broker in ("classic_5", "classic_6", "artemis")
        for how in ("rollback", "recover", "close", "reject")
    ),
    *(
        ("artemis", "core", how, count)
        for how, count in (("rollback", 10), ("recover", 10), ("listener", 10), ("close", 10))
    ),
]


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> JmsPeer:
    broker, provider = request.param
    return JmsPeer.of(request.getfixturevalue(broker), provider)


def dead_letter_queue(broker: Broker) -> str:
    return "DLQ" if isinstance(broker, ArtemisBroker) else "ActiveMQ.DLQ"


@pytest.mark.parametrize("peer", CLIENTS, indirect=True, ids="-".join)
def test_every_type_arrives_as_it_was_sent(peer: JmsPeer, unique: str) -> None:
    """All body and property types and headers arrive as the sender saw them."""
    sent = peer.produce(unique)
    received = peer.consume(unique, count=len(ALL_TYPES))

    assert [
        one.differences(other, without_headers=())
        for one, other in zip(sent, received, strict=True)
    ] == [[]] * len(ALL_TYPES)
    assert [one.type for one in received] == [
        "Text",
        "Bytes",
        "Map",
        "Object",
        "Stream",
        "Message",
        "Text",
        "Text",
    ]
    assert [received[6].body, received[7].body] == [None, ""]
    assert all(one.body_error is None for one in received)
    assert received[0].headers["JMSPriority"] == 7
    assert received[0].group_id == "group-1"


@pytest.mark.parametrize("peer", CLIENTS, indirect=True, ids="-".join)
def test_properties_keep_their_java_types(peer: JmsPeer, unique: str) -> None:
    """A property that a test names arrives with the type and value that it gave."""
    given = {"small": Typed("Short", 3), "big": 1 << 60, "half": 0.5, "yes": True, "word": "é"}
    peer.produce(unique, "Text", properties=given, sample_properties=False)
    [received] = peer.consume(unique, count=1)

    assert {name: received.properties[name] for name in given} == {
        "small": ["Short", 3],
        "big": ["Long", 1 << 60],
        "half": ["Double", 0.5],
        "yes": ["Boolean", True],
        "word": ["String", "é"],
    }


@pytest.mark.parametrize(("broker_name", "provider", "how", "deliveries"), WAYS_TO_FAIL)
def test_poison_messages_reach_the_dead_letter_queue(
    broker_name: str,
    provider: str,
    how: str,
    deliveries: int,
    unique: str,
    request: pytest.FixtureRequest,
) -> None:
    """A message that fails as often as client and broker allow is in the dead-letter queue."""
    broker = request.getfixturevalue(broker_name)
    peer = JmsPeer.of(broker, provider)
    sent = peer.produce(unique, ["Text", "Map"], test_id=unique)
    seen = peer.fail(unique, how, messages=2, deliveries=deliveries)
    dead = peer.consume(dead_letter_queue(broker), count=2, selector=f"testId LIKE '{unique}-%'")

    assert len(seen) == 2 * deliveries
    assert {one.test_id for one in seen} == {one.test_id for one in sent}
    assert sorted(one.test_id for one in dead) == [one.test_id for one in sent]
    assert peer.consume(unique, wait_ms=100) == []


def test_messages_that_do_not_come_are_an_error(classic_6: ClassicBroker, unique: str) -> None:
    """It says which came: a test that goes on with fewer would prove less than it says."""
    peer = JmsPeer.of(classic_6, "openwire")
    peer.produce(unique, "Text", test_id=unique)
    with pytest.raises(PeerError, match=rf"2 messages, 1 times each.*{unique}-0=1"):
        peer.fail(unique, messages=2, wait_ms=500)


@pytest.mark.parametrize("limit", [0, 2])
def test_the_clients_own_limit_is_kept(classic: ClassicBroker, unique: str, limit: int) -> None:
    """An OpenWire client gives a message up after its maximum of redeliveries, and says so."""
    peer = JmsPeer.of(classic, "openwire")
    peer.produce(unique, "Text", test_id=unique)
    seen = peer.fail(unique, messages=1, deliveries=limit + 1, max_redeliveries=limit)
    [dead] = peer.consume("ActiveMQ.DLQ", count=1, selector=f"testId = '{unique}-0'")

    assert [one.delivery_count for one in seen] == list(range(1, limit + 2))
    assert f"Delivery[{limit + 1}] exceeds" in dead.value("dlqDeliveryFailureCause")


def test_expired_messages_reach_the_dead_letter_queue(classic: ClassicBroker, unique: str) -> None:
    """A message that outlives its time is in the dead-letter queue, with the cause."""
    peer = JmsPeer.of(classic, "openwire")
    peer.produce(unique, "Text", test_id=unique, ttl_ms=1)

    # Why: the stock broker looks for expired messages every 30 s, and whenever somebody consumes.
    assert peer.consume(unique, wait_ms=200) == []
    [dead] = peer.consume("ActiveMQ.DLQ", count=1, selector=f"testId = '{unique}-0'")
    assert "Message Expired" in dead.value("dlqDeliveryFailureCause")


@pytest.mark.parametrize(
    ("broker_name", "provider", "deliveries"),
    [("classic_5", "openwire", 1), ("artemis", "core", 10), ("artemis", "qpid", 1)],
)
def test_durable_subscriptions_fail_alone(
    broker_name: str, provider: str, deliveries: int, unique: str, request: pytest.FixtureRequest
) -> None:
    """Of two durable subscriptions one fails a message, the other still gets it."""
    broker = request.getfixturevalue(broker_name)
    peer = JmsPeer.of(broker, provider)
    peer.durable_subscribe(unique, f"{unique}-a", "failing")
    peer.durable_subscribe(unique, f"{unique}-b", "working")
    peer.produce(f"topic://{unique}", "Text", test_id=unique)
    peer.fail_durable(unique, f"{unique}-a", "failing", messages=1, deliveries=deliveries)
    dead = peer.consume(dead_letter_queue(broker), count=1, selector=f"testId = '{unique}-0'")
    worked = peer.consume_durable(unique, f"{unique}-b", "working", count=1)
    peer.durable_unsubscribe(f"{unique}-a", "failing")
    peer.durable_unsubscribe(f"{unique}-b", "working")

    assert [one.test_id for one in dead] == [one.test_id for one in worked] == [f"{unique}-0"]
    assert worked[0].headers["JMSDestination"] == f"topic://{unique}"


@pytest.mark.parametrize(
    ("broker_name", "provider"),
    [
        ("classic_5", "openwire"),
        ("classic_6", "openwire"),
        ("artemis", "core"),
        ("artemis", "qpid"),
    ],
)
def test_a_flaky_consumer_fails_each_message_as_often_as_asked(
    broker_name: str, provider: str, unique: str, request: pytest.FixtureRequest
) -> None:
    """A property says how often a message fails; every delivery is reported, in order."""
    peer = JmsPeer.of(request.getfixturevalue(broker_name), provider)
    with peer.start_flaky_consumer(
        unique, failures_property="failures", max_redeliveries=5, full=True
    ) as consumer:
        for failures in (0, 2, 1):
            peer.produce(
                unique, "Text", test_id=f"{unique}-{failures}", properties={"failures": failures}
            )
        succeeded = consumer.wait_for_successes(3)
        outcomes = {
            failures: [
                one.outcome for one in consumer.events() if one.id == f"{unique}-{failures}-0"
            ]
            for failures in (0, 1, 2)
        }

    assert sorted(succeeded) == [f"{unique}-{failures}-0" for failures in (0, 1, 2)]
    assert outcomes == {
        failures: ["failing", "failed"] * failures + ["succeeding", "succeeded"]
        for failures in (0, 1, 2)
    }
    assert consumer.events("succeeding")[0].message is not None


@pytest.mark.parametrize(
    ("broker_name", "provider"),
    [("classic_6", "openwire"), ("artemis", "core"), ("artemis", "qpid")],
)
def test_many_messages_are_filled_moved_and_drained(
    broker_name: str, provider: str, unique: str, request: pytest.FixtureRequest
) -> None:
    """What benchmarks compare with moves every message, in transactions."""
    peer = JmsPeer.of(request.getfixturevalue(broker_name), provider)
    peer.fill(f"{unique}.from", 250, size=100, batch=100)
    moved = peer.move(f"{unique}.from", f"{unique}.to", 250, batch=100, wait_ms=60_000)
    # Why waited for: under load a browser of Classic has shown nothing.
    first = eventually(lambda: peer.browse(f"{unique}.to", limit=3), what="they are shown")
    drained = peer.drain(f"{unique}.to", 250)

    assert (moved.count, drained.count) == (250, 250)
    assert [one.test_id for one in first] == ["n0", "n1", "n2"]
    assert moved.per_second > 0


# Why in proof: the tests that kill brokers in the middle of messages rest on it.
@pytest.mark.proof
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ClassicBroker(CLASSIC_5), id="classic-5"),
        pytest.param(lambda: ClassicBroker(CLASSIC_6), id="classic-6"),
        pytest.param(ArtemisBroker, id="artemis"),
    ],
)
def test_persistent_messages_survive_a_crash(make: Callable[[], Broker]) -> None:
    """After SIGKILL the broker is back on the same ports with the same messages and consumers."""
    with make() as broker:
        ports = dict(broker.ports)
        peer = JmsPeer.of(broker, "qpid")
        peer.produce("orders", "Text", test_id="before")
        with peer.start_flaky_consumer("others") as consumer:
            broker.kill()
            assert not broker.is_running
            consumer.wait_for(lambda seen: any(one.outcome == "disconnected" for one in seen))
            broker.restart()
            peer.produce("others", "Text", test_id="after")
            assert consumer.wait_for_successes(1) == ["after-0"]

        assert dict(broker.ports) == ports
        assert [one.test_id for one in peer.consume("orders", count=1)] == ["before-0"]
        folder = broker.folder
    assert not folder.exists()


def test_classic_runs_what_its_xml_says(unique: str) -> None:
    """Plug-ins and dead-letter strategies of the given XML are in force on both versions."""
    for version in (CLASSIC_5, CLASSIC_6):
        with ClassicBroker(
            version,
            plugins='<discardingDLQBrokerPlugin dropAll="false" dropOnly="drop.*"/>',
            destination_policy="""
                <policyEntry queue=">"><deadLetterStrategy>
                  <individualDeadLetterStrategy queuePrefix="DLQ." useQueueForQueueMessages="true"/>
                </deadLetterStrategy></policyEntry>""",
            authentication=True,
        ) as broker:
            peer = JmsPeer.of(broker, "openwire")
            for queue in ("keep", "drop.this"):
                peer.produce(queue, "Text", test_id=queue)
                peer.fail(queue, messages=1, deliveries=1)

            assert [one.test_id for one in peer.consume("DLQ.keep", count=1)] == ["keep-0"]
            assert peer.consume("DLQ.drop.this", wait_ms=300) == []
            stranger = JmsPeer.of(broker, "openwire")
            stranger.password = "wrong"
            with pytest.raises(PeerError, match="User name"):
                stranger.browse("keep")


def test_artemis_runs_what_its_xml_says() -> None:
    """Address settings of the given XML are in force."""
    settings = """
        <address-setting match="#">
          <dead-letter-address>DLQ</dead-letter-address>
          <max-delivery-attempts>3</max-delivery-attempts>
        </address-setting>"""
    with ArtemisBroker(address_settings=settings) as broker:
        peer = JmsPeer.of(broker, "core")
        peer.produce("orders", "Text")
        seen = peer.fail("orders", messages=1, deliveries=3)
        [dead] = peer.consume("DLQ", count=1)

    assert [one.delivery_count for one in seen] == [1, 2, 3]
    assert dead.value("_AMQ_ORIG_ADDRESS") == "orders"


class OwnJvmArtemis(ArtemisBroker):
    """Its option keeps it out of the JVMs of other tests."""

    traced = ("org.apache.activemq.artemis.core.server",)

    def _java(self) -> list[str]:
        return ["-Dof.its.own=1", *super()._java()]


class OwnJvmClassic(ClassicBroker):
    """Its option keeps it out of the JVMs of other tests."""

    traced = ("org.apache.activemq.broker",)

    def _java(self) -> list[str]:
        return ["-Dof.its.own=1", *super()._java()]


@pytest.mark.parametrize("make", [OwnJvmArtemis, OwnJvmClassic])
def test_the_next_broker_of_a_jvm_has_nothing_of_the_one_before(make: Callable[[], Broker]) -> None:
    """It has its own data, users and log; who knows the id of the process keeps it for himself."""
    with make() as first:
        first_peer = JmsPeer.of(first, "qpid")
        first_peer.produce("orders", "Text")
        assert "DEBUG" in first.log_tail(lines=1_000)
    before = Jvm.starts
    second = make()
    second.traced = ()
    second.password = "other"
    with second:
        assert Jvm.starts == before
        peer = JmsPeer.of(second, "qpid")
        assert peer.consume("orders", wait_ms=300) == []
        peer.produce("orders", "Text", test_id="second")
        assert [one.test_id for one in peer.consume("orders", count=1)] == ["second-0"]
        if isinstance(second, ArtemisBroker):
            peer.password = first.password
            with pytest.raises(PeerError, match="failed to authenticate"):
                peer.browse("orders")
        assert "DEBUG" not in second.log_tail(lines=1_000)
        assert second.pid != os.getpid()
    with make():
        assert Jvm.starts == before + 1


def test_a_broken_configuration_says_why() -> None:
    """A broker that can't start raises with the tail of its log."""
    broker = ClassicBroker(CLASSIC_6, plugins="<noSuchPlugin/>")
    with pytest.raises(BrokerStartError, match="noSuchPlugin"):
        broker.start()
    broker.close()


def test_a_broker_ends_with_its_owner() -> None:
    """When the process that started a broker is killed, the broker ends."""
    script = (
        "import os, signal\n"
        "from support.brokers.real import ClassicBroker\n"
        "broker = ClassicBroker('6.3.1').start()\n"
        "broker.keep_folder()\n"
        "own = os.readlink(f'/proc/{broker.pid}/cwd')\n"
        "print(broker.pid, broker.folder, own, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = run_program([sys.executable, "-c", script], env=environment)
    pid, *folders = done.stdout.split()
    eventually(lambda: not _lives(int(pid)), what="the broker ends with its owner")
    for folder in folders:
        shutil.rmtree(folder)


def test_a_killed_application_leaves_its_message() -> None:
    """When the JVM of an application is killed in a transaction, its message is delivered again."""
    with ArtemisBroker() as broker:
        peer = JmsPeer.of(broker, "core")
        peer.produce("orders", "Text", test_id="one")
        process = PeerProcess()
        doomed = JmsPeer.of(broker, "core", process=process)
        consumer = doomed.start_flaky_consumer("orders", failures=-1, how="rollback")
        consumer.wait_for(lambda seen: len(seen) > 0)
        process.kill()
        with pytest.raises(PeerError, match="the JVM has ended"):
            doomed.browse("orders")
        # Why again and again: the broker notices a moment later that the connection has ended.
        [again] = eventually(
            lambda: [*peer.consume("orders", wait_ms=500), *peer.consume("DLQ", wait_ms=500)],
            what="it is delivered again",
        )
        assert again.test_id == "one-0"


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
