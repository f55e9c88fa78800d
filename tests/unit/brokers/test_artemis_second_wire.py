"""A broker is asked whether it speaks the second wire, and the answer is remembered."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from amqsidecar.brokers.amqp.knock import AmqpKnock
from amqsidecar.brokers.amqp.sasl import HEADER
from amqsidecar.brokers.artemis_pair.second_wire import SecondWire, SecondWireMemory
from amqsidecar.errors import BrokerRefused, LinkLost
from support.brokers.loopback import at_loopback
from support.virtual_clock import VirtualClock
from support.waiting import PATIENCE_S

MINUTES = 60_000


class Port:
    """A port of this machine that answers only what the test has it answer."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._accepted: list[socket.socket] = []
        self.clock = VirtualClock()
        self.memory = SecondWireMemory()
        self.endpoint = at_loopback(self._listener.getsockname()[1])

    def wire(self) -> SecondWire:
        """Return the second wire of a new link, which does not wait for an answer."""
        return SecondWire(lambda: AmqpKnock(self.endpoint), "here", self.clock, self.memory, 0.01)

    def greeted(self) -> int:
        """Return how many have connected since the last call."""
        before = len(self._accepted)
        while True:
            try:
                accepted = self._listener.accept()[0]
            except BlockingIOError:
                return len(self._accepted) - before
            accepted.settimeout(PATIENCE_S)
            assert accepted.recv(100) == HEADER
            self._accepted.append(accepted)

    def answer(self, data: bytes) -> None:
        """Answer the last that has greeted."""
        self._accepted[-1].sendall(data)

    def close(self) -> None:
        for one in (self._listener, *self._accepted):
            one.close()


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.close()


def ask(wire: SecondWire) -> bool:
    return not wire.is_known_absent() and wire.ask()


def test_silence_is_remembered_for_all_links_and_for_five_minutes(port: Port) -> None:
    assert not ask(port.wire())
    assert port.greeted() == 1
    port.clock.advance(4 * MINUTES)
    assert not ask(port.wire())
    assert port.greeted() == 0
    port.clock.advance(2 * MINUTES)
    assert not ask(port.wire())
    assert port.greeted() == 1


def test_a_late_answer_ends_the_link_that_is_alone(port: Port) -> None:
    wire = port.wire()
    assert not ask(wire)
    assert port.greeted() == 1
    assert "does not answer in AMQP" in wire.why_left()
    port.answer(HEADER)
    with pytest.raises(LinkLost, match="accepts AMQP now"):
        wire.why_left()
    assert wire.reason == ""


def test_another_answer_is_no_amqp(port: Port) -> None:
    wire = port.wire()
    assert not ask(wire)
    assert port.greeted() == 1
    port.answer(b"HTTP/1.1")
    assert "does not answer in AMQP" in wire.why_left()


def test_a_link_that_stays_open_asks_again_after_five_minutes(port: Port) -> None:
    wire = port.wire()
    assert not ask(wire)
    port.clock.advance(6 * MINUTES)
    assert wire.why_left()
    assert wire.why_left()
    assert port.greeted() == 2
    port.answer(HEADER)
    with pytest.raises(LinkLost, match="accepts AMQP now"):
        wire.why_left()


def test_what_one_link_finds_out_ends_another_that_is_alone(port: Port) -> None:
    alone, other = port.wire(), port.wire()
    assert not ask(alone)
    other.opened()
    with pytest.raises(LinkLost, match="accepts AMQP now"):
        alone.why_left()


def test_an_open_link_is_not_asked_about(port: Port) -> None:
    wire = port.wire()
    wire.opened()
    assert wire.why_left() == ""
    assert port.greeted() == 0


def test_a_refused_wire_leaves_the_other_alone_until_the_next_link(port: Port) -> None:
    """The broker would greet us and refuse us again."""
    wire = port.wire()
    wire.failed(BrokerRefused("no mechanism fits"))
    port.clock.advance(6 * MINUTES)
    assert wire.why_left() == "no mechanism fits"
    assert port.greeted() == 0
    assert not ask(port.wire())
    assert port.greeted() == 1


def test_a_broker_that_is_away_is_asked_again_later(port: Port) -> None:
    wire = port.wire()
    assert not ask(wire)
    port.close()
    port.clock.advance(6 * MINUTES)
    assert "does not answer in AMQP" in wire.why_left()
