"""How the SQLite store reads rows, and which of them count."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.stores import rows
from amqsidecar.stores.packing import (
    TallyDelta,
    storable,
    unpack_deltas,
    unpack_holds,
    unpack_runs,
)
from amqsidecar.stores.rows import STATE_NUMBERS
from amqsidecar.stores.sqlite.database import SqliteDatabase

LOOKED_AT = 20_000
"""Rows examined between two reports of progress or checks for cancellation."""

_SERVED = {
    "all": (),
    "kept": ("state",),
    "by_destination": ("destination",),
    "by_group": ("destination", "cause_group"),
}
"""The columns of a row in the index of a source; other sources are small."""


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded cycle without a known end.

    Attributes:
        taken: runs of ids; `sent` likewise.
        renamed: numbers of rows that it took, and of the rows that they replace.
        final: runs of the sent rows that go to a final dead-letter queue.
        taken_tally: changes of tallies by taken rows; the sent rows give theirs.
        event_block: number of its block of events; None = it has no events.
        failures: additions to the counts of failures.
    """

    cycle: int
    taken_count: int
    sent_count: int
    taken: list[tuple[int, int]]
    sent: list[tuple[int, int]]
    final: list[tuple[int, int]]
    taken_tally: list[TallyDelta]
    holds: dict[str, int]
    event_block: int | None
    failures: bytes
    renamed: list[tuple[int, int]]


def read_unfinished(database: SqliteDatabase) -> Unfinished | None:
    """Return the cycle without a known end; None = there is none."""
    row = database.query("read_unfinished").fetchone()
    if row is None:
        return None
    return Unfinished(
        cycle=row[0],
        taken_count=row[1],
        sent_count=row[2],
        taken=unpack_runs(row[3]),
        sent=unpack_runs(row[4]),
        taken_tally=unpack_deltas(row[5]),
        holds=unpack_holds(row[6]),
        event_block=row[7],
        failures=row[8],
        final=unpack_runs(row[9]),
        renamed=unpack_runs(row[10]),
    )


def read_in_flight(database: SqliteDatabase) -> tuple[set[int], set[int]]:
    """Return which rows the unfinished cycle took, and which it sends."""
    record = read_unfinished(database)
    if record is None:
        return set(), set()
    return ids_of(record.taken), ids_of(record.sent) | ids_of(record.final)


def ids_of(runs: Iterable[tuple[int, int]]) -> set[int]:
    """Return the numbers in runs."""
    return {row_id for first, last in runs for row_id in range(first, last + 1)}


def storable_or_none(text: str | None) -> str | None:
    """Return an optional text that UTF-8 can encode; see `storable`."""
    return None if text is None else storable(text)


def json_ids(ids: Iterable[int]) -> str:
    """Return numbers as an argument of the queries."""
    return msgspec.json.encode(list(ids)).decode()


def json_texts(texts: Iterable[str]) -> str:
    """Return texts as an argument of the queries."""
    return msgspec.json.encode(list(texts)).decode()


def view_row(database: SqliteDatabase, row: tuple[Any, ...], in_flight: bool = False) -> RowView:
    """Return a row of a `list_` query as a `RowView`."""
    return rows.view_row(row, database.word, lambda: database.group_key, in_flight=in_flight)


def filter_values(database: SqliteDatabase, row_filter: RowFilter) -> tuple[str, dict[str, Any]]:
    """Return which index serves a filter best, and the values of its conditions."""
    destination, state, source = row_filter.destination, row_filter.only_state, row_filter.source
    lies_in, allowed = row_filter.lies_in, row_filter.destinations
    state_number = None if state is None else STATE_NUMBERS[state]
    group = row_filter.cause_group
    values: dict[str, Any] = {
        "destination": None if destination is None else database.find_word(destination),
        "source": None if source is None else database.find_word(source),
        "cause_group": None if group is None else group_number(database, group),
        "redelivery_id": storable_or_none(row_filter.redelivery_id),
        "state": state_number,
        "received_before_ms": row_filter.received_before_ms,
        "received_from_ms": row_filter.received_from_ms,
        "redelivery_count": row_filter.redelivery_count,
        "due_before_ms": row_filter.due_before_ms,
        "count_at_least": row_filter.count_at_least,
        "cause_contains": storable_or_none(row_filter.cause_contains),
        "lies_in": None if lies_in is None else database.find_word(lies_in),
        "event": storable_or_none(row_filter.event),
        "destinations": None if allowed is None else json_ids(map(database.find_word, allowed)),
    }
    if row_filter.ids is not None:
        return "by_ids", values | {"ids": json_ids(row_filter.ids)}
    if row_filter.redelivery_id is not None:
        return "by_redelivery_id", values
    if group:
        if destination is None:
            places = database.query("destinations_of_group", (values["cause_group"],)).fetchall()
            if len(places) < 2:
                values["destination"] = places[0][0] if places else -1
        if values["destination"] is not None:
            return "by_group", values
    if state_number:
        return "kept", values | {"kept": state_number}
    return ("all" if destination is None else "by_destination"), values


def is_served(source: str, row_filter: RowFilter) -> bool:
    """Whether an index finds the rows of a filter, with a bounded number of others."""
    served = _SERVED.get(source)
    if served is None:
        return True
    others = RowFilter(**{name: getattr(row_filter, name) for name in served})
    return row_filter == others


def group_number(database: SqliteDatabase, cause_group: str) -> int:
    """Return the number of a group; 0 = none, -1 = no row has it."""
    return database.find_word(cause_group) if cause_group else 0


def window_end(
    database: SqliteDatabase, row_filter: RowFilter, after_id: int, until_id: int
) -> int:
    """Return the number of the last row of a window that is searched at once for a filter."""
    source, values = filter_values(database, row_filter)
    if is_served(source, row_filter):
        return until_id
    values |= {"after_id": after_id, "until_id": until_id, "window": LOOKED_AT - 1}
    row = database.query(f"window_{source}", values).fetchone()
    return until_id if row is None else int(row[0])


def filtered(
    database: SqliteDatabase, row_filter: RowFilter, limit: int, after_id: int, until_id: int
) -> list[tuple[Any, ...]]:
    """Return matching rows, by number, for `view_row`."""
    source, values = filter_values(database, row_filter)
    values |= {"after_id": after_id, "until_id": until_id, "limit": limit}
    return database.query(f"list_{source}", values).fetchall()


def chunks_of_ids(
    database: SqliteDatabase, row_filter: RowFilter, size: int
) -> Iterator[tuple[int, ...]]:
    """Return the numbers of the rows that match now, in chunks of bounded size; may be none.

    Looking for them needs no write lock, and takes many steps where few of many are hit.
    """
    if row_filter.ids is not None:
        numbers = sorted(set(row_filter.ids))
        for start in range(0, len(numbers), size):
            yield tuple(numbers[start : start + size])
        return
    after_id = 0
    with database.mapped("be read"):
        until_id: int = database.query("newest_id").fetchone()[0]
    while after_id < until_id:
        with database.snapshot():
            end_id = window_end(database, row_filter, after_id, until_id)
            rows = filtered(database, row_filter, size, after_id, end_id)
        ids = tuple(row[0] for row in rows)
        after_id = ids[-1] if len(ids) == size else end_id
        yield ids
