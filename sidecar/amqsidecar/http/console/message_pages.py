"""Pages of messages: a list by any filter, and one message with all that happened to it."""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.console.described import describe
from amqsidecar.http.console.query import QueryError, read_query
from amqsidecar.http.desk import OpenStore
from amqsidecar.ledger import RowOrder
from amqsidecar.model.schedule import RowState, StoreState
from amqsidecar.operations.browse import Story, tell_story
from amqsidecar.operations.listing import Listing, list_messages

LIMIT = 50


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of these pages."""
    desk = console.desk

    async def messages(request: Request) -> Response:
        problem = ""
        params = request.query_params
        try:
            query = read_query(params, desk.clock.now_ms())
        except QueryError as error:
            problem, query = str(error), read_query(type(params)(), desk.clock.now_ms())

        def read(store: OpenStore, _state: StoreState, _now_ms: int) -> Listing:
            return list_messages(
                store,
                store,
                query.selection,
                desk.tools.properties_of,
                order=query.order,
                limit=LIMIT,
                after=query.after,
            )

        listing = None if problem else await desk.ask(read)
        next_page = None
        if listing is not None and listing.next_after is not None:
            sort, row_id = listing.next_after
            next_page = query.address("/messages", after=f"{sort}.{row_id}")
        return console.page(
            request,
            "messages.html",
            400 if problem else 200,
            problem=problem,
            listing=listing,
            query=query,
            written=params,
            conditions=describe(query.selection),
            next_page=next_page,
            states=list(RowState),
            orders={RowOrder.NEWEST: "newest first", RowOrder.DUE: "next due first"},
        )

    async def message(request: Request) -> Response:
        reference = request.query_params.get("id", "")

        def read(store: OpenStore, state: StoreState, _now_ms: int) -> Story | None:
            return tell_story(store, reference, state.uid)

        story = await desk.ask(read) if reference else None
        if story is None:
            raise PageMissing(
                f"Nothing is known of the message {reference!r}: it never was here, or its history "
                "was removed after history.keep_days."
            )
        return console.page(request, "message.html", story=story)

    yield console.route("/messages", messages)
    yield console.route("/messages/one", message)
