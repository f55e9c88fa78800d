"""The link to Apache Artemis over Core and AMQP at once.

A broker transaction is on one wire, and so is a cycle: it accepts, sends and exchanges the token on
the wire of its dead letters. Before a cycle of the other wire the token changes wires: it is given
back, which does not count as a failure, and received again. A process that gets it meanwhile owns
the instance, and this session ends. The first wire asks about queues, routes and settings.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from amqsidecar.broker import Delivery, Features, Resend
from amqsidecar.brokers.artemis_pair.intake import PairIntake
from amqsidecar.brokers.artemis_pair.look import PairLook
from amqsidecar.brokers.artemis_pair.second_wire import SecondWire
from amqsidecar.brokers.artemis_pair.wire import (
    LinkOfWire,
    LookWire,
    MoveWire,
    TakeWire,
    WireToken,
    closed_on_failure,
)
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CHANGING_WIRES, CrashPoint, no_crash
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.destination import Destination

_TOKEN_TIMEOUT_S = 15.0


class PairTake(PairIntake):
    """A session of an instance over two wires; see `broker.TakeSession`."""

    wires: tuple[TakeWire, TakeWire]

    def __init__(
        self, first: TakeWire, second: TakeWire, clock: Clock, crash_point: CrashPoint
    ) -> None:
        """Take over two open sessions; the first session waits for the token."""
        super().__init__(first, second, clock)
        self._holder = 0
        self.ahead = self
        self._crash_point = crash_point
        # Why: of two waiting consumers the broker may hand the token to either.
        second.token.release()

    @property
    def features(self) -> Features:
        told = self.wires[0].features
        choosing = self if told.choosing else None
        return msgspec.structs.replace(told, background=self, choosing=choosing)

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


class PairMove(PairIntake):
    """A session without a token over two wires; see `broker.MoveSession`."""

    wires: tuple[MoveWire, MoveWire]

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one transaction of the wire of these messages; durable at the end."""
        self.wires[self._number_of(accepts, sends)].move(accepts, sends)

    def waiting_problem(self, destination: Destination) -> str | None:
        return self.wires[0].waiting_problem(destination)

    def clock_ahead_ms(self) -> int:
        return max(wire.clock_ahead_ms() for wire in self.wires)


W = TypeVar("W", bound=LookWire)

_log = logging.getLogger(__name__)


class ArtemisPairLink:
    """Opens a connection of each of two links; see `Link` of the broker contract.

    Args:
        first: asks the broker about its queues; reads all messages that the second does not.
        second: reads the messages of its own clients.
        second_wire: whether the broker speaks it.
        crash_point: called where the token changes wires.
    """

    def __init__(
        self,
        first: LinkOfWire,
        second: LinkOfWire,
        *,
        second_wire: SecondWire,
        clock: Clock,
        crash_point: CrashPoint = no_crash,
    ) -> None:
        self._first = first
        self._second = second
        self._second_wire = second_wire
        self._clock = clock
        self._crash_point = crash_point

    def look(self) -> LookWire | PairLook:
        first, second = self._opened(self._first.look, self._second.look)
        if second is None:
            return first
        with closed_on_failure(first, second):
            return PairLook(first, second, self._clock)

    def take(self, token_queue: str) -> TakeWire | PairTake:
        """Connect and log in; either wire can have the token."""
        first, second = self._opened(
            lambda: self._first.take(token_queue), lambda: self._second.take(token_queue)
        )
        if second is None:
            return first
        with closed_on_failure(first, second):
            return PairTake(first, second, self._clock, self._crash_point)

    def move(self) -> MoveWire | PairMove:
        first, second = self._opened(self._first.move, self._second.move)
        if second is None:
            return first
        with closed_on_failure(first, second):
            return PairMove(first, second, self._clock)

    def _opened(
        self, open_first: Callable[[], W], open_second: Callable[[], W]
    ) -> tuple[W, W | None]:
        """Return sessions over both wires, or None in place of the second where it does not open.

        Nothing stays open where this fails.
        """
        first = open_first()
        wire = self._second_wire
        try:
            if wire.is_known_absent():
                return first, None
            second = self._ask_and_open(open_second)
        except BaseException:
            first.close()
            raise
        if second is None:
            # Why reopen: without heartbeats meanwhile the broker may have dropped it.
            first.close()
            first = open_first()
        return first, second

    def _ask_and_open(self, open_second: Callable[[], W]) -> W | None:
        """Return a session over the second wire; None = it does not open, which is noted."""
        wire = self._second_wire
        try:
            second = open_second() if wire.ask() else None
        except (LinkLost, BrokerRefused) as error:
            wire.failed(error)
            second = None
        if second is None:
            # Why go on: the first wire has just reached the port, and reports messages it leaves.
            _log.warning(
                "Core alone is used, and messages of AMQP clients stay in the dead-letter queues: "
                "%s",
                wire.reason,
            )
        return second
