"""Actions on rows: the effect on one row, and immediate actions without a ledger."""

from collections.abc import Callable
from typing import assert_never

import msgspec

from amqsidecar.errors import SidecarError, StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.operation import Action, Operation, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.select import conditions, narrow
from amqsidecar.schedule import BrokerSchedule
from amqsidecar.telemetry import audit


class ActionRefused(SidecarError):
    """A request that can't be done; the message gives the reason and the alternative."""


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an action.

    Attributes:
        matched: rows that were selected.
        changed: rows that were changed; the others were just being sent, or final already.
        overtaken: rows that were left because another action changed them meanwhile.
        stopped: it was ended before all rows were done; doing it again does the rest.
        operation: its number; 0 = none was begun.
        undoable: how many of the changed messages an undo can put back.
    """

    action: Action
    matched: int
    changed: int
    overtaken: int = 0
    stopped: bool = False
    operation: int = 0
    undoable: int = 0


def act_of(operation: Operation, now_ms: int, suffix: str) -> row_changes.RowChange:
    """Return the change of a row by an operation.

    Args:
        operation: the person's action and its parameters.
        suffix: of final dead-letter queues, for cancelling.
    """
    actor, reason, number = operation.actor, operation.reason, operation.id
    match operation.action:
        case Action.RETRY:
            return row_changes.retry(now_ms, actor, reason, number)
        case Action.REDIRECT:
            return row_changes.redirect(now_ms, actor, operation.target or "", reason, number)
        case Action.CANCEL:
            return row_changes.cancel(now_ms, actor, suffix)
        case Action.DISCARD:
            return row_changes.discard(now_ms, actor, number, exports=operation.exports)
        case Action.HOLD:
            return row_changes.hold(now_ms, actor, operation.wait)
        case Action.TAKE_BACK | Action.RELEASE as action:
            act = row_changes.release if action is Action.RELEASE else row_changes.take_back
            return act(now_ms, actor)
        case _:
            assert_never(operation.action)


def effect_of(action: Action, suffix: str = "") -> row_changes.RowChange:
    """Return the change of a row by an action, for previews: its events name no actor."""
    unnamed = Operation(
        id=0,
        action=action,
        selection=Selection(),
        actor="",
        reason="",
        created_at_ms=0,
        until_id=0,
        target="queue://x",
    )
    return act_of(unnamed, 0, suffix)


def check_direct(action: Action) -> None:
    """Refuse actions that need a store of the sidecar's own.

    Raises:
        ActionRefused: the broker can't do it to messages in its own schedule.
    """
    if action in (Action.REDIRECT, Action.DISCARD, Action.TAKE_BACK):
        raise ActionRefused(
            f"the broker keeps waiting messages (store.url broker:) and can't {action} them: "
            "retry them or give them up"
        )


class _Stopped(Exception):
    """Ends an action between two steps."""


def act_directly(
    schedule: BrokerSchedule,
    action: Action,
    row_filter: RowFilter,
    *,
    suffix: str,
    reason: str = "",
    progress: Callable[[int], None] = lambda _count: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> ActionResult:
    """Act at once on messages that wait in the broker.

    Args:
        action: what to do.
        suffix: of final dead-letter queues, for cancelling.
        reason: why, in the person's words; only the audit has it.
        progress: called with the number of rows done since the last call.
        is_stopped: asked after each step; True = leave the rest.

    Promise: done in small steps; interrupted, calling it again does the rest.

    Raises:
        ActionRefused: this needs a store of the sidecar's own.
        StoreUnavailable: the broker can't do it now.
    """
    row_filter = narrow(action, row_filter)
    matched = changed = 0

    def step(rows: int, changed_rows: int) -> None:
        nonlocal matched, changed
        matched += rows
        changed += changed_rows
        progress(rows)
        if is_stopped():
            raise _Stopped

    try:
        match action:
            case Action.RETRY:
                schedule.retry(row_filter, step)
            case Action.CANCEL:
                schedule.cancel(row_filter, suffix, step)
            case Action.HOLD:
                raise StoreUnavailable(
                    "the broker delivers waiting messages (store.url broker:) and can't hold "
                    "them: give them up"
                )
            case Action.RELEASE:
                pass  # Nothing is ever held there.
            case Action.REDIRECT | Action.DISCARD | Action.TAKE_BACK:
                check_direct(action)
            case _:
                assert_never(action)
        is_whole = True
    except _Stopped:
        is_whole = False
    audit.write(
        action.word,
        reason=reason,
        selection=conditions(Selection(rows=row_filter)),
        count=changed,
        after={"matched": matched, "changed": changed, "stopped": not is_whole},
    )
    return ActionResult(action=action, matched=matched, changed=changed, stopped=not is_whole)
