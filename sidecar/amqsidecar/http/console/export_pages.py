"""Lists as files."""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.console.operation_pages import outcome_of, whole_number
from amqsidecar.http.exports import Exports


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of these files."""
    exports = Exports(console.queries)

    async def groups(request: Request) -> Response:
        return await exports.groups(console.query(request).selection.rows.destination)

    async def messages(request: Request) -> Response:
        query = console.query(request)
        return await exports.messages(query.selection, query.order)

    async def members(request: Request) -> Response:
        number = whole_number(request.path_params["number"])
        outcome = outcome_of(request.query_params.get("outcome"))
        found = None if number is None else await exports.members(number, outcome)
        if found is None:
            raise PageMissing("There is no operation of this number, or its history was removed.")
        return found

    yield console.route("/groups.csv", groups)
    yield console.route("/messages.csv", messages)
    yield console.route("/operations/{number}/members.csv", members)
