"""The broker's own configuration file decides: what comes back, what is final, what is dropped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.broker_xml import artemis_xml, classic_xml
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.peer import JmsMessage, JmsPeer
from support.jms.redelivered import assert_not_early, receipts
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

INDIVIDUAL = """
    <policyEntry queue="{queues}"><deadLetterStrategy>
      <individualDeadLetterStrategy {attributes}/>
    </deadLetterStrategy></policyEntry>
"""
STRATEGIES = (
    INDIVIDUAL.format(queues="orders.>", attributes='queuePrefix="DLQ."')
    + INDIVIDUAL.format(queues="bills.>", attributes='queuePrefix="Dead." queueSuffix=".failed"')
    + INDIVIDUAL.format(
        queues="quick.>", attributes='queuePrefix="Quick." processNonPersistent="true"'
    )
    + """
    <policyEntry queue="shared.>"><deadLetterStrategy>
      <sharedDeadLetterStrategy>
        <deadLetterQueue><queue physicalName="My.DLQ"/></deadLetterQueue>
      </sharedDeadLetterStrategy>
    </deadLetterStrategy></policyEntry>
"""
)
REDELIVERY = """
    <redeliveryPlugin {attributes}><redeliveryPolicyMap><redeliveryPolicyMap>
      <redeliveryPolicyEntries>
        <redeliveryPolicy queue="{queues}" maximumRedeliveries="1" initialRedeliveryDelay="1000"/>
      </redeliveryPolicyEntries>
    </redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""
DISCARDING = r"""
    <discardingDLQBrokerPlugin dropAll="false" dropOnly="nothing orders\.[a-z_0-9]+\.drop"/>
"""


