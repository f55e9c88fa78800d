"""How the SQLite store changes rows: with their messages, their words and their tallies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from amqsidecar.model.operation import UNDO_BYTES, UNDO_ROW_BYTES
from amqsidecar.model.row_changes import Change, RowChange
from amqsidecar.model.schedule import RowFilter, RowState, RowView, TakenRow
from amqsidecar.stores.packing import TallyDelta, pack_message, runs_of, storable
from amqsidecar.stores.rows import LAST_ID, RECALL_NUMBERS, STATE_NUMBERS, latest_undoable
from amqsidecar.stores.sqlite.database import LARGE_BYTES, SqliteDatabase
from amqsidecar.stores.sqlite.rows import (
    filtered,
    json_ids,
    read_in_flight,
    storable_or_none,
    view_row,
)

TRIMMED_AT_ONCE = 500

_WAITING = STATE_NUMBERS[RowState.WAITING]
_EXHAUSTED = STATE_NUMBERS[RowState.EXHAUSTED]


Changed = tuple[int, list[tuple[RowView, Change]]]
"""How many of the rows of an operator's action count already, and those changed, with changes."""


def add_rows(database: SqliteDatabase, taken: Sequence[TakenRow]) -> list[TallyDelta]:
    """Add rows with their messages; returns the change of tallies."""
    # Why by kind: the rows of a cycle have few different texts.
    kinds = [
        (
            row.state,
            row.destination,
            row.cause_group,
            row.decided_queue,
            row.is_final,
            row.source,
            row.rule,
            row.encoding,
        )
        for row in taken
    ]
    counts = Counter(kinds)
    words = database.intern({text for kind in counts for text in _texts_of(kind)})
    database.add_each(
        "add_row",
        [
            (
                row.id,
                STATE_NUMBERS[state],
                row.due_at_ms,
                words[destination],
                # Why numbers: to bind a boolean takes four times as long.
                1 if is_final else 0,
                words[source],
                storable(row.redelivery_id),
                row.redelivery_count,
                row.delay_ms,
                row.expiration_ms,
                words[rule],
                words[encoding],
                row.received_at_ms,
                len(row.message),
                storable_or_none(row.cause),
                storable_or_none(row.message_id),
                words[cause_group] if cause_group else 0,
                storable_or_none(row.message_group),
                words[final] if final else 0,
                RECALL_NUMBERS[row.recall],
                row.recall_operation,
                1 if row.passes_gates else 0,
                storable_or_none(row.gate),
            )
            for row, (state, destination, cause_group, final, is_final, source, rule, encoding) in (
                zip(taken, kinds, strict=True)
            )
        ],
    )
    kept = [row for row in taken if not row.is_in_final_queue]
    for row in kept:
        if len(row.message) >= LARGE_BYTES:
            database.add_large_message(row.id, pack_message(row.message))
    small = (row for row in kept if len(row.message) < LARGE_BYTES)
    database.query_each("add_message", ((row.id, pack_message(row.message)) for row in small))
    uses = Counter[int]()
    for kind, count in counts.items():
        for text in _texts_of(kind):
            uses[words[text]] += count
    database.use_words(uses)
    if taken:
        above = max(row.id for row in taken) + 1
        database.query("reserve_ids", {"at_least": above, "count": 0}).fetchall()
    tallies = []
    for (state, destination, cause_group, final, is_final, *_), count in counts.items():
        group = words[cause_group] if cause_group else 0
        tally = TallyDelta(words[destination], STATE_NUMBERS[state], count, group)
        if state is RowState.EXHAUSTED:
            tally = tally._replace(final_queue=words[final] if final else 0, is_final=is_final)
        tallies.append(tally)
    return tallies


_Kind = tuple[RowState, str, str, str | None, bool, str, str, str]
"""State, destination, cause group, final queue, whether it is final, source, rule, encoding."""


def _texts_of(kind: _Kind) -> list[str]:
    _, destination, cause_group, final, _, *others = kind
    return [destination, *others, *(text for text in (cause_group, final) if text)]


