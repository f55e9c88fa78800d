"""Lists as files."""

from collections.abc import Iterable

from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.http.console.console import Console, PageMissing, Visit
from amqsidecar.http.console.operation_pages import outcome_of, whole_number
from amqsidecar.http.exports import Exports


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of these files."""
    exports = Exports(console.queries)

    async def groups(visit: Visit) -> Response:
        return await exports.groups(visit.caller, visit.query().selection.rows.destination)

    async def messages(visit: Visit) -> Response:
        query = visit.query()
        return await exports.messages(visit.caller, query.selection, query.order)

    async def members(visit: Visit) -> Response:
        number, outcome = whole_number(visit.part("number")), outcome_of(visit.params)
        found = None if number is None else await exports.members(visit.caller, number, outcome)
        if found is None:
            raise PageMissing("There is no operation of this number, or its history was removed.")
        return found

    yield console.visited("/groups.csv", groups)
    yield console.visited("/messages.csv", messages)
    yield console.visited("/operations/{number}/members.csv", members)
