"""Which destination is blamed when a connection to Classic is held up, and probed from then on."""

from collections.abc import Callable

import pytest

from amqsidecar.broker import Resend
from amqsidecar.brokers.classic.room import FULL, Rooms
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.destination import Destination, queue

OURS = queue("token")


def send(name: str) -> Resend:
    return Resend(
        destination=queue(name),
        message=b"",
        is_final=False,
        redelivery_id="r",
        redelivery_count=1,
        redelivery_delay_ms=0,
    )


def all_but(*names: str) -> Callable[[Destination], bool]:
    return lambda destination: destination.name not in names


def test_those_that_take_nothing_are_blamed_and_asked_from_then_on() -> None:
    rooms = Rooms()
    with pytest.raises(LinkLost, match="held up by queue://b, queue://d") as lost:
        rooms.find([send(name) for name in "abacd"], all_but("b", "d"), OURS)
    assert lost.value.held_up_by == {"queue://b": FULL, "queue://d": FULL}
    assert rooms.problem(queue("b"), all_but("b")) == FULL
    assert rooms.problem(queue("b"), all_but()) is None
    assert rooms.problem(queue("a"), all_but("a")) is None, "it never held us up"


def test_a_slow_broker_has_no_full_destinations() -> None:
    rooms = Rooms()
    rooms.find([send("a")], all_but("a", "token"), OURS)
    assert rooms.problem(queue("a"), all_but("a")) is None


def test_a_broker_that_cannot_be_asked_blames_no_destination() -> None:
    def refuse(destination: Destination) -> bool:
        raise BrokerRefused(f"no connection for {destination}")

    rooms = Rooms()
    rooms.find([send("a")], refuse, OURS)
    with pytest.raises(LinkLost):
        rooms.find([send("a")], all_but("a"), OURS)
    assert rooms.problem(queue("a"), refuse) is None


def test_nobody_is_blamed_where_all_take() -> None:
    Rooms().find([send("a")], all_but(), OURS)
