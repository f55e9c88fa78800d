"""`run --observe` says what `run` does, and leaves no trace in the broker."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.openwire.look import OpenWireQueueWatch
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import queue
from amqsidecar.model.event import Discarded, Exhausted, Held, Parked, Received, Scheduled
from amqsidecar.model.schedule import first_redelivery_id
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.telemetry.logs import cut
from support.brokers.broker_xml import artemis_xml, classic_xml
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.openwire import OpenWireHarness
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually

pytestmark = pytest.mark.broker

ONE_HOUR_MS = 3_600_000
Decisions = Mapping[str, tuple[Any, ...]]
"""By message id: action, where to, redelivery count, delay, rule or reason."""

# Why: where an entry acts on a queue, a browse of it ends at 400 (maxBrowsePageSize).
STRATEGY = """
    <policyEntry queue="ActiveMQ.DLQ"/>
    <policyEntry queue="own.>"><deadLetterStrategy>
      <individualDeadLetterStrategy queuePrefix="DLQ."/>
    </deadLetterStrategy></policyEntry>
    <policyEntry queue="odd.>"><deadLetterStrategy>
      <individualDeadLetterStrategy queuePrefix="Dead-"/>
    </deadLetterStrategy></policyEntry>
"""
RULES = f"""
    <discardingDLQBrokerPlugin dropAll="false" dropOnly="drop\\..*"/>
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
      <redeliveryPolicy queue="orders" maximumRedeliveries="3"
          initialRedeliveryDelay="{ONE_HOUR_MS}"/>
      <redeliveryPolicy queue="own.>" maximumRedeliveries="2"
          initialRedeliveryDelay="{2 * ONE_HOUR_MS}"/>
      <redeliveryPolicy queue="last" maximumRedeliveries="0"/>
      <redeliveryPolicy topic="news" maximumRedeliveries="3"/>
    </redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""


class Observer(SidecarProcess):
    """`amqsidecar run --observe`, with a store that can't be opened and a line for each message."""

    def __init__(self, folder: Path, broker_url: str, *, sets: Sequence[str] = (), **options: Any):
        folder.mkdir()
        super().__init__(
            folder,
            broker_url,
            sets=[
                "store.url=sqlite:///nowhere/at/all.db",
                "observe.interval_s=1",
                "observe.max_log_lines=100000",
                *sets,
            ],
            flags=["--observe"],
            **options,
        )
        self.options = [
            one for one in self.options if one.startswith("store.url=sqlite:///nowh")
        ] + [one for one in self.options if not one.startswith("store.url=")]

    def seen(self) -> int:
        return int(self.metric("amqsidecar_observed_total"))

    def decisions(self) -> Decisions:
        """Return what it said, checking that it said each thing once."""
        lines = [one for one in self.log_lines() if one["event"].startswith("would_")]
        found = {
            one["message_id"]: (
                one["event"].removeprefix("would_"),
                one.get("destination", one["origin"]),
                one.get("redelivery_count"),
                one.get("delay_ms"),
                one.get("rule", one.get("reason")),
            )
            for one in lines
        }
        assert len(found) == len(lines)
        return found

    def summary(self) -> dict[str, Any]:
        return [one for one in self.log_lines() if one["event"] == "observed"][-1]


def decisions_of(sidecar: SidecarProcess, count: int) -> Decisions:
    """Return what a sidecar decided about its first `count` dead letters, from its history."""
    store = SqliteStore(sidecar.folder / "schedule.db", clock=SystemClock())
    uid = store.open().uid
    found: dict[str, tuple[Any, ...]] = {}
    for number in range(1, count + 1):
        received, *events = store.history(first_redelivery_id(uid, number))
        assert isinstance(received, Received)
        for event in events:
            match event:
                case Scheduled():
                    decision = ("redeliver", event.destination, event.redelivery_count)
                    found[str(received.message_id)] = (*decision, event.delay_ms, cut(event.rule))
                case Exhausted():
                    decided = ("dead_letter", event.destination, None, None, cut(event.rule))
                    found[str(received.message_id)] = decided
                case Discarded():
                    decided = ("discard", event.destination, None, None, cut(event.rule))
                    found[str(received.message_id)] = decided
                case Parked():
                    decided = ("park", event.destination, None, None, cut(event.reason))
                    found[str(received.message_id)] = decided
                case Held():
                    decided = ("hold", event.destination, None, None, cut(event.reason))
                    found[str(received.message_id)] = decided
                case _:
                    pass
    store.close()
    return found


