"""One OpenWire connection for one thread: socket, greeting, keep-alive, questions and answers."""

import secrets
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from math import inf

from amqsidecar.brokers.connection.broker_socket import (
    connect,
    handshake_failure,
    is_tls_record,
    speaks_tls,
)
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.silence import Patience, Silence, reset
from amqsidecar.brokers.connection.waker import Waker
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost, RemoteProtocolError
from amqsidecar.formats import openwire_codec as codec

_READ_BYTES = 1 << 18
_READS_MAX = 64
# Precedent: Classic's stock connectors allow 100 MiB; more than 2 GiB can't be announced.
_FRAME_BYTES_MAX = 2**31 - 1

GREETING_BYTES_MAX = 2**20
"""Bytes of a frame of who has not yet let us in: anybody, as far as we know."""

_HEAD_BYTES_MAX = 2**20
"""What a frame may have beyond the limit that the broker tells."""
_ANSWER_TIMEOUT_S = 60.0
_WHOSE_PORT = "is it the port of a connector for OpenWire?"
_FLUSH_BYTES = 1 << 16


class CommandRefused(Exception):
    """The broker answered a command with an exception; never leaves `brokers/`."""

    def __init__(self, reason: codec.Throwable) -> None:
        self.reason = reason
        super().__init__(str(reason))


