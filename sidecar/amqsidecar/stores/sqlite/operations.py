"""The steps of operations in the SQLite store."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from amqsidecar.ledger import Select
from amqsidecar.model.operation import Operation, OutcomeKind
from amqsidecar.model.row_changes import Change
from amqsidecar.model.schedule import RowView
from amqsidecar.stores.member_updates import overtaken_rows
from amqsidecar.stores.packing import unpack_message
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.events import read_since
from amqsidecar.stores.sqlite.rows import (
    filtered,
    read_in_flight,
    view_row,
    window_end,
)

ROWS_AT_ONCE: Final = 500
"""A step holds the write lock for some ten milliseconds."""

READ_AT_ONCE_BYTES: Final = 8 * 1024 * 1024
"""A step that reads messages ends beyond this."""

OUTCOMES: Final = (None, *OutcomeKind)
"""By their numbers."""

OUTCOME_NUMBERS = {outcome: number for number, outcome in enumerate(OUTCOMES)}


class Portion(NamedTuple):
    """The next rows of an operation, as a `list_` query returns them, and the place it reached."""

    rows: list[tuple[Any, ...]]
    until_id: int


def next_rows(
    database: SqliteDatabase, operation: Operation, select: Select | None, limit: int
) -> Portion:
    """Return the next rows of an operation that it has not examined, up to a limit."""
    row_filter, until_id = operation.selection.rows, operation.until_id
    if operation.after_id >= until_id:
        return Portion([], until_id)
    until_id = window_end(database, row_filter, operation.after_id, until_id)
    count = min(limit, ROWS_AT_ONCE) if select is None else ROWS_AT_ONCE
    rows = filtered(database, row_filter, count, operation.after_id, until_id)
    if len(rows) == count:
        until_id = rows[-1][0]
    rows, until_id = _before_recalled(database, rows, until_id)
    if select is None:
        return Portion(rows, until_id)
    return _selected(database, Portion(rows, until_id), select, limit)


def _before_recalled(
    database: SqliteDatabase, rows: list[tuple[Any, ...]], until_id: int
) -> tuple[list[tuple[Any, ...]], int]:
    """Cut a portion before a row that is being taken back just now: it comes again, changed."""
    _, sent = read_in_flight(database)
    for place, row in enumerate(rows) if sent else ():
        if row[0] in sent and view_row(database, row).is_in_final_queue:
            return rows[:place], row[0] - 1
    return rows, until_id


def left_to_others(database: SqliteDatabase, operation: Operation, portion: Portion) -> set[int]:
    """Return the rows that people have changed otherwise since an operation began."""
    if operation.since is None or not portion.rows:
        return set()
    messages = {view_row(database, row).redelivery_id for row in portion.rows}
    later = overtaken_rows(operation, read_since(database, messages, operation.since))
    return later.intersection(row[0] for row in portion.rows)


def _selected(database: SqliteDatabase, portion: Portion, select: Select, limit: int) -> Portion:
    taken, sent = read_in_flight(database)
    chosen: list[tuple[Any, ...]] = []
    size_bytes = 0
    for row in portion.rows:
        if row[0] in taken:
            continue
        view = view_row(database, row, row[0] in sent)
        # None: it lies in its final queue.
        found = database.query("read_message", (row[0],)).fetchone()
        if found is not None and select(view, unpack_message(*found)):
            chosen.append(row)
        size_bytes += view.size_bytes
        if len(chosen) == limit or size_bytes > READ_AT_ONCE_BYTES:
            return Portion(chosen, row[0])
    return Portion(chosen, portion.until_id)


def add_members(
    database: SqliteDatabase, number: int, changes: Sequence[tuple[RowView, Change]]
) -> int:
    """Follow the messages of changed rows; return how many of them end at once.

    A message may have several rows, and is waited for once.
    """
    ids = {row.redelivery_id for row, _ in changes}
    names = msgspec.json.encode(list(ids)).decode()
    waited_for: int = database.query("count_unsent_members", (number, names)).fetchone()[0]
    database.query_each(
        "add_member",
        [(number, row.redelivery_id, made.destination, made.event.at_ms) for row, made in changes],
    )
    return len(changes) - len(ids) + waited_for
