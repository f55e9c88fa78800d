"""The STOMP link on real Classic brokers: what it can't carry stays where it is.

Dead letters are made by real JMS, AMQP and STOMP applications.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial

import pytest

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings, FrameLimit
from amqsidecar.brokers.classic.queues import EMPTIED
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp_classic import consumers as stomp_classic_consumers
from amqsidecar.brokers.stomp_classic import look, trials
from amqsidecar.brokers.stomp_classic import look as stomp_classic_look
from amqsidecar.brokers.stomp_classic.link import StompClassicLink
from amqsidecar.brokers.stomp_classic.take import StompClassicTake
from amqsidecar.clock import SystemClock
from amqsidecar.errors import BrokerRefused, LinkLost, QueueRefused, SendsRefused
from amqsidecar.model.destination import queue
from amqsidecar.model.left_behind import Loss
from support.brokers.broker_xml import CLASSIC_CONNECTORS
from support.brokers.real import ClassicBroker
from support.jms.ledger import ADDED_PROPERTIES
from support.jms.peer import JmsPeer, Typed
from support.links.cycles import IDLE_S, move, receive, resend, stay_idle
from support.links.harness import await_depth
from support.links.openwire import OpenWireHarness
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import PATIENCE_S, eventually
from support.wires import openwire as wire
from support.wires.openwire import WireMessage
from support.wires.stomp_peer import Frame, StompPeer

pytestmark = pytest.mark.broker

INDIVIDUAL_DEAD_LETTERS = """
<policyEntry queue=">">
  <deadLetterStrategy>
    <individualDeadLetterStrategy queuePrefix="DLQ." processNonPersistent="true"/>
  </deadLetterStrategy>
