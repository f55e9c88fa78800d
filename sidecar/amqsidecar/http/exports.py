"""Lists as files, streamed page by page; API and console give the same.

A list is read anew for each page, so that none is ever in memory: what comes or goes meanwhile may
stand in it or not.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.store_queries import OpenStore, StoreQueries
from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.operation import OutcomeKind, Selection
from amqsidecar.model.schedule import StoreState
from amqsidecar.operations import export
from amqsidecar.operations.groups import Group, read_groups
from amqsidecar.operations.listing import list_messages

CSV = "text/csv"
GROUPS_MAX = 2_000

AT_A_TIME: Final = 4
"""Maximum exports streamed at a time; more are refused."""

Key = TypeVar("Key")


class ExportPage(NamedTuple, Generic[Key]):
    """A piece of a list.

    Attributes:
        text: its lines.
        next_after: where to go on; None = this is the end.
    """

    text: str
    rows: int
    next_after: Key | None


ReadPage = Callable[[OpenStore, Key | None, int], ExportPage[Key]]
"""A store, where to go on, and how many rows at most, to a page."""


class Exports:
    """Makes files of lists; what is masked elsewhere is masked in them."""

    def __init__(self, desk: StoreQueries) -> None:
        self._desk = desk
        self._running = 0

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
        text = export.csv_lines([export.GROUPS_HEADERS]) + export.groups_csv(found)
        name = _named("groups", GROUPS_MAX, is_whole=len(found) < GROUPS_MAX)
        return Response(_encoded(text), headers=_headers(name))

    async def messages(self, selection: Selection, order: RowOrder) -> Response:
        """Return messages that wait; a look at the selection was allowed before.

        Raises:
            HttpRefused: too many lists are streamed already.
        """
        masking, properties_of = self._desk.masking, self._desk.tools.properties_of

        def read(store: OpenStore, after: RowKey | None, limit: int) -> ExportPage[RowKey]:
            found = list_messages(
                store, store, selection, properties_of, order=order, limit=limit, after=after
            )
            rows = [
                msgspec.structs.replace(masking.row(row), cause_group=masking.text(row.cause_group))
                for row in found.rows
            ]
            return ExportPage(export.messages_csv(rows), len(rows), found.next_after)

        return await self._streamed("messages", export.MESSAGES_HEADERS, read)

    async def members(self, number: int, outcome: OutcomeKind | None) -> Response | None:
        """Return what became of the messages of an operation; None = there is no such one.

        Raises:
            HttpRefused: too many lists are streamed already.
        """
        if await self._desk.ask(lambda store, _state, _now_ms: store.operation(number)) is None:
            return None

        def read(store: OpenStore, after: str | None, limit: int) -> ExportPage[str]:
            found = store.members(number, outcome, limit, after or "")
            has_more = len(found) == limit
            last = found[-1].redelivery_id if has_more else None
            return ExportPage(export.members_csv(found), len(found), last)

        return await self._streamed(f"operation-{number}", export.MEMBERS_HEADERS, read)

    async def _streamed(
        self, name: str, headers: Sequence[str], read: ReadPage[Key]
    ) -> StreamingResponse:
        if self._running >= AT_A_TIME:
            raise HttpRefused(503, "too many lists are being sent", Retry_After="30")
        self._running += 1
        try:
            is_whole = await self._is_whole(read)
        finally:
            self._running -= 1
        return StreamingResponse(
            self._lines(headers, read),
            headers=_headers(_named(name, export.ROWS_MAX, is_whole=is_whole)),
        )

    async def _is_whole(self, read: ReadPage[Key]) -> bool:
        """Return whether a list was cut at the maximum."""
        count = 0
        async for page in self._pages(read):
            count += page.rows
            if page.next_after is None:
                return count <= export.ROWS_MAX
        return False

    async def _lines(self, headers: Sequence[str], read: ReadPage[Key]) -> AsyncIterator[bytes]:
        self._running += 1
        try:
            yield _encoded(export.csv_lines([headers]))
            async for page in self._pages(read):
                yield _encoded(page.text)
        finally:
            self._running -= 1

    async def _pages(self, read: ReadPage[Key]) -> AsyncIterator[ExportPage[Key]]:
        """Yield pages until `ROWS_MAX` rows or the end."""
        left, after = export.ROWS_MAX, None
        for _ in range(export.PAGES_MAX):
            question = partial(_ask, read, after, min(left, export.PAGE_ROWS))
            page = await self._desk.ask(question)
            yield page
            left, after = left - page.rows, page.next_after
            if after is None or not left:
                return


def _ask(
    read: ReadPage[Key],
    after: Key | None,
    limit: int,
    store: OpenStore,
    _state: StoreState,
    _now_ms: int,
) -> ExportPage[Key]:
    return read(store, after, limit)


def _named(name: str, most: int, *, is_whole: bool) -> str:
    # Why in the name: of a file that is opened tomorrow nothing else is left to tell.
    return name if is_whole else f"{name}-first-{most}"


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _headers(name: str) -> dict[str, str]:
    return {
        "Content-Type": f"{CSV}; charset=utf-8; header=present",
        "Content-Disposition": f'attachment; filename="{name}.csv"',
    }
