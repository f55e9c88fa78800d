"""Looking at the messages that a person chose, page by page."""

from typing import Final

import msgspec

from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.cause import ROW_BYTES_MAX, bounded_cause
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowView
from amqsidecar.operations.select import PropertyReader, selector
from amqsidecar.schedule import Schedule

PAGES_MAX: Final = 20
"""Pages of messages that are looked into, while none of them matches."""

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


def shown_row(row: RowView) -> RowView:
    """Return a row as lists show it, its cause cut to `ROW_BYTES_MAX`; mask it before."""
    if row.cause is None:
        return row
    return msgspec.structs.replace(row, cause=bounded_cause(row.cause, ROW_BYTES_MAX))


def list_messages(
    schedule: Schedule,
    selection: Selection,
    properties_of: PropertyReader,
    *,
    order: RowOrder = RowOrder.NEWEST,
    limit: int = 50,
    after: RowKey | None = None,
) -> Listing:
    """Return messages that are selected.

    Args:
        schedule: an open one.
        selection: which ones.
        properties_of: reads properties out of messages.
        order: the newest or the next ones first.
        limit: maximum rows returned.
        after: `next_after` of the page before.
    """
    select = selector(selection, properties_of)
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