</policyEntry>
"""
SMALL_FRAMES = 200_000
SMALL_CONNECTORS = {
    "openwire": CLASSIC_CONNECTORS["openwire"],
    "stomp": f"stomp://127.0.0.1:@STOMP_PORT@?wireFormat.maxFrameSize={SMALL_FRAMES}"
    f"&amp;wireFormat.maxDataLength={SMALL_FRAMES - 50}",
}
STRINGS = {
    "plain": "no number",
    "odd": "h\u00e9 \u20ac: \\ \n\r.",
    "spaces": "  two  ",
    "empty": "",
}
TEXT = "\U0001f600 \u20ac\r\n\\n:"
MakeLink = Callable[..., StompClassicTake]


on_both_versions = pytest.mark.parametrize("broker", [CLASSIC_5, CLASSIC_6], indirect=True)
"""For what the versions do differently; the rest is proven on one, and by `make proof` on both."""


@pytest.fixture(
    scope="module", params=[pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6]
)
def broker(request: pytest.FixtureRequest) -> Iterator[ClassicBroker]:
    with ClassicBroker(request.param, destination_policy=INDIVIDUAL_DEAD_LETTERS) as started:
        yield started


@pytest.fixture(scope="module")
def limited() -> Iterator[ClassicBroker]:
    """A broker that takes small frames over STOMP."""
    with ClassicBroker(
        CLASSIC_6, destination_policy=INDIVIDUAL_DEAD_LETTERS, connectors=SMALL_CONNECTORS
    ) as started:
        yield started


@pytest.fixture
def unreadable() -> dict[str, str]:
    return {}


@pytest.fixture
def make_link(broker: ClassicBroker, unique: str, unreadable: dict[str, str]) -> Iterator[MakeLink]:
    made: list[StompClassicTake] = []

    def make(
        *allowed: Loss, endpoint: Endpoint | None = None, **options: object
    ) -> StompClassicTake:
        link = StompClassicLink(
            ClassicLinkSettings(
                endpoint or broker.endpoint("STOMP_PORT"),
                clock=SystemClock(),
                instance=unique,
                allowed_losses=frozenset(allowed),
                unreadable=unreadable,
                **options,  # type: ignore[arg-type]
            )
        ).take(f"amqsidecar.token.{unique}")
        made.append(link)
        if link.token.take(0.1) is None and not link.token.exists():
            link.token.create(0)
        assert link.token.take(PATIENCE_S) is not None
        return link

    yield make
    for link in made:
        link.close()


@pytest.fixture
def jms(broker: ClassicBroker) -> JmsPeer:
    return JmsPeer.of(broker, "openwire")


@pytest.fixture
def stomp(broker: ClassicBroker) -> Iterator[StompPeer]:
    with StompPeer(broker.ports["STOMP_PORT"]) as peer:
        yield peer


def nothing_comes(link: StompClassicTake) -> bool:
    """Return whether a link receives nothing; a round trip proves that all has arrived."""
    for _ in range(3):
        link.count(IntakeQueue(queue("amqsidecar.nothing")), 1)
        link.wait(0.1)
    return link.receive(100) == []


def move_all(link: StompClassicTake, count: int) -> list[Delivery]:
    """Take this many dead letters and send them back."""
    token = link.token.take(PATIENCE_S)
    assert token is not None
    return move(link, count, token + 1)


def intake(name: str) -> IntakeQueue:
    return IntakeQueue(queue(f"DLQ.{name}"))


def left(link: StompClassicTake) -> dict[str, int]:
    return {one.reason: one.count for one in link.left_behind()}


def await_left(link: StompClassicTake, **expected: int) -> None:
    """Wait until this is reported: under load a browser of Classic may show too little."""
    eventually(lambda: left(link) == expected, what=str(expected), last=lambda _: str(left(link)))


@on_both_versions
def test_text_and_bytes_come_back_as_they_were_sent(
    broker: ClassicBroker, unique: str, make_link: MakeLink, jms: JmsPeer
) -> None:
    """Body, type, strings, priority, correlation, reply-to, type and timestamp, by any producer."""
    produce = partial(jms.produce, sample_properties=False, group=None, properties=STRINGS)
    sent = produce(unique, "Bytes", count=3)
    # Why: Classic 6 can't carry the zero character in the text that an older one is given.
    odd = TEXT if broker.version == CLASSIC_6 else None
    sent += produce(unique, "Text", text=odd, count=3, priority=2)
    sent += produce(unique, "Text", text=TEXT)
    jms.fail(unique, messages=7)
    link = make_link()
    link.attach([intake(unique)], 50)
    deliveries = move_all(link, 7)
    assert all(one.provenance.cause for one in deliveries)
    assert {one.provenance.message_id for one in deliveries} == {one.message_id for one in sent}

    got = {one.test_id: one for one in jms.consume(unique, 7)}
    for one in sent:
        back = got[one.test_id]
        ignored = {"JMSMessageID", "JMSDestination", "JMSRedelivered"}
        assert not one.differences(
            back, without_headers=ignored, without_properties=ADDED_PROPERTIES
        )
        assert back.value("amqsidecarOriginalMessageId") == one.message_id
        assert back.value("amqsidecarRedeliveryId") == one.message_id
        assert back.delivery_count == 2
        assert back.value("redeliveryDelay") == "5000"
    assert left(link) == {}


@on_both_versions
def test_what_a_stomp_application_sent_comes_back(
    broker: ClassicBroker, unique: str, make_link: MakeLink, stomp: StompPeer
) -> None:
    """Numbers in its headers are strings already, and an empty Text is an empty Text."""
    body = b"\xc3\xa9 line\nline" if broker.version == CLASSIC_6 else b"\xc0\x80\xed\xa0\xbd"
    headers = {"n": "42", "flag": "true", "correlation-id": "c:1", "type": "t", "priority": "8"}
    stomp.send(f"/queue/{unique}", {**headers, "reply-to": "/queue/replies"}, body)
    stomp.send(f"/queue/{unique}", {"n": "2", "content-length": "4"}, b"a\0b\n")
    stomp.send(f"/queue/{unique}", {"n": "3"}, b"")
    sent = die(stomp, unique, 3)
    link = make_link()
    link.attach([intake(unique)], 50)
    move_all(link, 3)
    got = [stomp.receive() for _ in range(3)]
    assert [one.body for one in got] == [body, b"a\0b\n", b""]
    changed = {"message-id", "ack", "subscription", "redelivered", *ADDED_PROPERTIES}
    for one, before in zip(got, sent, strict=True):
        assert {k: v for k, v in one.headers.items() if k not in changed} == {
            k: v for k, v in before.headers.items() if k not in changed
        }
        assert one.headers["redelivered"] == "true"


def die(stomp: StompPeer, name: str, count: int) -> list[Frame]:
    """Let a STOMP application refuse what a queue holds."""
    stomp.subscribe(f"/queue/{name}")
    frames = [stomp.receive() for _ in range(count)]
    for frame in frames:
        stomp.nack(frame)
    return frames


def test_what_stomp_can_not_carry_stays_where_it_is(
    broker: ClassicBroker, unique: str, make_link: MakeLink, jms: JmsPeer
) -> None:
    """It is counted with its reason, no connection breaks, and all else gets through."""
    amqp = JmsPeer.of(broker, "qpid")
    mapped = JmsPeer("qpid", broker.jms_url("qpid-jms"))
    by_amqp, by_mapped, produce = (
        partial(one.produce, sample_properties=False, group=None, text="text")
        for one in (amqp, mapped, jms)
    )
    by_amqp(unique, ["Text", "Map"])
    by_mapped(unique, ["Text", "Object"])
    jms.produce(unique, ["Text"], sample_properties=False, group="g", text="text")
    produce(unique, ["Text"], properties={"n": Typed("Integer", 7)})
    produce(unique, ["Map", "Object", "Stream", "Message", "NullText", "EmptyText"])
    produce(unique, ["Text"], properties={"type": "mine"})
    produce(unique, ["Text"], properties={"long": "x" * 10_300})
    produce(unique, ["Text"], count=5, properties=STRINGS)
    jms.fail(unique, messages=19)
    link = make_link()
    link.attach([intake(unique)], 50)

    move_all(link, 4)
    move_all(link, 1)
    assert nothing_comes(link)
    await_left(link, not_acknowledgeable=4, group=1, property_types=1, body_type=6, not_carried=2)
    assert all("openwire://" in one.meaning for one in link.left_behind())
    link.close()
    jms.browse(f"DLQ.{unique}", count=14)
    assert len(jms.consume(unique, 5)) == 5


def test_what_may_get_lost_is_taken(unique: str, make_link: MakeLink, jms: JmsPeer) -> None:
    """Each loss by its name; the others stay."""
    produce = partial(jms.produce, sample_properties=False, text="text")
    produce(unique, ["Text"], group="g")
    produce(unique, ["Text"], properties={"n": Typed("Integer", 7)}, group=None)
    produce(unique, ["EmptyText"], group=None)
    jms.fail(unique, messages=3)
    for loss in Loss:
        link = make_link(loss)
        link.attach([intake(unique)], 10)
        move_all(link, 1)
        assert nothing_comes(link)
        assert loss.value not in left(link)
        link.close()
    assert len(jms.consume(unique, 3)) == 3


def test_messages_that_are_not_taken_do_not_use_up_the_prefetch(
    unique: str, make_link: MakeLink, jms: JmsPeer
) -> None:
    """Many more of them than the broker hands over ahead stand in front of those that are taken."""
    jms.fill(unique, 60)
    jms.produce(unique, ["Text"], count=3, sample_properties=False, group=None, text="t")
    jms.fail(unique, messages=63)
    link = make_link()
    link.attach([intake(unique)], 8)
    move_all(link, 3)
    await_left(link, property_types=60)
    link.close()
    again = make_link(Loss.PROPERTY_TYPES)
    again.attach([intake(unique)], 100)
    assert len(move_all(again, 60)) == 60


def test_a_page_full_of_what_a_selector_keeps_out_is_reported(
    unique: str, make_link: MakeLink, jms: JmsPeer, broker: ClassicBroker
) -> None:
    """The broker looks no further than its page, so that the intake stalls; it is said."""
    amqp = JmsPeer.of(broker, "qpid")
    amqp.fill(f"DLQ.{unique}", 210)
    link = make_link()
    link.attach([intake(unique)], 10)
    [item] = link.left_behind()
    assert (item.reason, item.at_least) == ("not_acknowledgeable", True)
    assert item.count >= 200
    assert "stalls" in item.meaning


def test_an_origin_is_proven_and_not_believed(
    unique: str, make_link: MakeLink, stomp: StompPeer
) -> None:
    """A producer's `original-destination` hides the true one; such a message is not sent there."""
    victim = {"original-destination": f"/queue/{unique}.victim"}
    stomp.send(f"/queue/{unique}", {}, b"honest")
    # What ends a browse looks like this, too.
    stomp.send(f"/queue/{unique}", {**victim, "browser": "end"}, b"lying")
    truth = {"original-destination": f"/queue/{unique}"}
    stomp.send(f"/queue/{unique}", truth, b"repeating")
    die(stomp, unique, 3)
    stomp.send(f"/queue/DLQ.{unique}", victim, b"put here")
    link = make_link()
    link.attach([intake(unique)], 10)
    # Why: with this round trip all have arrived, and are asked about together.
    eventually(lambda: link.count(intake(unique), 10) == 4, what="all are shown")
    found = {one.message.rpartition(b"\n")[2]: one.provenance for one in receive(link, 4)}
    assert found[b"honest"].origin == found[b"repeating"].origin == queue(unique)
    assert found[b"honest"].problem is None
    for liar in (b"lying", b"put here"):
        assert found[liar].origin is None
        assert f"{unique}.victim" in str(found[liar].problem)


