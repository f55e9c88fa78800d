"""One Core connection for one thread: socket, pings, sessions, and why the broker ended it."""

import secrets
from collections import deque
from typing import Final

from amqsidecar.brokers.connection.byte_stream import ByteStream
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.core.refusal import (
    INCOMPATIBLE_VERSIONS,
    LOGIN_REFUSALS,
    CoreRefused,
)
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.core import framing, packets
from amqsidecar.formats.core.message import PIECE_BYTES
from amqsidecar.formats.core.packet_format import CorePacket
from amqsidecar.formats.core.primitives import Connector, CoreProtocolError

# Bound: a message that is not large is one frame; brokers keep them in pages of 10 MiB.
FRAME_BYTES_MAX = 101 * 2**20
_FRAME_BYTES_BEFORE_LOGIN = 2**20
_LOGIN_BYTES_USUAL = 4096
"""Bytes of a log-in that a broker of 2.57 reads unless `coreInitialMaxFrameSize` is set."""
_PORT_HINT = "is it the port of an acceptor for CORE, and one with TLS?"
_REASONS: Final = {
    packets.REDIRECT: "it redirects to another broker",
    packets.REDIRECT_ON_CRITICAL_ERROR: "it redirects to another broker after a critical error",
    packets.SCALE_DOWN: "another broker takes over its messages",
    packets.SCALE_DOWN_ON_CRITICAL_ERROR: "another broker takes over after a critical error",
    packets.SHUT_DOWN: "it shuts down",
    packets.SHUT_DOWN_ON_CRITICAL_ERROR: "it shuts down after a critical error",
}
_SCALE_DOWN = (packets.SCALE_DOWN, packets.SCALE_DOWN_ON_CRITICAL_ERROR)


