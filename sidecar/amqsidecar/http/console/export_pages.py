"""Lists as files."""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.console.operation_pages import outcome_of, whole_number
from amqsidecar.http.exports import Exports
from amqsidecar.http.guard import caller_of


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of these files."""
    exports = Exports(console.queries)

    async def groups(request: Request) -> Response:
        return await exports.groups(
            caller_of(request), console.query(request).selection.rows.destination
        )

    async def messages(request: Request) -> Response:
        query = console.query(request)
        return await exports.messages(caller_of(request), query.selection, query.order)

    async def members(request: Request) -> Response:
        number = whole_number(request.path_params["number"])
        outcome = outcome_of(request.query_params.get("outcome"))
        found = None
        if number is not None:
            found = await exports.members(caller_of(request), number, outcome)
        if found is None:
            raise PageMissing("There is no operation of this number, or its history was removed.")
        return found

    yield console.route("/groups.csv", groups)
    yield console.route("/messages.csv", messages)
    yield console.route("/operations/{number}/members.csv", members)