def test_any_number_of_origins_is_asked_about(
    unique: str, make_link: MakeLink, stomp: StompPeer
) -> None:
    """A question that is longer than a header may be would cost the link, again and again."""
    claims = [f"/queue/{unique}.of.a.department.of.a.company.{number}" for number in range(100)]
    claims.append("/queue/" + "x" * 9000)
    for claim in claims:
        stomp.send(f"/queue/DLQ.{unique}", {"original-destination": claim}, b"text")
    link = make_link()
    link.attach([intake(unique)], 200)
    eventually(lambda: link.count(intake(unique), 200) == len(claims), what="all are shown")
    assert all(one.provenance.origin is None for one in receive(link, len(claims)))


def unless_lost(make_link: MakeLink) -> StompClassicTake | None:
    """Return a link, or nothing while the broker holds another one of this instance for open."""
    try:
        return make_link()
    except LinkLost:
        return None


@pytest.mark.parametrize("length", ["3", "30", "1000000", "200000000", "99999999999"])
def test_a_wrong_length_harms_no_other_message(
    unique: str,
    make_link: MakeLink,
    jms: JmsPeer,
    length: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A property of a Text, which ends the frame too early, or too late: it alone is left."""
    monkeypatch.setattr(stomp_classic_look, "_CLOSE_TIMEOUT_S", 1.0)
    monkeypatch.setattr(look, "_ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(stomp_classic_consumers, "_BROWSE_TIMEOUT_S", 2.0)
    produce = partial(jms.produce, sample_properties=False, group=None)
    produce(unique, "Text", text="before")
    produce(unique, "Text", text="wrong", properties={"content-length": length})
    produce(unique, "Text", text="behind")
    jms.fail(unique, messages=3)
    link = make_link()
    with suppress(LinkLost):
        link.attach([intake(unique)], 10)
        assert link._connection is not None
        for _ in range(5):
            # Why not an answer: where the rest is taken for a body, it comes after a minute only.
            link._connection.wait(0.1)
    link.close()
    again = eventually(lambda: unless_lost(make_link), what="the broker knows that we are gone")
    again.attach([intake(unique)], 10)
    move_all(again, 2)
    await_left(again, not_carried=1)
    assert {one.body for one in jms.consume(unique, 2)} == {"before", "behind"}


def test_an_error_of_the_brokers_own_marks_no_message(
    unique: str, make_link: MakeLink, stomp: StompPeer, unreadable: dict[str, str]
) -> None:
    """It comes after some message, which is read again by the next link."""
    stomp.send(f"/queue/{unique}", {}, b"innocent")
    die(stomp, unique, 1)
    link = make_link()
    link.attach([intake(unique)], 10)
    link.wait(10)
    connection = link._connection
    assert connection is not None
    connection.send("ACK", [(b"id", b"unknown")])

    def is_suspected() -> bool:
        with suppress(LinkLost):
            connection.wait(0.1)
        return connection.suspect is not None

    eventually(is_suspected, what="the broker sends an ERROR that answers nothing")
    link.close()
    assert unreadable == {}
    again = eventually(lambda: unless_lost(make_link), what="the broker knows that we are gone")
    again.attach([intake(unique)], 10)
    move_all(again, 1)
    assert left(again) == {}


def test_many_that_broke_connections_stop_their_queue_only(
    unique: str, make_link: MakeLink, stomp: StompPeer, unreadable: dict[str, str]
) -> None:
    """A selector can't name any number of them; no connection is lost for that."""
    stomp.send(f"/queue/{unique}", {}, b"text")
    die(stomp, unique, 1)
    for number in range(200):
        one = f"ID:a.host.of.a.company-12345-1234567890123-2:1:-1:1:{number}"
        unreadable[one] = f"DLQ.{unique}.other"
    link = make_link()
    with pytest.raises(QueueRefused, match=f"DLQ.{unique}.other.*openwire://"):
        link.attach([intake(unique), intake(f"{unique}.other")], 10)
    link.attach([intake(unique)], 10)
    move_all(link, 1)
    assert left(link) == {}


@pytest.mark.parametrize("below", [10, 100])
def test_a_message_beyond_the_brokers_limit_is_refused_once_it_is_known(
    limited: ClassicBroker,
    unique: str,
    make_link: MakeLink,
    unreadable: dict[str, str],
    below: int,
) -> None:
    """It ends one connection by its body or by its frame; the others go, and none is suspected."""
    jms = JmsPeer.of(limited, "openwire")
    produce = partial(jms.produce, unique, "Bytes", sample_properties=False, group=None)
    [small] = produce(body_size=100)
    produce(body_size=SMALL_FRAMES - below)
    jms.fail(unique, messages=2)
    make = partial(make_link, endpoint=limited.endpoint("STOMP_PORT"), frame_limit=FrameLimit())
    link = make()
    link.attach([intake(unique)], 10)
    deliveries = receive(link, 2)
    with pytest.raises(LinkLost, match="exceeded"):
        link.commit_cycle(deliveries, [resend(one) for one in deliveries], 1)
    link.close()
    link = eventually(lambda: unless_lost(make), what="the broker forgets the connection")
    link.attach([intake(unique)], 10)
    deliveries = receive(link, 2)
    sends = [resend(one) for one in deliveries]
    with pytest.raises(SendsRefused, match="maxDataLength") as refused:
        link.commit_cycle(deliveries, sends, 1)
    assert list(refused.value.refusals) == [1]
    link.commit_cycle(deliveries[:1], sends[:1], 1)
    [found] = jms.consume(unique, 1)
    assert (found.body, unreadable) == (small.body, {})


def test_the_brokers_last_words_are_heard_while_a_large_frame_is_written(
    limited: ClassicBroker, unique: str, make_link: MakeLink
) -> None:
    """The broker hangs up in the middle of the frame."""
    jms = JmsPeer.of(limited, "openwire")
    jms.produce(unique, "Bytes", body_size=5_000_000, sample_properties=False, group=None)
    jms.fail(unique, messages=1)
    link = make_link(endpoint=limited.endpoint("STOMP_PORT"))
    link.attach([intake(unique)], 10)
    [delivery] = receive(link, 1)
    with pytest.raises(LinkLost, match="exceeded"):
        link.commit_cycle([delivery], [resend(delivery)], 1)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "plain",
        "\n",
        "\nRECEIPT\nreceipt-id:1\n\n",
        "\nMESSAGE\nsubscription:1\nack:1\n\nforged",
        "\nERROR\nmessage:forged\n\n",
    ],
)
def test_a_text_with_a_zero_character_harms_no_other_message(
    broker: ClassicBroker, unique: str, make_link: MakeLink, jms: JmsPeer, rest: str
) -> None:
    """Classic since 6.2 ends its frame there, so that the rest of it can look like anything."""
    if broker.version != CLASSIC_6:
        pytest.skip("5.18 writes a zero as two bytes")
    produce = partial(jms.produce, sample_properties=False, group=None)
    produce(unique, "Text", text="cut\0" + rest)
    produce(unique, "Text", text="whole")
    jms.fail(unique, messages=2)

    def move_one() -> bool:
        link = make_link()
        try:
            link.attach([intake(unique)], 10)
            token = link.token.take(PATIENCE_S)
            assert token is not None
            deliveries: list[Delivery] = []
            while not any(one.message.endswith(b"\nwhole") for one in deliveries):
                link.wait(1)
                deliveries += link.receive(10)
            link.commit_cycle(deliveries, [resend(one) for one in deliveries], token + 1)
        except LinkLost:
            return False
        finally:
            link.close()
        return True

    assert eventually(move_one, what="the message behind it is moved")
    [back] = jms.consume(unique, 1)
    assert back.body == "whole"
    [stays] = jms.browse(f"DLQ.{unique}", count=1)
    assert stays.body == "cut\0" + rest
    link = make_link()
    link.attach([intake(unique)], 10)
    await_left(link, not_carried=1)


