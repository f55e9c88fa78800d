"""Lists as CSV (RFC 4180), streamed page by page, alike for API and console.

A list is read page by page and never held in memory: changes meanwhile may be in it or not.
"""

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from amqsidecar.formats.csv_cell import cell
from amqsidecar.http.access import Caller, HttpRefused
from amqsidecar.http.store_queries import QueryContext, StoreQueries
from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.operation import OutcomeKind, Selection
from amqsidecar.operations.failures.find_group import with_numbered
from amqsidecar.operations.failures.groups import Group, read_groups
from amqsidecar.operations.listing import list_messages
from amqsidecar.operations.select import conditions
from amqsidecar.operations.words import clock_time
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

ROWS_MAX: Final = 10_000
"""Maximum rows of an exported list."""

PAGE_ROWS: Final = 100
"""Rows in memory at a time."""

PAGES_MAX: Final = 500
"""Pages that are looked at; looking is bounded, so a page may have fewer rows than it could."""

GROUPS_HEADERS: Final = (
    *("destination", "cause_group", "trend", "recent", "day_before", "first_at", "last_at"),
    *("total", "waiting", "held", "parked", "exhausted", "example_id", "note", "note_author"),
)
MESSAGES_HEADERS: Final = (
    *("id", "redelivery_id", "state", "destination", "source", "cause_group", "cause"),
    *("redelivery_count", "received_at", "due_at", "rule", "reason", "message_id"),
    *("size_bytes", "is_final", "in_flight", "final_queue"),
)
MEMBERS_HEADERS: Final = (
    *("redelivery_id", "destination", "outcome", "changed_at", "resent_at", "evidence"),
)

_OTHERWISE: Final[Mapping[str, Callable[[Any], object]]] = {
    "note": lambda group: group.note and group.note.text,
    "note_author": lambda group: group.note and group.note.author,
    "outcome": lambda member: member.outcome or "not sent yet",
}
"""Columns that aren't attributes; columns ending in `_at` come from `_at_ms`."""


def csv_of(headers: Iterable[str], rows: Iterable[object]) -> str:
    """Return groups, messages or members as lines of CSV."""
    return csv_lines([_value(row, name) for name in headers] for row in rows)


def _value(row: object, name: str) -> object:
    if name in _OTHERWISE:
        return _OTHERWISE[name](row)
    if name.endswith("_at"):
        at_ms = getattr(row, f"{name}_ms")
        return None if at_ms is None else clock_time(at_ms)
    value = getattr(row, name)
    return int(value) if isinstance(value, bool) else value


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines of CSV, each cell as `cell` has it."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


CSV = "text/csv"
GROUPS_MAX = 2_000

AT_A_TIME: Final = 4
"""Maximum exports streamed at a time; more are refused."""


class ExportPage(NamedTuple):
    """A piece of a list.

    Attributes:
        text: its lines.
        read_next: reads the next piece; None = this is the end.
    """

    text: str
    rows: int
    read_next: "ReadPage | None"


ReadPage = Callable[[Schedule, int], ExportPage]
"""A store, and how many rows at most, to a page."""


