"""Tries the rights of the sidecar's user on Classic, over OpenWire and STOMP."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from amqsidecar.brokers.classic.queues import ClassicQueues
from amqsidecar.brokers.connection.refusal import raised_as, refusal_of
from amqsidecar.model.destination import Destination
from amqsidecar.trials import TrialFeatures


class ListingTrials(ABC):
    """Trials over one connection, over which Classic reports its queues."""

    def __init__(self, queues: ClassicQueues, token_queue: Destination | None) -> None:
        """Try nothing yet; a session without a token has no token queue."""
        self._queues = queues
        self._token_queue = token_queue

    @property
    def features(self) -> TrialFeatures:
        return TrialFeatures(expiration=self)

    @abstractmethod
    def _consume_nothing(self, destination: Destination) -> None:
        """Begin and end to consume, without taking a message; raises RequestRefused."""

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The broker makes the destination where it is missing.
        """
        return refusal_of(lambda: self._consume_nothing(destination))

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        with raised_as():
            return tuple(self._queues.expand(queues, self._token_queue))

    @abstractmethod
    def _times_of_token(self, token_queue: Destination) -> tuple[int, int] | None:
        """Return when the broker stored our token and when it expires, 0 = unknown or never.

        None = no token; raises RequestRefused.
        """

    def _times(self) -> tuple[int, int] | None:
        with raised_as():
            return None if self._token_queue is None else self._times_of_token(self._token_queue)

    def broker_ms(self) -> int | None:
        """Return the broker's clock when it stored our token; None = no token."""
        times = self._times()
        return (times[0] or None) if times else None

    def token_expiration_ms(self) -> int | None:
        """Return when our token will expire; 0 = never, None = no token.

        It was sent without an expiration, so that the broker must have given it one.
        """
        times = self._times()
        return times[1] if times else None
