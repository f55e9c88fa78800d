"""The methods that a pair needs of its two wires, besides the contract.

Each wire reads only its own clients' messages, so no message is read by both.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from amqsidecar.broker import (
    InstanceToken,
    IntakeQueue,
    IntakeSession,
    LookSession,
    MoveSession,
    TakeSession,
)
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.model.destination import Destination
from amqsidecar.schedule import ShowsSchedule
from amqsidecar.trials import ExaminedSession


class LookWire(ExaminedSession, ShowsSchedule, Protocol):
    """A session that looks, and can wait beside another one."""

    def descriptor(self) -> int:
        """Return the file descriptor of its socket: readable where `wait` has something to do."""

    def wait_beside(self, descriptor: int) -> None:
        """End each `wait` also when this descriptor is readable."""

    @property
    def routes(self) -> ArtemisRoutes:
        """Its cache of queues and addresses."""

    def share_routes(self, routes: ArtemisRoutes) -> None:
        """Share the knowledge of another wire to the same broker from now on."""


class WireIntake(Protocol):
    """Reads the dead-letter queues of one wire."""

    def held_back(self, queue: Destination) -> int | None:
        """Return how many messages of a queue are in hand and never received.

        None = one is still arriving in pieces.
        """

    def is_leaving(self, queue: Destination) -> bool:
        """Return whether a consumer of a queue is still open that was detached."""


class IntakeWire(IntakeSession, LookWire, Protocol):
    """The same of a session that reads dead-letter queues."""

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` would return something."""

    @property
    def intake(self) -> WireIntake:
        """The part that reads them."""

    def holds_selected(self, queue: IntakeQueue) -> bool:
        """Return whether a queue holds a message of its selector that is not handed out."""

    def is_bound(self, queue: Destination) -> bool:
        """Return whether the broker keeps messages of a queue for one consumer; True = unknown."""


class WireToken(InstanceToken, Protocol):
    """The token over one wire, which can give it back."""

    @property
    def number(self) -> int | None:
        """Its number while it is in hand or on its way; None = there is none."""

    def release(self) -> None:
        """Give the token back and wait for it no more, until `take`.

        When it returns, the token is in its queue; that does not count as a failed delivery.
        """


class TakeWire(TakeSession, IntakeWire, Protocol):
    """The same of a session with a token."""

    @property
    def token(self) -> WireToken:
        """The token of the instance."""


class MoveWire(MoveSession, IntakeWire, Protocol):
    """The same of a session without a token."""


class LinkOfWire(Protocol):
    """Opens such sessions; see `broker.Link`."""

    def look(self) -> LookWire:
        """See `Link.look`."""

    def take(self, token_queue: str) -> TakeWire:
        """See `Link.take`; does not wait for the token before `take`."""

    def move(self) -> MoveWire:
        """See `Link.move`."""


@contextmanager
def closed_on_failure(first: LookSession, second: LookSession) -> Iterator[None]:
    """Close two sessions where the block fails."""
    try:
        yield
    except BaseException:
        close_both(first, second)
        raise


def close_both(first: LookSession, second: LookSession) -> None:
    """Close two sessions; never raises."""
    try:
        second.close()
    finally:
        first.close()
