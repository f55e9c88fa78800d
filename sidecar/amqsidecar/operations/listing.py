"""Looking at the messages that a person chose, page by page."""

from collections.abc import Iterable
from typing import Final

import msgspec

from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.cause import ROW_BYTES_MAX, bounded_cause
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.operations.act import ActionRefused, effect_of
from amqsidecar.operations.select import IDS_MAX, narrowed, selector
from amqsidecar.schedule import Schedule, ScheduleView

PAGES_MAX: Final = 20
"""Pages of messages that are looked into, while none of them matches."""

_PAGE_ROWS: Final = 1_000

BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of messages after which no further page is looked into."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of messages.

    Attributes:
        rows: may be fewer than asked for, or none, although there are more: looking is bounded.
        looked_at: rows whose messages were looked into, for properties.
        next_after: where to go on; None = this is the end.
    """

    rows: list[RowView]
    looked_at: int
    next_after: RowKey | None


class Bounds(msgspec.Struct, frozen=True):
    """Which of the selected rows an operation takes.

    Attributes:
        limit: this many, the oldest first; None = all.
        one_per_message_id: of rows with the same message id, the first.
    """

    limit: int | None = None
    one_per_message_id: bool = False


def shown_row(row: RowView) -> RowView:
    """Return a row as lists show it, its cause cut to `ROW_BYTES_MAX`; mask it before."""
    if row.cause is None:
        return row
    return msgspec.structs.replace(row, cause=bounded_cause(row.cause, ROW_BYTES_MAX))


def list_messages(
    schedule: Schedule,
    selection: Selection,
    *,
    order: RowOrder = RowOrder.NEWEST,
    limit: int = 50,
    after: RowKey | None = None,
) -> Listing:
    """Return messages that are selected.

    Args:
        order: the newest or the next due first.
        limit: maximum rows returned.
        after: `next_after` of the page before.
    """
    select = selector(selection)
    looked_at = size_bytes = 0
    for _ in range(PAGES_MAX):
        page = schedule.page_rows(selection.rows, order, limit, after)
        rows, after = page.rows, page.next_after
        if select is None:
            break
        looked_at += len(rows)
        size_bytes += sum(row.size_bytes for row in rows)
        rows = [row for row in rows if select(row, schedule.message(row.id) or b"")]
        if rows or after is None or size_bytes > BYTES_MAX:
            break
    return Listing(rows=rows, looked_at=looked_at, next_after=after)


def select_oldest(
    schedule: ScheduleView, action: Action, selection: Selection, bounds: Bounds
) -> Selection:
    """Return the selection of the oldest rows of another one that an action would change now.

    Args:
        action: rows that it leaves as they are do not count.
        selection: which rows; messages in final queues are not looked into.
        bounds: which of them; without any, the same selection is returned.

    Raises:
        ActionRefused: more than `IDS_MAX` rows are selected.
    """
    if bounds == Bounds():
        return selection
    select = selector(selection)
    act = effect_of(action)
    found: dict[str, int] = {}
    after = 0
    rows = narrowed(action, selection, schedule).rows
    while page := schedule.list_rows(rows, _PAGE_ROWS, after):
        for row in page:
            if row.in_flight or act(row) is None:
                continue
            if select is not None and (
                row.is_in_final_queue or not select(row, schedule.message(row.id) or b"")
            ):
                continue
            name = (bounds.one_per_message_id and row.message_id) or f"#{row.id}"
            found.setdefault(name, row.id)
            if len(found) > IDS_MAX:
                raise ActionRefused(f"more than {IDS_MAX:,} messages are selected: add a limit")
            if len(found) == bounds.limit:
                return _these(found.values())
        after = page[-1].id
    return _these(found.values())


def _these(numbers: Iterable[int]) -> Selection:
    return Selection(rows=RowFilter(ids=tuple(numbers)))
