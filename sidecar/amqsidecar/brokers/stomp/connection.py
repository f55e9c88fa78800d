"""One STOMP 1.2 connection for one thread, for both brokers."""

import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from amqsidecar.brokers.connection.byte_stream import ANSWER_TIMEOUT_S, ByteStream
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.brokers.connection.spool import Spool
from amqsidecar.brokers.connection.waiting_messages import WaitingMessages
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost, RemoteProtocolError
from amqsidecar.formats.stomp_frame import Frame, FrameReader, Header, encode, encode_connect

_ERRORS_MAX = 1_000
_ERROR_HEAD_BYTES_MAX = 16_384
_ERROR_BODY_BYTES_MAX = 4_096
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
_PORT_HINT = "does it speak STOMP on this port?"
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


def _bounded(frame: Frame) -> Frame:
    """Return a frame; of an ERROR only the part that is read."""
    if frame.command != "ERROR":
        return frame
    head = frame.head
    if len(head) > _ERROR_HEAD_BYTES_MAX:
        head = head[: head.rfind(b"\n", 0, _ERROR_HEAD_BYTES_MAX) + 1]
    return Frame(frame.command, head, frame.body[:_ERROR_BODY_BYTES_MAX])


class StompConnection(ByteStream):
    """A connection that is logged in.

    Attributes:
        messages: MESSAGE frames not yet taken, in the order received; `next_message` takes one.
        waiting: bounds what came and was not taken.
        errors: ERROR frames that answer nothing that is waited for, in order; the latest
            `_ERRORS_MAX`.
        suspect: the MESSAGE after which came what no broker sends, or an unasked ERROR: a body
            that ended early, so that its rest was taken for frames; one whose content-length
            is not that of its body, valid after `close`; or one that is too large. None = there
            was none.
        latest: the frame that came last, without its body; an empty one before the first.
        was_ended: the broker, or a device between, has ended the connection.
        is_ours: returns whether a MESSAGE is for one of our subscriptions; all others are forged.
        server: what the broker calls itself, such as `ActiveMQ/6.3.1`; "" = it does not say.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, client_id: str | None = None) -> None:
        """Connect and log in.

        Raises:
            LinkLost: the broker can't be reached, or broke off.
            BrokerRefused: credentials, certificate, or another protocol.
        """
        super().__init__(
            endpoint, clock, take=self._take, keep_alive=self._keep_alive, port_hint=_PORT_HINT
        )
        self.messages: deque[Frame] = deque()
        self.waiting = WaitingMessages()
        self.errors: deque[Frame] = deque(maxlen=_ERRORS_MAX)
        self.suspect: Frame | None = None
        self.latest = Frame("", b"", b"")
        self.was_ended = False
        self.is_ours: Callable[[Frame], bool] = lambda _frame: True
        self._endpoint = endpoint
        self._end = f"the connection to {self.name} is closed"
        self._reader = FrameReader(is_let_in=False, begin=Spool().begin)
        self._has_news = False
        self._is_flooded = False
        self._awaited = {_LOG_IN}
        self._answers: dict[str, Frame] = {}
        self._number = 0
        # Why: a body that ends early must not be able to forge an answer.
        self._receipts = secrets.token_hex(6)
        self._send_s = self._silence_s = 0.0
        try:
            self.server = self._log_in(client_id)
        except BaseException:
            self.close()
            raise

    def _log_in(self, client_id: str | None) -> str:
        """Log in; return what the broker calls itself."""
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
            self.write_soon(encode_connect(headers))
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
        try:
            self.wait_for(
                lambda: _LOG_IN in self._answers,
                f"greet us; {_PORT_HINT}",
                self._endpoint.connect_timeout_s,
            )
        except LinkLost as lost:
            # Why: a broker that refuses us says so and closes, often in one go.
            if _LOG_IN not in self._answers:
                if self._reader.problem is None:
                    tls = "with" if self._endpoint.tls else "without"
                    raise LinkLost(f"{lost}; is that connector {tls} TLS?") from lost
                what = f"{self.name} does not answer as STOMP: {self._reader.problem}"
                raise BrokerRefused(f"{what}: is it the port of a connector for STOMP?") from lost
        return self._answers.pop(_LOG_IN)

    def _agree_on_heart_beats(self, greeting: Frame) -> None:
        """Take the larger of what either side offers and asks for; 0 = none.

        Quirk (Classic): after a frame it is silent for twice the time that was agreed on.
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
        self.idle_s = min((one for one in (self._send_s, self._silence_s) if one), default=0.0)

    def close(self) -> None:
        if self.is_open:
            super().close()
            self._suspect_swallower()

    def disconnect(self, timeout_s: float) -> None:
        """Send DISCONNECT, wait until the broker closes, close; never raises.

        Quirk (Artemis 2.44): asked for a receipt it can lock up. The thread that sends it and one
        that finds the connection failed at that moment wait for each other for ever, and with them
        all other connections that the first one serves, until the broker is started again.
        """
        with suppress(LinkLost):
            self.send("DISCONNECT", [])
            self.wait_for(lambda: False, "hang up", timeout_s)
        self.close()

    def send(self, command: str, headers: Iterable[Header], body: bytes = b"") -> None:
        """Put a frame that asks for no receipt."""
        self.write_soon(encode(command, headers, body))

    def receipt(self) -> tuple[str, Header]:
        """Return a new receipt, which will be waited for, and its header."""
        self._number += 1
        receipt = f"{self._receipts}-{self._number}"
        self._awaited.add(receipt)
        return receipt, (b"receipt", receipt.encode())

    def ask(self, command: str, headers: Iterable[Header], body: bytes | memoryview = b"") -> str:
        """Put a frame that asks for a receipt, and return the receipt."""
        receipt, header = self.receipt()
        self.write_soon(encode(command, [*headers, header], body))
        return receipt

    def call(
        self,
        command: str,
        headers: Iterable[Header],
        body: bytes | memoryview = b"",
        *,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a frame and wait for its receipt.

        Args:
            command: of the frame.
            headers: of the frame.
            body: of the frame.
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
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[Frame]:
        """Return the RECEIPT or ERROR frames that answer these, in the same order; see `call`.

        Raises:
            LinkLost: not all came in time.
        """
        awaited = deque(receipts)

        def have_come() -> bool:
            meanwhile()
            while awaited and awaited[0] in self._answers:
                awaited.popleft()
            return not awaited

        try:
            self.wait_for(have_come, "answer; is a destination full and holds us back?", timeout_s)
        except LinkLost:
            # Why: brokers close the connection right after an ERROR.
            if not have_come():
                raise
        return [self._answers.pop(receipt) for receipt in receipts]

    def answered(self, receipt: str) -> Frame | None:
        """Return the answer to a frame that has been read; None = none yet."""
        return self._answers.pop(receipt, None)

    def _take(self, data: bytes) -> None:
        self._has_news = True
        # Why: a broker that writes two frames one by one waits with the second until the first
        # is acknowledged, which Linux puts off for 40 ms.
        if _QUICK_ACK is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        try:
            frames = self._reader.feed(data)
            if frames and not self.is_greeted:
                self.is_greeted = self._reader.is_let_in = frames[0].command == "CONNECTED"
            for frame in frames:
                self._sort_in(_bounded(frame))
                # Why without its body: that of a large message would stay in memory.
                self.latest = Frame(frame.command, frame.head, b"")
            if frames and not self.is_greeted:
                raise RemoteProtocolError("it refused the log-in")
            if self._reader.problem is not None:
                raise RemoteProtocolError(self._reader.problem)
        except RemoteProtocolError as cause:
            raise self.lost("reading", cause) from cause

    def _sort_in(self, frame: Frame) -> None:
        receipt = frame.text(b"receipt-id")
        if frame.command == "MESSAGE" and self.is_ours(frame):
            self.messages.append(frame)
            try:
                self.waiting.arrive(frame.footprint)
            except RemoteProtocolError:
                self._is_flooded = True
                raise
        elif frame.command != "MESSAGE" and receipt in self._awaited:
            self._awaited.discard(receipt)
            self._answers[receipt] = frame
        else:
            self._suspect_previous()
            if frame.command != "ERROR":
                raise RemoteProtocolError(f"it sent a {frame.command} that belongs to nothing")
            if len(self.errors) == _ERRORS_MAX:
                words = f"it sent more than {_ERRORS_MAX} errors that answer nothing"
                raise RemoteProtocolError(words)
            self.errors.append(frame)

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

        Why by an answer: no producer knows what our receipts are called.
        """
        found = self._reader.unfinished()
        answer = b"\nreceipt-id:" + self._receipts.encode()
        if found is not None and found.command == "MESSAGE" and answer in found.body:
            self.suspect = found

    def poll(self) -> None:
        """Take in what has arrived, without blocking; keeps the connection alive.

        Raises:
            LinkLost: the connection is gone; what came before is in `messages` and `errors`.
        """
        self._read()
        self._keep_alive(self.clock.monotonic_s())
        self._has_news = False

    def wait(self, timeout_s: float) -> None:
        """Block until frames arrived, `wake` was called or time is over; keeps the link alive."""
        # Why: frames may have come while something was written.
        self.flush()
        super().wait(0.0 if self._has_news else timeout_s)

    def _check_open(self) -> None:
        if not self.is_open:
            raise LinkLost(self._end)

    def lost(self, doing: str, cause: object) -> LinkLost:
        self.was_ended = doing == "reading" and not self._is_flooded
        if self._reader.broken is not None:
            self.suspect = self._reader.broken
        elif self._reader.problem is not None:
            self._suspect_previous()
        reason = f"{error_text(self.errors[-1])} ({cause})" if self.errors else str(cause)
        self.close()
        self._end = f"lost {self.name}: {reason}"
        return LinkLost(self._end)

    def _keep_alive(self, now_s: float) -> None:
        # Why: Classic forgives nothing beyond what was agreed.
        if self._send_s and now_s - self._written_at_s > self._send_s / 3:
            self.write_soon(b"\n")
            self.flush()
        if self._silence_s and now_s - self._read_at_s > self._silence_s:
            raise self.lost("waiting", f"it was silent for {now_s - self._read_at_s:.0f} s")


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
