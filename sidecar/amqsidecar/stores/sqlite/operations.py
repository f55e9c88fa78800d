"""Operations of the SQLite store, with their members and observations."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from amqsidecar.ledger import MemberOutcome, MemberUpdate, Select
from amqsidecar.model.operation import Member, Operation, OutcomeKind
from amqsidecar.model.overtaken import overtaken_rows
from amqsidecar.model.row_changes import Change
from amqsidecar.model.schedule import RowView
from amqsidecar.stores.member_updates import updated
from amqsidecar.stores.packing import storable, unpack_message
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


# Operations.


def open_numbers(database: SqliteDatabase) -> set[int]:
    """Return the numbers of those that are running or have members without a final outcome."""
    numbers = {number for (number,) in database.query("running_operations")}
    for outcome in (None, OutcomeKind.RESENT):
        number = 0
        while row := database.query("next_followed", (OUTCOME_NUMBERS[outcome], number)).fetchone():
            number = row[0]
            numbers.add(number)
    return numbers


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


# Members.


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


def read_members(
    database: SqliteDatabase, number: int, outcome: OutcomeKind | None, limit: int, after: str
) -> list[Member]:
    """Return members by redelivery id, only those above `after`; None = any outcome."""
    values = {"operation": number, "after": storable(after), "limit": limit}
    if outcome is None:
        return _members(database, "read_members", values)
    values["outcome"] = OUTCOME_NUMBERS[outcome]
    return _members(database, "read_members_of_outcome", values)


def _members(database: SqliteDatabase, query: str, values: dict[str, Any]) -> list[Member]:
    return [
        Member(
            redelivery_id=row[0],
            destination=row[1],
            changed_at_ms=row[2],
            resent_at_ms=row[3],
            outcome=OUTCOMES[row[4]],
            evidence=row[5],
        )
        for row in database.query(query, values)
    ]


def count_members(database: SqliteDatabase, number: int) -> dict[OutcomeKind | None, int]:
    """Return the number of members by outcome."""
    counts = {
        outcome: database.query("count_members", (OUTCOME_NUMBERS[outcome], number)).fetchone()[0]
        for outcome in OUTCOMES
    }
    return {outcome: count for outcome, count in counts.items() if count}


def update_members(
    database: SqliteDatabase, updates: Sequence[MemberUpdate]
) -> tuple[Counter[int], Counter[int]]:
    """Store observations of open members; return how many by operation were sent, and came back."""
    resent, came_back = Counter[int](), Counter[int]()
    for update in updates:
        for number, member in _open_members(database, update.redelivery_id):
            noted = updated(member, update)
            if noted is not None:
                outcome, evidence = OUTCOME_NUMBERS[noted.outcome], storable(noted.evidence)
                values = (noted.resent_at_ms, outcome, evidence, number, noted.redelivery_id)
                database.query("set_member", values)
                resent[number] += member.resent_at_ms is None
                came_back[number] += update.has_returned
    return resent, came_back


def _open_members(database: SqliteDatabase, redelivery_id: str) -> Iterator[tuple[int, Member]]:
    key = storable(redelivery_id)
    for row in database.query("open_members", (key,)).fetchall():
        yield (
            row[0],
            Member(
                redelivery_id=key,
                destination=row[1],
                changed_at_ms=row[2],
                resent_at_ms=row[3],
                outcome=OUTCOMES[row[4]],
            ),
        )


def write_outcomes(
    database: SqliteDatabase, number: int, outcomes: Sequence[MemberOutcome]
) -> None:
    """Write outcomes of members, unless they are known by now."""
    database.query_each(
        "set_outcome",
        [
            (
                OUTCOME_NUMBERS[one.outcome],
                storable(one.evidence),
                number,
                storable(one.redelivery_id),
                OUTCOME_NUMBERS[OutcomeKind.RESENT],
            )
            for one in outcomes
        ],
    )


def forget_operations(database: SqliteDatabase, before_ms: int, limit: int) -> int:
    """Remove operations that ended before a time, each after its members; returns how many rows.

    At most `limit` operations and as many members.
    """
    members = operations = 0
    for (number,) in database.query("ended_operations", (before_ms, limit)).fetchall():
        values = {"operation": number, "limit": limit - members}
        members += len(database.query("forget_members", values).fetchall())
        if members >= limit:
            break
        database.query("forget_operation", (number,))
        operations += 1
    return members + operations
