"""The API's side that only looks."""

from functools import partial
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.responses import Response

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.filter import RowsQuery, understood
from amqsidecar.http.api.table import ApiTable, Call, StoreCall
from amqsidecar.http.rights import Right
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.ledger import key_of
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.schedule import RowView, WholeNumber
from amqsidecar.operations.browse import Status, read_status
from amqsidecar.operations.failures.groups import Group, read_groups
from amqsidecar.operations.listing import list_messages, shown_row
from amqsidecar.operations.message import (
    EDIT_BYTES_MAX,
    VIEW_BYTES_MAX,
    MessagePage,
    original_message,
)
from amqsidecar.operations.overview import Overview, read_overview
from amqsidecar.telemetry import audit

ROWS_BYTES_MAX: Final = 2**20
"""Bytes of a page of rows; one row may be larger."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The caller.

    Attributes:
        actor: as events of this caller name it.
        way: local, token, password, proxy or oidc.
        csrf: to be sent as `X-CSRF-Token` with changes; "" = not needed.
        rights: given on some destination at least.
    """

    actor: str
    role: str
    way: str
    csrf: str
    rights: list[Right]


class RowsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of waiting messages.

    Attributes:
        rows: may be fewer than asked for, or none, although there are more: looking is bounded, and
            so is the size of a page. Causes are cut to 2,048 bytes; the message itself has more.
        next: give it as `after` to get the next page; null = this is the last.
    """

    rows: list[RowView]
    next: str | None


class GroupsFileQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of groups of failures."""

    destination: Annotated[str | None, Meta(description="Only where they died.")] = None
    since: Annotated[
        WholeNumber, Meta(description="Only groups with a death since this time, in milliseconds.")
    ] = 0


class GroupsQuery(GroupsFileQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of groups of failures, and their number."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class ViewQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a message."""

    max_bytes: Annotated[
        int, Meta(description="Maximum bytes of the body.", ge=1, le=EDIT_BYTES_MAX)
    ] = VIEW_BYTES_MAX


looking = ApiTable()
"""Answers queries that change nothing."""


async def session(call: Call) -> Session:
    """The caller and its role."""
    csrf, rights = call.request.scope["amqsidecar.csrf"], call.caller.rights
    return Session(
        actor=call.actor,
        role=call.caller.role,
        way=call.caller.way,
        csrf=csrf,
        rights=[one for one in Right if rights.patterns(one) != ()],
    )


looking.get("/session")(session)


@looking.get("/status")
def _status(_call: StoreCall, at: QueryContext) -> Status:
    """How the schedule stands."""
    return read_status(at.store, at.state, at.now_ms)


@looking.get("/overview")
async def _overview(call: StoreCall) -> Overview:
    """Overview: current deaths, waiting messages, destinations that do not recover."""
    tell = call.queries.tools(call.caller).sidecar_status
    status = None if tell is None else tell()
    found: Overview = await call.ask(lambda at: read_overview(at.store, at.now_ms, status))
    return found


@looking.get("/groups", query=GroupsQuery)
def _groups(call: StoreCall, at: QueryContext) -> list[Group]:
    """Failures by cause and destination."""
    query: GroupsQuery = call.query
    place = None if query.destination is None else canonical(query.destination)
    return read_groups(
        at.store, at.now_ms, since_ms=query.since, destination=place, limit=query.limit
    )


@looking.get("/messages", query=RowsQuery)
def _messages(call: StoreCall, at: QueryContext) -> RowsAnswer:
    """Messages that wait, page by page."""
    masking = call.queries.masking
    asked = understood(at, call.query, masking, call.caller)
    page = list_messages(
        at.store, asked.selection, order=asked.order, limit=call.query.limit, after=asked.after
    )
    rows: list[RowView] = []
    after, size = page.next_after, 0
    for row in page.rows:
        shown = shown_row(masking.struct(row))
        size += len(msgspec.json.encode(shown))
        if rows and size > ROWS_BYTES_MAX:
            after = key_of(asked.order, rows[-1])
            break
        rows.append(shown)
    return RowsAnswer(rows=rows, next=None if after is None else f"{after.sort}.{after.id}")


@looking.get("/messages/{reference}", query=ViewQuery)
def _message(call: StoreCall, at: QueryContext) -> MessagePage:
    """One message: its place, history and content."""
    reference, most = call.part("reference"), call.query.max_bytes
    page = call.queries.message(at, reference, call.caller, most)
    if page is None:
        raise unknown(call)
    return page


_file = partial(
    looking.get,
    media_type="application/octet-stream",
    problems={403: "This role may not see the content of messages."},
)


@_file("/messages/{reference}/content")
def _content(call: StoreCall, at: QueryContext) -> Response:
    """The encoded bytes of a message that waits, or lies in its final queue."""
    reference = call.part("reference")
    call.queries.check_reads(at, call.caller, reference)
    found = call.queries.content(at.store, reference)
    if found is None:
        raise unknown(call)
    row, data = found
    audit.write("download-message", audit.ActKind.READ, message=row.redelivery_id)
    return _download(data, f"{row.redelivery_id}.{row.encoding.replace('/', '-')}")


@_file("/messages/{reference}/originals/{number}/content")
def _original_content(call: StoreCall, at: QueryContext) -> Response:
    """A message before a person edited it."""
    name, number = call.part("reference"), call.number()
    call.queries.check_reads(at, call.caller, name)
    data = original_message(at.store, name, at.state.uid, number)
    if data is None:
        raise HttpRefused(404, f"there is no original {number} of {name}")
    audit.write("download-message", audit.ActKind.READ, message=name, original=number)
    return _download(data, f"{name}.original-{number}")


def _download(data: bytes, name: str) -> Response:
    return Response(
        data,
        headers={
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'attachment; filename="{quote(name, safe="")}"',
        },
    )


def canonical(name: str) -> str:
    """Return a destination as the store writes it.

    Raises:
        HttpRefused: it is none.
    """
    try:
        return str(parse_destination(name))
    except ValueError as error:
        raise HttpRefused(400, str(error)) from error


def unknown(call: Call) -> HttpRefused:
    """Return the error for a missing message."""
    return HttpRefused(404, f"{call.part('reference')} is not waiting, or is unknown")