def delete_rows(database: SqliteDatabase, runs: Sequence[tuple[int, int]]) -> list[TallyDelta]:
    """Remove rows with their messages, by runs of ids; returns the change of tallies."""
    gone, words = _take_out(database, runs)
    _unuse(database, words)
    database.query_each("delete_from_message", runs)
    return gone


def _take_out(
    database: SqliteDatabase, runs: Sequence[tuple[int, int]]
) -> tuple[list[TallyDelta], Counter[tuple[int, ...]]]:
    """Remove rows; return the change of tallies, and how often the rows used each word."""
    gone, words = [], Counter[tuple[int, ...]]()
    for run in runs:
        # Why counted before, and not returned by the DELETE: that takes longer by half.
        for state, destination, cause_group, final, *others, is_final, count in database.query(
            "kinds_of_redelivery", run
        ):
            gone.append(TallyDelta(destination, state, -count, cause_group, final, is_final))
            words[destination, cause_group, final, *others] += count
    database.query_each("delete_from_redelivery", runs)
    return gone, words


def _unuse(database: SqliteDatabase, words: Mapping[tuple[int, ...], int]) -> None:
    uses = Counter[int]()
    for numbers, count in words.items():
        for number in filter(None, numbers):
            uses[number] -= count
    database.use_words(uses)


def exhaust_rows(database: SqliteDatabase, runs: Sequence[tuple[int, int]]) -> list[TallyDelta]:
    """Turn waiting rows, now in their final queue, into exhausted rows, by runs of ids.

    Their messages are removed.

    Returns:
        The change of tallies.
    """
    exhausted = Counter(chain.from_iterable(database.query("exhaust_rows", run) for run in runs))
    deltas = []
    for (destination, cause_group, final), count in exhausted.items():
        deltas.append(TallyDelta(destination, _WAITING, -count, cause_group))
        deltas.append(TallyDelta(destination, _EXHAUSTED, count, cause_group, final, True))
    database.query_each("delete_from_message", runs)
    return deltas


def change_rows(
    database: SqliteDatabase, rows: Sequence[tuple[Any, ...]], change: RowChange
) -> Changed:
    """Apply an operator's action to listed rows; in-flight rows are left.

    Args:
        database: in a transaction.
        rows: rows of a `list_` query.
        change: returns the new state of a row; None = it is left as it is.
    """
    taken, sent = read_in_flight(database)
    counting = [row for row in rows if row[0] not in taken]
    views = [view_row(database, row) for row in counting if row[0] not in sent]
    changes = [(view, made) for view in views if (made := change(view)) is not None]
    kept = [(view, made) for view, made in changes if not made.is_removed]
    texts = {made.destination for _, made in kept} | {view.destination for view, _ in kept}
    texts |= {one.final_queue for pair in kept for one in pair if one.final_queue}
    texts |= {one.cause_group for pair in kept for one in pair if one.cause_group}
    words = database.intern(texts)
    uses = Counter[int]()
    deltas = _remove(database, [change for change in changes if change[1].is_removed])
    for view, made in kept:
        was, destination = words[view.destination], words[made.destination]
        group_was = words[view.cause_group] if view.cause_group else 0
        group = words[made.cause_group] if made.cause_group else group_was
        final_was, final = (
            words[one.final_queue] if one.final_queue else 0 for one in (view, made)
        )
        state_was, state = STATE_NUMBERS[view.state], STATE_NUMBERS[made.state]
        deltas.append(TallyDelta(was, state_was, -1, group_was, final_was, view.is_final))
        deltas.append(TallyDelta(destination, state, 1, group, final, made.is_final))
        uses.update((destination, final, group))
        uses.subtract((was, final_was, group_was))
    database.query_each(
        "change_row",
        [
            {
                "id": view.id,
                "state": STATE_NUMBERS[made.state],
                "due_at_ms": made.due_at_ms,
                "destination": words[made.destination],
                "is_final": made.is_final,
                "reason": storable_or_none(made.reason),
                "redelivery_count": made.redelivery_count,
                "passes_gates": made.passes_gates,
                "gate": storable_or_none(made.gate),
                "final_queue": words[made.final_queue] if made.final_queue else 0,
                "recall": RECALL_NUMBERS[made.recall],
                "recall_operation": made.recall_operation,
                "cause": storable_or_none(made.cause),
                "cause_group": words[made.cause_group] if made.cause_group else None,
            }
            for view, made in kept
        ],
    )
    del uses[0]
    database.use_words(uses)
    count_rows(database, deltas)
    return len(counting), changes


