"""The state machine of one client's connection: bytes in, bytes and effects out; no IO."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from amqsidecar.formats.amqp_frames import FrameCutter, FrameFragment
from amqsidecar.formats.interception_seal import CopyKeysOf
from amqsidecar.formats.stomp_stream import Piece, StreamCutter


class OnFailure(StrEnum):
    """Treatment of a message that its consumer gives up and that can't be saved."""

    CLOSED = "closed"
    OPEN = "open"


class GiveUp(StrEnum):
    """How a consumer gave a message up: STOMP's NACK, an outcome of AMQP."""

    NACK = "nack"
    REJECTED = "rejected"
    MODIFIED = "modified"


class NackOutcome(StrEnum):
    """Outcome of a message that its consumer gave up."""

    INTERCEPTED = "intercepted"
    NOTED = "noted"
    PASSED = "passed"
    REFUSED = "refused"


class Pieces(Protocol):
    """Bytes that are read as they are sent."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the content, whole.

        Raises:
            OSError: it can't be read.
        """


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
    """The outcome of messages that a consumer gave up; `why` explains it."""

    how: GiveUp
    outcome: NackOutcome
    messages: int
    why: str = ""


class Ended(NamedTuple):
    """The connection must end: unacknowledged messages return to the broker."""

    why: str


Effect = ToBroker | BodyToBroker | ToClient | Settled | Ended


class ClientSession(ABC):
    """One client's connection as a state machine: both directions, cut, and their effects.

    Attributes:
        login: the client's user; "" = not known.
        is_logged_in: the broker has accepted its log-in, or the protocol is passed on unread.
    """

    _from_client: FrameCutter | StreamCutter
    _from_broker: FrameCutter | StreamCutter
    # Of the client, cut, and not looked at yet.
    _waiting: Collection[FrameFragment | Piece]
    # Of the broker: a message of which the end has not been seen.
    _arriving: object = None

    def __init__(
        self, on_failure: OnFailure, prefixes: tuple[str, ...], keys: CopyKeysOf | None
    ) -> None:
        """Begin with a connection that was just made.

        Args:
            on_failure: treatment of a message that can't be saved.
            prefixes: prefixes of destination names that the acceptor removes.
            keys: keys that seal copies; None = copies have no seal.
        """
        self._on_failure = on_failure
        self._prefixes = prefixes
        self._keys = keys
        self.login = ""
        self.is_logged_in = False
        self._client_is_plain = self._broker_is_plain = False
        self._is_over = False
        self._effects: list[Effect] = []
        # Of the listener's own to the client: goes out behind the frame that is going out.
        self._said: list[bytes] = []

    @property
    def is_unread(self) -> bool:
        """Whether the client's bytes are passed on unread, a log-in among them."""
        return self._client_is_plain

    @property
    def is_waiting(self) -> bool:
        """Whether the client's bytes have to wait for the broker; feed no more of them."""
        return bool(self._waiting)

    @property
    def held_bytes(self) -> int:
        """Bytes held for the client beside messages: frames, names, waiting pieces."""
        cut = self._from_client.held_bytes + self._from_broker.held_bytes
        names = len(self.login) + self._named_bytes
        return cut + names + sum(len(one.raw) for one in self._waiting)

    @property
    @abstractmethod
    def _named_bytes(self) -> int:
        """Bytes of the names of the client and of its open links or subscriptions."""

    @property
    @abstractmethod
    def is_rescuing(self) -> bool:
        """Whether something was sent whose confirmation is missing."""

    @abstractmethod
    def from_client(self, data: bytes) -> list[Effect]:
        """Take in bytes of the client."""

    @abstractmethod
    def from_broker(self, data: bytes) -> list[Effect]:
        """Take in bytes of the broker."""

    @abstractmethod
    def close(self) -> None:
        """Release the space of all kept bodies."""

    def client_ended(self) -> list[Effect]:
        """Return the bytes held back of the client; for when it sends no more."""
        rest = self._from_client.rest()
        return self._done([ToBroker(rest)] if rest else [])

    def broker_ended(self) -> list[Effect]:
        """Return the bytes held back of the broker; for when it sends no more."""
        rest = self._from_broker.rest()
        return self._done([ToClient(rest)] if rest else [])

    @property
    def _sealing_key(self) -> bytes | None:
        return None if self._keys is None else self._keys()[0]

    def _say(self, frame: bytes) -> None:
        """Send a frame of the listener to the client where its stream permits one."""
        if self._arriving is None and self._from_broker.is_between_frames:
            self._effects.append(ToClient(frame))
        else:
            self._said.append(frame)

    def _failed(self, how: GiveUp, count: int, why: str, *, is_destroyed: bool = True) -> bool:
        """Return whether the client's frame is passed on although its messages can't be saved."""
        is_refused = is_destroyed and self._on_failure is OnFailure.CLOSED
        outcome = NackOutcome.REFUSED if is_refused else NackOutcome.PASSED
        self._effects.append(Settled(how, outcome, count, why))
        if is_refused:
            self._end(f"a message that its consumer gave up can't be saved: {why}")
        return not is_refused

    def _end(self, why: str) -> None:
        self._is_over = True
        self._effects.append(Ended(why))

    def _done(self, effects: Sequence[Effect] = ()) -> list[Effect]:
        done = [*self._effects, *effects]
        self._effects.clear()
        return done
