"""The pages; every address can be bookmarked and shared."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from amqsidecar.errors import ConfigError, NothingFound
from amqsidecar.http.console import (
    action_pages,
    audit_pages,
    edit_pages,
    message_pages,
    operation_pages,
    report_pages,
    webhook_pages,
)
from amqsidecar.http.console.advice import known_of, next_steps, useless_actions
from amqsidecar.http.console.console import Console, PageMissing, Visit, VisitHandler
from amqsidecar.http.console.differing import read_common, read_differing
from amqsidecar.http.console.plots import (
    plot_deaths,
    plot_group,
    plot_lateness,
    plot_recovery,
    plot_schedule,
)
from amqsidecar.http.console.query import QueryError, address, group_query, read_zoom
from amqsidecar.http.console.svg import Plotted
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.ledger import RowOrder
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.charts import (
    Zoom,
    deaths_by_cause,
    deaths_of_group,
    last_deaths_until,
    marks_since,
    recovery_by_attempt,
    schedule_ahead,
)
from amqsidecar.operations.failures.find_group import the_group, with_numbered
from amqsidecar.operations.failures.former_groups import Place, read_cause_groups
from amqsidecar.operations.failures.groups import (
    DAY_MS,
    read_group,
    read_groups,
)
from amqsidecar.operations.failures.notes import (
    LONGEST_NOTE,
    LONGEST_OWNER,
    read_notes,
    write_note,
)
from amqsidecar.operations.failures.solved import find_solutions
from amqsidecar.operations.last_death import last_death
from amqsidecar.operations.overview import (
    Overview,
    read_overview,
    read_recoveries,
)
from amqsidecar.operations.policies import PolicyEffect, effect_of, policy_view
from amqsidecar.operations.words import many
from amqsidecar.schedule import Schedule

GROUPS_SHOWN = 200
MEMBERS_SHOWN = 10

SNOOZES: Final = (
    ("", "as it is"),
    ("3600", "for an hour"),
    ("28800", "for 8 hours"),
    ("86400", "for a day"),
    ("604800", "for a week"),
    ("mute", "until more die of it than now"),
    ("0", "not any more"),
)
_EMPTY_NOTE: Final = dict.fromkeys(("note", "owner", "snooze", "merge_into"), "")
"""The fields of the form of a note; "" = unchanged."""


def routes(console: Console) -> list[BaseRoute]:
    """Return the routes of the console."""
    pages = [(path, handler, "GET") for path, handler in _PAGES.items()]
    pages += [(path, handler, "POST") for path, handler in _FORMS.items()]
    found = [console.visited(*page) for page in pages if not page[0].startswith(console.missing)]
    return [console.static.route(), *found]


async def _overview(visit: Visit) -> Response:
    tell, zoom = visit.tools.sidecar_status, read_zoom(visit.params)
    status = None if tell is None else tell()
    # Why: a self-refreshing page takes only the numbers, and plots are most of the work.
    is_refresh = visit.request.headers.get("HX-Request") == "true"

    def read(at: QueryContext) -> tuple[Overview, list[Plotted]]:
        found = read_overview(at.store, at.now_ms, status)
        return found, [] if is_refresh else [*_urgent_plots(visit, at, zoom)]

    found, plots = await visit.ask(read)
    return await visit.page(
        "overview.html",
        now_ms=found.at_ms,
        overview=found,
        headline=headline(found),
        plots=plots,
    )


async def _plots(visit: Visit) -> Response:
    zoom = read_zoom(visit.params)

    def read(at: QueryContext) -> list[Plotted]:
        recovery = plot_recovery(recovery_by_attempt(at.store, at.now_ms))
        return [*_urgent_plots(visit, at, zoom), recovery]

    found, tell = await visit.ask(read), visit.tools.lateness
    late = [] if tell is None else [plot_lateness(tell())]
    return await visit.page("plots.html", plots=[*found, *late])


def _urgent_plots(visit: Visit, at: QueryContext, zoom: Zoom | None) -> Iterable[Plotted]:
    """Return deaths and due messages; if no zoom is chosen, of an hour in which there are any."""
    yield _plot_of_deaths(visit, at, None, zoom)
    yield _first_of(zoom, lambda one: plot_schedule(schedule_ahead(at.store, at.now_ms, one)))


def _plot_of_deaths(
    visit: Visit, at: QueryContext, place: Place | None, zoom: Zoom | None
) -> Plotted:
    """Return deaths of a group, or of all; of a chosen time without any, those before it."""
    masked = visit.queries.masking.text
    acts = marks_since(at.store, at.now_ms - DAY_MS, None if place is None else place[0])
    marks = [msgspec.structs.replace(one, what=masked(one.what)) for one in acts]

    def plot(zoom: Zoom, until_ms: int | None = None) -> Plotted:
        if place is not None and zoom is Zoom.DAY:
            return plot_group(deaths_of_group(at.store, place, at.now_ms), marks)
        deaths = deaths_by_cause(at.store, at.now_ms, zoom, place=place, until_ms=until_ms)
        return plot_deaths(
            deaths, masked, marks, is_one_cause=place is not None, is_past=until_ms is not None
        )

    found = _first_of(zoom, plot)
    if zoom is not None and found.is_empty:
        until_ms = last_deaths_until(at.store, at.now_ms, place)
        return found if until_ms is None else plot(zoom, until_ms)
    return found


def _first_of(zoom: Zoom | None, plot: Callable[[Zoom], Plotted]) -> Plotted:
    """Return a plot as it is asked for; else of an hour, or of a day if the hour's is empty."""
    found = plot(zoom or Zoom.HOUR)
    return plot(Zoom.DAY) if zoom is None and found.is_empty else found


