"""Moving a schedule from one store to another, as a value: which step comes next.

The source's fence decides who owns the schedule. Without it, the source does, and the target has at
most a copy that no program uses. The fence is written in the transaction that has read the source,
after the copy is durable: from then on the target has everything, and the source does nothing.
"""

from enum import Enum, StrEnum, auto


class SourceStanding(Enum):
    """Whether the source still owns the schedule."""

    OWNER = auto()
    GIVEN_UP = auto()
    """It is fenced for good."""


class TargetStanding(Enum):
    """The content of the target, and whether it may be used."""

    UNUSED = auto()
    COPY = auto()
    """It has a durable copy of the source's schedule, and is fenced."""
    OWNER = auto()
    """It has the source's schedule, and no fence."""
    FOREIGN = auto()
    """It has another schedule, or a copy of another one."""


class MoveStep(StrEnum):
    """The next step of a move."""

    COPY = "copy"
    """Copy all, then fence the source."""
    OPEN = "open"
    """Remove the target's fence."""
    NONE = "none"
    """The move has ended."""
    REFUSE_FOREIGN = "the target is in use; name a new file or an empty database"
    REFUSE_GIVEN_UP = "the source has moved to another store"


def next_step(source: SourceStanding, target: TargetStanding) -> MoveStep:
    """Return the next step of a move, wherever an earlier run was interrupted."""
    if source is SourceStanding.OWNER:
        if target in (TargetStanding.UNUSED, TargetStanding.COPY):
            return MoveStep.COPY
        return MoveStep.REFUSE_FOREIGN
    if target is TargetStanding.COPY:
        return MoveStep.OPEN
    return MoveStep.NONE if target is TargetStanding.OWNER else MoveStep.REFUSE_GIVEN_UP
