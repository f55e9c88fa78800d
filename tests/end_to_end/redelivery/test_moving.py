"""From the in-broker plugin to the sidecar and back, by deploy/guides/moving.md.

Counted is what JMS applications saw, by message id: none lost, none doubled, none altered.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, attempts_without_limit, classic_xml
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.ledger import altered, count
from support.jms.message import JmsMessage
from support.jms.peer import ALL_TYPES, FlakyConsumer, JmsPeer
from support.jms.redelivered import receipts
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

ORDERS, LATE, FINAL = "moving.orders", "moving.late", "ActiveMQ.DLQ.exhausted"
PLUGIN = """
<redeliveryPlugin>
  <redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
    <redeliveryPolicy queue="moving.late" maximumRedeliveries="3" initialRedeliveryDelay="3600000"/>
    <redeliveryPolicy queue="moving.>" maximumRedeliveries="2"
                      initialRedeliveryDelay="1000" redeliveryDelay="1000"/>
  </redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap>
</redeliveryPlugin>
"""
ARTEMIS_SETTINGS = (
    STOCK_ADDRESS_SETTINGS
    + """
<address-setting match="moving.#">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>2</max-delivery-attempts>
  <redelivery-delay>300</redelivery-delay>
</address-setting>
"""
    + attempts_without_limit("DLQ")
)
# What the scheduler leaves on a message that it has redelivered.
OF_THE_SCHEDULER = ("scheduledJobId",)


class Move:
    """A broker whose configuration changes, its sidecar, and its applications."""

    def __init__(self, broker: ClassicBroker, folder: Path) -> None:
        self.broker = broker
        self.peer = JmsPeer.of(broker, "openwire")
        policy = folder / "activemq.xml"
        policy.write_text(classic_xml(plugins=PLUGIN, scheduler_support=True), encoding="utf-8")
        self.sidecar = SidecarProcess(folder, broker.openwire_url, policy=policy)
        self.sent: list[JmsMessage] = []

    def start(self, *, plugin: bool, scheduler: bool = True) -> None:
        """Start the broker, with or without the plugin."""
        self.broker.stop()
        self.broker.config_path.unlink(missing_ok=True)
        self.broker.activemq_xml = classic_xml(
            plugins=PLUGIN if plugin else "", scheduler_support=scheduler
        )
        self.broker.start()

    def die(self, queue: str) -> None:
        """Make one message of each type fail once."""
        self.sent += self.peer.produce(queue)
        self.peer.fail(queue, messages=len(ALL_TYPES), deliveries=1)

    def consume(self, queue: str, failures: int = 0) -> FlakyConsumer:
        return self.peer.start_flaky_consumer(queue, failures=failures, full=True)

    def wait_for(self, count: int) -> None:
        """Wait until the sidecar keeps this many messages."""
        eventually(
            lambda: self.sidecar.finished_status().total == count,
            what=f"{count} wait in the sidecar",
            every_s=0.5,
        )

    def check(self, *consumers: FlakyConsumer) -> None:
        """None is lost, doubled or altered, and none lies anywhere."""
        events = [event for consumer in consumers for event in consumer.events()]
        found = count([one.test_id for one in self.sent], events)
        assert found.is_clean, found
        assert len(found.recovered) == len(self.sent)
        assert altered(self.sent, events, [], OF_THE_SCHEDULER) == []
        for queue in (ORDERS, LATE, "ActiveMQ.DLQ", FINAL):
            assert self.peer.browse(queue) == [], queue


@pytest.fixture(params=[pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6])
def move(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Move]:
    (tmp_path / "sidecar").mkdir()
    broker = ClassicBroker(request.param)
    try:
        yield Move(broker, tmp_path / "sidecar")
    finally:
        broker.close()


def test_to_the_sidecar_and_back(move: Move) -> None:
    move.start(plugin=True)
    move.die(ORDERS)
    if move.broker.version == CLASSIC_6:
        # The scheduler keeps what it has while it is switched off.
        move.start(plugin=False, scheduler=False)
        assert move.peer.consume(ORDERS, wait_ms=2500) == []
    move.start(plugin=False)
    with move.sidecar as sidecar:
        sidecar.start()
        # What the plugin has scheduled comes from the broker, then it is the sidecar's.
        with move.consume(ORDERS, failures=2) as there:
            there.wait_for_successes(len(ALL_TYPES))
            for first, *others in receipts(there).values():
                marks = ["scheduledJobId" in one.received.properties for one in (first, *others)]
                assert marks == [True, False, False]
        move.check(there)

        move.die(LATE)
        move.wait_for(len(ALL_TYPES))
        assert sidecar.stop() == 0
        move.start(plugin=True)
        sidecar.options.append("intake.queues=no.dead.letters")
        sidecar.start()
        sidecar.run_command("retry", "--all", "--yes")
        move.wait_for(0)
        # What the sidecar has sent, the plugin takes care of, and counts on.
        with move.consume(LATE, failures=1) as back:
            back.wait_for_successes(len(ALL_TYPES))
            counts = [each[-1].delivery_count for each in receipts(back).values()]
            assert counts == [3] * len(ALL_TYPES)
        assert sidecar.metric("amqsidecar_received_total") == 0
        assert sidecar.stop() == 0
        move.check(there, back)

        if move.broker.version == CLASSIC_6:
            # Both at once: each redelivers what the other has given up; none is lost or doubled.
            sidecar.options.pop()
            sidecar.start()
            with move.consume(ORDERS, failures=-1) as failing:
                [both] = move.peer.produce(ORDERS, "Text")
                [final] = move.peer.consume(FINAL, count=1, wait_ms=60_000)
                assert final.test_id == both.test_id
                assert len(receipts(failing)[both.test_id]) == 6
            assert sidecar.stop() == 0
            move.check(there, back)


def test_artemis_with_redeliveries_of_its_own(tmp_path: Path) -> None:
    """The broker's attempts and the sidecar's multiply, where the sidecar goes by its settings."""
    with (
        ArtemisBroker(address_settings=ARTEMIS_SETTINGS) as broker,
        SidecarProcess(tmp_path, broker.amqp_url).running(),
    ):
        peer = JmsPeer.of(broker, "core")
        with peer.start_flaky_consumer(ORDERS, failures_property="failures", full=True) as consumer:
            often = peer.produce(ORDERS, "Text", properties={"failures": -1})
            # Why no Stream: Artemis can't convert one with bytes, so it is left where it is.
            once = peer.produce(ORDERS, ("Text", "Bytes", "Map"), properties={"failures": 3})
            consumer.wait_for_successes(len(once))
            final = peer.consume("DLQ.exhausted", count=1)
            counts = [len(each) for each in receipts(consumer).values()]
        assert counts == [4] * (1 + len(once))
        ends = count(
            [one.test_id for one in [*often, *once]],
            consumer.events(),
            [one.test_id for one in final],
        )
        assert ends.is_clean, ends
