"""The link to Artemis over Core: what the contract of all links does not say."""

from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from amqsidecar.broker import Delivery, IntakeQueue, Resend
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.core_artemis import intake
from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from amqsidecar.errors import LinkLost, SendsRefused
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import BYTES_MESSAGE
from amqsidecar.formats.core_artemis_message import take_apart
from amqsidecar.model.destination import queue
from support.brokers.real import ArtemisBroker, Broker
from support.jms.peer import JmsPeer
from support.links.core_artemis import CoreArtemisHarness, text_message
from support.links.cycles import resend, with_token
from support.links.harness import await_depth
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def harness(artemis: Broker, unique: str) -> Iterator[CoreArtemisHarness]:
    made = CoreArtemisHarness(artemis, unique)
    yield made
    made.close()


def owner(harness: CoreArtemisHarness, instance: str) -> CoreArtemisTake:
    """Return a session that has its token and reads dead letters."""
    link = with_token(harness.make_link(instance).take(f"{harness.prefix}.token.{instance}"))
    link.attach([harness.intake()], 100)
    return link


def gather(link: CoreArtemisTake, count: int) -> list[Delivery]:
    found: list[Delivery] = []

    def have_arrived() -> bool:
        link.wait(0.2)
        found.extend(link.receive(100))
        return len(found) >= count

    assert eventually(have_arrived, what="the dead letters arrive")
    return found


