"""Lists as files; API and console give the same."""

import msgspec
from starlette.responses import Response

from amqsidecar.http.desk import Desk, OpenStore
from amqsidecar.ledger import RowOrder
from amqsidecar.model.operation import Member, OutcomeKind, Selection
from amqsidecar.model.schedule import RowView, StoreState
from amqsidecar.operations.export import (
    ROWS_MAX,
    exported_members,
    exported_messages,
    groups_csv,
    members_csv,
    messages_csv,
)
from amqsidecar.operations.groups import Group, read_groups

CSV = "text/csv"
GROUPS_MAX = 2_000


class Exports:
    """Makes files of lists; what is masked elsewhere is masked in them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def groups(self, destination: str | None, since_ms: int = 0) -> Response:
        """Return groups of failures."""
        masked = self._desk.masking.text

        def read(store: OpenStore, _state: StoreState, now_ms: int) -> list[Group]:
            found = read_groups(
                store, now_ms, since_ms=since_ms, destination=destination, limit=GROUPS_MAX
            )
            return [
                msgspec.structs.replace(group, cause_group=masked(group.cause_group))
                for group in found
            ]

        found = await self._desk.ask(read)
        return _file(groups_csv(found), "groups", len(found) < GROUPS_MAX, GROUPS_MAX)

    async def messages(self, selection: Selection, order: RowOrder) -> Response:
        """Return messages that wait; a look at the selection was allowed before."""
        masking, properties_of = self._desk.masking, self._desk.tools.properties_of

        def read(store: OpenStore, _state: StoreState, _now_ms: int) -> tuple[list[RowView], bool]:
            found, is_whole = exported_messages(store, store, selection, properties_of, order)
            rows = [
                msgspec.structs.replace(masking.row(row), cause_group=masking.text(row.cause_group))
                for row in found
            ]
            return rows, is_whole

        rows, is_whole = await self._desk.ask(read)
        return _file(messages_csv(rows), "messages", is_whole, ROWS_MAX)

    async def members(self, number: int, outcome: OutcomeKind | None) -> Response | None:
        """Return what became of the messages of an operation; None = there is no such one."""

        def read(
            store: OpenStore, _state: StoreState, _now_ms: int
        ) -> tuple[list[Member], bool] | None:
            is_known = store.operation(number) is not None
            return exported_members(store, number, outcome) if is_known else None

        found = await self._desk.ask(read)
        if found is None:
            return None
        members, is_whole = found
        return _file(members_csv(members), f"operation-{number}", is_whole, ROWS_MAX)


def _file(text: str, name: str, is_whole: bool, most: int) -> Response:
    # Why in the name: of a file that is opened tomorrow nothing else is left to tell.
    name = name if is_whole else f"{name}-first-{most}"
    return Response(
        text.encode(errors="backslashreplace"),
        headers={
            "Content-Type": f"{CSV}; charset=utf-8; header=present",
            "Content-Disposition": f'attachment; filename="{name}.csv"',
        },
    )
