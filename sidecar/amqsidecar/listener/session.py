"""What a relay asks of one client's connection: bytes in, bytes and effects out; no IO."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple, Protocol


class OnFailure(StrEnum):
    """What happens to a message that its consumer gives up and that can't be saved."""

    CLOSED = "closed"
    OPEN = "open"


class NackOutcome(StrEnum):
    """What became of a message that its consumer gave up."""

    INTERCEPTED = "intercepted"
    PASSED = "passed"
    REFUSED = "refused"


class Pieces(Protocol):
    """Bytes that are read as they are sent."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the content, whole.

        Raises:
            OSError: it can't be read.
        """
        ...


class ToBroker(NamedTuple):
    """Bytes for the broker."""

    data: bytes


class BodyToBroker(NamedTuple):
    """A kept body for the broker."""

    body: Pieces


class ToClient(NamedTuple):
    """Bytes for the client."""

    data: bytes


class Settled(NamedTuple):
    """A message that a consumer gave up has met its outcome; of `REFUSED` `why` has the words."""

    outcome: NackOutcome
    messages: int
    why: str = ""


class Ended(NamedTuple):
    """The connection must end: what was not acknowledged is the broker's again."""

    why: str


Effect = ToBroker | BodyToBroker | ToClient | Settled | Ended


class ClientSession(Protocol):
    """One client's connection as a state machine.

    Attributes:
        login: the client's user; "" = not known.
    """

    login: str

    @property
    def is_waiting(self) -> bool:
        """Whether the client's bytes have to wait for the broker; feed no more of them."""
        ...

    @property
    def is_rescuing(self) -> bool:
        """Whether something was sent whose confirmation is missing."""
        ...

    def from_client(self, data: bytes) -> list[Effect]:
        """Take in what the client sent."""
        ...

    def from_broker(self, data: bytes) -> list[Effect]:
        """Take in what the broker sent."""
        ...

    def client_ended(self) -> list[Effect]:
        """Give out what was held back of the client; for when it sends no more."""
        ...

    def broker_ended(self) -> list[Effect]:
        """Give out what was held back of the broker; for when it sends no more."""
        ...

    def close(self) -> None:
        """Give the room of all kept bodies back."""
        ...
