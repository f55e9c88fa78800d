"""Pages of messages: a list by any filter, and one message with all that happened to it."""

from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from amqsidecar.errors import ConfigError
from amqsidecar.http.console.advice import useless_actions
from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.console.described import describe
from amqsidecar.http.console.differing import Differing, read_differing
from amqsidecar.http.console.query import QueryError, message_query, read_query
from amqsidecar.http.guard import caller_of
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.ledger import RowOrder
from amqsidecar.model.schedule import RowState
from amqsidecar.operations.failures.find_group import with_numbered
from amqsidecar.operations.last_death import last_death
from amqsidecar.operations.listing import Listing, list_messages
from amqsidecar.operations.message import MessagePage, original_message
from amqsidecar.operations.policies import MessageEffect, acting_yaml, effect_on
from amqsidecar.telemetry import audit

LIMIT = 50


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of these pages."""
    return [_list_route(console), *_message_routes(console), _download_route(console)]


def _list_route(console: Console) -> BaseRoute:
    queries, masking = console.queries, console.queries.masking

    async def messages(request: Request) -> Response:
        problem = ""
        params = request.query_params
        try:
            query = console.query(request)
        except QueryError as error:
            problem, query = str(error), read_query(type(params)(), queries.clock.now_ms())

        caller = caller_of(request)
        wanted = params.get("show", "")

        def read(at: QueryContext) -> tuple[Listing, Differing | None]:
            found = list_messages(
                at.store,
                with_numbered(at.store, query.selection),
                order=query.order,
                limit=LIMIT,
                after=query.after,
            )
            differing = None
            places = {(row.destination, row.cause_group) for row in found.rows}
            if len(places) == 1 and found.rows[0].cause_group:
                differing = read_differing(queries, at.store.message, found.rows, caller, wanted)
            masked = [masking.struct(row) for row in found.rows]
            return msgspec.structs.replace(found, rows=masked), differing

        listing, differing = (
            (None, None) if problem else await queries.ask(caller_of(request), read)
        )
        next_page = None
        if listing is not None and listing.next_after is not None:
            sort, row_id = listing.next_after
            next_page = query.address("/messages", after=f"{sort}.{row_id}")
        return await console.page(
            request,
            "messages.html",
            400 if problem else 200,
            problem=problem,
            listing=listing,
            differing=differing,
            limit=LIMIT,
            query=query,
            written=params,
            conditions=describe(query.selection),
            next_page=next_page,
            states=list(RowState),
            useless=useless_actions(
                [state] if (state := query.selection.rows.state) else [*RowState]
            ),
            orders={RowOrder.NEWEST: "newest first", RowOrder.DUE: "next due first"},
        )

    return console.route("/messages", messages)


def _message_routes(console: Console) -> Iterable[BaseRoute]:
    queries = console.queries

    async def show(
        request: Request,
        written: str | None = None,
        effect: MessageEffect | None = None,
        problems: Sequence[str] = (),
    ) -> Response:
        reference = request.query_params.get("id", "")
        caller = caller_of(request)

        def read(at: QueryContext) -> tuple[MessagePage | None, bool]:
            sees = queries.may_read(at, caller, reference)
            return queries.message(at, reference, caller), sees

        found, sees = await queries.ask(caller, read) if reference else (None, False)
        if found is None:
            raise PageMissing(
                f"No message is known as {reference!r}: it never was here, or its history was "
                "removed after history.keep_days."
            )
        return await console.page(
            request,
            "message.html",
            422 if problems else 200,
            page=found,
            death=last_death(moment.event for moment in found.life),
            query=None if found.row is None else message_query(found.row.id),
            useless=[] if found.row is None else useless_actions([found.row.state]),
            may_download=sees,
            written=acting_yaml(queries.tools(caller).policies) if written is None else written,
            effect=effect,
            problems=problems,
        )

    async def message(request: Request) -> Response:
        return await show(request)

    async def try_rules(request: Request) -> Response:
        text = str((await request.form()).get("rules", "")).replace("\r\n", "\n")
        reference = request.query_params.get("id", "")
        caller = caller_of(request)

        def read(at: QueryContext) -> MessageEffect | None:
            opens = queries.may_probe(at, caller, reference)
            policies = queries.tools(caller).policies
            return effect_on(at.store, policies, reference, at.state.uid, text, opens=opens)

        try:
            return await show(request, text, await queries.ask(caller_of(request), read))
        except ConfigError as error:
            return await show(request, text, problems=[str(one) for one in error.problems])

    yield console.route("/messages/one", message)
    yield console.route("/messages/one", try_rules, "POST")


def _download_route(console: Console) -> BaseRoute:
    queries = console.queries

    async def download(request: Request) -> Response:
        caller = caller_of(request)
        reference = request.query_params.get("id", "")
        number = request.query_params.get("original", "")

        def read(at: QueryContext) -> bytes | None:
            queries.check_reads(at, caller, reference)
            if number.isascii() and number.isdecimal() and len(number) < 10:
                return original_message(at.store, reference, int(number))
            found = queries.content(at.store, reference)
            return None if found is None else found[1]

        data = await queries.ask(caller, read)
        if data is None:
            raise PageMissing("This message is not here, so it can't be downloaded.")
        audit.write("download-message", audit.ActKind.READ, message=reference, original=number)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(reference, safe='')}.bin",
        }
        return Response(data, headers=headers)

    return console.route("/messages/download", download)


def short_route(console: Console) -> BaseRoute:
    """Return the route of `/messages/ID`; it comes after all others below `/messages`."""

    async def named(request: Request) -> Response:
        reference = quote(request.path_params["reference"], safe="")
        return RedirectResponse(f"/messages/one?id={reference}", 303)

    return console.route("/messages/{reference}", named)
