"""One OpenWire connection for one thread: socket, greeting, keep-alive, questions and answers."""

import secrets
from collections import deque
from collections.abc import Sequence

from amqsidecar.brokers.connection.byte_stream import ANSWER_TIMEOUT_S, ByteStream
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.brokers.connection.spool import Spool
from amqsidecar.brokers.connection.waiting_messages import WaitingMessages
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, RemoteProtocolError
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.payload import Payload

# Precedent: Classic's stock connectors allow 100 MiB; more than 2 GiB can't be announced.
_FRAME_BYTES_MAX = 2**31 - 1

GREETING_BYTES_MAX = 2**20
"""Maximum bytes of a frame before the log-in: the peer may be anything."""

_HEAD_BYTES_MAX = 2**20
"""Bytes that a frame may have beyond the limit that the broker announces."""
_PORT_HINT = "is it the port of a connector for OpenWire?"


class CommandRefused(RequestRefused):
    """The broker answered a command with an exception; never leaves `brokers/`."""

    def __init__(self, reason: codec.Throwable) -> None:
        self.reason = reason
        super().__init__(str(reason))


class OpenWireConnection(ByteStream):
    """A greeted connection.

    Attributes:
        dispatches: message dispatches not yet taken, in the order received.
        waiting: bounds the dispatches that wait; the taker notes each dispatch that it takes.
        wire_format: the broker's offer.
        is_artemis: the broker has named itself so.
        connection: its id.
        last_words: the broker's last error for a command that asked for no answer.
    """

    last_words: codec.Throwable | None

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        """Connect and agree on the encoding.

        Raises:
            LinkLost: the broker can't be reached, or broke off.
            BrokerRefused: it lacks a feature we need, or its certificate is not trusted.
        """
        super().__init__(
            endpoint,
            clock,
            take=self._split,
            keep_alive=self._keep_alive,
            port_hint=_PORT_HINT,
        )
        self.dispatches: deque[codec.MessageDispatch] = deque()
        self.is_artemis = False
        self.connection = f"ID:amqsidecar-{secrets.token_hex(6)}-{clock.now_ms()}-1:1"
        self.waiting = WaitingMessages()
        self._splitter = codec.FrameSplitter(GREETING_BYTES_MAX, Spool().begin)
        self._is_let_in = False
        self._answers: dict[int, codec.Throwable | None] = {}
        self._awaited: set[int] = set()
        self._greeting = b""
        self._number = 0
        inactivity_ms = round(endpoint.idle_timeout_s * 1000)
        try:
            self.wire_format = self._greet(inactivity_ms, endpoint.connect_timeout_s)
        except BaseException:
            self.close()
            raise
        self.idle_s = min(inactivity_ms, self.wire_format.inactivity_ms) / 1000

    def _greet(self, inactivity_ms: int, timeout_s: float) -> codec.WireFormat:
        """Exchange greetings; return the broker's offer."""
        self.write_soon(
            codec.wire_format_info(inactivity_ms=inactivity_ms, frame_bytes_max=_FRAME_BYTES_MAX)
        )
        self.wait_for(lambda: self.is_greeted, f"greet us: {_PORT_HINT}", timeout_s)
        try:
            offered = codec.read_wire_format_info(self._greeting)
        except RemoteProtocolError as cause:
            raise BrokerRefused(f"{self.name} does not speak OpenWire: {cause}") from cause
        if offered.version < codec.VERSION:
            raise BrokerRefused(
                f"{self.name} speaks OpenWire up to version {offered.version};"
                f" version {codec.VERSION} is needed (ActiveMQ Classic 5.16 or later)"
            )
        return offered

    def next_number(self) -> int:
        """Return a new command id."""
        self._number = self._number % 0x7FFFFFFF + 1
        return self._number

    def send(self, code: int, body: bytes) -> None:
        """Put a command that asks for no answer."""
        self.write_soon(codec.command(code, self.next_number(), body, answer=False))

    def ask(self, code: int, body: bytes) -> int:
        """Put a command that asks for an answer and return its number."""
        number = self.next_number()
        self._awaited.add(number)
        self.write_soon(codec.command(code, number, body, answer=True))
        return number

    def expect(self, number: int) -> None:
        """Keep the answer to this command, which the caller puts."""
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
        self, numbers: Sequence[int], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[codec.Throwable | None]:
        """Return the answers to these commands, None = done, in the same order.

        Raises:
            LinkLost: not all came in time.
        """
        awaited = deque(numbers)

        def have_come() -> bool:
            while awaited and awaited[0] in self._answers:
                awaited.popleft()
            return not awaited

        self.wait_for(have_come, "answer; is a destination full and holds us back?", timeout_s)
        return [self._answers.pop(number) for number in numbers]

    def _split(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._take_frame(frame)
        except RemoteProtocolError as cause:
            if not self.is_greeted:
                self.close()
                raise BrokerRefused(
                    f"{self.name} did not greet us as an OpenWire broker: {_PORT_HINT}"
                ) from cause
            raise self.lost("reading", cause) from cause

    def _take_frame(self, payload: Payload) -> None:
        # Why a part: a large frame without a message is an exception with its stack.
        frame = payload if isinstance(payload, bytes) else bytes(payload.part(0, _HEAD_BYTES_MAX))
        if frame[0] == codec.MESSAGE_DISPATCH:
            self._take_dispatch(payload)
        else:
            self._take(frame)

    def _take_dispatch(self, frame: Payload) -> None:
        if not self._is_let_in:
            raise RemoteProtocolError("a message came before the log-in")
        dispatch = codec.read_dispatch(frame)
        self.dispatches.append(dispatch)
        self.waiting.arrive(dispatch.footprint)

    def _take(self, frame: bytes) -> None:
        code = frame[0]
        if code in codec.RESPONSES:
            number = codec.correlation_of(frame)
            if number in self._awaited:
                self._awaited.discard(number)
                is_refused = code == codec.EXCEPTION_RESPONSE
                if not (is_refused or self._is_let_in):
                    self._is_let_in = True
                    most = self.wire_format.frame_bytes_max + _HEAD_BYTES_MAX
                    self._splitter.frame_bytes_max = min(_FRAME_BYTES_MAX, most)
                self._answers[number] = codec.read_throwable(frame, 10) if is_refused else None
        elif code == codec.WIRE_FORMAT_INFO or not self.is_greeted:
            self._greeting, self.is_greeted = frame, True
        elif code == codec.BROKER_INFO:
            self.is_artemis = codec.is_artemis(frame)
        elif code == codec.CONNECTION_ERROR:
            self.last_words = codec.read_throwable(frame, 6)
        elif code == codec.KEEP_ALIVE_INFO:
            if frame[5:6] == b"\x01":
                self.send(codec.KEEP_ALIVE_INFO, b"")
        elif code == codec.SHUTDOWN_INFO:
            raise self.lost("reading", "the broker shuts the connection down")
        # Why: ConnectionControl, ConsumerControl and ProducerAck ask nothing of us.

    def _keep_alive(self, now_s: float) -> None:
        # Precedent: the Java client's monitor writes every third of the duration and forgives half.
        if now_s - self._written_at_s > self.idle_s / 3:
            self.send(codec.KEEP_ALIVE_INFO, b"")
            self.flush()