# Classic over OpenWire


# What deploy/reference/observe.md says: nothing but to read, and to create advisory topics.
SECURITY = """
    <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
      <authenticationUser username="admin" password="admin" groups="admins"/>
      <authenticationUser username="observer" password="observer" groups="readers,hearers"/>
      <authenticationUser username="deaf" password="deaf" groups="readers"/>
      <authenticationUser username="stranger" password="stranger" groups="strangers"/>
    </users></simpleAuthenticationPlugin>
    <authorizationPlugin><map><authorizationMap><authorizationEntries>
      <authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
      <authorizationEntry topic=">" read="admins" write="admins" admin="admins"/>
      <authorizationEntry queue="ActiveMQ.DLQ" read="readers" write="admins" admin="admins"/>
      <authorizationEntry queue="DLQ.>" read="readers" write="admins" admin="admins"/>
      <authorizationEntry queue="Dead-odd.>" read="readers" write="admins" admin="admins"/>
      <authorizationEntry topic="ActiveMQ.Advisory.>" read="hearers" write="admins"
          admin="admins,readers,hearers,strangers"/>
    </authorizationEntries></authorizationMap></map></authorizationPlugin>
"""


@pytest.fixture(scope="module")
def classic() -> Iterator[ClassicBroker]:
    with ClassicBroker(CLASSIC_6, destination_policy=STRATEGY, plugins=SECURITY) as started:
        yield started


def url_of(broker: Broker, user: str) -> str:
    """Return the broker's URL with the login of another user."""
    scheme, port = ("openwire", "OPENWIRE_PORT") if broker.kind == "classic" else ("amqp", "PORT")
    return f"{scheme}://{user}:{user}@127.0.0.1:{broker.ports[port]}"


def queue_names(broker: ClassicBroker) -> set[str]:
    """Return the names of all queues that the broker has."""
    harness = OpenWireHarness(broker, "names")
    watch = OpenWireQueueWatch(harness._consumers, ".exhausted")
    watch.existing(IntakeQueue(queue(">")))
    harness.close()
    return set(watch._names)


def let_die(peer: JmsPeer, destination: str, count: int) -> None:
    peer.fill(destination, count, size=10, test_id=destination)
    peer.fail(destination, messages=count, deliveries=1)