def activemq_xml(folder: Path, plugins: str) -> Path:
    """Write the activemq.xml of a broker that has both plug-ins and these strategies."""
    path = folder / "activemq.xml"
    text = classic_xml(plugins=plugins, destination_policy=STRATEGIES, scheduler_support=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(
    scope="module", params=[pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6]
)
def broker(request: pytest.FixtureRequest) -> Iterator[ClassicBroker]:
    """A broker without the plug-ins: the sidecar does their work."""
    with ClassicBroker(request.param, destination_policy=STRATEGIES) as started:
        yield started


@pytest.fixture
def peer(broker: ClassicBroker) -> JmsPeer:
    return JmsPeer.of(broker, "openwire")


def attach(broker: ClassicBroker, folder: Path, plugins: str, *sets: str) -> SidecarProcess:
    return SidecarProcess(
        folder,
        broker.openwire_url,
        policy=activemq_xml(folder, plugins),
        sets=["intake.backlog=process", *sets],
    )


def history(sidecar: SidecarProcess, row: int) -> list[dict[str, Any]]:
    """Return what happened to the message that was the first, second, ... dead letter."""
    return eventually(
        lambda: (sidecar.json_command("show", str(row)) or {}).get("history"),
        what=f"the history of row {row}",
    )


@pytest.mark.parametrize("sends_exhausted", [True, False], ids=["to-dlq", "drop"])
@pytest.mark.parametrize("falls_back", [True, False], ids=["fallback", "no-fallback"])
def test_all_four_combinations_of_fallback_and_exhausted(
    broker: ClassicBroker,
    peer: JmsPeer,
    tmp_path: Path,
    unique: str,
    falls_back: bool,
    sends_exhausted: bool,
) -> None:
    """`fallbackToDeadLetter` is for what no rule covers, the other one for what is exhausted."""
    covered, uncovered = f"orders.{unique}.covered", f"orders.{unique}.uncovered"
    flags = (
        f'fallbackToDeadLetter="{str(falls_back).lower()}" '
        f'sendToDlqIfMaxRetriesExceeded="{str(sends_exhausted).lower()}"'
    )
    plugins = REDELIVERY.format(attributes=flags, queues=covered)
    with attach(broker, tmp_path, plugins, f"intake.queues=DLQ.orders.{unique}.>") as sidecar:
        sidecar.start()
        for queue in (uncovered, covered):
            peer.produce(queue, "Text", test_id=queue)

        def ended() -> float:
            exhausted = sidecar.metric("amqsidecar_exhausted_total")
            return exhausted + sidecar.metric("amqsidecar_discarded_total")

        peer.fail(uncovered, messages=1, deliveries=1)
        eventually(lambda: ended() == 1, what="the first message has come to its end")
        seen = peer.fail(covered, messages=1, deliveries=2)
        eventually(lambda: ended() == 2, what="both messages have come to their end")
        for queue, is_kept in ((uncovered, falls_back), (covered, sends_exhausted)):
            final = f"DLQ.{queue}.exhausted"
            dead = peer.consume(final, count=1 if is_kept else None, wait_ms=None)
            assert [one.test_id for one in dead] == [f"{queue}-0"] * is_kept
        ends = [history(sidecar, row)[-1] for row in (1, 2)]

    assert [one.value("amqsidecarRedeliveryCount") for one in seen] == [None, 1]
    assert seen[1].received_at_ms - seen[0].received_at_ms >= 1000
    assert [one["type"] for one in ends] == [
        "dead_lettered" if falls_back else "discarded",
        "dead_lettered" if sends_exhausted else "discarded",
    ]
    if not falls_back:
        assert ends[0]["rule"].startswith("redeliveryPlugin fallbackToDeadLetter=false")
    if not sends_exhausted:
        assert "maximumRedeliveries=1" in ends[1]["rule"]
        assert "sendToDlqIfMaxRetriesExceeded=false" in ends[1]["rule"]


@pytest.mark.parametrize("order", ["discarding-last", "discarding-first"])
def test_the_plugin_that_is_listed_last_is_asked_first(
    broker: ClassicBroker, peer: JmsPeer, tmp_path: Path, unique: str, order: str
) -> None:
    """Listed last, `dropOnly` drops at the first death; listed first, only what is exhausted."""
    dropped, kept = f"orders.{unique}.drop", f"orders.{unique}.keep"
    redelivery = REDELIVERY.format(attributes="", queues=f"orders.{unique}.>")
    is_first_asked = order == "discarding-last"
    plugins = redelivery + DISCARDING if is_first_asked else DISCARDING + redelivery
    with attach(broker, tmp_path, plugins, f"intake.queues=DLQ.orders.{unique}.>") as sidecar:
        sidecar.start()
        peer.produce(dropped, "Text", test_id=dropped)
        seen = peer.fail(dropped, messages=1, deliveries=1 if is_first_asked else 2)
        eventually(
            lambda: sidecar.metric("amqsidecar_discarded_total") == 1, what="it is discarded"
        )
        peer.produce(kept, "Text", test_id=kept)
        peer.fail(kept, messages=1, deliveries=2)
        [dead] = peer.consume(f"DLQ.{kept}.exhausted", count=1)
        assert peer.consume(f"DLQ.{dropped}.exhausted", wait_ms=200) == []
        events = history(sidecar, 1)
        shown = sidecar.run_command("show", "1")
        line = plugins_line(tmp_path / "activemq.xml", "<discardingDLQBrokerPlugin")

    assert len(seen) == (1 if is_first_asked else 2)
    assert dead.test_id == f"{kept}-0"
    assert [one["type"] for one in events] == (
        ["received", "discarded"]
        if is_first_asked
        else ["received", "scheduled", "resent", "returned", "discarded"]
    )
    assert 'discardingDLQBrokerPlugin dropOnly="orders' in events[-1]["rule"]
    assert f"activemq.xml:{line}" in events[-1]["rule"]
    assert "discarded" in shown


def browse_one(peer: JmsPeer, queue: str, test_id: str) -> JmsMessage:
    """Wait for a message, and leave it where it is."""
    [found] = eventually(
        lambda: peer.browse(queue, selector=f"testId = '{test_id}'"),
        what=f"{test_id} is in {queue}",
    )
    return found


def plugins_line(path: Path, element: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if element in line)


def test_every_strategys_dead_letters_are_found_and_ended_beside_them(
    broker: ClassicBroker, peer: JmsPeer, tmp_path: Path, unique: str
) -> None:
    """Queues that come while the sidecar runs are read by wildcard; final ones are never read."""
    ends = {
        f"orders.{unique}": f"DLQ.orders.{unique}.exhausted",
        f"bills.{unique}": f"Dead.bills.{unique}.failed.exhausted",
        f"quick.{unique}": f"Quick.quick.{unique}.exhausted",
        f"shared.{unique}": "My.DLQ.exhausted",
        f"other.{unique}": "ActiveMQ.DLQ.exhausted",
    }
    plugins = REDELIVERY.format(attributes="", queues=">")
    with attach(broker, tmp_path, plugins) as sidecar:
        sidecar.start()
        for queue in ends:
            peer.produce(queue, "Text", test_id=queue, persistent=not queue.startswith("quick."))
        seen = {queue: peer.fail(queue, messages=1, deliveries=2) for queue in ends}
        dead = {queue: browse_one(peer, final, f"{queue}-0") for queue, final in ends.items()}
        received = sidecar.metric("amqsidecar_dead_letters_received_total")
        status = sidecar.json_command("status")

    assert {
        queue: [one.value("amqsidecarRedeliveryCount") for one in deliveries]
        for queue, deliveries in seen.items()
    } == {key: [None, 1] for key in ends}
    assert [one.test_id for one in dead.values()] == [f"{queue}-0" for queue in ends]
    # Why: two deaths each, and nothing of the final queues.
    exhausted = sum(one["count"] for one in status["exhausted"])
    assert (received, status["total"] - exhausted) == (2 * len(ends), 0)
    modes = [one.headers["JMSDeliveryMode"] for one in seen[f"quick.{unique}"]]
    assert modes == [1, 1]
    assert dead[f"quick.{unique}"].value("originalDeliveryMode") == "NON_PERSISTENT"


def test_without_a_policy_the_brokers_default_counts(
    broker: ClassicBroker, peer: JmsPeer, tmp_path: Path, unique: str
) -> None:
    """Classic tells no rules: what `redeliveryPlugin` has by default, one second and six times."""
    queue = f"orders.{unique}"
    with SidecarProcess(
        tmp_path,
        broker.openwire_url,
        sets=[f"intake.queues=DLQ.{queue}", "intake.backlog=process"],
    ) as sidecar:
        sidecar.start()
        with peer.start_flaky_consumer(queue, failures=1) as consumer:
            [sent] = peer.produce(queue, "Text")
            consumer.wait_for_successes(1)
            deliveries = receipts(consumer)[sent.test_id]
        scheduled = history(sidecar, 1)[1]

    assert_not_early(deliveries, [1000])
    assert scheduled["delay_ms"] == 1000
    assert "defaultEntry" in scheduled["rule"]


@pytest.mark.parametrize("source", ["live", "broker.xml"])
def test_artemis_goes_by_its_address_settings(
    artemis: ArtemisBroker, tmp_path: Path, unique: str, source: str
) -> None:
    """The live broker is asked per address; or its file says it. Expired ones are not read."""
    queue, once = f"{unique}.thrice", f"{unique}.once.only"
    harness = AmqpArtemisHarness(artemis, unique)
    settings = {"deadLetterAddress": f"{unique}.DLQ", "redeliveryDelay": 300}
    harness.set_address(f"{unique}.#", **settings, maxDeliveryAttempts=3, redeliveryMultiplier=2.0)
    harness.set_address(f"{unique}.once.#", **settings, maxDeliveryAttempts=1)
    harness.close()
    policy = None
    if source == "broker.xml":
        policy = tmp_path / "broker.xml"
        policy.write_text(
            artemis_xml(
                address_settings=f"""
                    <address-setting match="{unique}.#">
                      <dead-letter-address>{unique}.DLQ</dead-letter-address>
                      <max-delivery-attempts>3</max-delivery-attempts>
                      <redelivery-delay>300</redelivery-delay>
                      <redelivery-delay-multiplier>2.0</redelivery-delay-multiplier>
                    </address-setting>
                    <address-setting match="{unique}.once.#">
                      <max-delivery-attempts>1</max-delivery-attempts>
                    </address-setting>"""
            ),
            encoding="utf-8",
        )
    peer = JmsPeer.of(artemis, "qpid")
    with SidecarProcess(
        tmp_path,
        artemis.pair_url,
        policy=policy,
        sets=[f"intake.queues={unique}.DLQ", "intake.backlog=process"],
    ) as sidecar:
        sidecar.start()
        peer.produce(once, "Text", test_id=once)
        peer.fail(once, "reject", messages=1, deliveries=1)
        with peer.start_flaky_consumer(queue, failures=-1, how="reject") as consumer:
            [sent] = peer.produce(queue, "Text", test_id=queue)
            dead = peer.consume(f"{unique}.DLQ.exhausted", count=2)
            deliveries = receipts(consumer)[sent.test_id]
        rule = history(sidecar, 1)[1]["rule"]

    assert [one.redelivery_count for one in deliveries] == [None, 1, 2]
    assert_not_early(deliveries, [300, 600])
    assert [one.test_id for one in dead] == [f"{once}-0", f"{queue}-0"]
    assert [one.value("amqsidecarRedeliveryCount") for one in dead] == [0, 2]
    assert ("read live" if source == "live" else "broker.xml:") in rule
