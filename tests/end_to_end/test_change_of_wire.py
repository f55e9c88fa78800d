"""What is left in the broker when an instance goes on over another wire."""

from contextlib import closing

import pytest

from amqsidecar.broker import Delivery, Link
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.engine import crash_points
from amqsidecar.errors import LinkLost
from amqsidecar.links import LinkMaker
from support.brokers import Broker, ClassicBroker
from support.link_amqp_artemis import AmqpArtemisHarness
from support.link_harness import LinkHarness
from support.link_stomp_artemis import StompArtemisHarness
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
        with closing(link):
            link.open(f"amqsidecar.token.{unique}")
            if number == 1:
                assert not link.token_exists()
                link.create_token(number)
            assert link.take_token(10) == number, url
            link.commit_cycle([], [], number + 1)


class Died(Exception):
    """The process dies here."""


def take(link: Link, harness: LinkHarness, count: int) -> list[Delivery]:
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
            with closing(link):
                link.open(f"{unique}.token")
                if number == 1:
                    link.create_token(number)
                assert link.take_token(10) == number
                link.commit_cycle(take(link, harness, 2), [], number + 1)
        stomp.put_dead_letters(f"{unique}.orders", 2)
        dying = stomp.make_link("dying", crash_point=die)
        dying.open(f"{unique}.token")
        assert dying.take_token(10) == 7
        deliveries = take(dying, stomp, 2)
        with pytest.raises(Died):
            dying.commit_cycle(deliveries, [], 8)
        stomp.drop(dying)
        dying.close()

        heir = amqp.make_link("heir")
        with closing(heir):
            heir.open(f"{unique}.token")
            with pytest.raises(LinkLost, match="once more over stomp://"):
                heir.take_token(10)
        own = stomp.make_link("own")
        with closing(own):
            own.open(f"{unique}.token")
            assert own.take_token(10) == 8
            own.attach([stomp.intake()], 10)
            eventually(
                lambda: own.receive(10) == [] and stomp.depth(stomp.dead_letter_queue) == 0,
                what="what the token names is acknowledged",
            )
            own.commit_cycle([], [], 9)
        heir = amqp.make_link("heir")
        with closing(heir):
            heir.open(f"{unique}.token")
            assert heir.take_token(10) == 9
