"""The state of operations: progress, outcomes, and the reason of a wait."""

from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.operation import (
    SENDS,
    Finished,
    Member,
    Operation,
    OperationState,
    OutcomeKind,
    Pause,
    Step,
    Stop,
    is_open,
    left_to_newer,
    next_step,
)
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.operate import undoable
from amqsidecar.operations.words import clock_time, many
from amqsidecar.schedule import Schedule


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of the messages of an operation.

    Attributes:
        not_sent: changed and not sent yet.
        resent: sent, and their window is still open.
        unknown_because: why one of the unknown is unknown; "" = there is none.
    """

    not_sent: int = 0
    resent: int = 0
    consumed: int = 0
    came_back: int = 0
    unknown: int = 0
    unknown_because: str = ""


class OperationResult(StrEnum):
    """Summary of all messages that an operation has sent; the first that applies."""

    UNFINISHED = "unfinished"
    """The operation has not ended."""
    NOT_SENT = "not_sent"
    """It ended, and some of its messages wait to be sent."""
    OPEN = "open"
    """All are sent; some may still come back."""
    CAME_BACK = "came_back"
    """All are sent and judged; some came back."""
    UNKNOWN = "unknown"
    """All are sent and judged; none came back, and some outcomes are unknown."""
    CONSUMED = "consumed"
    """All are sent and were consumed."""


UNSETTLED: Final = (OperationResult.UNFINISHED, OperationResult.NOT_SENT, OperationResult.OPEN)
"""Results that change by themselves."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of one operation.

    Attributes:
        outcomes: None = it sends nothing.
        doing: its current work or wait, as a sentence.
        undoable: how many messages `undo` would put back now.
        result: None = it sends nothing, or has changed nothing.
    """

    operation: Operation
    outcomes: Outcomes | None
    doing: str
    undoable: int = 0
    result: OperationResult | None = None

    @property
    def result_clause(self) -> str:
        """The result as a clause, such as `12 wait to be sent`; "" = it has none yet."""
        if self.outcomes is None or self.result is None or self.result not in _CLAUSES:
            return ""
        return _CLAUSES[self.result].format(self.outcomes)


class OperationPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some operations, the newest first.

    Attributes:
        next_before: give it as `before` to get the next page; None = this is the last.
    """

    operations: list[Operation]
    next_before: int | None


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages of an operation, by redelivery id.

    Attributes:
        next_after: give it as `after` to get the next page; None = this is the last.
    """

    members: list[Member]
    next_after: str | None


def read_progress(schedule: Schedule, number: int, now_ms: int) -> Progress:
    """Return the progress of an operation.

    Raises:
        ActionRefused: there is none of this number.
    """
    operation = schedule.operation(number)
    if operation is None:
        raise ActionRefused(f"there is no operation {number}")
    outcomes = None
    if operation.action in SENDS:
        counts = schedule.member_counts(number)
        unknown = schedule.members(number, OutcomeKind.UNKNOWN, 1)
        outcomes = Outcomes(
            not_sent=counts.get(None, 0),
            resent=counts.get(OutcomeKind.RESENT, 0),
            consumed=counts.get(OutcomeKind.CONSUMED, 0),
            came_back=counts.get(OutcomeKind.CAME_BACK, 0),
            unknown=counts.get(OutcomeKind.UNKNOWN, 0),
            unknown_because=unknown[0].evidence if unknown else "",
        )
    return Progress(
        operation=operation,
        outcomes=outcomes,
        doing=doing(operation, now_ms),
        undoable=undoable(schedule, operation),
        result=None if outcomes is None else result_of(operation, outcomes),
    )


def result_of(operation: Operation, outcomes: Outcomes) -> OperationResult | None:
    """Return a summary of all messages that an operation sends; None = it sends none."""
    if is_open(operation):
        return OperationResult.UNFINISHED
    by_weight = (
        (outcomes.not_sent, OperationResult.NOT_SENT),
        (outcomes.resent, OperationResult.OPEN),
        (outcomes.came_back, OperationResult.CAME_BACK),
        (outcomes.unknown, OperationResult.UNKNOWN),
        (outcomes.consumed, OperationResult.CONSUMED),
    )
    return next((result for count, result in by_weight if count), None)


_CLAUSES: Final = {
    OperationResult.NOT_SENT: "{0.not_sent} wait to be sent (if this lasts: the service is not "
    "connected, the destination accepts no messages, or another person holds them)",
    OperationResult.OPEN: "all are sent, {0.resent} may still come back",
    OperationResult.CAME_BACK: "all are sent, {0.came_back} came back",
    OperationResult.UNKNOWN: "all are sent, the outcome of {0.unknown} is unknown",
    OperationResult.CONSUMED: "all {0.consumed} were consumed",
}
"""The summary of `Outcomes`."""


def list_operations(schedule: Schedule, limit: int, before: int | None = None) -> OperationPage:
    """Return at most `limit` operations with a number below `before`."""
    found = schedule.operations(limit + 1, before)
    has_more = len(found) > limit
    found = found[:limit]
    return OperationPage(operations=found, next_before=found[-1].id if has_more else None)


def list_members(
    schedule: Schedule, number: int, outcome: OutcomeKind | None, limit: int, after: str = ""
) -> MemberPage:
    """Return at most `limit` messages of an operation; None = of any outcome."""
    found = schedule.members(number, outcome, limit + 1, after)
    has_more = len(found) > limit
    found = found[:limit]
    return MemberPage(members=found, next_after=found[-1].redelivery_id if has_more else None)


def doing(operation: Operation, now_ms: int) -> str:
    """Return the activity of an operation as a sentence."""
    match operation.state:
        case OperationState.DONE:
            return "every message was examined"
        case OperationState.UNDOING:
            return "a running service is putting back the discarded messages"
        case OperationState.UNDONE:
            return f"{operation.restored} of {many(operation.changed, 'message')} were put back"
        case OperationState.RUNNING if now_ms < min(
            begins_ms := operation.pace.begin_at_ms or 0, operation.runner_until_ms
        ):
            return f"it begins at {clock_time(begins_ms)}"
        case OperationState.RUNNING:
            return _running(operation, now_ms)
        case _:
            return operation.state_reason or f"it is {operation.state}"


def _running(operation: Operation, now_ms: int) -> str:
    if now_ms >= operation.runner_until_ms:
        return left_to_newer(operation) or "it waits for a running service"
    match next_step(operation, now_ms):
        case Pause(until_ms) if until_ms == operation.not_before_ms:
            return "it goes on"
        case Pause(until_ms) if operation.window_until_ms is not None:
            portion = operation.portion
            return f"it sent {portion} and counts returns until {clock_time(until_ms)}"
        case Pause() if operation.action in SENDS and operation.resent < operation.changed:
            unsent = operation.changed - operation.resent
            return (
                f"it waits for {unsent} more sends; if this lasts, the service is not connected, "
                "the destination accepts no messages, or another person holds them: pause and "
                "resume it to continue without them"
            )
        case Stop(reason):
            return reason
        case Step() | Pause() | Finished():
            return "it goes on"
