"""The OpenWire link on real Classic brokers, fed and read by real JMS clients."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.openwire.link import OpenWireLink
from amqsidecar.brokers.openwire.take import OpenWireTake
from amqsidecar.clock import SystemClock
from amqsidecar.errors import BrokerRefused, LinkLost, SendsRefused
from amqsidecar.model.destination import queue
from support.brokers.broker_xml import CLASSIC_CONNECTORS
from support.brokers.loopback import at_loopback
from support.brokers.real import ClassicBroker
from support.jms.peer import ALL_TYPES, JmsMessage, JmsPeer
from support.links.cycles import IDLE_S, move, receive, resend, stay_idle
from support.links.harness import await_depth
from support.links.openwire import OpenWireHarness
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

INDIVIDUAL_DEAD_LETTERS = """
<policyEntry queue=">" expireMessagesPeriod="200">
  <deadLetterStrategy>
    <individualDeadLetterStrategy queuePrefix="DLQ." processNonPersistent="true"/>
  </deadLetterStrategy>
</policyEntry>
"""
SMALL_FRAMES = 200_000
CONNECTORS = {
    "openwire": CLASSIC_CONNECTORS["openwire"],
    "stomp": CLASSIC_CONNECTORS["stomp"],
    "amqp": CLASSIC_CONNECTORS["amqp"],
    "small": f"tcp://127.0.0.1:@AMQP_JMS_PORT@?wireFormat.maxFrameSize={SMALL_FRAMES}",
}
MakeLink = Callable[..., OpenWireLink]


@pytest.fixture(
    scope="module", params=[pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6]
)
def broker(request: pytest.FixtureRequest) -> Iterator[ClassicBroker]:
    with ClassicBroker(
        request.param, destination_policy=INDIVIDUAL_DEAD_LETTERS, connectors=CONNECTORS
    ) as started:
        yield started


@pytest.fixture
def make_link(broker: ClassicBroker, unique: str) -> Iterator[MakeLink]:
    sessions: list[OpenWireTake] = []

    class Remembered(OpenWireLink):
        """The fixture closes its sessions."""

        def take(self, token_queue: str) -> OpenWireTake:
            sessions.append(super().take(token_queue))
            return sessions[-1]

    def make(endpoint: Endpoint | None = None, **options: object) -> OpenWireLink:
        return Remembered(
            ClassicLinkSettings(
                endpoint or broker.endpoint("OPENWIRE_PORT"),
                clock=SystemClock(),
                instance=unique,
                **options,  # type: ignore[arg-type]
            )
        )

    yield make
    for session in sessions:
        session.close()


@pytest.fixture
def harness(broker: ClassicBroker, unique: str) -> Iterator[OpenWireHarness]:
    with closing(OpenWireHarness(broker, unique)) as made:
        yield made


@pytest.fixture
def link(make_link: MakeLink, unique: str) -> OpenWireTake:
    """A link that reads the dead letters of the test's own queue and holds token 0."""
    return begin(make_link(), unique)


def begin(opened: OpenWireLink, name: str, prefetch: int = 400) -> OpenWireTake:
    link = opened.take(f"amqsidecar.token.{name}")
    if not link.token.exists():
        link.token.create(0)
    assert link.token.take(PATIENCE_S) is not None
    link.attach([IntakeQueue(queue(f"DLQ.{name}"))], prefetch)
    return link


def pairs(
    expected: Sequence[JmsMessage], found: Sequence[JmsMessage]
) -> Iterator[tuple[JmsMessage, JmsMessage]]:
    return zip(expected, found, strict=True)


def test_messages_of_qpid_jms_come_through_byte_for_byte(
    broker: ClassicBroker, link: OpenWireTake, unique: str
) -> None:
    """An AMQP application gets back the very message that it sent, its id included."""
    peer = JmsPeer.of(broker, "qpid")
    count = len(ALL_TYPES)
    peer.produce(unique, test_id="t")
    peer.produce(f"{unique}.control", test_id="t")
    died = peer.fail(unique, messages=count)
    move(link, count, 1)

    found = peer.consume(unique, count)
    control = peer.consume(f"{unique}.control", count)
    assert [one.message_id for one in found] == [one.message_id for one in died]
    for expected, one in pairs(control, found):
        headers = ("JMSDestination", "JMSMessageID", "JMSTimestamp", "JMSRedelivered")
        assert expected.differences(one, without_headers=headers) == []


