"""One Core connection for one thread: socket, pings, sessions, and why the broker ended it."""

import secrets
import selectors
import socket
import ssl
from collections.abc import Callable
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
from amqsidecar.brokers.connection.waker import Waker
from amqsidecar.brokers.core.refusal import (
    INCOMPATIBLE_VERSIONS,
    LOGIN_REFUSALS,
    CoreRefused,
)
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.core import framing, packets
from amqsidecar.formats.core.primitives import Connector, CoreProtocolError

_READ_BYTES = 1 << 18
_READS_MAX = 64
# Source: ActiveMQFrameDecoder2, which takes any length that an int can announce.
_FRAME_BYTES_MAX = 2**31 - 1
_FRAME_BYTES_BEFORE_LOGIN = 2**20
_ANSWER_TIMEOUT_S = 60.0
_FLUSH_BYTES = 1 << 16
_PIECE_BYTES = 100 * 1024
_WHOSE_PORT = "is it the port of an acceptor for CORE, and one with TLS?"
_REASONS: Final = {
    packets.REDIRECT: "it redirects to another broker",
    packets.REDIRECT_ON_CRITICAL_ERROR: "it redirects to another broker after a critical error",
    packets.SCALE_DOWN: "another broker takes over its messages",
    packets.SCALE_DOWN_ON_CRITICAL_ERROR: "another broker takes over after a critical error",
    packets.SHUT_DOWN: "it shuts down",
    packets.SHUT_DOWN_ON_CRITICAL_ERROR: "it shuts down after a critical error",
}
_SCALE_DOWN = (packets.SCALE_DOWN, packets.SCALE_DOWN_ON_CRITICAL_ERROR)


