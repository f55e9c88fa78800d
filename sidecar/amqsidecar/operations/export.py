"""Lists as CSV (RFC 4180), for spreadsheets of teams that triage there."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

from amqsidecar.ledger import Ledger, RowKey, RowOrder
from amqsidecar.model.operation import Member, OutcomeKind, Selection
from amqsidecar.model.schedule import RowView
from amqsidecar.operations.groups import Group
from amqsidecar.operations.listing import list_messages
from amqsidecar.operations.select import PropertiesOf
from amqsidecar.operations.words import clock_time
from amqsidecar.store import Store

ROWS_MAX: Final = 10_000
"""So many rows of a list are exported."""

_PAGE_ROWS: Final = 500
_PAGES_MAX: Final = 100

_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")

# Why: where semicolons part cells, a quoted text is none, and its pieces are cells.
_FORMULA_IN_IT: Final = re.compile(r"""(?<=[;\t\r\n])(?=[ "]*[=+\-@＝＋－＠])""")


def cell(value: object) -> str:
    """Return what stands in a cell; no program takes a text of a stranger for a formula.

    Example:
        >>> cell("=HYPERLINK(0)"), cell(-5), cell(None)
        ("'=HYPERLINK(0)", '-5', '')
    """
    if not isinstance(value, str):
        return "" if value is None else str(value)
    value = _FORMULA_IN_IT.sub("'", value)
    # Why trimmed: spreadsheets look behind blanks.
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULA) else value


def groups_csv(groups: Iterable[Group]) -> str:
    """Return groups as CSV."""
    headers = (
        *("destination", "cause_group", "trend", "recent", "day_before", "first_at", "last_at"),
        *("total", "waiting", "held", "parked", "exhausted", "example_id", "note", "note_author"),
    )
    return _csv(
        headers,
        [
            (
                *(group.destination, group.cause_group, group.trend.value),
                *(group.recent, group.day_before, _time(group.first_at_ms)),
                *(_time(group.last_at_ms), group.total, group.waiting, group.held, group.parked),
                *(group.exhausted, group.example_id),
                *((None, None) if group.note is None else (group.note.text, group.note.author)),
            )
            for group in groups
        ],
    )


def messages_csv(rows: Iterable[RowView]) -> str:
    """Return messages that wait as CSV."""
    headers = (
        *("id", "redelivery_id", "state", "destination", "source", "cause_group", "cause"),
        *("redelivery_count", "received_at", "due_at", "rule", "reason", "message_id"),
        *("size_bytes", "is_final", "in_flight", "final_queue"),
    )
    return _csv(
        headers,
        [
            (
                *(row.id, row.redelivery_id, row.state.value, row.destination, row.source),
                *(row.cause_group, row.cause, row.redelivery_count, _time(row.received_at_ms)),
                *(_time(row.due_at_ms), row.rule, row.reason, row.message_id, row.size_bytes),
                *(int(row.is_final), int(row.in_flight), row.final_queue or ""),
            )
            for row in rows
        ],
    )


def members_csv(members: Iterable[Member]) -> str:
    """Return what became of the messages of an operation as CSV."""
    headers = ("redelivery_id", "destination", "outcome", "changed_at", "resent_at", "evidence")
    return _csv(
        headers,
        [
            (
                *(one.redelivery_id, one.destination),
                "not sent yet" if one.outcome is None else one.outcome.value,
                *(_time(one.changed_at_ms), _time(one.resent_at_ms), one.evidence),
            )
            for one in members
        ],
    )


def exported_messages(
    store: Store,
    ledger: Ledger,
    selection: Selection,
    properties_of: PropertiesOf,
    order: RowOrder,
) -> tuple[list[RowView], bool]:
    """Return messages of a selection, `ROWS_MAX` at most, and whether these are all.

    Args:
        store: an open store.
        ledger: the same store.
        selection: which ones.
        properties_of: reads properties out of messages.
        order: the newest or the next ones first.
    """
    rows: list[RowView] = []
    after: RowKey | None = None
    for _ in range(_PAGES_MAX):
        found = list_messages(
            store, ledger, selection, properties_of, order=order, limit=_PAGE_ROWS, after=after
        )
        rows += found.rows
        after = found.next_after
        if after is None or len(rows) > ROWS_MAX:
            break
    return rows[:ROWS_MAX], after is None and len(rows) <= ROWS_MAX


def exported_members(
    ledger: Ledger, number: int, outcome: OutcomeKind | None
) -> tuple[list[Member], bool]:
    """Return members of an operation, `ROWS_MAX` at most, and whether these are all."""
    found = ledger.members(number, outcome, ROWS_MAX + 1)
    return found[:ROWS_MAX], len(found) <= ROWS_MAX


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else clock_time(at_ms)


def _csv(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(headers)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()
