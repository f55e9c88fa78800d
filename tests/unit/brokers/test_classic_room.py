"""Which destination is blamed when a connection to Classic is held up, and probed from then on."""

from collections.abc import Callable

import pytest

from amqsidecar.brokers.classic.room import FULL, Rooms
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.destination import Destination, queue
from support.links.cycles import resend_of

OURS = queue("token")


def all_but(*names: str) -> Callable[[Destination], bool]:
    return lambda destination: destination.name not in names


def test_those_that_take_nothing_are_blamed_and_asked_from_then_on() -> None:
    rooms = Rooms()
    with pytest.raises(LinkLost, match="held up by queue://b, queue://d") as lost:
        rooms.find(
            [resend_of(b"", destination=queue(name)) for name in "abacd"], all_but("b", "d"), OURS
        )
    assert lost.value.held_up_by == {"queue://b": FULL, "queue://d": FULL}
    assert rooms.problem(queue("b"), all_but("b")) == FULL
    assert rooms.problem(queue("b"), all_but()) is None
    assert rooms.problem(queue("a"), all_but("a")) is None, "it never held us up"


def test_a_slow_broker_has_no_full_destinations() -> None:
    rooms = Rooms()
    rooms.find([resend_of(b"", destination=queue("a"))], all_but("a", "token"), OURS)
    assert rooms.problem(queue("a"), all_but("a")) is None


def test_a_broker_that_cannot_be_asked_blames_no_destination() -> None:
    def refuse(destination: Destination) -> bool:
        raise BrokerRefused(f"no connection for {destination}")

    rooms = Rooms()
    rooms.find([resend_of(b"", destination=queue("a"))], refuse, OURS)
    with pytest.raises(LinkLost):
        rooms.find([resend_of(b"", destination=queue("a"))], all_but("a"), OURS)
    assert rooms.problem(queue("a"), refuse) is None


def test_nobody_is_blamed_where_all_take() -> None:
    Rooms().find([resend_of(b"", destination=queue("a"))], all_but(), OURS)
