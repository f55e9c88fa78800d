"""The AMQP link moves dead letters of real Classic brokers as real JMS clients see them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from proton import Message

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp_classic import take as amqp_classic_take
from amqsidecar.brokers.amqp_classic.link import AmqpClassicLink
from amqsidecar.brokers.amqp_classic.take import AmqpClassicTake
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.clock import SystemClock
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.errors import BrokerRefused, LinkLost, QueueRefused
from amqsidecar.formats.amqp_artemis_message import ENCODING as ARTEMIS_ENCODING
from amqsidecar.model.destination import queue, topic
from amqsidecar.model.left_behind import LeftBehind, Loss
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    SharedDeadLetterStrategy,
)
from support.brokers.broker_xml import CLASSIC_CONNECTORS, classic_xml
from support.brokers.real import Broker, ClassicBroker
from support.jms.message import NOT_COMPARED, JmsMessage
from support.jms.peer import ALL_TYPES, JmsPeer
from support.jms.redelivered import receipts
from support.links.amqp_classic import AmqpClassicHarness, AmqpClassicNativeHarness
from support.links.cycles import move, receive, resend, with_token
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import PATIENCE_S, eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

STRATEGIES = """
    <policyEntry queue=">"><deadLetterStrategy>
      <individualDeadLetterStrategy queuePrefix="DLQ."/>
    </deadLetterStrategy></policyEntry>
    <policyEntry queue="shared.>"><deadLetterStrategy>
      <sharedDeadLetterStrategy/>
    </deadLetterStrategy></policyEntry>
"""
REDELIVERY = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap>
      <redeliveryPolicyEntries>
        <redeliveryPolicy queue=">" maximumRedeliveries="2" initialRedeliveryDelay="1000"/>
      </redeliveryPolicyEntries>
    </redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""
# Why the STOMP port: no test here speaks STOMP.
CONNECTORS = {
    **{name: uri for name, uri in CLASSIC_CONNECTORS.items() if name != "stomp"},
    "amqp-raw": "amqp://127.0.0.1:@STOMP_PORT@?transport.transformer=raw",
}
NAMES = DeadLetterNames(
    ClassicRules(
        dead_letter=DeadLetterRules(
            entries=(
                PolicyEntry(
                    destinations=(queue(">"),),
                    dead_letter_strategy=IndividualDeadLetterStrategy(queue_prefix="DLQ."),
                ),
                PolicyEntry(
                    destinations=(queue("shared.>"),),
                    dead_letter_strategy=SharedDeadLetterStrategy(),
                ),
            )
        )
    )
)
OURS = (
    *("amqsidecarRedeliveryCheck", "amqsidecarRedeliveryCount", "amqsidecarRedeliveryId"),
    "redeliveryDelay",
)
# Why: what the broker writes on a message that comes in over a connector with transformer=jms.
MAPPED = (
    "JMS_AMQP_ContentType",
    "JMS_AMQP_HEADER",
    "JMS_AMQP_ORIGINAL_ENCODING",
    "JMS_AMQP_PROPERTIES",
    "amqsidecarOriginalMessageId",
)

Opened = Callable[[AmqpClassicHarness], AmqpClassicTake]
on_one_version = pytest.mark.parametrize("broker", [CLASSIC_5], indirect=True)
"""For what is ours alone, whatever the broker's version."""
on_both_versions = pytest.mark.parametrize("broker", [CLASSIC_5, CLASSIC_6], indirect=True)
"""For what the versions do differently; the rest is proven on one, and by `make proof` on both."""


@pytest.fixture(
    scope="module", params=[CLASSIC_5, pytest.param(CLASSIC_6, marks=pytest.mark.proof)]
)
def broker(request: pytest.FixtureRequest) -> Iterator[ClassicBroker]:
    with ClassicBroker(
        request.param, destination_policy=STRATEGIES, connectors=CONNECTORS
    ) as started:
        yield started


@pytest.fixture
def mapped(broker: ClassicBroker, unique: str) -> Iterator[AmqpClassicHarness]:
    made = AmqpClassicHarness(broker, unique)
    yield made
    made.close()


