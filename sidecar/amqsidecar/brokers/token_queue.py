"""The token of an instance, over any wire of Artemis and over AMQP: commit record and fence.

A wire reads, drops and sends messages of the token queue; this module decides which of several
tokens counts, and when another instance has taken it. The queue is exclusive where possible: then
the broker hands tokens to one consumer only, until that consumer is gone.

A token that was handed out before without being exchanged is replaced by a fresh one with the same
content, because the broker gives up on a message that was delivered too often.
"""

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from amqsidecar.brokers.token import Token
from amqsidecar.errors import BrokerRefused, LinkLost

TOKEN_TIMEOUT_S: Final = 15.0
"""Maximum wait for the broker to hand over a token that it has committed."""

H = TypeVar("H")


class TokenMessage(NamedTuple, Generic[H]):
    """A message of the token queue that is in hand.

    Attributes:
        handle: the wire's identifier of it.
        token: its content; None = it is not a token.
        is_redelivered: it was handed out before.
    """

    handle: H
    token: Token | None
    is_redelivered: bool


class TokenQueueMaker(Protocol):
    """Makes a token queue and looks into it, such as `ArtemisQuestions`."""

    def make_token_queue(self, name: str, /) -> None:
        """Make the durable queue of an instance's token, where this user may."""

    def has_token(self, queue: str, /) -> bool | None:
        """Return whether the queue holds a token, handed out or not; None = unknown."""


class TokenWire(Protocol[H]):
    """Messages of one token queue over one wire; each method raises LinkLost if that is gone.

    Attributes:
        scheme: of the wire.
        accepts_later: the wire can settle the dead letters that a token of STOMP names.
    """

    scheme: str
    accepts_later: bool

    def open(self) -> None:
        """Make the queue where it can be made, and begin to read it.

        Raises:
            BrokerRefused: the queue can't be used; the message names it.
        """

    def release(self) -> None:
        """Stop reading; all that was in hand is back in the queue, uncounted, at the return."""

    def poll(self) -> None:
        """Process the input that has arrived."""

    def collect(self, timeout_s: float, /) -> Sequence[TokenMessage[H]]:
        """Wait for a message, then return all that the queue holds; nothing = not in time."""

    def next(self, timeout_s: float, /) -> TokenMessage[H] | None:
        """Return the next message; None = not in time."""

    def drop(self, handles: Sequence[H], /) -> None:
        """Take messages out of the queue, now or with the next transaction."""

    def replace(self, handle: H, token: Token, /) -> bool:
        """Exchange the message in hand for this token; return whether it was possible.

        If the process dies inside, the queue holds either of them or both.
        """

    def settle(self, handle: H, /) -> None:
        """Forget a message that a committed transaction has exchanged."""

    def put(self, token: Token, /) -> str | None:
        """Send a token, durably at the return; return the broker's words if it refuses."""

    def holds_any(self) -> bool | None:
        """Return whether the queue holds a message, handed out or not; None = unknown."""


class _Released(NamedTuple):
    """The queue is not read."""


class _Awaited(NamedTuple):
    """The queue is read, and no token was in hand since."""


class TokenInHand(NamedTuple, Generic[H]):
    """The token is in hand; `handle` is the wire's identifier of it."""

    handle: H
    token: Token


class _Sent(NamedTuple):
    """A token of this number is on its way: ours was exchanged, or given back by a rollback."""

    number: int


