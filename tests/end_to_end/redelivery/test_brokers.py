"""The brokers start, stop, crash and come back; real JMS clients produce, fail and consume on them.

What other tests rest on: a message that never failed arrives as it was sent, and a message that
failed too often arrives in the dead-letter queue.
"""

import os
from collections.abc import Callable

import pytest

from support.brokers.jvm import Jvm
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer, PeerError

pytestmark = pytest.mark.broker


def test_messages_that_do_not_come_are_an_error(classic_6: ClassicBroker, unique: str) -> None:
    """It says which came: a test that goes on with fewer would prove less than it says."""
    peer = JmsPeer.of(classic_6, "openwire")
    peer.produce(unique, "Text", test_id=unique)
    with pytest.raises(PeerError, match=rf"2 messages, 1 times each.*{unique}-0=1"):
        peer.fail(unique, messages=2, wait_ms=500)


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
