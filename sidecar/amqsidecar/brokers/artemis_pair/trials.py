"""What a doctor tries on an Artemis over two wires: the rights are those of the first one."""

from collections.abc import Sequence

from amqsidecar.broker import IntakeQueue
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.trials import TrialFeatures, Trials


class PairTrials:
    """Trials over the first of two wires; see `trials.Trials`."""

    def __init__(self, first: Trials) -> None:
        self._first = first

    @property
    def features(self) -> TrialFeatures:
        """What these trials can find out beyond the contract."""
        return self._first.features

    @property
    def can_remove(self) -> bool:
        """Whether queues can be removed over this wire by this user."""
        return self._first.can_remove

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can."""
        return self._first.read(destination)

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed."""
        return self._first.write(destination)

    def remove(self, destination: Destination) -> str | None:
        """Remove a queue of ours; return why it may stay."""
        return self._first.remove(destination)

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the queues that these names stand for now."""
        return self._first.expand(queues)

    def broker_ms(self) -> int | None:
        """Return the broker's clock at a moment since the link was opened; None = unknown."""
        return self._first.broker_ms()

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return what neither wire would take of a dead-letter queue.

        Raises:
            BrokerRefused: the broker does not report it; the message names the reason.
        """
        return self._first.would_leave(queue)
