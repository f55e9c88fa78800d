"""The pages: what is dying, what waits, where it goes; every address can be kept and sent on."""

from collections.abc import Iterable

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from amqsidecar.http.console import (
    action_pages,
    edit_pages,
    export_pages,
    message_pages,
    operation_pages,
    policy_pages,
    report_pages,
)
from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.console.plots import (
    plot_deaths,
    plot_group,
    plot_lateness,
    plot_recovery,
    plot_schedule,
)
from amqsidecar.http.console.query import address, group_query
from amqsidecar.http.console.svg import Plotted
from amqsidecar.http.console.templating import many
from amqsidecar.http.desk import OpenStore
from amqsidecar.http.guard import caller_of
from amqsidecar.ledger import RowOrder, RowPage
from amqsidecar.model.note import GroupNote
from amqsidecar.model.schedule import RowFilter, StoreState
from amqsidecar.operations.act import Refused
from amqsidecar.operations.charts import (
    Timeline,
    deaths_by_cause,
    deaths_of_group,
    recovery_by_attempt,
    schedule_ahead,
)
from amqsidecar.operations.groups import Group, Place, Trend, read_group, read_groups
from amqsidecar.operations.notes import LONGEST_NOTE, write_note
from amqsidecar.operations.overview import Overview, read_overview

GROUPS_SHOWN = 200
MEMBERS_SHOWN = 10


def routes(console: Console) -> list[BaseRoute]:
    """Return the routes of the console."""
    return [
        console.static.route(),
        *_overview_routes(console),
        *_group_routes(console),
        *message_pages.routes(console),
        *edit_pages.routes(console),
        *action_pages.routes(console),
        *export_pages.routes(console),
        *operation_pages.routes(console),
        *policy_pages.routes(console),
        *report_pages.routes(console),
        message_pages.short_route(console),
    ]


def _overview_routes(console: Console) -> Iterable[BaseRoute]:
    desk = console.desk

    async def overview(request: Request) -> Response:
        wellness = None if desk.tools.wellness is None else desk.tools.wellness()

        # Why: what refreshes itself takes the numbers only, and plots are most of the work.
        is_refresh = request.headers.get("HX-Request") == "true"

        def read(
            store: OpenStore, _state: StoreState, now_ms: int
        ) -> tuple[Overview, list[Plotted]]:
            found = read_overview(store, store, now_ms, wellness)
            if is_refresh:
                return found, []
            deaths = plot_deaths(deaths_by_cause(store, now_ms), desk.masking.text)
            return found, [deaths, plot_schedule(schedule_ahead(store, now_ms))]

        found, plots = await desk.ask(read)
        return await console.page(
            request,
            "overview.html",
            now_ms=found.at_ms,
            overview=found,
            headline=headline(found),
            plots=plots,
        )

    async def plots(request: Request) -> Response:
        def read(store: OpenStore, _state: StoreState, now_ms: int) -> list[Plotted]:
            return [
                plot_recovery(recovery_by_attempt(store, now_ms)),
                plot_deaths(deaths_by_cause(store, now_ms), desk.masking.text),
                plot_schedule(schedule_ahead(store, now_ms)),
            ]

        found = await desk.ask(read)
        late = [] if desk.tools.lateness is None else desk.tools.lateness()
        return await console.page(request, "plots.html", plots=[*found, plot_lateness(late)])

    yield console.route("/", overview)
    yield console.route("/plots", plots)


def _group_routes(console: Console) -> Iterable[BaseRoute]:
    desk = console.desk

    async def groups(request: Request) -> Response:
        query = console.query(request)
        destination = query.selection.rows.destination

        def read(store: OpenStore, _state: StoreState, now_ms: int) -> list[Group]:
            return read_groups(store, now_ms, destination=destination, limit=GROUPS_SHOWN)

        found = await desk.ask(read)
        return await console.page(
            request, "groups.html", groups=found, destination=destination, limit=GROUPS_SHOWN
        )

    async def show(request: Request, written: str = "", problem: str = "") -> Response:
        place = _place(console, request)
        members_of = RowFilter(destination=place[0], cause_group=place[1])

        def read(
            store: OpenStore, _state: StoreState, now_ms: int
        ) -> tuple[Group | None, list[GroupNote], Timeline, RowPage]:
            members = store.page_rows(members_of, RowOrder.NEWEST, MEMBERS_SHOWN)
            return (
                read_group(store, place, now_ms),
                store.notes(*place),
                deaths_of_group(store, place, now_ms),
                msgspec.structs.replace(
                    members, rows=[desk.masking.row(row) for row in members.rows]
                ),
            )

        found, notes, deaths, members = await desk.ask(read)
        if found is None and not members.rows:
            raise PageMissing(
                "Nothing died of this cause there, as far as the history goes; it may have been "
                "removed after history.keep_days."
            )
        return await console.page(
            request,
            "group.html",
            422 if problem else 200,
            group=found,
            notes=notes,
            written=written,
            problem=problem,
            longest_note=LONGEST_NOTE,
            place=place,
            query=group_query(*place),
            trend=plot_group(deaths),
            members=members.rows,
            has_more=members.next_after is not None,
        )

    async def group(request: Request) -> Response:
        return await show(request)

    async def note(request: Request) -> Response:
        place, author = _place(console, request), caller_of(request).actor("console")
        text = str((await request.form()).get("note", "")).replace("\r\n", "\n")
        try:
            await desk.ask(
                lambda store, _state, now_ms: write_note(store, place, text, author, now_ms)
            )
        except Refused as error:
            return await show(request, text, str(error))
        here = address("/groups/one", {"destination": place[0], "group": place[1]})
        return RedirectResponse(f"{here}#notes", 303)

    yield console.route("/groups", groups)
    yield console.route("/groups/one", group)
    yield console.route("/groups/one", note, "POST")


def _place(console: Console, request: Request) -> Place:
    """Return the group that the address of a page names.

    Raises:
        PageMissing: it names none.
    """
    rows = console.query(request).selection.rows
    if rows.destination is None or rows.cause_group is None:
        raise PageMissing("A group needs a destination and a cause in its address.")
    return rows.destination, rows.cause_group


def headline(overview: Overview) -> str:
    """Return what matters most, in a sentence."""
    exhausted = sum(one.count for one in overview.exhausted)
    kept = f" {many(exhausted, 'exhausted message waits', 'exhausted messages wait')} for a person."
    return _dying(overview) + (kept if exhausted else "")


def _dying(overview: Overview) -> str:
    dying = [group for group in overview.groups if group.recent]
    if not dying:
        if overview.wellness is not None and not overview.wellness.is_well:
            return "Nothing was seen to die in the last hour, but this sidecar needs a person."
        return "Nothing died in the last hour."
    deaths = sum(group.recent for group in dying)
    groups = len(dying)
    said = f"{many(deaths, 'message')} died in the last hour, of {many(groups, 'cause')}"
    new = sum(group.trend is Trend.NEW for group in dying)
    if new:
        said += f"; {new} {'are' if new > 1 else 'is'} new since yesterday"
    return f"{said}."
