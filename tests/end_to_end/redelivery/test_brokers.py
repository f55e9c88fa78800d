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
from support.jms.peer import JmsPeer, PeerError, PeerProcess
from support.machine.processes import run_program
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker


def test_messages_that_do_not_come_are_an_error(classic_6: ClassicBroker, unique: str) -> None:
    """It says which came: a test that goes on with fewer would prove less than it says."""
    peer = JmsPeer.of(classic_6, "openwire")
    peer.produce(unique, "Text", test_id=unique)
    with pytest.raises(PeerError, match=rf"2 messages, 1 times each.*{unique}-0=1"):
        peer.fail(unique, messages=2, wait_ms=500)


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
