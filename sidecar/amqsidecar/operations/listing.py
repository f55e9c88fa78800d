"""Looking at the messages that a person chose, page by page."""

import msgspec

from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.cause import ROW_BYTES_MAX, bounded_cause
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowView
from amqsidecar.operations.select import PropertyReader, selector
from amqsidecar.schedule import Schedule


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
        limit: maximum rows examined.
        after: `next_after` of the page before.
    """
    page = schedule.page_rows(selection.rows, order, limit, after)
    select = selector(selection, properties_of)
    if select is None:
        return Listing(rows=page.rows, looked_at=0, next_after=page.next_after)
    rows = [row for row in page.rows if select(row, schedule.message(row.id) or b"")]
    return Listing(rows=rows, looked_at=len(page.rows), next_after=page.next_after)
