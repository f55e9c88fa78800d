"""What a stranger can write on a message or into a queue does not steer the sidecar on Classic."""

from collections.abc import Iterator

import pytest

from amqsidecar.broker import Delivery
from amqsidecar.brokers.openwire.take import OpenWireTake
from amqsidecar.errors import LinkLost
from support.brokers.real import Broker
from support.links.openwire import OpenWireHarness
from support.waiting import PATIENCE_S, eventually
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

pytestmark = pytest.mark.broker


@pytest.fixture
def harness(classic_6: Broker, unique: str) -> Iterator[OpenWireHarness]:
    made = OpenWireHarness(classic_6, unique)
    yield made
    made.close()


def token(harness: OpenWireHarness, number: int) -> WireMessage:
    return WireMessage(
        destination=(wire.QUEUE, f"amqsidecar.token.{harness.prefix}"),
        properties=wire.property_map(wire.long_entry("amqsidecarCycle", number)),
        persistent=True,
    )


def opened(harness: OpenWireHarness) -> OpenWireTake:
    return harness.make_link("hostile").take(f"amqsidecar.token.{harness.prefix}")


def test_a_second_token_ends_the_link_and_the_highest_one_stays(harness: OpenWireHarness) -> None:
    """Else one token after the other would be left behind, and the queue be no fence any more."""
    link = opened(harness)
    link.token.create(4)
    assert link.token.take(PATIENCE_S) == 4
    harness.send([token(harness, 2)])

    def is_refused() -> bool:
        try:
            number = link.token.take(0.1)
        except LinkLost:
            return True
        assert number == 4
        return False

    eventually(is_refused, what="the second token is noticed")
    with pytest.raises(LinkLost, match="several tokens"):
        link.commit_cycle([], [], 5)
    link.close()
    heir = opened(harness)
    assert heir.token.take(PATIENCE_S) == 4
    heir.commit_cycle([], [], 5)
    assert heir.token.take(PATIENCE_S) == 5
    heir.close()
    assert harness.depth(f"amqsidecar.token.{harness.prefix}") == 1


def test_a_dead_letter_that_was_sent_to_a_wildcard_has_no_origin(harness: OpenWireHarness) -> None:
    """Classic hands a copy to each queue; a re-send to the same name would do so once more."""
    one, two = (f"{harness.prefix}.fan.{name}" for name in ("one", "two"))
    harness.send([WireMessage(destination=(wire.QUEUE, name)) for name in (one, two)])
    harness.send([WireMessage(destination=(wire.QUEUE, f"{harness.prefix}.fan.>"))])
    assert harness.depth(one) == 2, "the broker has fanned it out"
    harness.put_dead_letters(f"{harness.prefix}.fan.>", 1)
    link = opened(harness)
    link.token.create(0)
    link.token.take(PATIENCE_S)
    link.attach([harness.intake()], 10)

    def received() -> list[Delivery]:
        link.wait(0.2)
        return link.receive(10)

    (delivery,) = eventually(received, what="the dead letter")
    assert delivery.provenance.origin is None
    assert "several destinations" in (delivery.provenance.problem or "")
    link.close()
