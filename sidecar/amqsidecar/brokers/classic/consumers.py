"""The consumers of one connection to Classic, over OpenWire and STOMP."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Sized
from typing import Final, Protocol

from amqsidecar.clock import Clock
from amqsidecar.model.destination import Destination

HEARD_WITHIN_S: Final = 0.5
"""Maximum wait for the advisories of existing destinations, from the subscription on."""

Hear = Callable[[Destination, int], Sequence[Destination | None]]
"""Returns the topics of the advisories that a new consumer of a topic gets, up to a number."""

RunUntil = Callable[[Callable[[], bool], float], bool]
"""Processes input until a condition is true; returns False when the time is over before."""


class ClassicConnection(Protocol):
    """A connection over which Classic reports its queues."""

    is_woken: bool

    @property
    def name(self) -> str:
        """Host and port, for messages."""

    def poll(self) -> None:
        """Process the input that has arrived."""

    def run_until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is true; return False when the time is over before."""

    def wake(self) -> None:
        """End a running or the next `wait` at once; for any thread."""

    def reset(self) -> None:
        """Close it so that the broker notices at once; never raises."""


class ClassicConsumers(ABC):
    """Hands arriving messages to their consumers.

    Attributes:
        clock: where the time comes from.
    """

    def __init__(self, connection: ClassicConnection, clock: Clock) -> None:
        self.connection: ClassicConnection = connection
        self.clock = clock

    @abstractmethod
    def route(self) -> None:
        """Give each message that has arrived to its consumer."""

    def run_until(self, is_done: Callable[[], bool], timeout_s: float) -> bool:
        """See `RunUntil`."""

        def is_routed() -> bool:
            self.route()
            return is_done()

        return self.connection.run_until(is_routed, timeout_s)


def await_heard(run_until: RunUntil, heard: Sized, at_most: int) -> None:
    """Wait until a new consumer of an advisory topic has heard of all that exists.

    Quirk (Classic): over STOMP and AMQP it gets these advisories after the answer, and none of
    them says that it is the last.
    """
    counts = [-1]
    while counts[-1] < len(heard) < at_most:
        counts.append(len(heard))
        run_until(lambda: len(heard) > counts[-1], HEARD_WITHIN_S)
