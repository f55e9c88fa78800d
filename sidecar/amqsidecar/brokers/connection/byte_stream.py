"""The bytes to and from one broker, for one thread: buffered writes, waits, signs of life."""

import selectors
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from amqsidecar.brokers.connection.broker_socket import (
    connect,
    handshake_failure,
    is_tls_record,
    speaks_tls,
)
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.silence import Patience, Silence, reset
from amqsidecar.brokers.connection.waiting import wait_until
from amqsidecar.clock import Clock
from amqsidecar.errors import LinkLost

LARGE_BYTES: Final = 1 << 16
"""From here on a write of its own costs less than a copy."""

ANSWER_TIMEOUT_S: Final = 60.0
"""Maximum wait for an answer, or until the broker reads."""
_READ_BYTES: Final = 1 << 18
_READS_MAX: Final = 64


class Waker:
    """Ends a `select` of another thread."""

    def __init__(self) -> None:
        self._sender, self.receiver = socket.socketpair()
        self._sender.setblocking(False)
        self.receiver.setblocking(False)

    def wake(self) -> None:
        """Make the receiver readable; for any thread, never raises."""
        with suppress(OSError):
            self._sender.send(b"\0")

    def reset(self) -> None:
        """Make the receiver unreadable."""
        with suppress(OSError):
            self.receiver.recv(4096)

    def close(self) -> None:
        """Close both ends; safe to call twice."""
        self._sender.close()
        self.receiver.close()


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in order: small neighbours together, each large piece as it is."""
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < LARGE_BYTES:
            small.append(piece)
            continue
        if small:
            yield b"".join(small)
            small.clear()
        yield piece
    if small:
        yield b"".join(small)


class ByteStream:
    """A connection to a broker that reads while it waits to write.

    Attributes:
        name: of the broker, for messages.
        clock: where the time comes from.
        is_open: it was not closed.
        is_woken: `wake` was called; the caller resets it.
        is_other_readable: see `wait_beside`; the caller resets it.
        is_greeted: the broker has shown that it speaks our protocol; the owner sets it.
        last_words: the broker's last error, the reason when it ends the connection.
        idle_s: a broker that is silent for 1.5 times as long counts as dead; 0 = never.
        silence: how long we wait for an answer, or for the broker to read, before we ask why.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        take: Callable[[bytes], None],
        keep_alive: Callable[[float], None],
        port_hint: str,
    ) -> None:
        """Connect the socket.

        Args:
            clock: where the time comes from.
            take: gets the bytes read.
            keep_alive: sends a sign of life when one is due at this monotonic time; is called
                where `idle_s` is not 0.
            port_hint: question about the port, for a broker that does not greet.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: TLS does not fit the configuration.
        """
        self.name = endpoint.place
        self.clock = clock
        self.is_woken = False
        self.is_other_readable = False
        self.is_greeted = False
        self.last_words: object = None
        self.idle_s = 0.0
        self.silence = Silence(endpoint, clock)
        self._take_bytes = take
        self._send_sign_of_life = keep_alive
        self._port_hint = port_hint
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_taking = False
        self._socket = connect(endpoint)
        self._socket.setblocking(False)
        self._waker = Waker()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._waker.receiver, selectors.EVENT_READ)
        self._read_at_s = self._written_at_s = self.clock.monotonic_s()
        self.is_open = True

    def close(self) -> None:
        """Close the socket; never raises, safe to call twice."""
        self.is_open = False
        for closeable in (self._selector, self._socket, self._waker):
            with suppress(OSError):
                closeable.close()
        self._out.clear()

    def wake(self) -> None:
        """End a running or the next `wait` at once; for any thread, never raises."""
        self._waker.wake()

    def reset(self) -> None:
        """Close the socket so that even a broker that does not read notices it."""
        reset(self._socket)
        self.close()

    def write_soon(self, data: bytes) -> None:
        """Write bytes soon; `flush` makes sure of it."""
        self._out.append(data)
        self._out_bytes += len(data)
        # Why not while bytes are taken in: a flush reads, and their order would be lost.
        if self._out_bytes >= LARGE_BYTES and not self._is_taking:
            self.flush()

    def flush(self) -> None:
        """Write all that waits; reads meanwhile, so that neither side waits for the other.

        Raises:
            LinkLost: the connection is gone, or the broker takes nothing.
        """
        if not self._out:
            return
        pieces, self._out, self._out_bytes = self._out, [], 0
        for piece in joined(pieces):
            self._write_all(memoryview(piece))

    def _write_all(self, data: memoryview) -> None:
        deadline_s = self.clock.monotonic_s() + ANSWER_TIMEOUT_S
        patience = Patience(self.silence)
        while data:
            sent = self._write(data)
            if sent:
                data = data[sent:]
                deadline_s = self._written_at_s + ANSWER_TIMEOUT_S
                patience.begin()
            elif self.clock.monotonic_s() > deadline_s:
                raise LinkLost(f"{self.name} took no byte for {ANSWER_TIMEOUT_S:.0f} s")
            else:
                self._wait_for_room(min(1.0, patience.left_s()))
                self._read()

    def poll(self) -> None:
        """Process arrived bytes without blocking; keeps the connection alive."""
        self._read()
        if not self.idle_s:
            return
        now_s = self.clock.monotonic_s()
        self._send_sign_of_life(now_s)
        if now_s - self._read_at_s > 1.5 * self.idle_s:
            raise self.lost("waiting", f"it was silent for {now_s - self._read_at_s:.0f} s")

    def wait(self, timeout_s: float) -> None:
        """Block until bytes arrived, `wake` was called or the time is over."""
        self.flush()
        if self.idle_s:
            timeout_s = min(timeout_s, self.idle_s / 4)
        self._check_open()
        connected = self._socket
        is_readable = isinstance(connected, ssl.SSLSocket) and connected.pending() > 0
        for key, _ in self._selector.select(0 if is_readable else max(0.0, timeout_s)):
            if key.fileobj is self._waker.receiver:
                self.is_woken = True
                self._waker.reset()
            elif key.fileobj is not connected:
                self.is_other_readable = True
        self.poll()

    def run_until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition is true; return False when the time is over before."""
        return wait_until(is_done, self.wait, self.clock, timeout_s)

    def descriptor(self) -> int:
        """Return the file descriptor of the socket.

        Raises:
            LinkLost: the connection is closed.
        """
        self._check_open()
        return self._socket.fileno()

    def wait_beside(self, descriptor: int) -> None:
        """End each `wait` also when this descriptor is readable."""
        self._check_open()
        self._selector.register(descriptor, selectors.EVENT_READ)

    def wait_for(
        self, is_done: Callable[[], bool], purpose: str, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        """Wait until the broker's input has made a condition true.

        Raises:
            LinkLost: it did not in time; `purpose` completes "the broker did not ...".
        """
        self.flush()
        patience = Patience(self.silence)
        deadline_s = self.clock.monotonic_s() + timeout_s
        while not is_done():
            left_s = deadline_s - self.clock.monotonic_s()
            if left_s <= 0:
                raise LinkLost(f"{self.name} did not {purpose}")
            self.wait(min(left_s, patience.left_s()))

    def lost(self, doing: str, cause: object) -> LinkLost:
        """Close the connection; return the error to raise."""
        self.close()
        return LinkLost(f"lost {self.name} while {doing}: {cause}")

    def _check_open(self) -> None:
        if not self.is_open:
            raise LinkLost(f"the connection to {self.name} is closed")

    def _wait_for_room(self, timeout_s: float) -> None:
        self._check_open()
        selector, connected = self._selector, self._socket
        selector.modify(connected, selectors.EVENT_READ | selectors.EVENT_WRITE)
        try:
            selector.select(timeout_s)
        finally:
            selector.modify(connected, selectors.EVENT_READ)

    def _write(self, data: memoryview) -> int:
        """Return how many bytes the socket took now."""
        self._check_open()
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as cause:
            raise self.lost("writing", cause) from cause
        self._written_at_s = self.clock.monotonic_s()
        return sent

    def _read(self) -> None:
        for _ in range(_READS_MAX):
            self._check_open()
            try:
                data = self._socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as cause:
                if not self.is_greeted and isinstance(cause, ssl.SSLError):
                    self.close()
                    raise handshake_failure(cause, self.name) from cause
                raise self.lost("reading", cause) from cause
            if not self.is_greeted and is_tls_record(data):
                self.close()
                raise speaks_tls(self.name)
            if not data and not self.is_greeted:
                why = f"it closed the connection without a greeting: {self._port_hint}"
                raise self.lost("reading", why)
            if not data:
                raise self.lost("reading", self.last_words or "it closed the connection")
            self._read_at_s = self.clock.monotonic_s()
            self._is_taking = True
            try:
                self._take_bytes(data)
            finally:
                self._is_taking = False
