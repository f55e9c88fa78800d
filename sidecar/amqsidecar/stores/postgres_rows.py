"""How the PostgreSQL store reads and writes rows."""

from collections.abc import Iterable
from typing import Any

from amqsidecar.model.schedule import RowFilter, RowState, RowView, TakenRow
from amqsidecar.stores.packing import storable
from amqsidecar.stores.postgres_database import PostgresDatabase

STATES = (RowState.WAITING, RowState.HELD, RowState.PARKED)
STATE_NUMBERS = {state: number for number, state in enumerate(STATES)}
LAST_ID = 2**63 - 1
TALLIED_CHARACTERS = 500  # As the queries cut a destination.

ROW_TYPES = (
    *("int8", "int2", "int8", "text", "bool", "text", "text", "int8", "int8"),
    *("int8", "text", "text", "int8", "int8", "text", "text"),
)


def pg_text(text: str) -> str:
    r"""Return a text that PostgreSQL can keep; what it can't is spelled out.

    Example:
        >>> pg_text("a\0b")
        'a\\x00b'
    """
    return storable(text).replace("\0", "\\x00")


def pg_text_or_none(text: str | None) -> str | None:
    """Return a text that may be missing as PostgreSQL can keep it."""
    return None if text is None else pg_text(text)


def tally_name(destination: str) -> str:
    """Return what stands for a destination in the tallies."""
    return pg_text(destination)[:TALLIED_CHARACTERS]


def copied_rows(rows: Iterable[TakenRow]) -> list[tuple[Any, ...]]:
    """Return rows as `add_rows` takes them."""
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
        )
        for row in rows
    ]


def view_row(row: tuple[Any, ...]) -> RowView:
    """Return a row of a `list_` query as people see it."""
    return RowView(
        id=row[0],
        state=STATES[row[1]],
        due_at_ms=row[2],
        destination=row[3],
        is_final=row[4],
        source=row[5],
        redelivery_id=row[6],
        redelivery_count=row[7],
        delay_ms=row[8],
        rule=row[9],
        cause=row[10],
        message_id=row[11],
        received_at_ms=row[12],
        encoding=row[13],
        size_bytes=row[14],
        reason=row[15],
        in_flight=row[16],
    )


def filter_values(row_filter: RowFilter) -> tuple[str, dict[str, Any]]:
    """Return which index serves a filter best, and the values of its conditions."""
    destination, state = row_filter.destination, row_filter.state
    state_number = None if state is None else STATE_NUMBERS[state]
    values: dict[str, Any] = {
        "destination": pg_text_or_none(destination),
        "redelivery_id": pg_text_or_none(row_filter.redelivery_id),
        "state": state_number,
        "received_before_ms": row_filter.received_before_ms,
        "cause_contains": pg_text_or_none(row_filter.cause_contains),
    }
    if row_filter.ids is not None:
        return "by_ids", values | {"ids": list(row_filter.ids)}
    if row_filter.redelivery_id is not None:
        return "by_redelivery_id", values
    if state_number:
        return "kept", values
    return ("all" if destination is None else "by_destination"), values


def filtered(
    database: PostgresDatabase, row_filter: RowFilter, limit: int, after_id: int, until_id: int
) -> list[RowView]:
    """Return rows that a filter hits, by number, without those that don't count yet."""
    source, values = filter_values(row_filter)
    values |= {"after_id": after_id, "until_id": until_id, "limit": limit}
    return [view_row(row) for row in database.query(f"list_{source}", **values)]
