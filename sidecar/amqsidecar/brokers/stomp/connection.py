"""One STOMP 1.2 connection for one thread, on the transport of stomp.py; for both brokers.

stomp.py's thread reads, cuts the bytes into frames and wakes us; all else happens in the thread
that owns the connection.
"""

import secrets
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf

from amqsidecar.brokers.connection.broker_socket import (
    handshake_failure,
    is_tls_record,
    speaks_tls,
)
from amqsidecar.brokers.connection.byte_stream import LARGE_BYTES, joined
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.brokers.connection.silence import Patience, Silence, reset
from amqsidecar.brokers.connection.spool import Spool
from amqsidecar.brokers.connection.waiting import wait_until
from amqsidecar.brokers.connection.waiting_messages import WaitingMessages
from amqsidecar.brokers.stomp.transport import ANSWER_TIMEOUT_S, StompTransport
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost, RemoteProtocolError
from amqsidecar.formats.stomp_frame import Frame, FrameReader, Header, encode, encode_connect

_ERRORS_MAX = 1_000
_TOO_MANY_ERRORS = f"it sent more than {_ERRORS_MAX} errors that answer nothing"
_ERROR_HEAD_BYTES_MAX = 16_384
_ERROR_BODY_BYTES_MAX = 4_096
_LAST_WORDS_TIMEOUT_S = 1.0
_LOG_IN = ""
"""The receipt of CONNECT: its answer, CONNECTED or ERROR, names none."""


