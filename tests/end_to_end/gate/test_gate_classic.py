"""What Classic would lose, copy or misread stays in the schedule, whoever asks for its send."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import Broker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

COUNT = 2
POLICY = Path(__file__).parents[1] / "policies" / "redelivery.yaml"
RULES = """
policy:
  source: {policy}
  topics: republish
  plugins:
    - rules:
        rules:
          - queue: "{queue}"
            redirect: {{to: "{to}"}}
intake:
  backlog: process
"""
PLAIN: dict[str, Any] = {"sample_properties": False, "group": None, "text": "x"}
# Why not AMQP: it needs a dead-letter queue per queue; see `test_amqp_classic_link.py`.
WIRES = ["openwire", pytest.param("stomp", marks=pytest.mark.proof)]


@pytest.fixture(params=["classic_6", pytest.param("classic_5", marks=pytest.mark.proof)])
def classic(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@contextmanager
def redirecting(
    broker: Broker, wire: str, folder: Path, queue: str, to: str, *sets: str
) -> Iterator[SidecarProcess]:
    """Run a sidecar with a rule that redirects what dies in a queue, and let messages die there."""
    config = folder / "sidecar.yaml"
    config.write_text(RULES.format(policy=POLICY, queue=queue, to=to))
    environ = {"AMQSIDECAR_CONFIG": str(config)}
    url = getattr(broker, f"{wire}_url")
    with SidecarProcess(folder, url, environ=environ, sets=sets).running() as sidecar:
        peer = JmsPeer.of(broker, "openwire")
        peer.produce(queue, "Text", count=COUNT, **PLAIN)
        peer.fail(queue, "rollback", messages=COUNT)
        yield sidecar


def rows(sidecar: SidecarProcess, queue: str) -> list[dict[str, Any]]:
    return [one for one in sidecar.rows() if queue in one["destination"]]


def waits(sidecar: SidecarProcess, name: str, words: str) -> None:
    """Check that all messages wait, and why."""

    def reasons() -> list[str] | None:
        found = rows(sidecar, name)
        told = [one["reason"] for one in found if words in (one["reason"] or "")]
        return told if len(told) == COUNT else None

    eventually(reasons, what=f"all wait because {words}")


@pytest.mark.parametrize("wire", WIRES)
def test_a_topic_without_subscribers_is_waited_for(
    classic: Broker, tmp_path: Path, unique: str, wire: str
) -> None:
    """The broker would accept the message and drop it; once someone subscribes, it goes."""
    to = f"{unique}.news"
    with redirecting(classic, wire, tmp_path, f"{unique}.a", f"topic://{to}") as sidecar:
        waits(sidecar, to, "has no subscriber")
        with StompPeer(classic.ports["STOMP_PORT"]) as subscriber:
            subscriber.subscribe(f"/topic/{to}")
            assert [subscriber.receive().body for _ in range(COUNT)] == [b"x"] * COUNT


@pytest.mark.parametrize("topic", ["{}.news", "VirtualTopic.{}"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_subscriber_or_a_consumer_of_a_virtual_topic_gets_it_at_once(
    classic: Broker, tmp_path: Path, unique: str, wire: str, topic: str
) -> None:
    to = topic.format(unique)
    place = f"/queue/Consumer.one.{to}" if topic.startswith("Virtual") else f"/topic/{to}"
    with StompPeer(classic.ports["STOMP_PORT"]) as subscriber:
        subscriber.subscribe(place)
        with redirecting(classic, wire, tmp_path, f"{unique}.a", f"topic://{to}"):
            assert [subscriber.receive().body for _ in range(COUNT)] == [b"x"] * COUNT


@pytest.mark.parametrize("wire", WIRES)
def test_a_durable_subscription_is_known_while_its_consumer_is_connected(
    classic: Broker, tmp_path: Path, unique: str, wire: str
) -> None:
    """Without the broker's counters; with them see `contract/test_queue_counters.py`."""
    to = f"{unique}.news"
    peer = JmsPeer.of(classic, "openwire")
    peer.durable_subscribe(to, unique, "one")
    with redirecting(classic, wire, tmp_path, f"{unique}.a", f"topic://{to}") as sidecar:
        waits(sidecar, to, "has no subscriber")


def test_an_operator_may_let_messages_go_to_topics_that_nobody_reads(
    classic: Broker, tmp_path: Path, unique: str
) -> None:
    to = f"topic://{unique}.news"
    allow = "redelivery.allow=[drop]"
    with redirecting(classic, "openwire", tmp_path, f"{unique}.a", to, allow) as sidecar:
        eventually(lambda: sidecar.unsent() == 0, what="all are sent")


@pytest.mark.parametrize(
    "to",
    [
        "topic://ActiveMQ.Advisory.Queue",
        "topic://ActiveMQ.Scheduler.Management",
        "queue://amqsidecar.causes",
        "queue://b,c",
        "queue://news.>",
        "temp-queue://ID:x",
    ],
)
def test_no_rule_redirects_to_what_is_no_applications(
    classic: Broker, tmp_path: Path, unique: str, to: str
) -> None:
    queue = f"{unique}.a"
    with redirecting(classic, "openwire", tmp_path, queue, to) as sidecar:

        def parked() -> list[str] | None:
            found = [one["rule"] for one in rows(sidecar, queue) if one["state"] == "parked"]
            return found if len(found) == COUNT else None

        for reason in eventually(parked, what="all are parked"):
            assert to in reason
