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
from amqsidecar.model.event import Discarded, Exhausted, Parked, Received, Scheduled
from amqsidecar.model.schedule import first_redelivery_id
from amqsidecar.stores.sqlite.store import SqliteStore
from support.brokers.broker_xml import artemis_xml, classic_xml
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.openwire import OpenWireHarness
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually
from support.web.client import web_client

pytestmark = pytest.mark.broker

ONE_HOUR_MS = 3_600_000
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
    """`amqsidecar run --observe`, with a store of its own."""

    def __init__(self, folder: Path, broker_url: str, *, sets: Sequence[str] = (), **options: Any):
        folder.mkdir()
        sets = ["observe.interval_s=1", *sets]
        super().__init__(folder, broker_url, sets=sets, flags=["--observe"], **options)

    def decisions(self) -> Mapping[str, str]:
        """Return what the rules would do, by message id; each message has one row."""
        rows = self.rows("--limit", "2000")
        found = {
            one["message_id"]: one["rule"].removeprefix("manual; when found, the rules ")
            for one in rows
        }
        assert len(found) == len(rows)
        return found

    def wait_for(self, count: int) -> Mapping[str, str]:
        """Wait until it has found so many messages; return the decisions."""
        return eventually(
            lambda: len(found := self.decisions()) == count and found,
            what=f"{count} are found",
            last=lambda _: f"{len(self.decisions())}\n{self.log()[-3000:]}",
        )


def done_by(sidecar: SidecarProcess, count: int) -> Mapping[str, str]:
    """Return what a sidecar did with its first `count` dead letters, in an observer's words."""
    store = SqliteStore(sidecar.folder / "schedule.db", clock=SystemClock())
    uid = store.open().uid
    found = {}
    for number in range(1, count + 1):
        received, *events = store.history(first_redelivery_id(uid, number))
        assert isinstance(received, Received)
        name = str(received.message_id)
        for event in events:
            match event:
                case Scheduled():
                    found[name] = f"would redeliver it after {event.delay_ms} ms: {event.rule}"
                case Exhausted():
                    found[name] = f"would redeliver it no more: {event.rule}"
                case Discarded():
                    found[name] = f"would discard it: {event.rule}"
                case Parked():
                    found[name] = f"would park it: {event.reason}"
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


def test_on_classic_it_says_what_run_does_beyond_what_a_browser_shows(
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
        assert one.wait_for(445) == two.wait_for(445)
        would = 'amqsidecar_would_discard_total{destination="queue://drop.these"}'
        eventually(lambda: one.metric(would) == 10, what="what the rules would discard is counted")
        let_die(peer, "orders", 20)
        let_die(peer, "last", 5)
        let_die(peer, "own.new", 5)
        said = one.wait_for(475)
        assert two.wait_for(475) == said
        after = eventually(lambda: len(found := peer.browse("ActiveMQ.DLQ")) == 400 and found)
        assert queue_names(classic) - names == {"own.new", "DLQ.own.new"}
        with SidecarProcess(
            tmp_path, classic.openwire_url, policy=policy, sets=sets
        ).running() as sidecar:
            taken = "amqsidecar_dead_letters_received_total"
            eventually(lambda: sidecar.metric(taken) == 475, what="all are taken")
        eventually(lambda: not one.decisions(), what="what the sidecar took is forgotten")
        assert one.stop() == two.stop() == 0

    assert [(item.message_id, item.headers, item.delivery_count) for item in after] == [
        (item.message_id, item.headers, item.delivery_count) for item in before
    ]
    assert said == done_by(sidecar, 475)


def post_retry(observer: Observer, count: int) -> str:
    """Request a retry of all messages over the API; return the refusal."""
    started = next(one for one in observer.log_lines() if one["event"] == "started")
    with web_client(f"http://{started['http']}") as client:
        headers = {"X-CSRF-Token": client.get("/api/v1/session").json()["csrf"]}
        asked = {"action": "retry", "filter": {}, "everything": True, "expected": count}
        answer = client.post("/api/v1/operations", json=asked, headers=headers)
    assert answer.status_code >= 400
    return str(answer.text)


def test_on_classic_it_says_which_right_is_missing(classic: ClassicBroker, tmp_path: Path) -> None:
    """Without advisories it browses as well; without the right to read it ends with code 69."""
    name = "own.rights"
    let_die(JmsPeer.of(classic, "openwire"), name, 3)
    sets = [f"intake.queues=DLQ.{name}"]
    with Observer(tmp_path / "deaf", url_of(classic, "deaf"), sets=sets).running() as deaf:
        deaf.wait_for(3)
        let_die(JmsPeer.of(classic, "openwire"), name, 2)
        deaf.wait_for(5)
        # What a person may do is shown, and refused with the rights that it needs.
        status, page = deaf.get("/messages")
        assert status == 200
        assert "retry" in page.lower()
        by_command = deaf.try_command("retry", "--all", "--yes")
        assert by_command.returncode != 0
        for refused in (by_command.stderr, post_retry(deaf, 5)):
            assert "this sidecar only observes" in refused
            assert "Classic: write" in refused
    assert len(JmsPeer.of(classic, "openwire").browse(f"DLQ.{name}", count=5)) == 5
    # The same store goes on in manual mode, as a user with these rights.
    sets += ["redelivery.mode=manual", "observe.interval_s=1"]
    with SidecarProcess(deaf.folder, classic.openwire_url, sets=sets) as manual:
        manual.start()
        manual.run_command("retry", "--all", "--yes")
        assert len(JmsPeer.of(classic, "openwire").consume(name, count=5)) == 5
    stranger = Observer(tmp_path / "stranger", url_of(classic, "stranger"), sets=sets[:1])
    said = stranger.run_refused(expect=69)
    assert f"not authorized to read from: queue://DLQ.{name}" in said


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
        said = one.wait_for(38)
        assert two.wait_for(38) == said
        assert listed(harness) == before
        with SidecarProcess(tmp_path, artemis.amqp_url, sets=sets).running() as sidecar:
            taken = "amqsidecar_dead_letters_received_total"
            eventually(
                lambda: (sidecar.metric(taken), sidecar.left_behind()) == (29, left),
                what="all are taken but the Objects and Streams of Core and OpenWire",
            )
        assert one.stop() == two.stop() == 0

    assert said[stuck.message_id].startswith("would redeliver it after")
    done = done_by(sidecar, 29)
    assert len(said) == len(done) + left
    assert {name: said[name] for name in done} == done
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
            seen, all_seen = viewer.wait_for(3), lister.wait_for(5)
            assert listed(harness) == before
            assert viewer.stop() == lister.stop() == 0
        assert {key: all_seen[key] for key in seen} == seen
        assert {one.partition(":")[0] for one in all_seen.values()} == {
            "would redeliver it after 1000 ms"
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
    with Observer(tmp_path / "one", url, policy=policy, sets=sets).running() as one:
        let_die(peer, name, 2)
        said = one.wait_for(5)
    assert {each.partition(":")[0] for each in said.values()} == {
        f"would redeliver it after {2 * ONE_HOUR_MS} ms"
    }
    lying = eventually(lambda: len(found := peer.browse(f"DLQ.{name}")) == 5 and found)
    assert list(said) == [each.message_id for each in lying]
