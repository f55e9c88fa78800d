"""Looking at one Artemis over two wires."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from amqsidecar.broker import BrokerDescription, Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.artemis.left_behind import STUCK
from amqsidecar.brokers.artemis_pair.wire import LookWire, close_both
from amqsidecar.clock import Clock
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.outcome import Counters
from amqsidecar.model.send_terms import SendTerms
from amqsidecar.policy.selector import PropertyOf
from amqsidecar.schedule import BrokerSchedule
from amqsidecar.trials import Trials

_NOT_SHOWN = "not_listed"
_SERVED_EVERY_S = 0.5
"""How often a wire that waits beside the other is served at least, for its heartbeats."""


class PairLook:
    """A session over two wires; see `broker.LookSession`."""

    def __init__(self, first: LookWire, second: LookWire, clock: Clock) -> None:
        self._look_first = first
        self._look_second = second
        self._pair_clock = clock
        self._is_woken = False
        told = first.description
        self.description = BrokerDescription(
            told.kind, told.version, (*told.encodings, *second.description.encodings)
        )
        second.wait_beside(first.descriptor())
        # Why: only the first is asked about routes, and the second sends by the answers.
        second.share_routes(first.routes)

    @property
    def features(self) -> Features:
        """The optional features: those of both wires are the same."""
        return self._look_first.features

    def close(self) -> None:
        close_both(self._look_first, self._look_second)

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or time is over; serves both wires."""
        clock = self._pair_clock
        ends_at_s = clock.monotonic_s() + timeout_s
        while True:
            self._look_first.wait(0)
            self._serve()
            left_s = ends_at_s - clock.monotonic_s()
            if self._has_arrived() or self._is_woken or left_s <= 0:
                # Why reset before the last wait: a later wake ends the next call.
                self._is_woken = False
                # Why wait(0): it serves the heartbeats of the second wire, too.
                self._look_second.wait(0)
                return
            self._look_second.wait(min(left_s, _SERVED_EVERY_S))

    def _serve(self) -> None:
        """Do due work while nothing arrives."""

    def _has_arrived(self) -> bool:
        """Return whether `receive` would return something."""
        return False

    def wake(self) -> None:
        self._is_woken = True
        self._look_second.wake()

    def discover(self) -> tuple[IntakeQueue, ...]:
        return self._look_first.discover()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        return self._look_first.count(queue, at_most)

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        """Return the messages in a dead-letter queue, starting with the first wire's."""
        left, is_listed = at_most, False
        for one in self._look_first.browse(queue, at_most):
            left -= 1
            # Why look at bodies: a list without them already holds the messages of both wires.
            is_listed = is_listed or not one.message
            yield one
        if left and not is_listed:
            yield from self._look_second.browse(queue, left)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages that neither wire takes, and why."""
        return self._look_first.left_behind() + tuple(
            one for one in self._look_second.left_behind() if one.reason not in (_NOT_SHOWN, STUCK)
        )

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        return self._look_first.queue_counters(destinations)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        return self._look_first.foreign_tokens(known)

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        return self._look_first.send_terms(destination, makes=makes)

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        self._look_first.ask_terms_ahead(destinations)

    def filter_view(self, resend: Resend) -> PropertyOf:
        return self._look_first.filter_view(resend)

    def trials(self) -> Trials:
        """Return the trials of the user's rights over the first wire."""
        return self._look_first.trials()

    def schedule(self) -> BrokerSchedule:
        return self._look_first.schedule()
