"""What the contract suite of links needs of a broker; one class per link implements it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from amqsidecar.broker import IntakeQueue, Link, LookSession
from amqsidecar.model.destination import Destination
from support.brokers.real import Broker
from support.waiting import eventually


class Drained(NamedTuple):
    """A message as a plain consumer sees it.

    Attributes:
        id: the application property `testId`, which no broker changes.
        body: its text.
        properties: by name; numbers as int, whatever their type on the wire.
    """

    id: str
    body: str
    properties: Mapping[str, Any]


class LinkHarness(Protocol):
    """A broker with dead letters in it, and links to it; names begin with `prefix`."""

    name: str
    prefix: str

    def __init__(self, broker: Broker, prefix: str) -> None:
        """Prepare queues whose dead letters don't mix with those of other tests."""

    @property
    def orders(self) -> str:
        """The queue in which most messages die."""
        return f"{self.prefix}.orders"

    def make_link(self, instance: str) -> Link:
        """Return a link that is not opened."""

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        """Make `n` persistent text messages die in queue `origin`; return their ids in order.

        Each has an application property `testId`, its id; its body begins with it and is filled
        with dots.
        """

    def kill(self, queue_name: str) -> object:
        """Make dead letters of all that a queue holds."""

    def forward(self, queue_name: str, to: str) -> None:
        """Send on all that a queue holds, as an application does that copies the properties."""

    def intake(self) -> IntakeQueue:
        """Return the dead-letter queue in which they are."""

    def drain(self, queue_name: str) -> list[Drained]:
        """Consume and return all that a queue holds."""

    def depth(self, queue_name: str) -> int:
        """Return how many messages a queue holds, handed out ones too; 0 = there is no queue."""

    def exists(self, queue_name: str) -> bool:
        """Return whether the broker has a queue of that name."""

    def refusing_destination(self) -> Destination | None:
        """Return a destination to which the broker refuses sends; None = it has none."""

    def drop(self, link: LookSession) -> None:
        """Cut the link's connection without a word, as a crash does."""

    def close(self) -> None:
        """Close the harness's own connections."""


def await_depth(harness: LinkHarness, queue_name: str, count: int) -> None:
    """Wait until the broker counts this many messages in a queue.

    Why waiting: Artemis counts a message on its way from or to a consumer twice, or not at all, for
    a moment; under load a browser of Classic may end before it has seen what was committed.
    """
    eventually(
        lambda: harness.depth(queue_name) == count,
        what=f"{queue_name} holds {count}",
        last=lambda _: f"it holds {harness.depth(queue_name)}",
    )
