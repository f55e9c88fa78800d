"""The AMQP link moves dead letters of a real Artemis as real JMS clients see them."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from proton import Message, byte, symbol

from amqsidecar.broker import BrokerKind, Delivery, IntakeQueue, Resend, TakeSession
from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.brokers.artemis.left_behind import STUCK
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.clock import SystemClock
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.send_gate import GateAction, SendGate
from amqsidecar.errors import (
    BrokerRefused,
    DiscoveryRefused,
    LinkLost,
)
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.left_behind import LeftBehind
from support.brokers.broker_xml import STOCK_MANAGEMENT_ADDRESS_SETTING, artemis_xml
from support.brokers.real import ArtemisBroker, Broker, spoken
from support.jms.peer import ALL_TYPES, JmsPeer
from support.links import cycles
from support.links.amqp_artemis import AmqpArtemisHarness, leave_before_commit
from support.links.cycles import IDLE_S, receive, resend, resend_of, stay_idle, with_token
from support.links.harness import await_depth
from support.links.terms import effects_of
from support.versions import TESTED
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def _speaks_amqp() -> None:
    spoken(TESTED["artemis"], "amqp")


@pytest.fixture
def harness(artemis: Broker, unique: str) -> Iterator[AmqpArtemisHarness]:
    made = AmqpArtemisHarness(artemis, unique)
    yield made
    made.close()


@pytest.fixture
def link(harness: AmqpArtemisHarness) -> Iterator[AmqpArtemisTake]:
    made = open_link(harness)
    yield made
    made.close()


def open_link(harness: AmqpArtemisHarness) -> AmqpArtemisTake:
    return with_token(harness.make_link("e2e").take(f"{harness.prefix}.token"))


def move(
    link: TakeSession, harness: AmqpArtemisHarness, count: int, cycle: int = 1
) -> list[Delivery]:
    link.attach([harness.intake()], 100)
    return cycles.move(link, count, cycle)


@pytest.mark.parametrize("kind", ["Stream", "Object", "NullObject"])
def test_a_core_message_that_amqp_can_not_carry_blocks_no_other(
    artemis: Broker, harness: AmqpArtemisHarness, link: AmqpArtemisTake, kind: str
) -> None:
    """It stays in the dead-letter queue, whole, and what is behind it comes through."""
    name = f"{harness.prefix}.orders"
    peer = JmsPeer.of(artemis, "core")
    link.attach([harness.intake()], 2)
    [sent] = peer.produce(name, kind, priority=9)
    harness.kill(name)
    link.wait(1)
    assert link.receive(10) == []
    ids = harness.put_dead_letters(name, 5)
    for cycle in range(1, 6):
        move(link, harness, 1, cycle)
    assert sorted(one.id for one in harness.drain(name)) == sorted(ids)
    link.attach([], 1)
    [left] = peer.consume(harness.dead_letter_queue, count=1)
    assert (left.type, left.body) == (sent.type, sent.body)


def test_a_duplicate_id_comes_back_by_the_broker_and_not_by_a_client(
    harness: AmqpArtemisHarness,
) -> None:
    """So a redelivery can't carry that of a producer under its own name."""
    name = f"{harness.prefix}.orders"
    theirs = {"testId": "a", "_AMQ_DUPL_ID": "theirs"}
    harness.send(name, [Message(durable=True, body="x", properties=theirs)])
    assert harness.kill(name) == 1
    assert harness.ask(f"queue.{harness.dead_letter_queue}", "retryMessages").value == 1
    [found] = harness.drain(name)
    assert found.properties["_AMQ_DUPL_ID"] == "theirs"

    harness.send(name, [Message(durable=True, body="x", properties=theirs)])
    assert harness.drain(name) == [], "accepted, and dropped"


