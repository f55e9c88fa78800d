"""The part of sessions with a token over the wires on which Classic reports its queues."""

from collections.abc import Sequence
from typing import Generic

from amqsidecar.broker import IntakeQueue, Resend
from amqsidecar.brokers.classic.session import ConnectionT, ListingSession, QueuesT
from amqsidecar.brokers.classic.token import HeldT, TokenChoice
from amqsidecar.brokers.classic.wildcards import WildcardIntake
from amqsidecar.brokers.connection.refusal import RequestRefused
from amqsidecar.brokers.sends_ahead import BegunT, SendsAhead
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

_TOKEN_TIMEOUT_S = 60.0


class ListingTake(
    ListingSession[ConnectionT, QueuesT], Generic[ConnectionT, QueuesT, HeldT, BegunT]
):
    """What the queues, the token and the sends ahead of a `broker.TakeSession` do."""

    _token_queue: Destination
    _token: TokenChoice[HeldT]
    _wildcards: WildcardIntake
    _ahead: SendsAhead[BegunT]
    _sending: Sequence[Resend]

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues only; deliveries from others stay valid.

        A wildcard stands for all queues that it matches, now and later, but for those that the
        sidecar itself writes to, and those that can't be read: `left_behind` reports these.

        Raises:
            QueueRefused: a named one can't be read, or a wildcard can't be expanded.
        """
        finals = frozenset(intake.destination for intake in queues if intake.is_final)
        self._queues.taken_back = finals
        self._wildcards.attach([intake.destination for intake in queues], prefetch)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return queues that a wildcard stands for and that can't be read."""
        return self._wildcards.left_behind()

    def queue_names(self) -> tuple[str, ...]:
        """Return the names of all queues of the broker but ours; later changes are reported.

        Raises:
            DiscoveryRefused: the broker does not report them.
            LinkLost: the connection is gone.
        """
        return self._wildcards.names()

    def queues_changed(self) -> bool:
        """Return whether discovery may find other queues than last time; wildcards need none."""
        return self._wildcards.has_changed()

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link listened, so that all in it is new."""
        return self._queues.is_newborn(destination.name)

    def take_token(self, timeout_s: float) -> int | None:
        """Return the cycle number of the token once the broker hands it over; None = not in time.

        Raises:
            LinkLost: the connection is gone.
        """
        try:
            token = self._token.take(timeout_s)
        except RequestRefused as cause:
            raise LinkLost(f"a token can't be removed: {cause}") from cause
        return None if token is None else token[0]

    def _token_in_hand(self) -> HeldT:
        """Return the token of the last cycle.

        Raises:
            LinkLost: the broker does not hand it over.
        """
        token = self._token.take(_TOKEN_TIMEOUT_S)
        if token is None:
            name = self._connection.name
            raise LinkLost(f"{name} did not hand over the token of the last cycle")
        return token[1]

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not.

        It is certain: the client id keeps every other connection of the instance out, and whatever
        an earlier one left open was rolled back before the broker accepted this one.
        """
        return self._token.exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.
        """
        try:
            self._token.create(cycle)
        except RequestRefused as cause:
            raise BrokerRefused(f"can't write to {self._token_queue}: {cause}") from cause

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, they never happened.

        Raises:
            LinkLost: the connection is gone.
        """
        self._ahead.begin(sends)

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun.

        Raises:
            LinkLost: the connection is gone, and with it what was begun.
        """
        self._ahead.abandon()

    def _find_full(self) -> None:
        self._rooms.give_up(self._connection, self._sending, self._takes, self._token_queue)