def _remove(
    database: SqliteDatabase, changes: Sequence[tuple[RowView, Change]]
) -> list[TallyDelta]:
    """Remove rows, or set them aside; returns the change of tallies."""
    kept = [] if database.is_short else latest_undoable(changes)
    aside = {view.id for view, _ in kept}
    gone = delete_rows(database, runs_of(view.id for view, _ in changes if view.id not in aside))
    if kept:
        made = kept[0][1]
        values = {"operation": made.undone_by, "at_ms": made.event.at_ms, "ids": json_ids(aside)}
        database.query("set_rows_aside", values)
        gone += _take_out(database, runs_of(aside))[0]
        _trim_discarded(database)
    return gone


def _trim_discarded(database: SqliteDatabase) -> None:
    """Remove the oldest discarded messages beyond the limit."""
    count, size_bytes = database.query("discarded_size").fetchone()
    excess = size_bytes + count * UNDO_ROW_BYTES - UNDO_BYTES
    while excess > 0:
        ids = []
        for row_id, size_bytes in database.query("oldest_discarded", (LAST_ID, TRIMMED_AT_ONCE)):
            ids.append(row_id)
            excess -= size_bytes + UNDO_ROW_BYTES
            if excess <= 0:
                break
        _forget_ids(database, ids)


def forget_discarded(database: SqliteDatabase, before_ms: int, limit: int) -> int:
    """Remove at most `limit` messages that were discarded before a time; returns how many."""
    found = database.query("oldest_discarded", (before_ms, limit)).fetchall()
    _forget_ids(database, [row_id for row_id, _ in found])
    return len(found)


def _forget_ids(database: SqliteDatabase, ids: Sequence[int]) -> None:
    _unuse(database, Counter(database.query("forget_discarded", (json_ids(ids),)).fetchall()))
    database.query_each("delete_from_message", runs_of(ids))


def put_rows_back(database: SqliteDatabase, number: int, limit: int) -> list[RowView]:
    """Put back discarded rows of an operation, unchanged; return them, at most `limit`."""
    ids = [row_id for (row_id,) in database.query("discarded_ids", (number, limit))]
    database.query("put_rows_back", (json_ids(ids),))
    database.query("forget_discarded", (json_ids(ids),)).fetchall()
    rows = filtered(database, RowFilter(ids=tuple(ids)), len(ids), 0, LAST_ID)
    # The numbers of the columns are those of `view_row`.
    deltas = [TallyDelta(row[3], row[1], 1, row[16], row[18], bool(row[4])) for row in rows]
    count_rows(database, deltas)
    return [view_row(database, row) for row in rows]


def count_rows(database: SqliteDatabase, deltas: Iterable[TallyDelta]) -> None:
    """Add differences to the tallies."""
    totals = Counter[tuple[int, int, int]]()
    exhausted = Counter[tuple[int, int, bool]]()
    for delta in deltas:
        totals[delta.destination, delta.cause_group, delta.state] += delta.difference
        if delta.state == _EXHAUSTED:
            place = delta.final_queue, delta.destination, delta.is_final
            exhausted[place] += delta.difference
    for (destination, cause_group, state), count in totals.items():
        values = {"destination": destination, "cause_group": cause_group, "state": state}
        _add(database, "group_tally", values | {"delta": count})
    for (final_queue, destination, is_final), count in exhausted.items():
        values = {"final_queue": final_queue, "destination": destination, "is_final": is_final}
        _add(database, "exhausted_tally", values | {"delta": count})


def _add(database: SqliteDatabase, table: str, values: Mapping[str, int]) -> None:
    if values["delta"] > 0:
        database.query(f"add_{table}", values)
    elif values["delta"] < 0:
        database.query(f"subtract_{table}", values)
        database.query(f"drop_empty_{table}", values)
