"""Lists as CSV (RFC 4180), for spreadsheets of teams that triage there."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

from amqsidecar.formats.csv_cell import cell
from amqsidecar.model.operation import Member
from amqsidecar.model.schedule import RowView
from amqsidecar.operations.failures.groups import Group
from amqsidecar.operations.words import clock_time

ROWS_MAX: Final = 10_000
"""Maximum rows of an exported list."""

PAGE_ROWS: Final = 100
"""Rows in memory at a time."""

PAGES_MAX: Final = 500
"""Pages that are looked at; looking is bounded, so a page may have fewer rows than it could."""

GROUPS_HEADERS: Final = (
    *("destination", "cause_group", "trend", "recent", "day_before", "first_at", "last_at"),
    *("total", "waiting", "held", "parked", "exhausted", "example_id", "note", "note_author"),
)


def groups_csv(groups: Iterable[Group]) -> str:
    """Return groups as lines of CSV."""
    return csv_lines(
        (
            *(group.destination, group.cause_group, group.trend.value),
            *(group.recent, group.day_before, _time(group.first_at_ms)),
            *(_time(group.last_at_ms), group.total, group.waiting, group.held, group.parked),
            *(group.exhausted, group.example_id),
            *((None, None) if group.note is None else (group.note.text, group.note.author)),
        )
        for group in groups
    )


MESSAGES_HEADERS: Final = (
    *("id", "redelivery_id", "state", "destination", "source", "cause_group", "cause"),
    *("redelivery_count", "received_at", "due_at", "rule", "reason", "message_id"),
    *("size_bytes", "is_final", "in_flight", "final_queue"),
)


def messages_csv(rows: Iterable[RowView]) -> str:
    """Return waiting messages as lines of CSV."""
    return csv_lines(
        (
            *(row.id, row.redelivery_id, row.state.value, row.destination, row.source),
            *(row.cause_group, row.cause, row.redelivery_count, _time(row.received_at_ms)),
            *(_time(row.due_at_ms), row.rule, row.reason, row.message_id, row.size_bytes),
            *(int(row.is_final), int(row.in_flight), row.final_queue or ""),
        )
        for row in rows
    )


MEMBERS_HEADERS: Final = (
    *("redelivery_id", "destination", "outcome", "changed_at", "resent_at", "evidence"),
)


def members_csv(members: Iterable[Member]) -> str:
    """Return the outcomes of an operation's messages as lines of CSV."""
    return csv_lines(
        (
            *(one.redelivery_id, one.destination),
            "not sent yet" if one.outcome is None else one.outcome.value,
            *(_time(one.changed_at_ms), _time(one.resent_at_ms), one.evidence),
        )
        for one in members
    )


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as lines of CSV, each cell as `cell` has it."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else clock_time(at_ms)
