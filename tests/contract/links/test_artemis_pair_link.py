"""One Artemis over Core and AMQP at once: each message over its own wire, with one token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from amqsidecar.broker import Delivery, TakeSession
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP_REASON
from amqsidecar.brokers.artemis_pair import turns
from amqsidecar.brokers.artemis_pair.link import PairTake
from amqsidecar.brokers.artemis_pair.second_wire import SecondWireMemory
from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from amqsidecar.engine.crash_points import CHANGING_WIRES
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import queue
from support.brokers.core_acceptor import CORE_PORT, CoreAcceptorArtemis
from support.brokers.real import ArtemisBroker, Broker
from support.jms.peer import ALL_TYPES, JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.artemis_pair import PairOfCoreHarness, pair_link
from support.links.cycles import resend, with_token
from support.links.harness import await_depth
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

AMQP = "amqp/1.0"


@pytest.fixture
def harness(artemis: Broker, unique: str) -> Iterator[PairOfCoreHarness]:
    made = PairOfCoreHarness(artemis, unique)
    yield made
    made.close()


def gather(link: TakeSession, count: int) -> list[Delivery]:
    found: list[Delivery] = []

    def have_arrived() -> bool:
        link.wait(0.2)
        found.extend(link.receive(100))
        return len(found) >= count

    assert eventually(have_arrived, what="the dead letters arrive")
    return found


def test_both_kinds_in_one_queue_go_back_over_their_own_wires(
    artemis: Broker, harness: PairOfCoreHarness
) -> None:
    """The token changes wires more often than the broker delivers a message before it gives up."""
    amqp = AmqpArtemisHarness(artemis, harness.prefix)
    of_core, of_amqp = f"{harness.prefix}.core", f"{harness.prefix}.amqp"
    token_queue = f"{harness.prefix}.token"
    with closing(amqp), closing(pair_link(artemis, "pair").take(token_queue)) as link:
        assert isinstance(link, PairTake)
        with_token(link)
        link.attach([harness.intake()], 100)
        number = 0
        for _ in range(8):
            ids = harness.put_dead_letters(of_core, 3), amqp.put_dead_letters(of_amqp, 3)
            found = gather(link, 6)
            assert len(found) == 6
            for is_amqp in (False, True):
                accepts = [one for one in found if (one.encoding == AMQP) is is_amqp]
                number += 1
                link.commit_cycle(accepts, [resend(one) for one in accepts], number)
            assert [one.id for one in harness.drain(of_core)] == ids[0]
            raw = amqp.drain_raw(of_amqp)
            assert len(raw) == len(ids[1])
            assert not any(b"JMS_AMQP" in one or b"NATIVE" in one for one in raw)
        assert link.left_behind() == ()
        await_depth(harness, token_queue, 1)
    with closing(pair_link(artemis, "heir").take(token_queue)) as heir:
        assert heir.token.take(PATIENCE_S) == number


def test_both_are_browsed_and_counted_once(artemis: Broker, harness: PairOfCoreHarness) -> None:
    amqp = AmqpArtemisHarness(artemis, harness.prefix)
    harness.put_dead_letters(f"{harness.prefix}.core", 2)
    amqp.put_dead_letters(f"{harness.prefix}.amqp", 3)
    with closing(amqp), closing(pair_link(artemis, "look").look()) as look:
        eventually(lambda: look.count(harness.intake(), 100) == 5, what="all are counted")
        eventually(lambda: len(list(look.browse(harness.intake(), 100))) == 5, what="all are shown")
        assert len(list(look.browse(harness.intake(), 4))) == 4
        assert look.trials().would_leave(harness.intake()) == ()


def test_an_acceptor_without_amqp_is_asked_once_and_served_over_core_alone(unique: str) -> None:
    """It never answers AMQP. What AMQP clients have made stays, and is reported."""
    memory = SecondWireMemory()
    with CoreAcceptorArtemis() as broker:
        # Why: who waits for an answer as long as for a connection fails by the test's own limit.
        link = pair_link(broker, "alone", port=CORE_PORT, memory=memory, connect_timeout_s=600)
        harness = PairOfCoreHarness(broker, unique)
        amqp = AmqpArtemisHarness(broker, unique)
        with closing(harness), closing(amqp), closing(link.take(f"{unique}.token")) as session:
            assert not isinstance(session, PairTake)
            amqp.put_dead_letters(f"{unique}.amqp", 1)
            with_token(session)
            session.commit_cycle([], [], 1)
            session.attach([harness.intake()], 10)
            [left] = session.left_behind()
            assert (left.reason, left.count) == (MADE_BY_AMQP_REASON, 1)
            assert "add AMQP to the protocols of the acceptor" in left.meaning
        asked_at_s = memory.again_at_s
        with closing(link.look()) as look:
            assert look.trials().would_leave(harness.intake()) == (left,)
        assert memory.again_at_s == asked_at_s


def test_a_group_of_both_kinds_is_read_over_both_wires(
    artemis: ArtemisBroker, harness: PairOfCoreHarness
) -> None:
    """Artemis binds the group to the consumer of one wire, until that one is closed."""
    name = f"{harness.prefix}.orders"
    with closing(pair_link(artemis, "groups").take(f"{harness.prefix}.token")) as link:
        with_token(link)
        link.attach([harness.intake()], 100)
        for number, provider in enumerate([*artemis.jms_providers, "qpid", "core"], 1):
            JmsPeer.of(artemis, provider).produce(name, "Text", count=3, group="g")
            harness.kill(name)
            found = gather(link, 3)
            assert [one.encoding == AMQP for one in found] == [provider == "qpid"] * 3
            link.commit_cycle(found, [], number)
    assert harness.depth(harness.intake().destination.name) == 0


def test_a_message_of_a_group_gets_its_turn_behind_many_others(
    artemis: ArtemisBroker, harness: PairOfCoreHarness
) -> None:
    """The other wire is busy all the time; the broker finds what a selector wants in 200 only."""
    name, source = f"{harness.prefix}.orders", harness.intake().destination
    core, qpid = JmsPeer.of(artemis, "core"), JmsPeer.of(artemis, "qpid")
    with closing(pair_link(artemis, "behind").take(f"{harness.prefix}.token")) as link:
        with_token(link)
        link.attach([harness.intake()], 1)
        core.produce(name, "Text", group="g")
        harness.kill(name)
        number = 1
        link.commit_cycle(gather(link, 1), [], number)
        core.fill(source.name, 3_000, size=10, properties={"_AMQ_ORIG_ADDRESS": name})
        qpid.produce(name, "Text", group="g")
        harness.kill(name)
        while (found := gather(link, 1))[0].encoding != AMQP:
            number += 1
            link.commit_cycle(found, [], number)
        assert harness.depth(source.name) > 200


def test_a_message_of_a_group_that_another_sidecar_has_freed_is_read(
    artemis: ArtemisBroker, harness: PairOfCoreHarness
) -> None:
    """It was not offered to us while the group was bound, and the broker does not try again."""
    name = f"{harness.prefix}.orders"
    core, qpid = JmsPeer.of(artemis, "core"), JmsPeer.of(artemis, "qpid")
    with closing(pair_link(artemis, "heir").take(f"{harness.prefix}.heir")) as heir:
        with closing(pair_link(artemis, "first").take(f"{harness.prefix}.token")) as first:
            with_token(first)
            first.attach([harness.intake()], 100)
            core.produce(name, "Text", group="g")
            harness.kill(name)
            first.commit_cycle(gather(first, 1), [], 1)
            heir.attach([harness.intake()], 100)
            qpid.produce(name, "Text", group="g")
            harness.kill(name)
        assert [one.encoding for one in gather(heir, 1)] == [AMQP]


def test_a_turn_waits_until_the_group_of_what_the_engine_has_is_free(
    artemis: ArtemisBroker, harness: PairOfCoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is there already when the group becomes free is never offered the message."""
    # Why: the next try would bring it; and a busy broker takes its time in the first one.
    monkeypatch.setattr(turns, "_AGAIN_S", 3_600)
    monkeypatch.setattr(turns, "_QUIET_S", 3)
    name = f"{harness.prefix}.orders"
    core, qpid = JmsPeer.of(artemis, "core"), JmsPeer.of(artemis, "qpid")
    with closing(pair_link(artemis, "held").take(f"{harness.prefix}.token")) as link:
        assert isinstance(link, PairTake)
        with_token(link)
        link.attach([harness.intake()], 100)
        for number, (holder, other) in enumerate([(core, qpid), (qpid, core)]):
            holder.produce(name, "Text", group="g")
            harness.kill(name)
            held = gather(link, 1)
            other.produce(name, "Text", group="g")
            harness.kill(name)
            while not link._turns.waiting():
                link.wait(0.1)
            link.commit_cycle(held, [], 2 * number + 1)
            [found] = gather(link, 1)
            link.commit_cycle([found], [], 2 * number + 2)
    assert harness.depth(harness.intake().destination.name) == 0


