"""The API's side that gives lists as CSV."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.api.filter import Filter, understood
from amqsidecar.http.api.table import ApiEndpoint, Call
from amqsidecar.http.api.views import canonical
from amqsidecar.http.exports import CSV, GROUPS_MAX, Exports
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.ledger import RowOrder
from amqsidecar.model.operation import OutcomeKind
from amqsidecar.model.schedule import WholeNumber
from amqsidecar.operations.export import ROWS_MAX

Run = Callable[[Call], Awaitable[Response]]


class GroupsFileQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of groups of failures."""

    destination: Annotated[str | None, Meta(description="Only where they died.")] = None
    since: Annotated[
        WholeNumber, Meta(description="Only groups with a death since this time, in milliseconds.")
    ] = 0


class RowsFileQuery(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter and order of messages."""

    order: RowOrder = RowOrder.NEWEST


class MembersFileQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of an operation's messages."""

    outcome: OutcomeKind | None = None


class Exporting:
    """Gives lists as files."""

    def __init__(self, queries: StoreQueries) -> None:
        self._queries = queries
        self._exports = Exports(queries)

    def endpoints(self) -> Sequence[ApiEndpoint]:
        """Return its part of the table."""
        most = f"as CSV, the first {ROWS_MAX}."
        groups = f"Failures by cause and destination as CSV, the first {GROUPS_MAX}."
        return [
            _file("/groups.csv", groups, self._groups_file, GroupsFileQuery),
            _file(
                "/messages.csv", f"Messages that wait {most}", self._messages_file, RowsFileQuery
            ),
            _file(
                "/operations/{number}/members.csv",
                f"Outcomes of the messages of an operation {most}",
                self._members_file,
                MembersFileQuery,
            ),
        ]

    async def _groups_file(self, call: Call) -> Response:
        name = call.query.destination
        place = None if name is None else canonical(name)
        return await self._exports.groups(place, call.query.since)

    async def _messages_file(self, call: Call) -> Response:
        queries = self._queries
        asked = await queries.ask(
            lambda at: understood(at, call.query, queries.masking, call.caller.role)
        )
        return await self._exports.messages(asked.selection, asked.order)

    async def _members_file(self, call: Call) -> Response:
        found = await self._exports.members(call.number(), call.query.outcome)
        if found is None:
            raise HttpRefused(404, f"there is no operation {call.number()}")
        return found


def _file(path: str, summary: str, run: Run, query: type[msgspec.Struct]) -> ApiEndpoint:
    return ApiEndpoint(
        method="GET", path=path, summary=summary, run=run, query=query, media_type=CSV
    )