def test_the_token_is_not_waited_for_once_it_was_read(
    artemis: Broker, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a commit and the token that it sent may come in one read.

    To wait then lasts until the next heartbeat, 7.5 s later.
    """
    unread: list[int] = []
    harness = CoreArtemisHarness(artemis, unique)

    def take() -> CoreArtemisTake:
        link = harness.make_link("instance").take(f"{unique}.token")
        wait_for_token = link._token_wire._wait

        def waiting(timeout_s: float) -> bool:
            with monkeypatch.context() as patch:
                wait = link._connection.wait

                def counting(left_s: float) -> None:
                    unread.append(len(link._session.deliveries))
                    wait(left_s)

                patch.setattr(link._connection, "wait", counting)
                return wait_for_token(timeout_s)

        monkeypatch.setattr(link._token_wire, "_wait", waiting)
        return link

    with closing(harness):
        with closing(take()) as first:
            first.token.create(1)
        for _ in range(6):
            # A token that was handed out before is sent anew.
            with closing(take()) as link:
                assert link.token.take(PATIENCE_S) == 1
                harness.drop(link)
    assert unread
    assert not any(unread)


def test_a_dead_letter_queue_that_is_deleted_while_the_broker_commits_ends_nothing(
    harness: CoreArtemisHarness,
) -> None:
    with closing(owner(harness, "one")) as link:
        harness.put_dead_letters(f"{harness.prefix}.orders", 2)
        found = gather(link, 2)

        def has_ended() -> bool:
            link.wait(0.1)
            return bool(link._session.ended_consumers)

        def delete() -> None:
            name = harness.intake().destination.name
            assert harness.ask("broker", "destroyQueue", name, True).is_ok
            eventually(has_ended, what="the broker closes the consumer")
            link.attach([], 100)

        link._cycle.while_committing(delete)
        link.commit_cycle(found, [], 1)
        link._cycle.while_committing(lambda: None)
        link.commit_cycle([], [], 2)


def test_a_message_that_fills_a_packet_returns_in_pieces(
    artemis: ArtemisBroker, harness: CoreArtemisHarness
) -> None:
    """A broker of 2.57 ends a connection whose packet is larger than 128 KiB."""
    origin = queue(f"{harness.prefix}.orders")
    whole = text_message(origin.name, "", kept="as it is")
    body = bytes(range(250)) * 522
    session = harness.session
    session.create_queue(origin.name, address=origin.name, routing_type=packets.ANYCAST)
    sent = session.ask_send(whole._replace(kind=BYTES_MESSAGE, body=body))
    assert session.answers([sent]) == [None]
    session.commit()
    harness.kill(origin.name)
    with closing(owner(harness, "one")) as link:
        found = gather(link, 1)
        assert not take_apart(found[0].message).is_large
        resend = refused_resend(harness, found[0])
        link.commit_cycle(found, [msgspec.structs.replace(resend, destination=origin)], 1)
    [returned] = JmsPeer.of(artemis, "core").consume(origin.name, 1)
    assert (returned.type, returned.body) == ("Bytes", body.hex())
    assert returned.value("kept") == "as it is"


def refused_resend(harness: CoreArtemisHarness, delivery: Delivery) -> Resend:
    """Return a send to a queue that is not there."""
    return resend(delivery, destination=queue(f"{harness.prefix}.gone::nowhere"))


def test_a_send_that_can_not_be_put_leaves_in_hand_what_is_in_hand(
    harness: CoreArtemisHarness,
) -> None:
    """Undoing a transaction gives all of it back, and another sidecar would get it."""
    with closing(owner(harness, "one")) as link, closing(owner(harness, "two")) as other:
        origin = queue(f"{harness.prefix}.orders")
        harness.put_dead_letters(origin.name, 20)
        found = gather(link, 10)
        assert len(gather(other, 10)) == 10
        refused = refused_resend(harness, found[0])
        taken = msgspec.structs.replace(refused, destination=origin)
        for number in range(12):
            with pytest.raises(SendsRefused) as error:
                link.commit_cycle(found, [taken, refused, taken], number)
            assert list(error.value.refusals) == [1]
            link.ahead.begin([refused])
            link.ahead.abandon()
        assert other.receive(100) == []
        link.commit_cycle(found, [taken], 13)
    await_depth(harness, origin.name, 1)
    await_depth(harness, harness.intake().destination.name, 10)


def test_the_next_try_finds_the_sends_that_were_refused_without_an_answer_of_their_own(
    harness: CoreArtemisHarness,
) -> None:
    """The address becomes full on the way, and the last send to it says so for all."""
    full = queue(f"{harness.prefix}.full")
    limits = {"maxSizeBytes": 100_000, "pageSizeBytes": 50_000}
    harness.set_address(full.name, addressFullMessagePolicy="FAIL", **limits)
    with closing(owner(harness, "one")) as link:
        origin = queue(f"{harness.prefix}.orders")
        harness.put_dead_letters(origin.name, 1, size_bytes=30_000)
        found = gather(link, 1)
        taken = resend(found[0], destination=origin)
        sends = [msgspec.structs.replace(taken, destination=full)] * 4 + [taken]
        with pytest.raises(SendsRefused) as error:
            link.commit_cycle(found, sends, 1)
        assert list(error.value.refusals) == [0, 1, 2, 3]
        with pytest.raises(SendsRefused) as error:
            link.commit_cycle(found, sends, 1)
        assert list(error.value.refusals) in ([1, 2, 3], [2, 3], [3])
        link.commit_cycle(found, [taken], 1)
    await_depth(harness, origin.name, 1)
    assert harness.depth(full.name) == 0


def test_what_another_sidecar_gets_of_an_undone_transaction_is_missed_at_once(
    harness: CoreArtemisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has what is gone, so the session ends; to wait for it would be in vain."""
    monkeypatch.setattr(intake, "_AGAIN_TIMEOUT_S", 3_600)
    with closing(owner(harness, "one")) as link, closing(owner(harness, "two")):
        origin = queue(f"{harness.prefix}.orders")
        harness.put_dead_letters(origin.name, 20)
        found = gather(link, 10)
        taken = resend(found[0], destination=origin)
        link.ahead.begin([taken])
        link.ahead.abandon()
        with pytest.raises(LinkLost, match="did not come again"):
            link.commit_cycle(found, [], 1)


def test_without_other_readers_messages_return_after_an_undone_transaction(
    harness: CoreArtemisHarness,
) -> None:
    with closing(owner(harness, "one")) as link:
        origin = queue(f"{harness.prefix}.orders")
        harness.put_dead_letters(origin.name, 1500)
        found = gather(link, 50)
        taken = resend(found[0], destination=origin)
        for number in range(1, 6):
            link.ahead.begin([taken])
            link.ahead.abandon()
            link.commit_cycle(found[:10], [], number)
            del found[:10]


def test_a_missing_queue_that_another_makes_meanwhile_is_read(
    harness: CoreArtemisHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sidecars on a new broker ask at the same time, and make it one after the other."""
    ask, missing = CoreSession.ask_queue, queue(f"{harness.prefix}.missing")

    def ask_before_another(session: CoreSession, name: str) -> packets.QueueAnswer:
        answer = ask(session, name)
        session.create_queue(name, address=name, routing_type=packets.ANYCAST)
        return answer

    monkeypatch.setattr(CoreSession, "ask_queue", ask_before_another)
    link = harness.make_link("late").take(f"{harness.prefix}.token.late")
    with closing(link):
        link.attach([IntakeQueue(missing)], 10)
    assert harness.exists(missing.name)
