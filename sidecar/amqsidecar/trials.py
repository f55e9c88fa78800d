"""Additions to the link contract for doctor; each part is optional."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from amqsidecar.broker import Delivery, IntakeQueue, Link, LookSession, TakeSession
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.send_terms import SideEffect


class TellsRoles(Protocol):
    """Trials that know the roles of an address and the kind of a queue (Artemis)."""

    def is_purged(self, destination: Destination) -> bool:
        """Return whether the broker empties a queue when its last reader leaves; False = not known.

        Such a queue must not be tried to read.
        """

    def refusals(self) -> tuple[str, ...]:
        """Return the broker's words why it can't be asked; () = it can."""

    def addresses(self) -> tuple[str, ...]:
        """Return the names of all addresses; () = it can't be asked."""

    def roles(self, address: str) -> tuple[Mapping[str, Any], ...]:
        """Return the roles of an address with their rights; () = the broker can't be asked."""


class TellsResendEffects(Protocol):
    """Trials that know the broker's further effects on redeliveries (Artemis)."""

    def resend_effects(
        self, settings_of: Mapping[str, Mapping[str, Any]], /
    ) -> Mapping[str, Sequence[SideEffect]]:
        """Return further effects of the broker on redeliveries to the queues of each address.

        Raises:
            BrokerRefused: this user may not ask.
        """


class ListsMessages(Protocol):
    """Trials that list messages that their link can't browse (Artemis over STOMP)."""

    def list_messages(self, queue: IntakeQueue, at_most: int, /) -> Sequence[Delivery]:
        """Return messages as the broker describes them, without their bodies.

        Raises:
            BrokerRefused: it refuses the answer.
        """


class TellsExpiration(Protocol):
    """Trials that read the expiry of our token at the broker (Classic over OpenWire and STOMP)."""

    def token_expiration_ms(self) -> int | None:
        """Return when our token will expire; 0 = never, None = no token."""


class BrokerDisk(msgspec.Struct, frozen=True):
    """The disk of a broker's journal and pages.

    Attributes:
        used: share of it that is in use, 0 to 1.
        limit: the broker blocks all producers while more is in use, 0 to 1; None = it does so now,
            and the limit is not known.
    """

    used: float
    limit: float | None

    @property
    def is_full(self) -> bool:
        """Whether the broker blocks all producers."""
        return self.limit is None or self.used > self.limit


class TellsDisk(Protocol):
    """Trials that see how full the broker's disk is (Artemis)."""

    def disk(self) -> BrokerDisk | None:
        """Return how full it is; None = it can't be asked, or there is no limit."""


class TellsAcceptors(Protocol):
    """Trials that see how clients reach the broker (Artemis)."""

    def acceptors_of(self, protocol: str) -> tuple[str, ...]:
        """Return the names of the acceptors that take clients of a protocol, such as `STOMP`.

        () = none, or not known.
        """


class TrialFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Optional parts of trials; None = not supported.

    Attributes:
        roles: roles of an address, and the kind of a queue.
        effects: further effects of the broker on redeliveries.
        messages: lists messages that the link can't browse.
        expiration: the expiry that the broker gave our token.
        disk: how full the broker's disk is.
        acceptors: how clients reach the broker.
    """

    roles: TellsRoles | None = None
    effects: TellsResendEffects | None = None
    messages: ListsMessages | None = None
    expiration: TellsExpiration | None = None
    disk: TellsDisk | None = None
    acceptors: TellsAcceptors | None = None


class Trials(Protocol):
    """Tries the user's rights; takes nothing and leaves nothing but queues that were missing."""

    @property
    def features(self) -> TrialFeatures:
        """The optional parts of these trials."""

    @property
    def can_remove(self) -> bool:
        """Whether queues can be removed over this wire by this user."""

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can."""

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed."""

    def remove(self, destination: Destination) -> str | None:
        """Remove a queue of the doctor's own, or only empty it; return a sentence why it stays."""

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the queues that these names and wildcards stand for now.

        Raises:
            BrokerRefused: the broker does not report which queues it has.
        """

    def broker_ms(self) -> int | None:
        """Return the broker's clock at a moment since the link was opened; None = unknown."""

    def would_leave(self, queue: IntakeQueue, /) -> tuple[LeftBehind, ...]:
        """Return the messages that a run would leave in a dead-letter queue; () = none.

        Raises:
            BrokerRefused: it is unknown; the sentence says why.
        """


class ExaminedSession(LookSession, Protocol):
    """A session that only looks, over which rights can be tried."""

    def trials(self) -> Trials:
        """Return the trials of this session."""


class ExaminedTakeSession(TakeSession, ExaminedSession, Protocol):
    """A session with a token, over which rights can be tried."""


class ExaminedLink(Link, Protocol):
    """A link over whose sessions rights can be tried."""

    def look(self) -> ExaminedSession:
        """See `Link.look`."""

    def take(self, token_queue: str) -> ExaminedTakeSession:
        """See `Link.take`."""