def test_the_origin_that_a_copy_carries_is_not_believed(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """The broker overwrites what an application copied from a dead letter."""
    name = f"{harness.prefix}.orders"
    copied = {
        "_AMQ_ORIG_ADDRESS": f"{harness.prefix}.first",
        "_AMQ_ORIG_QUEUE": f"{harness.prefix}.first",
        "_AMQ_ORIG_MESSAGE_ID": 5,
    }
    core = JmsPeer.of(harness.broker, "core")
    core.produce(name, "Text", properties=copied)
    assert harness.kill(name) == 1
    link.attach([harness.intake()], 10)
    [delivery] = receive(link, 1)
    assert delivery.provenance.origin == queue(name)


def test_a_message_without_routing_type_goes_where_its_queue_is(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """The broker is asked what the queue is."""
    name = f"{harness.prefix}.orders"
    annotations = {symbol("x-opt-ORIG-ADDRESS"): name, symbol("x-opt-ORIG-QUEUE"): f"{name}.q"}
    for is_anycast, origin in ((True, queue), (False, topic)):
        target = f"{name}.{is_anycast}"
        harness.management.create_queue(f"{target}.q", target, is_anycast=is_anycast)
        annotations = {
            symbol("x-opt-ORIG-ADDRESS"): target,
            symbol("x-opt-ORIG-QUEUE"): f"{target}.q",
        }
        harness.send(
            harness.dead_letter_queue,
            [Message(durable=True, body="x", annotations=annotations, properties={"testId": "a"})],
        )
        [delivery] = move(link, harness, 1, 1 if is_anycast else 2)
        assert delivery.provenance.origin == origin(f"{target}::{target}.q")
        await_depth(harness, f"{target}.q", 1)


@pytest.mark.parametrize("is_asked_ahead", [False, True], ids=("one-by-one", "at-once"))
def test_what_would_get_lost_is_a_route_problem(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake, *, is_asked_ahead: bool
) -> None:
    """Each of the ways in which an accepted message is gone is named before it is sent."""
    prefix = harness.prefix
    make = harness.management.create_queue
    make(f"{prefix}.sub", f"{prefix}.topic", is_anycast=False)
    make(f"{prefix}.colour", f"{prefix}.c", is_anycast=True, filter_text="colour = 'red'")
    make(f"{prefix}.plain", f"{prefix}.plain", is_anycast=True)
    lost = (
        queue(f"{prefix}.topic"),
        topic(f"{prefix}.plain::{prefix}.plain"),
        topic(f"{prefix}.topic::{prefix}.gone"),
        queue(f"{prefix}.elsewhere::{prefix}.plain"),
        harness.refusing_destination(),
    )
    routed = (
        queue(f"{prefix}.plain"),
        queue(f"{prefix}.never.seen"),
        topic(f"{prefix}.topic::{prefix}.sub"),
        queue(f"{prefix}.c::{prefix}.colour"),
    )
    if is_asked_ahead:
        link.ask_terms_ahead([*lost, *routed])
    gate = SendGate(link, SendRules(BrokerKind.ARTEMIS, lambda _: False, ".exhausted"))
    assert {gate.ask(one).action for one in lost} == {GateAction.WAIT}
    assert {gate.ask(one).action for one in routed} == {GateAction.SEND}
    assert gate.ask(queue(f"{prefix}.c::{prefix}.colour")).filters == ("(colour = 'red')",)
    assert link.send_terms(topic(f"{prefix}.final"), makes=True).problem is not None


def test_classic_is_refused_with_the_url_that_works(classic_6: Broker, unique: str) -> None:
    """This link is for Artemis."""
    link = AmqpArtemisLink(
        ArtemisLinkSettings(
            classic_6.endpoint("AMQP_PORT"),
            clock=SystemClock(),
            instance=unique,
        )
    )
    with pytest.raises(BrokerRefused, match="openwire://"):
        link.take(unique)


def encode_bare(text: str) -> bytes:
    encoded = text.encode()
    return b"\x00\x53\x77\xb1" + len(encoded).to_bytes(4) + encoded


def bare_send(message: bytes, destination: Destination, number: int) -> Resend:
    return resend_of(message, destination=destination, redelivery_id=str(number))


def test_a_user_without_manage_can_move_but_not_by_qualified_name(
    unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Least privilege works; what can't be checked is refused with the missing permission."""
    permissions = (
        'type="manage" roles="amq"',
        'type="manage" roles="nobody"',
    )
    xml = artemis_xml().replace(*permissions)
    assert permissions[1] in xml
    with ExitStack() as opened:
        broker = opened.enter_context(ArtemisBroker(xml))
        made = AmqpArtemisLink(
            ArtemisLinkSettings(broker.endpoint("PORT"), clock=SystemClock(), instance=unique)
        )
        link = opened.enter_context(closing(made.take(f"{unique}.token")))
        assert link.description.version == broker.version
        assert link.token.exists() is None
        with_token(link)
        with pytest.raises(DiscoveryRefused, match="grant it send and manage"):
            link.discover()
        orders = queue(f"{unique}.orders")
        assert link.send_terms(orders).problem is None
        assert effects_of(link.send_terms(orders)) is None
        assert "manage" in str(link.send_terms(topic("prices::sub")).problem)
        [told] = [one.message for one in caplog.records if "divert" in one.message]
        assert "is not known" in told
        sends = [bare_send(encode_bare(str(one)), orders, one) for one in range(250)]
        link.commit_cycle([], sends, 1)
        intake = IntakeQueue(orders)
        eventually(lambda: link.count(intake, 1000) == 250, what="all are shown")
        assert link.count(intake, 120) == 120
        final = queue(f"{unique}.DLQ.exhausted")
        assert link.send_terms(final, makes=True).problem is None
        link.attach([intake], 100)
        deliveries = receive(link, 20)
        assert {one.provenance.problem for one in deliveries} == {
            "it does not show where it comes from"
        }
        link.commit_cycle(deliveries, [resend(one, 2, destination=final) for one in deliveries], 2)
        eventually(lambda: link.count(IntakeQueue(final), 100) == 20, what="all are shown")
        link.attach([], 100)
        core, qpid = (JmsPeer.of(broker, one) for one in ("core", "qpid"))
        # Why: there is no module for OpenWire of later releases.
        wires = [one for one in ("core", "openwire") if one in broker.release.wires]
        for wire in wires:
            types = ("NullObject", "Stream", "Text")
            JmsPeer.of(broker, wire).produce(f"{unique}.sales", types, group=None)
        core.fail(f"{unique}.sales", messages=3 * len(wires), deliveries=10)
        qpid.produce(f"{unique}.sales", ("NullObject", "Stream", "Text"), group=None)
        qpid.fail(f"{unique}.sales", "reject", messages=3)
        link.attach([IntakeQueue(queue("DLQ"))], 100)
        found = receive(link, 3)
        assert {one.provenance.origin for one in found} == {queue(f"{unique}.sales")}
        link.commit_cycle(found, [], 3)
        [left] = link.left_behind()
        assert (left.reason, left.at_least) == ("not_convertible", True)
        assert "grant it send and manage" in left.meaning
        whole = [one.value("_AMQ_ORIG_ADDRESS") for one in core.browse("DLQ")]
        assert whole == [f"{unique}.sales"] * 3 * len(wires)


def test_a_frozen_broker_is_a_lost_link(artemis: Broker, unique: str) -> None:
    """A peer that keeps the connection and says nothing is taken for dead."""
    endpoint = artemis.endpoint("PORT", idle_timeout_s=IDLE_S)
    settings = ArtemisLinkSettings(endpoint, clock=SystemClock(), instance=unique)
    with closing(AmqpArtemisLink(settings).take(f"{unique}.token")) as link:
        stay_idle(link)
        artemis.pause()
        try:
            with pytest.raises(LinkLost):
                eventually(lambda: link.wait(0.5))
        finally:
            artemis.resume()


def test_byte_typed_routing_is_what_the_broker_writes(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """A client's own origin data is honoured like the broker's."""
    name = f"{harness.prefix}.orders"
    annotations = {
        symbol("x-opt-ORIG-ADDRESS"): name,
        symbol("x-opt-ORIG-QUEUE"): name,
        symbol("x-opt-ORIG-ROUTING-TYPE"): byte(1),
    }
    harness.send(
        harness.dead_letter_queue, [Message(durable=True, body="x", annotations=annotations)]
    )
    [delivery] = move(link, harness, 1)
    assert delivery.provenance.origin == queue(name)
    await_depth(harness, name, 1)


def test_messages_that_the_broker_delivers_to_no_consumer_are_reported(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """Reported at the second look, and no longer once it is in its queue again."""

    def left() -> list[tuple[str, int]]:
        own = harness.intake().destination
        return [(one.reason, one.count) for one in link.left_behind() if one.queue == own]

    harness.put_dead_letters(f"{harness.prefix}.orders", 3)
    other = harness.make_link("other").take(f"{harness.prefix}.token.of.another")
    other.attach([harness.intake()], 10)
    deliveries = receive(other, 3)
    link.attach([harness.intake()], 10)
    assert left() == left() == []
    leave_before_commit(other, deliveries[:2])
    receive(link, 1)
    left()
    assert left() == [("stuck_in_broker", 2)]
    other.close()
    receive(link, 2)
    assert left() == []


@pytest.fixture(scope="module")
def without_last_resort() -> Iterator[ArtemisBroker]:
    """A broker whose dead-letter queue has no dead-letter address itself."""
    settings = (
        STOCK_MANAGEMENT_ADDRESS_SETTING
        + """
        <address-setting match="orders.#">
          <dead-letter-address>DLQ</dead-letter-address>
        </address-setting>
        """
    )
    with ArtemisBroker(address_settings=settings) as broker:
        yield broker


@pytest.fixture
def harness_without(
    without_last_resort: ArtemisBroker, unique: str
) -> Iterator[AmqpArtemisHarness]:
    made = AmqpArtemisHarness(without_last_resort, unique)
    yield made
    made.close()


def test_nothing_is_dropped_where_dead_letters_have_no_last_resort(
    harness_without: AmqpArtemisHarness,
) -> None:
    """What may be unconvertible stays, and the wire that takes it is named."""
    harness, broker = harness_without, harness_without.broker
    name = f"orders.{harness.prefix}"
    core = JmsPeer.of(broker, "core")
    sent = core.produce(name, ALL_TYPES, count=40)
    sent += JmsPeer.of(broker, "openwire").produce(name, ("Text", "Stream"), count=2)
    of_amqp = JmsPeer.of(broker, "qpid").produce(name, ("Text", "Stream"), count=2)
    harness.kill(name)
    kept = [one for one in sent if one.type in ("Stream", "Object")]
    link = harness.make_link("e2e").take(f"{harness.prefix}.token")
    try:
        with_token(link)
        link.attach([IntakeQueue(queue("DLQ"))], 20)
        moved, cycle = 0, 0
        while moved < len(sent) + len(of_amqp) - len(kept):
            # Why one: a message group stays with a receiver until all that it has is settled.
            deliveries = receive(link, 1) + link.receive(20)
            cycle += 1
            link.commit_cycle(deliveries, [resend(one) for one in deliveries], cycle)
            moved += len(deliveries)
        await_depth(harness, "DLQ", len(kept))

        def left_behind() -> list[LeftBehind]:
            # Why: the broker may count messages of an earlier test as handed out for ever.
            return [one for one in link.left_behind() if one.reason != STUCK]

        eventually(
            lambda: link.receive(10) == [] and len(left_behind()) == 1,
            what="what is left is reported",
        )
        [left] = left_behind()
        assert (left.reason, left.count) == ("not_convertible", len(kept))
        assert "use artemis://" in left.meaning
    finally:
        link.close()
    found = core.consume("DLQ", len(kept))
    assert {one.type for one in found} == {"Stream", "Object"}


def test_the_token_is_released_uncounted_and_taken_by_another_session(
    harness: AmqpArtemisHarness,
) -> None:
    """More often than the broker delivers a message before it gives it up."""
    queue_name = f"{harness.prefix}.token"
    with (
        closing(harness.make_link("a").take(queue_name)) as one,
        closing(harness.make_link("b").take(queue_name)) as other,
    ):
        other.token.release()
        with_token(one, 1)
        for _ in range(12):
            one.token.release()
            assert other.token.take(PATIENCE_S) == 1
            other.token.release()
            assert one.token.take(PATIENCE_S) == 1
        one.commit_cycle([], [], 2)
        one.token.release()
        assert other.token.take(PATIENCE_S) == 2
        assert one.token.take(0.2) is None
        other.commit_cycle([], [], 3)
        await_depth(harness, queue_name, 1)
        assert other.token.take(PATIENCE_S) == 3


def test_only_what_amqp_clients_made_is_read(artemis: Broker, harness: AmqpArtemisHarness) -> None:
    """The other wire of a pair reads the rest; no consumer has it in hand."""
    name = f"{harness.prefix}.orders"
    JmsPeer.of(artemis, "core").produce(name, ["Text"] * 3, text="t")
    harness.kill(name)
    ids = harness.put_dead_letters(name, 2)
    found: list[Delivery] = []

    def have_arrived() -> bool:
        session.wait(0.1)
        found.extend(session.receive(9))
        return len(found) >= len(ids)

    link = AmqpArtemisLink(
        ArtemisLinkSettings(
            artemis.endpoint("PORT"), clock=SystemClock(), instance="own", is_own_only=True
        )
    )
    with closing(link.take(f"{harness.prefix}.token")) as session:
        session.attach([harness.intake()], 10)
        assert eventually(have_arrived)
        session.wait(0.5)
        found += session.receive(9)
        assert len(found) == len(ids)
        assert session.left_behind() == ()
        with closing(link.look()) as look:
            # Why not 5: Artemis does not show what another reader has in hand.
            assert len(list(look.browse(harness.intake(), 99))) == 3
    await_depth(harness, harness.intake().destination.name, 5)