@pytest.mark.parametrize(
    "group",
    # Why also in a group: the selector of what is taken does not match it, and a mere look breaks.
    [None, "left anyway"],
)
def test_what_the_broker_can_not_convert_stops_its_queue_alone(
    broker: ClassicBroker, unique: str, make_link: MakeLink, group: str | None
) -> None:
    """It ends the connection without a word; other queues are read, and all of its own stays."""
    good = WireMessage(
        destination=(wire.QUEUE, f"DLQ.{unique}"), original_destination=(wire.QUEUE, unique)
    )
    other = good.with_(destination=(wire.QUEUE, f"DLQ.{unique}.other"))

    def read_both(link: StompClassicTake) -> None:
        link.attach([intake(unique), intake(f"{unique}.other")], 10)
        link.count(intake(unique), 10)

    def is_refused() -> bool:
        link = unless_lost(make_link)
        if link is None:
            return False
        with closing(link), suppress(LinkLost):
            with pytest.raises(QueueRefused, match=f"DLQ.{unique}:.*openwire://"):
                read_both(link)
            link.attach([intake(f"{unique}.other")], 10)
            move_all(link, 1)
            return True
        return False

    with closing(OpenWireHarness(broker, unique)) as openwire:
        openwire.send([good, good.with_(compressed=True, group=group), other])
        eventually(is_refused, what="its queue is refused")
        await_depth(openwire, f"DLQ.{unique}", 2)
        await_depth(openwire, unique, 1)


