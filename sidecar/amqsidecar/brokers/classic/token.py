"""Messages of the token queue on Classic, over OpenWire and STOMP; see `brokers/token_queue.py`."""

from abc import abstractmethod
from collections.abc import Sequence

from typing_extensions import override

from amqsidecar.brokers.classic.consumers import ClassicConsumers
from amqsidecar.brokers.connection.refusal import raised_as
from amqsidecar.brokers.token import Token
from amqsidecar.brokers.token_queue import H, TokenMessage, TokenWire
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import Destination

PREFETCH = 10
"""Maximum tokens that a link receives; more than one needs a crash at the first start."""


class ClassicTokenWire(TokenWire[H]):
    """Reads tokens one at a time, and leaves all other messages of the queue alone."""

    accepts_later = False

    def __init__(
        self, destination: Destination, consumers: ClassicConsumers, rules_digest: str
    ) -> None:
        self._destination = destination
        self._consumers: ClassicConsumers = consumers
        self._rules_digest = rules_digest
        self._arrived: list[tuple[int, H]] = []
        self._is_in_hand = False

    @abstractmethod
    def _subscribe(self) -> None:
        """Begin to read; raises RequestRefused."""

    @abstractmethod
    def _count(self) -> int:
        """Return how many tokens lie in the queue, handed out or not, up to `PREFETCH` + 1.

        Raises:
            RequestRefused: the user may not browse it.
        """

    @override
    def open(self) -> None:
        with raised_as(f"{self._destination} can't be read: {{}}"):
            self._subscribe()

    @override
    def poll(self) -> None:
        self._consumers.connection.poll()
        self._consumers.route()
        if self._is_in_hand:
            self._refuse_others()

    def _refuse_others(self) -> None:
        # Why: it is settled which one is ours when all of them are delivered again.
        if self._arrived:
            raise LinkLost(
                f"{self._destination} holds several tokens: {self._arrived[0][0]} came while "
                "another one was in hand"
            )

    @override
    def collect(self, timeout_s: float) -> Sequence[TokenMessage[H]]:
        clock = self._consumers.clock
        deadline_s = clock.monotonic_s() + timeout_s
        while self._await(1, deadline_s - clock.monotonic_s()):
            waiting = self._count_or_raise()
            if not self._await(min(waiting, PREFETCH), deadline_s - clock.monotonic_s()):
                break
            self._arrived.sort(key=lambda one: one[0])
            if waiting <= PREFETCH:
                found, self._arrived = self._arrived, []
                self._is_in_hand = True
                return [_found(*one) for one in found]
            # Why the highest stays: it counts, and the process may die before the rest has come.
            self.drop([handle for _, handle in self._arrived[:-1]])
            del self._arrived[:-1]
        return ()

    @override
    def next(self, timeout_s: float) -> TokenMessage[H] | None:
        if not self._await(1, timeout_s):
            return None
        self._is_in_hand = True
        return _found(*self._arrived.pop(0))

    def _await(self, count: int, timeout_s: float) -> bool:
        self._consumers.connection.poll()
        return self._consumers.run_until(lambda: len(self._arrived) >= count, timeout_s)

    @override
    def replace(self, handle: H, token: Token) -> bool:
        # Why: Classic hands a message out as often as it is given back without a failure.
        return False

    @override
    def settle(self, handle: H) -> None:
        self._is_in_hand = False

    @override
    def holds_any(self) -> bool | None:
        return bool(self._arrived) or self._count_or_raise() > 0

    def _count_or_raise(self) -> int:
        with raised_as(f"can't browse {self._destination}: {{}}"):
            return self._count()


def _found(number: int, handle: H) -> TokenMessage[H]:
    return TokenMessage(handle, Token("", number, {}), is_redelivered=False)