class TokenQueue(Generic[H]):
    """The token queue of this instance, and the token when it is in our hand."""

    def __init__(self, wire: TokenWire[H], name: str) -> None:
        self._wire = wire
        self._name = name
        wire.open()
        self._state: _Released | _Awaited | TokenInHand[H] | _Sent = _Awaited()

    @property
    def held(self) -> Token | None:
        return self._state.token if isinstance(self._state, TokenInHand) else None

    @property
    def number(self) -> int | None:
        if isinstance(self._state, _Sent):
            return self._state.number
        return None if self.held is None else self.held.cycle

    @property
    def is_awaited(self) -> bool:
        """Whether no token was in hand since the queue is read."""
        return isinstance(self._state, _Awaited)

    def release(self) -> None:
        """Give the token back without counting a failure, and stop reading until `take`."""
        if not isinstance(self._state, _Released):
            self._wire.release()
        self._state = _Released()

    def take(self, timeout_s: float) -> int | None:
        """Return the number of the token once it is in hand; None = not in time.

        Raises:
            LinkLost: the connection is gone, or the token was left by STOMP.
        """
        self._wire.poll()
        if isinstance(self._state, _Released):
            self._wire.open()
            self._state = _Awaited()
        if not isinstance(self._state, TokenInHand):
            self._collect(timeout_s)
        return None if self.held is None else self.held.cycle

    def _collect(self, timeout_s: float) -> None:
        found = self._wire.collect(timeout_s)
        tokens = [
            (one.token.cycle, not one.token.accepted, index, one.token)
            for index, one in enumerate(found)
            if one.token is not None
        ]
        _, _, best, token = max(tokens, key=lambda one: one[:3], default=(0, True, -1, None))
        if token is not None and token.accepted and not self._wire.accepts_later:
            raise LinkLost(
                f"the token in {self._name} was left by a sidecar over stomp:// that died, and "
                "names dead letters that may not be acknowledged yet: start it once more over "
                f"stomp://, and stop it, before it goes on over {self._wire.scheme}://"
            )
        others = [one.handle for index, one in enumerate(found) if index != best]
        if others:
            self._wire.drop(others)
        if token is not None:
            self._state = TokenInHand(found[best].handle, token)
            if found[best].is_redelivered:
                self.renew(token)

    def renew(self, token: Token) -> None:
        """Exchange the token in hand for this one of the same number, where that is possible."""
        if self._wire.replace(self.take_for_commit().handle, token):
            self._state = _Sent(token.cycle)
            self.take_for_commit()

    def take_for_commit(self) -> TokenInHand[H]:
        """Return the token in hand; wait for the one that we sent last.

        Raises:
            LinkLost: another instance has it.
        """
        while not isinstance(self._state, TokenInHand):
            if not isinstance(self._state, _Sent):
                raise LinkLost("the token was never taken")
            number = self._state.number
            found = self._wire.next(TOKEN_TIMEOUT_S)
            if found is None:
                raise LinkLost(
                    f"token {number} is not in hand (not handed over in {TOKEN_TIMEOUT_S:g} s); "
                    "another instance has it"
                )
            if found.token is None:
                # The guard of a link over STOMP that waits for the token.
                self._wire.drop([found.handle])
            elif found.token.cycle != number:
                raise LinkLost(
                    f"found token {found.token.cycle}, not {number}: another process runs this "
                    "instance"
                )
            else:
                self._state = TokenInHand(found.handle, found.token)
        return self._state

    def exchanged(self, number: int) -> None:
        """Note that a transaction has exchanged the token; the new one is on its way."""
        if isinstance(self._state, TokenInHand):
            self._wire.settle(self._state.handle)
        self._state = _Sent(number)

    def undo(self) -> None:
        """Expect the token in hand once more; call before a rollback that gives it back."""
        if isinstance(self._state, TokenInHand):
            self._state = _Sent(self._state.token.cycle)

    def retake(self) -> None:
        """Take the token that was in hand once more, after its connection was opened again.

        Raises:
            LinkLost: another token came, or none: another instance has it, or a commit happened.
        """
        number = None if self.held is None else self.held.cycle
        self._state = _Awaited()
        # Why not `self.take`: nothing has changed for subclasses that act on a new token.
        found = TokenQueue.take(self, TOKEN_TIMEOUT_S)
        if found is None or found != number:
            raise LinkLost(f"found token {found}, not {number}, which was given back")

    def exists(self) -> bool | None:
        self._wire.poll()
        return True if self.held is not None else self._wire.holds_any()

    def create(self, number: int) -> None:
        words = self._wire.put(Token(uuid4().hex, number, {}))
        if words is not None:
            raise BrokerRefused(f"the token queue {self._name} takes no token: {words}")
