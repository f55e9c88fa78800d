"""Virtual topics: the consumer whose copy failed gets it back, and no other does."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.brokers.broker_xml import classic_xml
from support.brokers.real import ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

VIRTUAL_TOPICS = """
    <destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>
      <virtualTopic name="VirtualTopic.>" prefix="Consumer.*."/>
      <virtualTopic name="Same.>" prefix="Copy.*." setOriginalDestination="false"/>
      <virtualTopic name="Audited.>" prefix="Audit.*." setOriginalDestination="false"/>
      <virtualTopic name="Mixed.>" prefix="Shared.*." setOriginalDestination="false"/>
    </virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>
"""
STRATEGIES = """
    <policyEntry queue=">"><deadLetterStrategy>
      <individualDeadLetterStrategy/>
    </deadLetterStrategy></policyEntry>
    <policyEntry topic=">"><deadLetterStrategy>
      <individualDeadLetterStrategy/>
    </deadLetterStrategy></policyEntry>
    <policyEntry queue="Copy.>"><deadLetterStrategy>
      <individualDeadLetterStrategy enableAudit="false"/>
    </deadLetterStrategy></policyEntry>
    <policyEntry queue="Shared.>"><deadLetterStrategy>
      <sharedDeadLetterStrategy/>
    </deadLetterStrategy></policyEntry>
"""
REDELIVERY = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap>
      <defaultEntry>
        <redeliveryPolicy maximumRedeliveries="2" initialRedeliveryDelay="200"/>
      </defaultEntry>
    </redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""


def activemq_xml(plugins: str = "") -> str:
    """Return the file of a broker with these virtual topics and strategies."""
    text = classic_xml(destination_policy=STRATEGIES, plugins=plugins, scheduler_support=True)
    return text.replace("<destinationPolicy>", f"{VIRTUAL_TOPICS}<destinationPolicy>", 1)


@dataclass
class Attached:
    """A broker with virtual topics, a sidecar, and an application."""

    sidecar: SidecarProcess
    peer: JmsPeer

    def join(self, *queues: str) -> None:
        """Make the queues: a virtual topic copies to those that are there."""
        for queue in queues:
            assert self.peer.consume(queue, wait_ms=50) == []


@pytest.fixture(
    scope="module", params=[pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6]
)
def attached(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attached]:
    folder = tmp_path_factory.mktemp("sidecar")
    policy = folder / "activemq.xml"
    policy.write_text(activemq_xml(REDELIVERY), encoding="utf-8")
    with (
        ClassicBroker(request.param, activemq_xml=activemq_xml()) as broker,
        SidecarProcess(
            folder, broker.openwire_url, policy=policy, sets=["intake.backlog=process"]
        ) as sidecar,
    ):
        sidecar.start()
        yield Attached(sidecar, JmsPeer.of(broker, "openwire"))


@pytest.mark.parametrize(
    ("topic", "prefix", "named", "first_source"),
    [
        ("VirtualTopic", "Consumer", "queue://{queue}", "ActiveMQ.DLQ.Queue."),
        ("Same", "Copy", "topic://{topic}", "ActiveMQ.DLQ.Topic."),
    ],
    ids=["ordinary", "setOriginalDestination=false"],
)
def test_a_failed_copy_returns_to_its_own_queue_only(
    attached: Attached, unique: str, topic: str, prefix: str, named: str, first_source: str
) -> None:
    """A's copy dies three times: A gets it twice more, B, a subscriber and their queues nothing.

    With `setOriginalDestination="false"` the first death lies under the topics' prefix and names
    the topic; the name of its dead-letter queue tells the queue.
    """
    peer = attached.peer
    topic = f"{topic}.{unique}"
    failing, working = f"{prefix}.A.{topic}", f"{prefix}.B.{topic}"
    attached.join(failing, working)
    peer.durable_subscribe(topic, unique, "subscriber")
    [sent] = peer.produce(f"topic://{topic}", "Text", test_id=unique)
    seen = peer.fail(failing, messages=1, deliveries=3)
    [dead] = peer.consume(f"ActiveMQ.DLQ.Queue.{failing}.exhausted", count=1)
    subscribed = peer.consume_durable(topic, unique, "subscriber", count=1)
    subscribed += peer.consume_durable(topic, unique, "subscriber")
    peer.durable_unsubscribe(unique, "subscriber")

    assert [one.value("amqsidecarRedeliveryCount") for one in seen] == [None, 1, 2]
    assert [one.body for one in (*seen, dead)] == [sent.body] * 4
    assert [one.headers["JMSDestination"] for one in seen] == [
        named.format(queue=failing, topic=topic),
        *[f"queue://{failing}"] * 2,
    ]
    assert dead.value("amqsidecarRedeliveryCount") == 2
    for elsewhere in (subscribed, peer.consume(working, count=1) + peer.consume(working)):
        assert [one.value("amqsidecarRedeliveryCount") for one in elsewhere] == [None]
    assert peer.consume(failing, wait_ms=200) == []
    history = attached.sidecar.json_command("show", dead.value("amqsidecarRedeliveryId"))["history"]
    deaths = [one for one in history if one["type"] in ("received", "returned")]
    assert [one["source"] for one in deaths] == [
        f"queue://{first_source}{failing}",
        *[f"queue://ActiveMQ.DLQ.Queue.{failing}"] * 2,
    ]
    assert {one["origin"] for one in deaths} == {f"queue://{failing}"}


@pytest.mark.parametrize(("topic", "prefix"), [("VirtualTopic", "Consumer"), ("Same", "Copy")])
def test_when_two_consumers_fail_both_get_their_copy_back(
    attached: Attached, unique: str, topic: str, prefix: str
) -> None:
    """Copies have one message id; each comes back to the queue where it died."""
    queues = fail_both(attached, prefix, f"{topic}.{unique}")
    for queue in queues:
        [back] = attached.peer.consume(queue, count=1)
        assert back.value("amqsidecarRedeliveryCount") == 1
        assert attached.peer.consume(queue, wait_ms=200) == []


def test_the_audit_loses_the_second_copy_of_one_topic(attached: Attached, unique: str) -> None:
    """The broker's loss, not ours: the audit of an individual strategy goes by what messages name.

    With `setOriginalDestination="false"` that is the topic, for all its queues: write
    `enableAudit="false"`, as the entry of `Copy.>` does.
    """
    queues = fail_both(attached, "Audit", f"Audited.{unique}")
    [back] = attached.peer.consume(queues[0], count=1)
    assert back.value("amqsidecarRedeliveryCount") == 1
    assert attached.peer.consume(queues[1], wait_ms=800) == []
    for dead_letter_queue in (f"ActiveMQ.DLQ.Topic.{queues[1]}", "ActiveMQ.DLQ"):
        assert attached.peer.browse(dead_letter_queue) == []


def fail_both(attached: Attached, prefix: str, topic: str) -> list[str]:
    """Let a message of a virtual topic die on both its consumers' queues, and return these."""
    queues = [f"{prefix}.{name}.{topic}" for name in "AB"]
    attached.join(*queues)
    attached.peer.produce(f"topic://{topic}", "Text")
    for queue in queues:
        attached.peer.fail(queue, messages=1, deliveries=1)
    return queues