@pytest.mark.parametrize("disturbance", ["stray", "failed deliveries"])
def test_what_was_begun_is_not_committed_when_the_token_changes_wires(
    artemis: ArtemisBroker, harness: PairOfCoreHarness, disturbance: str
) -> None:
    """The sends of a cycle are begun before; alone they would be doubled after a crash."""
    amqp = AmqpArtemisHarness(artemis, harness.prefix)
    name, token_queue = f"{harness.prefix}.core", f"{harness.prefix}.token"
    peer = JmsPeer.of(artemis, "core")
    with closing(amqp), closing(pair_link(artemis, "begun").take(token_queue)) as link:
        assert isinstance(link, PairTake)
        with_token(link)
        link.attach([harness.intake()], 100)
        harness.put_dead_letters(name, 1)
        amqp.put_dead_letters(f"{harness.prefix}.amqp", 1)
        of_core, of_amqp = sorted(gather(link, 2), key=lambda one: one.encoding == AMQP)
        link.commit_cycle([of_amqp], [], 1)
        sends = [resend(of_core)]
        link.ahead.begin(sends)
        seen: list[int] = []

        def disturb(_place: str) -> None:
            if disturbance == "stray":
                peer.produce(token_queue, "Text", group=None)
            else:
                peer.fail(token_queue, messages=1, deliveries=2)

        link._crash_point = disturb
        core = link.wires[0]
        assert isinstance(core, CoreArtemisTake)

        def look(place: str) -> None:
            # Why only then: after it the broker is asked to commit.
            if place == "sent":
                seen.append(harness.depth(name))

        core._cycle._tools = core._cycle._tools._replace(crash_point=look)
        link.commit_cycle([of_core], sends, 2)
        assert seen == [0]
        await_depth(harness, name, 1)
        await_depth(harness, token_queue, 1)


