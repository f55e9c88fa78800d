"""People change settings, rules and queues while messages die, wait and come back.

Real JMS applications fail as often as each message says, and the sidecar is killed beside each
change. Each message ends in one place: its consumer, the final queue, or in a purge.
"""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, attempts_without_limit
from support.brokers.purge import manage_artemis, purge
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.ledger import Count, altered, assert_each_ended_once
from support.jms.message import JmsMessage
from support.jms.peer import ALL_TYPES, FlakyConsumer, JmsPeer
from support.machine.processes import is_stopped
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually

pytestmark = pytest.mark.broker

BATCH = at_length(120, otherwise=24)
WAIT_MS = 4_000
OPTIONS = ("cycle.max_messages=10", "intake.backlog=process", "broker.idle_timeout_s=2")
ARTEMIS_SETTINGS = """
<address-setting match="changed.#">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>3</max-delivery-attempts>
  <redelivery-delay>300</redelivery-delay>
</address-setting>
<address-setting match="new.#">
  <max-delivery-attempts>-1</max-delivery-attempts>
</address-setting>
""" + attempts_without_limit("DLQ")


def policy_text(kind: str, redeliveries: int, delay_ms: int) -> str:
    if kind == "artemis":
        return f"""\
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: {redeliveries + 1}
    redelivery_delay_ms: {delay_ms}
"""
    return f"""\
plugins:
  - redelivery:
      default_entry:
        maximum_redeliveries: {redeliveries}
        initial_redelivery_delay_ms: {delay_ms}
        redelivery_delay_ms: {delay_ms}
"""


class Site:
    """A broker, an application that fails, and a sidecar whose rules may change."""

    def __init__(self, broker: Broker, folder: Path, unique: str) -> None:
        is_artemis = isinstance(broker, ArtemisBroker)
        self.broker = broker
        self.folder = folder
        self.kind = "artemis" if is_artemis else "classic"
        self.queue = f"changed.{unique}"
        self.dead_letter_queue = "DLQ" if is_artemis else "ActiveMQ.DLQ"
        self.how = "reject" if is_artemis else "rollback"
        self.peer = JmsPeer.of(broker, "qpid" if is_artemis else "openwire")
        self.url = broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url
        self.sent: list[JmsMessage] = []

    def sidecar(self, policy: Path | None) -> SidecarProcess:
        return SidecarProcess(self.folder, self.url, policy=policy, sets=OPTIONS)

    def policy(self, redeliveries: int, delay_ms: int) -> Path:
        """Write the rules, in place of those before."""
        return write_policy(self.folder, policy_text(self.kind, redeliveries, delay_ms))

    def produce(self, *failures: int) -> None:
        """Send messages of each type that fail as often."""
        for each in failures:
            self.sent += self.peer.produce(
                self.queue,
                ALL_TYPES,
                count=BATCH // len(ALL_TYPES),
                properties={"failures": each},
                transacted=True,
            )

    def consume(self) -> FlakyConsumer:
        """Start the application."""
        return self.peer.start_flaky_consumer(
            self.queue, failures_property="failures", how=self.how, full=True
        )

    def settle(
        self, sidecar: SidecarProcess, consumer: FlakyConsumer, *final_queues: str
    ) -> tuple[Count, list[JmsMessage]]:
        """Wait until each message has ended; return the ends and what final queues hold."""
        final: list[JmsMessage] = []

        def have_ended() -> bool:
            for name in final_queues:
                final.extend(self.peer.consume(name, wait_ms=200))
            return len({*consumer.succeeded()}) + len(final) >= len(self.sent)

        eventually(have_ended, what="each message has ended", last=lambda _: f"{len(final)} final")
        eventually(lambda: sidecar.unsent() == 0, what="nothing waits")
        for name in final_queues:
            final += self.peer.consume(name)
        assert sidecar.stop() == 0
        found = assert_each_ended_once(self.sent, consumer.events(), final)
        assert "cycle_in_doubt" not in sidecar.log()
        return found, final

    def sent_with(self, *failures: int) -> set[str]:
        """Return the ids of the messages that fail as often."""
        return {one.test_id for one in self.sent if one.value("failures") in failures}


