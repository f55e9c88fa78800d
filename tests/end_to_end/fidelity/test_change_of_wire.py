"""What is left in the broker when an instance goes on over another wire."""

from contextlib import closing

import pytest

from amqsidecar.broker import Delivery, Resend, TakeSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.engine import crash_points
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import queue
from amqsidecar.wiring.links import LinkMaker
from support.brokers import Broker, ClassicBroker
from support.link_amqp_artemis import AmqpArtemisHarness
from support.link_amqp_classic import AmqpClassicHarness
from support.link_harness import LinkHarness
from support.link_openwire import OpenWireHarness
from support.link_stomp_artemis import StompArtemisHarness
from support.link_stomp_classic import StompClassicHarness
from support.waiting import eventually

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
        link = LinkMaker(load_config(None, sets, {}), SystemClock()).make(unique)
        with closing(link.take(f"amqsidecar.token.{unique}")) as link:
            if number == 1:
                assert not link.token_exists()
                link.create_token(number)
            assert link.take_token(10) == number, url
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
            link = harness.make_link(unique)
            with closing(link.take(f"{unique}.token")) as link:
                if number == 1:
                    link.create_token(number)
                assert link.take_token(10) == number
                link.commit_cycle(take(link, harness, 2), [], number + 1)
        stomp.put_dead_letters(f"{unique}.orders", 2)
        dying = stomp.make_link("dying", crash_point=die).take(f"{unique}.token")
        assert dying.take_token(10) == 7
        deliveries = take(dying, stomp, 2)
        with pytest.raises(Died):
            dying.commit_cycle(deliveries, [], 8)
        stomp.drop(dying)
        dying.close()

        with (
            closing(amqp.make_link("heir").take(f"{unique}.token")) as heir,
            pytest.raises(LinkLost, match="once more over stomp://"),
        ):
            heir.take_token(10)
        own = stomp.make_link("own")
        with closing(own.take(f"{unique}.token")) as own:
            assert own.take_token(10) == 8
            own.attach([stomp.intake()], 10)
            eventually(
                lambda: own.receive(10) == [] and stomp.depth(stomp.dead_letter_queue) == 0,
                what="what the token names is acknowledged",
            )
            own.commit_cycle([], [], 9)
        heir = amqp.make_link("heir")
        with closing(heir.take(f"{unique}.token")) as heir:
            assert heir.take_token(10) == 9


def redelivered_lives(harnesses: list[LinkHarness], orders: str) -> list[tuple[str | None, int]]:
    """Let one message die and be sent again over each wire; return the life that each death tells.

    Each redelivery goes on with the life that its death told, or begins the life `first`, `second`.
    """
    lives = []
    names = iter(("first", "second"))
    harnesses[0].put_dead_letters(orders, 1)
    for number, harness in enumerate(harnesses):
        link = harness.make_link(f"wire-{number}")
        with closing(link.take(f"{harness.intake().destination.name}.token.{number}")) as link:
            link.create_token(0)
            assert link.take_token(10) == 0
            [delivery] = take(link, harness, 1)
            told = delivery.provenance
            lives.append((told.redelivery_id, told.redelivery_count))
            send = Resend(
                destination=queue(orders),
                message=delivery.message,
                is_final=False,
                redelivery_id=told.redelivery_id or next(names),
                redelivery_count=told.redelivery_count + 1,
                redelivery_delay_ms=0,
            )
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
