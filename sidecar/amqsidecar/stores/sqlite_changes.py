"""How the SQLite store changes rows: with their messages, their words and their tallies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from amqsidecar.model.acts import Act, Change
from amqsidecar.model.schedule import RowView, TakenRow
from amqsidecar.stores.packing import TallyDelta, pack_message, runs_of, storable
from amqsidecar.stores.sqlite_database import SqliteDatabase
from amqsidecar.stores.sqlite_rows import (
    STATE_NUMBERS,
    read_in_flight,
    storable_or_none,
    view_row,
)


class Changed(NamedTuple):
    """What an operator's action did.

    Attributes:
        matched: how many of the rows count already.
        changes: rows as they were, and what became of them.
    """

    matched: int
    changes: list[tuple[RowView, Change]]


def add_rows(database: SqliteDatabase, taken: Sequence[TakenRow], words: Mapping[str, int]) -> None:
    """Add rows with their messages; they don't count in tallies yet.

    Args:
        database: in a transaction.
        taken: the rows.
        words: numbers of their texts.
    """
    database.query_each(
        "add_row",
        [
            (
                row.id,
                STATE_NUMBERS[row.state],
                row.due_at_ms,
                words[row.destination],
                row.is_final,
                words[row.source],
                storable(row.redelivery_id),
                row.redelivery_count,
                row.delay_ms,
                row.expiration_ms,
                words[row.rule],
                words[row.encoding],
                row.received_at_ms,
                len(row.message),
                storable_or_none(row.cause),
                storable_or_none(row.message_id),
                words[row.cause_group] if row.cause_group else 0,
                storable_or_none(row.message_group),
            )
            for row in taken
        ],
    )
    database.query_each("add_message", [(row.id, pack_message(row.message)) for row in taken])
    uses = Counter[int]()
    places = Counter((row.destination, row.source, row.rule, row.encoding) for row in taken)
    for texts, count in places.items():
        for text in texts:
            uses[words[text]] += count
    for group, count in Counter(row.cause_group for row in taken if row.cause_group).items():
        uses[words[group]] += count
    database.use_words(uses)
    if taken:
        above = max(row.id for row in taken) + 1
        database.query("reserve_ids", {"at_least": above, "count": 0}).fetchall()


def delete_rows(database: SqliteDatabase, runs: Sequence[tuple[int, int]]) -> list[TallyDelta]:
    """Remove rows with their messages, by runs of ids; returns what is to be taken off tallies."""
    deleted = Counter(chain.from_iterable(database.query("delete_rows", run) for run in runs))
    uses, gone = Counter[int](), []
    for (state, destination, cause_group, *others), count in deleted.items():
        gone.append(TallyDelta(destination, state, -count, cause_group))
        for number in filter(None, (destination, cause_group, *others)):
            uses[number] -= count
    database.use_words(uses)
    database.query_each("delete_messages", runs)
    return gone


def change_rows(database: SqliteDatabase, rows: Sequence[tuple[Any, ...]], act: Act) -> Changed:
    """Apply an operator's action to listed rows; in-flight rows are left.

    Args:
        database: in a transaction.
        rows: rows of a `list_` query.
        act: what becomes of a row; None = it is left as it is.
    """
    taken, sent = read_in_flight(database)
    counting = [row for row in rows if row[0] not in taken]
    views = [view_row(database, row) for row in counting if row[0] not in sent]
    changes = [(view, made) for view in views if (made := act(view)) is not None]
    kept = [(view, made) for view, made in changes if not made.is_removed]
    texts = {made.destination for _, made in kept} | {view.destination for view, _ in kept}
    words = database.intern(texts | {view.cause_group for view, _ in kept if view.cause_group})
    uses = Counter[int]()
    deltas = delete_rows(database, runs_of(view.id for view, made in changes if made.is_removed))
    for view, made in kept:
        was, destination = words[view.destination], words[made.destination]
        group = words[view.cause_group] if view.cause_group else 0
        deltas.append(TallyDelta(was, STATE_NUMBERS[view.state], -1, group))
        deltas.append(TallyDelta(destination, STATE_NUMBERS[made.state], 1, group))
        uses[destination] += 1
        uses[was] -= 1
    database.query_each(
        "change_row",
        [
            {
                "id": view.id,
                "state": STATE_NUMBERS[made.state],
                "due_at_ms": made.due_at_ms,
                "destination": words[made.destination],
                "is_final": made.is_final,
                "reason": made.reason,
                "redelivery_count": made.redelivery_count,
                "passes_gates": made.passes_gates,
            }
            for view, made in kept
        ],
    )
    database.use_words(uses)
    count_rows(database, deltas)
    return Changed(len(counting), changes)


def count_rows(database: SqliteDatabase, deltas: Iterable[TallyDelta]) -> None:
    """Add differences to the tallies."""
    totals = Counter[tuple[int, int, int]]()
    for delta in deltas:
        totals[delta.destination, delta.cause_group, delta.state] += delta.difference
    for (destination, cause_group, state), count in totals.items():
        values = {"destination": destination, "cause_group": cause_group, "state": state}
        if count > 0:
            database.query("add_tally", values | {"delta": count})
        elif count < 0:
            database.query("subtract_tally", values | {"delta": count})
            database.query("drop_empty_tally", values)
