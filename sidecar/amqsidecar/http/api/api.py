"""The API: its table, and the document that is printed out of it."""

from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from amqsidecar.http.api.export import Exporting
from amqsidecar.http.api.notes import Noting
from amqsidecar.http.api.openapi import document
from amqsidecar.http.api.operations import ActionEndpoints
from amqsidecar.http.api.rules import Ruling
from amqsidecar.http.api.table import ApiEndpoint, Call, routes_of
from amqsidecar.http.api.views import Looking
from amqsidecar.http.live import Live
from amqsidecar.http.store_queries import StoreQueries


def endpoints(queries: StoreQueries) -> list[ApiEndpoint]:
    """Return the table."""
    live = Live(queries)

    async def events(_call: Call) -> Response:
        return StreamingResponse(await live.listen(), headers={"Content-Type": "text/event-stream"})

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
        *Exporting(queries).endpoints(),
        ApiEndpoint(
            method="GET",
            path="/events",
            summary="Counters as server-sent events, whenever they change.",
            run=events,
            media_type="text/event-stream",
        ),
        ApiEndpoint(
            method="GET",
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
