"""The part of sessions over Core and AMQP, whose transactions accept dead letters and send."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from amqsidecar.broker import Delivery, Features, Resend
from amqsidecar.brokers.artemis.chosen import ChoosingIntake, ChosenMessages
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.artemis.meeting import Meeting
from amqsidecar.brokers.artemis.session import DelayingSession, ReadingSession
from amqsidecar.brokers.token_session import TokenSession
from amqsidecar.model.destination import Destination

H = TypeVar("H")


class AcceptingIntake(ChoosingIntake, Protocol[H]):
    """What reads dead-letter queues, and knows deliveries by handles."""

    @property
    def queues(self) -> tuple[Destination, ...]:
        """The queues that are read now, each by name."""
        ...

    def held_back(self, queue: Destination, /) -> int | None:
        """See `IntakeWire.held_back`."""
        ...

    def is_leaving(self, queue: Destination, /) -> bool:
        """See `IntakeWire.is_leaving`."""
        ...

    def in_hand(self, deliveries: Sequence[Delivery], /) -> list[H]:
        """Return the handles of deliveries.

        Raises:
            LinkLost: one is not in hand any more.
        """
        ...

    def settle(self, held: list[H], /) -> None:
        """Forget what a committed transaction has accepted, and make room for more."""
        ...


class AcceptingMoves(Protocol[H]):
    """Transactions without a token."""

    def move(self, held: list[H], sends: Sequence[Resend], /) -> None:
        """See `MoveSession.move`."""
        ...


class AcceptingCycle(Protocol[H]):
    """Transactions with a token.

    Attributes:
        while_committing: called in a commit once the broker was asked; may begin the next sends.
    """

    while_committing: Callable[[], None]

    def commit(self, held: list[H], sends: Sequence[Resend], token: int, /) -> None:
        """See `TakeSession.commit_cycle`."""
        ...


M = TypeVar("M", bound=ArtemisQuestions)
N = TypeVar("N", bound=AcceptingIntake[Any])


class AcceptingSession(ReadingSession[M], DelayingSession[M], Generic[M, N]):
    """The part of a `broker.IntakeSession` that its intake answers."""

    _intake: N
    _chosen: ChosenMessages

    def held_back(self, queue: Destination) -> int | None:
        """Return how many messages of a queue are in hand and never received; None = unknown yet.

        It is unknown while one arrives in pieces.
        """
        return self._intake.held_back(queue)

    def is_leaving(self, queue: Destination) -> bool:
        """Return whether a consumer of a queue is still open that was detached."""
        return self._intake.is_leaving(queue)

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return self._intake.queues


class AcceptingTake(AcceptingSession[M, N], TokenSession[H], Generic[M, N, H]):
    """The part of a `broker.TakeSession` that its transactions do."""

    _cycle: AcceptingCycle[Any]

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(
            background=self, choosing=self._chosen, settings=self._live_settings, delayed=self
        )

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        """Call this in each `commit_cycle`, once the broker was asked to commit."""
        self._cycle.while_committing = begin_next

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, exchange the token in one transaction; durable when it returns."""
        held = self._intake.in_hand(accepts)
        self._cycle.commit(held, sends, token)
        self._intake.settle(held)


class AcceptingMove(AcceptingSession[M, N]):
    """The part of a `broker.MoveSession` that its transactions do.

    Attributes:
        _met: what the broker's clock said.
    """

    _moves: AcceptingMoves[Any]
    _met: Meeting

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one transaction; durable when it returns."""
        held = self._intake.in_hand(accepts)
        self._moves.move(held, sends)
        self._intake.settle(held)

    def clock_ahead_ms(self) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""
        return self._met.ahead_ms(self._clock)
