"""The API: the table of its endpoints; the same questions as the pages ask."""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from amqsidecar.fleet.desk import Approval, Desk, FleetGroup, FleetOverview, Gathered, PlacePreview
from amqsidecar.fleet.gather import Said
from amqsidecar.http.answers import JSON
from amqsidecar.http.api.filter import Filter
from amqsidecar.http.api.openapi import document
from amqsidecar.http.api.table import ApiEndpoint, Call, routes_of
from amqsidecar.http.api.views import RowsAnswer, Session, session
from amqsidecar.http.masking import Masking
from amqsidecar.model.operation import Action, Operation

DeskOf = Callable[[Request], Desk]
"""Returns the desk for the person who sent a request."""


class CauseQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which groups."""

    cause_group: Annotated[str | None, Meta(description="Only this cause, in full.")] = None


class ActionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action on a cause."""

    action: Action
    cause_group: str
    target: Annotated[str | None, Meta(description="Redirect: where to.")] = None


class Approved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action, and the places that it is approved for.

    Attributes:
        approvals: as the preview gave them.
        careful: a probe, a pace and a stop, as `--careful` of the commands.
    """

    action: Action
    approvals: list[Approval]
    reason: str = ""
    careful: bool = True


def routes(desk_of: DeskOf) -> list[Route]:
    """Return the routes of the API."""

    async def overview(call: Call) -> Any:
        return await desk_of(call.request).overview()

    async def operations(call: Call) -> Any:
        return await desk_of(call.request).operations()

    async def groups(call: Call) -> Any:
        return await desk_of(call.request).groups(call.query.cause_group)

    async def messages(call: Call) -> Any:
        conditions = call.request.query_params.multi_items()
        return await desk_of(call.request).search(conditions)

    async def preview(call: Call) -> Any:
        query: ActionQuery = call.query
        desk = desk_of(call.request)
        return await desk.preview(query.action, query.cause_group, query.target)

    async def begin(call: Call) -> Any:
        body: Approved = call.body
        return await desk_of(call.request).begin(
            body.action, body.approvals, body.reason, is_careful=body.careful
        )

    @cache
    def printed() -> bytes:
        return msgspec.json.encode(document(table))

    async def openapi(_call: Call) -> Response:
        return Response(printed(), headers={"Content-Type": JSON})

    of_rows, of_groups = Gathered[Said[RowsAnswer]], Gathered[FleetGroup]
    of_operations = Gathered[Said[Operation]]
    begins = "Have sidecars begin what is approved; one entry for each approval, in order."
    table = [
        ApiEndpoint("/session", "The caller and its role.", session, Session),
        ApiEndpoint("/overview", "The first screen over all sidecars.", overview, FleetOverview),
        ApiEndpoint(
            "/operations", "The newest operations of all sidecars.", operations, of_operations
        ),
        ApiEndpoint("/groups", "Failures by cause.", groups, of_groups, CauseQuery),
        ApiEndpoint("/messages", "Each sidecar's newest messages.", messages, of_rows, Filter),
        ApiEndpoint(
            "/preview",
            "Each sidecar's preview of an action on a cause.",
            preview,
            Gathered[PlacePreview],
            ActionQuery,
        ),
        ApiEndpoint(
            "/operations", begins, begin, list[Said[Operation]], method="POST", body=Approved
        ),
        ApiEndpoint("/openapi.json", "This document.", openapi, dict[str, Any]),
    ]
    return routes_of(table, Masking().answer)