@pytest.fixture
def native(broker: ClassicBroker, unique: str) -> Iterator[AmqpClassicNativeHarness]:
    made = AmqpClassicNativeHarness(broker, unique)
    yield made
    made.close()


@pytest.fixture
def mapping(broker: ClassicBroker, unique: str) -> Iterator[AmqpClassicNativeHarness]:
    """What sends AMQP messages that the connector makes JMS messages of."""

    class Mapping(AmqpClassicNativeHarness):
        port = "AMQP_JMS_PORT"

    made = Mapping(broker, unique)
    yield made
    made.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    links: list[AmqpClassicTake] = []

    def make(harness: AmqpClassicHarness) -> AmqpClassicTake:
        link = harness.make_link(f"e2e-{len(links)}", NAMES).take(
            f"{harness.prefix}.token.{len(links) + 1}"
        )
        links.append(link)
        return with_token(link)

    yield make
    for link in links:
        link.close()


def left_over(link: AmqpClassicTake) -> list[tuple[str, int]]:
    """Return what is left behind once no more comes."""
    link.wait(0.1)
    assert link.receive(10) == []
    return [(one.reason, one.count) for one in link.left_behind()]


def await_left(link: AmqpClassicTake) -> Sequence[LeftBehind]:
    """Wait until something is reported: under load a browser of Classic may show nothing."""
    return eventually(link.left_behind, what="what is left behind is reported")


def send_back(link: AmqpClassicTake, deliveries: Sequence[Delivery], count: int) -> None:
    """Send dead letters back to where they died, in the cycle of that number."""
    link.commit_cycle(deliveries, [resend(one, count) for one in deliveries], count)


def differences(before: JmsMessage, after: JmsMessage, *ignored: str) -> list[str]:
    return before.differences(after, without_headers=NOT_COMPARED, without_properties=ignored)


