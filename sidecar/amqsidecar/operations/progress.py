"""How operations stand: what they did, what became of it, and what they wait for."""

import msgspec

from amqsidecar.ledger import Ledger
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
    next_step,
)
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.operate import LedgerStore, undoable
from amqsidecar.operations.words import clock_time


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the messages that an operation was to send.

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


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How one operation stands.

    Attributes:
        outcomes: None = it sends nothing.
        doing: what it does or waits for now, as a sentence.
        undoable: how many messages `undo` would put back now.
    """

    operation: Operation
    outcomes: Outcomes | None
    doing: str
    undoable: int = 0


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


def read_progress(ledger: LedgerStore, number: int, now_ms: int) -> Progress:
    """Return how an operation stands.

    Raises:
        ActionRefused: there is none of this number.
    """
    operation = ledger.operation(number)
    if operation is None:
        raise ActionRefused(f"there is no operation {number}")
    outcomes = None
    if operation.action in SENDS:
        counts = ledger.member_counts(number)
        unknown = ledger.members(number, OutcomeKind.UNKNOWN, 1)
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
        undoable=undoable(ledger, operation),
    )


def list_operations(ledger: Ledger, limit: int, before: int | None = None) -> OperationPage:
    """Return at most `limit` operations with a number below `before`."""
    found = ledger.operations(limit + 1, before)
    has_more = len(found) > limit
    found = found[:limit]
    return OperationPage(operations=found, next_before=found[-1].id if has_more else None)


def list_members(
    ledger: Ledger, number: int, outcome: OutcomeKind | None, limit: int, after: str = ""
) -> MemberPage:
    """Return at most `limit` messages of an operation; None = of any outcome."""
    found = ledger.members(number, outcome, limit + 1, after)
    has_more = len(found) > limit
    found = found[:limit]
    return MemberPage(members=found, next_after=found[-1].redelivery_id if has_more else None)


def doing(operation: Operation, now_ms: int) -> str:
    """Return what an operation does or waits for, as a sentence."""
    match operation.state:
        case OperationState.DONE:
            return "every message was looked at"
        case OperationState.UNDOING:
            return "a running service is putting back the discarded messages"
        case OperationState.UNDONE:
            return f"{operation.restored} of {operation.changed} messages were put back"
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
        return "it waits for a running service to carry it out"
    match next_step(operation, now_ms):
        case Pause(until_ms) if until_ms == operation.not_before_ms:
            return "it goes on"
        case Pause(until_ms) if operation.window_until_ms is not None:
            portion = operation.portion
            return f"it sent {portion} and waits until {clock_time(until_ms)} how many come back"
        case Pause() if operation.action in SENDS and operation.resent < operation.changed:
            unsent = operation.changed - operation.resent
            return (
                f"it waits until {unsent} more were sent; if it stays so, the service is not "
                "connected, their destination takes nothing, or another person holds them: pause "
                "and resume it to go on without them"
            )
        case Stop(reason):
            return reason
        case Step() | Pause() | Finished():
            return "it goes on"
