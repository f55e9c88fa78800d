"""The API: its table, and the document that is printed out of it."""

from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from amqsidecar.http.api_act import Acting
from amqsidecar.http.api_export import Exporting
from amqsidecar.http.api_look import Looking
from amqsidecar.http.api_notes import Noting
from amqsidecar.http.api_rules import Ruling
from amqsidecar.http.api_table import Call, Endpoint, routes_of
from amqsidecar.http.desk import Desk
from amqsidecar.http.live import Live
from amqsidecar.http.openapi import document


def endpoints(desk: Desk) -> list[Endpoint]:
    """Return the table."""
    live = Live(desk)

    async def events(_call: Call) -> Response:
        return StreamingResponse(await live.listen(), headers={"Content-Type": "text/event-stream"})

    @cache
    def printed() -> bytes:
        return msgspec.json.encode(document(table))

    async def openapi(_call: Call) -> Response:
        return Response(printed(), headers={"Content-Type": "application/json"})

    table = [
        *Looking(desk).endpoints(),
        *Acting(desk).endpoints(),
        *Ruling(desk).endpoints(),
        *Noting(desk).endpoints(),
        *Exporting(desk).endpoints(),
        Endpoint(
            method="GET",
            path="/events",
            summary="Counters as server-sent events, whenever they change.",
            run=events,
            media_type="text/event-stream",
        ),
        Endpoint(
            method="GET",
            path="/openapi.json",
            summary="This document.",
            run=openapi,
            answer=dict[str, Any],
        ),
    ]
    return table


def routes(desk: Desk) -> list[Route]:
    """Return the routes of the API."""
    return routes_of(endpoints(desk))
