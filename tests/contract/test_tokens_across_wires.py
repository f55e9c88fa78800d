"""A token that one wire of Artemis has left is taken over the other, with its number."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, islice

import pytest

from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from support.brokers.real import ArtemisBroker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.artemis import ArtemisHarness
from support.links.core_artemis import CoreArtemisHarness
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.broker

Take = AmqpArtemisTake | CoreArtemisTake
Open = Callable[[], Take]
WIRES = ("amqp", "core")
DELIVERIES_MAX = 10
"""Of the broker's settings; then a message is a dead letter."""


class Wires:
    """Opens links with the same token queue over each wire."""

    def __init__(self, broker: ArtemisBroker, prefix: str, stack: ExitStack) -> None:
        self._stack = stack
        self._queue = f"{prefix}.token"
        self._harnesses: dict[str, ArtemisHarness] = {
            "amqp": AmqpArtemisHarness(broker, prefix),
            "core": CoreArtemisHarness(broker, prefix),
        }
        for harness in self._harnesses.values():
            stack.callback(harness.close)

    def open(self, wire: str) -> Take:
        link = self._harnesses[wire].make_link("e2e").take(self._queue)
        assert isinstance(link, AmqpArtemisTake | CoreArtemisTake)
        self._stack.callback(link.close)
        return link

    def drop(self, wire: str, link: Take) -> None:
        self._harnesses[wire].drop(link)


@pytest.fixture
def wires(artemis: ArtemisBroker, unique: str) -> Iterator[Wires]:
    with ExitStack() as stack:
        yield Wires(artemis, unique, stack)


@pytest.mark.parametrize("first", WIRES)
def test_each_wire_goes_on_where_the_other_has_ended(wires: Wires, first: str) -> None:
    other = WIRES[first == WIRES[0]]
    link = wires.open(first)
    link.token.create(5)
    number = 5
    for wire in islice(cycle((other, first)), 4):
        assert link.token.take(PATIENCE_S) == number
        number += 1
        link.commit_cycle([], [], number)
        link.close()
        link = wires.open(wire)
    assert link.token.take(PATIENCE_S) == number


@pytest.mark.parametrize("first", WIRES)
def test_links_that_die_one_after_the_other_leave_the_token(wires: Wires, first: str) -> None:
    """Each death counts as a failed delivery; more of them than the broker allows."""
    other = WIRES[first == WIRES[0]]
    made = wires.open(first)
    made.token.create(7)
    assert made.token.take(PATIENCE_S) == 7
    wires.drop(first, made)
    for wire in islice(cycle((other, first)), DELIVERIES_MAX + 2):
        link = wires.open(wire)
        assert link.token.take(PATIENCE_S) == 7
        wires.drop(wire, link)
    heir = wires.open(first)
    assert heir.token.take(PATIENCE_S) == 7
    heir.commit_cycle([], [], 8)


@pytest.mark.parametrize("first", WIRES)
def test_a_released_token_goes_to_the_other_wire_and_back(wires: Wires, first: str) -> None:
    """More often than the broker allows failed deliveries: a release is none."""
    one, two = wires.open(first), wires.open(WIRES[first == WIRES[0]])
    one.token.create(1)
    number = 1
    for holder, waiting in islice(cycle(((one, two), (two, one))), DELIVERIES_MAX + 3):
        assert holder.token.take(PATIENCE_S) == number
        holder.commit_cycle([], [], number + 1)
        number += 1
        assert waiting.token.take(0) is None
        holder.token.release()
    assert one.token.exists() in (True, None)


@pytest.mark.parametrize("first", WIRES)
def test_a_wait_ends_when_the_other_wire_has_got_something(wires: Wires, first: str) -> None:
    one, two = wires.open(first), wires.open(WIRES[first == WIRES[0]])
    one.token.create(1)
    one.token.release()
    two.token.release()
    assert one.token.take(PATIENCE_S) == 1
    assert two.token.take(0) is None
    one.wait_beside(two.descriptor())
    one.token.release()
    one.wait(3_600)  # Without the other descriptor the test would not end.
    assert two.token.take(PATIENCE_S) == 1
