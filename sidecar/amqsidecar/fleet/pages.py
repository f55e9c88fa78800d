"""The pages, in the frame of the sidecar's console."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.fleet.api import DeskOf
from amqsidecar.fleet.desk import Approval, Gathered, PlacePreview
from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.action_pages import asked_action
from amqsidecar.http.console.console import PageFrame
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
)


def routes(frame: PageFrame, desk_of: DeskOf) -> list[BaseRoute]:
    """Return the routes of the pages."""
    show = frame.page

    async def overview(request: Request) -> Response:
        found = await desk_of(request).overview()
        return await show(request, "fleet.html", now_ms=found.at_ms, overview=found)

    async def groups(request: Request) -> Response:
        said = await desk_of(request).groups()
        found, missing = said.found[:200], said.missing
        return await show(request, "fleet_groups.html", groups=found, missing=missing)

    async def group(request: Request) -> Response:
        cause = request.query_params.get("group", "")
        said = await desk_of(request).groups(cause)
        values = {"cause_group": cause, "missing": said.missing, "offered": ACTIONS}
        found = next(iter(said.found), None)
        return await show(request, "fleet_group.html", group=found, **values)

    async def messages(request: Request) -> Response:
        query = read_query(request.query_params, frame.clock.now_ms())
        conditions = [
            (one.parameter, value)
            for one in CONDITIONS
            if one.parameter and one.address
            for value in query.fields.get(one.address, [])
        ]
        said = await desk_of(request).search(conditions) if conditions else None
        answers = [(one, one.value) for one in said.found if one.value] if said else []
        rows = [(one, row) for one, answer in answers for row in answer.rows]
        return await show(
            request,
            "fleet_messages.html",
            query=query,
            is_asked=said is not None,
            rows=sorted(rows, key=lambda one: -one[1].received_at_ms),
            more=[one.sidecar for one, answer in answers if answer.next is not None],
            missing=said.missing if said else {},
            states=[*RowState],
        )

    async def operations(request: Request) -> Response:
        said = await desk_of(request).operations()
        values = {"missing": said.missing, "actions": ACTIONS}
        found = said.found[:200]
        return await show(request, "fleet_operations.html", operations=found, **values)

    async def look(request: Request) -> Response:
        action, given = asked_action(request), request.query_params
        cause, target = given.get("group", ""), given.get("target", "").strip() or None
        needs_target = action is Action.REDIRECT and target is None
        said = Gathered[PlacePreview]([], {})
        if not needs_target:
            said = await desk_of(request).preview(action, cause, target)
        return await show(
            request,
            "fleet_action.html",
            action=action,
            words=ACTIONS[action],
            sends=action in SENDS,
            cause_group=cause,
            target=target or "",
            needs_target=needs_target,
            previews=[(one, msgspec.json.encode(one.approval).decode()) for one in said.found],
            missing=said.missing,
        )

    async def begin(request: Request) -> Response:
        action, form = asked_action(request), await request.form()
        words, texts = ACTIONS[action], [str(one) for one in form.getlist("approve")]
        if words.is_final and form.get("sure") != "yes":
            raise HttpRefused(400, "they won't be redelivered after this: go back and confirm it")
        try:
            approvals = [msgspec.json.decode(one, type=Approval) for one in texts]
        except msgspec.MsgspecError as error:
            raise HttpRefused(400, f"approve: expected what the preview gave: {error}") from error
        reason, is_careful = str(form.get("reason", "")), form.get("how") != "once"
        said = await desk_of(request).begin(action, approvals, reason, is_careful=is_careful)
        begun = [*zip(approvals, said, strict=False)]
        return await show(request, "fleet_begun.html", words=words, begun=begun)

    return [
        frame.static.route(),
        frame.route("/", overview),
        frame.route("/groups", groups),
        frame.route("/groups/one", group),
        frame.route("/messages", messages),
        frame.route("/operations", operations),
        frame.route("/act/{action}", look),
        frame.route("/act/{action}", begin, "POST"),
    ]