def test_on_classic_it_says_what_run_does_beyond_what_a_browse_shows(
    classic: ClassicBroker, tmp_path: Path
) -> None:
    """More than 400 dead letters and new deaths; two observers and a sidecar beside each other."""
    peer = JmsPeer.of(classic, "openwire")
    policy = tmp_path / "activemq.xml"
    policy.write_text(classic_xml(destination_policy=STRATEGY, plugins=RULES), encoding="utf-8")
    peer.durable_subscribe("news", "client", "sub")
    peer.produce("topic://news", "Text", persistent=True)
    peer.fail_durable("news", "client", "sub", messages=1, deliveries=1)
    for name, count in (("drop.these", 10), ("orders", 379), ("last", 10), ("unruled", 20)):
        let_die(peer, name, count)
    let_die(peer, "own.a", 20)
    let_die(peer, "odd.a", 5)
    # Why by number: under load a browser of Classic has shown none of them.
    before = eventually(lambda: len(found := peer.browse("ActiveMQ.DLQ")) == 400 and found)
    names = queue_names(classic)

    sets = ["intake.backlog=process"]
    url = url_of(classic, "observer")
    with (
        Observer(tmp_path / "one", url, policy=policy, sets=sets).start() as one,
        Observer(tmp_path / "two", url, policy=policy, sets=sets).start() as two,
    ):
        eventually(lambda: one.seen() == two.seen() == 425, what="400 and 25 of their own")
        let_die(peer, "orders", 20)
        let_die(peer, "last", 5)
        let_die(peer, "own.new", 5)
        eventually(lambda: one.seen() == two.seen() == 455, what="advisories report later deaths")
        said = eventually(lambda: len(found := one.decisions()) == 455 and found)
        assert eventually(lambda: len(found := two.decisions()) == 455 and found) == said
        after = eventually(lambda: len(found := peer.browse("ActiveMQ.DLQ")) == 400 and found)
        assert queue_names(classic) - names == {"own.new", "DLQ.own.new"}
        with SidecarProcess(tmp_path, classic.openwire_url, policy=policy, sets=sets) as sidecar:
            sidecar.start()
            taken = "amqsidecar_dead_letters_received_total"
            eventually(lambda: sidecar.metric(taken) == 475, what="all are taken")
            assert sidecar.stop() == 0
        assert one.stop() == two.stop() == 0

    assert [(item.message_id, item.headers, item.delivery_count) for item in after] == [
        (item.message_id, item.headers, item.delivery_count) for item in before
    ]
    done = decisions_of(sidecar, 475)
    # Why of both: while the sidecar takes what a look showed, a look may show some of the others.
    for observer in (one, two):
        found = observer.decisions()
        assert {name: done[name] for name in found} == found
        assert found.items() >= said.items()
        assert f"of {len(found)} " in observer.summary()["meaning"]
    kinds = [decision[0] for decision in said.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)}["park"] == 1
    assert set(kinds) == {"redeliver", "dead_letter", "discard", "park"}
    assert one.summary()["destinations"]["queue://orders"] == {
        "redeliver": kinds.count("redeliver") - 25
    }
    [warning] = [line for line in one.log_lines() if line["event"] == "sees_in_part"]
    assert "first 400" in warning["meaning"]


def test_on_classic_it_says_which_right_is_missing(classic: ClassicBroker, tmp_path: Path) -> None:
    """Without advisories a browse alone is left, without the right to read it ends with code 69."""
    name = "own.rights"
    let_die(JmsPeer.of(classic, "openwire"), name, 3)
    sets = [f"intake.queues=DLQ.{name}", "intake.backlog_threshold=2"]
    with Observer(tmp_path / "deaf", url_of(classic, "deaf"), sets=sets).start() as deaf:
        eventually(lambda: len(deaf.decisions()) == 3, what="it says what it would do")
        assert {decision[0] for decision in deaf.decisions().values()} == {"hold"}
        let_die(JmsPeer.of(classic, "openwire"), name, 2)
        eventually(lambda: len(deaf.decisions()) == 5, what="the next look sees them")
        kinds = [decision[0] for decision in deaf.decisions().values()]
        assert sorted(kinds) == ["hold"] * 3 + ["redeliver"] * 2
        [told] = [one for one in deaf.log_lines() if one["event"] == "deaths_not_heard"]
        assert "not authorized to read from: topic://ActiveMQ.Advisory" in told["meaning"]
        assert "topic ActiveMQ.Advisory.>" in told["meaning"]
        assert deaf.stop() == 0
    stranger = Observer(tmp_path / "stranger", url_of(classic, "stranger"), sets=sets)
    said = stranger.run_refused(expect=69)
    assert f"not authorized to read from: queue://DLQ.{name}" in said


