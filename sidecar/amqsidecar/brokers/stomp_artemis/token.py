"""The token of an instance over STOMP on Artemis: commit record, fence, and list of what it takes.

An ACK can't be part of a transaction here, so dead letters are acknowledged after the commit. Token
k therefore carries the numbers of the dead letters that cycle k accepts: the next owner
of the token acknowledges those that come again after a crash, and hands none of them over.

The queue is exclusive where it could be made so, and all its messages are of one message group:
either way the broker hands them to one connection only, until that is gone.

Quirk (Artemis 2.44): when a STOMP connection dies, two threads clean up. One
(`ServerSessionImpl.doClose`) rolls the session's transaction back, then closes the consumers. The
other (`StompProtocolManager.cleanup`) calls `rollback(true)`, which acknowledges the first message
in hand of each consumer in that transaction. If this happens in between, the transaction is over
already and nothing ends the acknowledgement: the message counts as handed out until the broker is
restarted.

Therefore the token is never the first message in hand. Each connection sends a guard before it
subscribes: a message of the highest priority, which the broker hands over before any token. The
last guard before the token is not acknowledged while a token is in hand. It is not persistent, so
nothing of it is left after a restart of the broker.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

from amqsidecar.brokers.artemis.token import Token, decode, encode
from amqsidecar.brokers.stomp.call import call
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.token_session import TokenQueueMaker
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.stomp_artemis_message import Arrived, destination_headers, read_frame
from amqsidecar.formats.stomp_frame import Frame, Header
from amqsidecar.model.destination import queue
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST

_TIMEOUT_S = 15.0
_SUBSCRIPTION = "token"
_WINDOW_BYTES = 4 << 20
_GUARD = b"guard"
# Maximum of unacknowledged guards: those of other connections that wait for the token.
_GUARDS_MAX = 100
_NOT_PERSISTENT = (b"persistent", b"false")


class _Awaited(NamedTuple):
    """No token was in hand since the connection was opened."""


class _Held(NamedTuple):
    """The token is in hand; `ack` acknowledges it."""

    ack: bytes
    token: Token


class _Sent(NamedTuple):
    """The token was exchanged for one of this cycle, which is on its way to us."""

    cycle: int


class TokenKeeper:
    """The connection of the transactions, with the token that fences them.

    Attributes:
        connection: carries token and transactions: the broker gives the token to another one only
            after it has ended both.
        is_settled: whether all that the token names is gone from its queues for certain.
    """

    def __init__(
        self,
        connect: Callable[[], StompConnection],
        administration: TokenQueueMaker,
        clock: Clock,
        queue_name: str,
        rules_digest: str = "",
    ) -> None:
        """Connect, make the queue where it can be made, and begin to wait for the token.

        Raises:
            BrokerRefused: the queue can't be used.
            LinkLost: the broker can't be reached.
        """
        self._connect = connect
        self._administration = administration
        self._clock = clock
        self._queue = queue_name
        self._rules_digest = rules_digest
        self._state: _Awaited | _Held | _Sent = _Awaited()
        self._guards: list[bytes] = []
        self.is_settled = False
        administration.make_token_queue(queue_name)
        self.connection = self._subscribed()

    def _subscribed(self) -> StompConnection:
        connection = self._connect()
        connection.is_ours = _is_ours
        try:
            self._line_up(connection)
        except FrameRefused as refused:
            connection.close()
            raise BrokerRefused(
                f"the token queue {self._queue} can't be used: {refused}"
            ) from refused
        except BaseException:
            connection.close()
            raise
        return connection

    def _line_up(self, connection: StompConnection) -> None:
        """Send a guard, then subscribe; the broker hands over the guard before the token."""
        self._guards.clear()
        guard = [*self._headers(), _NOT_PERSISTENT, (b"priority", b"9")]
        call(connection, "SEND", guard, _GUARD)
        call(
            connection,
            "SUBSCRIBE",
            [
                (b"destination", self._queue.encode()),
                (b"subscription-type", b"ANYCAST"),
                (b"id", _SUBSCRIPTION.encode()),
                (b"ack", b"client-individual"),
                (b"consumer-window-size", b"%d" % _WINDOW_BYTES),
            ],
        )

    def _line_up_again(self) -> None:
        """Give back token and guards without counting a failure, and wait for them again.

        If the process dies inside, the queue holds what it held.
        """
        try:
            call(self.connection, "UNSUBSCRIBE", [(b"id", _SUBSCRIPTION.encode())])
            while self.connection.messages:
                self.connection.next_message()
            self._line_up(self.connection)
        except FrameRefused as refused:
            raise LinkLost(str(refused)) from refused

    def reopen(self) -> None:
        """Connect again after an ERROR, and take the same token.

        Raises:
            LinkLost: another token came, or none: another instance has it, or the commit happened.
        """
        cycle = self.token.cycle
        self._state = _Awaited()
        self.connection.close()
        self.connection = self._subscribed()
        found = self.take(_TIMEOUT_S)
        if found != cycle:
            raise LinkLost(f"found token {found}, not {cycle}, which was given back")

    @property
    def token(self) -> Token:
        """The token in hand."""
        if not isinstance(self._state, _Held):
            raise LinkLost("the token is not in hand")
        return self._state.token

    @property
    def has_token(self) -> bool:
        """Whether the token is in hand."""
        return isinstance(self._state, _Held)

    @property
    def is_next(self) -> bool:
        """Whether this connection waits for its first token, and no other one can get it."""
        return isinstance(self._state, _Awaited) and bool(self._guards)

    def keep_alive(self) -> None:
        """Answer the broker's heart-beats.

        Raises:
            LinkLost: the connection is gone.
        """
        if not self.connection.errors:
            self.connection.poll()

    def take(self, timeout_s: float) -> int | None:
        """Return the number of the token once it is in hand; None = not in time."""
        self.connection.poll()
        if not isinstance(self._state, _Held):
            self._collect(timeout_s)
        return self._state.token.cycle if isinstance(self._state, _Held) else None

    def _collect(self, timeout_s: float) -> None:
        arrived = self._next(timeout_s)
        while arrived is not None and not self._guards:
            # Why it may be missing: it was removed from the queue by hand.
            self._line_up_again()
            arrived = self._next(timeout_s)
        if arrived is None:
            return
        spare, self._guards = self._guards[:-1], self._guards[-1:]
        # Why a probe: it comes last, so all tokens that were there are in hand when it comes.
        probe = f"probe {uuid4().hex}".encode()
        self._call("SEND", [*self._headers(), _NOT_PERSISTENT], probe)
        tokens: list[tuple[Arrived, Token]] = []
        others: list[Arrived] = []
        while arrived.body != probe:
            token = decode(arrived.body)
            if token is None:
                others.append(arrived)
            else:
                tokens.append((arrived, token))
            arrived = self._expect(f"the token queue {self._queue} does not answer")
        highest = max(tokens, key=lambda one: one[1].cycle, default=None)
        others += [one[0] for one in tokens if one is not highest]
        for ack in [*spare, arrived.ack, *(one.ack for one in others)]:
            self._acknowledge(ack)
        self.connection.flush()
        if highest is None:
            return
        arrived, token = highest
        self._state = _Held(arrived.ack, token)
        if arrived.redelivered:
            self._renew(self._state, token)

    def _renew(self, held: _Held, token: Token) -> None:
        """Replace the token by a fresh one of the same number, before the broker gives up on it.

        If the process dies inside, the queue holds either or both; they have the same content.
        """
        try:
            self._call("SEND", [*self._headers(), (b"persistent", b"true")], encode(token))
        except BrokerRefused as refused:
            raise LinkLost(str(refused)) from refused
        self._acknowledge(held.ack)
        self._state = _Sent(token.cycle)
        self.connection.flush()
        self.take_for_commit()

    def send_next(self, token: Token, transaction: Header) -> str:
        """Send a token in a transaction; return the receipt that confirms it and all before it.

        Raises:
            LinkLost: the connection is gone.
        """
        duplicate_id = f"{token.lineage}:{token.cycle}".encode()
        return self.connection.ask(
            "SEND",
            [
                *self._headers(),
                (b"persistent", b"true"),
                transaction,
                (b"_AMQ_DUPL_ID", duplicate_id),
            ],
            encode(token),
        )

    def take_for_commit(self) -> _Held:
        """Return the token; wait for it, and ensure that it is the one that we sent last.

        Raises:
            LinkLost: it is not; another instance has it.
        """
        match self._state:
            case _Held() as held:
                return held
            case _Awaited():
                raise LinkLost("the token was never taken")
            case _Sent(cycle):
                arrived = self._expect(
                    f"token {cycle} is not in hand after {_TIMEOUT_S:g} s; another instance has it"
                )
                token = decode(arrived.body)
                if token is None or token.cycle != cycle:
                    raise LinkLost(f"found another message, not token {cycle}")
                self._state = _Held(arrived.ack, token)
                return self._state

    def exchanged(self, cycle: int) -> None:
        """Acknowledge the token in hand; the next one is on its way."""
        if isinstance(self._state, _Held):
            self._acknowledge(self._state.ack)
        self._state = _Sent(cycle)
        self.connection.flush()

    def exists(self) -> bool | None:
        """Return whether the queue holds a token, handed out or not; None = unknown."""
        self.connection.poll()
        if self.has_token:
            return True
        return self._administration.has_token(self._queue)

    def create(self, cycle: int) -> None:
        """Put a first token into the queue; durable when this returns.

        Raises:
            BrokerRefused: the broker does not take it.
            LinkLost: no answer.
        """
        token = Token(uuid4().hex, cycle, {})
        self._call("SEND", [*self._headers(), (b"persistent", b"true")], encode(token))

    def close(self) -> None:
        """Give the token back and disconnect; never raises.

        Where all is settled the token names nothing any more, so that AMQP can read it, too. If the
        process dies inside, the queue holds the old one, the new one or both; both mean the same.
        """
        try:
            if self.is_settled:
                held = self.take_for_commit()
                if held.token.accepted:
                    self._renew(held, held.token._replace(accepted={}))
            self.connection.send("UNSUBSCRIBE", [(b"id", _SUBSCRIPTION.encode())])
            self.connection.disconnect(2.0)
        except LinkLost:
            self.connection.close()

    def _headers(self) -> list[Header]:
        return [
            *destination_headers(queue(self._queue)),
            (b"_AMQ_GROUP_ID", b"amqsidecar"),
            (PROPERTY_RULES_DIGEST.encode(), self._rules_digest.encode()),
        ]

    def _call(self, command: str, headers: list[Header], body: bytes) -> None:
        try:
            call(self.connection, command, headers, body)
        except FrameRefused as refused:
            raise BrokerRefused(
                f"the token queue {self._queue} takes no token: {refused}"
            ) from refused

    def _acknowledge(self, ack: bytes) -> None:
        self.connection.send("ACK", [(b"id", ack)])

    def _expect(self, problem: str) -> Arrived:
        arrived = self._next(_TIMEOUT_S)
        if arrived is None:
            raise LinkLost(problem)
        return arrived

    def _next(self, timeout_s: float) -> Arrived | None:
        """Return the next message that is no guard; None = not in time."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        connection = self.connection
        while True:
            while connection.messages:
                arrived = read_frame(connection.next_message())
                if arrived.body != _GUARD:
                    return arrived
                self._guards.append(arrived.ack)
                if len(self._guards) > _GUARDS_MAX:
                    # Why not the first: it stands before the token.
                    self._acknowledge(self._guards.pop(1))
            if connection.errors:
                error = connection.errors.popleft().text(b"message")
                connection.close()
                raise LinkLost(f"the broker ended the connection of the token: {error}")
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return None
            connection.wait(left_s)


def _is_ours(frame: Frame) -> bool:
    return frame.text(b"subscription") == _SUBSCRIPTION
