"""What is left in the broker when an instance goes on over another wire."""

from contextlib import closing

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.links import LinkMaker
from support.brokers import ClassicBroker

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
