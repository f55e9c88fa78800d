"""The API's endpoints that act: previews, operations, and outcomes."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from amqsidecar.errors import EditRefused
from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.filter import ActedOn, PreviewQuery, understood
from amqsidecar.http.api.table import ApiTable, StoreCall
from amqsidecar.http.api.views import unknown
from amqsidecar.http.console.query import bounded
from amqsidecar.http.fetching import fetch_message, put_back
from amqsidecar.http.rights import right_of
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.model.message import MessageEdit, MessageView
from amqsidecar.model.operation import (
    Action,
    Member,
    Operation,
    OperationPace,
    OutcomeKind,
    Selection,
)
from amqsidecar.model.schedule import RowView, WholeNumber
from amqsidecar.model.signal import DEFAULT_WAIT_MS, WAIT_MAX_MS
from amqsidecar.operations import operate
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.browse import row_named
from amqsidecar.operations.listing import Bounds
from amqsidecar.operations.message import edit_and_retry, try_edit
from amqsidecar.operations.operate import Wish
from amqsidecar.operations.preview import Preview, drift, examine, needs_second, preview
from amqsidecar.operations.progress import OperationResult, read_progress
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit


class GivenPace(OperationPace, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pace of an operation."""


class NewOperation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The action and its messages.

    Attributes:
        filter: which messages.
        everything: must be true if the filter has no condition.
        expected: the count of the preview; if it is far off by now, nothing is done (409).
        since: from the preview; messages that others changed after it are skipped. None = changed
            from now on.
        reason: why, in your words.
        target: redirect: the new destination.
        until: hold: the outside event that ends it, such as `invoice-4711`; "" = a person ends it.
        longest_s: hold: the longest wait for that, in seconds.
        pace: its rate and its stop conditions.
    """

    action: Action
    filter: ActedOn
    expected: WholeNumber
    since: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    everything: bool = False
    reason: str = ""
    target: str | None = None
    until: str = ""
    longest_s: Annotated[int, Meta(ge=0, le=WAIT_MAX_MS // 1000)] = DEFAULT_WAIT_MS // 1000
    pace: GivenPace = GivenPace()


class Because(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a change of a running operation."""

    reason: str = ""


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The edit of a message, and its reason.

    Attributes:
        edits: how many `originals` the message had when you looked; if it has more by now, nothing
            is done (409). None = not checked.
    """

    change: MessageEdit
    reason: str = ""
    edits: WholeNumber | None = None


class OperationsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of operations."""

    before: Annotated[
        WholeNumber | None,
        Meta(description="Only operations with lower numbers, for the next page."),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class MembersFileQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of an operation's messages."""

    outcome: OutcomeKind | None = None


class MembersQuery(MembersFileQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of an operation's messages, and begin of a page."""

    after: Annotated[str, Meta(description="The last id of the page before.")] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class OperationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An operation and the outcomes of its messages so far.

    Attributes:
        outcomes: how many messages have which outcome; `not sent yet` has none.
        undoable: how many discarded messages `undo` would put back now.
        result: summary of all its messages; null = it sends nothing, or has changed nothing.
    """

    operation: Operation
    outcomes: dict[str, int]
    undoable: int
    result: OperationResult | None


acting = ApiTable()
"""Carries out requested actions."""


def _selected(at: QueryContext, action: Action, given: ActedOn, call: StoreCall) -> Selection:
    asked = understood(at, given, call.queries.masking, call.caller).selection
    return bounded(
        at.may(right_of(action)), action, asked, Bounds(given.limit, given.one_per_message_id)
    )


@acting.get(
    "/preview",
    query=PreviewQuery,
    problems={409: "Nothing may be sent to the target."},
    refusal=409,
)
def _preview_operation(call: StoreCall, at: QueryContext) -> Preview:
    """Preview of an action."""
    query: PreviewQuery = call.query
    target = None if query.target is None else str(operate.checked_target(query.target))
    tools = call.queries.tools(call.caller)
    found = preview(
        at.may(right_of(query.action)),
        query.action,
        _selected(at, query.action, query, call),
        suffix=tools.final_suffix,
        gate=tools.gate,
        target=target,
    )
    example = None if found.example is None else call.queries.masking.struct(found.example)
    return msgspec.structs.replace(found, example=example)


@acting.get("/operations", query=OperationsQuery)
def _operations(call: StoreCall, at: QueryContext) -> list[Operation]:
    """Operations, the newest first."""
    return at.store.operations(call.query.limit, call.query.before)


@acting.post(
    "/operations",
    body=NewOperation,
    status=201,
    problems={409: "The count differs too much from the expected one."},
)
def _create_operation(call: StoreCall, at: QueryContext) -> Operation:
    """Begin an operation; the service carries it out."""
    wanted: NewOperation = call.body
    selection = _selected(at, wanted.action, wanted.filter, call)
    if selection == Selection() and not wanted.everything:
        raise HttpRefused(
            400, "the filter has no condition: set `everything` to select all messages"
        )
    tools, there = call.queries.tools(call.caller), at.may(right_of(wanted.action))
    found = examine(there, wanted.action, selection, suffix=tools.final_suffix)
    check_expected(found, wanted.expected)
    wish = Wish(
        action=wanted.action,
        selection=selection,
        actor=call.actor,
        reason=wanted.reason,
        pace=wanted.pace,
        target=wanted.target,
        expected=wanted.expected,
        since=wanted.since,
        needs_second=needs_second(found, tools.second_person_above),
        until=wanted.until,
        longest_ms=wanted.longest_s * 1000,
    )
    return operate.begin(at.store, wish, at.now_ms)


@acting.get("/operations/{number}")
def _operation(call: StoreCall, at: QueryContext) -> OperationAnswer:
    """One operation and the outcomes of its messages so far."""
    number = call.number()
    counts = at.store.member_counts(number)
    operation = known(at.store, number)
    progress = read_progress(at.store, number, at.now_ms)
    return OperationAnswer(
        operation=operation,
        undoable=progress.undoable,
        result=progress.result,
        outcomes={
            "not sent yet" if kind is None else kind.value: count for kind, count in counts.items()
        },
    )


@acting.get("/operations/{number}/members", query=MembersQuery)
def _members(call: StoreCall, at: QueryContext) -> list[Member]:
    """Messages that an operation changed, each with its outcome and evidence."""
    number, query = call.number(), call.query
    known(at.store, number)
    return at.store.members(number, query.outcome, query.limit, query.after)


def _changing(word: str, make: operate.ChangeOperation, summary: str) -> None:
    def change(call: StoreCall, at: QueryContext) -> Operation:
        number = call.number()
        known(at.store, number)
        return make(at.store, number, at.now_ms, call.actor, call.body.reason)

    change.__name__ = f"{word}_operation"
    acting.post(
        f"/operations/{{number}}/{word}",
        summary=summary,
        body=Because,
        body_may_lack=True,
        problems={409: "The operation is not in a state for that."},
        refusal=409,
    )(change)


_changing("pause", operate.pause, "Pause a running operation.")
_changing("resume", operate.resume, "Resume a paused or stopped operation.")
_changing("cancel", operate.cancel, "End an operation; finished changes stay.")
_changing(
    "undo",
    operate.undo,
    "Put back what a discard of the last hour removed; the service does it.",
)


@acting.post(
    "/messages/{reference}/edit-preview",
    body=Edit,
    problems={409: "It can't be edited now."},
    refusal=409,
)
def _try_edit(call: StoreCall, at: QueryContext) -> MessageView:
    """Preview of an edited message; nothing is changed."""
    row = _row_of(call, at)
    audit.write("read-message", audit.ActKind.READ, message=row.redelivery_id)
    sees = call.queries.may_read(at, call.caller, row.redelivery_id)
    edit, view = partial(call.queries.edit, sees=sees), partial(call.queries.view, sees=sees)
    return try_edit(at.store, row.id, call.body.change, edit, view)


def _row_of(call: StoreCall, at: QueryContext) -> RowView:
    row = row_named(at.store, call.part("reference"))
    if row is None:
        raise unknown(call)
    return row


@acting.post(
    "/messages/{reference}/edit",
    body=Edit,
    status=201,
    problems={
        409: "It can't be edited now, or the edit changes nothing.",
        503: "It is still being taken out of its final queue: repeat the edit.",
    },
    refusal=409,
)
async def _edit(call: StoreCall) -> Operation:
    """Edit a message and re-send it now; the original is kept.

    A message in its final dead-letter queue is taken out of it first.
    """
    queries = call.queries

    def find(at: QueryContext) -> tuple[RowView, int]:
        operate.check_reason(call.body.reason)
        row = _row_of(call, at)
        queries.check_reads(at, call.caller, row.redelivery_id)
        return row, len(at.store.originals(row.redelivery_id))

    row, edits = await call.ask(find)
    if call.body.edits is not None:
        edits = call.body.edits

    def do(at: QueryContext) -> Operation:
        return edit_and_retry(
            at.store,
            row.id,
            call.body.change,
            partial(queries.edit, sees=True),
            now_ms=at.now_ms,
            actor=call.actor,
            reason=call.body.reason,
            edits=edits,
        )

    if not row.is_in_final_queue:
        return await queries.ask(call.caller, do)
    await fetch_message(queries, row.id, call.caller, "api")
    try:
        return await queries.ask(call.caller, do)
    except (EditRefused, ActionRefused, HttpRefused):
        await put_back(queries, row.id, call.caller, "api")
        raise


def known(store: Schedule, number: int) -> Operation:
    """Return an operation.

    Raises:
        HttpRefused: no operation has this number.
    """
    found = store.operation(number)
    if found is None:
        raise HttpRefused(404, f"there is no operation {number}")
    return found


def check_expected(found: Preview, expected: int) -> None:
    """Check that the count differs little from the one that a person has seen.

    Raises:
        HttpRefused: it is not.
    """
    what = drift(found.count, expected, is_whole=found.is_whole)
    if what is not None:
        raise HttpRefused(409, what)
