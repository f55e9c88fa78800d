"""Pages of rows in the SQLite store: by number or by due time, any filter, bounded looking."""

from collections.abc import Sequence
from typing import Any

from amqsidecar.ledger import RowKey, RowOrder, RowPage
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.stores.ledger import CommonPart
from amqsidecar.stores.rows import LAST_ID, STATE_NUMBERS, STATES
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.rows import (
    LOOKED_AT,
    filter_values,
    is_served,
    read_in_flight,
    view_row,
)

LOOKED_AT_BY_DUE = 4_000
"""Fewer, because rows in the order of due times lie anywhere in the file."""

_FIRST = RowKey(-(2**63), 0)
_LAST = RowKey(LAST_ID, LAST_ID)

SqliteRows = list[tuple[Any, ...]]


def _newest(
    database: SqliteDatabase,
    source: str,
    values: dict[str, Any],
    after: RowKey | None,
    *,
    is_whole: bool,
) -> tuple[SqliteRows, RowKey | None]:
    """Return rows by number, and where looking ended; None = there are no more."""
    values |= {"after_id": 0, "until_id": LAST_ID if after is None else after.id - 1}
    end = None
    if not is_whole:
        lowest = database.query(f"lowest_{source}", values | {"window": LOOKED_AT - 1}).fetchone()
        if lowest is not None:
            values["after_id"] = lowest[0] - 1
            end = RowKey(0, lowest[0])
    return database.query(f"newest_{source}", values).fetchall(), end


def _by_due(
    database: SqliteDatabase,
    row_filter: RowFilter,
    source: str,
    values: dict[str, Any],
    after: RowKey | None,
) -> tuple[SqliteRows, RowKey | None]:
    """Return rows by due time, and where looking ended; None = there are no more."""
    values |= _from(after or _FIRST) | _until(_LAST)
    small = _small_source(database, source, values)
    if small is not None:
        return database.query(f"sorted_{small}", values).fetchall(), None
    found: SqliteRows = []
    end = _LAST
    is_whole = row_filter == RowFilter(state=row_filter.state)
    for state in STATES if row_filter.state is None else [row_filter.state]:
        kind = "waiting" if state is RowState.WAITING else "kept"
        values["kept"] = STATE_NUMBERS[state]
        window = values | {"window": LOOKED_AT_BY_DUE - 1}
        latest = None if is_whole else database.query(f"latest_{kind}", window).fetchone()
        if latest is not None:
            end = min(end, RowKey(*latest))
        found += database.query(f"due_{kind}", values | _until(latest or _LAST)).fetchall()
    rows = sorted((row for row in found if _key(row) <= end), key=_key)
    return rows, None if end == _LAST else end


def _small_source(database: SqliteDatabase, source: str, values: dict[str, Any]) -> str | None:
    """Return an index that finds so few rows that they can be sorted; None = there is none."""
    if source in ("by_ids", "by_redelivery_id"):
        return source
    if values["destination"] is None:
        return None
    has_group = bool(values["cause_group"])
    place = {
        "destination": values["destination"],
        "cause_group": values["cause_group"] if has_group else None,
        "state": None,
    }
    if database.query("sum_tallies", place).fetchone()[0] > LOOKED_AT:
        return None
    return "by_group" if has_group else "by_destination"


def _from(key: RowKey) -> dict[str, int]:
    return {"after_due_ms": key.sort, "after_id": key.id}


def _until(key: Sequence[int]) -> dict[str, int]:
    return {"until_due_ms": key[0], "until_id": key[1]}


def _key(row: tuple[Any, ...]) -> RowKey:
    return RowKey(row[2], row[0])


class SqlitePages(CommonPart):
    """The pages of rows of the store that inherits it."""

    _database: SqliteDatabase

    def page_rows(
        self, row_filter: RowFilter, order: RowOrder, limit: int, after: RowKey | None = None
    ) -> RowPage:
        """See `Ledger`; examines at most some ten thousand rows."""
        database = self._database
        with database.snapshot():
            taken, sent = read_in_flight(database)
            source, values = filter_values(database, row_filter)
            values["limit"] = limit + 1 + len(taken)
            if order is RowOrder.NEWEST:
                is_whole = is_served(source, row_filter)
                rows, end = _newest(database, source, values, after, is_whole=is_whole)
            else:
                rows, end = _by_due(database, row_filter, source, values, after)
            rows = [row for row in rows if row[0] not in taken]
            if len(rows) > limit:
                rows = rows[:limit]
                last = rows[-1]
                end = RowKey(0 if order is RowOrder.NEWEST else last[2], last[0])
            views = [view_row(database, row, row[0] in sent) for row in rows]
        return RowPage(rows=views, next_after=end)
