"""The API's side that only looks."""

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from msgspec import Meta
from starlette.responses import Response

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.filter import RowsQuery, understood
from amqsidecar.http.api.table import ApiEndpoint, Call
from amqsidecar.http.rights import Right
from amqsidecar.http.store_queries import QueryContext, StoreQueries
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


class GroupsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of groups of failures."""

    destination: Annotated[str | None, Meta(description="Only where they died.")] = None
    since: Annotated[
        WholeNumber, Meta(description="Only groups with a death since this time, in milliseconds.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class ViewQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a message."""

    max_bytes: Annotated[
        int, Meta(description="Maximum bytes of the body.", ge=1, le=EDIT_BYTES_MAX)
    ] = VIEW_BYTES_MAX


class Looking:
    """Answers queries that change nothing."""

    def __init__(self, queries: StoreQueries) -> None:
        self._queries = queries

    def endpoints(self) -> Sequence[ApiEndpoint]:
        """Return its part of the table."""
        return [
            ApiEndpoint("/session", "The caller and its role.", session, Session),
            ApiEndpoint("/status", "How the schedule stands.", self._status, Status),
            ApiEndpoint(
                "/overview",
                "Overview: current deaths, waiting messages, destinations that do not recover.",
                self._overview,
                Overview,
            ),
            ApiEndpoint(
                "/groups",
                "Failures by cause and destination.",
                self._groups,
                list[Group],
                GroupsQuery,
            ),
            ApiEndpoint(
                "/messages",
                "Messages that wait, page by page.",
                self._messages,
                RowsAnswer,
                RowsQuery,
            ),
            ApiEndpoint(
                "/messages/{reference}",
                "One message: its place, history and content.",
                self._message,
                MessagePage,
                ViewQuery,
            ),
            ApiEndpoint(
                path="/messages/{reference}/content",
                summary="The encoded bytes of a message that waits, or lies in its final queue.",
                run=self._content,
                media_type="application/octet-stream",
                problems={403: "This role may not see the content of messages."},
            ),
            ApiEndpoint(
                path="/messages/{reference}/originals/{number}/content",
                summary="A message before a person edited it.",
                run=self._original_content,
                media_type="application/octet-stream",
                problems={403: "This role may not see the content of messages."},
            ),
        ]

    async def _status(self, call: Call) -> Status:
        return await self._queries.ask(
            call.caller, lambda at: read_status(at.store, at.state, at.now_ms)
        )

    async def _overview(self, call: Call) -> Overview:
        tell = self._queries.tools(call.caller).sidecar_status
        status = None if tell is None else tell()
        return await self._queries.ask(
            call.caller, lambda at: read_overview(at.store, at.now_ms, status)
        )

    async def _groups(self, call: Call) -> list[Group]:
        query: GroupsQuery = call.query
        place = None if query.destination is None else canonical(query.destination)
        return await self._queries.ask(
            call.caller,
            lambda at: read_groups(
                at.store, at.now_ms, since_ms=query.since, destination=place, limit=query.limit
            ),
        )

    async def _messages(self, call: Call) -> RowsAnswer:
        def read(at: QueryContext) -> RowsAnswer:
            asked = understood(at, call.query, self._queries.masking, call.caller)
            page = list_messages(
                at.store,
                asked.selection,
                order=asked.order,
                limit=call.query.limit,
                after=asked.after,
            )
            rows: list[RowView] = []
            after, size = page.next_after, 0
            for row in page.rows:
                shown = shown_row(self._queries.masking.struct(row))
                size += len(msgspec.json.encode(shown))
                if rows and size > ROWS_BYTES_MAX:
                    after = key_of(asked.order, rows[-1])
                    break
                rows.append(shown)
            return RowsAnswer(rows=rows, next=None if after is None else f"{after.sort}.{after.id}")

        return await self._queries.ask(call.caller, read)

    async def _message(self, call: Call) -> MessagePage:
        def read(at: QueryContext) -> MessagePage:
            reference, most = call.part("reference"), call.query.max_bytes
            page = self._queries.message(at, reference, call.caller, most)
            if page is None:
                raise unknown(call)
            return page

        return await self._queries.ask(call.caller, read)

    async def _content(self, call: Call) -> Response:
        reference = call.part("reference")

        def read(at: QueryContext) -> tuple[RowView, bytes] | None:
            self._queries.check_reads(at, call.caller, reference)
            return self._queries.content(at.store, reference)

        found = await self._queries.ask(call.caller, read)
        if found is None:
            raise unknown(call)
        row, data = found
        audit.write("download-message", audit.ActKind.READ, message=row.redelivery_id)
        return _download(data, f"{row.redelivery_id}.{row.encoding.replace('/', '-')}")

    async def _original_content(self, call: Call) -> Response:
        name, number = call.part("reference"), call.number()

        def read(at: QueryContext) -> bytes | None:
            self._queries.check_reads(at, call.caller, name)
            return original_message(at.store, name, number)

        data = await self._queries.ask(call.caller, read)
        if data is None:
            raise HttpRefused(404, f"there is no original {number} of {name}")
        audit.write("download-message", audit.ActKind.READ, message=name, original=number)
        return _download(data, f"{name}.original-{number}")


async def session(call: Call) -> Session:
    """Return who calls."""
    csrf, rights = call.request.scope["amqsidecar.csrf"], call.caller.rights
    return Session(
        actor=call.actor,
        role=call.caller.role,
        way=call.caller.way,
        csrf=csrf,
        rights=[one for one in Right if rights.patterns(one) != ()],
    )


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