@on_both_versions
def test_texts_that_the_broker_writes_as_java_does_come_back_whole(
    mapped: AmqpClassicHarness, mapping: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """Characters beyond U+FFFF, and zero; a name that 6.3.1 itself can't read is left."""
    name = f"{mapped.prefix}.orders"
    openwire = JmsPeer.of(mapped.broker, "openwire")
    texts = {"astral": "a\U0001f600", "zero": "a\0b", "korean": "\ud55c", "number": 0xEDA0BDC080}
    for destination in (f"{name}.never", name):
        openwire.produce(destination, ["Text", "Bytes"], properties=texts, test_id="t")
        told = Message(body={"k": "v\U0001f600"}, durable=True)
        mapping.send_amqp(destination, [bytes(told.encode())])
        openwire.produce(destination, "Text", properties={"p\U0001f600": "name"}, test_id="n")
    never_failed = openwire.consume(f"{name}.never", 4)
    openwire.fail(name, messages=4)
    link = opened(mapped)
    link.attach([IntakeQueue(queue(f"DLQ.{name}"))], 10)
    taken = 3 if mapped.broker.version == CLASSIC_6 else 4
    move(link, taken, 1)
    if taken < 4:
        eventually(lambda: left_over(link) == [("body_type", 1)])

    found = openwire.consume(name, taken)
    assert [one.type for one in found] == ["Text", "Bytes", "Map", "Text"][:taken]
    for before, after in zip(never_failed[:taken], found, strict=True):
        assert differences(before, after, *OURS, *MAPPED) == ["JMSRedelivered: False != True"]


def test_a_stomp_consumer_can_acknowledge_a_redelivery(
    classic_6: Broker, unique: str, opened: Opened
) -> None:
    """It could not, had the first id come back as text."""
    harness = AmqpClassicHarness(classic_6, unique)
    name = f"{unique}.orders"
    harness.put_dead_letters(name, 2)
    link = opened(harness)
    link.attach([harness.intake()], 10)
    move(link, 2, 1)
    with StompPeer(classic_6.ports["STOMP_PORT"]) as stomp:
        stomp.subscribe(f"/queue/{name}")
        stomp.ack(stomp.receive())
        stomp.nack(stomp.receive())
    assert harness.depth(name) == 0
    harness.close()


def test_what_this_wire_would_alter_stays(mapped: AmqpClassicHarness, opened: Opened) -> None:
    """A body-less JMS message is held back and reported; one that the broker can't encode stays."""
    name = f"{mapped.prefix}.orders"
    peer = JmsPeer.of(mapped.broker, "openwire")
    types = ["Stream", "Message", "Text", "Stream", "Message", "Text"]
    peer.produce(name, types)
    peer.fail(name, messages=len(types))
    link = opened(mapped)
    link.attach([IntakeQueue(queue(f"DLQ.{name}"))], 3)
    move(link, 2, 1)
    [left] = await_left(link)
    assert (left.queue, left.reason, left.count) == (queue(f"DLQ.{name}"), "body_type", 2)
    assert "openwire://" in left.meaning
    # Why 3: the broker stops at the second Stream, with a credit left.
    assert [link.count(IntakeQueue(left.queue), at_most) for at_most in (1, 3, 10)] == [1, 2, 2]
    link.close()

    stayed = [one.type for one in peer.browse(f"DLQ.{name}", count=4)]
    assert sorted(stayed) == ["Message", "Message", "Stream", "Stream"]
    assert [one.type for one in peer.consume(name, 2)] == ["Text", "Text"]

    mapped.allowed_losses = frozenset({Loss.BODY_TYPE})
    allowing = opened(mapped)
    allowing.attach([IntakeQueue(queue(f"DLQ.{name}"))], 3)
    move(allowing, 2, 1)
    assert [one.type for one in peer.consume(name, 2)] == ["Bytes", "Bytes"]


def test_what_came_unmapped_is_not_mapped(mapped: AmqpClassicHarness, opened: Opened) -> None:
    """Of what the stock connector has let in, only a Stream that can't be mapped is taken."""
    name = f"{mapped.prefix}.orders"
    peer = JmsPeer.of(mapped.broker, "qpid")
    peer.produce(name, ["Text", "PlainStream", "Stream"])
    peer.fail(name, messages=3)
    link = opened(mapped)
    link.attach([IntakeQueue(queue(f"DLQ.{name}"))], 10)
    move(link, 1, 1)
    eventually(lambda: left_over(link) == [("body_type", 2)])
    link.close()
    assert [one.type for one in peer.browse(f"DLQ.{name}", count=2)] == ["Text", "Stream"]
    [whole] = peer.consume(name, 1)
    assert whole.type == "Stream"
    assert whole.body[-1] == ["byte[]", "0102ff"]


def test_qpid_messages_come_back_whole_and_die_again(
    native: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """On the stock connector: nothing but our three properties, not even the id, is different."""
    name = f"{native.prefix}.orders"
    peer = JmsPeer.of(native.broker, "qpid")
    sent = peer.produce(name, test_id="t", ttl_ms=3_600_000)
    link = opened(native)
    link.attach([IntakeQueue(queue(f"DLQ.{name}"))], 100)
    for count in (1, 2):
        peer.fail(name, messages=len(ALL_TYPES))
        deliveries = receive(link, len(ALL_TYPES))
        assert [one.provenance.redelivery_count for one in deliveries] == [count - 1] * 8
        assert {one.provenance.cause for one in deliveries} == {None}
        assert not any(one.provenance.expired for one in deliveries)
        send_back(link, deliveries, count)
    found = peer.consume(name, len(ALL_TYPES))

    for before, after in zip(sent, found, strict=True):
        assert after.message_id == before.message_id
        ttl_ms = after.headers["JMSExpiration"] - after.headers["JMSTimestamp"]
        assert ttl_ms == 3_600_000
        assert after.headers["JMSTimestamp"] > before.headers["JMSTimestamp"]
        changed = [one.partition(":")[0] for one in differences(before, after, *OURS)]
        assert changed == ["JMSExpiration"]


def test_others_than_amqp_made_are_left_alone_on_the_stock_connector(
    native: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """They stay in the queue as they are, and are counted."""
    name = f"{native.prefix}.orders"
    openwire, qpid = (JmsPeer.of(native.broker, one) for one in ("openwire", "qpid"))
    openwire.produce(name, "Text", count=2)
    openwire.fail(name, messages=2)
    qpid.produce(name, "Text", test_id="amqp")
    qpid.fail(name, messages=1)
    link = opened(native)
    link.attach([IntakeQueue(queue(f"DLQ.{name}"))], 10)
    [delivery] = receive(link, 1)
    assert b"amqp-0" in delivery.message
    [left] = await_left(link)
    assert (left.reason, left.count) == ("not_amqp_made", 2)
    assert "transport.transformer=jms" in left.meaning
    link.close()
    assert [one.type for one in openwire.browse(f"DLQ.{name}", count=3)][:2] == ["Text", "Text"]


def test_many_queues_are_counted_in_turns(
    native: AmqpClassicNativeHarness, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is time for one queue only, each look counts the next; none is forgotten."""
    monkeypatch.setattr(amqp_classic_take, "_COUNTING_S_MAX", 0)
    names = [f"DLQ.{native.prefix}.{number}" for number in range(3)]
    openwire = JmsPeer.of(native.broker, "openwire")
    for name in names:
        openwire.produce(name, "Text")
    link = opened(native)
    link.attach([IntakeQueue(queue(name)) for name in names], 10)
    assert [len(link.left_behind()) for _ in range(4)] == [1, 2, 3, 3]
    openwire.consume(names[1], 1)
    told = [[one.queue.name for one in link.left_behind()] for _ in range(3)]
    assert told[-1] == [names[0], names[2]]
    link.attach([IntakeQueue(queue(names[2]))], 10)
    assert [one.queue.name for one in link.left_behind()] == [names[2]]


@pytest.mark.parametrize("wire", ["mapped", "native"])
def test_a_message_that_only_claims_to_be_amqp_stays(
    wire: str, broker: ClassicBroker, unique: str, opened: Opened
) -> None:
    """The broker hands over its body and nothing else, so that the rest would be lost."""
    make = AmqpClassicHarness if wire == "mapped" else AmqpClassicNativeHarness
    harness = make(broker, unique)
    peer = JmsPeer.of(broker, "openwire")
    claims = {"JMS_AMQP_NATIVE": True, "own": "kept"}
    peer.produce(f"{unique}.orders", "Bytes", properties=claims)
    peer.fail(f"{unique}.orders", messages=1)
    link = opened(harness)
    link.attach([IntakeQueue(queue(f"DLQ.{unique}.orders"))], 10)

    def is_told() -> bool:
        link.wait(0.1)
        assert link.receive(10) == []
        return [one.reason for one in link.left_behind()] == ["not_convertible"]

    eventually(is_told)
    link.close()
    [stayed] = peer.browse(f"DLQ.{unique}.orders", count=1)
    assert stayed.value("own") == "kept"
    harness.close()


@pytest.mark.parametrize("wire", ["mapped", "native"])
def test_a_wildcard_finds_queues_old_and_new(
    wire: str, broker: ClassicBroker, unique: str, opened: Opened
) -> None:
    """Those that hold dead letters already, and those that come; not what the sidecar writes."""
    make = AmqpClassicHarness if wire == "mapped" else AmqpClassicNativeHarness
    harness = make(broker, unique)
    peer = JmsPeer.of(broker, "openwire" if wire == "mapped" else "qpid")
    names = [f"{harness.prefix}.q{number}" for number in range(3)]
    for name in (*names[:2], f"{names[0]}.exhausted"):
        peer.produce(name, "Text")
        peer.fail(name, messages=1)
    link = opened(harness)
    link.attach([IntakeQueue(queue(f"DLQ.{harness.prefix}.>"))], 100)
    deliveries = receive(link, 2)
    peer.produce(names[2], "Text")
    peer.fail(names[2], messages=1)
    deliveries += receive(link, 1)

    assert sorted(one.source.name for one in deliveries) == [f"DLQ.{name}" for name in names]
    assert sorted(str(one.provenance.origin) for one in deliveries) == [
        f"queue://{name}" for name in names
    ]
    assert link.queues_changed()
    assert not link.queues_changed()
    assert sorted(one.name for one in link.queues_read()) == [f"DLQ.{name}" for name in names]
    assert link.left_behind() == ()
    newborn = [link.is_newborn(queue(f"DLQ.{name}")) for name in names]
    assert newborn == [False, False, True]
    harness.close()


def test_what_a_wildcard_can_not_name_is_reported(
    native: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """A message without a `to` names no queue; the next death in the same queue does."""
    name = f"{native.prefix}.orders"
    qpid = JmsPeer.of(native.broker, "qpid")

    def die() -> None:
        native.send_amqp(name, [bytes(Message(body="without a to", durable=True).encode())])
        qpid.fail(name, messages=1)

    die()
    link = opened(native)
    link.attach([IntakeQueue(queue(f"DLQ.{native.prefix}.>"))], 10)
    [left] = await_left(link)
    assert (left.reason, left.count) == ("no_name", 1)
    die()
    assert {one.source for one in receive(link, 2)} == {queue(f"DLQ.{name}")}


@on_one_version
def test_what_messages_claim_about_their_queue_makes_none(
    native: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """A producer writes into `to` what it likes: no queue follows from it, and no broken link."""
    found, hidden = (f"DLQ.{native.prefix}.{name}" for name in ("found", "hidden"))
    lies = [f"queue://DLQ.{native.prefix}.lie{number}" for number in range(30)]
    for name, claims in (
        (found, [f"queue://{native.prefix}.found"]),
        # Why so long: a selector with it would be longer than a frame may be.
        (hidden, [*lies, f"queue://{'x' * 200_000}"]),
    ):
        told = [Message(address=claim, body="", durable=True) for claim in claims]
        native.send_amqp(name, [bytes(one.encode()) for one in told])
    link = opened(native)
    link.attach([IntakeQueue(queue(f"DLQ.{native.prefix}.>"))], 10)

    assert link.queues_read() == (queue(found),)
    [left] = await_left(link)
    assert (left.reason, left.count) == ("no_name", 31)
    assert not native.exists(lies[0].removeprefix("queue://"))


@on_one_version
def test_more_queues_than_a_selector_can_name_are_found(
    native: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """The next look leaves out what it has room for, and reads on what it has read."""
    count = 90
    names = [f"{native.prefix}.{number}.{'x' * 800}" for number in range(count)]
    for name in names:
        told = Message(address=f"queue://{name}", body="", durable=True)
        native.send_amqp(f"DLQ.{name}", [bytes(told.encode())])
    link = opened(native)
    for _ in range(2):
        link.attach([IntakeQueue(queue(f"DLQ.{native.prefix}.>"))], count)
        assert len(link.queues_read()) == count
    assert link.left_behind() == ()


def test_a_found_queue_without_an_origin_is_left_alone_and_reported(
    mapped: AmqpClassicHarness, opened: Opened
) -> None:
    """Its name leads to a queue whose dead letters go elsewhere."""
    name = f"DLQ.shared.{mapped.prefix}"
    JmsPeer.of(mapped.broker, "openwire").produce(name, "Text")
    link = opened(mapped)
    link.attach([IntakeQueue(queue(f"{name}.>"))], 10)
    assert link.queues_read() == ()
    [left] = await_left(link)
    assert (left.queue, left.reason) == (queue(name), "no_origin")
    assert "intake.origin" in left.meaning


@pytest.mark.parametrize("transformer", ["native", "raw"])
def test_the_probe_refuses_a_connector_and_leaves_nothing(
    transformer: str, mapped: AmqpClassicHarness
) -> None:
    """One sentence names the connector's transformer and the line that mends it."""
    mapped.port = {"native": "AMQP_PORT", "raw": "STOMP_PORT"}[transformer]
    # Why: a broker without any queue tells of none, as one without advisories does.
    mapped.put_dead_letters(f"{mapped.prefix}.orders", 1)
    link = mapped.make_link("probe")
    with pytest.raises(BrokerRefused, match=f"transport.transformer={transformer},") as refused:
        link.take(f"{mapped.prefix}.token")
    assert 'uri="amqp://0.0.0.0:5672?transport.transformer=jms"' in str(refused.value)
    assert "intake.producers=amqp" in str(refused.value)
    assert not mapped.exists(f"{mapped.prefix}.token")


@on_one_version
def test_what_one_connector_has_given_is_not_sent_over_another(
    mapped: AmqpClassicHarness, native: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """The engine sends rows of the same encoding only; here neither is the other, nor Artemis's."""
    encodings = [opened(one).description.encodings[0] for one in (mapped, native)]
    assert len({*encodings, ARTEMIS_ENCODING}) == 3


@on_one_version
def test_a_queue_that_shows_no_origin_is_refused_before_anything_is_taken(
    mapped: AmqpClassicHarness, opened: Opened
) -> None:
    """The sentence has the lines that mend it; the others can be read."""
    link = opened(mapped)
    with pytest.raises(BrokerRefused, match=r"ActiveMQ\.DLQ") as refused:
        link.attach([IntakeQueue(queue("ActiveMQ.DLQ"))], 10)
    for line in ("<individualDeadLetterStrategy", "intake.origin: {ActiveMQ.DLQ: ", "openwire://"):
        assert line in str(refused.value)
    with pytest.raises(QueueRefused) as one_refused:
        link.attach([mapped.intake(), IntakeQueue(queue("ActiveMQ.DLQ"))], 10)
    assert one_refused.value.queue == "ActiveMQ.DLQ"


def test_the_instance_is_fenced_by_its_client_id(mapped: AmqpClassicHarness) -> None:
    """A second connection of the same instance does not come up while the first lives."""
    first, second = mapped.make_link("same"), mapped.make_link("same")
    session = first.take(f"{mapped.prefix}.token")
    with pytest.raises(LinkLost, match="still open"):
        second.take(f"{mapped.prefix}.token")
    session.close()
    mapped.make_link("same").take(f"{mapped.prefix}.token").close()


# Rights

USERS = ("admin", "sidecar", "deaf", "unprobed")
SECURITY = """
    <simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
      {users}
    </users></simpleAuthenticationPlugin>
    <authorizationPlugin><map><authorizationMap>
      <authorizationEntries>
        <authorizationEntry queue=">" read="admin" write="admin" admin="admin"/>
        <authorizationEntry queue="DLQ.>" read="sidecar,deaf" write="admin" admin="admin"/>
        <authorizationEntry queue="amqsidecar.>"
            read="sidecar,deaf" write="sidecar,deaf" admin="sidecar,deaf"/>
        <authorizationEntry topic="ActiveMQ.Advisory.>" read="admin,sidecar" write="admin"
            admin="admin,sidecar,deaf,unprobed"/>
      </authorizationEntries>
      <tempDestinationAuthorizationEntry>
        <tempDestinationAuthorizationEntry
            read="sidecar,deaf" write="sidecar,deaf" admin="sidecar,deaf"/>
      </tempDestinationAuthorizationEntry>
    </authorizationMap></map></authorizationPlugin>
""".format(
    users="\n".join(
        f'<authenticationUser username="{user}" password="{user}" groups="{user}"/>'
        for user in USERS
    )
)


def test_missing_rights_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Without advisories queues are found at each look; without a probe nothing is taken."""
    with ClassicBroker(CLASSIC_5, plugins=SECURITY, destination_policy=STRATEGIES) as secured:
        peer = JmsPeer.of(secured, "openwire")

        def die(name: str) -> None:
            peer.produce(name, "Text")
            peer.fail(name, messages=1)

        def link_of(user: str) -> AmqpClassicLink:
            return AmqpClassicLink(
                ClassicLinkSettings(
                    secured.endpoint("AMQP_JMS_PORT", user=user, password=user),
                    clock=SystemClock(),
                    instance=user,
                    names=NAMES,
                )
            )

        intake = [IntakeQueue(queue("DLQ.>"))]
        for user in ("sidecar", "deaf"):
            die("a")
            link = link_of(user).take(f"amqsidecar.token.{user}")
            link.attach(intake, 10)
            assert link.queues_read() == (queue("DLQ.a"),)
            assert ("ActiveMQ.Advisory.>" in caplog.text) == (user == "deaf")
            with_token(link)
            link.commit_cycle(receive(link, 1), [], 1)
            # What may not be read takes nothing from the others, and leaves nothing behind.
            forbidden = [
                IntakeQueue(queue("orders.>")),
                IntakeQueue(queue("orders"), origin=queue("x")),
            ]
            link_counts = set()
            for _ in range(3):
                for one in forbidden:
                    with pytest.raises(QueueRefused, match="not authorized"):
                        link.attach([*intake, one], 10)
                link.attach(intake, 10)
                assert link.queues_read() == (queue("DLQ.a"),)
                link_counts.add(len(link._connection._links))
            assert len(link_counts) == 1
            if user == "deaf":
                die("b")
                link.attach(intake, 10)
                assert set(link.queues_read()) == {queue("DLQ.a"), queue("DLQ.b")}
                with pytest.raises(QueueRefused, match="not authorized to read") as refused:
                    link.attach([IntakeQueue(queue("orders"), origin=queue("x"))], 10)
                assert refused.value.queue == "orders"
            link.close()
        unprobed = link_of("unprobed")
        with pytest.raises(BrokerRefused, match="tempDestinationAuthorizationEntry"):
            unprobed.take("amqsidecar.token.unprobed")


# The real command


def sidecar(
    broker: ClassicBroker, folder: Path, url: str, *sets: str, has_policy: bool = True
) -> SidecarProcess:
    path = folder / "activemq.xml"
    path.write_text(
        classic_xml(plugins=REDELIVERY, destination_policy=STRATEGIES, scheduler_support=True),
        encoding="utf-8",
    )
    return SidecarProcess(
        folder,
        url,
        policy=path if has_policy else None,
        sets=["intake.backlog=process", *sets],
    )


# Why: two brokers and two kinds of applications; each test takes the other pair of them.


def test_messages_come_back_until_they_are_exhausted(
    broker: ClassicBroker, unique: str, tmp_path: Path
) -> None:
    """The broker's own activemq.xml decides; what is exhausted rests in a queue of its own."""
    provider = "qpid" if broker.version == CLASSIC_5 else "openwire"
    is_native = provider == "qpid"
    process = sidecar(
        broker,
        tmp_path,
        broker.amqp_url if is_native else broker.amqp_jms_url,
        # Why: empty = the strategies of the policy tell the queues.
        *([f"intake.queues=[DLQ.{unique}.>]", "intake.producers=amqp"] if is_native else []),
    )
    peer = JmsPeer.of(broker, provider)
    name = f"{unique}.orders"
    with process.running():
        peer.produce(name, "Text", test_id="once")
        with peer.start_flaky_consumer(name, failures=1) as consumer:
            eventually(lambda: len(receipts(consumer).get("once-0", [])) == 2)
        peer.produce(name, "Text", test_id="always")
        with peer.start_flaky_consumer(name, failures=-1) as consumer:
            eventually(lambda: len(receipts(consumer).get("always-0", [])) == 3)
            [exhausted] = peer.consume(f"DLQ.{name}.exhausted", 1)
        assert exhausted.test_id == "always-0"
        assert exhausted.value("amqsidecarRedeliveryCount") == 2


@on_one_version
def test_refusals_end_the_command_with_the_line_that_mends_them(
    broker: ClassicBroker, unique: str, tmp_path: Path
) -> None:
    """The connector, a shared queue that was named, and rules that know shared queues only."""
    queues = f"intake.queues=[DLQ.{unique}.>]"
    words = sidecar(broker, tmp_path, broker.amqp_url, queues).run_refused(expect=69)
    assert "transport.transformer=jms" in words
    words = sidecar(
        broker, tmp_path, broker.amqp_jms_url, "intake.queues=[ActiveMQ.DLQ]"
    ).run_refused(expect=69)
    assert "individualDeadLetterStrategy" in words
    words = sidecar(broker, tmp_path, broker.amqp_jms_url, has_policy=False).run_refused(expect=69)
    assert "ActiveMQ.DLQ" in words


def test_a_topic_routes_while_someone_reads_it(
    mapped: AmqpClassicHarness, native: AmqpClassicNativeHarness, opened: Opened
) -> None:
    """Also where the reader consumes a queue of a virtual topic."""
    link = opened(mapped)
    plain, virtual = topic(f"{mapped.prefix}.news"), topic(f"VirtualTopic.{mapped.prefix}")
    assert "has no subscriber" in str(link.send_terms(plain).problem)
    places = (str(plain), f"queue://Consumer.one.{virtual.name}")
    connection = native.connection
    readers = [Receiver(connection, place, place) for place in places]
    assert connection.run_until(lambda: all(one.is_answered for one in readers), PATIENCE_S)
    assert link.send_terms(plain).problem is None
    assert link.send_terms(virtual).problem is None
