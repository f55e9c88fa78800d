"""Taking dead letters of one Artemis over two wires, with one token.

Each transaction is on the wire of what it accepts and sends, and exchanges the token there. Before
a cycle of the other wire the token changes wires: it is given back, which does not count as a
failure, and received again. Whoever gets it meanwhile owns the instance, and this session ends.
"""

from collections.abc import Callable, Collection, Sequence

from amqsidecar.broker import Delivery, Features, Resend
from amqsidecar.brokers.artemis_pair.intake import PairIntake
from amqsidecar.brokers.artemis_pair.wire import TakeWire, WireToken
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CHANGING_WIRES, CrashPoint
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import Destination

_TOKEN_TIMEOUT_S = 15.0


class PairTake(PairIntake):
    """A session of an instance over two wires; see `broker.TakeSession`."""

    wires: tuple[TakeWire, TakeWire]

    def __init__(
        self, first: TakeWire, second: TakeWire, clock: Clock, crash_point: CrashPoint
    ) -> None:
        """Take over two open sessions; the first one waits for the token."""
        super().__init__(first, second, clock)
        self._holder = 0
        self.ahead = self
        self._crash_point = crash_point
        # Why: of two waiting consumers the broker may hand the token to either.
        second.token.release()

    @property
    def features(self) -> Features:
        first, second = (wire.features for wire in self.wires)
        batches = [one.preferred_batch for one in (first, second) if one.preferred_batch]
        return Features(
            preferred_batch=min(batches, default=0),
            background=self if first.background and second.background else None,
            choosing=self if first.choosing and second.choosing else None,
            settings=first.settings,
            delayed=first.delayed,
            selects_origins=first.selects_origins and second.selects_origins,
        )

    @property
    def token(self) -> WireToken:
        """The token, in the hand of the wire that has it or waits for it."""
        return self.wires[self._holder].token

    def begin(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction, on their wire."""
        self.wires[self._number_of((), sends, self._holder)].ahead.begin(sends)

    def abandon(self) -> None:
        for wire in self.wires:
            wire.ahead.abandon()

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, and exchange the token in one transaction of the wire of these messages."""
        number = self._number_of(accepts, sends, self._holder)
        if number != self._holder:
            self._change_to(number)
        self.wires[number].commit_cycle(accepts, sends, token)

    def _change_to(self, wire: int) -> None:
        """Move the token to another wire.

        If the process dies inside, the token is in its queue or in a hand of ours.

        Raises:
            LinkLost: another process got it.
        """
        held = self.token.number
        self.token.release()
        self._holder = wire
        self._crash_point(CHANGING_WIRES)
        number = self.token.take(_TOKEN_TIMEOUT_S)
        if number is None or number != held:
            came = "did not come" if number is None else f"{number} came"
            raise LinkLost(f"token {held} was to change wires, and {came}: another process has it")

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        for wire in self.wires:
            if (background := wire.features.background) is not None:
                background.while_committing(begin_next)

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool | None:
        """Return whether a queue holds a message of these ids that is not handed out.

        One wire is asked: the answer is the broker's.
        """
        choosing = self.wires[0].features.choosing
        return None if choosing is None else choosing.holds_chosen(queue, redelivery_ids)