class CoreConnection(ByteStream):
    """A connection on which sessions can be created.

    Attributes:
        version: of the protocol; agreed on with the first session.
        connector: how to reach the broker to which the last disconnect sent us; None = to none.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        """Connect, and see that the peer speaks Core.

        Raises:
            LinkLost: the broker can't be reached, or broke off.
            BrokerRefused: TLS does not fit the configuration.
        """
        super().__init__(
            endpoint,
            clock,
            take=self._split,
            keep_alive=self._keep_alive,
            port_hint=_PORT_HINT,
        )
        self.version = packets.VERSION_MAX
        self.connector: Connector | None = None
        self.idle_s = endpoint.idle_timeout_s
        self._endpoint = endpoint
        self._splitter = framing.CoreFrameSplitter(_FRAME_BYTES_BEFORE_LOGIN)
        self._sessions: dict[int, CoreSession] = {}
        self._channel = framing.FIRST_SESSION_CHANNEL - 1
        # Why one: a hostile peer may send many.
        self._creation_answers: deque[packets.SessionCreated | packets.CoreException] = deque(
            maxlen=1
        )
        self._pinged_at_s = 0.0
        self.write_soon(framing.GREETING)
        self._put_ping()
        try:
            self.wait_for(
                lambda: self.is_greeted,
                f"answer our greeting: {_PORT_HINT}",
                endpoint.connect_timeout_s,
            )
        except BaseException:
            self.close()
            raise

    def create_session(
        self,
        *,
        is_transacted: bool,
        is_settled: bool = False,
        client_id: str | None = None,
    ) -> CoreSession:
        """Return a new session, logged in and stopped.

        Args:
            is_transacted: sends and acknowledgements wait for a commit.
            is_settled: messages leave their queue when handed out, without an acknowledgement.
            client_id: of the connection; None = it has none.

        Raises:
            LinkLost: the broker did not answer, or is just starting or stopping.
            BrokerRefused: it does not take user, password or version.
        """
        self._channel += 1
        channel = self._channel
        session = CoreSession(self, channel, lambda: self._sessions.pop(channel, None))
        self._sessions[channel] = session
        while True:
            try:
                self._create(channel, client_id, is_transacted, is_settled)
                break
            except CoreRefused as refused:
                if refused.kind == INCOMPATIBLE_VERSIONS and self.version > packets.VERSION_MIN:
                    self.version -= 1
                    continue
                del self._sessions[channel]
                if refused.kind in (*LOGIN_REFUSALS, INCOMPATIBLE_VERSIONS):
                    raise BrokerRefused(f"{self.name} refuses us: {refused}") from refused
                raise LinkLost(f"{self.name} creates no session: {refused}") from refused
        self._splitter.frame_bytes_max = FRAME_BYTES_MAX
        return session

    def _create(
        self, channel: int, client_id: str | None, is_transacted: bool, is_settled: bool
    ) -> None:
        self._creation_answers.clear()
        request = packets.CreateSession(
            name=f"amqsidecar-{secrets.token_hex(12)}",
            channel=channel,
            version=self.version,
            user=self._endpoint.user,
            password=self._endpoint.credentials.secret(),
            large_message_bytes_min=PIECE_BYTES,
            is_xa=False,
            auto_commit_sends=not is_transacted,
            auto_commit_acknowledgements=not is_transacted,
            confirmation_bytes=-1,
            pre_acknowledge=is_settled,
            default_address=None,
            client_id=client_id,
        )
        self._put(framing.CREATION_CHANNEL, request)
        try:
            self.wait_for(lambda: bool(self._creation_answers), "answer our log-in")
        except LinkLost as lost:
            if len(packets.encode(request)) < _LOGIN_BYTES_USUAL or self.is_open:
                raise
            raise LinkLost(
                f"{self.name} ended a long log-in: raise its acceptor's limit, by "
                "coreInitialMaxFrameSize=65536"
            ) from lost
        answer = self._creation_answers[-1]
        if isinstance(answer, packets.CoreException):
            raise CoreRefused(answer.kind, answer.message)

    def close(self) -> None:
        super().close()
        for session in self._sessions.values():
            session.release()

    def _put(self, channel: int, packet: CorePacket) -> None:
        fields = packets.encode(packet)
        self.write_soon(framing.frame(packets.code_of(packet), channel, fields))

    def _split(self, data: bytes) -> None:
        try:
            for code, channel, fields in self._splitter.feed(data):
                session = self._sessions.get(channel)
                if session is None:
                    self._take(code, fields)
                else:
                    session.take(code, fields)
        except CoreProtocolError as cause:
            raise self.lost("reading", f"it violates the Core protocol: {cause}") from cause

    def _take(self, code: int, fields: bytes) -> None:
        match packets.decode(code, fields):
            case packets.Ping():
                self.is_greeted = True
            case packets.DisconnectWithReason() as ended:
                self.connector = ended.target_connector
                raise self.lost("reading", _reason(ended))
            case packets.Disconnect() | packets.DisconnectScaledDown():
                raise self.lost("reading", "it ends the connection")
            case packets.SessionCreated() | packets.CoreException() as answer:
                self._creation_answers.append(answer)

    def _put_ping(self) -> None:
        self._pinged_at_s = self.clock.monotonic_s()
        ttl_ms = round(self.idle_s * 1000) if self.idle_s else -1
        self._put(framing.PING_CHANNEL, packets.Ping(ttl_ms))

    def _keep_alive(self, now_s: float) -> None:
        # Why not counted from the last write: the broker answers only a ping.
        if now_s - self._pinged_at_s > self.idle_s / 3:
            self._put_ping()
            self.flush()


def _reason(ended: packets.DisconnectWithReason) -> str:
    # Quirk (RemotingServiceImpl.stop): a broker that stops alone says that it scales down.
    if ended.reason in _SCALE_DOWN and ended.target_node_id is None:
        return _REASONS[ended.reason + packets.SHUT_DOWN - packets.SCALE_DOWN]
    return _REASONS.get(ended.reason, "it ends the connection")
