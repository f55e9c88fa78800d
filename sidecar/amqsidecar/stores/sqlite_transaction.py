"""One write transaction of the SQLite store: cycles, single rows, and what belongs to none."""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

from amqsidecar.model.acts import Act
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import DueRow, TakenRow
from amqsidecar.stores.packing import (
    pack_deltas,
    pack_holds,
    pack_message,
    pack_runs,
    runs_of,
    storable,
    unpack_message,
)
from amqsidecar.stores.sqlite_database import SqliteDatabase
from amqsidecar.stores.sqlite_events import read_block, rewrite_block, write_block
from amqsidecar.stores.sqlite_rows import (
    STATE_NUMBERS,
    Unfinished,
    ids_of,
    json_ids,
    read_in_flight,
    read_unfinished,
    storable_or_none,
    view_row,
)

CLAIM_BYTES = 32 * 1024 * 1024  # More than this is not claimed at once, whatever the limit.

# Why: further than any store gets, and often enough below 2**53, which is exact everywhere.
_SKIPPED_IDS = 1 << 40
_WAITING, _HELD, _PARKED = range(3)


class SqliteTransaction:
    """Writes that become durable together; made by `SqliteStore.transaction`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    # Cycles.

    def finish_cycle(self, cycle: int) -> None:
        """The broker committed this cycle: what it took waits, what it sent is removed."""
        with self._database.mapped("be written"):
            record = self._unfinished(cycle)
            self._delete_rows(record.sent)
            self._count(record.taken_tally + record.sent_tally)
            self._close_cycle(record)

    def undo_cycle(self, cycle: int) -> None:
        """The broker did not commit this cycle: as if it had never been begun."""
        with self._database.mapped("be written"):
            record = self._unfinished(cycle)
            self._delete_rows(record.taken)
            if record.event_block is not None:
                events = read_block(self._database, record.event_block)
                rewrite_block(self._database, record.event_block, events, [])
            self._database.query("delete_unfinished")

    def settle_in_doubt(self, cycle: int) -> None:
        """Nobody knows: what the cycle took waits, what it sent waits again.

        The cycle number counts as used. Events that tell of the sent rows are thrown away.
        """
        with self._database.mapped("be written"):
            record = self._unfinished(cycle)
            if record.event_block is not None:
                sent = ids_of(record.sent)
                events = read_block(self._database, record.event_block)
                left = [event for event in events if event.id not in sent]
                if len(left) < len(events):
                    rewrite_block(self._database, record.event_block, events, left)
            self._count(record.taken_tally)
            self._close_cycle(record)

    def claim_due(self, now_ms: int, limit: int) -> list[DueRow]:
        """Return waiting rows that are due, by due time, then number; at most `limit`.

        Fewer when their messages are large (`CLAIM_BYTES`). Rows of an unfinished cycle are never
        returned.
        """
        database, claimed, size_bytes = self._database, list[DueRow](), 0
        with database.mapped("be read"):
            taken, sent = read_in_flight(database)
            hidden = taken | sent
            with closing(database.query("claim_due", (now_ms, limit + len(hidden)))) as rows:
                for row in rows:
                    if row[0] in hidden:
                        continue
                    size_bytes += row[9]
                    if len(claimed) == limit or (claimed and size_bytes > CLAIM_BYTES):
                        break
                    claimed.append(
                        DueRow(
                            id=row[0],
                            due_at_ms=row[1],
                            destination=database.word(row[2]),
                            is_final=bool(row[3]),
                            redelivery_id=row[4],
                            redelivery_count=row[5],
                            delay_ms=row[6],
                            expiration_ms=row[7],
                            encoding=database.word(row[8]),
                            message=unpack_message(row[10], row[9]),
                        )
                    )
        return claimed

    def record_cycle(
        self,
        cycle: int,
        taken: Sequence[TakenRow],
        sent: Sequence[DueRow],
        events: Sequence[AnyEvent],
        holds: Mapping[str, int] | None = None,
    ) -> None:
        """Begin a cycle: its takes, sends and events count when it is finished.

        Args:
            cycle: the last finished cycle plus one.
            taken: new rows.
            sent: rows out of `claim_due`.
            events: of this cycle; thrown away if it is undone.
            holds: how many dead letters of a source it takes out of the backlog.
        """
        database = self._database
        with database.mapped("be written"):
            finished = self._finished_cycle()
            database.expect(
                read_unfinished(database) is None and cycle == finished + 1,
                f"cycle {cycle} was begun, but {finished} is the last finished one",
            )
            words = self._intern(taken, sent)
            self._add_rows(taken, words)
            taken_tally = Counter((words[row.destination], row.state) for row in taken)
            sent_tally = Counter(words[row.destination] for row in sent)
            database.query(
                "add_unfinished",
                (
                    cycle,
                    len(taken),
                    len(sent),
                    pack_runs(runs_of(row.id for row in taken)),
                    pack_runs(runs_of(row.id for row in sent)),
                    pack_deltas(
                        (destination, STATE_NUMBERS[state], count)
                        for (destination, state), count in taken_tally.items()
                    ),
                    pack_deltas((number, _WAITING, -count) for number, count in sent_tally.items()),
                    pack_holds(dict(holds or {})),
                    write_block(database, events),
                ),
            )

    def set_cycle(self, cycle: int) -> None:
        """Continue after this cycle number; only when no cycle is unfinished."""
        with self._database.mapped("be written"):
            self._database.expect(
                read_unfinished(self._database) is None,
                "the cycle number can't be set while a cycle is unfinished",
            )
            self._database.query("set_finished_cycle", (cycle,))

    # Single rows.

    def postpone(self, ids: Sequence[int], due_at_ms: int, reason: str) -> None:
        """Give rows a later due time because their destination can't take them now."""
        with self._database.mapped("be written"):
            self._expect_at_rest(ids)
            values = {"ids": json_ids(ids), "due_at_ms": due_at_ms, "reason": storable(reason)}
            self._database.query("postpone_rows", values)

    def park(self, ids: Sequence[int], reason: str) -> None:
        """Keep rows for a person."""
        with self._database.mapped("be written"):
            self._expect_at_rest(ids)
            values = {"ids": json_ids(ids), "reason": storable(reason)}
            for destination, state, count in self._tally_of(ids):
                self._count([(destination, state, -count), (destination, _PARKED, count)])
            self._database.query("park_rows", values)

    def remove(self, ids: Sequence[int]) -> None:
        """Remove rows that the broker proved to have been sent before."""
        with self._database.mapped("be written"):
            self._expect_at_rest(ids)
            self._count(
                [(destination, state, -count) for destination, state, count in self._tally_of(ids)]
            )
            self._delete_rows(runs_of(set(ids)))

    def change_rows(self, rows: Sequence[tuple[Any, ...]], change: Act) -> tuple[int, int]:
        """Apply an operator's action to listed rows with their events; in-flight rows are left.

        Args:
            rows: rows of a `list_` query.
            change: what becomes of a row; None = it is left as it is.

        Returns:
            How many of the rows count already, and how many were changed.
        """
        database = self._database
        taken, sent = read_in_flight(database)
        counting = [row for row in rows if row[0] not in taken]
        views = [view_row(database, row) for row in counting if row[0] not in sent]
        changes = [(view, made) for view in views if (made := change(view)) is not None]
        words = database.intern({made.destination for _, made in changes})
        deltas = Counter[tuple[int, int]]()
        values = []
        for view, made in changes:
            destination, state = words[made.destination], STATE_NUMBERS[made.state]
            deltas[database.find_word(view.destination), STATE_NUMBERS[view.state]] -= 1
            deltas[destination, state] += 1
            values.append(
                {
                    "id": view.id,
                    "state": state,
                    "due_at_ms": made.due_at_ms,
                    "destination": destination,
                    "is_final": made.is_final,
                    "reason": made.reason,
                    "redelivery_count": made.redelivery_count,
                }
            )
        database.query_each("change_row", values)
        self._count([(*key, delta) for key, delta in deltas.items()])
        uses = Counter[int]()
        for (destination, _), delta in deltas.items():
            uses[destination] += delta
        database.use_words(uses)
        write_block(database, [made.event for _, made in changes])
        return len(counting), len(changes)

    # What belongs to no row.

    def record(self, events: Sequence[AnyEvent]) -> None:
        """Write events that belong to no cycle; they count at once."""
        with self._database.mapped("be written"):
            write_block(self._database, events)

    def set_token_created(self) -> None:
        """The first token is in the broker."""
        with self._database.mapped("be written"):
            self._database.query("set_token_created")

    def renew_uid(self) -> str:
        """Take and return another uid: the broker knows of a later state of this store."""
        uid = secrets.token_hex(4)
        with self._database.mapped("be written"):
            self._database.query("set_uid", (uid,))
            self._database.query("end_stream")
        return uid

    def skip_ids(self) -> None:
        """Go on with row numbers that no state of this store can have used."""
        far = _SKIPPED_IDS + secrets.randbelow(_SKIPPED_IDS)
        with self._database.mapped("be written"):
            self._database.query("reserve_ids", {"at_least": 1, "count": far}).fetchall()

    def holds(self) -> dict[str, int]:
        """Return for each source ever seen how many more of its dead letters are backlog.

        What the unfinished cycle takes counts as taken.
        """
        with self._database.mapped("be read"):
            record = read_unfinished(self._database)
            taken = record.holds if record is not None else {}
            return {
                source: max(0, remaining - taken.get(source, 0))
                for source, remaining in self._database.query("read_holds")
            }

    def set_hold(self, source: str, remaining: int) -> None:
        """Remember that so many more dead letters of a source are backlog; 0 = none, but seen."""
        with self._database.mapped("be written"):
            self._database.query("set_hold", (source, remaining))

    # Parts.

    def _finished_cycle(self) -> int:
        return int(self._database.query("read_meta").fetchone()[1])

    def _unfinished(self, cycle: int) -> Unfinished:
        record = read_unfinished(self._database)
        if record is None or record.cycle != cycle:
            found = "none" if record is None else str(record.cycle)
            raise AssertionError(
                f"cycle {cycle} was to be ended, but the unfinished one is {found}"
            )
        return record

    def _close_cycle(self, record: Unfinished) -> None:
        self._database.query_each("count_down_hold", record.holds.items())
        self._database.query("delete_unfinished")
        self._database.query("set_finished_cycle", (record.cycle,))

    def _expect_at_rest(self, ids: Sequence[int]) -> None:
        taken, sent = read_in_flight(self._database)
        self._database.expect(
            (taken | sent).isdisjoint(ids), "rows of an unfinished cycle can't be changed"
        )

    def _intern(self, taken: Sequence[TakenRow], sent: Sequence[DueRow]) -> Mapping[str, int]:
        texts = {row.destination for row in taken}
        texts.update(row.source for row in taken)
        texts.update(row.rule for row in taken)
        texts.update(row.encoding for row in taken)
        texts.update(row.cause_group for row in taken if row.cause_group)
        texts.update(row.destination for row in sent)
        return self._database.intern(texts)

    def _add_rows(self, taken: Sequence[TakenRow], words: Mapping[str, int]) -> None:
        self._database.query_each(
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
                    words[row.cause_group] if row.cause_group else None,
                )
                for row in taken
            ],
        )
        self._database.query_each(
            "add_message", [(row.id, pack_message(row.message)) for row in taken]
        )
        texts = (
            (row.destination, row.source, row.rule, row.encoding, row.cause_group) for row in taken
        )
        uses = Counter(chain.from_iterable(texts))
        self._database.use_words({words[text]: count for text, count in uses.items() if text})
        if taken:
            above = max(row.id for row in taken) + 1
            self._database.query("reserve_ids", {"at_least": above, "count": 0}).fetchall()

    def _delete_rows(self, runs: Sequence[tuple[int, int]]) -> None:
        deleted = chain.from_iterable(self._database.query("delete_rows", run) for run in runs)
        uses = Counter[int | None](chain.from_iterable(deleted))
        del uses[None]
        self._database.use_words(
            {number: -count for number, count in uses.items() if number is not None}
        )
        self._database.query_each("delete_messages", runs)

    def _tally_of(self, ids: Sequence[int]) -> list[tuple[int, int, int]]:
        return self._database.query("tally_of_ids", {"ids": json_ids(ids)}).fetchall()

    def _count(self, deltas: Iterable[tuple[int, int, int]]) -> None:
        totals = Counter[tuple[int, int]]()
        for destination, state, delta in deltas:
            totals[destination, state] += delta
        for (destination, state), delta in totals.items():
            values = {"destination": destination, "state": state, "delta": delta}
            if delta > 0:
                self._database.query("add_tally", values)
            elif delta < 0:
                self._database.query("subtract_tally", values)
                self._database.query("drop_empty_tally", (destination, state))
