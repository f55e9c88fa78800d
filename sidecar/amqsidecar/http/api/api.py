"""The API: its table, and the document that is printed out of it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.filter import Filter, understood
from amqsidecar.http.api.marking import Marking
from amqsidecar.http.api.notes import Noting
from amqsidecar.http.api.openapi import document
from amqsidecar.http.api.operations import ActionEndpoints
from amqsidecar.http.api.rules import Ruling
from amqsidecar.http.api.table import ApiEndpoint, Call, routes_of
from amqsidecar.http.api.views import Looking, canonical
from amqsidecar.http.exports import CSV, GROUPS_MAX, ROWS_MAX, Exports
from amqsidecar.http.live import Live
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.ledger import RowOrder
from amqsidecar.model.operation import OutcomeKind
from amqsidecar.model.schedule import WholeNumber

Run = Callable[[Call], Awaitable[Response]]


_csv_file = partial(ApiEndpoint, media_type=CSV)


class GroupsFileQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of groups of failures."""

    destination: Annotated[str | None, Meta(description="Only where they died.")] = None
    since: Annotated[
        WholeNumber, Meta(description="Only groups with a death since this time, in milliseconds.")
    ] = 0


class RowsFileQuery(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter and order of messages."""

    order: RowOrder = RowOrder.NEWEST


class MembersFileQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of an operation's messages."""

    outcome: OutcomeKind | None = None


class Exporting:
    """Gives lists as files."""

    def __init__(self, queries: StoreQueries) -> None:
        self._queries = queries
        self._exports = Exports(queries)

    def endpoints(self) -> Sequence[ApiEndpoint]:
        """Return its part of the table."""
        most = f"as CSV, the first {ROWS_MAX}."
        groups = f"Failures by cause and destination as CSV, the first {GROUPS_MAX}."
        return [
            _csv_file("/groups.csv", groups, self._groups_file, query=GroupsFileQuery),
            _csv_file(
                "/messages.csv",
                f"Messages that wait {most}",
                self._messages_file,
                query=RowsFileQuery,
            ),
            _csv_file(
                "/operations/{number}/members.csv",
                f"Outcomes of the messages of an operation {most}",
                self._members_file,
                query=MembersFileQuery,
            ),
        ]

    async def _groups_file(self, call: Call) -> Response:
        name = call.query.destination
        place = None if name is None else canonical(name)
        return await self._exports.groups(call.caller, place, call.query.since)

    async def _messages_file(self, call: Call) -> Response:
        queries = self._queries
        asked = await queries.ask(
            call.caller, lambda at: understood(at, call.query, queries.masking, call.caller)
        )
        return await self._exports.messages(call.caller, asked.selection, asked.order)

    async def _members_file(self, call: Call) -> Response:
        found = await self._exports.members(call.caller, call.number(), call.query.outcome)
        if found is None:
            raise HttpRefused(404, f"there is no operation {call.number()}")
        return found


def endpoints(queries: StoreQueries) -> list[ApiEndpoint]:
    """Return the table."""
    live = Live(queries)

    async def events(call: Call) -> Response:
        return StreamingResponse(
            await live.listen(call.caller), headers={"Content-Type": "text/event-stream"}
        )

    @cache
    def printed() -> bytes:
        return msgspec.json.encode(document(table))

    async def openapi(_call: Call) -> Response:
        return Response(printed(), headers={"Content-Type": "application/json"})

    table = [
        *Looking(queries).endpoints(),
        *ActionEndpoints(queries).endpoints(),
        *Ruling(queries).endpoints(),
        *Noting(queries).endpoints(),
        *Marking(queries).endpoints(),
        *Exporting(queries).endpoints(),
        ApiEndpoint(
            path="/events",
            summary="Counters as server-sent events, whenever they change.",
            run=events,
            media_type="text/event-stream",
        ),
        ApiEndpoint(
            path="/openapi.json",
            summary="This document.",
            run=openapi,
            answer=dict[str, Any],
        ),
    ]
    return table


def routes(queries: StoreQueries) -> list[Route]:
    """Return the routes of the API."""
    return routes_of(endpoints(queries), queries.masking.answer)
