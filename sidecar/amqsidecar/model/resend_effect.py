"""Effects of a broker on a message that the sidecar sends, beside its delivery."""

from enum import StrEnum
from typing import NamedTuple


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
