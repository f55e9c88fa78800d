"""What is left in the broker when an instance goes on over another wire."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.broker import Delivery, TakeSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.engine import crash_points
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import queue
from amqsidecar.wiring.links import LinkMaker
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.amqp_classic import AmqpClassicHarness
from support.links.cycles import resend, with_token
from support.links.harness import LinkHarness
from support.links.openwire import OpenWireHarness
from support.links.stomp_artemis import StompArtemisHarness, after_a_death
from support.links.stomp_classic import StompClassicHarness
from support.sidecar.doctor import run_doctor
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker


def test_each_wire_of_classic_finds_the_token_of_each_other(
    classic_6: ClassicBroker, unique: str
) -> None:
    """An instance that changes its wire would doubt its last cycle."""
    openwire, stomp = classic_6.openwire_url, classic_6.stomp_url
    mapped, native = classic_6.amqp_jms_url, classic_6.amqp_url
    ways = (openwire, mapped, stomp, native, openwire, native, stomp, mapped, openwire, stomp)
    for number, url in enumerate(ways, start=1):
        sets = [f"broker.url={url}", "intake.producers=amqp"]
        made = LinkMaker(load_config(None, sets, {}), SystemClock()).make(unique)
        with closing(made.take(f"amqsidecar.token.{unique}")) as link:
            if number == 1:
                assert not link.token.exists()
                link.token.create(number)
            assert link.token.take(PATIENCE_S) == number, url
            link.commit_cycle([], [], number + 1)


class Died(Exception):
    """The process dies here."""


def take(link: TakeSession, harness: LinkHarness, count: int) -> list[Delivery]:
    link.attach([harness.intake()], 10)
    found: list[Delivery] = []

    def is_all() -> bool:
        link.wait(0.1)
        found.extend(link.receive(10))
        return len(found) == count

    eventually(is_all, what=f"{count} deliveries")
    return found


def test_both_wires_of_artemis_find_the_token_of_the_other(artemis: Broker, unique: str) -> None:
    """After a stop; that of a STOMP link that has died is for STOMP alone."""

    def die(name: str) -> None:
        if name == crash_points.ACCEPTING:
            raise Died

    stomp = StompArtemisHarness(artemis, unique)
    amqp = AmqpArtemisHarness(artemis, unique)
    with closing(stomp), closing(amqp):
        for number, harness in enumerate((amqp, stomp, amqp, stomp, stomp, amqp), start=1):
            stomp.put_dead_letters(f"{unique}.orders", 2)
            made = harness.make_link(unique)
            with closing(made.take(f"{unique}.token")) as link:
                if number == 1:
                    link.token.create(number)
                assert link.token.take(PATIENCE_S) == number
                link.commit_cycle(take(link, harness, 2), [], number + 1)
        stomp.put_dead_letters(f"{unique}.orders", 2)
        dying = stomp.make_link("dying", crash_point=die).take(f"{unique}.token")
        assert dying.token.take(PATIENCE_S) == 7
        deliveries = take(dying, stomp, 2)
        with pytest.raises(Died):
            dying.commit_cycle(deliveries, [], 8)
        stomp.drop(dying)
        dying.close()

        with (
            closing(amqp.make_link("heir").take(f"{unique}.token")) as heir,
            pytest.raises(LinkLost, match="once more over stomp://"),
        ):
            heir.token.take(PATIENCE_S)

        def acknowledge() -> None:
            with closing(stomp.make_link("own").take(f"{unique}.token")) as own:
                assert own.token.take(PATIENCE_S) == 8
                own.attach([stomp.intake()], 10)

                def is_acknowledged() -> bool:
                    # Why: a link that nobody serves sends no credit and no heartbeat.
                    own.wait(0.05)
                    assert own.receive(10) == []
                    return stomp.depth(stomp.dead_letter_queue) == 0

                eventually(is_acknowledged, what="what the token names is acknowledged")
                own.commit_cycle([], [], 9)

        after_a_death(stomp, acknowledge)
        with closing(amqp.make_link("heir").take(f"{unique}.token")) as heir:
            assert heir.token.take(PATIENCE_S) == 9


def redelivered_lives(harnesses: list[LinkHarness], orders: str) -> list[tuple[str | None, int]]:
    """Make one message die and return over each wire; return the life that each death shows.

    Each redelivery goes on with the life that its death told, or begins the life `first`, `second`.
    """
    lives = []
    names = iter(("first", "second"))
    harnesses[0].put_dead_letters(orders, 1)
    for number, harness in enumerate(harnesses):
        made = harness.make_link(f"wire-{number}")
        with closing(made.take(f"{harness.intake().destination.name}.token.{number}")) as link:
            with_token(link)
            [delivery] = take(link, harness, 1)
            told = delivery.provenance
            lives.append((told.redelivery_id, told.redelivery_count))
            identity = told.redelivery_id or next(names)
            send = resend(delivery, destination=queue(orders), redelivery_id=identity)
            link.commit_cycle([delivery], [send], 1)
        harness.kill(orders)
    return lives


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (OpenWireHarness, StompClassicHarness),
        (StompClassicHarness, OpenWireHarness),
        (OpenWireHarness, AmqpClassicHarness),
        (AmqpClassicHarness, OpenWireHarness),
        (StompClassicHarness, AmqpClassicHarness),
        (StompArtemisHarness, AmqpArtemisHarness),
    ],
    ids=lambda one: one.name,
)
def test_what_was_sent_over_the_other_wire_begins_a_new_life(
    request: pytest.FixtureRequest,
    unique: str,
    before: type[LinkHarness],
    after: type[LinkHarness],
) -> None:
    """Each wire calls a message by another name, so that the check of the other does not fit."""
    broker = request.getfixturevalue("artemis" if after is AmqpArtemisHarness else "classic_6")
    first, second = before(broker, unique), after(broker, unique)
    with closing(first), closing(second):
        lives = redelivered_lives([first, first, second, second], f"{unique}.orders")
    assert lives == [(None, 0), ("first", 1), (None, 0), ("second", 1)]


POLICY = """
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 4, redelivery_delay_ms: 600000}
"""


@pytest.fixture
def own_artemis() -> Iterator[ArtemisBroker]:
    """A broker whose dead-letter queue holds nothing of other tests."""
    with ArtemisBroker() as broker:
        yield broker


def test_what_waits_from_amqp_is_sent_over_both_wires_and_not_over_core(
    own_artemis: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    """Of Core and AMQP producers; over Core they wait, and the reason and its mend are reported."""
    artemis, policy = own_artemis, write_policy(tmp_path, POLICY)
    sent = {}
    peers = {kind: JmsPeer.of(artemis, kind) for kind in ("core", "qpid")}
    with SidecarProcess(tmp_path, artemis.amqp_url, policy=policy).running() as before:
        for kind, peer in peers.items():
            sent[kind] = peer.produce(f"{kind}.{unique}", ("Text", "Bytes", "Map"), group=None)
            JmsPeer.of(artemis, "qpid").fail(f"{kind}.{unique}", "reject", messages=3)
        eventually(lambda: before.metric("amqsidecar_scheduled_total") == 6, what="all wait")
    ids = [row["redelivery_id"] for row in before.rows()]
    assert len(ids) == 6

    with SidecarProcess(tmp_path, artemis.core_url, policy=policy) as alone:
        doctor = run_doctor(artemis.core_url, tmp_path, policy=policy)
        assert any(
            "6 waiting messages were taken over amqp://" in one["what"] for one in doctor.problems
        )
        alone.start()
        alone.run_command("retry", ids[0])
        eventually(
            lambda: "with a broker.url of amqp://" in alone.run_command("show", ids[0]),
            what="the reason is reported",
        )
        assert alone.unsent() == 6
        assert alone.stop() == 0

    with SidecarProcess(tmp_path, artemis.pair_url, policy=policy) as after:
        doctor = run_doctor(artemis.pair_url, tmp_path, policy=policy)
        assert not any("waiting messages were taken" in one["what"] for one in doctor.problems)
        after.start()
        for one in ids:
            after.run_command("retry", one)
        for kind, peer in peers.items():
            found = peer.consume(f"{kind}.{unique}", 3, wait_ms=20_000)
            bodies = [{str(one.body) for one in messages} for messages in (found, sent[kind])]
            assert bodies[0] == bodies[1]
        eventually(lambda: after.unsent() == 0, what="none waits")
        assert after.stop() == 0
