"""The STOMP link on a real Artemis: exactly once without transacted ACKs, and whole messages."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from proton import Message

from amqsidecar.broker import Delivery, IntakeQueue, Link, TakeSession
from amqsidecar.brokers.artemis.left_behind import STUCK
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.stomp_artemis.link import StompArtemisLink
from amqsidecar.brokers.stomp_artemis.management import REPLY_PREFIX
from amqsidecar.brokers.stomp_artemis.take import StompArtemisTake
from amqsidecar.clock import SystemClock
from amqsidecar.engine import crash_points
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.errors import BrokerRefused, LinkLost, QueueRefused
from amqsidecar.formats.core import packets
from amqsidecar.formats.stomp_frame import MESSAGE_BYTES_MAX
from amqsidecar.model.destination import queue, topic
from amqsidecar.model.left_behind import Loss
from support.brokers.broker_xml import (
    STOCK_ADDRESS_SETTINGS,
    artemis_xml,
    attempts_without_limit,
)
from support.brokers.real import ArtemisBroker, Broker
from support.jms.peer import ALL_TYPES, JmsPeer
from support.links import cycles
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.core_artemis import text_message
from support.links.cycles import receive, resend, with_token
from support.links.harness import await_depth
from support.links.stomp_artemis import StompArtemisHarness
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

SETTINGS = STOCK_ADDRESS_SETTINGS + attempts_without_limit("DLQ")
STRINGS = {"plain": "no number", "odd": "hé €: \\ \n\r.", "spaces": "  two  "}
LEFT_BEHIND_ROUNDS = 13


@pytest.fixture(scope="module")
def own() -> Iterator[ArtemisBroker]:
    """A broker of our own, for it is killed."""
    with ArtemisBroker(address_settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def harness(artemis: Broker, unique: str) -> Iterator[StompArtemisHarness]:
    made = StompArtemisHarness(artemis, unique)
    yield made
    made.close()


@pytest.fixture
def link(harness: StompArtemisHarness) -> Iterator[TakeSession]:
    made = opened(harness.make_link("e2e"), harness)
    yield made
    made.close()


def opened(made: Link, harness: StompArtemisHarness, token: int | None = 0) -> TakeSession:
    link = made.take(f"{harness.prefix}.token")
    return link if token is None else with_token(link, token)


def inherited(name: str, harness: StompArtemisHarness, number: int) -> TakeSession:
    """Return a link that has got the token of one that died."""

    link = opened(harness.make_link(name), harness, None)
    assert link.token.take(PATIENCE_S) == number
    return link


def nothing_comes(link: TakeSession, harness: StompArtemisHarness) -> bool:
    """Return whether a link receives nothing although all messages have arrived."""
    for _ in range(5):
        link.count(harness.intake(), 1)
        link.wait(0.1)
    return link.receive(1000) == []


def is_empty(link: TakeSession, harness: StompArtemisHarness) -> bool:
    """Return whether all dead letters are accepted, although a link receives none."""
    link.wait(0.1)
    assert link.receive(1000) == []
    return harness.depth(harness.dead_letter_queue) == 0


def move(link: TakeSession, harness: StompArtemisHarness, count: int) -> list[Delivery]:
    link.attach([harness.intake()], 100)
    return cycles.move(link, count)


def take_all(link: TakeSession, count: int, token: int = 0) -> list[Delivery]:
    """Move this many dead letters, in as many cycles as it takes; return them."""
    taken: list[Delivery] = []
    eventually(
        lambda: take_more(link, taken, token) >= count, what=f"{count} dead letters are moved"
    )
    return taken


def take_more(link: TakeSession, taken: list[Delivery], token: int = 0) -> int:
    """Move what has arrived; return how many are taken now, with those before."""
    link.wait(0.1)
    if deliveries := link.receive(3):
        taken.extend(deliveries)
        sends = [resend(one) for one in deliveries]
        link.commit_cycle(deliveries, sends, token + len(taken))
    return len(taken)


def test_what_stomp_made_comes_back_as_it_was(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """Text stays Text, Bytes stay Bytes; a producer can forge neither origin, id nor our marks."""
    name = f"{harness.prefix}.orders"
    headers = {**STRINGS, "priority": "7", "correlation-id": "c:1", "type": "t", "reply-to": "r"}
    forged = {
        "message-id": "1,2",
        "ack": "1,2",
        "subscription": "evil",
        "_AMQ_ORIG_ADDRESS": "elsewhere",
        "_AMQ_ORIG_QUEUE": "elsewhere",
        "_AMQ_ORIG_MESSAGE_ID": "1",
        "_AMQ_DUPL_ID": f"{name}:of the producer",
        "amqsidecarRedeliveryCount": "99",
    }
    harness.put(name, "h\u00e9 \U0001f600\r\n".encode(), **headers, _AMQ_GROUP_ID="g")
    harness.put(name, b"a\0b\n", **{"content-length": "4"}, **forged)
    harness.put(name, b"")
    harness.kill(name)
    deliveries = move(link, harness, 3)
    assert {one.provenance.origin for one in deliveries} == {queue(name)}
    assert {one.provenance.redelivery_count for one in deliveries} == {0}

    found = {one.type + one.body: one for one in JmsPeer.of(artemis, "core").consume(name, 3)}
    text = found["Texth\u00e9 \U0001f600\r\n"]
    assert {key: text.value(key) for key in STRINGS} == STRINGS
    assert text.headers["JMSPriority"] == 7
    assert text.headers["JMSCorrelationID"] == "c:1"
    assert text.group_id == "g"
    assert (text.value("amqsidecarRedeliveryCount"), text.delivery_count) == ("1", 1)
    assert not [key for key in text.properties if key.startswith("_AMQ_ORIG")]
    data = found["Bytes61006" + "20a"]
    assert data.value("amqsidecarOriginalDuplicateId") == f"{name}:of the producer"
    assert data.value("amqsidecarRedeliveryCount") == "1"
    assert "Text" in found
    assert harness.management.routing_types(name) == frozenset({"ANYCAST"})


def test_of_other_clients_only_what_is_whole_is_taken(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """The rest stays, counted, over any number of links, and blocks no other message."""
    name = f"{harness.prefix}.orders"
    core, qpid = JmsPeer.of(artemis, "core"), JmsPeer.of(artemis, "qpid")
    core.produce(name, ALL_TYPES)
    qpid.produce(name, ("Text", "Stream"))
    # A message made by AMQP is known by its annotations: this property, and no message id.
    with closing(AmqpArtemisHarness(artemis, harness.prefix)) as amqp:
        amqp.send(name, [Message(body="x", properties={"destination": "Paris"}, durable=True)])
    produce = partial(core.produce, sample_properties=False, properties=STRINGS, group=None)
    sent = produce(name, "Text", text="a text of Core")
    sent += produce(name, "Bytes")
    produce(name, "Map")
    harness.put(name, b"of STOMP", testId="stomp")
    harness.kill(name)
    link.attach([harness.intake()], 5)
    take_all(link, 3)
    assert nothing_comes(link, harness)
    counts = {one.reason: one.count for one in link.left_behind()}
    assert sum(counts.values()) == len(ALL_TYPES) + 4
    assert counts[Loss.PROPERTY_TYPES] == 4
    link.close()
    for _ in range(LEFT_BEHIND_ROUNDS):
        again = inherited("e2e", harness, 3)
        again.attach([harness.intake()], 5)
        again.wait(0.05)
        again.receive(5)
        harness.drop(again)
    got = {one.test_id: one for one in core.consume(name, 3)}
    for one in sent:
        assert not one.differences(
            got[one.test_id],
            without_headers={"JMSMessageID", "JMSTimestamp", "JMSDestination"},
            without_properties=[key for key in got[one.test_id].properties if key not in STRINGS],
        )
        assert got[one.test_id].value("amqsidecarOriginalMessageId") == one.message_id
    await_depth(harness, harness.dead_letter_queue, len(ALL_TYPES) + 4)


def test_what_the_management_does_not_list_is_reported(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """Behind a page of what is left behind it lists nothing, unless its page is made larger."""
    name = f"{harness.prefix}.orders"
    core = JmsPeer.of(artemis, "core")
    produce = partial(core.produce, sample_properties=False, group=None)
    produce(name, "Map", count=205)
    produce(name, "Text", text="behind")
    harness.kill(name)
    link.attach([harness.intake()], 10)
    eventually(lambda: left(link) == {Loss.BODY_TYPE: 200, "unseen": 6}, what="it is reported")
    harness.set_address(harness.dead_letter_queue, managementBrowsePageSize=1000)
    receive(link, 1)


class Died(Exception):
    """The process dies here."""


@pytest.mark.parametrize("who", ["sidecar", "broker"])
def test_a_death_between_commit_and_acknowledgement(
    own: ArtemisBroker, unique: str, who: str
) -> None:
    """The heir acknowledges what the token names, and hands none of it over; so does its heir."""

    def die(name: str) -> None:
        if name == crash_points.ACCEPTING:
            if who == "sidecar":
                raise Died
            own.kill()

    harness = StompArtemisHarness(own, unique)
    name = f"{harness.prefix}.orders"
    ids = harness.put_dead_letters(name, 50)
    dying = opened(harness.make_link("dying", crash_point=die), harness)
    dying.attach([harness.intake()], 100)
    deliveries = receive(dying, 50)
    with pytest.raises((Died, LinkLost)):
        dying.commit_cycle(deliveries, [resend(one) for one in deliveries], 1)
    if who == "broker":
        harness.close()
        own.start()
        harness = StompArtemisHarness(own, unique)
    else:
        harness.drop(dying)
    dying.close()

    heir = inherited("heir", harness, 1)
    heir.commit_cycle([], [], 2)
    harness.drop(heir)
    last = inherited("last", harness, 2)
    await_depth(harness, harness.dead_letter_queue, 50)
    last.attach([harness.intake()], 100)
    assert nothing_comes(last, harness)
    try:
        eventually(lambda: is_empty(last, harness), within_s=10, what="all is acknowledged")
    except TimeoutError:
        last.close()
        assert harness.frees()
        last = inherited("last", harness, 2)
        last.attach([harness.intake()], 100)
        eventually(lambda: is_empty(last, harness), what="all is acknowledged")
    more = harness.put_dead_letters(f"{name}.new", 1)
    [delivery] = receive(last, 1)
    last.commit_cycle([delivery], [resend(delivery)], 3)
    assert [one.id for one in harness.drain(name)] == ids
    assert [one.id for one in harness.drain(f"{name}.new")] == more
    last.close()
    harness.close()


def test_one_group_may_be_of_stomp_and_of_jms(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """The broker gives a group to one subscription, whatever that one wants of it."""
    name = f"{harness.prefix}.orders"
    core = JmsPeer.of(artemis, "core")
    # Why not `group`: the peer numbers such messages, and a number is a loss.
    properties = {**STRINGS, "JMSXGroupID": "g"}
    produce = partial(core.produce, sample_properties=False, properties=properties, group=None)
    sent = []
    for number in range(5):
        harness.put(name, b"of STOMP", testId=f"stomp-{number}", _AMQ_GROUP_ID="g")
        produce(name, "Map")
        sent += produce(name, ("Text", "Bytes"), text="t")
    harness.kill(name)
    link.attach([harness.intake()], 10)
    take_all(link, 15)
    assert nothing_comes(link, harness)
    assert {one.reason: one.count for one in link.left_behind()} == {Loss.BODY_TYPE: 5}
    wanted = {f"stomp-{number}" for number in range(5)} | {one.test_id for one in sent}
    assert {one.id for one in harness.drain(name)} == wanted


def put_large_by_stomp(harness: StompArtemisHarness, name: str) -> None:
    # Why a third: a text counts twice, and a frame may have three bytes where it counts two.
    harness.put(name, b"x" * (MESSAGE_BYTES_MAX // 3), testId="large")


def put_large_like_stomp(harness: StompArtemisHarness, name: str) -> None:
    """Send over Core what the broker holds like a text of STOMP that is as large."""
    session = harness.management.connection.create_session(is_transacted=True)
    size = MESSAGE_BYTES_MAX * 2 // 3
    # Why with a size: the broker notes it for STOMP, and expects it of clients of Core.
    message = text_message(name, "", destination=name, _AMQ_LARGE_SIZE=size)._replace(body=b"")
    with TemporaryFile() as body:
        body.truncate(size)
        assert session.answers([session.ask_send_large(message, body)]) == [None]
    session.commit()
    session.close()


@pytest.mark.parametrize(
    "put_large",
    [
        put_large_like_stomp,
        # Why in proof: the broker copies the frame again with each piece that it reads of it.
        pytest.param(put_large_by_stomp, marks=pytest.mark.proof),
    ],
)
def test_what_no_frame_may_hold_stays_and_ends_no_connection(
    harness: StompArtemisHarness,
    link: TakeSession,
    put_large: Callable[[StompArtemisHarness, str], None],
) -> None:
    name = f"{harness.prefix}.mixed"
    harness.put(name, b"small", testId="before")
    put_large(harness, name)
    harness.put(name, b"small", testId="behind")
    harness.kill(name)
    link.attach([harness.intake()], 5)
    take_all(link, 2)
    assert nothing_comes(link, harness)
    assert {one.reason: one.count for one in link.left_behind()} == {"too_large": 1}


def left(link: TakeSession) -> dict[str, int]:
    """Return what is reported as left behind, once the link had time to look.

    Connections of other tests may have died, and left something to nobody in other queues.
    """
    link.wait(0.1)
    assert link.receive(10) == []
    return {one.reason: one.count for one in link.left_behind() if one.reason != STUCK}


def consumers(harness: StompArtemisHarness) -> list[int]:
    """Return the broker's ids of consumers of the dead-letter queue."""
    answer = harness.ask(f"queue.{harness.dead_letter_queue}", "listConsumersAsJSON")
    return [one["consumerID"] for one in json.loads(answer.value)]