class OpenWireConnection:
    """A greeted connection.

    Attributes:
        dispatches: message dispatches not yet taken, in the order received.
        wire_format: what the broker offered; valid after `open`.
        is_woken: `wake` was called; the caller resets it.
        last_error: what the broker last said about a command that asked for no answer.
        silence: how long we wait for an answer, or for the broker to read, before we ask why.
    """

    wire_format: codec.WireFormat

    def __init__(self, endpoint: Endpoint, clock: Clock, waker: Waker) -> None:
        self.dispatches: deque[codec.MessageDispatch] = deque()
        self.is_woken = False
        self.last_error: codec.Throwable | None = None
        self.silence = Silence(endpoint, clock)
        self.name = endpoint.place
        self._endpoint = endpoint
        self._clock = clock
        self._idle_s = 0.0
        self._splitter = codec.FrameSplitter(GREETING_BYTES_MAX)
        self._is_let_in = False
        self._answers: dict[int, codec.Throwable | None] = {}
        self._awaited: set[int] = set()
        self._greeting: bytes | None = None
        self.is_artemis = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._number = 0
        self._socket: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None
        self.waker = waker
        self._read_at_s = self._written_at_s = 0.0
        self.connection = ""

    def open(self) -> None:
        """Connect and agree on the encoding.

        Raises:
            LinkLost: the broker can't be reached, or broke off.
            BrokerRefused: it does not speak what we need, or its certificate is not trusted.
        """
        now_ms = self._clock.now_ms()
        self.connection = f"ID:amqsidecar-{secrets.token_hex(6)}-{now_ms}-1:1"
        self._socket = connect(self._endpoint)
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self.waker.receiver, selectors.EVENT_READ)
        self._read_at_s = self._written_at_s = self._clock.monotonic_s()
        inactivity_ms = round(self._endpoint.idle_timeout_s * 1000)
        self._write(
            codec.wire_format_info(inactivity_ms=inactivity_ms, frame_bytes_max=_FRAME_BYTES_MAX)
        )
        self.flush()
        deadline_s = self._clock.monotonic_s() + self._endpoint.connect_timeout_s
        while self._greeting is None:
            self._wait_until(deadline_s, f"greet us: {_WHOSE_PORT}")
        try:
            self.wire_format = codec.read_wire_format_info(self._greeting)
        except RemoteProtocolError as cause:
            raise BrokerRefused(f"{self.name} does not speak OpenWire: {cause}") from cause
        if self.wire_format.version < codec.VERSION:
            raise BrokerRefused(
                f"{self.name} speaks OpenWire up to version {self.wire_format.version};"
                f" version {codec.VERSION} is needed (ActiveMQ Classic 5.16 or later)"
            )
        self._idle_s = min(inactivity_ms, self.wire_format.inactivity_ms) / 1000

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._socket is not None

    def close(self) -> None:
        """Close the socket; never raises, safe to call twice."""
        for closeable in (self._selector, self._socket):
            if closeable is not None:
                with suppress(OSError):
                    closeable.close()
        self._socket = self._selector = None
        self._out.clear()

    def reset(self) -> None:
        """Close the socket so that a broker that reads nothing notices it as soon as it can."""
        reset(self._socket)
        self.close()

    def next_number(self) -> int:
        """Return a new command id."""
        self._number = self._number % 0x7FFFFFFF + 1
        return self._number

    def put(self, frame: bytes) -> None:
        """Write a frame soon; `flush` makes sure of it."""
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= _FLUSH_BYTES:
            self.flush()

    def send(self, code: int, body: bytes) -> None:
        """Put a command that asks for no answer."""
        self.put(codec.command(code, self.next_number(), body, answer=False))

    def ask(self, code: int, body: bytes) -> int:
        """Put a command that asks for an answer and return its number."""
        number = self.next_number()
        self._awaited.add(number)
        self.put(codec.command(code, number, body, answer=True))
        return number

    def expect(self, number: int) -> None:
        """Say that an answer to this command, put by the caller, will be waited for."""
        self._awaited.add(number)

    def call(self, code: int, body: bytes) -> None:
        """Send a command and wait for its answer.

        Raises:
            CommandRefused: the broker's answer is an exception.
            LinkLost: no answer.
        """
        number = self.ask(code, body)
        reason = self.answers([number])[0]
        if reason is not None:
            raise CommandRefused(reason)

    def is_answered(self, number: int) -> bool:
        """Whether the answer to a command has come."""
        return number in self._answers

    def answers(
        self, numbers: Sequence[int], timeout_s: float = _ANSWER_TIMEOUT_S
    ) -> list[codec.Throwable | None]:
        """Return the answers to these commands, None = done, in the same order.

        Raises:
            LinkLost: not all came in time.
        """
        self.flush()
        patience = Patience(self.silence)
        deadline_s = self._clock.monotonic_s() + timeout_s
        for number in numbers:
            while number not in self._answers:
                purpose = "answer; is a destination full and holds us back?"
                self._wait_until(deadline_s, purpose, patience.left_s())
        return [self._answers.pop(number) for number in numbers]

    def flush(self) -> None:
        """Write all that was put; reads meanwhile, so that neither side waits for the other.

        Raises:
            LinkLost: the connection is gone, or the broker takes nothing.
        """
        if not self._out:
            return
        data = memoryview(b"".join(self._out))
        self._out.clear()
        self._out_bytes = 0
        deadline_s = self._clock.monotonic_s() + _ANSWER_TIMEOUT_S
        patience = Patience(self.silence)
        while data:
            sent = self._write(data)
            if sent:
                data = data[sent:]
                deadline_s = self._written_at_s + _ANSWER_TIMEOUT_S
                patience.begin()
            elif self._clock.monotonic_s() > deadline_s:
                raise LinkLost(f"{self.name} took no byte for {_ANSWER_TIMEOUT_S:.0f} s")
            else:
                self._wait_for_room(min(1.0, patience.left_s()))
                self._read()

    def poll(self) -> None:
        """Take in what has arrived, without blocking; keeps the link alive.

        Raises:
            LinkLost: the connection is gone.
        """
        self._read()
        self._keep_alive()

    def wait(self, timeout_s: float) -> None:
        """Block until bytes arrived, `wake` was called or the time is over; keeps the link alive.

        Raises:
            LinkLost: the connection is gone.
        """
        self.flush()
        if self._idle_s:
            timeout_s = min(timeout_s, self._idle_s / 4)
        selector, connected = self._alive()
        is_readable = isinstance(connected, ssl.SSLSocket) and connected.pending() > 0
        for key, _ in selector.select(0 if is_readable else max(0.0, timeout_s)):
            if key.fileobj is self.waker.receiver:
                self.is_woken = True
                self.waker.reset()
        self.poll()

    def _alive(self) -> tuple[selectors.BaseSelector, socket.socket]:
        if self._socket is None or self._selector is None:
            raise LinkLost(f"the connection to {self.name} is closed")
        return self._selector, self._socket

    def _wait_until(self, deadline_s: float, purpose: str, at_most_s: float = inf) -> None:
        left_s = deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise LinkLost(f"{self.name} did not {purpose}")
        self.wait(min(left_s, at_most_s))

    def _wait_for_room(self, timeout_s: float) -> None:
        selector, connected = self._alive()
        selector.modify(connected, selectors.EVENT_READ | selectors.EVENT_WRITE)
        try:
            selector.select(timeout_s)
        finally:
            selector.modify(connected, selectors.EVENT_READ)

    def _write(self, data: bytes | memoryview) -> int:
        """Return how many bytes the socket took now."""
        connected = self._alive()[1]
        try:
            sent = connected.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as cause:
            raise self._lost("writing", cause) from cause
        self._written_at_s = self._clock.monotonic_s()
        return sent

    def _read(self) -> None:
        connected = self._alive()[1]
        for _ in range(_READS_MAX):
            try:
                data = connected.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as cause:
                if self._greeting is None and isinstance(cause, ssl.SSLError):
                    self.close()
                    raise handshake_failure(cause, self.name) from cause
                raise self._lost("reading", cause) from cause
            if self._greeting is None and is_tls_record(data):
                self.close()
                raise speaks_tls(self.name)
            if not data and self._greeting is None:
                raise self._lost(
                    "reading", f"it closed the connection without a greeting: {_WHOSE_PORT}"
                )
            if not data:
                raise self._lost("reading", self.last_error or "it closed the connection")
            self._read_at_s = self._clock.monotonic_s()
            try:
                for frame in self._splitter.feed(data):
                    self._take(frame)
            except RemoteProtocolError as cause:
                if self._greeting is None:
                    self.close()
                    raise BrokerRefused(
                        f"{self.name} did not greet us as an OpenWire broker: {_WHOSE_PORT}"
                    ) from cause
                raise self._lost("reading", cause) from cause

    def _lost(self, doing: str, cause: object) -> LinkLost:
        self.close()
        return LinkLost(f"lost {self.name} while {doing}: {cause}")

    def _take(self, frame: bytes) -> None:
        code = frame[0]
        if code == codec.MESSAGE_DISPATCH:
            if not self._is_let_in:
                raise RemoteProtocolError("a message came before the log-in")
            self.dispatches.append(codec.read_dispatch(frame))
        elif code in codec.RESPONSES:
            number = codec.correlation_of(frame)
            if number in self._awaited:
                self._awaited.discard(number)
                is_refused = code == codec.EXCEPTION_RESPONSE
                if not (is_refused or self._is_let_in):
                    self._is_let_in = True
                    most = self.wire_format.frame_bytes_max + _HEAD_BYTES_MAX
                    self._splitter.frame_bytes_max = min(_FRAME_BYTES_MAX, most)
                self._answers[number] = codec.read_throwable(frame, 10) if is_refused else None
        elif code == codec.WIRE_FORMAT_INFO or self._greeting is None:
            self._greeting = frame
        elif code == codec.BROKER_INFO:
            self.is_artemis = codec.is_artemis(frame)
        elif code == codec.CONNECTION_ERROR:
            self.last_error = codec.read_throwable(frame, 6)
        elif code == codec.KEEP_ALIVE_INFO:
            if frame[5:6] == b"\x01":
                self.send(codec.KEEP_ALIVE_INFO, b"")
        elif code == codec.SHUTDOWN_INFO:
            raise self._lost("reading", "the broker shuts the connection down")
        # Why: ConnectionControl, ConsumerControl and ProducerAck ask nothing of us.

    def _keep_alive(self) -> None:
        if not self._idle_s:
            return
        now_s = self._clock.monotonic_s()
        # Precedent: the Java client's monitor writes every third of the duration and forgives half.
        if now_s - self._written_at_s > self._idle_s / 3:
            self.send(codec.KEEP_ALIVE_INFO, b"")
            self.flush()
        if now_s - self._read_at_s > 1.5 * self._idle_s:
            raise self._lost("waiting", f"it was silent for {now_s - self._read_at_s:.0f} s")