def test_what_amqp_clients_made_is_read_from_resources_that_the_broker_makes(
    artemis: ArtemisBroker, harness: PairOfCoreHarness
) -> None:
    """A dead-letter queue of its own for each address, with a fully qualified name."""
    target, name = f"{harness.prefix}.DLA", f"{harness.prefix}.auto.orders"
    harness.set_address(
        f"{harness.prefix}.auto.#", deadLetterAddress=target, autoCreateDeadLetterResources=True
    )
    with closing(pair_link(artemis, "auto").take(f"{harness.prefix}.token")) as link:
        for provider in ("core", "qpid"):
            JmsPeer.of(artemis, provider).produce(name, ("Text", "Map"), group="g")
        assert harness.kill(name) == 4
        [found] = [one for one in link.discover() if target in one.destination.name]
        assert found.destination.name == f"{target}::DLQ.{name}"
        with_token(link)
        link.attach([found], 100)
        number = 0
        while number < 4:
            for delivery in gather(link, 1):
                number += 1
                link.commit_cycle([delivery], [resend(delivery)], number)
        assert link.left_behind() == ()
        choosing = link.features.choosing
        assert choosing is not None
        assert not choosing.holds_chosen(found.destination, ["r-1"])
    types = [one.type for one in JmsPeer.of(artemis, "qpid").consume(name, 4)]
    assert sorted(types) == ["Map", "Map", "Text", "Text"]


def test_what_did_not_die_is_read_over_the_wire_of_its_maker(
    artemis: ArtemisBroker, harness: PairOfCoreHarness
) -> None:
    """A consumer may give a message up by a copy, on which the broker notes no origin."""
    name, source = f"{harness.prefix}.orders", harness.intake().destination
    harness.management.create_queue(source.name, source.name, is_anycast=True)
    died = {"_AMQ_ORIG_ADDRESS": name, "_AMQ_ORIG_QUEUE": name}
    for provider in artemis.jms_providers:
        JmsPeer.of(artemis, provider).produce(source.name, properties=died, group=None)
    with closing(pair_link(artemis, "copies").take(f"{harness.prefix}.token")) as link:
        link.attach([harness.intake()], 100)
        found = gather(link, len(artemis.jms_providers) * len(ALL_TYPES))
        assert {one.provenance.origin for one in found} == {queue(name)}
        assert [one.encoding for one in found].count(AMQP) == len(ALL_TYPES)


def test_a_queue_has_no_consumer_once_it_is_not_read_any_more(
    artemis: ArtemisBroker, harness: PairOfCoreHarness
) -> None:
    """A group would stay bound to a consumer over AMQP that is still closing."""
    source = harness.intake()
    with closing(pair_link(artemis, "leaving").take(f"{harness.prefix}.token")) as link:
        assert isinstance(link, PairTake)
        core = link.wires[0]
        assert isinstance(core, CoreArtemisTake)
        for _ in range(20):
            link.attach([source], 100)
            link.attach([], 100)
            assert core._service.ask_queue(source.destination.name).consumer_count == 0


def test_the_token_that_changes_wires_is_missed_when_another_takes_it(
    artemis: Broker, harness: PairOfCoreHarness
) -> None:
    """Then nothing is committed, and the session ends."""
    token_queue = f"{harness.prefix}.token"
    amqp = AmqpArtemisHarness(artemis, harness.prefix)
    with (
        closing(amqp),
        closing(amqp.make_link("thief").take(token_queue)) as thief,
        closing(pair_link(artemis, "pair").take(token_queue)) as link,
    ):
        thief.token.release()
        with_token(link)
        link.attach([harness.intake()], 100)
        amqp.put_dead_letters(f"{harness.prefix}.amqp", 1)
        [delivery] = gather(link, 1)

        def steal(name: str) -> None:
            assert name == CHANGING_WIRES
            assert thief.token.take(PATIENCE_S) == 0
            thief.commit_cycle([], [], 5)

        assert isinstance(link, PairTake)
        link._crash_point = steal
        with pytest.raises(LinkLost, match="another"):
            link.commit_cycle([delivery], [resend(delivery)], 1)
    assert harness.depth(f"{harness.prefix}.amqp") == 0
    await_depth(harness, harness.intake().destination.name, 1)
