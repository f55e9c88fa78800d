"""The API: the table of its endpoints; the same questions as the pages ask."""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from amqsidecar.fleet import answers
from amqsidecar.fleet.desk import (
    Approval,
    Desk,
    FleetGroup,
    FleetOverview,
    Gathered,
    PlacePreview,
)
from amqsidecar.fleet.gather import Person, Said
from amqsidecar.http.answers import JSON
from amqsidecar.http.api.filter import Filter
from amqsidecar.http.api.openapi import document
from amqsidecar.http.api.table import ApiEndpoint, Call, routes_of
from amqsidecar.http.api.views import Session, session
from amqsidecar.model.operation import Action

PersonOf = Callable[[Request], Person]
"""Returns who a request comes from."""


class CauseQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which groups."""

    cause_group: Annotated[str | None, Meta(description="Only this cause, in full.")] = None


class ActionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action on a cause."""

    action: Action
    cause_group: str


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


def routes(desk: Desk, person_of: PersonOf) -> list[Route]:
    """Return the routes of the API."""

    async def overview(call: Call) -> FleetOverview:
        return await desk.overview(person_of(call.request))

    async def groups(call: Call) -> Gathered[FleetGroup]:
        return await desk.groups(person_of(call.request), call.query.cause_group)

    async def messages(call: Call) -> Gathered[Said[answers.SaidRows]]:
        conditions = call.request.query_params.multi_items()
        return await desk.search(person_of(call.request), conditions)

    async def policies(call: Call) -> Gathered[Said[answers.SaidPolicies]]:
        return await desk.policies(person_of(call.request))

    async def operations(call: Call) -> Gathered[Said[answers.SaidOperation]]:
        return await desk.operations(person_of(call.request))

    async def preview(call: Call) -> Gathered[PlacePreview]:
        query: ActionQuery = call.query
        return await desk.preview(person_of(call.request), query.action, query.cause_group)

    async def begin(call: Call) -> list[Said[answers.SaidOperation]]:
        asked: Approved = call.body
        return await desk.begin(
            person_of(call.request),
            asked.action,
            asked.approvals,
            asked.reason,
            is_careful=asked.careful,
        )

    @cache
    def printed() -> bytes:
        return msgspec.json.encode(document(table))

    async def openapi(_call: Call) -> Response:
        return Response(printed(), headers={"Content-Type": JSON})

    async def as_it_is(answer: Any) -> Any:
        return answer

    table = [
        ApiEndpoint("/session", "The caller and its role.", session, Session),
        ApiEndpoint("/overview", "The first screen over all sidecars.", overview, FleetOverview),
        ApiEndpoint(
            "/groups", "Failures by cause.", groups, Gathered[FleetGroup], query=CauseQuery
        ),
        ApiEndpoint(
            "/messages",
            "The newest waiting messages of each sidecar.",
            messages,
            Gathered[Said[answers.SaidRows]],
            query=Filter,
        ),
        ApiEndpoint(
            "/policies",
            "The rules of each sidecar.",
            policies,
            Gathered[Said[answers.SaidPolicies]],
        ),
        ApiEndpoint(
            "/operations",
            "The newest operations of all sidecars.",
            operations,
            Gathered[Said[answers.SaidOperation]],
        ),
        ApiEndpoint(
            "/preview",
            "Each sidecar's preview of an action on a cause.",
            preview,
            Gathered[PlacePreview],
            query=ActionQuery,
        ),
        ApiEndpoint(
            "/operations",
            "Have sidecars begin what is approved; one entry for each approval, in order.",
            begin,
            list[Said[answers.SaidOperation]],
            method="POST",
            body=Approved,
        ),
        ApiEndpoint("/openapi.json", "This document.", openapi, dict[str, Any]),
    ]
    return routes_of(table, as_it_is)
