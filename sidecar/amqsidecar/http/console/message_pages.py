"""Pages of messages: a list by any filter, and one message with all that happened to it."""

from collections.abc import Sequence
from urllib.parse import quote

import msgspec
from starlette.responses import RedirectResponse, Response

from amqsidecar.errors import ConfigError
from amqsidecar.http.console.advice import acting_states, useless_actions
from amqsidecar.http.console.console import PageMissing, Visit
from amqsidecar.http.console.described import describe
from amqsidecar.http.console.differing import Differing, read_differing
from amqsidecar.http.console.query import QueryError, message_query, read_query
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


async def show_messages(visit: Visit) -> Response:
    """List the messages that a filter selects."""
    queries, params, problem = visit.queries, visit.params, ""
    try:
        query = visit.query()
    except QueryError as error:
        problem, query = str(error), read_query(type(params)(), queries.clock.now_ms())

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
            wanted = params.get("show", "")
            differing = read_differing(queries, at.store, found.rows, visit.caller, wanted)
        masked = [queries.masking.struct(row) for row in found.rows]
        return msgspec.structs.replace(found, rows=masked), differing

    listing, differing = (None, None) if problem else await visit.ask(read)
    next_page = None
    if listing is not None and listing.next_after is not None:
        sort, row_id = listing.next_after
        next_page = query.address("/messages", after=f"{sort}.{row_id}")
    page = await visit.page(
        "messages.html",
        problem=problem,
        listing=listing,
        differing=differing,
        limit=LIMIT,
        query=query,
        written=params,
        conditions=describe(query.selection),
        next_page=next_page,
        states=list(RowState),
        useless=useless_actions([state] if (state := query.selection.rows.state) else [*RowState]),
        orders={RowOrder.NEWEST: "newest first", RowOrder.DUE: "next due first"},
    )
    page.status_code = 400 if problem else 200
    return page


async def messages_csv(visit: Visit) -> Response:
    """Return the list as a file."""
    query = visit.query()
    return await visit.console.exports.messages(visit.caller, query.selection, query.order)


async def show_message(
    visit: Visit,
    written: str | None = None,
    effect: MessageEffect | None = None,
    problems: Sequence[str] = (),
) -> Response:
    """Show a message and all that happened to it."""
    queries, reference = visit.queries, visit.params.get("id", "")

    def read(at: QueryContext) -> tuple[MessagePage | None, bool]:
        sees = queries.may_read(at, visit.caller, reference)
        return queries.message(at, reference, visit.caller), sees

    found, sees = await visit.ask(read) if reference else (None, False)
    if found is None:
        raise PageMissing(
            f"No message is known as {reference!r}: it never was here, or its history was "
            "removed after history.keep_days."
        )
    return await visit.page(
        "message.html",
        problems,
        page=found,
        death=last_death(moment.event for moment in found.life),
        query=None if found.row is None else message_query(found.row.id),
        useless=[] if found.row is None else useless_actions(acting_states(found.row)),
        may_download=sees,
        written=acting_yaml(visit.tools.policies) if written is None else written,
        effect=effect,
        problems=problems,
    )


async def try_rules_on_message(visit: Visit) -> Response:
    """Show the decisions of other rules on a message."""
    text = (await visit.form()).get("rules", "").replace("\r\n", "\n")
    reference = visit.params.get("id", "")

    def read(at: QueryContext) -> MessageEffect | None:
        opens = visit.queries.may_probe(at, visit.caller, reference)
        return effect_on(at.store, visit.tools.policies, reference, at.state.uid, text, opens=opens)

    try:
        effect = await visit.ask(read)
    except ConfigError as error:
        return await show_message(visit, text, problems=[str(one) for one in error.problems])
    return await show_message(visit, text, effect)


async def download_message(visit: Visit) -> Response:
    """Return the bytes of a message."""
    queries, reference = visit.queries, visit.params.get("id", "")
    number = visit.params.get("original", "")

    def read(at: QueryContext) -> bytes | None:
        queries.check_reads(at, visit.caller, reference)
        if number.isascii() and number.isdecimal() and len(number) < 10:
            return original_message(at.store, reference, at.state.uid, int(number))
        found = queries.content(at.store, reference)
        return None if found is None else found[1]

    data = await visit.ask(read)
    if data is None:
        raise PageMissing("This message is not here, so it can't be downloaded.")
    audit.write("download-message", audit.ActKind.READ, message=reference, original=number)
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(reference, safe='')}.bin",
    }
    return Response(data, headers=headers)


async def go_to_message(visit: Visit) -> Response:
    """Lead from the short address of a message to its page."""
    reference = quote(visit.part("reference"), safe="")
    return RedirectResponse(f"/messages/one?id={reference}", 303)
