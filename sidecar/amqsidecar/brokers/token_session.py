"""Common part of sessions with a token: passes calls on to their parts."""

from collections.abc import Sequence
from typing import Generic, Protocol

from amqsidecar.broker import Resend
from amqsidecar.brokers.token_queue import H, TokenQueue


class TokenQueueMaker(Protocol):
    """Makes a token queue and looks into it, such as `ArtemisQuestions`."""

    def make_token_queue(self, name: str, /) -> None:
        """Make the durable queue of an instance's token, where this user may."""
        ...

    def has_token(self, queue: str, /) -> bool | None:
        """Return whether the queue holds a token, handed out or not; None = unknown."""
        ...


class Ahead(Protocol):
    """The sends of the next transaction, such as `SendsAhead`."""

    def begin(self, sends: Sequence[Resend], /) -> None:
        """See `TakeSession.begin_sends`."""
        ...

    def abandon(self) -> None:
        """See `TakeSession.abandon_sends`."""
        ...


class TokenSession(Generic[H]):
    """The part of a `broker.TakeSession` that its token queue and its transactions do."""

    _token: TokenQueue[H]
    _ahead: Ahead

    def take_token(self, timeout_s: float) -> int | None:
        """Return the number of the token once the broker hands it over; None = not in time."""
        return self._token.take(timeout_s)

    def release_token(self) -> None:
        """Give the token back, uncounted, and wait for it no more, until `take_token`.

        Raises:
            LinkLost: the connection is gone, or the broker does not answer.
        """
        self._token.release()

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not; None = unknown."""
        return self._token.exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns."""
        self._token.create(cycle)

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, they never happened."""
        self._ahead.begin(sends)

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun."""
        self._ahead.abandon()
