"""The part of sessions with a token over the wires on which Classic reports its queues."""

from collections.abc import Sequence

from amqsidecar.broker import IntakeQueue, Resend
from amqsidecar.brokers.classic.session import ListingSession
from amqsidecar.brokers.classic.wildcards import WildcardIntake
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class ListingTake(ListingSession):
    """The part of a `broker.TakeSession` that its queues do.

    `token.exists` is certain: the client id keeps every other connection of the instance out, and
    whatever an earlier one left open was rolled back before the broker accepted this one.
    """

    _token_queue: Destination
    _wildcards: WildcardIntake
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

    def _find_full(self) -> None:
        self._rooms.give_up(self._connection, self._sending, self._takes, self._token_queue)
