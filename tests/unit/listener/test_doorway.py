"""Strangers in a crowd give way to each other, and leave places for everybody else."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.listener.doorway import GRACE_S, Doorway

PLACES = 20


def test_one_address_keeps_nobody_else_out() -> None:
    doorway = Doorway(PLACES, (), PLACES)
    for number in range(1000):
        doorway.enter(number, "10.0.0.1", float(number))
    assert len(doorway) == PLACES // 2
    assert doorway.enter(-1, "10.0.0.2", 1000.0) is None


def test_one_network_keeps_nobody_else_out() -> None:
    doorway = Doorway(PLACES, (), PLACES)
    for number in range(1000):
        doorway.enter(number, f"10.0.0.{number % 250}", float(number))
    assert len(doorway) == PLACES * 3 // 4
    assert doorway.enter(-1, "10.0.1.1", 1000.0) is None


def test_where_all_is_taken_the_oldest_of_the_busiest_network_gives_way() -> None:
    doorway = Doorway(4, (), 4)
    for number, address in enumerate(("10.0.1.1", "10.0.0.1", "10.0.0.2", "::1")):
        assert doorway.enter(number, address, 0.0) is None
    assert doorway.enter(4, "10.9.0.1", 1.0) == 1


def test_in_a_rush_those_who_come_first_log_in() -> None:
    doorway = Doorway(4, (), 4)
    evicted = [doorway.enter(number, "10.0.0.1", 0.0) for number in range(6)]
    assert evicted == [None, None, 2, 3, 4, 5]
    assert doorway.enter(6, "10.0.0.1", GRACE_S) == 0


@pytest.mark.parametrize("is_trusted", [False, True])
def test_strangers_of_several_networks_in_a_rush_keep_nobody_else_out(*, is_trusted: bool) -> None:
    trusted = [ip_network("10.0.0.0/8")] if is_trusted else []
    doorway = Doorway(PLACES, trusted, PLACES)
    inside: set[int] = set()
    for number in range(1000):
        address = f"127.0.{number % 3}.1" if number % 100 else "10.0.0.1"
        evicted = doorway.enter(number, address, number / 10_000)
        if number % 100 == 0:
            assert evicted != number
            inside.add(number)
            assert evicted not in inside, "not one of those whom it is for"
        if number % 100 == 50:
            doorway.leave(inside.pop())


def test_a_proxy_may_have_all_places() -> None:
    doorway = Doorway(4, [ip_network("10.0.0.0/8")], 1)
    assert [doorway.enter(number, "::ffff:10.0.0.1", 0.0) for number in range(4)] == [None] * 4


def test_clients_that_are_not_read_never_have_all_connections() -> None:
    doorway = Doorway(PLACES, (), 8)

    def passed(number: int, address: str) -> bool:
        doorway.enter(number, address, float(number))
        return doorway.pass_unread(number)

    assert [passed(number, "10.0.0.1") for number in range(6)] == [True] * 4 + [False] * 2
    assert [passed(number, f"10.0.1.{number}") for number in range(6, 12)] == [True] * 4 + [
        False
    ] * 2
    assert len(doorway) == 0
    doorway.leave(0)
    assert passed(12, "10.0.2.1")


def test_trusted_clients_that_are_not_read_are_not_limited() -> None:
    doorway = Doorway(PLACES, [ip_network("10.0.0.0/8")], 1)
    for number in range(3):
        doorway.enter(number, "10.0.0.1", 0.0)
        assert doorway.pass_unread(number)


@given(st.lists(st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2", "1::1"]), st.booleans())))
def test_never_more_than_there_are(steps: list[tuple[str, bool]]) -> None:
    doorway = Doorway(4, (), 4)
    for number, (address, leaves) in enumerate(steps):
        doorway.enter(number, address, float(number))
        if leaves:
            doorway.leave(number)
            doorway.leave(number)
        assert len(doorway) <= 4
