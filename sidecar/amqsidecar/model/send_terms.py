"""The broker's treatment of a send to a destination."""

from enum import StrEnum
from typing import NamedTuple

import msgspec


class ResendEffect(StrEnum):
    """An effect of a broker on a send, beside its delivery to the intended queue.

    Attributes:
        COMPOSITE: Classic: a composite destination forwards it again.
        MIRROR: Classic: a mirrored queue copies it to its topic again.
        DIVERT: Artemis: a divert copies it, or takes it away.
        LAST_VALUE: Artemis: it replaces a newer message of the same key, or the other way round.
        RING: Artemis: it evicts the oldest message of a queue of limited size.
        NON_DESTRUCTIVE: Artemis: it lies in its queue beside the message that died.
        DROP: Artemis: a full address drops it; Classic: a topic without a subscriber does.
        FILTER: Artemis: its queue's filter can't be evaluated by the sidecar and may not match it.
    """

    COMPOSITE = "composite"
    MIRROR = "mirror"
    DIVERT = "divert"
    LAST_VALUE = "last-value"
    RING = "ring"
    NON_DESTRUCTIVE = "non-destructive"
    DROP = "drop"
    FILTER = "filter"

    @property
    def option(self) -> str:
        """The configuration by which the operator accepts it."""
        return f"redelivery: {{allow: [{self}]}}"

    @property
    def advice(self) -> str:
        """The same as the end of a sentence."""
        return f"allow it by {self.option}"


class SideEffect(NamedTuple):
    """An effect of a broker on a message besides putting it into its queue.

    Attributes:
        kind: the value that allows it (`redelivery.allow`).
        what: as a sentence.
        mend: the fix: the text to write, and where.
        filter: the JMS selector of the affected messages; "" = every message.
        loses: it takes a message away; False = it makes another copy.
    """

    kind: ResendEffect
    what: str
    mend: str
    filter: str = ""
    loses: bool = True

    @property
    def cure(self) -> str:
        """How to end the effect, as the end of a sentence."""
        return f"write {self.mend}, or {self.kind.advice}"


class BoundQueue(msgspec.Struct, frozen=True):
    """A queue that gets messages sent to a destination.

    Attributes:
        filter: the JMS selector that a message must match; "" = it takes every message.
    """

    name: str
    filter: str = ""


class SendTerms(msgspec.Struct, frozen=True):
    """The broker's treatment of sends to one destination, for any message.

    Attributes:
        problem: why a send gets lost or holds the link up now, as a sentence; None = it routes.
        exists: whether the destination exists; False = the broker creates it at the first send,
            None = unknown.
        queues: each gets the message if its filter matches; if no filter matches, it is lost.
            Empty = the broker creates a queue without a filter, or does not report its queues.
        effects: on a message that is sent there, without effects that the operator allows.
        has_copies: whether more than one queue, address or bridge gets messages that producers send
            to its address; None = unknown.
        trusts_filters: the operator lets a filter that the sidecar can't evaluate count as
            matching (`redelivery.allow`).
    """

    problem: str | None = None
    exists: bool | None = None
    queues: tuple[BoundQueue, ...] = ()
    effects: tuple[SideEffect, ...] = ()
    has_copies: bool | None = None
    trusts_filters: bool = False

    @property
    def has_filters(self) -> bool:
        """Whether the properties of a message decide its fate."""
        return any(one.filter for one in self.queues) or any(one.filter for one in self.effects)


ROUTES = SendTerms()
"""Of a destination that takes every message, as far as anyone knows."""