def test_without_a_name_that_shows_the_queue_it_is_parked(attached: Attached, unique: str) -> None:
    """The message names the topic, and nothing says which consumer failed: a person decides.

    In a shared dead-letter queue; of a durable subscription: `redelivery/test_classic.py`.
    """
    topic = f"Mixed.{unique}"
    attached.join(f"Shared.A.{topic}")
    attached.peer.produce(f"topic://{topic}", "Text", test_id=unique)
    attached.peer.fail(f"Shared.A.{topic}", messages=1, deliveries=1)
    [row] = eventually(
        lambda: attached.sidecar.rows("--destination", f"topic://{topic}"),
        what="the dead letter is taken",
    )

    assert row["state"] == "parked"
    assert "every subscriber" in row["rule"]


def test_doctor_examines_the_queue_where_a_copy_died_and_not_its_topic(tmp_path: Path) -> None:
    policy = tmp_path / "activemq.xml"
    policy.write_text(activemq_xml(REDELIVERY), encoding="utf-8")
    sets = ["redelivery.allowed_origins=[Copy.>]"]
    with (
        ClassicBroker(activemq_xml=activemq_xml()) as broker,
        SidecarProcess(tmp_path, broker.openwire_url, policy=policy, sets=sets) as sidecar,
    ):
        peer = JmsPeer.of(broker, "openwire")
        peer.consume("Copy.A.Same.doctor", wait_ms=50)
        peer.produce("topic://Same.doctor", "Text")
        peer.fail("Copy.A.Same.doctor", messages=1)
        dead = "ActiveMQ.DLQ.Topic.Copy.A.Same.doctor"
        eventually(lambda: len(peer.browse(dead)) == 1, what="the copy has died")
        found = sidecar.json_command("doctor")["findings"]
        assert [one for one in found if "topic://Same.doctor" in str(one)] == []