async def _groups(visit: Visit) -> Response:
    destination = visit.query().selection.rows.destination
    found = await visit.ask(
        lambda at: read_groups(at.store, at.now_ms, destination=destination, limit=GROUPS_SHOWN)
    )
    return await visit.page(
        "groups.html", groups=found, destination=destination, limit=GROUPS_SHOWN
    )


async def _groups_file(visit: Visit) -> Response:
    destination = visit.query().selection.rows.destination
    return await visit.console.exports.groups(visit.caller, destination)


async def _show_group(
    visit: Visit, written: Mapping[str, str] | None = None, problem: str = ""
) -> Response:
    asked, queries = await _place(visit), visit.queries
    place = await visit.ask(lambda at: (asked[0], read_cause_groups(at.store).find(*asked)))
    members_of = RowFilter(destination=place[0], cause_group=place[1])
    wanted, zoom = visit.params.get("show", ""), read_zoom(visit.params)

    def show(store: Schedule, at: QueryContext) -> dict[str, Any]:
        with store.snapshot():
            members = store.page_rows(members_of, RowOrder.NEWEST, MEMBERS_SHOWN)
            rows = members.rows
            group, notes = read_group(store, place, at.now_ms), read_notes(store, place)
            if group is None and not rows:
                raise PageMissing(
                    "The history has no death of this cause there; it may have been removed after "
                    "history.keep_days."
                )
            recoveries = read_recoveries(store, at.now_ms, destination=place[0])
            recovery = recoveries[0] if recoveries else None
            solutions = {} if group is None else find_solutions(store, [group], at.now_ms)
            return {
                "group": group,
                "known": [] if group is None else known_of(group, recovery),
                "next_steps": [] if group is None else next_steps(group, recovery),
                "useless": useless_actions(
                    [state for state in RowState if group is None or getattr(group, state)]
                ),
                "solution": solutions.get(place),
                "notes": notes,
                "written": written or {**_EMPTY_NOTE, "owner": notes[0].owner if notes else ""},
                "example": None if group is None else last_death(store.history(group.example_id)),
                "deaths": _plot_of_deaths(visit, at, place, zoom),
                "members": [queries.masking.struct(row) for row in rows],
                "has_more": members.next_after is not None,
                "differing": read_differing(queries, store, rows, visit.caller, wanted),
                "common": read_common(queries, store, place, visit.caller),
                "query": group_query(place[0], queries.masking.group(place[1], place[0])),
            }

    return await visit.page(
        "group.html",
        problem,
        **await visit.ask(lambda at: show(at.store, at)),
        snoozes=SNOOZES,
        problem=problem,
        longest_note=LONGEST_NOTE,
        longest_owner=LONGEST_OWNER,
        place=place,
    )


