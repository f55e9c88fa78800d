"""How the PostgreSQL store reads and writes rows."""

from collections.abc import Iterable
from typing import Any

from amqsidecar.model.schedule import RowFilter, RowView, TakenRow
from amqsidecar.stores import rows
from amqsidecar.stores.postgres.database import PostgresDatabase, pg_text
from amqsidecar.stores.rows import (
    GROUPED_CHARACTERS,
    INDEXED_CHARACTERS,
    RECALL_NUMBERS,
    STATE_NUMBERS,
)

# As the queries and indexes cut texts.
TALLIED_CHARACTERS = 500

ROW_TYPES = (
    *("int8", "int2", "int8", "text", "bool", "text", "text", "int8", "int8"),
    *("int8", "text", "text", "int8", "int8", "text", "text", "text", "text", "int2"),
    *("int8", "bool", "text"),
)


def pg_text_or_none(text: str | None) -> str | None:
    """Return an optional text that PostgreSQL can store; see `pg_text`."""
    return None if text is None else pg_text(text)


def tally_name(destination: str) -> str:
    """Return the key of a destination in the tallies."""
    return pg_text(destination)[:TALLIED_CHARACTERS]


def grouped_name(destination: str) -> str:
    """Return the key of a destination beside a cause group."""
    return pg_text(destination)[:GROUPED_CHARACTERS]


def group_name(cause_group: str) -> str:
    """Return the key of a cause group."""
    return pg_text(cause_group)[:INDEXED_CHARACTERS]


def copied_rows(rows: Iterable[TakenRow]) -> list[tuple[Any, ...]]:
    """Return rows as arguments of `add_rows`."""
    return [
        (
            row.id,
            STATE_NUMBERS[row.state],
            row.due_at_ms,
            pg_text(row.destination),
            row.is_final,
            pg_text(row.source),
            pg_text(row.redelivery_id),
            row.redelivery_count,
            row.delay_ms,
            row.expiration_ms,
            pg_text(row.rule),
            pg_text(row.encoding),
            row.received_at_ms,
            len(row.message),
            pg_text_or_none(row.cause),
            pg_text_or_none(row.message_id),
            group_name(row.cause_group) if row.cause_group else None,
            pg_text_or_none(row.decided_queue),
            RECALL_NUMBERS[row.recall],
            row.recall_operation,
            row.passes_gates,
            pg_text_or_none(row.gate),
        )
        for row in rows
    ]


def view_row(database: PostgresDatabase, row: tuple[Any, ...]) -> RowView:
    """Return a row of a `list_` query as a `RowView`."""
    return rows.view_row(row, str, lambda: database.group_key, in_flight=row[21])


def conditions_of(row_filter: RowFilter) -> dict[str, Any]:
    """Return the values of a filter's conditions but the row numbers."""
    state, group, places = row_filter.only_state, row_filter.cause_group, row_filter.destinations
    return {
        "destination": pg_text_or_none(row_filter.destination),
        "redelivery_id": pg_text_or_none(row_filter.redelivery_id),
        "state": None if state is None else STATE_NUMBERS[state],
        "source": pg_text_or_none(row_filter.source),
        "cause_group": None if group is None else group_name(group),
        "redelivery_count": row_filter.redelivery_count,
        "count_at_least": row_filter.count_at_least,
        "received_from_ms": row_filter.received_from_ms,
        "received_before_ms": row_filter.received_before_ms,
        "due_before_ms": row_filter.due_before_ms,
        "cause_contains": pg_text_or_none(row_filter.cause_contains),
        "lies_in": pg_text_or_none(row_filter.lies_in),
        "event": pg_text_or_none(row_filter.event),
        "destinations": None if places is None else [*map(pg_text, places)],
    }


def filter_values(row_filter: RowFilter) -> tuple[str, dict[str, Any]]:
    """Return which index serves a filter best, and the values of its conditions."""
    values = conditions_of(row_filter)
    if row_filter.ids is not None:
        return "by_ids", values | {"ids": list(row_filter.ids)}
    group = values["cause_group"]
    for name in ("redelivery_id", "destination"):
        text = values[name]
        if text is None:
            continue
        # Why: asked twice for the same, the planner would expect few rows, and sort them all.
        values |= {
            "key": text[:INDEXED_CHARACTERS],
            name: None if len(text) < INDEXED_CHARACTERS else text,
        }
        if name == "destination" and group:
            return "by_group", values | {"group_key": group, "cause_group": None}
        # Why: fewer rows are held or parked than have one destination, as a rule.
        if not (name == "destination" and values["state"]):
            return f"by_{name}", values
        values[name] = text
    return ("kept" if values["state"] else "all"), values


def count_tallied(database: PostgresDatabase, row_filter: RowFilter) -> int:
    """Return how many rows there are of a filter's destination, state and group; scans no rows."""
    values = {
        "destination": None
        if row_filter.destination is None
        else tally_name(row_filter.destination),
        "state": None if row_filter.state is None else STATE_NUMBERS[row_filter.state],
    }
    if row_filter.cause_group is None:
        return int(database.rows("count_tallied", **values)[0][0])
    values["cause_group"] = group_name(row_filter.cause_group)
    return int(database.rows("count_grouped", **values)[0][0])


def filtered(
    database: PostgresDatabase, row_filter: RowFilter, limit: int, after_id: int, until_id: int
) -> list[RowView]:
    """Return matching rows, by number, without rows of unfinished cycles."""
    source, values = filter_values(row_filter)
    values |= {"after_id": after_id, "until_id": until_id, "limit": limit}
    return [view_row(database, row) for row in database.rows(f"list_{source}", **values)]