@pytest.mark.parametrize("point", ["sent", "committing"])
def test_a_transaction_cut_off_happened_wholly_or_not_at_all(
    harness: OpenWireHarness, make_link: MakeLink, unique: str, point: str
) -> None:
    """The connection is cut before or after the commit's request; the token shows the outcome."""

    def cut(name: str) -> None:
        if name == point:
            harness.drop(dying)

    dying = begin(make_link(crash_point=cut), unique)
    put(harness, unique, 30)
    deliveries = receive(dying, 30)
    with pytest.raises(LinkLost):
        dying.commit_cycle(deliveries, [resend(one) for one in deliveries], 1)
    dying.close()

    heir = opened(make_link(), unique)
    token = heir.token.take(PATIENCE_S)
    assert token is not None
    assert token in ((0,) if point == "sent" else (0, 1))
    await_depth(harness, unique, 30 * token)
    if token == 0:
        move(heir, 30, 1)
    assert len(harness.drain(unique)) == 30


def opened(link: OpenWireLink, name: str) -> OpenWireTake:
    """Begin, again and again while the broker has not noticed that the last link is gone."""

    def attempt() -> list[OpenWireTake]:
        try:
            return [begin(link, name)]
        except LinkLost:
            return []

    return eventually(attempt, what="the link opens")[0]


def put(harness: OpenWireHarness, name: str, count: int, size: int = 100) -> None:
    """Put dead letters of queue `name` where the broker's strategy would put them."""
    harness.dead_letter_queue = f"DLQ.{name}"
    harness.put_dead_letters(name, count, size_bytes=size)


def test_accepts_with_gaps_leave_the_rest_in_the_queue(
    harness: OpenWireHarness, link: OpenWireTake, unique: str
) -> None:
    """Every third delivery is accepted; the others are still there after a close."""
    put(harness, unique, 90)
    deliveries = receive(link, 90)
    link.commit_cycle(deliveries[::3], [], 1)
    link.commit_cycle(deliveries[1::3], [], 2)
    link.close()
    left = harness.drain(f"DLQ.{unique}")
    assert [one.id for one in left] == [f"{unique}-{number}" for number in range(2, 90, 3)]


def test_one_connection_per_instance(link: OpenWireTake, make_link: MakeLink, unique: str) -> None:
    """The broker itself keeps a second one out while the first is there."""
    second = make_link()
    with pytest.raises(LinkLost, match="another connection of this instance"):
        second.take("amqsidecar.token.other")
    link.close()
    assert begin(second, unique).token.take(PATIENCE_S) == 0


def test_a_silent_broker_is_lost(broker: ClassicBroker, make_link: MakeLink, unique: str) -> None:
    """Idle for several times the agreed silence a link still works; a broker that hangs ends it."""
    link = begin(make_link(broker.endpoint("OPENWIRE_PORT", idle_timeout_s=IDLE_S)), unique)
    stay_idle(link)
    link.commit_cycle([], [], 1)
    assert link.token.take(PATIENCE_S) == 1
    broker.pause()
    try:
        with pytest.raises(LinkLost, match="silent"):
            eventually(lambda: link.wait(1))
    finally:
        broker.resume()


def test_a_message_beyond_the_brokers_frame_size_is_refused_before_it_is_sent(
    broker: ClassicBroker, harness: OpenWireHarness, make_link: MakeLink, unique: str
) -> None:
    """The broker would close the connection; the others of the transaction can still go."""
    put(harness, unique, 1)
    put(harness, unique, 1, size=SMALL_FRAMES - 700)
    link = begin(make_link(broker.endpoint("AMQP_JMS_PORT")), unique)
    deliveries = receive(link, 2)
    sends = [resend(one) for one in deliveries]
    with pytest.raises(SendsRefused, match="maxFrameSize") as refused:
        link.commit_cycle(deliveries, sends, 1)
    assert list(refused.value.refusals) == [1]
    link.commit_cycle(deliveries[:1], sends[:1], 1)
    assert len(harness.drain(unique)) == 1