async def _note(visit: Visit) -> Response:
    place, form, masking = await _place(visit), await visit.form(), visit.queries.masking
    written = {name: form.get(name, "") for name in _EMPTY_NOTE}
    written["note"] = text = written["note"].replace("\r\n", "\n")
    snooze = written["snooze"]
    if snooze not in dict(SNOOZES):
        raise QueryError("snooze: not a valid time")

    def write(at: QueryContext) -> GroupNote:
        name = written["merge_into"].strip() or None
        there, before = RowFilter(destination=place[0]), read_notes(at.store, place)
        had = before[0].owner if before else ""
        owner = written["owner"].strip()
        return write_note(
            at.store,
            place,
            text,
            visit.actor,
            at.now_ms,
            owner=None if owner == had else owner,
            snooze_ms=int(snooze) * 1000 if snooze.isdecimal() else None,
            is_muted={"mute": True, "0": False}.get(snooze),
            merge_into=""
            if form.get("separate")
            else name and the_group(at.store, there, part=name, shown=masking.text)[1],
        )

    try:
        await visit.ask(write)
    except (ActionRefused, NothingFound) as error:
        return await _show_group(visit, written, await asyncio.to_thread(masking.text, str(error)))
    group = await asyncio.to_thread(masking.group, place[1], place[0])
    here = address("/groups/one", {"destination": place[0], "group": group})
    return RedirectResponse(f"{here}#notes", 303)


async def _policies(
    visit: Visit,
    written: str | None = None,
    effect: PolicyEffect | None = None,
    problems: Sequence[str] = (),
) -> Response:
    policies = visit.tools.policies
    view = await visit.ask(lambda at: policy_view(at.store, policies, at.now_ms))
    return await visit.page(
        "policies.html",
        problems,
        view=view,
        written=view.yaml if written is None else written,
        effect=effect,
        problems=problems,
    )


async def _try_rules(visit: Visit) -> Response:
    text = (await visit.form()).get("rules", "").replace("\r\n", "\n")
    policies, opens = visit.tools.policies, visit.queries.masking.may_probe(visit.caller)
    try:
        effect = await visit.ask(
            lambda at: effect_of(at.store, policies, text, at.now_ms, opens=opens)
        )
    except ConfigError as error:
        return await _policies(visit, text, problems=[str(one) for one in error.problems])
    return await _policies(visit, text, effect)


async def _place(visit: Visit) -> Place:
    """Return the group that the address of a page names.

    Raises:
        PageMissing: it names none.
    """
    selection = visit.query().selection
    rows = (await visit.ask(lambda at: with_numbered(at.store, selection))).rows
    if rows.destination is None or rows.cause_group is None:
        raise PageMissing("A group needs a destination and a cause in its address.")
    return rows.destination, rows.cause_group


def headline(overview: Overview) -> str:
    """Return the most important fact as a sentence."""
    died = overview.died
    if not died.deaths:
        if overview.status is not None and not overview.status.is_well:
            return "No deaths in the last hour, but this sidecar needs attention."
        return "Nothing died in the last hour."
    times = "" if died.deaths == died.messages else f", {many(died.deaths, 'time')}"
    said = f"{many(died.messages, 'message')} died in the last hour{times}, of "
    said += many(died.causes, "cause")
    if died.new:
        said += f"; {died.new} {'are' if died.new > 1 else 'is'} new since yesterday"
    return f"{said}."


_PAGES: Final[Mapping[str, VisitHandler]] = {
    "/": _overview,
    "/plots": _plots,
    "/groups": _groups,
    "/groups.csv": _groups_file,
    "/groups/one": _show_group,
    "/policies": _policies,
    "/messages": message_pages.show_messages,
    "/messages.csv": message_pages.messages_csv,
    "/messages/one": message_pages.show_message,
    "/messages/download": message_pages.download_message,
    "/messages/edit": edit_pages.show_editor,
    "/messages/{reference}": message_pages.go_to_message,
    "/act/{action}": action_pages.show_action,
    "/operations": operation_pages.show_operations,
    "/operations/{number}": operation_pages.show_operation,
    "/operations/{number}/members.csv": operation_pages.members_csv,
    "/reports": report_pages.show_reports,
    "/reports/one": report_pages.show_report,
    "/audit": audit_pages.show_audit,
    "/webhooks": webhook_pages.show_webhooks,
}
_FORMS: Final[Mapping[str, VisitHandler]] = {
    "/groups/one": _note,
    "/policies": _try_rules,
    "/messages/one": message_pages.try_rules_on_message,
    "/messages/edit": edit_pages.send_edit,
    "/act/{action}": action_pages.confirm_action,
    "/operations/{number}/{change}": operation_pages.change_operation,
    "/webhooks/{name}/test": webhook_pages.send_test,
}