class CoreConnection:
    """A connection on which sessions can be created.

    Attributes:
        version: of the protocol; agreed on with the first session.
        is_woken: the waker was used; the caller resets it.
        silence: how long we wait for an answer, or for the broker to read, before we ask why.
        connector: how to reach the broker to which the last disconnect sent us; None = to none.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, waker: Waker) -> None:
        self.version = packets.VERSION_MAX
        self.is_woken = False
        self.silence = Silence(endpoint, clock)
        self.connector: Connector | None = None
        self.name = endpoint.place
        self.clock = clock
        self._endpoint = endpoint
        self._waker = waker
        self._splitter = framing.CoreFrameSplitter(_FRAME_BYTES_BEFORE_LOGIN)
        self._sessions: dict[int, CoreSession] = {}
        self._channel = framing.FIRST_SESSION_CHANNEL - 1
        self._is_greeted = False
        self._creation_answer: packets.CorePacket | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._socket: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None
        self._read_at_s = self._written_at_s = self._pinged_at_s = 0.0

    def open(self) -> None:
        """Connect, and see that the peer speaks Core.

        Raises:
            LinkLost: the broker can't be reached, or broke off.
            BrokerRefused: TLS and what was configured don't fit.
        """
        self._socket = connect(self._endpoint)
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._waker.receiver, selectors.EVENT_READ)
        self._read_at_s = self._written_at_s = self.clock.monotonic_s()
        self._out.append(framing.GREETING)
        self._put_ping()
        self.wait_for(
            lambda: self._is_greeted,
            f"answer our greeting: {_WHOSE_PORT}",
            self._endpoint.connect_timeout_s,
        )

    def create_session(self, *, is_transacted: bool, client_id: str | None = None) -> CoreSession:
        """Return a new session, logged in and stopped.

        Raises:
            LinkLost: the broker did not answer, or is just starting or stopping.
            BrokerRefused: it does not take user, password or version.
        """
        self._channel += 1
        channel = self._channel
        session = CoreSession(self, channel)
        self._sessions[channel] = session
        while True:
            try:
                self._create(channel, client_id, is_transacted=is_transacted)
                break
            except CoreRefused as refused:
                if refused.kind == INCOMPATIBLE_VERSIONS and self.version > packets.VERSION_MIN:
                    self.version -= 1
                    continue
                del self._sessions[channel]
                if refused.kind in (*LOGIN_REFUSALS, INCOMPATIBLE_VERSIONS):
                    raise BrokerRefused(f"{self.name} refuses us: {refused}") from refused
                raise LinkLost(f"{self.name} creates no session: {refused}") from refused
        self._splitter.frame_bytes_max = _FRAME_BYTES_MAX
        return session

    def _create(self, channel: int, client_id: str | None, *, is_transacted: bool) -> None:
        self._creation_answer = None
        request = packets.CreateSession(
            name=f"amqsidecar-{secrets.token_hex(12)}",
            channel=channel,
            version=self.version,
            user=self._endpoint.user,
            password=self._endpoint.password,
            large_message_bytes_min=_PIECE_BYTES,
            is_xa=False,
            auto_commit_sends=not is_transacted,
            auto_commit_acknowledgements=not is_transacted,
            confirmation_bytes=-1,
            pre_acknowledge=False,
            default_address=None,
            client_id=client_id,
        )
        self.put(framing.CREATION_CHANNEL, request)
        self.wait_for(lambda: self._creation_answer is not None, "answer our log-in")
        if isinstance(self._creation_answer, packets.CoreException):
            raise CoreRefused(self._creation_answer.kind, self._creation_answer.message)

    def forget(self, channel: int) -> None:
        """Ignore what still comes for a session that was closed."""
        self._sessions.pop(channel, None)

    def close(self) -> None:
        """Close the socket; never raises, safe to call twice."""
        for closeable in (self._selector, self._socket):
            if closeable is not None:
                with suppress(OSError):
                    closeable.close()
        self._socket = self._selector = None
        self._out.clear()
        for session in self._sessions.values():
            session.release()

    def reset(self) -> None:
        """Close the socket so that a broker that reads nothing notices it as soon as it can."""
        reset(self._socket)
        self.close()

    def put(self, channel: int, packet: packets.CorePacket) -> None:
        """Write a packet soon; `flush` makes sure of it."""
        self.put_fields(channel, packets.code_of(packet), packets.encode(packet))

    def put_fields(self, channel: int, code: int, fields: bytes) -> None:
        """Write a packet whose fields are encoded soon."""
        self._out.append(framing.frame(code, channel, fields))
        self._out_bytes += len(fields)
        if self._out_bytes >= _FLUSH_BYTES:
            self.flush()

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
        deadline_s = self.clock.monotonic_s() + _ANSWER_TIMEOUT_S
        patience = Patience(self.silence)
        while data:
            sent = self._write(data)
            if sent:
                data = data[sent:]
                deadline_s = self._written_at_s + _ANSWER_TIMEOUT_S
                patience.begin()
            elif self.clock.monotonic_s() > deadline_s:
                raise LinkLost(f"{self.name} took no byte for {_ANSWER_TIMEOUT_S:.0f} s")
            else:
                self._wait_for_room(min(1.0, patience.left_s()))
                self._read()

    def poll(self) -> None:
        """Take in what has arrived, without blocking; keeps the connection alive.

        Raises:
            LinkLost: the connection is gone.
        """
        self._read()
        self._keep_alive()

    def wait(self, timeout_s: float) -> None:
        """Block until bytes arrived, the waker was used or the time is over.

        Raises:
            LinkLost: the connection is gone.
        """
        self.flush()
        if self._endpoint.idle_timeout_s:
            timeout_s = min(timeout_s, self._endpoint.idle_timeout_s / 4)
        selector, connected = self._alive()
        is_readable = isinstance(connected, ssl.SSLSocket) and connected.pending() > 0
        for key, _ in selector.select(0 if is_readable else max(0.0, timeout_s)):
            if key.fileobj is self._waker.receiver:
                self.is_woken = True
                self._waker.reset()
        self.poll()

    def wait_for(
        self, is_done: Callable[[], bool], purpose: str, timeout_s: float = _ANSWER_TIMEOUT_S
    ) -> None:
        """Wait until something is true that packets can make true.

        Raises:
            LinkLost: the broker did not do it in time; `purpose` says what.
        """
        self.flush()
        patience = Patience(self.silence)
        deadline_s = self.clock.monotonic_s() + timeout_s
        while not is_done():
            left_s = deadline_s - self.clock.monotonic_s()
            if left_s <= 0:
                raise LinkLost(f"{self.name} did not {purpose}")
            self.wait(min(left_s, patience.left_s()))

    def _alive(self) -> tuple[selectors.BaseSelector, socket.socket]:
        if self._socket is None or self._selector is None:
            raise LinkLost(f"the connection to {self.name} is closed")
        return self._selector, self._socket

    def _wait_for_room(self, timeout_s: float) -> None:
        selector, connected = self._alive()
        selector.modify(connected, selectors.EVENT_READ | selectors.EVENT_WRITE)
        try:
            selector.select(timeout_s)
        finally:
            selector.modify(connected, selectors.EVENT_READ)

    def _write(self, data: memoryview) -> int:
        """Return how many bytes the socket took now."""
        connected = self._alive()[1]
        try:
            sent = connected.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as cause:
            raise self._lost("writing", cause) from cause
        self._written_at_s = self.clock.monotonic_s()
        return sent

    def _read(self) -> None:
        for _ in range(_READS_MAX):
            connected = self._alive()[1]
            try:
                data = connected.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as cause:
                if not self._is_greeted and isinstance(cause, ssl.SSLError):
                    self.close()
                    raise handshake_failure(cause, self.name) from cause
                raise self._lost("reading", cause) from cause
            if not self._is_greeted and is_tls_record(data):
                self.close()
                raise speaks_tls(self.name)
            if not data:
                ended = "it closed the connection"
                why = ended if self._is_greeted else f"{ended} without a greeting: {_WHOSE_PORT}"
                raise self._lost("reading", why)
            self._read_at_s = self.clock.monotonic_s()
            try:
                for code, channel, fields in self._splitter.feed(data):
                    self._take(code, channel, fields)
            except CoreProtocolError as cause:
                raise self._lost("reading", f"it sent what Core does not allow: {cause}") from cause

    def _lost(self, doing: str, cause: object) -> LinkLost:
        self.close()
        return LinkLost(f"lost {self.name} while {doing}: {cause}")

    def _take(self, code: int, channel: int, fields: bytes) -> None:
        session = self._sessions.get(channel)
        if session is not None:
            session.take(code, fields)
            return
        match packets.decode(code, fields):
            case packets.Ping():
                self._is_greeted = True
            case packets.DisconnectWithReason() as ended:
                self.connector = ended.target_connector
                raise self._lost("reading", _reason(ended))
            case packets.Disconnect() | packets.DisconnectScaledDown():
                raise self._lost("reading", "it ends the connection")
            case packets.SessionCreated() | packets.CoreException() as answer:
                self._creation_answer = answer

    def _put_ping(self) -> None:
        self._pinged_at_s = self.clock.monotonic_s()
        idle_s = self._endpoint.idle_timeout_s
        ttl_ms = round(idle_s * 1000) if idle_s else -1
        self.put(framing.PING_CHANNEL, packets.Ping(ttl_ms))

    def _keep_alive(self) -> None:
        idle_s = self._endpoint.idle_timeout_s
        if not idle_s:
            return
        now_s = self.clock.monotonic_s()
        # Why not counted from the last write: the broker answers only a ping.
        if now_s - self._pinged_at_s > idle_s / 3:
            self._put_ping()
            self.flush()
        if now_s - self._read_at_s > 1.5 * idle_s:
            raise self._lost("waiting", f"it was silent for {now_s - self._read_at_s:.0f} s")


def _reason(ended: packets.DisconnectWithReason) -> str:
    # Quirk (RemotingServiceImpl.stop): a broker that stops alone says that it scales down.
    if ended.reason in _SCALE_DOWN and ended.target_node_id is None:
        return _REASONS[ended.reason + packets.SHUT_DOWN - packets.SCALE_DOWN]
    return _REASONS.get(ended.reason, "it ends the connection")
