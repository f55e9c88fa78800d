"""The broker's answer to the question what becomes of a send to a destination."""

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
    """Something that a broker does with a message besides putting it into its queue.

    Attributes:
        kind: what the operator may allow.
        what: as a sentence.
        mend: what to write, and where.
        filter: the JMS selector of the messages to which it happens; "" = to every message.
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
    """A queue that gets what is sent to a destination.

    Attributes:
        filter: the JMS selector that a message must match; "" = it takes every message.
    """

    name: str
    filter: str = ""


class SendTerms(msgspec.Struct, frozen=True):
    """The broker's treatment of sends to one destination, whatever the message holds.

    Attributes:
        problem: why a send gets lost or holds the link up now, as a sentence; None = it routes.
        exists: whether the destination exists; False = the broker makes it at the first send,
            None = unknown.
        queues: each gets the message if its filter matches; none of them = the message is lost.
            Empty = the broker makes a queue without a filter, or does not report its queues.
        effects: on a message that is sent there, which the operator does not allow.
        has_copies: whether more than one queue, address or bridge gets what producers send to its
            address; None = unknown.
        trusts_filters: the operator lets a filter that the sidecar can't evaluate count as one
            that matches (`redelivery.allow`).
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