@pytest.mark.parametrize("below", [1500, 500])
def test_a_message_just_below_the_frame_size_returns_or_says_why_not(
    broker: ClassicBroker, make_link: MakeLink, unique: str, below: int
) -> None:
    """Applications can use it. With our properties it fits, or is refused by its size.

    Why not without them: at its next death it would begin a new life, again and again.
    """
    peer = dataclasses.replace(
        JmsPeer.of(broker, "openwire"), url=f"tcp://127.0.0.1:{broker.ports['AMQP_JMS_PORT']}"
    )
    [sent] = peer.produce(unique, "Bytes", body_size=SMALL_FRAMES - below)
    peer.fail(unique, messages=1)
    link = begin(make_link(broker.endpoint("AMQP_JMS_PORT")), unique)
    [delivery] = receive(link, 1)
    if below > 1000:
        link.commit_cycle([delivery], [resend(delivery)], 1)
        [found] = peer.consume(unique, 1)
        assert found.body == sent.body
    else:
        with pytest.raises(SendsRefused, match="maxFrameSize"):
            link.commit_cycle([delivery], [resend(delivery)], 1)


def test_wildcards_leave_out_what_the_sidecar_writes(
    harness: OpenWireHarness, link: OpenWireTake, unique: str
) -> None:
    """Queues that are there and that come later are read; final dead-letter queues never."""

    def dead_letter_in(name: str) -> None:
        harness.dead_letter_queue = f"DLQ.{name}"
        harness.put_dead_letters(unique, 1)

    dead_letter_in(f"{unique}.a")
    dead_letter_in(f"{unique}.a.exhausted")
    link.attach([IntakeQueue(queue(f"DLQ.{unique}.>"))], 100)
    [first] = receive(link, 1)
    dead_letter_in(f"{unique}.b.exhausted")
    dead_letter_in(f"{unique}.b")
    [second] = receive(link, 1)
    sources = [one.source.name for one in (first, second)]
    assert sources == [f"DLQ.{unique}.a", f"DLQ.{unique}.b"]
    link.commit_cycle([first, second], [], 1)
    link.wait(0.3)
    assert link.receive(10) == []
    await_depth(harness, f"DLQ.{unique}.a.exhausted", 1)
    with pytest.raises(BrokerRefused, match="itself writes"):
        link.attach([IntakeQueue(queue(f"DLQ.{unique}.a.exhausted"))], 100)


def test_what_was_put_into_a_dead_letter_queue_has_no_origin(
    broker: ClassicBroker, link: OpenWireTake, unique: str
) -> None:
    """It is reported as a problem, and can be accepted."""
    JmsPeer.of(broker, "openwire").produce(f"DLQ.{unique}", "Map")
    [found] = receive(link, 1)
    assert found.provenance.origin is None
    assert "no original destination" in (found.provenance.problem or "")
    link.commit_cycle([found], [], 1)
    assert link.count(IntakeQueue(queue(f"DLQ.{unique}")), 10) == 0


def test_a_broker_that_is_gone_is_lost(unique: str) -> None:
    """Nothing listens there: transient, with the address in the message."""
    link = OpenWireLink(ClassicLinkSettings(at_loopback(1), clock=SystemClock(), instance=unique))
    with pytest.raises(LinkLost, match=r"127\.0\.0\.1:1"):
        link.take("amqsidecar.token.none")


def test_a_port_of_another_protocol_is_refused_or_lost(
    broker: ClassicBroker, make_link: MakeLink
) -> None:
    """The STOMP connector gives no OpenWire greeting; the link does not wait for ever."""
    with pytest.raises((BrokerRefused, LinkLost)):
        make_link(broker.endpoint("STOMP_PORT", connect_timeout_s=2)).take("amqsidecar.token.none")