def test_a_look_at_large_messages_takes_bounded_memory(
    classic: ClassicBroker, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with what it has, and the connection goes on; all queues together hold no more."""
    harness = OpenWireHarness(classic, unique)
    for number in range(3):
        harness.put_dead_letters(f"{unique}.{number}", 10, size_bytes=3_000_000)
    link = harness.make_link("looks").look()
    for _ in range(2):
        seen = link.browse(harness.intake(), 1000)
        assert 20 < len(seen) < 30
        assert sum(len(one.message) for one in seen) < 70_000_000
    monkeypatch.setattr("amqsidecar.brokers.openwire.look._BROWSED_BYTES_MAX", 10_000_000)
    told = link.browse(harness.intake(), 1000)
    assert sum(len(one.message) for one in told) < 10_000_000
    assert [one.provenance for one in told] == [one.provenance for one in seen]
    link.close()
    harness.drain_raw(harness.dead_letter_queue)
    harness.close()


# Artemis over AMQP


def listed(harness: AmqpArtemisHarness) -> Any:
    """Return all that the broker shows of a dead-letter queue."""
    resource = f"queue.{harness.dead_letter_queue}"
    names = ("MessagesKilled", "MessageCount", "MessagesAdded", "MessagesAcknowledged")
    attributes = [
        harness.management.ask(ManagementQuestion(resource, attribute=one)) for one in names
    ]
    return attributes, harness.ask(resource, "listMessagesAsJSON", "")


def test_on_artemis_it_says_what_run_does(artemis: Broker, tmp_path: Path, unique: str) -> None:
    """By live settings, for messages of all clients, also where the broker can't convert one."""
    harness = AmqpArtemisHarness(artemis, unique)
    names = [f"{unique}.orders", f"{unique}.last"]
    own = {"deadLetterAddress": harness.dead_letter_queue, "redeliveryMultiplier": 2.0}
    harness.set_address(names[0], **own, maxDeliveryAttempts=3, redeliveryDelay=ONE_HOUR_MS)
    harness.set_address(names[1], **own, maxDeliveryAttempts=1)
    left = 0
    for provider in ("core", "qpid", "openwire"):
        peer = JmsPeer.of(artemis, provider)
        for name in names:
            peer.produce(name, ["Text", "Map", "Message"], priority=4)
            unread = peer.produce(name, ["Object", "PlainStream"], priority=4)
            left += 0 if provider == "qpid" else len(unread)
    for name in names:
        harness.put_dead_letters(name, 3)
        harness.kill(name)
    [stuck] = JmsPeer.of(artemis, "core").produce(names[0], "Stream", priority=4)
    left += 1
    harness.kill(names[0])
    # Why: a dead letter without any past, which somebody put there.
    JmsPeer.of(artemis, "qpid").produce(harness.dead_letter_queue, "Text")
    eventually(lambda: harness.depth(harness.dead_letter_queue) == 38, what="all are dead")
    before = listed(harness)

    sets = ["intake.backlog=process", f"intake.queues={harness.dead_letter_queue}"]
    with (
        Observer(tmp_path / "one", artemis.amqp_url, sets=sets).start() as one,
        Observer(tmp_path / "two", artemis.amqp_url, sets=sets).start() as two,
    ):
        eventually(lambda: one.seen() == two.seen() == 38, what="all are seen")
        looks = one.log_lines()
        assert listed(harness) == before
        with SidecarProcess(tmp_path, artemis.amqp_url, sets=sets) as sidecar:
            sidecar.start()
            taken = "amqsidecar_dead_letters_received_total"
            eventually(
                lambda: (sidecar.metric(taken), sidecar.left_behind()) == (29, left),
                what="all are taken but the Objects and Streams of Core and OpenWire",
            )
            assert sidecar.stop() == 0
        assert one.stop() == two.stop() == 0

    said = one.decisions()
    assert looks
    assert said == two.decisions()
    assert said[stuck.message_id][0] == "redeliver"
    decided = decisions_of(sidecar, 29)
    assert len(said) == len(decided) + left
    said = {one: decision for one, decision in said.items() if one in decided}
    assert said == decided
    kinds = [decision[0] for decision in said.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "redeliver": 14,
        "dead_letter": 14,
        "park": 1,
    }
    harness.close()


RIGHTS = {
    "DLQ": {"browse": "viewers,listers"},
    "activemq.management": {"send": "listers", "manage": "listers"},
    "uuid.#": dict.fromkeys(
        ("createNonDurableQueue", "createAddress", "consume", "send"), "listers"
    ),
}
KINDS = (
    *("createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue"),
    *("deleteDurableQueue", "createAddress", "deleteAddress"),
    *("consume", "browse", "send", "manage"),
)


class SecuredArtemis(ArtemisBroker):
    """Artemis with users that may only look: `viewer` without the right to manage, `lister`."""

    def __init__(self) -> None:
        settings = "".join(
            f'<security-setting match="{match}">'
            + "".join(
                f'<permission type="{kind}" roles="amq,{roles.get(kind, "amq")}"/>'
                for kind in KINDS
            )
            + "</security-setting>"
            for match, roles in RIGHTS.items()
        )
        text = artemis_xml(core="<uuid-namespace>uuid</uuid-namespace>")
        super().__init__(text.replace("</security-settings>", f"{settings}</security-settings>"))

    def _prepare(self) -> None:
        super()._prepare()
        roles = {"viewer": "viewers", "lister": "listers", "stranger": "strangers"}
        users = [f"{user} = {user}" for user in roles]
        for name, lines in {
            "artemis-users.properties": users,
            "artemis-roles.properties": [f"{role} = {user}" for user, role in roles.items()],
        }.items():
            path = self.config_path.parent / name
            path.write_text(path.read_text(encoding="utf-8") + "\n".join(lines), encoding="utf-8")


def test_on_artemis_the_right_to_browse_is_enough(tmp_path: Path) -> None:
    """Without the right to manage, what Core clients have made is left out, and not copied."""
    with SecuredArtemis() as broker:
        harness = AmqpArtemisHarness(broker, "DLQ.rights")
        harness.dead_letter_queue = "DLQ"
        name = "orders.rights"
        JmsPeer.of(broker, "core").produce(name, ["Stream", "Text"], priority=4)
        JmsPeer.of(broker, "qpid").produce(name, ["Text", "Map", "Stream"], priority=4)
        harness.kill(name)
        eventually(lambda: harness.depth("DLQ") == 5, what="all are dead")
        before = listed(harness)
        policy = tmp_path / "policy.yaml"
        policy.write_text(
            "address_settings: [{match: '#', dead_letter_address: DLQ, redelivery_delay_ms: 1000}]",
            encoding="utf-8",
        )
        options: dict[str, Any] = {"policy": policy, "sets": ["intake.queues=DLQ"]}
        with (
            Observer(tmp_path / "viewer", url_of(broker, "viewer"), **options).start() as viewer,
            Observer(tmp_path / "lister", url_of(broker, "lister"), **options).start() as lister,
        ):
            eventually(lambda: viewer.seen() == 3 and lister.seen() == 5, what="all are seen")
            assert listed(harness) == before
            assert viewer.stop() == lister.stop() == 0
        seen, all_seen = viewer.decisions(), lister.decisions()
        assert {key: all_seen[key] for key in seen} == seen
        assert {decision[:4] for decision in all_seen.values()} == {
            ("redeliver", f"queue://{name}", 1, 1000)
        }
        [left] = [one for one in viewer.log_lines() if one["event"] == "left_behind"]
        assert "Core and OpenWire clients" in left["meaning"]
        assert "send and manage on activemq.management" in left["meaning"]
        stranger = Observer(tmp_path / "stranger", url_of(broker, "stranger"), **options)
        assert "allow the user to browse it" in stranger.run_refused(expect=69)
        harness.close()


@pytest.mark.parametrize("wire", ["stomp", "amqp"])
def test_over_the_other_wires_of_classic_it_sees_what_a_browse_shows(
    classic: ClassicBroker, tmp_path: Path, wire: str
) -> None:
    """Old and new dead letters alike, as long as a browse shows them; the queue is as before."""
    peer = JmsPeer.of(classic, "openwire")
    name = f"own.{wire}"
    let_die(peer, name, 3)
    policy = tmp_path / "activemq.xml"
    policy.write_text(classic_xml(destination_policy=STRATEGY, plugins=RULES), encoding="utf-8")
    port = classic.ports[{"stomp": "STOMP_PORT", "amqp": "AMQP_JMS_PORT"}[wire]]
    sets = [f"intake.queues=DLQ.{name}"]
    url = f"{wire}://observer:observer@127.0.0.1:{port}"
    with Observer(tmp_path / "one", url, policy=policy, sets=sets).start() as one:
        let_die(peer, name, 2)
        eventually(lambda: one.seen() == 5, what="the next look sees them")
        assert one.stop() == 0
    assert {decision[:4] for decision in one.decisions().values()} == {
        ("redeliver", f"queue://{name}", 1, 2 * ONE_HOUR_MS)
    }
    lying = eventually(lambda: len(found := peer.browse(f"DLQ.{name}")) == 5 and found)
    assert list(one.decisions()) == [each.message_id for each in lying]
