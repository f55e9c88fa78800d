"""Pages of operations: request, progress, and the outcome of each message."""

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse, Response

from amqsidecar.http.console.command import command_of
from amqsidecar.http.console.console import PageMissing, Visit
from amqsidecar.http.console.described import ACTIONS, describe_operation, describe_pace
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.model.operation import (
    SENDS,
    UNDO_MS,
    Member,
    Operation,
    OperationState,
    OutcomeKind,
)
from amqsidecar.operations import operate
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.browse import is_row_number
from amqsidecar.operations.progress import Progress, read_progress

LIMIT: Final = 30
MEMBERS_SHOWN: Final = 50

CHANGES: Final[Mapping[str, operate.ChangeOperation]] = {
    "pause": operate.pause,
    "resume": operate.resume,
    "cancel": operate.cancel,
    "undo": operate.undo,
}

_MISSING: Final = "There is no operation of this number, or its history was removed."

OPEN_STATES: Final = (OperationState.RUNNING, OperationState.PAUSED, OperationState.STOPPED)


async def show_operations(visit: Visit) -> Response:
    """List the operations, the latest first."""
    before, masked = whole_number(visit.params.get("before")), visit.queries.masking.operation

    def read(at: QueryContext) -> tuple[list[Operation], dict[int, int]]:
        found = [*map(masked, at.store.operations(LIMIT + 1, before))]
        sends = (one.id for one in found[:LIMIT] if one.action in SENDS)
        return found, {
            number: at.store.member_counts(number).get(OutcomeKind.CONSUMED, 0) for number in sends
        }

    found, consumed = await visit.ask(read)
    return await visit.page(
        "operations.html",
        operations=found[:LIMIT],
        consumed=consumed,
        next_before=found[LIMIT - 1].id if len(found) > LIMIT else None,
        actions=ACTIONS,
        describe=describe_operation,
    )


async def show_operation(visit: Visit, problem: str = "") -> Response:
    """Show an operation and the outcomes of its messages."""
    number, outcome = whole_number(visit.part("number")), outcome_of(visit.params)
    after = visit.params.get("after", "")

    def read(at: QueryContext) -> tuple[Progress, dict[OutcomeKind | None, int], list[Member]]:
        if number is None or at.store.operation(number) is None:
            raise PageMissing(_MISSING)
        return (
            read_progress(at.store, number, at.now_ms),
            at.store.member_counts(number),
            at.store.members(number, outcome, MEMBERS_SHOWN + 1, after),
        )

    progress, counts, members = await visit.ask(read)
    operation = await asyncio.to_thread(visit.queries.masking.operation, progress.operation)
    return await visit.page(
        "operation.html",
        problem,
        problem=problem,
        operation=operation,
        sends=operation.action in SENDS,
        words=ACTIONS[operation.action],
        is_open=operation.state in OPEN_STATES,
        conditions=describe_operation(operation),
        pace=describe_pace(operation.pace),
        share_done=_share_done(operation),
        counts=counts,
        result=progress.result_clause,
        undoable=0 if operation.state is OperationState.UNDOING else progress.undoable,
        keeps_until_ms=(operation.ended_at_ms or operation.created_at_ms) + UNDO_MS,
        unknown_because=progress.outcomes.unknown_because if progress.outcomes else "",
        outcome=outcome,
        outcomes=list(OutcomeKind),
        members=members[:MEMBERS_SHOWN],
        next_after=(
            members[MEMBERS_SHOWN - 1].redelivery_id if len(members) > MEMBERS_SHOWN else None
        ),
        command=(
            None if operation.unread_fields else command_of(operation, visit.queries.clock.now_ms())
        ),
    )


async def members_csv(visit: Visit) -> Response:
    """Return the outcomes of its messages as a file."""
    number, outcome = whole_number(visit.part("number")), outcome_of(visit.params)
    exports = visit.console.exports
    found = None if number is None else await exports.members(visit.caller, number, outcome)
    if found is None:
        raise PageMissing(_MISSING)
    return found


async def change_operation(visit: Visit) -> Response:
    """Pause, resume, cancel or undo an operation."""
    number, how = whole_number(visit.part("number")), CHANGES.get(visit.part("change"))
    if how is None or number is None:
        raise PageMissing("An operation has no such action.")
    reason = (await visit.form()).get("reason", "").strip()
    try:
        await visit.ask(lambda at: how(at.store, number, at.now_ms, visit.actor, reason))
    except ActionRefused as error:
        return await show_operation(visit, str(error))
    return RedirectResponse(f"/operations/{number}", 303)


def _share_done(operation: Operation) -> float:
    """Return the share of the expected rows already examined, by count, else by row numbers."""
    if operation.state is OperationState.DONE:
        return 1.0
    if operation.expected:
        return min(operation.matched / operation.expected, 1.0)
    return operation.after_id / operation.until_id if operation.until_id else 0.0


def whole_number(text: str | None) -> int | None:
    """Return the number in a text; None = it is not the number of an operation."""
    return int(text) if text is not None and is_row_number(text) else None


def outcome_of(params: QueryParams) -> OutcomeKind | None:
    """Return the outcome that an address names; None = any."""
    try:
        return OutcomeKind(text) if (text := params.get("outcome")) else None
    except ValueError:
        return None