def test_what_only_looks_like_stomps_is_given_back_and_counted(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """The next subscription leaves it out; then there is no need of another one."""
    name = f"{harness.prefix}.orders"
    for number in range(3):
        harness.put(name, b"forged", NATIVE_MESSAGE_ID=f"ID:{number}")
    harness.put(name, b"of STOMP")
    harness.kill(name)
    link.attach([harness.intake()], 10)
    take_all(link, 1)
    eventually(lambda: left(link) == {Loss.BODY_TYPE: 3}, what="it is reported")
    await_depth(harness, harness.dead_letter_queue, 3)
    eventually(lambda: len(consumers(harness)) == 1, what="the exchanged subscription has ended")
    reading = consumers(harness)
    JmsPeer.of(artemis, "core").produce(f"{name}.new", "Map", group=None)
    harness.put(f"{name}.new", b"of STOMP")
    harness.kill(f"{name}.new")
    take_all(link, 1, token=1)
    eventually(lambda: left(link) == {Loss.BODY_TYPE: 4}, what="a later look has reported more")
    assert consumers(harness) == reading


def test_what_another_consumer_keeps_from_us_is_reported_until_it_comes(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """The broker gives a group to one consumer, and messages behind it seldom to another."""
    name = f"{harness.prefix}.orders"
    core = JmsPeer.of(artemis, "core")
    produce = partial(core.produce, sample_properties=False, group=None, text="t")
    harness.put(name, b"of STOMP", _AMQ_GROUP_ID="g")
    harness.kill(name)
    other = StompPeer(artemis.ports["PORT"], artemis.user, artemis.password)
    of_stomp = {"subscription-type": "ANYCAST"}
    other.subscribe(harness.dead_letter_queue, "receipt IS NOT NULL", headers=of_stomp)
    other.ack(other.receive())
    produce(name, "Text")
    produce(name, "Text", properties={"JMSXGroupID": "g"})
    produce(name, "Text")
    assert harness.kill(name) == 3
    link.attach([harness.intake()], 10)
    taken: list[Delivery] = []

    def is_reported() -> bool:
        count = take_more(link, taken)
        counts = {one.reason: one.count for one in link.left_behind() if one.reason != STUCK}
        return count > 0 and counts == {"withheld": 3 - count}

    eventually(
        is_reported,
        what="it is reported",
        last=lambda _: f"{len(taken)} taken, {link.left_behind()}",
    )
    other.unsubscribe()
    other.close()
    take_all(link, 3 - len(taken), token=len(taken))
    # Why not once: the management may still list a consumer that has ended.
    eventually(lambda: len(consumers(harness)) == 1, what="the link reads alone")
    eventually(lambda: left(link) == {}, what="nothing is reported any more")


def test_what_openwire_made_comes_back_as_it_was(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """Artemis writes a group sequence of 0 on each message, which is no number of theirs."""
    name = f"{harness.prefix}.orders"
    clients = [JmsPeer.of(artemis, one) for one in ("openwire", "core")]
    produce = partial(clients[0].produce, sample_properties=False, properties=STRINGS, group=None)
    produce(name, ("Text", "Bytes"), text="t")
    produce(name, "Text", text="t", properties={**STRINGS, "JMSXGroupID": "g"})
    before = [one for client in clients for one in client.browse(name)]
    harness.kill(name)
    link.attach([harness.intake()], 10)
    take_all(link, 3)
    after = [one for client in clients for one in client.browse(name)]
    for first, second in zip(before, after, strict=True):
        assert not first.differences(
            second,
            without_headers={"JMSMessageID", "JMSTimestamp"},
            without_properties=(first.properties.keys() | second.properties.keys())
            - STRINGS.keys(),
        )
        assert second.value("_AMQ_GROUP_SEQUENCE") is None


def test_what_others_made_and_a_token_names_is_not_handed_over(
    artemis: Broker, harness: StompArtemisHarness
) -> None:
    """It is fetched by number, and no look takes it for gone before it has come."""

    def die(name: str) -> None:
        if name == crash_points.ACCEPTING:
            raise Died

    name = f"{harness.prefix}.orders"
    core = JmsPeer.of(artemis, "core")
    produce = partial(core.produce, sample_properties=False, properties=STRINGS, group=None)
    produce(name, "Map")
    produce(name, "Text", text="t", count=3)
    harness.kill(name)
    dying = opened(harness.make_link("dying", crash_point=die), harness)
    dying.attach([harness.intake()], 100)
    deliveries = receive(dying, 3)
    with pytest.raises(Died):
        dying.commit_cycle(deliveries, [resend(one) for one in deliveries], 1)
    harness.drop(dying)
    dying.close()
    heir = inherited("heir", harness, 1)
    heir.attach([harness.intake()], 100)

    def is_acknowledged() -> bool:
        heir.wait(0.1)
        assert heir.receive(100) == []
        return harness.depth(harness.dead_letter_queue) == 1

    eventually(is_acknowledged, what="what the token names is acknowledged")
    assert nothing_comes(heir, harness)
    await_depth(harness, name, 3)
    heir.close()


def test_one_subscription_gets_it_alone(
    artemis: Broker, harness: StompArtemisHarness, link: TakeSession
) -> None:
    """By its fully qualified name, as a multicast message."""
    name = f"{harness.prefix}.prices"
    core = JmsPeer.of(artemis, "core")
    for subscription in ("one", "two"):
        core.durable_subscribe(name, "c1", subscription)
    harness.peer.send(name, {"destination-type": "MULTICAST"}, b"a price")
    [own_queue] = [row.name for row in harness.management.queues(address=name) if "one" in row.name]
    harness.kill(own_queue)
    [delivery] = move(link, harness, 1)
    assert delivery.provenance.origin == topic(f"{name}::{own_queue}")
    [received] = core.consume_durable(name, "c1", "one")
    assert received.value("amqsidecarRedeliveryCount") == "1"
    [other] = core.consume_durable(name, "c1", "two")
    assert other.value("amqsidecarRedeliveryCount") is None
    assert harness.management.routing_types(name) == frozenset({"MULTICAST"})


def test_it_asks_the_broker_and_leaves_nothing_behind(
    harness: StompArtemisHarness, link: TakeSession
) -> None:
    """Settings, dead-letter queues and counts over STOMP; a look needs another wire."""
    assert harness.intake() in link.discover()
    asked = link.features.settings
    assert asked is not None
    [settings] = asked.address_settings([f"{harness.prefix}.orders"])
    assert settings["deadLetterAddress"] == harness.dead_letter_queue
    with pytest.raises(BrokerRefused, match="artemis://"):
        list(link.browse(harness.intake(), 1))
    link.close()
    eventually(
        lambda: (
            not [
                one
                for one in harness.management.address_names()
                if one.startswith(f"{REPLY_PREFIX}e2e.")
            ]
        ),
        what="no address for answers is left",
    )


def in_hand(harness: StompArtemisHarness) -> list[list[bool]]:
    """Return what the consumers of the token queue have in hand, in order: whether it is durable.

    Tokens are, guards are not.
    """
    answer = harness.ask(f"queue.{harness.prefix}.token", "listDeliveringMessagesAsJSON")
    return [
        [bool(message["durable"]) for message in one["elements"]]
        for one in json.loads(answer.value)
        if one["elements"]
    ]


def test_the_token_is_never_the_first_message_in_hand(
    harness: StompArtemisHarness, link: TakeSession
) -> None:
    """The broker may lose the first one of a connection that dies: it is a guard."""
    eventually(lambda: in_hand(harness) == [[False, True]], what="a guard and one token")
    token_queue = f"{harness.prefix}.token"
    waiting = []
    for number in range(3):
        waiting.append(harness.make_link(f"waits-{number}").take(token_queue))
        assert waiting[-1].token.take(0.1) is None
    guards = [[False, True, False, False, False]]
    eventually(lambda: in_hand(harness) == guards, what="the guards come after the token")
    for number in range(1, 4):
        link.commit_cycle([], [], number)
        assert queue(token_queue) not in {one.queue for one in link.left_behind()}
    guarded = [[False, False, False, False, True]]
    eventually(lambda: in_hand(harness) == guarded, what="the last token comes after the guards")
    harness.drop(link)
    late = (harness.make_link(f"late-{number}").take(token_queue) for number in range(3))
    heirs = [*waiting, *late]
    for number in range(3, 9):
        heir = owner_of(heirs, number)
        eventually(lambda: is_guarded(harness), what="its first message is a guard")
        heir.commit_cycle([], [], number + 1)
        eventually(lambda: is_guarded(harness), what="it is after the commit, too")
        harness.drop(heir)
        heirs.remove(heir)


def is_guarded(harness: StompArtemisHarness) -> bool:
    """Return whether one consumer has a guard and then one token in hand.

    What is acknowledged right now is listed first, and leaves a moment later.
    """
    found = in_hand(harness)
    return len(found) == 1 and not found[0][0] and found[0].count(True) == 1


def owner_of(links: list[StompArtemisTake], token: int) -> StompArtemisTake:
    """Return the one of these links that gets the token."""

    def owner() -> StompArtemisTake | None:
        return next((one for one in links if one.token.take(0.05) == token), None)

    return eventually(owner, what=f"one gets token {token}")


def test_a_link_without_a_guard_gives_the_token_back_and_gets_one(
    artemis: Broker, harness: StompArtemisHarness
) -> None:
    """Somebody may have removed its guard from the queue while it was waiting."""
    token_queue = f"{harness.prefix}.token"
    first = opened(harness.make_link("first"), harness)
    first.close()
    other = StompPeer(artemis.ports["PORT"], artemis.user, artemis.password)
    other.subscribe(token_queue, headers={"subscription-type": "ANYCAST"})
    # Why the token first: the broker puts it back a moment after the first link has ended.
    while (message := other.receive()).body == b"guard":
        other.ack(message)
    waiting = harness.make_link("waits").take(token_queue)
    other.ack(other.receive())
    other.unsubscribe()
    other.close()
    assert waiting.token.take(PATIENCE_S) == 0
    # Why not at once: a token that was renewed leaves the hand a moment after the commit.
    eventually(lambda: in_hand(harness) == [[False, True]], what="a guard and one token")
    waiting.close()


def test_a_waiting_link_does_not_disturb_an_owner_over_amqp(
    artemis: Broker, harness: StompArtemisHarness
) -> None:
    """The owner gets the guards of waiting sidecars, and takes none for the token."""
    token_queue = f"{harness.prefix}.token"
    amqp = AmqpArtemisHarness(artemis, harness.prefix)
    owner = with_token(amqp.make_link("owner").take(token_queue))
    for number in range(1, 4):
        waiting = harness.make_link(f"waits-{number}").take(token_queue)
        owner.commit_cycle([], [], number)
        assert waiting.token.take(0.1) is None
        waiting.close()
    heir = harness.make_link("heir").take(token_queue)
    owner.commit_cycle([], [], 4)
    owner.close()
    assert heir.token.take(PATIENCE_S) == 4
    eventually(lambda: in_hand(harness) == [[False, True]], what="a guard and one token")
    heir.close()
    amqp.close()


def test_a_token_that_the_broker_delivers_to_no_consumer_is_reported(
    own: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    """Not while an instance has it; then in the log, until it comes back."""
    token_queue = TOKEN_QUEUE_PREFIX + unique
    amqp, stomp = AmqpArtemisHarness(own, unique), StompArtemisHarness(own, unique)
    other = amqp.make_link("other").take(token_queue)
    other.token.create(3)
    assert other.token.take(PATIENCE_S) == 3
    options = ("intake.queues=[DLQ]", f"store.instance={unique}")

    # Why by queue: the broker may still count a guard of an earlier test as handed out.
    def reports() -> list[dict[str, Any]]:
        return [
            line
            for line in sidecar.log_lines()
            if (line.get("reason"), line.get("queue")) == (STUCK, str(queue(token_queue)))
        ]

    with SidecarProcess(tmp_path, own.stomp_url, sets=options) as sidecar:
        sidecar.start(ready=False)
        link = stomp.make_link("looks").take(token_queue)
        for _ in range(3):
            assert link.token.take(0.1) is None
            assert token_queue not in {one.queue.name for one in link.left_behind()}
        link.close()
        wire = other._cycle._wire
        held = other.token.take_for_commit().handle
        wire.accept(other._cycle._tools.coordinator.begin(), held)
        other._connection.pump(0)
        wire.close()
        other._connection.run_until(lambda: wire.is_closed, PATIENCE_S)
        eventually(reports, what="it is reported")
        other.close()
        sidecar.wait_ready()
        assert len(reports()) == 1
    stomp.close()
    amqp.close()


@pytest.mark.parametrize("managing_role", ["nobody", "amq"])
def test_a_qualified_name_adds_no_type_to_its_address(unique: str, managing_role: str) -> None:
    """A SUBSCRIBE with another type does; where it can't be asked for, the queue is refused."""
    xml = artemis_xml().replace('"manage" roles="amq"', f'"manage" roles="{managing_role}"')
    with ArtemisBroker(xml) as broker:
        endpoint, clock = broker.endpoint("PORT"), SystemClock()
        settings = ArtemisLinkSettings(endpoint, clock=clock, instance=unique)
        with (
            closing(CoreConnection(endpoint, clock)) as core,
            closing(StompArtemisLink(settings).take(unique)) as link,
        ):
            session = core.create_session(is_transacted=False)
            session.create_queue("letters", address="dead", routing_type=packets.ANYCAST)
            for name in ("dead::letters", "dead::missing"):
                intake = IntakeQueue(queue(name))
                if managing_role == "amq":
                    link.attach([intake], 10)
                    assert link.trials().read(intake.destination) is None
                    continue
                with pytest.raises(QueueRefused, match="grant it send, manage") as refused:
                    link.attach([intake], 10)
                assert refused.value.queue == name
                assert str(refused.value) == link.trials().read(intake.destination)
            [told] = session.ask_addresses(["dead"])
            assert isinstance(told, packets.AddressAnswerV5)
            assert (told.supports_anycast, told.supports_multicast) == (True, False)