def test_what_the_broker_can_not_convert_stops_the_token_queue_with_the_remedy(
    broker: ClassicBroker, unique: str
) -> None:
    name = f"amqsidecar.token.{unique}"
    endpoint = broker.endpoint("STOMP_PORT")
    link = StompClassicLink(ClassicLinkSettings(endpoint, clock=SystemClock(), instance=unique))

    def refusal() -> str | None:
        try:
            with closing(link.take(name)) as session:
                session.token.take(PATIENCE_S)
        except BrokerRefused as refused:
            return str(refused)
        except LinkLost:
            pass
        return None

    with closing(OpenWireHarness(broker, unique)) as openwire:
        openwire.send([WireMessage(destination=(wire.QUEUE, name), compressed=True)])
        assert "openwire://" in eventually(refusal, what="the token queue is refused")
        await_depth(openwire, name, 1)


@on_both_versions
def test_a_compressed_text_is_not_turned_into_another(
    broker: ClassicBroker, unique: str, make_link: MakeLink
) -> None:
    """Before 6.2 the broker shows it in another encoding than it takes."""
    jms = JmsPeer.of(broker, "openwire", url_options={"jms.useCompression": "true"})
    produce = partial(jms.produce, sample_properties=False, group=None)
    produce(unique, "Text", text=TEXT * 20)
    produce(unique, "Text", text="plain" * 20)
    jms.fail(unique, messages=2)
    is_carried = broker.version == CLASSIC_6
    link = make_link()
    link.attach([intake(unique)], 10)
    move_all(link, 1 + is_carried)
    assert nothing_comes(link)
    await_left(link, **({} if is_carried else {"body_type": 1}))
    texts = {one.body for one in jms.consume(unique, 1 + is_carried)}
    assert texts == {"plain" * 20, TEXT * 20} if is_carried else {"plain" * 20}


