"""Artemis keeps what waits (`store.url broker:`): none lost, none twice, none early, and no store.

Real JMS applications send and consume; counted is what they saw, by message id, while the sidecar,
the broker and what is between them fail.
"""

import json
import signal
import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import queue
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from support.brokers.broker_xml import (
    ARTEMIS_ACCEPTORS,
    STOCK_ADDRESS_SETTINGS,
    STOCK_ADDRESSES,
    attempts_without_limit,
)
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.ledger import assert_each_ended_once
from support.jms.message import JmsMessage
from support.jms.peer import FlakyConsumer, JmsPeer
from support.jms.redelivered import receipts, waits_ms
from support.links.amqp_artemis import AmqpArtemisHarness
from support.machine.processes import is_stopped
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

DELAY_MS = 400
POLICY = f"""\
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: 4
    redelivery_delay_ms: {DELAY_MS}
  - match: "late.#"
    redelivery_delay_ms: 600000
  - match: "soon.#"
    redelivery_delay_ms: 2500
"""
SETTINGS = f"""{STOCK_ADDRESS_SETTINGS}
{attempts_without_limit("DLQ")}<address-setting match="lossy.expiring">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-expiry-delay>60000</max-expiry-delay>
</address-setting>
<address-setting match="lossy.deleted">
  <dead-letter-address>DLQ</dead-letter-address>
  <auto-delete-queues>true</auto-delete-queues>
  <auto-delete-queues-message-count>-1</auto-delete-queues-message-count>
</address-setting>
<address-setting match="lossy.dropping">
  <max-size-bytes>1000000</max-size-bytes>
  <address-full-policy>DROP</address-full-policy>
</address-setting>
"""
ADDRESSES = f"""{STOCK_ADDRESSES}
<address name="lossy.purged">
  <anycast><queue name="lossy.purged" purge-on-no-consumers="true"/></anycast>
</address>
<address name="lossy.memory">
  <anycast><queue name="lossy.memory"><durable>false</durable></queue></anycast>
</address>
"""
OPTIONS = (
    "store.url=broker:",
    "intake.backlog=process",
    "cycle.max_messages=20",
    "broker.idle_timeout_s=2",
)
# Why: what Core or qpid-jms makes of the delivery time that a message waits for.
ADDED = ("_AMQ_SCHED_DELIVERY", "JMS_AMQP_MA_x-opt-delivery-time")
FAILURES = (1, 2, -1, 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    """A broker of our own, for it is killed; it gives up a dead connection after two seconds."""
    idle = f"{ARTEMIS_ACCEPTORS['artemis']};amqpIdleTimeout=2000"
    with ArtemisBroker(
        address_settings=SETTINGS, addresses=ADDRESSES, acceptors={"artemis": idle}
    ) as running:
        yield running


@pytest.fixture
def peer(broker: ArtemisBroker) -> JmsPeer:
    return JmsPeer.of(broker, "qpid")


def make_sidecar(broker: ArtemisBroker, folder: Path, *sets: str) -> SidecarProcess:
    folder.mkdir(exist_ok=True)
    policy = write_policy(folder, POLICY)
    return SidecarProcess(folder, broker.amqp_url, policy=policy, sets=(*OPTIONS, *sets))


@pytest.fixture
def sidecar(broker: ArtemisBroker, tmp_path: Path) -> Iterator[SidecarProcess]:
    with make_sidecar(broker, tmp_path / "one") as made:
        yield made


class Traffic:
    """What one producer sends to a queue, and what becomes of it."""

    def __init__(self, peer: JmsPeer, queue: str) -> None:
        self.peer = peer
        self.queue = queue
        self.sent: list[JmsMessage] = []
        self._failures = cycle(FAILURES)

    def produce(self, rounds: int = 1) -> None:
        """Send messages of all types that fail as often as it is their turn to; -1: always."""
        for _ in range(rounds):
            self.sent += self.peer.produce(
                self.queue, count=2, properties={"failures": next(self._failures)}, transacted=True
            )

    def consume(self) -> FlakyConsumer:
        return self.peer.start_flaky_consumer(
            self.queue, failures_property="failures", how="reject", full=True
        )

    @property
    def always(self) -> int:
        """How many messages fail always."""
        return sum(message.value("failures") == -1 for message in self.sent)

    def wait_for_successes(self, consumer: FlakyConsumer) -> None:
        """Wait until all messages that can succeed are handed over for that."""
        consumer.wait_for(
            lambda events: (
                len({one.id for one in events if one.outcome == "succeeding"})
                == len(self.sent) - self.always
            ),
            what="all messages that can succeed are handed over",
        )

    def check(self, consumer: FlakyConsumer) -> None:
        """Wait until all have ended, and hold what the applications saw against what was sent."""
        self.wait_for_successes(consumer)
        always = self.always
        exhausted = self.peer.consume("DLQ.exhausted", count=always, wait_ms=30_000)
        exhausted += self.peer.consume("DLQ.exhausted")
        result = assert_each_ended_once(self.sent, consumer.events(), exhausted, ADDED)
        assert len(result.exhausted) == always
        assert min(wait for one in receipts(consumer).values() for wait in waits_ms(one)) >= (
            DELAY_MS
        )
        for name in (self.queue, "DLQ", "amqsidecar.waiting", "amqsidecar.parked"):
            eventually(partial(self._is_empty, name), what=f"nothing lies in {name}")

    def _is_empty(self, queue: str) -> bool:
        return not self.peer.browse(queue)


@pytest.fixture
def traffic(peer: JmsPeer, unique: str) -> Traffic:
    return Traffic(peer, unique)


def kill_at(sidecar: SidecarProcess, name: str, hits: int) -> None:
    """Start the sidecar; it dies when it reaches the place for the nth time."""
    sidecar.start(ready=False, environ={CRASH_POINT_VARIABLE: f"{name}:{hits}"})
    assert sidecar.process is not None
    assert sidecar.process.wait(PATIENCE_S) == -signal.SIGKILL, sidecar.log()[-4000:]


def test_the_sidecar_is_killed_everywhere(traffic: Traffic, sidecar: SidecarProcess) -> None:
    """The broker's transaction alone says what was moved: no token, no store, no recovery."""
    with traffic.consume() as consumer:
        for number, name in enumerate(("gathered", "sent", "committing", "committed")):
            traffic.produce(2)
            kill_at(sidecar, name, 1 + number % 3)
        sidecar.start()
        traffic.check(consumer)
    assert sidecar.stop() == 0
    assert not list(sidecar.folder.glob("*.db"))


def test_two_sidecars_share_and_one_wakes_up_late(
    traffic: Traffic, sidecar: SidecarProcess, broker: ArtemisBroker, tmp_path: Path
) -> None:
    """It sleeps in a commit whose answer it never gets, until the other one has done all."""
    freeze = {CRASH_POINT_VARIABLE: "committing:2:SIGSTOP"}
    with make_sidecar(broker, tmp_path / "two") as other, traffic.consume() as consumer:
        process = sidecar.start(ready=False, environ=freeze).process
        assert process is not None
        traffic.produce(len(FAILURES))
        eventually(lambda: is_stopped(process.pid), what="the sidecar stops in its commit")
        other.start()
        traffic.produce(len(FAILURES))
        traffic.wait_for_successes(consumer)
        process.send_signal(signal.SIGCONT)
        eventually(
            lambda: any(line["event"] == "link_down" for line in sidecar.log_lines()),
            what="the one that slept finds its connection gone",
        )
        sidecar.wait_ready()
        traffic.check(consumer)


def test_the_broker_is_killed_while_messages_wait(
    peer: JmsPeer, sidecar: SidecarProcess, broker: ArtemisBroker, unique: str
) -> None:
    """What waits is in its journal, what was not committed is a dead letter again."""
    # Why before: an application that loses its broker while it acknowledges gets copies anyway.
    sent = peer.produce(unique, count=10, transacted=True)
    peer.fail(unique, "reject", messages=len(sent))
    with peer.start_flaky_consumer(unique, max_redeliveries=1000, full=True) as consumer:
        sidecar.start()
        consumer.wait_for_successes(len(sent) // 4)
        broker.kill()
        broker.start()
        consumer.wait_for(
            lambda events: (
                {one.id for one in events if one.outcome == "succeeding"}
                == {message.test_id for message in sent}
            ),
            what="all messages are handed over",
        )
        sidecar.wait_ready()
        events = consumer.events()
    assert_each_ended_once(sent, events, added=ADDED)
    for name in (unique, "DLQ", "amqsidecar.waiting", "amqsidecar.parked"):
        assert peer.browse(name) == []


def test_large_messages_wait_through_a_kill_of_the_broker(
    peer: JmsPeer, sidecar: SidecarProcess, broker: ArtemisBroker, unique: str
) -> None:
    name = f"soon.{unique}"
    sent = peer.produce(name, ["Text", "Bytes"], body_size=300_000, test_id=unique)
    sidecar.start()
    began_s = time.monotonic()
    peer.fail(name, "reject", messages=2)
    eventually(lambda: sidecar.metric("amqsidecar_scheduled_total") == 2, what="both wait")
    assert sidecar.stop() == 0
    broker.kill()
    broker.start()
    # Why without a sidecar: the broker delivers by itself.
    found = peer.consume(name, count=2)
    assert time.monotonic() - began_s >= 2.5
    # Why in no order: both are overdue when the broker is there again.
    assert {one.test_id: one.body for one in found} == {one.test_id: one.body for one in sent}


def test_only_the_subscription_where_it_died_gets_it_again(
    peer: JmsPeer, sidecar: SidecarProcess, unique: str
) -> None:
    """Sent to the fully qualified name, it waits in that queue alone."""
    topic, failing, working = f"back.{unique}", f"{unique}-a", f"{unique}-b"
    sidecar.start()
    peer.durable_subscribe(topic, failing, "sub")
    peer.durable_subscribe(topic, working, "sub")
    with peer.start_flaky_consumer(
        f"topic://{topic}", failures=2, how="reject", client_id=failing, subscription="sub"
    ) as consumer:
        [sent] = peer.produce(f"topic://{topic}", "Text", test_id=unique)
        consumer.wait_for_successes(1)
    worked = peer.consume_durable(topic, working, "sub", count=1)
    worked += peer.consume_durable(topic, working, "sub")
    peer.durable_unsubscribe(failing, "sub")
    peer.durable_unsubscribe(working, "sub")
    assert [one.test_id for one in worked] == [sent.test_id]


def test_a_destination_that_takes_nothing_holds_nothing_up(
    peer: JmsPeer, sidecar: SidecarProcess, unique: str
) -> None:
    """What would go there comes again until it can; the others go."""
    topic, client = f"gone.{unique}", f"{unique}-a"
    peer.durable_subscribe(topic, client, "sub")
    [sent] = peer.produce(f"topic://{topic}", "Text", test_id=unique)
    peer.fail_durable(topic, client, "sub", how="reject", messages=1)
    peer.durable_unsubscribe(client, "sub")
    sidecar.start()
    eventually(lambda: _is_blocked(sidecar, topic), what="its destination is blocked")
    with peer.start_flaky_consumer(unique, failures=1, how="reject") as consumer:
        peer.produce(unique, "Text")
        consumer.wait_for_successes(1)
    peer.durable_subscribe(topic, client, "sub")
    [found] = peer.consume_durable(topic, client, "sub", count=1)
    peer.durable_unsubscribe(client, "sub")
    assert (found.test_id, found.body) == (sent.test_id, sent.body)
    assert found.value("amqsidecarRedeliveryCount") == 1


def _is_blocked(sidecar: SidecarProcess, name: str) -> bool:
    return any(
        line["event"] == "destination_blocked" and name in line["destination"]
        for line in sidecar.log_lines()
    )


def test_nothing_waits_where_it_may_be_lost(
    peer: JmsPeer, sidecar: SidecarProcess, broker: ArtemisBroker, unique: str
) -> None:
    """It is parked, whole, and the log says why; doctor has said so before.

    The broker's own retry sends it back.
    """
    [sent] = peer.produce("lossy.memory", "Text", test_id=unique)
    peer.fail("lossy.memory", "reject", messages=1)
    findings = json.loads(sidecar.run_command("doctor", "--output", "json"))["findings"]
    [warning] = [
        one
        for one in findings
        if one["check"] == "schedule" and one["subject"] == "queue://lossy.memory"
    ]
    assert "go to amqsidecar.parked instead: queue lossy.memory" in warning["what"]
    assert {one["subject"] for one in findings if one["check"] == "schedule"} >= {
        "broker:",
        "amqsidecar.waiting",
    }
    sidecar.start()
    [found] = eventually(lambda: peer.browse("amqsidecar.parked"), what="it is parked")
    assert (found.test_id, found.body) == (sent.test_id, sent.body)
    [parked] = eventually(
        lambda: [one for one in sidecar.log_lines() if one["event"] == "parked"],
        what="the log says so",
    )
    assert "lossy.memory is not durable" in parked["reason"]

    harness = AmqpArtemisHarness(broker, unique)
    assert harness.ask("queue.amqsidecar.parked", "retryMessages").value == 1
    harness.close()
    [retried] = peer.consume("lossy.memory", count=1)
    assert (retried.test_id, retried.body) == (sent.test_id, sent.body)


class SetClock(SystemClock):
    """The machine's clock, set by somebody."""

    set_ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.set_ahead_ms


def test_the_broker_shows_where_waiting_messages_may_be_lost(broker: ArtemisBroker) -> None:
    clock = SetClock()
    link = AmqpArtemisLink(
        ArtemisLinkSettings(broker.endpoint("PORT"), clock=clock, instance="looks")
    ).move()
    reasons = {
        "lossy.purged": "purge-on-no-consumers",
        "lossy.memory": "not durable",
        "lossy.expiring": "the time runs while they wait",
        "lossy.deleted": "auto-delete-queues-message-count",
        "lossy.dropping": "address-full-policy DROP",
    }
    try:
        found = {name: link.waiting_problem(queue(name)) or "" for name in reasons}
        assert {name: why for name, why in reasons.items() if why not in found[name]} == {}
        assert link.waiting_problem(queue("any.other")) is None
        # Why so far: on a busy machine the answer of the broker takes a second itself.
        assert 0 <= link.clock_ahead_ms() < 60_000
        clock.set_ahead_ms = -3_600_000
        assert 3_600_000 <= link.clock_ahead_ms() < 3_660_000
    finally:
        link.close()


def test_over_stomp_it_is_refused(broker: ArtemisBroker, tmp_path: Path) -> None:
    sidecar = SidecarProcess(tmp_path, broker.stomp_url, sets=OPTIONS)
    assert "acknowledges at once" in sidecar.run_refused(expect=69)


def test_on_classic_it_is_refused(classic_6: ClassicBroker, tmp_path: Path) -> None:
    sidecar = SidecarProcess(tmp_path, classic_6.openwire_url, sets=OPTIONS)
    assert "only after its commit" in sidecar.run_refused(expect=69)
    findings = json.loads(sidecar.run_command("doctor", "--output", "json", expect=78))["findings"]
    assert any(
        one["severity"] == "problem" and "only after its commit" in one["what"] for one in findings
    )


def test_what_waits_is_listed_retried_and_cancelled(
    peer: JmsPeer, sidecar: SidecarProcess, unique: str
) -> None:
    """By the broker's own means; what it can't do is said."""
    name = f"late.{unique}"
    here = ("--destination", f"queue://{name}")
    sidecar.start()
    peer.produce(name, "Text", count=3, test_id=unique)
    peer.fail(name, "reject", messages=3)
    eventually(lambda: sidecar.metric("amqsidecar_scheduled_total") == 3, what="all wait")
    tally = {"destination": f"queue://{name}", "state": "waiting", "count": 3}
    eventually(lambda: sidecar.json_command("status")["waiting"] == [tally], what="all are listed")
    rows = sidecar.json_command("list", *here)["rows"]
    assert [(row["redelivery_count"], row["delay_ms"]) for row in rows] == [(1, 600_000)] * 3
    assert all(row["due_at_ms"] > time.time() * 1000 + 500_000 for row in rows)

    assert sidecar.json_command("retry", rows[0]["redelivery_id"])["changed"] == 1
    [retried] = peer.consume(name, count=1)
    assert retried.value("amqsidecarRedeliveryId") == rows[0]["redelivery_id"]
    sidecar.run_command("hold", *here, "--yes", expect=69)
    assert sidecar.json_command("cancel", *here, "--yes")["changed"] == 2
    cancelled = peer.consume("DLQ.exhausted", count=2)
    assert {one.value("amqsidecarRedeliveryId") for one in cancelled} == {
        row["redelivery_id"] for row in rows[1:]
    }
