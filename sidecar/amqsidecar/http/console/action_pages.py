"""Pages of actions: preview, pace and reason, then the confirmation."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from amqsidecar.http.console.command import command_of
from amqsidecar.http.console.console import PageMissing, Visit
from amqsidecar.http.console.described import ACTIONS, describe, describe_bounds
from amqsidecar.http.console.operation_pages import whole_number
from amqsidecar.http.console.query import MessageQuery, QueryError, bounded
from amqsidecar.http.console.templating import moment
from amqsidecar.http.rights import Right, right_of
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.model.operation import CAREFUL, SENDS, Action, Operation, OperationPace, Selection
from amqsidecar.model.signal import DEFAULT_WAIT_MS
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.failures.find_group import with_numbered
from amqsidecar.operations.operate import Wish, begin, checked
from amqsidecar.operations.preview import (
    OpenGate,
    Preview,
    drift,
    examine,
    gate_notes,
    needs_second,
    preview,
)
from amqsidecar.schedule import Schedule

KNOWN_MAX: Final = 200
"""Maximum destinations that a redirect offers."""

FEW: Final = 10
"""Up to this many messages need no probe or pace."""


async def show_action(
    visit: Visit, form: Mapping[str, str] | None = None, problem: str = ""
) -> Response:
    """Show the preview of an action, and its form."""
    action, query, tools = asked_action(visit.request), visit.query(), visit.tools

    def read(at: QueryContext) -> tuple[Preview, list[str]]:
        known = {one.destination for one in at.may(Right.ACT).group_tallies()}
        there = at.may(right_of(action))
        selection, suffix = _chosen(there, action, query), tools.final_suffix
        found = preview(there, action, selection, suffix=suffix, gate=tools.gate)
        return found, sorted(known)

    found, known = await visit.ask(read)
    if form is None:
        form = _careful("carefully" if found.count > FEW else "once") if action in SENDS else {}
    return await visit.page(
        "action.html",
        problem,
        action=action,
        words=ACTIONS[action],
        sends=action in SENDS,
        query=query,
        conditions=[*describe(query.selection), *describe_bounds(query.bounds)],
        preview=found,
        known=known[:KNOWN_MAX],
        form=_in_utc(form),
        problem=problem,
        command=_command(action, query, form, visit.queries.clock.now_ms()),
    )


async def confirm_action(visit: Visit) -> Response:
    """Begin the operation that a form asks for."""
    action, query, tools = asked_action(visit.request), visit.query(), visit.tools
    form = await visit.form()
    try:
        if ACTIONS[action].is_final and form.get("sure") != "yes":
            raise ActionRefused("they won't be redelivered after this: tick the box to confirm")
        expected, careful = _number(form, "expected"), _careful_fields(form)
        careful |= {"expected": None if expected is None else int(expected)}
        wish = checked(_wish(action, query.selection, form, visit.actor, **careful))

        def write(at: QueryContext) -> Operation:
            _refuse_doubtful(tools.gate, wish.target, form)
            there = at.may(right_of(action))
            selection = _chosen(there, action, query)
            now = examine(there, action, selection, suffix=tools.final_suffix)
            if wish.expected is not None:
                changed = drift(now.count, wish.expected, is_whole=now.is_whole)
                if changed is not None:
                    raise ActionRefused(changed)
            waits = needs_second(now, tools.second_person_above)
            asked = msgspec.structs.replace(wish, selection=selection, needs_second=waits)
            return begin(at.store, asked, at.now_ms)

        operation = await visit.ask(write)
    except (ActionRefused, QueryError) as error:
        return await show_action(visit, form, str(error))
    return RedirectResponse(f"/operations/{operation.id}", 303)


def asked_action(request: Request) -> Action:
    """Return the action in the path of a page; raises PageMissing where it is none."""
    try:
        return Action(request.path_params["action"])
    except ValueError as error:
        raise PageMissing("There is no such action.") from error


def _refuse_doubtful(gate: OpenGate | None, target: str | None, form: Mapping[str, str]) -> None:
    """Refuse a redirect once, if something speaks against its target.

    Raises:
        ActionRefused: the form does not show yet that the person has read it.
    """
    if gate is None or target is None or form.get("asked") == form.get("target"):
        return
    if notes := "; ".join(gate_notes(gate, [target])):
        raise ActionRefused(f"{notes}. To redirect nevertheless, press the button again")


def _chosen(store: Schedule, action: Action, query: MessageQuery) -> Selection:
    """Return the messages that the query means now."""
    return bounded(store, action, with_numbered(store, query.selection), query.bounds)


def _careful(how: str) -> dict[str, str]:
    return {
        "how": how,
        "probe": str(CAREFUL.probe),
        "per_second": f"{CAREFUL.per_second:g}",
        "ramp": "yes" if CAREFUL.ramp else "",
        "stop": f"{(CAREFUL.stop_share or 0) * 100:g}",
        "window": str(CAREFUL.window_ms // 1000),
    }


def _wish(
    action: Action, selection: Selection, form: Mapping[str, str], actor: str, **careful: Any
) -> Wish:
    """Return the action that a form requests; `careful` are its numeric fields."""
    return Wish(
        action=action,
        selection=selection,
        actor=actor,
        reason=form.get("reason", "").strip(),
        target=form.get("target", "").strip() or None,
        until=form.get("until", "").strip(),
        since=whole_number(form.get("since")),
        **careful,
    )


def _careful_fields(form: Mapping[str, str]) -> dict[str, Any]:
    """Return how carefully, and how long, a form asks for it."""
    hours = _number(form, "longest_h")
    longest_ms = DEFAULT_WAIT_MS if hours is None else int(hours * 3_600_000)
    return {"pace": _pace(form), "longest_ms": longest_ms}


def _pace(form: Mapping[str, str]) -> OperationPace:
    if form.get("how") == "once":
        return OperationPace(begin_at_ms=_begin_ms(form))
    stop, window_s = _number(form, "stop"), _number(form, "window")
    return OperationPace(
        probe=int(_number(form, "probe") or 0),
        per_second=_number(form, "per_second"),
        ramp=form.get("ramp") == "yes",
        stop_share=None if stop is None else stop / 100,
        window_ms=OperationPace().window_ms if window_s is None else int(window_s * 1000),
        begin_at_ms=_begin_ms(form),
    )


def _begin_ms(form: Mapping[str, str]) -> int | None:
    """Return when it shall begin; None = at once. `zone` is minutes east of UTC."""
    text, zone = form.get("begin", "").strip(), form.get("zone", "").strip() or "0"
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=timezone(timedelta(minutes=int(zone))))
        return int(found.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise QueryError(
            f"begin: expected a time such as 2026-11-01T08:00, found {text!r}"
        ) from error


def _in_utc(form: Mapping[str, str]) -> Mapping[str, str]:
    """Return a form with its time of begin in UTC, as its field takes it."""
    try:
        begin_ms = _begin_ms(form)
    except QueryError:
        return form
    begin = None if begin_ms is None else moment(begin_ms)
    return form if begin is None else {**form, "begin": f"{begin:%Y-%m-%dT%H:%M}"}


def _number(form: Mapping[str, str], name: str) -> float | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise QueryError(f"{name}: expected a number, found {text!r}")
    return value


def _command(
    action: Action, query: MessageQuery, form: Mapping[str, str], now_ms: int
) -> str | None:
    """Return the command of a form; of one with mistakes without its pace."""
    careful: dict[str, Any] = {}
    with suppress(QueryError):
        careful = _careful_fields(form)
    if action is Action.REDIRECT and not form.get("target", "").strip():
        form = {**form, "target": "DESTINATION"}
    if action is not Action.HOLD:
        form = {**form, "until": ""}
    return command_of(_wish(action, query.selection, form, "", **careful), now_ms, query.bounds)
