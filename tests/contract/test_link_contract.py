"""What sessions of `amqsidecar.broker.Link` promise, on every real broker and with every link.

A link joins by a class of `support.links.harness.LinkHarness` in `HARNESSES`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress

import msgspec
import pytest

from amqsidecar.broker import Delivery, IntakeQueue, LookSession, Resend, TakeSession
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost, SendsRefused
from amqsidecar.model.destination import final_queue, queue, topic
from support.brokers.real import Broker, spoken
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.amqp_classic import AmqpClassicHarness, AmqpClassicNativeHarness
from support.links.artemis_pair import PairOfAmqpHarness, PairOfCoreHarness
from support.links.core_artemis import CoreArtemisHarness
from support.links.cycles import receive, resend, with_token
from support.links.harness import LinkHarness, await_depth
from support.links.memory import (
    AckLaterHarness,
    MemoryHarness,
    MemoryPairHarness,
    MemoryPairSecondHarness,
)
from support.links.stomp_artemis import StompArtemisHarness, after_a_death
from support.waiting import PATIENCE_S, eventually

KEEP_WHAT_WAITS = ("amqp-artemis", "core-artemis", "artemis-pair-core", "artemis-pair-amqp")
HARNESSES: dict[str, tuple[type[LinkHarness], str | None]] = {
    "memory": (MemoryHarness, None),
    "memory-ack-later": (AckLaterHarness, None),
    "memory-pair": (MemoryPairHarness, None),
    "memory-pair-second": (MemoryPairSecondHarness, None),
    "amqp-artemis": (AmqpArtemisHarness, "artemis"),
    "artemis-pair-core": (PairOfCoreHarness, "artemis"),
    "artemis-pair-amqp": (PairOfAmqpHarness, "artemis"),
    "core-artemis": (CoreArtemisHarness, "artemis"),
    "stomp-artemis": (StompArtemisHarness, "artemis"),
    "amqp-classic-5": (AmqpClassicHarness, "classic_5"),
    "amqp-classic-6": (AmqpClassicHarness, "classic_6"),
    "amqp-classic-native": (AmqpClassicNativeHarness, "classic_6"),
}
with suppress(ImportError):
    from support.links.openwire import OpenWireHarness

    HARNESSES["openwire-classic-5"] = (OpenWireHarness, "classic_5")
    HARNESSES["openwire-classic-6"] = (OpenWireHarness, "classic_6")
with suppress(ImportError):
    from support.links.stomp_classic import StompClassicHarness

    HARNESSES["stomp-classic-5"] = (StompClassicHarness, "classic_5")
    HARNESSES["stomp-classic-6"] = (StompClassicHarness, "classic_6")

OTHER_VERSION = {"amqp-classic-5", "openwire-classic-6", "stomp-classic-6"}
"""The same wire on the version of Classic that the applications over it meet in `end_to_end/`."""

_LONG_S = 10_000.0
CAN_NOT_LOOK = {"stomp-artemis"}
"""Links whose wire has no browser; they say so and name the one that has."""

MakeLink = Callable[..., TakeSession]
MakeLook = Callable[[], LookSession]


@pytest.fixture(
    params=[
        pytest.param(
            name,
            marks=[
                *([pytest.mark.broker] if broker_fixture else []),
                *([pytest.mark.proof] if name in OTHER_VERSION else []),
            ],
        )
        for name, (_make, broker_fixture) in HARNESSES.items()
    ]
)
def harness(request: pytest.FixtureRequest, unique: str) -> Iterator[LinkHarness]:
    make, broker_fixture = HARNESSES[request.param]
    broker = request.getfixturevalue(broker_fixture or "no_broker")
    if broker is not None and not request.param.startswith("artemis"):
        spoken(broker.release, request.param.split("-")[0])
    made = make(broker, unique)
    yield made
    made.close()


@pytest.fixture
def no_broker() -> None:
    """For links in memory."""


@pytest.fixture
def links(harness: LinkHarness) -> Iterator[list[LookSession]]:
    opened: list[LookSession] = []
    yield opened
    for link in opened:
        link.close()


@pytest.fixture
def open_link(harness: LinkHarness, links: list[LookSession]) -> MakeLink:
    def make(
        *, token: int | None = 0, instance: str | None = None, prefetch: int | None = None
    ) -> TakeSession:
        """Open a link; with numbers, make and take that first token, and read dead letters."""
        opened = harness.make_link(instance or f"instance-{len(links)}")
        link = opened.take(token_queue(harness))
        links.append(link)
        if token is not None:
            with_token(link, token)
        if prefetch is not None:
            link.attach([harness.intake()], prefetch)
        return link

    return make


@pytest.fixture
def open_look(harness: LinkHarness, links: list[LookSession]) -> MakeLook:
    def make() -> LookSession:
        """Open a link without a token, which has the name of the first one that is opened."""
        links.append(harness.make_link("instance-same").look())
        return links[-1]

    return make


def token_queue(harness: LinkHarness) -> str:
    return f"{harness.prefix}.token"


def await_count(link: LookSession, harness: LinkHarness, count: int) -> None:
    """Wait until a link counts this many dead letters; for the reasons of `await_depth`."""
    eventually(lambda: link.count(harness.intake(), 100) == count, what=f"it counts {count}")


def browsed(link: LookSession, harness: LinkHarness, count: int) -> list[Delivery]:
    """Browse until this many messages are shown, and return them; see `await_depth`."""

    def shown() -> list[Delivery] | None:
        found = list(link.browse(harness.intake(), 100))
        return found if len(found) == count else None

    return eventually(shown, what=f"a browse shows {count}")


def redeliveries(deliveries: Sequence[Delivery]) -> list[Resend]:
    return [resend(delivery) for delivery in deliveries]


def test_deliveries_come_in_order_with_their_provenance(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """The dead letters of a queue are returned in order, each with its origin, once."""
    harness.put_dead_letters(harness.orders, 20)
    link = open_link(prefetch=100)

    deliveries = receive(link, 20)

    assert [one.provenance.origin for one in deliveries] == [queue(harness.orders)] * 20
    assert all(one.source == harness.intake().destination for one in deliveries)
    assert all(one.provenance.persistent for one in deliveries)
    assert all(one.provenance.problem is None for one in deliveries)
    assert {one.provenance.redelivery_count for one in deliveries} == {0}
    assert len({one.provenance.message_id for one in deliveries}) == 20
    link.commit_cycle(deliveries, redeliveries(deliveries), 1)
    assert [one.id for one in harness.drain(harness.orders)] == [
        f"{harness.orders}-{n}" for n in range(20)
    ]


def test_a_cycle_moves_all_and_exchanges_the_token(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """After a commit the dead letters are at their origin, unaltered, and the token is new."""
    ids = harness.put_dead_letters(harness.orders, 12)
    link = open_link(token=40, prefetch=100)
    deliveries = receive(link, 12)
    link.commit_cycle(deliveries[:5], redeliveries(deliveries[:5]), 41)
    link.commit_cycle(deliveries[5:], redeliveries(deliveries[5:]), 42)
    link.commit_cycle([], [], 43)
    link.close()

    found = harness.drain(harness.orders)
    assert [one.id for one in found] == ids
    assert [one.body for one in found] == [one.ljust(100, ".") for one in ids]
    for one, delivery in zip(found, deliveries, strict=True):
        assert one.properties["amqsidecarRedeliveryId"] == delivery.provenance.message_id
        assert one.properties["amqsidecarRedeliveryCount"] == 1
        assert one.properties["redeliveryDelay"] == 5000
    assert harness.depth(harness.intake().destination.name) == 0
    assert open_link(token=None).token.take(PATIENCE_S) == 43


def test_a_message_that_dies_again_shows_its_redelivery(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """Id and count come back with the second death, from the same origin."""
    harness.put_dead_letters(harness.orders, 1)
    link = open_link(prefetch=10)
    for count in (1, 2, 3):
        [delivery] = receive(link, 1)
        assert delivery.provenance.redelivery_count == count - 1
        assert delivery.provenance.origin == queue(harness.orders)
        link.commit_cycle([delivery], [resend(delivery, count)], count)
        assert eventually(
            lambda: harness.depth(harness.orders), what="the message is at its origin"
        )
        harness.kill(harness.orders)
    [delivery] = receive(link, 1)
    assert delivery.provenance.redelivery_count == 3
    assert delivery.provenance.redelivery_id is not None


@pytest.mark.parametrize("target", ["orders", "invoices"])
def test_a_copy_that_an_application_sent_on_begins_a_life_of_its_own(
    harness: LinkHarness, open_link: MakeLink, target: str
) -> None:
    """It has all properties of the redelivered message; its own deaths count from the first."""
    origin, to = harness.orders, f"{harness.prefix}.{target}"
    if harness.intake().origin not in (None, queue(to)):
        pytest.skip("this wire tells the origin by the dead-letter queue alone")
    harness.put_dead_letters(origin, 1)
    link = open_link(prefetch=10)
    [first] = receive(link, 1)
    link.commit_cycle([first], [resend(first)], 1)
    assert eventually(lambda: harness.depth(origin), what="the message is at its origin")
    harness.forward(origin, to)
    harness.kill(to)

    [copy] = receive(link, 1)
    assert copy.provenance.origin == queue(to)
    assert (copy.provenance.redelivery_id, copy.provenance.redelivery_count) == (None, 0)
    link.commit_cycle([copy], [resend(copy, redelivery_id="a life of its own")], 2)
    assert eventually(lambda: harness.depth(to), what="the copy is where it died")
    harness.kill(to)
    [returned] = receive(link, 1)
    assert returned.provenance.redelivery_id == "a life of its own"
    assert returned.provenance.redelivery_count == 1


def test_accepting_without_sending_and_sending_without_accepting(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """A cycle may take in only (stored by the engine), and send only (due rows of the store)."""
    ids = harness.put_dead_letters(harness.orders, 3)
    link = open_link(prefetch=10)
    deliveries = receive(link, 3)
    link.commit_cycle(deliveries, [], 1)
    assert harness.depth(harness.intake().destination.name) == 0
    assert harness.depth(harness.orders) == 0
    link.commit_cycle([], redeliveries(deliveries), 2)
    assert [one.id for one in harness.drain(harness.orders)] == ids


def test_a_crash_before_the_commit_moves_nothing(harness: LinkHarness, open_link: MakeLink) -> None:
    """What was received and not committed is still in its queue, and so is the token."""
    ids = harness.put_dead_letters(harness.orders, 10)
    link = open_link(token=7, prefetch=100)
    receive(link, 10)
    harness.drop(link)

    def inherit() -> tuple[TakeSession, list[Delivery]]:
        heir = open_link(token=None)
        assert heir.token.take(PATIENCE_S) == 7
        heir.attach([harness.intake()], 100)
        return heir, receive(heir, 10)

    heir, deliveries = after_a_death(harness, inherit)
    heir.commit_cycle(deliveries, redeliveries(deliveries), 8)
    assert sorted(one.id for one in harness.drain(harness.orders)) == sorted(ids)


def test_a_lost_connection_is_reported_and_close_is_always_safe(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """Receive, wait and commit raise LinkLost; close never raises, however often."""
    harness.put_dead_letters(harness.orders, 1)
    link = open_link(prefetch=10)
    [delivery] = receive(link, 1)
    harness.drop(link)

    with pytest.raises(LinkLost):
        eventually(lambda: link.wait(0.1))
    with pytest.raises(LinkLost):
        link.receive(1)
    with pytest.raises(LinkLost):
        link.commit_cycle([delivery], redeliveries([delivery]), 1)
    with pytest.raises(LinkLost):
        link.token.take(0.1)
    link.close()
    link.close()
    with pytest.raises(LinkLost):
        link.receive(1)
    link.wake()


def test_refused_sends_leave_everything_as_it_was(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """Nothing of the transaction happened, the deliveries are in hand, the next one works."""
    refusing = harness.refusing_destination()
    if refusing is None:
        pytest.skip("this broker refuses no send")
    ids = harness.put_dead_letters(harness.orders, 4)
    link = open_link(token=0, prefetch=100)
    deliveries = receive(link, 4)
    sends = redeliveries(deliveries)
    sends[2] = resend(deliveries[2], destination=refusing)

    for _ in range(3):
        with pytest.raises(SendsRefused) as refused:
            link.commit_cycle(deliveries, sends, 1)
        assert list(refused.value.refusals) == [2]
        # The broker's own words, and not the guess where it has none.
        assert refused.value.refusals[2]
        assert "gives no credit" not in refused.value.refusals[2]
    assert harness.depth(harness.orders) == 0

    link.commit_cycle(deliveries, redeliveries(deliveries), 1)
    assert [one.id for one in harness.drain(harness.orders)] == ids
    assert harness.depth(harness.intake().destination.name) == 0


def begin_while_committing(link: TakeSession, sends: Sequence[Resend]) -> list[int]:
    """Let the link begin these sends in each commit; return what counts how often."""
    background = link.features.background
    if background is None:
        pytest.skip("this link begins nothing ahead")
    begun: list[int] = []

    def begin() -> None:
        link.ahead.begin(sends)
        begun.append(len(sends))

    background.while_committing(begin)
    return begun


def begin_nothing_while_committing(link: TakeSession) -> None:
    background = link.features.background
    assert background is not None
    background.while_committing(lambda: None)


def test_the_next_sends_are_begun_while_a_cycle_is_committed(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """No consumer sees them before their own commit, or after they were abandoned."""
    ids = harness.put_dead_letters(harness.orders, 9)
    link = open_link(token=0, prefetch=100)
    deliveries = receive(link, 9)
    sends = redeliveries(deliveries)
    second = sends[3:6]
    begun = begin_while_committing(link, second)
    link.commit_cycle(deliveries[:3], sends[:3], 1)
    assert begun == [3]
    await_depth(harness, harness.orders, 3)

    link.commit_cycle(deliveries[3:6], second, 2)
    assert begun == [3, 3]
    await_depth(harness, harness.orders, 6)
    link.ahead.abandon()
    begin_nothing_while_committing(link)
    link.commit_cycle(deliveries[6:], sends[6:], 3)
    assert [one.id for one in harness.drain(harness.orders)] == ids
    assert harness.depth(harness.intake().destination.name) == 0


def test_a_refused_cycle_leaves_nothing_of_what_was_begun_behind_it(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """Whether it was begun before the refusal came or not."""
    refusing = harness.refusing_destination()
    if refusing is None:
        pytest.skip("this broker refuses no send")
    ids = harness.put_dead_letters(harness.orders, 4)
    link = open_link(token=0, prefetch=100)
    deliveries = receive(link, 4)
    sends = redeliveries(deliveries)
    begin_while_committing(link, sends[2:])
    with pytest.raises(SendsRefused) as refused:
        link.commit_cycle(
            deliveries[:2], [sends[0], resend(deliveries[1], destination=refusing)], 1
        )
    assert list(refused.value.refusals) == [1]
    link.ahead.abandon()
    assert harness.depth(harness.orders) == 0

    begin_nothing_while_committing(link)
    link.commit_cycle(deliveries, sends, 1)
    assert [one.id for one in harness.drain(harness.orders)] == ids


def test_the_token_is_a_fence(harness: LinkHarness, open_link: MakeLink) -> None:
    """While one link holds the token, another does not get it; when the first is gone, it does."""
    number = 2**40
    first = open_link(token=number)
    second = open_link(token=None)
    assert first.token.exists() in (True, None)
    assert second.token.exists() in (True, None)
    assert second.token.take(0.5) is None
    first.commit_cycle([], [], number + 1)
    first.commit_cycle([], [], number + 2)
    assert second.token.take(0.5) is None
    first.close()
    assert second.token.take(PATIENCE_S) == number + 2
    second.commit_cycle([], [], number + 3)


def test_the_token_comes_back_after_a_crash(harness: LinkHarness, open_link: MakeLink) -> None:
    """More crashes than deliveries that a broker allows do not use the token up."""

    def inherit() -> TakeSession:
        link = open_link(token=None)
        assert link.token.take(PATIENCE_S) == 3
        return link

    open_link(token=3).close()
    for _ in range(13):
        harness.drop(inherit())
    link = inherit()
    link.commit_cycle([], [], 4)
    link.close()
    assert open_link(token=None).token.take(PATIENCE_S) == 4


def test_no_token_is_reported(harness: LinkHarness, open_link: MakeLink) -> None:
    """Before the first one, the queue holds none and nothing is handed out."""
    link = open_link(token=None)
    assert link.token.exists() in (False, None)
    assert link.token.take(0.2) is None


def test_of_several_tokens_the_highest_counts(harness: LinkHarness, open_link: MakeLink) -> None:
    """The others are removed, also when they are more than a wire reads ahead."""
    maker = open_link(token=None)
    for number in (5, 9, 7, *range(20, 30), 8):
        maker.token.create(number)
    maker.close()
    link = open_link(token=None)
    assert link.token.take(PATIENCE_S) == 29
    link.commit_cycle([], [], 30)
    link.close()
    assert open_link(token=None).token.take(PATIENCE_S) == 30
    await_depth(harness, token_queue(harness), 1)


def test_wake_ends_a_wait_at_once(harness: LinkHarness, open_link: MakeLink) -> None:
    """From another thread, during a wait or before it; if not, this ends by its time limit."""
    link = open_link()
    link.wake()
    link.wait(_LONG_S)
    timer = threading.Timer(0.2, link.wake)
    timer.start()
    link.wait(_LONG_S)
    timer.join()


def test_wait_ends_when_something_arrives(harness: LinkHarness, open_link: MakeLink) -> None:
    """And does not end early when nothing does; if it never ends, this does by its time limit."""
    link = open_link(prefetch=10)
    began = time.monotonic()
    link.wait(0.3)
    assert time.monotonic() - began >= 0.25
    timer = threading.Timer(0.2, harness.put_dead_letters, args=(harness.orders, 1))
    timer.start()
    link.wait(_LONG_S)
    receive(link, 1)
    timer.join()


def test_attach_again_changes_the_queues(harness: LinkHarness, open_link: MakeLink) -> None:
    """What is no longer named is no longer read, and can be read again."""
    ids = harness.put_dead_letters(harness.orders, 5)
    link = open_link(prefetch=100)
    eventually(lambda: _has_arrived(link, harness))
    link.attach([], 100)
    link.wait(0.3)
    assert link.receive(100) == []
    link.attach([harness.intake()], 100)
    deliveries = receive(link, 5)
    link.commit_cycle(deliveries, redeliveries(deliveries), 1)
    assert sorted(one.id for one in harness.drain(harness.orders)) == sorted(ids)


def _has_arrived(link: TakeSession, harness: LinkHarness) -> bool:
    link.wait(0.1)
    return link.count(harness.intake(), 10) == 5


def test_deliveries_in_hand_outlive_an_attach(harness: LinkHarness, open_link: MakeLink) -> None:
    """What was returned before can still be accepted after its queue is no longer named."""
    ids = harness.put_dead_letters(harness.orders, 3)
    link = open_link(prefetch=100)
    deliveries = receive(link, 3)
    link.attach([], 100)
    link.commit_cycle(deliveries, redeliveries(deliveries), 1)
    assert [one.id for one in harness.drain(harness.orders)] == ids
    assert harness.depth(harness.intake().destination.name) == 0


def test_what_comes_after_an_attach_without_its_queue_goes_back(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """No consumer gets it, even if the broker was asked for it before."""
    link = open_link()
    harness.put_dead_letters(harness.orders, 2)
    link.attach([harness.intake()], 100)
    deliveries = receive(link, 2)
    link.attach([], 100)
    harness.put_dead_letters(harness.orders, 3)
    link.wait(0.2)
    link.commit_cycle(deliveries, [], 1)
    link.attach([harness.intake()], 100)
    assert len(receive(link, 3)) == 3


def test_close_gives_back_without_counting(harness: LinkHarness, open_link: MakeLink) -> None:
    """More closes than deliveries that a broker allows leave origin and message as they were."""
    harness.put_dead_letters(harness.orders, 3)
    first: list[bytes] = []
    for _ in range(13):
        link = open_link(token=None, prefetch=100)
        deliveries = receive(link, 3)
        assert {one.provenance.origin for one in deliveries} == {queue(harness.orders)}
        first = first or [one.message for one in deliveries]
        assert [one.message for one in deliveries] == first
        link.close()
    await_depth(harness, harness.intake().destination.name, 3)


def test_no_more_than_prefetch_is_handed_over(harness: LinkHarness, open_link: MakeLink) -> None:
    """Accepting makes room for more."""
    ids = harness.put_dead_letters(harness.orders, 12)
    link = open_link(prefetch=5)
    deliveries = receive(link, 5)
    link.wait(0.3)
    assert link.receive(100) == []
    moved = 0
    for cycle in range(1, 13):
        link.commit_cycle(deliveries, redeliveries(deliveries), cycle)
        moved += len(deliveries)
        if moved == 12:
            break
        deliveries = receive(link, min(5, 12 - moved))
    assert sorted(one.id for one in harness.drain(harness.orders)) == sorted(ids)


def test_receive_returns_no_more_than_its_limit(harness: LinkHarness, open_link: MakeLink) -> None:
    """The rest comes with the next call."""
    harness.put_dead_letters(harness.orders, 7)
    link = open_link(prefetch=100)
    assert len(receive(link, 3)) == 3
    assert len(receive(link, 4)) == 4


def test_count_counts_no_further_than_asked(harness: LinkHarness, open_link: MakeLink) -> None:
    """The backlog of a dead-letter queue is known before it is read."""
    link = open_link()
    assert link.count(harness.intake(), 100) == 0
    harness.put_dead_letters(harness.orders, 9)
    await_count(link, harness, 9)
    assert link.count(harness.intake(), 4) == 4


def test_a_browse_sees_what_a_reader_sees_and_changes_nothing(
    harness: LinkHarness, open_link: MakeLink, open_look: MakeLook
) -> None:
    """In order, with provenance and bytes, handed out or not; afterwards all is as it was."""
    ids = harness.put_dead_letters(harness.orders, 30)
    looking = open_look()
    if harness.name in CAN_NOT_LOOK:
        with pytest.raises(BrokerRefused, match="artemis://"):
            list(looking.browse(harness.intake(), 100))
        return
    seen = browsed(looking, harness, 30)
    assert all(one.source == harness.intake().destination for one in seen)
    assert {one.provenance.origin for one in seen} == {queue(harness.orders)}
    assert list(looking.browse(harness.intake(), 7)) == seen[:7]
    link = open_link(prefetch=5)
    deliveries = receive(link, 5)

    def is_right() -> bool:
        shown = len(list(looking.browse(harness.intake(), 100)))
        # Why: over Core the broker hands out by bytes, so that more than five are on their way.
        by_bytes = harness.name in ("core-artemis", "artemis-pair-core")
        return shown in (25, 30) or (by_bytes and shown < 25)

    eventually(is_right, what="a browse shows what is not handed out, or all")
    link.attach([harness.intake()], 100)
    deliveries += receive(link, 25)
    for one, reader in zip(seen, deliveries, strict=True):
        assert one.message in (b"", reader.message)
    # Why without the number: a browse of the management doesn't show it.
    provenances = [
        [msgspec.structs.replace(one.provenance, number="") for one in found]
        for found in (deliveries, seen)
    ]
    assert provenances[0] == provenances[1]
    link.commit_cycle(deliveries, redeliveries(deliveries), 1)
    assert list(looking.browse(harness.intake(), 100)) == []
    assert [one.id for one in harness.drain(harness.orders)] == ids


def test_a_final_queue_is_browsed_where_it_is_asked_for_as_one(
    harness: LinkHarness, open_link: MakeLink, open_look: MakeLook
) -> None:
    """What was taken out of it by others is found by a browse."""
    if harness.name in CAN_NOT_LOOK:
        pytest.skip("its wire has no browser")
    harness.put_dead_letters(harness.orders, 3)
    final = IntakeQueue(final_queue(harness.intake().destination, ".exhausted"), is_final=True)
    link = open_link()
    assert link.send_terms(final.destination, makes=True).problem is None
    link.attach([harness.intake()], 10)
    deliveries = receive(link, 3)
    sends = [resend(one, destination=final.destination) for one in deliveries]
    link.commit_cycle(deliveries, sends, 1)
    looking = open_look()
    eventually(lambda: len(list(looking.browse(final, 100))) == 3, what="a browse shows 3")
    # One of them by its id, with its body.
    [wanted] = [one for one in sends if one.redelivery_id == sends[1].redelivery_id]
    asked = msgspec.structs.replace(final, redelivery_ids=(wanted.redelivery_id,))
    [found] = list(looking.browse(asked, 100))
    assert found.provenance.redelivery_id == wanted.redelivery_id
    assert found.message


def test_links_that_only_look_disturb_no_consumer(
    harness: LinkHarness, open_link: MakeLink, open_look: MakeLook
) -> None:
    """Two of them and one that works may have the same name; what they look for is not made."""
    harness.put_dead_letters(harness.orders, 3)
    first = open_look()
    second = open_look()
    working = open_link()
    third = open_look()
    missing = IntakeQueue(queue(f"{harness.prefix}.missing"))
    for looking in (first, second, third):
        if harness.name not in CAN_NOT_LOOK:
            browsed(looking, harness, 3)
            assert list(looking.browse(missing, 10)) == []
            assert [one.count for one in looking.left_behind()] == []
        looking.wait(0.01)
        await_count(looking, harness, 3)
    working.attach([harness.intake()], 10)
    working.commit_cycle(receive(working, 3), [], 1)
    assert not harness.exists(missing.destination.name)


def test_a_queue_that_came_after_a_browse_is_browsed(
    harness: LinkHarness, open_look: MakeLook
) -> None:
    """Though nothing has waited in between."""
    if harness.name in CAN_NOT_LOOK:
        pytest.skip("it can't browse")
    # Why: Classic makes this queue, and is known to report queues.
    harness.drain(f"{harness.prefix}.other")
    looking = open_look()
    assert list(looking.browse(harness.intake(), 10)) == []
    harness.put_dead_letters(harness.orders, 3)
    browsed(looking, harness, 3)


def test_the_release_of_the_broker_is_known(harness: LinkHarness, open_link: MakeLink) -> None:
    """So that an untested or a faulty one is named in the log."""
    broker = getattr(harness, "broker", None)
    if not isinstance(broker, Broker):
        pytest.skip("it is in memory")
    assert open_link().description.version == broker.version


def test_a_large_message_is_moved_whole(harness: LinkHarness, open_link: MakeLink) -> None:
    """Many frames in, many frames out."""
    [one] = harness.put_dead_letters(harness.orders, 1, size_bytes=3_000_000)
    link = open_link(prefetch=10)
    deliveries = receive(link, 1)
    link.commit_cycle(deliveries, redeliveries(deliveries), 1)
    [found] = harness.drain(harness.orders)
    assert found.id == one
    assert found.body == one.ljust(3_000_000, ".")


def test_many_destinations_in_one_cycle(harness: LinkHarness, open_link: MakeLink) -> None:
    """More than the links that are kept open, and in order within each."""
    harness.put_dead_letters(harness.orders, 300)
    link = open_link(prefetch=500)
    deliveries: list[Delivery] = receive(link, 30)
    link.commit_cycle(deliveries, redeliveries(deliveries), 1)
    deliveries = receive(link, 60)
    link.commit_cycle(deliveries, redeliveries(deliveries), 2)
    deliveries = receive(link, 120)
    link.commit_cycle(deliveries, redeliveries(deliveries), 3)
    deliveries = receive(link, 90)
    # Why so many over AMQP: only there each has a link.
    count = 200 if "amqp" in harness.name else 60
    names = [f"{harness.prefix}.target.{number}" for number in range(count)]
    targets = [queue(names[number % count]) for number in range(2 * count + 50)]
    sends = [
        resend(deliveries[number % 90], count=number, destination=target)
        for number, target in enumerate(targets)
    ]
    link.commit_cycle(deliveries, sends, 4)
    for number, name in enumerate(names):
        await_depth(harness, name, 3 if number < 50 else 2)
    counts = [one.properties["amqsidecarRedeliveryCount"] for one in harness.drain(names[7])]
    assert counts == [7, count + 7, 2 * count + 7]


def test_a_final_dead_letter_rests_in_its_queue(harness: LinkHarness, open_link: MakeLink) -> None:
    """It is made by `send_terms` and shows the last count."""
    harness.put_dead_letters(harness.orders, 1)
    final = queue(f"{harness.prefix}.DLQ.exhausted")
    link = open_link()
    assert link.send_terms(final, makes=True).problem is None
    link.attach([harness.intake()], 10)
    [delivery] = receive(link, 1)
    send = resend(delivery, 6, destination=final, is_final=True, redelivery_id="r-1")
    link.commit_cycle([delivery], [send], 1)
    [found] = harness.drain(final.name)
    assert found.properties["amqsidecarRedeliveryCount"] == 6
    assert found.properties["amqsidecarRedeliveryId"] == "r-1"


def test_the_origin_of_a_dead_letter_routes(harness: LinkHarness, open_link: MakeLink) -> None:
    """A destination that exists is no problem."""
    harness.put_dead_letters(harness.orders, 1)
    assert open_link().send_terms(queue(harness.orders)).problem is None


def test_what_becomes_of_a_send_is_known_before_it(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """Also where many are asked about at once: a topic that nobody reads takes nothing."""
    harness.put_dead_letters(harness.orders, 1)
    link = open_link()
    asked = (
        queue(harness.orders),
        queue(f"{harness.prefix}.never.seen"),
        topic(f"{harness.prefix}.news"),
    )
    for _ in range(2):
        known, unseen, unread = map(link.send_terms, asked)
        assert (known.problem, known.effects, known.has_filters) == (None, (), False)
        assert known.exists is not False
        assert (unseen.problem, bool(unseen.exists)) == (None, False)
        assert unread.problem is not None
        link.ask_terms_ahead(asked)


def test_a_queue_that_can_not_be_read_is_refused_by_name(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    """The message names it; the others can still be read."""
    refusing = harness.refusing_destination()
    if refusing is None:
        pytest.skip("this broker refuses no consumer")
    harness.put_dead_letters(harness.orders, 1)
    link = open_link()
    with pytest.raises(BrokerError, match=refusing.name):
        link.attach([IntakeQueue(refusing)], 10)
    link.attach([harness.intake()], 10)
    assert len(receive(link, 1)) == 1


def test_a_queue_that_is_missing_is_made_where_the_broker_makes_queues(
    harness: LinkHarness, open_link: MakeLink
) -> None:
    if harness.name.startswith(("memory", "amqp-classic")):
        pytest.skip("it has no queues without messages, or reads none without a known origin")
    missing = queue(f"{harness.prefix}.missing")
    open_link().attach([IntakeQueue(missing)], 10)
    assert harness.exists(missing.name)


def test_a_closed_look_is_lost(open_look: MakeLook) -> None:
    """A session that was closed says so, and closes again without a word."""
    link = open_look()
    link.close()
    with pytest.raises(LinkLost):
        link.wait(0.1)
    link.close()


def test_a_link_moves_or_says_why_it_can_not(harness: LinkHarness) -> None:
    """Artemis over AMQP and Core keeps what waits; each other link names what to use instead."""
    made = harness.make_link("moves")
    if harness.name in KEEP_WHAT_WAITS:
        with closing(made.move()) as session:
            assert abs(session.clock_ahead_ms()) < 60_000
        return
    with pytest.raises(BrokerRefused, match=r"store\.url is broker:"):
        made.move()