def test_a_final_dead_letter_shows_where_and_why_it_died(
    unique: str, make_link: MakeLink, jms: JmsPeer, stomp: StompPeer
) -> None:
    """The broker's own field can't be written, and a header of its name would hide it."""
    jms.produce(unique, "Text", sample_properties=False, group=None, text="text")
    jms.fail(unique, messages=1)
    link = make_link()
    link.attach([intake(unique)], 10)
    [one] = receive(link, 1)
    to = queue(f"{unique}.final")
    final = resend(one, 3, destination=to, is_final=True, expiration_ms=600_000)
    link.commit_cycle([one], [final], 1)
    [rests] = jms.browse(f"{unique}.final", count=1)
    assert rests.value("amqsidecarOriginalDestination") == f"/queue/{unique}"
    assert rests.value("dlqDeliveryFailureCause") == one.provenance.cause
    assert rests.value("amqsidecarRedeliveryCount") == "3"
    assert rests.value("original-destination") is None
    assert rests.headers["JMSExpiration"] > 0


def test_a_wildcard_reads_what_comes_later_and_not_what_is_ours(
    unique: str, make_link: MakeLink, jms: JmsPeer
) -> None:
    """A queue that is made while the link reads is read without a look of ours."""
    produce = partial(jms.produce, sample_properties=False, group=None, text="text")
    produce(f"{unique}.a", "Text")
    jms.fail(f"{unique}.a", messages=1)
    produce(f"DLQ.{unique}.a.exhausted", "Text")
    link = make_link()
    link.attach([intake(f"{unique}.>")], 10)
    move_all(link, 1)
    produce(f"{unique}.b", "Text")
    jms.fail(f"{unique}.b", messages=1)
    [later] = move_all(link, 1)
    assert later.source == queue(f"DLQ.{unique}.b")
    assert nothing_comes(link)


def test_the_doctor_s_own_queue_is_emptied_at_once(
    broker: ClassicBroker, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its only message comes with the answer to SUBSCRIBE, and nothing follows it."""
    monkeypatch.setattr(trials, "_TAKEN_TIMEOUT_S", 3_600)
    JmsPeer.of(broker, "openwire").fill(unique, 1, size=10, test_id="only-")
    link = StompClassicLink(
        ClassicLinkSettings(broker.endpoint("STOMP_PORT"), clock=SystemClock(), instance=unique)
    )
    with closing(link.look()) as look:
        assert look.trials().remove(queue(unique)) == EMPTIED
    assert JmsPeer.of(broker, "openwire").browse(unique) == []


def test_a_silent_broker_is_lost(broker: ClassicBroker, make_link: MakeLink) -> None:
    """Its heart-beats keep a link that has nothing to do, and their absence ends it."""
    link = make_link(endpoint=broker.endpoint("STOMP_PORT", idle_timeout_s=IDLE_S))
    stay_idle(link)
    broker.pause()
    try:
        with pytest.raises(LinkLost, match="silent"):
            eventually(lambda: link.wait(0.1))
    finally:
        broker.resume()