@pytest.fixture(scope="module", params=["classic", "artemis"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with (
        ClassicBroker()
        if request.param == "classic"
        else ArtemisBroker(address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS)
    ) as running:
        yield running


@pytest.fixture
def site(broker: Broker, unique: str, tmp_path: Path) -> Site:
    return Site(broker, tmp_path, unique)


def test_what_waits_keeps_its_delay_and_its_next_death_meets_the_new_rules(site: Site) -> None:
    """The sidecar is killed, its rules are changed, and it starts again."""
    with site.sidecar(site.policy(5, WAIT_MS)) as sidecar, site.consume() as consumer:
        sidecar.start()
        site.produce(1, 2, -1)
        eventually(
            lambda: sidecar.metric("amqsidecar_scheduled_total") >= len(site.sent),
            what="all wait",
        )
        sidecar.kill()
        site.policy(1, 100)
        sidecar.start()
        found, final = site.settle(sidecar, consumer, f"{site.dead_letter_queue}.exhausted")
    assert {*found.recovered} == site.sent_with(1)
    assert {one.test_id for one in final} == site.sent_with(2, -1)
    receipts: dict[str, list[int]] = {}
    for one in consumer.events():
        if one.outcome in ("failing", "succeeding"):
            receipts.setdefault(one.id, []).append(one.at_ms)
    assert {len(times) for times in receipts.values()} == {2}
    assert [one for one, (died, again) in receipts.items() if again - died < WAIT_MS] == []


@pytest.mark.parametrize("broker", ["artemis"], indirect=True)
def test_a_dead_letter_address_that_changes_while_messages_wait_loses_none(
    site: Site, unique: str
) -> None:
    """The broker's own settings are the rules; old and new queue are read, both have an end."""
    assert isinstance(site.broker, ArtemisBroker)
    new = f"new.{unique}"
    with site.sidecar(None) as sidecar, site.consume() as consumer:
        sidecar.start()
        site.produce(1, 2, -1)
        eventually(
            lambda: sidecar.metric("amqsidecar_scheduled_total") >= len(site.sent) // 2,
            what="some wait",
        )
        settings = {
            "deadLetterAddress": new,
            "maxDeliveryAttempts": 4,
            "redeliveryDelay": 100,
            "autoCreateDeadLetterResources": True,
        }
        question = ManagementQuestion(
            "broker", "addAddressSettings", (site.queue, json.dumps(settings))
        )
        manage_artemis(site.broker, question)
        site.produce(1, -1)
        sidecar.kill()
        sidecar.start()
        site.produce(2)
        queues = (f"{name}.exhausted" for name in ("DLQ", new, f"DLQ.{site.queue}"))
        found, final = site.settle(sidecar, consumer, *queues)
    assert {*found.recovered} == site.sent_with(1, 2)
    assert {one.test_id for one in final} == site.sent_with(-1)
    assert site.peer.browse("DLQ") == []


@pytest.mark.parametrize(
    "place",
    [
        "stored",
        *(
            pytest.param(name, marks=pytest.mark.proof)
            for name in ("gathered", "sent", "committed")
        ),
    ],
)
def test_a_purge_of_the_dead_letter_queue_during_the_intake_doubles_none_and_stops_nothing(
    site: Site, place: str
) -> None:
    """What the sidecar has in hand when it is purged is taken or gone; it never comes twice."""
    site.produce(1, 1, 1)
    site.peer.fail(site.queue, site.how, messages=len(site.sent))
    with site.sidecar(site.policy(5, 100)) as sidecar:
        crash = {CRASH_POINT_VARIABLE: f"{place}:3:SIGSTOP"}
        process = sidecar.start(ready=False, environ=crash).process
        assert process is not None
        eventually(lambda: is_stopped(process.pid), what=f"the sidecar stops at {place}")
        purged = purge(site.broker, site.dead_letter_queue)
        process.send_signal(signal.SIGCONT)
        sidecar.wait_ready()
        eventually(lambda: sidecar.unsent() == 0, what="nothing waits")
        taken = site.peer.consume(site.queue, wait_ms=1_000)
        assert len(taken) == sidecar.metric("amqsidecar_resent_total") < len(site.sent)
        assert purged in (None, len(site.sent) - len(taken))
        # What dies from now on comes back.
        site.produce(1)
        later = len(site.sent) // 4
        site.peer.fail(site.queue, site.how, messages=later)
        taken += site.peer.consume(site.queue, count=later)
        taken += site.peer.consume(site.queue)
        assert sidecar.stop() == 0
    found = Counter(one.test_id for one in taken)
    assert {*found.values()} == {1}
    assert {one.test_id for one in site.sent[-later:]} <= {*found}
    assert altered(site.sent, [], taken) == []
    assert "cycle_in_doubt" not in sidecar.log()
