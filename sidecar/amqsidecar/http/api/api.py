"""The API: its table, and the document that is printed out of it."""

from functools import cache, partial
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.filter import Filter, understood
from amqsidecar.http.api.notes import noting
from amqsidecar.http.api.openapi import document
from amqsidecar.http.api.operations import MembersFileQuery, acting
from amqsidecar.http.api.rules import ruling
from amqsidecar.http.api.table import ApiEndpoint, ApiTable, Call, StoreCall, routes_of
from amqsidecar.http.api.views import GroupsFileQuery, canonical, looking
from amqsidecar.http.exports import CSV, GROUPS_MAX, ROWS_MAX, Exports
from amqsidecar.http.live import Live
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.ledger import RowOrder


class RowsFileQuery(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter and order of messages."""

    order: RowOrder = RowOrder.NEWEST


_MOST: Final = f"as CSV, the first {ROWS_MAX}."


def endpoints(queries: StoreQueries) -> list[ApiEndpoint]:
    """Return the table."""
    live, exports, rest = Live(queries), Exports(queries), ApiTable()
    csv_file = partial(rest.get, media_type=CSV)

    @csv_file(
        "/groups.csv",
        summary=f"Failures by cause and destination as CSV, the first {GROUPS_MAX}.",
        query=GroupsFileQuery,
    )
    async def groups_file(call: Call) -> Response:
        name = call.query.destination
        place = None if name is None else canonical(name)
        return await exports.groups(call.caller, place, call.query.since)

    @csv_file("/messages.csv", summary=f"Messages that wait {_MOST}", query=RowsFileQuery)
    async def messages_file(call: StoreCall) -> Response:
        asked = await call.ask(lambda at: understood(at, call.query, queries.masking, call.caller))
        return await exports.messages(call.caller, asked.selection, asked.order)

    @csv_file(
        "/operations/{number}/members.csv",
        summary=f"Outcomes of the messages of an operation {_MOST}",
        query=MembersFileQuery,
    )
    async def members_file(call: Call) -> Response:
        found = await exports.members(call.caller, call.number(), call.query.outcome)
        if found is None:
            raise HttpRefused(404, f"there is no operation {call.number()}")
        return found

    @rest.get("/events", media_type="text/event-stream")
    async def events(call: Call) -> Response:
        """Counters as server-sent events, whenever they change."""
        return StreamingResponse(
            await live.listen(call.caller), headers={"Content-Type": "text/event-stream"}
        )

    @cache
    def printed() -> bytes:
        return msgspec.json.encode(document(table))

    @rest.get("/openapi.json", answer=dict[str, Any])
    async def openapi(_call: Call) -> Response:
        """This document."""
        return Response(printed(), headers={"Content-Type": "application/json"})

    parts = (looking, acting, ruling, noting, rest)
    table = [endpoint for part in parts for endpoint in part.bound(queries)]
    return table


def routes(queries: StoreQueries) -> list[Route]:
    """Return the routes of the API."""
    return routes_of(endpoints(queries), queries.masking.answer)
