"""Two brokers with the same messages, the active one killed under load: none lost, none twice.

Real JMS applications send and fail by failover URLs all the time, through each kill; the sidecar
has both URLs. Counted is what they saw, by message id, with every field compared.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, attempts_without_limit, classic_xml
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.ledger import altered, count
from support.jms.peer import ALL_TYPES, FlakyConsumer, JmsPeer, SteadyProducer
from support.machine.ports import free_port, is_open
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

MESSAGES = at_length(1_200, otherwise=300)
PAUSE_MS = 60
KILLS = 2
# Why few ahead: a rollback gives all of them back.
CLIENT_OPTIONS: dict[str, dict[str, Any]] = {
    "openwire": {"jms.prefetchPolicy.all": 10},
    "qpid": {"jms.prefetchPolicy.all": 10},
    "core": {"ha": "true", "reconnectAttempts": -1, "consumerWindowSize": 0},
}
# Why a consumer must not reconnect by itself: after some failovers qpid-jms gets nothing more when
# it has rolled back, and a Core client waits for ever in a session that the new broker does not
# have. Neither reports it. This way a consumer sees that its broker is gone, and connects anew.
NO_RECONNECT: dict[str, dict[str, Any]] = {
    "openwire": {},
    "qpid": {"failover.maxReconnectAttempts": 0},
    "core": {"reconnectAttempts": 0},
}
# Why: over AMQP the broker converts what Core clients have made, and the others stay in the queue.
CONVERTED_TYPES = ("Text", "Bytes", "Map", "NullText", "EmptyText")
CONVERTED_FOR_CORE = re.compile("property (JMS_AMQP_|NATIVE_MESSAGE_ID)")
# The applications by the sidecar's wire; over Core it takes what Core clients have made.
PROVIDERS = {
    "pair": ("qpid", "core"),
    "core": ("core",),
    "amqp": ("qpid", "core"),
    "openwire": ("openwire",),
}
POLICY = """\
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 100, initial_redelivery_delay_ms: 100}
"""
ARTEMIS_POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 100, redelivery_delay_ms: 100}
"""
# Why: small cycles, so that a broker dies in the middle of one, with many still to come.
# Why so long: Artemis keeps what it handed to a client that it lost for a minute.
PATIENCE_S = 150
OPTIONS = ("cycle.max_messages=10", "intake.backlog=process", "broker.connect_timeout_s=5")
ARTEMIS_SETTINGS = (
    attempts_without_limit("DLQ")
    + """
<address-setting match="core.#"><max-delivery-attempts>1</max-delivery-attempts></address-setting>
"""
)
ARTEMIS_PAIR = """
<connectors>
  <connector name="self">tcp://127.0.0.1:{own}</connector>
  <connector name="other">tcp://127.0.0.1:{other}</connector>
</connectors>
<cluster-user>pair</cluster-user>
<cluster-password>pair</cluster-password>
<ha-policy>{role}</ha-policy>
<cluster-connections>
  <cluster-connection name="pair">
    <connector-ref>self</connector-ref>
    <static-connectors><connector-ref>other</connector-ref></static-connectors>
  </cluster-connection>
</cluster-connections>
"""
SHARED_STORE_ROLES = (
    "<primary><failover-on-shutdown>true</failover-on-shutdown></primary>",
    "<backup><allow-failback>false</allow-failback></backup>",
)
# Why a lock on a file: without one, each of a pair that loses the other may serve (split brain).
LOCKS = """
<manager>
  <class-name>org.apache.activemq.artemis.lockmanager.file.FileBasedLockManager</class-name>
  <properties><property key="locks-folder" value="{folder}"/></properties>
</manager>
"""
REPLICATION_ROLES = (
    "<primary>{locks}</primary>",
    "<backup>{locks}<allow-failback>false</allow-failback></backup>",
)
# Why not concurrent: otherwise Classic removes a dead message before its dead letter is on disk,
# and a kill in between loses it (`deploy/reference/connecting.md`).
SHARED_KAHADB = """
<kahaDB directory="{folder}" concurrentStoreAndDispatchQueues="false">
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
        return self.is_running and is_open(self.sidecar_port)

    @property
    def sidecar_port(self) -> int:
        """The port that the sidecar uses."""
        return next(iter(self.ports.values()))


class ArtemisOfPair(Standby, ArtemisBroker):
    """Artemis as primary or backup."""

    waiting_line = "AMQ221031"

    def __init__(self, role: str, own: int, other: int) -> None:
        super().__init__(
            core=ARTEMIS_PAIR.format(role=role, own=own, other=other),
            address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS,
        )
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


class Application:
    """A JMS application with failover URLs: it sends all the time, and fails each message once."""

    def __init__(
        self, provider: str, brokers: Sequence[Standby], queue: str, *, is_converted: bool
    ) -> None:
        self.is_converted = is_converted
        urls = ",".join(broker.jms_url(provider) for broker in brokers)
        url = f"({urls})" if provider == "core" else f"failover:({urls})"
        self.peer = JmsPeer(provider, url, url_options=CLIENT_OPTIONS[provider])
        options = {**self.peer.url_options, **NO_RECONNECT[provider]}
        self.consuming_peer = replace(self.peer, url_options=options)
        self.queue = queue

    def consume(self) -> FlakyConsumer:
        """Start the consumer."""
        self.consumer = self.consuming_peer.start_flaky_consumer(self.queue, failures=1, full=True)
        return self.consumer

    def produce(self) -> SteadyProducer:
        """Start the producer."""
        types = CONVERTED_TYPES if self.is_converted else ALL_TYPES
        self.producer = self.peer.start_producer(self.queue, types, pause_ms=PAUSE_MS)
        return self.producer

    def stop_producing(self, at_least: int) -> None:
        """Stop once this many messages were sent, the last of them from now on."""
        before = len(self.producer.confirmed)
        eventually(
            lambda: len(self.producer.confirmed) > max(at_least, before),
            within_s=PATIENCE_S,
            what=f"{self.peer.provider} goes on to send",
        )
        self.producer.stop()

    def wait_for_successes(self) -> None:
        """Wait until all messages that were sent for sure have come back and succeeded."""
        # Why not successes: who loses the broker in a commit never learns that it happened.
        eventually(
            lambda: not self.missing(),
            within_s=PATIENCE_S,
            what=f"all messages of {self.queue} are handed over",
            last=lambda _: self._tell_missing(),
        )

    def missing(self) -> set[str]:
        """Return the ids that were sent for sure, and that no consumer was about to end well."""
        seen = {one.id for one in self.consumer.events("succeeding")}
        return {str(message.test_id) for message in self.producer.confirmed} - seen

    def _tell_missing(self) -> str:
        missing = self.missing()
        places = (self.queue, "ActiveMQ.DLQ" if self.peer.provider == "openwire" else "DLQ")
        found = {place: [one.test_id for one in self.peer.browse(place)] for place in places}
        events = [str(one) for one in self.consumer.events() if one.id in missing]
        return "\n".join([f"missing {missing}; in the broker: {found}; their events:", *events])

    def check(self) -> None:
        """Hold what the consumer saw against what the producer sent."""
        events = self.consumer.events()
        seen = {one.id for one in events}
        # Why: a client that is interrupted in a commit can't know whether it happened.
        maybe = [one for one in self.producer.in_doubt if one.test_id in seen]
        sent = [*self.producer.confirmed, *maybe]
        result = count((str(one.test_id) for one in sent), events)
        copied = [one for one in result.doubled if self._is_copied_by_broker(one)]
        assert (result.lost, result.doubled) == ([], copied)
        assert len(copied) <= KILLS
        differences = altered(sent, events, [])
        if self.is_converted:
            differences = [one for one in differences if not CONVERTED_FOR_CORE.search(one)]
        assert differences == []
        assert self.peer.browse(self.queue) == []

    def _is_copied_by_broker(self, test_id: str) -> bool:
        """Return whether Classic died between writing a dead letter and removing the message.

        Then one copy has died once more often than the other. Of what we send twice both have died
        as often.
        """
        successes = [one for one in self.consumer.events("succeeded") if one.id == test_id]
        counts = [one.redelivery_count for one in successes]
        return self.peer.provider == "openwire" and len(set(counts)) == len(counts) > 1


class Pair:
    """Two brokers, the applications that use them, and a sidecar."""

    def __init__(
        self, brokers: Sequence[Standby], kind: str, wire: str, queue: str, folder: Path
    ) -> None:
        self.brokers = brokers
        is_artemis = kind.startswith("artemis")
        self.applications = [
            Application(
                one, brokers, f"{one}.{queue}", is_converted=wire == "amqp" and one == "core"
            )
            for one in PROVIDERS[wire]
        ]
        self.dead_letter_queue = "DLQ" if is_artemis else "ActiveMQ.DLQ"
        policy = write_policy(folder, ARTEMIS_POLICY if is_artemis else POLICY)
        ours = [getattr(broker, f"{wire}_url") for broker in brokers]
        self.sidecar = SidecarProcess(folder, f"[{', '.join(ours)}]", policy=policy, sets=OPTIONS)

    def fail_over(self, after: int) -> None:
        """Kill the active broker once this many messages were re-sent; the other takes over."""
        [active] = [broker for broker in self.brokers if broker.is_active]
        [standby] = [broker for broker in self.brokers if broker is not active]
        eventually(
            lambda: self.sidecar.metric("amqsidecar_resent_total") >= after,
            within_s=PATIENCE_S,
            what=f"{after} messages are sent again",
        )
        active.kill()
        eventually(lambda: standby.is_active, what="the standby takes over")
        # Why: it may have re-sent enough for the next kill before this one.
        eventually(
            lambda: self.ports_of("link_up", "url")[-1] == standby.sidecar_port,
            what="the sidecar is linked to it",
        )

    def settle(self) -> None:
        """Let all messages come back, and stop the sidecar."""
        for one in self.applications:
            one.wait_for_successes()
        # Why twice: what is in doubt may be on its way from one place to the other.
        eventually(lambda: self._is_empty() and self._is_empty(), what="nothing is left")
        assert self.sidecar.stop() == 0

    def _is_empty(self) -> bool:
        queues = [*(one.queue for one in self.applications), self.dead_letter_queue]
        peer = self.applications[0].peer
        rest = self.sidecar.unsent()
        return rest == 0 and not any(peer.browse(queue) for queue in queues)

    def ports_of(self, event: str, key: str) -> list[int]:
        """Return the ports of brokers that log lines of an event name, in order."""
        ports = [broker.sidecar_port for broker in self.brokers]
        lines = [line for line in self.sidecar.log_lines() if line["event"] == event]
        return [port for line in lines for port in ports if f":{port}" in line[key]]


def artemis_pair(folder: Path, *, replicates: bool) -> list[ArtemisOfPair]:
    first, second = free_port(), free_port()
    if replicates:
        locks = LOCKS.format(folder=folder)
        roles = [
            f"<replication>{role.format(locks=locks)}</replication>" for role in REPLICATION_ROLES
        ]
    else:
        roles = [f"<shared-store>{role}</shared-store>" for role in SHARED_STORE_ROLES]
    pair = [ArtemisOfPair(roles[0], first, second), ArtemisOfPair(roles[1], second, first)]
    if not replicates:
        for broker in pair:
            broker.data = folder / "store"
    return pair


def brokers_of(kind: str, folder: Path) -> Sequence[Standby]:
    if kind.startswith("artemis"):
        return artemis_pair(folder, replicates=kind == "artemis-replication")
    return [ClassicOfPair(kind, folder / "store") for _ in range(2)]


@pytest.fixture(
    params=[
        ("artemis", "pair"),
        # Why in proof: to the sidecar it is the same, and the broker's own work takes long.
        pytest.param(("artemis-replication", "pair"), marks=pytest.mark.proof),
        # Why in proof: a pair has both wires.
        pytest.param(("artemis", "core"), marks=pytest.mark.proof),
        pytest.param(("artemis", "amqp"), marks=pytest.mark.proof),
        pytest.param(("artemis-replication", "amqp"), marks=pytest.mark.proof),
        (CLASSIC_6, "openwire"),
        pytest.param((CLASSIC_5, "openwire"), marks=pytest.mark.proof),
    ],
    ids="-".join,
)
def pair(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Pair]:
    kind, wire = request.param
    brokers = brokers_of(kind, tmp_path)
    with ExitStack() as stack:
        for broker in brokers:
            stack.enter_context(broker)
        made = Pair(brokers, kind, wire, unique, tmp_path)
        stack.enter_context(made.sidecar)
        yield made


@pytest.mark.timeout(600)
def test_the_active_broker_is_killed_and_the_other_one_too(pair: Pair) -> None:
    """First to the standby and then back; the token lies in the store that both have."""
    first, second = (broker.sidecar_port for broker in pair.brokers)
    pair.sidecar.start()
    with ExitStack() as consumers:
        for application in pair.applications:
            consumers.enter_context(application.consume())
        with ExitStack() as producers:
            for application in pair.applications:
                producers.enter_context(application.produce())
            pair.fail_over(MESSAGES // 8)
            pair.brokers[0].start()
            pair.fail_over(MESSAGES // 4)
            for application in pair.applications:
                application.stop_producing(MESSAGES // len(pair.applications))
        pair.settle()
    for application in pair.applications:
        application.check()
    final = f"{pair.dead_letter_queue}.exhausted"
    assert pair.applications[0].peer.browse(final) == []
    log = pair.sidecar.log()
    assert "cycle_in_doubt" not in log
    assert "admin:admin" not in log
    assert pair.ports_of("link_up", "url") == [first, second, first]
    downs = pair.ports_of("link_down", "reason")
    assert downs[0] == first
    assert {first, second} == set(downs)
