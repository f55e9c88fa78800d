"""Two brokers on one store, the active one killed under load: none lost, none twice.

Real JMS applications send and consume by failover URLs; the sidecar has both URLs. Counted is what
the applications saw, by message id, with every body, header and property compared.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.broker_xml import STOCK_ADDRESS_SETTINGS, classic_xml
from support.brokers import ArtemisBroker, Broker, ClassicBroker
from support.jms_message import JmsMessage
from support.jms_peer import ALL_TYPES, FlakyConsumer, JmsPeer
from support.ledger import altered, count
from support.maven import CLASSIC_5, CLASSIC_6
from support.ports import free_port, is_open
from support.sidecar_logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar_process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

MESSAGES = 2_000
POLICY = """\
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 3, initial_redelivery_delay_ms: 100}
"""
ARTEMIS_POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 4, redelivery_delay_ms: 100}
"""
# Why: small cycles, so that a broker dies in the middle of one, with many still to come.
OPTIONS = ("cycle.max_messages=10", "intake.backlog=process", "broker.connect_timeout_s=5")
# As the README asks for: what is in hand when a link is lost counts as a failed delivery.
ARTEMIS_SETTINGS = """
<address-setting match="DLQ">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>-1</max-delivery-attempts>
</address-setting>
"""
ARTEMIS_PAIR = """
<connectors>
  <connector name="self">tcp://127.0.0.1:{own}</connector>
  <connector name="other">tcp://127.0.0.1:{other}</connector>
</connectors>
<cluster-user>pair</cluster-user>
<cluster-password>pair</cluster-password>
<ha-policy><shared-store>{role}</shared-store></ha-policy>
<cluster-connections>
  <cluster-connection name="pair">
    <connector-ref>self</connector-ref>
    <static-connectors><connector-ref>other</connector-ref></static-connectors>
  </cluster-connection>
</cluster-connections>
"""
ARTEMIS_ROLES = (
    "<primary><failover-on-shutdown>true</failover-on-shutdown></primary>",
    "<backup><allow-failback>false</allow-failback></backup>",
)
SHARED_KAHADB = """
<kahaDB directory="{folder}">
  <locker><shared-file-locker lockAcquireSleepInterval="500"/></locker>
</kahaDB>
"""


class Standby(Broker):
    """One of two on the same store: started when it serves, or waits for the other's end."""

    waiting_line: str

    def _has_started(self, log_offset: int) -> bool:
        waits = self.waiting_line in self.log_tail(lines=10_000, since=log_offset)
        return waits or super()._has_started(log_offset)

    @property
    def is_active(self) -> bool:
        """Whether it serves clients."""
        return self.is_running and is_open(next(iter(self.ports.values())))


class ArtemisOfPair(Standby, ArtemisBroker):
    """Artemis as primary or backup on a shared store."""

    waiting_line = "AMQ221031"

    def __init__(self, store: Path, role: str, own: int, other: int) -> None:
        super().__init__(
            core=ARTEMIS_PAIR.format(role=role, own=own, other=other),
            address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS,
        )
        self.data = store
        self._ports = {"PORT": own}

    def _has_started(self, log_offset: int) -> bool:
        # Why: a primary that comes back waits for the lock, and announces nothing.
        waits = "AMQ221034" in self.log_tail(lines=10_000, since=log_offset)
        return waits or super()._has_started(log_offset)


class ClassicOfPair(Standby, ClassicBroker):
    """Classic on a KahaDB that another one uses, too."""

    waiting_line = "This broker is now in slave mode waiting a lock to be acquired"

    def __init__(self, version: str, store: Path) -> None:
        kahadb = SHARED_KAHADB.format(folder=store)
        super().__init__(version, re.sub("<kahaDB [^>]*/>", lambda _: kahadb, classic_xml()))


