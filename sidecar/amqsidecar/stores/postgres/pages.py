"""How the PostgreSQL store finds rows for people, looking at a bounded number of them."""

from collections.abc import Callable

import msgspec

from amqsidecar.ledger import RowKey, RowOrder, RowPage
from amqsidecar.model.schedule import RowFilter, RowState, RowView
from amqsidecar.stores.ledger import CommonPart
from amqsidecar.stores.postgres.database import PostgresDatabase
from amqsidecar.stores.postgres.rows import (
    conditions_of,
    count_tallied,
    filter_values,
    filtered,
    group_name,
    view_row,
)
from amqsidecar.stores.rows import INDEXED_CHARACTERS, LAST_ID, STATE_NUMBERS, STATES

LOOK_ROWS = 10_000
"""Maximum rows examined for one page, or for one step of an operation."""
LOOK_ROWS_BY_DUE = 4_000
"""Fewer, because rows in the order of due times lie anywhere in the table."""
FEW_ROWS = 2_000
"""Up to this many rows are sorted instead of found by the index on due time."""

_FEW_SOURCES = ("by_ids", "by_redelivery_id")


def next_window(
    database: PostgresDatabase, row_filter: RowFilter, after_id: int, until_id: int, limit: int
) -> tuple[list[RowView], int]:
    """Return the next matching rows by number, at most `limit`, and up to where it looked."""
    row_filter = _with_destination(database, row_filter)
    if row_filter.ids is not None:
        ids = sorted({number for number in row_filter.ids if after_id < number <= until_id})
        if len(ids) > limit:
            until_id = ids[limit - 1]
        row_filter = msgspec.structs.replace(row_filter, ids=tuple(ids[:limit]))
    source, values = filter_values(row_filter)
    if not _is_served(source, row_filter):
        values |= {"after_id": after_id, "until_id": until_id, "look": LOOK_ROWS}
        last = database.rows(f"ceiling_{source}", **values)
        until_id = last[0][0] if last else until_id
    views = filtered(database, row_filter, limit, after_id, until_id)
    return views, views[-1].id if len(views) == limit else until_id


def _with_destination(database: PostgresDatabase, row_filter: RowFilter) -> RowFilter:
    """Name the destination where only one has rows of the wanted group: an index serves it then."""
    if row_filter.destination is not None or not row_filter.cause_group:
        return row_filter
    group = group_name(row_filter.cause_group)
    found = database.rows("destinations_of_group", cause_group=group)
    if len(found) != 1 or len(found[0][0]) >= INDEXED_CHARACTERS:
        return row_filter
    return msgspec.structs.replace(row_filter, destination=found[0][0])


def _indexed_part(source: str, row_filter: RowFilter) -> RowFilter:
    """Return the conditions that an index serves."""
    destination, state = row_filter.destination, row_filter.state
    parts = {
        "by_group": RowFilter(destination=destination, cause_group=row_filter.cause_group),
        "by_destination": RowFilter(destination=destination),
        "kept": RowFilter(state=state),
    }
    return parts.get(source, RowFilter())


def _is_served(source: str, row_filter: RowFilter) -> bool:
    """Whether no more rows are looked at than are found."""
    return source in _FEW_SOURCES or row_filter == _indexed_part(source, row_filter)


def _sorted_page(
    database: PostgresDatabase,
    row_filter: RowFilter,
    order: RowOrder,
    limit: int,
    after: RowKey | None,
) -> RowPage:
    rows = filtered(database, row_filter, LAST_ID, 0, LAST_ID)
    key: Callable[[RowView], RowKey] = _key_of(order)
    is_newest = order is RowOrder.NEWEST
    rows.sort(key=key, reverse=is_newest)
    if after is not None:
        rows = [row for row in rows if (key(row) < after if is_newest else key(row) > after)]
    return _page(rows, order, limit, None)


def _newest_page(
    database: PostgresDatabase, row_filter: RowFilter, limit: int, after: RowKey | None
) -> RowPage:
    source, values = filter_values(row_filter)
    before = LAST_ID if after is None else after.id
    values |= {"before": before, "floor": 0, "limit": limit, "look": LOOK_ROWS}
    looked_to = None
    if not _is_served(source, row_filter):
        for (floor,) in database.rows(f"floor_{source}", **values):
            values["floor"], looked_to = floor, RowKey(0, floor)
    rows = [view_row(database, row) for row in database.rows(f"newest_{source}", **values)]
    return _page(rows, RowOrder.NEWEST, limit, looked_to)


def _due_page(
    database: PostgresDatabase, row_filter: RowFilter, limit: int, after: RowKey | None
) -> RowPage:
    state, after = row_filter.state, after or RowKey(-LAST_ID, 0)
    values = conditions_of(row_filter)
    values |= {"after_ms": after.sort, "after_id": after.id, "limit": limit}
    values |= {"look": LOOK_ROWS_BY_DUE}
    states = STATES if state is None else (state,)
    parts = [
        ("waiting" if one is RowState.WAITING else "kept", values | {"kept": STATE_NUMBERS[one]})
        for one in states
    ]
    ends = [RowKey(*end) for name, part in parts for end in database.rows(f"until_{name}", **part)]
    looked_to = min(ends, default=None)
    until = looked_to or RowKey(LAST_ID, LAST_ID)
    rows = [
        view_row(database, row)
        for name, part in parts
        for row in database.rows(
            f"due_{name}", **part | {"until_ms": until.sort, "until_id": until.id}
        )
    ]
    rows.sort(key=_key_of(RowOrder.DUE))
    return _page(rows, RowOrder.DUE, limit, looked_to)


def _page(rows: list[RowView], order: RowOrder, limit: int, looked_to: RowKey | None) -> RowPage:
    if len(rows) >= limit:
        rows = rows[:limit]
        looked_to = _key_of(order)(rows[-1])
    return RowPage(rows=rows, next_after=looked_to)


def _key_of(order: RowOrder) -> Callable[[RowView], RowKey]:
    if order is RowOrder.NEWEST:
        return lambda row: RowKey(0, row.id)
    return lambda row: RowKey(row.due_at_ms, row.id)


class PostgresPages(CommonPart):
    """The pages of rows of the store that inherits it."""

    _database: PostgresDatabase

    def page_rows(
        self, row_filter: RowFilter, order: RowOrder, limit: int, after: RowKey | None = None
    ) -> RowPage:
        """See `Ledger`."""
        database = self._database
        row_filter = _with_destination(database, row_filter)
        source, _ = filter_values(row_filter)
        if source in _FEW_SOURCES:
            return _sorted_page(database, row_filter, order, limit, after)
        if order is RowOrder.NEWEST:
            return _newest_page(database, row_filter, limit, after)
        if count_tallied(database, _indexed_part(source, row_filter)) <= FEW_ROWS:
            return _sorted_page(database, row_filter, order, limit, after)
        return _due_page(database, row_filter, limit, after)
