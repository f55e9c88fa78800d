"""Effects of a broker on a message that is re-sent to its origin."""

from enum import StrEnum
from typing import NamedTuple


class ResendEffect(StrEnum):
    """An effect of a broker on a re-send, beside its delivery to the queue that it died in.

    Attributes:
        COMPOSITE: Classic: a composite destination forwards it again.
        MIRROR: Classic: a mirrored queue copies it to its topic again.
        DIVERT: Artemis: a divert copies it, or takes it away.
        LAST_VALUE: Artemis: it replaces a newer message of the same key, or the other way round.
        RING: Artemis: it evicts the oldest message of a queue of limited size.
        NON_DESTRUCTIVE: Artemis: it lies in its queue beside the message that died.
        DROP: Artemis: a full address drops it.
    """

    COMPOSITE = "composite"
    MIRROR = "mirror"
    DIVERT = "divert"
    LAST_VALUE = "last-value"
    RING = "ring"
    NON_DESTRUCTIVE = "non-destructive"
    DROP = "drop"

    @property
    def option(self) -> str:
        """The configuration by which the operator accepts it."""
        return f"redelivery: {{allow: [{self}]}}"

    @property
    def advice(self) -> str:
        """The same as the end of a sentence."""
        return f"allow it by {self.option}"


class SideEffect(NamedTuple):
    """Something that a broker does with a redelivery besides putting it into its queue.

    Attributes:
        kind: what the operator may allow.
        what: as a sentence.
        mend: what to write, and where.
    """

    kind: ResendEffect
    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.what}; write {self.mend}, or {self.kind.advice}"