class Exports:
    """Makes files of lists, with the same masking as elsewhere."""

    def __init__(self, queries: StoreQueries) -> None:
        self._queries = queries
        self._running = 0

    async def groups(self, caller: Caller, destination: str | None, since_ms: int = 0) -> Response:
        """Return groups of failures."""
        masked = self._queries.masking.struct

        def read(at: QueryContext) -> list[Group]:
            found = read_groups(
                at.store, at.now_ms, since_ms=since_ms, destination=destination, limit=GROUPS_MAX
            )
            return [
                msgspec.structs.replace(
                    masked(group, has_groups=True), note=group.note and masked(group.note)
                )
                for group in found
            ]

        found = await self._queries.ask(caller, read)
        _audit("groups", selection={"destination": destination} if destination else None)
        text = csv_lines([GROUPS_HEADERS]) + csv_of(GROUPS_HEADERS, found)
        name = "groups" if len(found) < GROUPS_MAX else f"groups-first-{GROUPS_MAX}"
        return Response(_encoded(text), headers=_headers(name))

    async def messages(self, caller: Caller, selection: Selection, order: RowOrder) -> Response:
        """Return waiting messages; the caller has checked the right to the selection.

        Raises:
            HttpRefused: too many lists are streamed already.
        """
        masking = self._queries.masking

        def read(store: Schedule, limit: int, after: RowKey | None = None) -> ExportPage:
            found = list_messages(
                store,
                with_numbered(store, selection),
                order=order,
                limit=limit,
                after=after,
            )
            rows = [masking.struct(row, has_groups=True) for row in found.rows]
            key = found.next_after
            read_next = None if key is None else partial(read, after=key)
            return ExportPage(csv_of(MESSAGES_HEADERS, rows), len(rows), read_next)

        answer = await self._streamed(caller, "messages", MESSAGES_HEADERS, read)
        _audit("messages", selection=conditions(selection))
        return answer

    async def members(
        self, caller: Caller, number: int, outcome: OutcomeKind | None
    ) -> Response | None:
        """Return the outcomes of an operation's messages; None = there is no such operation.

        Raises:
            HttpRefused: too many lists are streamed already.
        """
        if await self._queries.ask(caller, lambda at: at.store.operation(number)) is None:
            return None

        def read(store: Schedule, limit: int, after: str = "") -> ExportPage:
            found = store.members(number, outcome, limit, after)
            has_more = len(found) == limit
            read_next = partial(read, after=found[-1].redelivery_id) if has_more else None
            return ExportPage(csv_of(MEMBERS_HEADERS, found), len(found), read_next)

        answer = await self._streamed(caller, f"operation-{number}", MEMBERS_HEADERS, read)
        _audit("members", operation=number)
        return answer

    async def _streamed(
        self, caller: Caller, name: str, headers: Sequence[str], read: ReadPage
    ) -> StreamingResponse:
        if self._running >= AT_A_TIME:
            raise HttpRefused(503, "too many exports are running", Retry_After="30")
        self._running += 1
        try:
            # Why before the answer begins: a failure here still gets its status.
            page = await self._page(caller, read, min(ROWS_MAX, PAGE_ROWS))
        except BaseException:
            self._note_end()
            raise
        lines = self._lines(caller, headers, page)
        return _Counted(lines, headers=_headers(name), ended=self._note_end)

    def _note_end(self) -> None:
        self._running -= 1

    async def _lines(
        self, caller: Caller, headers: Sequence[str], page: ExportPage
    ) -> AsyncIterator[bytes]:
        """Yield at most `ROWS_MAX` rows from a first page on, and a last line where more follow."""
        yield _encoded(csv_lines([headers]))
        left = ROWS_MAX
        for number in range(1, PAGES_MAX + 1):
            yield _encoded(page.text)
            left -= page.rows
            read_next = page.read_next
            if read_next is None:
                return
            if left and number < PAGES_MAX:
                page = await self._page(caller, read_next, min(left, PAGE_ROWS))
                continue
            more = await self._page(caller, read_next, 1)
            if more.rows or more.read_next is not None:
                last = f"only the first {ROWS_MAX - left} rows are in this file"
                yield _encoded(csv_lines([[last, *[""] * (len(headers) - 1)]]))
            return

    async def _page(self, caller: Caller, read: ReadPage, limit: int) -> ExportPage:
        return await self._queries.ask(caller, lambda at: read(at.store, limit))


class _Counted(StreamingResponse):
    """A streamed answer that reports its end, also after an error."""

    def __init__(
        self,
        content: AsyncIterator[bytes],
        *,
        headers: Mapping[str, str],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(content, headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def _audit(what: str, **of: Any) -> None:
    audit.write("export", audit.ActKind.READ, list=what, **of)


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _headers(name: str) -> dict[str, str]:
    return {
        "Content-Type": f"{CSV}; charset=utf-8; header=present",
        "Content-Disposition": f'attachment; filename="{name}.csv"',
    }