class FrameRefused(RequestRefused):
    """The broker answered a frame with an ERROR; never leaves `brokers/`."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        super().__init__(error_text(frame))


def error_text(frame: Frame) -> str:
    """Return the message of an ERROR frame, without its body, which is a stack trace."""
    return frame.text(b"message").strip() or "an error without words"


def _nothing() -> None:
    """Do nothing."""


def _bounded(frame: Frame) -> Frame:
    """Return a frame; of an ERROR only the part that is read."""
    if frame.command != "ERROR":
        return frame
    head = frame.head
    if len(head) > _ERROR_HEAD_BYTES_MAX:
        head = head[: head.rfind(b"\n", 0, _ERROR_HEAD_BYTES_MAX) + 1]
    return Frame(frame.command, head, frame.body[:_ERROR_BODY_BYTES_MAX])


class StompConnection:
    """A connection that is logged in.

    Attributes:
        messages: MESSAGE frames not yet taken, in the order received; `next_message` takes one.
        waiting: bounds the messages that came and were not taken.
        errors: ERROR frames that answer no awaited request, in order; the latest `_ERRORS_MAX`.
        suspect: the MESSAGE before a frame that no broker sends, or an unasked ERROR: its body
            ended early, so that its rest was taken for frames; its content-length is not its
            body's, valid after `close`; or it is too large. None = no such message.
        latest: the frame that came last, without its body; empty before the first.
        was_ended: the broker, or a device between, has ended the connection.
        is_ours: returns whether a MESSAGE is for one of our subscriptions; all others are forged.
        server: the broker's name and version, such as `ActiveMQ/6.3.1`; "" = it does not say.
        is_woken: `wake` was called; the caller resets it.
        silence: how long we wait for an answer, or for the broker to read, before we ask why.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, client_id: str | None = None) -> None:
        """Connect and log in.

        Raises:
            LinkLost: the broker can't be reached, or broke off.
            BrokerRefused: credentials, certificate, or another protocol.
        """
        self.messages: deque[Frame] = deque()
        self.waiting = WaitingMessages()
        self.errors: deque[Frame] = deque(maxlen=_ERRORS_MAX)
        self.suspect: Frame | None = None
        self.latest = Frame("", b"", b"")
        self.was_ended = False
        self.is_ours: Callable[[Frame], bool] = lambda _frame: True
        self.is_woken = False
        self.silence = Silence(endpoint, clock)
        self.name = endpoint.place
        self._endpoint = endpoint
        self.clock = clock
        self._is_closed = False
        self._end = f"the connection to {self.name} is closed"
        self._reader = FrameReader(is_let_in=False, begin=Spool().begin)
        self._condition = threading.Condition()
        self._arrived: deque[Frame] = deque()
        self._woken = False
        self._reason: str | None = None
        self._is_flooded = False
        self._awaited = {_LOG_IN}
        self._answers: dict[str, Frame] = {}
        self._tls_problem: BrokerError | None = None
        self._number = 0
        # Why: a body that ends early must not be able to forge an answer.
        self._receipts = secrets.token_hex(6)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._send_s = self._silence_s = 0.0
        self._transport = StompTransport(endpoint, self._take_in, self._note_lost, self.silence)
        self._read_at_s = self._written_at_s = clock.monotonic_s()
        self._transport.start()
        try:
            self.server = self._log_in(client_id)
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ stomp.py's thread

    def _take_in(self, data: bytes) -> None:
        if not self._reader.is_let_in and is_tls_record(data):
            self._tls_problem = speaks_tls(self.name)
            raise RemoteProtocolError("it speaks TLS")
        frames = self._reader.feed(data)
        self._read_at_s = self.clock.monotonic_s()
        if frames:
            self._reader.is_let_in |= frames[0].command == "CONNECTED"
            frames = [_bounded(frame) for frame in frames]
            with self._condition:
                self._arrived.extend(frames)
                is_flooded = any(frame.command == "ERROR" for frame in frames) and (
                    sum(frame.command == "ERROR" for frame in self._arrived) > _ERRORS_MAX
                )
                self._condition.notify()
            if not self._reader.is_let_in:
                raise RemoteProtocolError("it refused the log-in")
            if is_flooded:
                raise RemoteProtocolError(_TOO_MANY_ERRORS)
            self._bound(frames)
        if self._reader.problem is not None:
            raise RemoteProtocolError(self._reader.problem)

    def _bound(self, frames: Iterable[Frame]) -> None:
        try:
            for frame in frames:
                self.waiting.arrive(frame.footprint)
        except RemoteProtocolError:
            self._is_flooded = True
            raise

    def _note_lost(self, reason: object) -> None:
        with self._condition:
            if not self._reader.is_let_in and isinstance(reason, ssl.SSLError):
                self._tls_problem = handshake_failure(reason, self.name)
            self._reason = self._reason or str(reason)
            self._condition.notify()

    # ------------------------------------------------------------------ any thread

    def wake(self) -> None:
        """End a running or the next `wait` at once; never raises."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    # ------------------------------------------------------------------ the owner's thread

    def _log_in(self, client_id: str | None) -> str:
        """Log in; return the broker's name and version."""
        idle_s = self._endpoint.idle_timeout_s
        headers = [
            (b"accept-version", b"1.2"),
            (b"host", self._endpoint.host.encode()),
            (b"heart-beat", b"%d,%d" % (idle_s * 1000, idle_s * 1000 / 3)),
        ]
        for name, value in (
            (b"login", self._endpoint.user),
            (b"passcode", self._endpoint.credentials.secret()),
            (b"client-id", client_id),
        ):
            if value is not None:
                headers.append((name, value.encode()))
        try:
            self.put(encode_connect(headers))
        except ValueError as cause:
            raise BrokerRefused(f"can't log in at {self.name} over STOMP: {cause}") from cause
        greeting = self._await_greeting()
        if greeting.command != "CONNECTED":
            raise BrokerRefused(f"{self.name} refused: {error_text(greeting)}")
        if greeting.first(b"version") != b"1.2":
            raise BrokerRefused(f"{self.name} does not speak STOMP 1.2")
        self._agree_on_heart_beats(greeting)
        return greeting.text(b"server")

    def _await_greeting(self) -> Frame:
        deadline_s = self.clock.monotonic_s() + self._endpoint.connect_timeout_s
        while _LOG_IN not in self._answers:
            try:
                self._wait_until(deadline_s, "greet us; does it speak STOMP on this port?")
            except LinkLost as lost:
                if self._tls_problem is not None:
                    raise self._tls_problem from lost
                if _LOG_IN in self._answers:
                    # Why: a broker that refuses us says so and closes, often in one go.
                    break
                if self._reader.problem is None:
                    tls = "with" if self._endpoint.tls else "without"
                    raise LinkLost(f"{lost}; is that connector {tls} TLS?") from lost
                what = f"{self.name} does not answer as STOMP: {self._reader.problem}"
                raise BrokerRefused(f"{what}: is it the port of a connector for STOMP?") from lost
        return self._answers.pop(_LOG_IN)

    def _agree_on_heart_beats(self, greeting: Frame) -> None:
        """Set each interval to the larger of one side's offer and the other's request; 0 = none.

        Quirk (Classic): after a frame it is silent for twice the agreed time.
        """
        theirs, _, ours = (greeting.first(b"heart-beat") or b"0,0").partition(b",")
        try:
            sends_ms, asks_ms = int(theirs), int(ours)
        except ValueError:
            raise BrokerRefused(f"{self.name} sent a heart-beat that is no number") from None
        idle_s = self._endpoint.idle_timeout_s
        if idle_s and asks_ms:
            self._send_s = max(idle_s, asks_ms / 1000)
        if idle_s and sends_ms:
            self._silence_s = max(idle_s, 2.5 * sends_ms / 1000)

    def close(self) -> None:
        """Close the socket; never raises, safe to call twice."""
        self._out.clear()
        if not self._is_closed:
            self._is_closed = True
            self._transport.end()
            self._suspect_swallower()

    def reset(self) -> None:
        """Close the socket so that even a broker that does not read notices it."""
        if not self._is_closed and self._transport.socket is not None:
            reset(self._transport.socket)
        self.close()

    def disconnect(self, timeout_s: float) -> None:
        """Send DISCONNECT, wait until the broker closes, close; never raises.

        Quirk (Artemis 2.44): asked for a receipt it can lock up. The thread that sends it and one
        that finds the connection failed at that moment wait for each other for ever, and with them
        all other connections that the first one serves, until the broker is started again.
        """
        with suppress(LinkLost):
            self.send("DISCONNECT", [])
            self.flush()
            deadline_s = self.clock.monotonic_s() + timeout_s
            while True:
                self._wait_until(deadline_s, "hang up")
        self.close()

    def put(self, frame: bytes) -> None:
        """Write an encoded frame soon; `flush` makes sure of it."""
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= LARGE_BYTES:
            self.flush()

    def send(self, command: str, headers: Iterable[Header], body: bytes = b"") -> None:
        """Put a frame that asks for no receipt."""
        self.put(encode(command, headers, body))

    def receipt(self) -> tuple[str, Header]:
        """Return a new receipt, which will be waited for, and its header."""
        self._number += 1
        receipt = f"{self._receipts}-{self._number}"
        self._awaited.add(receipt)
        return receipt, (b"receipt", receipt.encode())

    def ask(self, command: str, headers: Iterable[Header], body: bytes | memoryview = b"") -> str:
        """Put a frame that asks for a receipt, and return the receipt."""
        receipt, header = self.receipt()
        self.put(encode(command, [*headers, header], body))
        return receipt

    def call(
        self,
        command: str,
        headers: Iterable[Header],
        body: bytes | memoryview = b"",
        *,
        meanwhile: Callable[[], None] = _nothing,
    ) -> None:
        """Send a frame and wait for its receipt.

        Args:
            meanwhile: called whenever something arrived; takes messages that come before it.

        Raises:
            FrameRefused: the broker answers with an ERROR.
            LinkLost: no answer.
        """
        answer = self.answers([self.ask(command, headers, body)], meanwhile=meanwhile)[0]
        if answer.command == "ERROR":
            raise FrameRefused(answer)

    def answers(
        self,
        receipts: Sequence[str],
        timeout_s: float = ANSWER_TIMEOUT_S,
        meanwhile: Callable[[], None] = _nothing,
    ) -> list[Frame]:
        """Return the RECEIPT or ERROR frames that answer these, in the same order; see `call`.

        Raises:
            LinkLost: not all came in time.
        """
        self.flush()
        patience = Patience(self.silence)
        deadline_s = self.clock.monotonic_s() + timeout_s
        for receipt in receipts:
            while receipt not in self._answers:
                self._wait_for_answer(receipt, deadline_s, patience)
                meanwhile()
        return [self._answers.pop(receipt) for receipt in receipts]

    def answered(self, receipt: str) -> Frame | None:
        """Return the answer to a frame, without waiting; None = none yet."""
        self._sort()
        return self._answers.pop(receipt, None)

    def _wait_for_answer(self, receipt: str, deadline_s: float, patience: Patience) -> None:
        try:
            purpose = "answer; is a destination full and holds us back?"
            self._wait_until(deadline_s, purpose, patience.left_s())
        except LinkLost:
            # Why: brokers close the connection right after an ERROR.
            if receipt not in self._answers:
                raise

    def flush(self) -> None:
        """Write all that was put.

        Raises:
            LinkLost: the connection is gone, or the broker takes nothing.
        """
        if not self._out:
            return
        pieces, self._out, self._out_bytes = self._out, [], 0
        for piece in joined(pieces):
            self._write(piece)

    def _write(self, data: bytes) -> None:
        self._check_open()
        try:
            self._transport.write(data)
        except OSError as cause:
            # Why wait: the broker's last words may still be unread, which say why it ended.
            with self._condition:
                self._condition.wait_for(lambda: self._reason is not None, _LAST_WORDS_TIMEOUT_S)
            raise self._lost(str(cause)) from cause
        self._written_at_s = self.clock.monotonic_s()

    def poll(self) -> None:
        """Sort arrived frames into `messages`, `errors` and answers; keep the link alive.

        Raises:
            LinkLost: the connection is gone and nothing that came before is left to sort.
        """
        self._sort()
        self._check_open()
        if self._reason is not None:
            raise self._lost(self._reason)
        self._keep_alive()

    def _sort(self) -> None:
        if self._arrived:
            with self._condition:
                arrived, self._arrived = self._arrived, deque()
            for frame in arrived:
                self._sort_in(frame)
                self.latest = frame
            # Why without its body: that of a large message would stay in memory.
            self.latest = Frame(self.latest.command, self.latest.head, b"")

    def _sort_in(self, frame: Frame) -> None:
        receipt = frame.text(b"receipt-id")
        if frame.command == "MESSAGE" and self.is_ours(frame):
            self.messages.append(frame)
            return
        self.waiting.take(frame.footprint)
        if frame.command != "MESSAGE" and receipt in self._awaited:
            self._awaited.discard(receipt)
            self._answers[receipt] = frame
            return
        if frame.command == "ERROR":
            if len(self.errors) == _ERRORS_MAX:
                self._note_lost(_TOO_MANY_ERRORS)
            self.errors.append(frame)
            self._suspect_previous()
            return
        self._suspect_previous()
        self._note_lost(f"it sent a {frame.command} that belongs to nothing")

    def next_message(self) -> Frame:
        """Take the next of `messages`; there is one."""
        frame = self.messages.popleft()
        self.waiting.take(frame.footprint)
        return frame

    def _suspect_previous(self) -> None:
        if self.latest.command == "MESSAGE":
            self.suspect = self.latest

    def _suspect_swallower(self) -> None:
        """Find the message whose content-length swallows the frames behind it.

        Why by an answer: no producer knows the names of our receipts.
        """
        found = self._reader.unfinished()
        answer = b"\nreceipt-id:" + self._receipts.encode()
        if found is not None and found.command == "MESSAGE" and answer in found.body:
            self.suspect = found

    def wait(self, timeout_s: float) -> None:
        """Block until frames arrived, `wake` was called or time is over; keeps the link alive."""
        self.flush()
        self._check_open()
        interval_s = min((s for s in (self._send_s, self._silence_s) if s), default=0.0)
        if interval_s:
            timeout_s = min(timeout_s, interval_s / 4)
        with self._condition:
            if not self._woken and not self._arrived and self._reason is None and timeout_s > 0:
                self._condition.wait(timeout_s)
            if self._woken:
                self._woken = False
                self.is_woken = True
        self.poll()

    def run_until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is true; return False when the time is over before."""
        return wait_until(is_done, self.wait, self.clock, timeout_s)

    def _wait_until(self, deadline_s: float, purpose: str, at_most_s: float = inf) -> None:
        left_s = deadline_s - self.clock.monotonic_s()
        if left_s <= 0:
            raise LinkLost(f"{self.name} did not {purpose}")
        self.wait(min(left_s, at_most_s))

    def _check_open(self) -> None:
        if self._is_closed:
            raise LinkLost(self._end)

    def _lost(self, reason: str) -> LinkLost:
        self._sort()
        self.was_ended = self._reason is not None and not self._is_flooded
        if self._reader.broken is not None:
            self.suspect = self._reader.broken
        elif self._reader.problem is not None:
            self._suspect_previous()
        if self.errors:
            reason = f"{error_text(self.errors[-1])} ({reason})"
        self.close()
        self._end = f"lost {self.name}: {reason}"
        return LinkLost(self._end)

    def _keep_alive(self) -> None:
        now_s = self.clock.monotonic_s()
        # Why: Classic tolerates no delay beyond the agreed time.
        if self._send_s and now_s - self._written_at_s > self._send_s / 3:
            self._write(b"\n")
        if self._silence_s and now_s - self._read_at_s > self._silence_s:
            raise self._lost(f"it was silent for {now_s - self._read_at_s:.0f} s")


def call(
    connection: StompConnection,
    command: str,
    headers: Iterable[Header],
    body: bytes | memoryview = b"",
) -> None:
    """Send a frame and wait for its receipt; no other request of the connection may be pending.

    Quirk (Artemis): an ERROR about a missing permission does not say which frame it answers.

    Raises:
        FrameRefused: the broker answers with an ERROR; the connection is of no use any more.
        LinkLost: no answer.
    """
    try:
        connection.call(command, headers, body)
    except LinkLost as lost:
        if not connection.errors:
            raise
        raise FrameRefused(connection.errors[-1]) from lost
