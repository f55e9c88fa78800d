"""The pages, in the frame of the sidecar's console."""

from difflib import unified_diff
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.fleet import answers
from amqsidecar.fleet.api import PersonOf
from amqsidecar.fleet.desk import Approval, Desk
from amqsidecar.fleet.gather import Said
from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.console import PageFrame, PageMissing
from amqsidecar.http.console.described import ACTIONS
from amqsidecar.http.console.query import read_query
from amqsidecar.model.operation import SENDS, Action
from amqsidecar.model.schedule import RowState
from amqsidecar.operations.conditions import CONDITIONS

NAVIGATION: Final = (
    ("/", "Fleet"),
    ("/groups", "Groups"),
    ("/messages", "Messages"),
    ("/operations", "Operations"),
    ("/policies", "Policies"),
)
_SHOWN: Final = 200
_LINES_MAX: Final = 2_000
"""Of rules that are compared."""

OFFERED: Final = [one for one in Action if one is not Action.REDIRECT]
"""A redirect has another target at each broker."""


def routes(frame: PageFrame, desk: Desk, person_of: PersonOf) -> list[BaseRoute]:
    """Return the routes of the pages."""

    async def overview(request: Request) -> Response:
        found = await desk.overview(person_of(request))
        return await frame.page(request, "fleet.html", now_ms=found.at_ms, overview=found)

    async def groups(request: Request) -> Response:
        found = await desk.groups(person_of(request))
        return await frame.page(
            request, "fleet_groups.html", groups=found.found[:_SHOWN], missing=found.missing
        )

    async def group(request: Request) -> Response:
        cause = request.query_params.get("group", "")
        found = await desk.groups(person_of(request), cause)
        return await frame.page(
            request,
            "fleet_group.html",
            cause_group=cause,
            group=found.found[0] if found.found else None,
            missing=found.missing,
            offered={one: ACTIONS[one] for one in OFFERED},
        )

    async def messages(request: Request) -> Response:
        query = read_query(request.query_params, frame.clock.now_ms())
        conditions = [
            (one.parameter, value)
            for one in CONDITIONS
            if one.parameter and one.address
            for value in query.fields.get(one.address, [])
        ]
        person = person_of(request)
        found = await desk.search(person, conditions) if conditions else None
        answered = [one for one in found.found if one.value] if found else []
        rows = [(one, row) for one in answered if one.value for row in one.value.rows]
        return await frame.page(
            request,
            "fleet_messages.html",
            query=query,
            is_asked=found is not None,
            rows=sorted(rows, key=lambda one: -one[1].received_at_ms),
            more=[one.sidecar for one in answered if one.value and one.value.next],
            missing=found.missing if found else {},
            states=[*RowState],
        )

    async def operations(request: Request) -> Response:
        found = await desk.operations(person_of(request))
        return await frame.page(
            request,
            "fleet_operations.html",
            operations=found.found[:_SHOWN],
            missing=found.missing,
            actions=ACTIONS,
        )

    async def policies(request: Request) -> Response:
        found = await desk.policies(person_of(request))
        return await frame.page(
            request, "fleet_policies.html", kinds=_kinds(found.found), missing=found.missing
        )

    async def look(request: Request) -> Response:
        action, cause = _action(request), request.query_params.get("group", "")
        found = await desk.preview(person_of(request), action, cause)
        return await frame.page(
            request,
            "fleet_action.html",
            action=action,
            words=ACTIONS[action],
            sends=action in SENDS,
            cause_group=cause,
            previews=[(one, msgspec.json.encode(one.approval).decode()) for one in found.found],
            missing=found.missing,
        )

    async def begin(request: Request) -> Response:
        action, form = _action(request), await request.form()
        try:
            texts = [str(one) for one in form.getlist("approve")]
            approvals = [msgspec.json.decode(one, type=Approval) for one in texts]
        except msgspec.MsgspecError as error:
            raise HttpRefused(400, f"approve: expected what the preview gave: {error}") from error
        if ACTIONS[action].is_final and form.get("sure") != "yes":
            raise HttpRefused(400, "they won't be redelivered after this: go back and confirm it")
        begun = await desk.begin(
            person_of(request),
            action,
            approvals,
            str(form.get("reason", "")),
            is_careful=form.get("how") != "once",
        )
        return await frame.page(
            request,
            "fleet_begun.html",
            words=ACTIONS[action],
            begun=[*zip(approvals, begun, strict=False)],
        )

    return [
        frame.static.route(),
        frame.route("/", overview),
        frame.route("/groups", groups),
        frame.route("/groups/one", group),
        frame.route("/messages", messages),
        frame.route("/operations", operations),
        frame.route("/policies", policies),
        frame.route("/act/{action}", look),
        frame.route("/act/{action}", begin, "POST"),
    ]


def _action(request: Request) -> Action:
    found = next((one for one in OFFERED if one == request.path_params["action"]), None)
    if found is None:
        raise PageMissing("There is no such action over several brokers.")
    return found


def _kinds(
    found: list[Said[answers.SaidPolicies]],
) -> list[tuple[list[Said[answers.SaidPolicies]], str]]:
    """Return sidecars with the same rules, and how those differ from the most common ones."""
    by_digest: dict[str, list[Said[answers.SaidPolicies]]] = {}
    for one in found:
        if one.value is not None:
            by_digest.setdefault(one.value.digest, []).append(one)
    kinds = sorted(by_digest.items(), key=lambda one: (not one[0], -len(one[1])))
    lines = [sidecars[0].value.lines[:_LINES_MAX] for _, sidecars in kinds if sidecars[0].value]
    return [
        (sidecars, "\n".join([*unified_diff(lines[0], here, lineterm="", n=2)][2:]) if key else "")
        for (key, sidecars), here in zip(kinds, lines, strict=True)
    ]
