"""Chooses the valid token in the private queue on Classic, on every wire.

Source: `broker.py` on the token; both wires read and remove one message at a time.
"""

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from amqsidecar.clock import Clock
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import Destination

PREFETCH = 10
"""Maximum tokens that a link receives; more than one needs a crash at the first start."""

HeldT = TypeVar("HeldT")


class Connection(Protocol):
    """The part of a connection that is needed to wait for tokens."""

    def poll(self) -> None:
        """Take in what has arrived."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Block until something arrives, or the time is over."""
        ...


class Routes(Protocol):
    """Hands what has arrived to those that asked for it."""

    def route(self) -> None:
        """Hand it over."""
        ...


class TokenChoice(ABC, Generic[HeldT]):
    """Waits for tokens and keeps the one in hand; `HeldT` is what the wire accepts it by."""

    def __init__(
        self, destination: Destination, connection: Connection, routes: Routes, clock: Clock
    ) -> None:
        self._destination = destination
        self._waits = connection
        self._routes = routes
        self._clock = clock
        self._tokens: list[tuple[int, HeldT]] = []
        self._is_only_one = False

    @abstractmethod
    def _count(self) -> int:
        """Return how many tokens lie in the queue, handed out or not, up to `PREFETCH` + 1."""

    @abstractmethod
    def _remove(self, held: HeldT) -> None:
        """Accept a token outside of any transaction."""

    @abstractmethod
    def create(self, cycle: int) -> None:
        """Send a token outside of any transaction; durable when this returns.

        Raises:
            RequestRefused: the broker does not take it.
        """

    def take(self, timeout_s: float) -> tuple[int, HeldT] | None:
        """Return the token once the broker hands it over; None = not in time.

        Of several the highest counts. The others are removed one by one, so that the highest stays
        if the process dies inside.

        Raises:
            LinkLost: another one came later, which only this sidecar may send.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        if not self._await(1, deadline_s):
            return None
        while not self._is_only_one:
            waiting = self._count()
            if not self._await(min(waiting, PREFETCH), deadline_s):
                return None
            self._tokens.sort(key=lambda token: token[0])
            for _, held in self._tokens[:-1]:
                self._remove(held)
            del self._tokens[:-1]
            self._is_only_one = waiting <= PREFETCH
        if len(self._tokens) > 1:
            # Why: it is settled which one is ours when all of them are delivered again.
            numbers = ", ".join(str(number) for number, _ in self._tokens)
            raise LinkLost(f"{self._destination} holds several tokens: {numbers}")
        return self._tokens[-1]

    def _await(self, count: int, deadline_s: float) -> bool:
        while True:
            self._waits.poll()
            self._routes.route()
            if len(self._tokens) >= count:
                return True
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            self._waits.wait(left_s)

    def exists(self) -> bool:
        """Return whether the queue holds a token, handed out or not."""
        return bool(self._tokens) or self._count() > 0

    def exchanged(self) -> None:
        """Record that the token in hand was consumed by its committed transaction."""
        del self._tokens[0]
