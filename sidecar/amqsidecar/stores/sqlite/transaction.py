"""One write transaction of the SQLite store: cycles, single rows, and other records."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import msgspec

from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import failures_of
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import (
    GROUP_PLACES_MAX,
    DueRow,
    GroupPlace,
    RowState,
    RowView,
    TakenRow,
)
from amqsidecar.model.signal import Signal
from amqsidecar.stores.packing import (
    TallyDelta,
    pack_deltas,
    pack_failures,
    pack_holds,
    pack_runs,
    runs_of,
    storable,
    unpack_failures,
    unpack_message,
)
from amqsidecar.stores.rows import STATE_NUMBERS, STATES
from amqsidecar.stores.sqlite.changes import (
    Changed,
    add_rows,
    change_rows,
    count_rows,
    delete_rows,
    exhaust_rows,
    put_rows_back,
)
from amqsidecar.stores.sqlite.counts import add_failures, record_events
from amqsidecar.stores.sqlite.database import LARGE_BYTES, SqliteDatabase
from amqsidecar.stores.sqlite.events import read_block, rewrite_block, write_block
from amqsidecar.stores.sqlite.rows import (
    Unfinished,
    ids_of,
    json_ids,
    read_in_flight,
    read_unfinished,
    storable_or_none,
)

CLAIM_BYTES = 32 * 1024 * 1024  # More than this is not claimed at once, whatever the limit.

# Why: further than any store gets, and often enough below 2**53, which is exact everywhere.
_SKIPPED_IDS = 1 << 40
_PARKED = STATE_NUMBERS[RowState.PARKED]


class SqliteTransaction:
    """Writes that become durable together; made by `SqliteStore.transaction`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    # Cycles.

    def finish_cycle(self, cycle: int) -> None:
        with self._database.mapped("be written"):
            record = self._unfinished(cycle)
            gone = delete_rows(self._database, record.sent)
            exhausted = exhaust_rows(self._database, record.final)
            count_rows(self._database, record.taken_tally + gone + exhausted)
            if record.renamed:
                self._database.query_each("rename_in_redelivery", record.renamed)
                self._database.query_each("rename_in_message", record.renamed)
            add_failures(self._database, unpack_failures(record.failures))
            self._close_cycle(record)

    def undo_cycle(self, cycle: int) -> None:
        with self._database.mapped("be written"):
            record = self._unfinished(cycle)
            delete_rows(self._database, record.taken)
            if record.event_block is not None:
                events = read_block(self._database, record.event_block)
                rewrite_block(self._database, record.event_block, events, [])
            self._database.query("delete_unfinished")

    def settle_in_doubt(self, cycle: int) -> None:
        """The result is unknown: taken messages wait, sent messages wait again.

        The cycle number counts as used. Events about the sent rows are discarded.
        """
        with self._database.mapped("be written"):
            record = self._unfinished(cycle)
            if record.event_block is not None:
                sent = ids_of(record.sent) | ids_of(record.final)
                events = read_block(self._database, record.event_block)
                left = [event for event in events if event.id not in sent]
                if len(left) < len(events):
                    rewrite_block(self._database, record.event_block, events, left)
                add_failures(self._database, failures_of(left))
            count_rows(self._database, record.taken_tally)
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
            values = (LARGE_BYTES, now_ms, limit + len(hidden))
            with closing(database.query("claim_due", values)) as rows:
                for row in rows:
                    if row[0] in hidden:
                        continue
                    size_bytes += row[9]
                    if len(claimed) == limit or (claimed and size_bytes > CLAIM_BYTES):
                        break
                    body = row[10]
                    if body is None:
                        body = database.large_message(row[0])
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
                            message=unpack_message(body, row[9]),
                            passes_gates=bool(row[11]),
                            message_group=row[12],
                        )
                    )
        return claimed

    def group_places(self, ids: Sequence[int]) -> dict[int, GroupPlace]:
        with self._database.mapped("be read"):
            values = {"ids": json_ids(ids), "most": GROUP_PLACES_MAX}
            return {
                row_id: GroupPlace(
                    before=before,
                    first_id=first_id,
                    first_state=STATES[state],
                    first_due_at_ms=due_at_ms,
                    first_awaits=event,
                )
                for row_id, before, first_id, state, due_at_ms, event in self._database.query(
                    "group_places", values
                )
            }

    def record_cycle(
        self,
        cycle: int,
        taken: Sequence[TakenRow],
        sent: Sequence[DueRow | TakenRow],
        events: Sequence[AnyEvent],
        holds: Mapping[str, int] | None = None,
        replaced: Mapping[int, int] | None = None,
    ) -> None:
        database, replaced = self._database, replaced or {}
        with database.mapped("be written"):
            finished = self._finished_cycle()
            database.expect(
                read_unfinished(database) is None and cycle == finished + 1,
                f"cycle {cycle} was begun, but {finished} is the last finished one",
            )
            taken_tally = add_rows(database, taken)
            database.query(
                "add_unfinished",
                (
                    cycle,
                    len(taken),
                    len(sent),
                    pack_runs(runs_of(row.id for row in taken)),
                    pack_runs(
                        runs_of(
                            chain((row.id for row in sent if not row.is_final), replaced.values())
                        )
                    ),
                    pack_deltas(taken_tally),
                    pack_holds(dict(holds or {})),
                    write_block(database, events),
                    pack_failures(failures_of(events)),
                    pack_runs(runs_of(row.id for row in sent if row.is_final)),
                    pack_runs(replaced.items()),
                ),
            )

    def set_cycle(self, cycle: int) -> None:
        with self._database.mapped("be written"):
            self._database.expect(
                read_unfinished(self._database) is None,
                "the cycle number can't be set while a cycle is unfinished",
            )
            self._database.queue("set_finished_cycle", value=cycle)

    # Single rows.

    def postpone(
        self, ids: Sequence[int], due_at_ms: int, reason: str, gate: str | None = None
    ) -> None:
        with self._database.mapped("be written"):
            self._expect_at_rest(ids)
            values = {
                "ids": json_ids(ids),
                "due_at_ms": due_at_ms,
                "reason": storable(reason),
                "gate": storable_or_none(gate),
            }
            self._database.query("postpone_rows", values)

    def park(self, ids: Sequence[int], reason: str) -> None:
        with self._database.mapped("be written"):
            self._expect_at_rest(ids)
            values = {"ids": json_ids(ids), "reason": storable(reason)}
            parked = [
                (
                    TallyDelta(destination, state, -count, group),
                    TallyDelta(destination, _PARKED, count, group),
                )
                for destination, group, state, count in self._database.query("tally_of_ids", values)
            ]
            count_rows(self._database, chain.from_iterable(parked))
            self._database.query("park_rows", values)

    def remove(self, ids: Sequence[int]) -> None:
        database = self._database
        with database.mapped("be written"):
            self._expect_at_rest(ids)
            final = {row[0] for row in database.query("finals_of_ids", {"ids": json_ids(ids)})}
            gone = delete_rows(database, runs_of(set(ids) - final))
            count_rows(database, gone + exhaust_rows(database, runs_of(final)))

    def change_rows(self, rows: Sequence[tuple[Any, ...]], change: RowChange) -> Changed:
        """Apply an operator's action to listed rows with their events; see `sqlite_changes`."""
        matched, changes = change_rows(self._database, rows, change)
        record_events(self._database, [made.event for _, made in changes])
        return matched, changes

    def put_back(self, number: int, limit: int) -> list[RowView]:
        return put_rows_back(self._database, number, limit)

    # Records that belong to no row.

    def record(self, events: Sequence[AnyEvent]) -> None:
        with self._database.mapped("be written"):
            record_events(self._database, events)

    def add_lying(self, rows: Sequence[TakenRow], events: Sequence[AnyEvent]) -> None:
        """See `Store.adding_lying`."""
        with self._database.mapped("be written"):
            count_rows(self._database, add_rows(self._database, rows))
            record_events(self._database, events)

    def set_token_created(self) -> None:
        with self._database.mapped("be written"):
            self._database.queue("set_token_created", value=1)

    def renew_uid(self) -> str:
        uid = secrets.token_hex(4)
        with self._database.mapped("be written"):
            self._database.queue("set_uid", value=uid)
            self._database.query("forget_lives")
            self._database.queue("set_planned", stream="", number=0)
        return uid

    def skip_ids(self) -> None:
        far = _SKIPPED_IDS + secrets.randbelow(_SKIPPED_IDS)
        with self._database.mapped("be written"):
            self._database.query("reserve_ids", {"at_least": 1, "count": far}).fetchall()

    def holds(self) -> dict[str, int]:
        with self._database.mapped("be read"):
            record = read_unfinished(self._database)
            taken = record.holds if record is not None else {}
            return {
                source: max(0, remaining - taken.get(source, 0))
                for source, remaining in self._database.query("read_holds")
            }

    def set_hold(self, source: str, remaining: int) -> None:
        with self._database.mapped("be written"):
            self._database.queue("set_hold", source=source, remaining=remaining)

    def add_signal(self, signal: Signal) -> None:
        with self._database.mapped("be written"):
            values = msgspec.structs.asdict(signal) | {"author": storable(signal.author)}
            self._database.queue("add_signal", **values)

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
        self._database.queue("set_finished_cycle", value=record.cycle)

    def _expect_at_rest(self, ids: Sequence[int]) -> None:
        taken, sent = read_in_flight(self._database)
        self._database.expect(
            (taken | sent).isdisjoint(ids), "rows of an unfinished cycle can't be changed"
        )
