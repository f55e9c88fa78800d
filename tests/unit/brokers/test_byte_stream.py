"""The byte stream of Core and OpenWire, against a peer that is a plain socket of this test."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from amqsidecar.brokers.connection.byte_stream import ByteStream, Waker
from amqsidecar.errors import BrokerRefused, LinkLost
from support.brokers.loopback import at_loopback
from support.virtual_clock import VirtualClock

HINT = "is it the right port?"
PATIENCE_S = 60.0


class Pair:
    """A stream and its peer.

    Attributes:
        take: gets what the stream has read; adds it to `taken`.
        signs_at_s: when the stream was asked for a sign of life.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.taken = b""
        self.take: Callable[[bytes], None] = self.keep
        self.signs_at_s: list[float] = []
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            endpoint = at_loopback(listener.getsockname()[1])
            self.stream = ByteStream(
                endpoint,
                self.clock,
                take=self._pass_on,
                keep_alive=self.signs_at_s.append,
                port_hint=HINT,
            )
            self.peer, _ = listener.accept()
        self.peer.settimeout(PATIENCE_S)

    def _pass_on(self, data: bytes) -> None:
        self.take(data)

    def keep(self, data: bytes) -> None:
        self.taken += data

    def close(self) -> None:
        self.stream.close()
        self.peer.close()

    def read_until(self, count: int) -> None:
        while len(self.taken) < count:
            self.stream.wait(PATIENCE_S)


def fill(peer: socket.socket) -> int:
    """Write until nothing more is taken; return how many bytes were."""
    peer.setblocking(False)
    count = 0
    while True:
        try:
            count += peer.send(bytes(2**20))
        except BlockingIOError:
            return count


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(Pair()) as made:
        yield made


def test_bytes_go_both_ways(pair: Pair) -> None:
    pair.stream.write_soon(b"one ")
    pair.stream.write_soon(b"two")
    pair.stream.flush()
    assert pair.peer.recv(100) == b"one two"
    pair.peer.sendall(b"three")
    pair.read_until(5)
    assert pair.taken == b"three"


def test_a_flush_reads_while_the_peer_writes_and_does_not_read(pair: Pair) -> None:
    """Otherwise both would wait for each other once their buffers are full."""
    said = fill(pair.peer)

    def read_once_all_is_said() -> None:
        if len(pair.taken) == said:
            with suppress(BlockingIOError):
                pair.peer.recv(2**20)

    # Why here: the stream asks for the reason when the peer takes nothing.
    pair.stream.silence.ask = read_once_all_is_said
    pair.stream.silence.after_s = 0.0
    pair.stream.write_soon(bytes(2**25))
    assert len(pair.taken) == said


def test_wake_ends_a_wait_at_once(pair: Pair) -> None:
    pair.stream.wake()
    pair.stream.wait(PATIENCE_S)
    assert pair.stream.is_woken
    assert not pair.stream.is_other_readable


def test_another_descriptor_ends_a_wait(pair: Pair) -> None:
    with closing(Waker()) as other:
        pair.stream.wait_beside(other.receiver.fileno())
        other.wake()
        pair.stream.wait(PATIENCE_S)
    assert pair.stream.is_other_readable
    assert not pair.stream.is_woken


def test_what_is_written_while_bytes_are_taken_in_waits_for_the_next_flush(pair: Pair) -> None:
    """A flush reads: it would take in later bytes before the earlier ones are done."""
    order: list[str] = []

    def take(data: bytes) -> None:
        order.append(f"begin {data.decode()}")
        if data == b"first":
            pair.peer.sendall(b"later")
            pair.stream.write_soon(bytes(2**25))
        order.append(f"end {data.decode()}")

    def read_some() -> None:
        pair.peer.recv(2**20)

    pair.take = take
    pair.stream.silence.ask = read_some
    pair.stream.silence.after_s = 0.0
    pair.peer.sendall(b"first")
    while "end later" not in order:
        pair.stream.wait(PATIENCE_S)
    assert order == ["begin first", "end first", "begin later", "end later"]


def test_a_broker_is_given_up_that_is_silent_for_one_and_a_half_times_the_duration(
    pair: Pair,
) -> None:
    pair.stream.idle_s = 10.0
    pair.clock.advance(15_000)
    pair.stream.poll()
    assert pair.signs_at_s == [pair.clock.monotonic_s()]
    pair.clock.advance(1)
    with pytest.raises(LinkLost, match="silent for 15 s"):
        pair.stream.poll()
    assert not pair.stream.is_open


def test_a_broker_without_an_agreed_duration_may_be_silent(pair: Pair) -> None:
    pair.clock.advance(3_600_000)
    pair.stream.poll()
    assert pair.signs_at_s == []


def test_the_end_before_a_greeting_names_the_port(pair: Pair) -> None:
    pair.peer.close()
    with pytest.raises(LinkLost, match=r"without a greeting: is it the right port\?"):
        pair.stream.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("last_words", "reason"),
    [(None, "it closed the connection$"), ("go away", "reading: go away$")],
)
def test_the_end_after_it_has_the_last_words_as_its_reason(
    pair: Pair, last_words: str | None, reason: str
) -> None:
    pair.stream.is_greeted = True
    pair.stream.last_words = last_words
    pair.peer.close()
    with pytest.raises(LinkLost, match=reason):
        pair.stream.wait(PATIENCE_S)


def test_a_peer_that_answers_with_tls_is_refused(pair: Pair) -> None:
    pair.peer.sendall(b"\x15\x03\x03\x00\x02\x02\x46")
    with pytest.raises(BrokerRefused, match="speaks TLS on this port"):
        pair.stream.wait(PATIENCE_S)


def test_a_closed_stream_says_so(pair: Pair) -> None:
    pair.stream.close()
    pair.stream.close()
    with pytest.raises(LinkLost, match="is closed"):
        pair.stream.wait(0)


def test_what_does_not_come_true_in_time_is_named(pair: Pair) -> None:
    pair.stream.silence.ask = lambda: pair.clock.advance(60_000)
    pair.stream.silence.after_s = 0.0
    with pytest.raises(LinkLost, match="did not greet us"):
        pair.stream.wait_for(lambda: False, "greet us")