class Pair:
    """Two brokers, and what goes through them."""

    def __init__(self, brokers: list[Any], provider: str, queue: str, folder: Path) -> None:
        self.brokers = brokers
        self.queue = queue
        is_artemis = provider == "qpid"
        self.dead_letter_queue = "DLQ" if is_artemis else "ActiveMQ.DLQ"
        prefix = "failover." if is_artemis else ""
        urls = ",".join(broker.jms_url(provider) for broker in brokers)
        # Why: the application sees that its broker is gone, and knows what it can't know.
        options = {f"{prefix}startupMaxReconnectAttempts": 500, f"{prefix}maxReconnectAttempts": 0}
        self.peer = JmsPeer(provider, f"failover:({urls})", url_options=options)
        self.how = "reject" if is_artemis else "rollback"
        policy = folder / "policy.yaml"
        policy.write_text(ARTEMIS_POLICY if is_artemis else POLICY, encoding="utf-8")
        ours = [broker.amqp_url if is_artemis else broker.openwire_url for broker in brokers]
        self.sidecar = SidecarProcess(folder, f"[{', '.join(ours)}]", policy=policy, sets=OPTIONS)
        self.sent: list[JmsMessage] = []

    def kill_all_messages(self) -> None:
        """Send all messages, and let each of them die once."""
        self.sent = self.peer.produce(self.queue, count=MESSAGES // len(ALL_TYPES), transacted=True)
        self.peer.fail(self.queue, self.how, messages=MESSAGES)

    def fail_over(self, after: int) -> None:
        """Kill the active broker when so many messages were sent again; the other takes over."""
        [active] = [broker for broker in self.brokers if broker.is_active]
        [standby] = [broker for broker in self.brokers if broker is not active]
        # Why not what the applications saw: the sidecar is far ahead of them.
        eventually(
            lambda: self.sidecar.metric("amqsidecar_resent_total") >= after,
            what=f"{after} messages are sent again",
        )
        active.kill()
        eventually(lambda: standby.is_active, what="the standby takes over")

    def check(self, consumer: FlakyConsumer) -> None:
        """Wait until all have come back, and hold that against what was sent."""
        consumer.wait_for(
            lambda events: (
                len({one.id for one in events if one.outcome == "succeeding"}) == MESSAGES
            ),
            what="all messages are handed over",
        )
        eventually(lambda: self.sidecar.json_command("status")["total"] == 0, what="all is sent")
        assert self.sidecar.stop() == 0
        events = consumer.events()
        result = count((str(message.test_id) for message in self.sent), events)
        assert (result.lost, result.doubled) == ([], [])
        assert len(result.recovered) == MESSAGES
        assert altered(self.sent, events, []) == []
        final = f"{self.dead_letter_queue}.exhausted"
        for queue in (self.queue, self.dead_letter_queue, final):
            assert self.peer.browse(queue) == []

    def ports_of(self, event: str, key: str) -> list[int]:
        """Return the ports of brokers that log lines of an event name, in order."""
        ports = [broker.sidecar_port for broker in self.brokers]
        lines = [line for line in self.sidecar.log_lines() if line["event"] == event]
        return [port for line in lines for port in ports if f":{port}" in line[key]]


def brokers_of(kind: str, store: Path) -> list[Any]:
    if kind == "artemis":
        first, second = free_port(), free_port()
        pair = [
            ArtemisOfPair(store, ARTEMIS_ROLES[0], first, second),
            ArtemisOfPair(store, ARTEMIS_ROLES[1], second, first),
        ]
    else:
        pair = [ClassicOfPair(kind, store) for _ in range(2)]
    for broker in pair:
        broker.sidecar_port = next(iter(broker.ports.values()))
    return pair


@pytest.fixture(params=["artemis", CLASSIC_6, CLASSIC_5])
def pair(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Pair]:
    brokers = brokers_of(request.param, tmp_path / "store")
    provider = "qpid" if request.param == "artemis" else "openwire"
    with ExitStack() as stack:
        for broker in brokers:
            stack.enter_context(broker)
        made = Pair(brokers, provider, unique, tmp_path)
        stack.enter_context(made.sidecar)
        yield made


def test_the_active_broker_is_killed_and_the_other_one_too(pair: Pair) -> None:
    """First to the standby and then back; the token lies in the store that both share."""
    pair.kill_all_messages()
    first, second = (broker.sidecar_port for broker in pair.brokers)
    with pair.peer.start_flaky_consumer(pair.queue, max_redeliveries=1000, full=True) as consumer:
        pair.sidecar.start()
        pair.fail_over(MESSAGES // 8)
        pair.brokers[0].start()
        pair.fail_over(MESSAGES // 2)
        pair.check(consumer)
    log = pair.sidecar.log()
    assert "cycle_in_doubt" not in log
    assert "admin:admin" not in log
    assert pair.ports_of("link_up", "url") == [first, second, first]
    downs = pair.ports_of("link_down", "reason")
    assert downs[0] == first
    assert {first, second} == set(downs)
