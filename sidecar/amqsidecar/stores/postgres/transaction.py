"""The writes of a transaction of the PostgreSQL store.

Rules: rows don't know cycles. The unfinished cycle of an instance is one record that names the
rows it took and sends, its events and its changes of counts; so a few statements on the server
finish, undo or settle a cycle.

No two transactions can wait for each other: each locks its own instance first, and its counts
belong to that instance. Rows at rest are locked only to claim or change them, without waiting; no
transaction holds a lock on a row of another one's cycle. A lock on the holds comes last, or first
of all in a cycle that took from a backlog.
"""

import secrets
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from amqsidecar.model.event import AnyEvent
from amqsidecar.model.operation import UNDO_BYTES, UNDO_ROW_BYTES
from amqsidecar.model.row_changes import Change
from amqsidecar.model.schedule import DueRow, GroupPlace, RowState, RowView, TakenRow
from amqsidecar.model.signal import Signal
from amqsidecar.stores.postgres.counts import ROOM, CountChanges
from amqsidecar.stores.postgres.database import PostgresDatabase, pg_text
from amqsidecar.stores.postgres.events import read_block, rewrite_block, write_block
from amqsidecar.stores.postgres.rows import (
    ROW_TYPES,
    copied_rows,
    group_name,
    pg_text_or_none,
    tally_name,
    view_row,
)
from amqsidecar.stores.rows import RECALL_NUMBERS, STATE_NUMBERS, latest_undoable

CLAIM_BYTES = 32 * 1024 * 1024  # More than this is not claimed at once, whatever the limit.

# Why: further than any store gets, and often enough below 2**53, which is exact everywhere.
_SKIPPED_IDS = 1 << 40
_CLAIM_ATTEMPTS = 4
_WAITING = STATE_NUMBERS[RowState.WAITING]
_EXHAUSTED = STATE_NUMBERS[RowState.EXHAUSTED]


class _Unfinished(NamedTuple):
    cycle: int
    event_block: int | None
    took_holds: bool
    has_counts: bool
    has_final: bool
    has_renamed: bool


class _Locked(NamedTuple):
    """The part of a locked row that is in the tallies.

    Attributes:
        queue: where it goes, if it is final.
        state: its number.
    """

    cause_group: str | None
    destination: str
    is_final: bool
    queue: str
    state: int = _WAITING


def _tally_of(rows: Sequence[TakenRow]) -> Counter[tuple[str, int]]:
    return Counter((tally_name(row.destination), STATE_NUMBERS[row.state]) for row in rows)


def _count_taken(counts: CountChanges, rows: Sequence[TakenRow]) -> None:
    for row in rows:
        counts.add_rows(row.destination, STATE_NUMBERS[row.state], row.cause_group, 1)
        if row.state is RowState.EXHAUSTED:
            counts.add_exhausted(row.destination, row.decided_queue or "", row.is_final, 1)


class PostgresTransaction:
    """Writes of one instance that become durable together; made by `PostgresStore.transaction`."""

    def __init__(
        self,
        database: PostgresDatabase,
        instance: int,
        holder: str | None,
        *,
        keeps_discarded: bool,
    ) -> None:
        """Lock the instance and read its cycle.

        Args:
            database: in a transaction.
            instance: number of the instance; 0 = none.
            holder: holder of the lease on the instance.
            keeps_discarded: there is room for discarded messages.

        Raises:
            LookupError: another process is this instance now.
        """
        self._database = database
        self._instance = instance
        self._keeps_discarded = keeps_discarded
        locked, unfinished = database.query_all(
            ("lock_instance", {"instance": instance, "holder": holder}),
            ("read_unfinished", {"instance": instance}),
        )
        if not locked:
            raise LookupError(instance)
        self._finished_cycle: int = locked[0][0]
        self._unfinished = _Unfinished(*unfinished[0]) if unfinished else None
        self._new_events = 0
        self._counts = CountChanges()
        self._locked = dict[int, _Locked]()
        self._has_holds_lock = False

    def close(self) -> None:
        """Write the state of the instance; with the commit."""
        counts = self._counts.packed()
        if counts is not None:
            self._queue("add_counts_at_once", counts=counts, **ROOM)
        self._database.queue(
            "write_instance",
            instance=self._instance,
            finished_cycle=self._finished_cycle,
            events=self._new_events,
        )

    # Cycles.

    def finish_cycle(self, cycle: int) -> None:
        unfinished = self._expect_unfinished(cycle)
        self._queue("delete_sent_rows")
        self._queue("delete_sent_messages")
        if unfinished.has_final:
            self._queue("exhaust_final_rows")
            self._queue("delete_final_messages")
        if unfinished.has_renamed:
            self._queue("rename_in_redelivery")
            self._queue("rename_in_message")
        self._queue("count_cycle")
        if unfinished.has_counts:
            self._queue("add_counts_of_cycle", **ROOM)
        self._close_cycle(cycle)

    def undo_cycle(self, cycle: int) -> None:
        block = self._expect_unfinished(cycle).event_block
        self._queue("delete_taken_rows")
        self._queue("delete_taken_messages")
        if block is not None:
            events = read_block(self._database, block)
            self._new_events -= rewrite_block(self._database, block, events, [])
        self._queue("delete_unfinished")
        self._unfinished = None

    def settle_in_doubt(self, cycle: int) -> None:
        """The result is unknown: taken messages wait, sent messages wait again.

        The cycle number counts as used. Events about the sent rows are discarded.
        """
        block = self._expect_unfinished(cycle).event_block
        ((taken_ids, sent_ids),) = self._database.rows("ids_of", instance=self._instance)
        self._queue("count_rows", ids=taken_ids, state=None, sign=1)
        self._queue("count_groups", ids=taken_ids, state=None, sign=1)
        self._queue("count_exhausted", ids=taken_ids)
        if block is not None:
            sent = set(sent_ids)
            events = read_block(self._database, block)
            left = [event for event in events if event.id not in sent]
            if len(left) < len(events):
                self._new_events -= rewrite_block(self._database, block, events, left)
            self._counts.add_events(left)
        self._close_cycle(cycle)

    def claim_due(self, now_ms: int, limit: int) -> list[DueRow]:
        """Return waiting rows that are due, by due time, then number; at most `limit`.

        Fewer when their messages are large (`CLAIM_BYTES`). They stay locked until the
        transaction ends, and never rows of an unfinished cycle of any instance:

        - A cycle that names a row was recorded by a transaction that had the row locked, and both
          ended at once. So when we get the lock, its former holder has committed.
        - But the locking statement uses the snapshot from when it began: it may not see that
          record. Therefore another statement reads the records again: it sees everything committed
          before it began (READ COMMITTED), so before we had the locks.
        - A row that turns out to be in flight is dropped, and its lock with it, by going back to a
          savepoint: its owner must be able to finish its cycle while we go on with ours.
        """
        database = self._database
        for _ in range(_CLAIM_ATTEMPTS):
            database.queue("savepoint")
            rows = database.rows("claim_due", now_ms=now_ms, limit=limit)
            ids = [row[0] for row in rows]
            count = within(CLAIM_BYTES, [row[9] for row in rows])
            in_flight, found = database.query_all(
                ("in_flight_of", {"ids": ids}), ("read_messages", {"ids": ids[:count]})
            )
            if not in_flight:
                break
            database.queue("back_to_savepoint")
        else:
            return []
        messages: dict[int, bytes] = dict(found)
        self._locked.update(
            (row[0], _Locked(row[10], row[2], row[3], row[12] or row[2])) for row in rows
        )
        claimed = [
            DueRow(
                id=row[0],
                due_at_ms=row[1],
                destination=row[12] or row[2] if row[3] else row[2],
                is_final=row[3],
                redelivery_id=row[4],
                redelivery_count=row[5],
                delay_ms=row[6],
                expiration_ms=row[7],
                encoding=row[8],
                message=messages[row[0]],
                passes_gates=row[11],
            )
            for row in rows[:count]
        ]
        # Why: a row that changed meanwhile comes in its old place.
        claimed.sort(key=lambda row: (row.due_at_ms, row.id))
        return claimed

    def group_places(self, ids: Sequence[int]) -> dict[int, GroupPlace]:
        """Return nothing: a shared schedule does not keep the groups of rows."""
        return {}

    def record_cycle(
        self,
        cycle: int,
        taken: Sequence[TakenRow],
        sent: Sequence[DueRow | TakenRow],
        events: Sequence[AnyEvent],
        holds: Mapping[str, int] | None = None,
        replaced: Mapping[int, int] | None = None,
    ) -> None:
        database, finished = self._database, self._finished_cycle
        database.expect(
            self._unfinished is None and cycle == finished + 1,
            f"cycle {cycle} was begun, but {finished} is the last finished one",
        )
        replaced = replaced or {}
        claimed_ids = [row.id for row in sent if isinstance(row, DueRow)]
        never_written = [row.id for row in sent if not isinstance(row, DueRow)]
        self._lock_at_rest([*claimed_ids, *replaced.values()])
        self._add_rows(taken)
        tally = _tally_of(taken)
        leaving = [(row_id, self._locked[row_id]) for row_id in claimed_ids]
        tally.subtract((tally_name(row.destination), _WAITING) for _, row in leaving)
        counts = CountChanges()
        counts.add_events(events)
        _count_taken(counts, taken)
        final_ids = list[int]()
        for row_id, sent_row in leaving:
            counts.add_rows(sent_row.destination, _WAITING, sent_row.cause_group, -1)
            if sent_row.is_final:
                final_ids.append(row_id)
                tally[tally_name(sent_row.destination), _EXHAUSTED] += 1
                counts.add_rows(sent_row.destination, _EXHAUSTED, sent_row.cause_group, 1)
                counts.add_exhausted(sent_row.destination, sent_row.queue, True, 1)
        for row_id in set(replaced.values()) & self._locked.keys():
            known = self._locked[row_id]
            tally[tally_name(known.destination), _EXHAUSTED] -= 1
            counts.add_rows(known.destination, _EXHAUSTED, known.cause_group, -1)
            counts.add_exhausted(known.destination, known.queue, known.is_final, -1)
        removed_ids = sorted(set(claimed_ids) - set(final_ids)) if final_ids else claimed_ids
        packed = counts.packed()
        block = self._write_block(events)
        holds = {source: count for source, count in (holds or {}).items() if count}
        self._queue(
            "add_unfinished",
            cycle=cycle,
            taken=[row.id for row in taken],
            sent=[*removed_ids, *never_written, *replaced.values()],
            final=final_ids,
            renamed=list(replaced),
            renamed_to=list(replaced.values()),
            **_tally_values(tally, "tally_"),
            hold_sources=[pg_text(source) for source in holds],
            hold_counts=list(holds.values()),
            event_block=block,
            counts=packed,
        )
        self._unfinished = _Unfinished(
            cycle, block, bool(holds), packed is not None, bool(final_ids), bool(replaced)
        )

    def set_cycle(self, cycle: int) -> None:
        self._database.expect(
            self._unfinished is None, "the cycle number can't be set while a cycle is unfinished"
        )
        self._finished_cycle = cycle

    # Single rows.

    def postpone(
        self, ids: Sequence[int], due_at_ms: int, reason: str, gate: str | None = None
    ) -> None:
        self._lock_at_rest(ids)
        self._queue(
            "postpone_rows",
            ids=list(ids),
            due_at_ms=due_at_ms,
            reason=pg_text(reason),
            gate=pg_text_or_none(gate),
        )

    def park(self, ids: Sequence[int], reason: str) -> None:
        self._lock_at_rest(ids)
        self._queue("count_rows", ids=list(ids), state=None, sign=-1)
        self._queue("count_rows", ids=list(ids), state=STATE_NUMBERS[RowState.PARKED], sign=1)
        self._queue("count_groups", ids=list(ids), state=None, sign=-1)
        self._queue("count_groups", ids=list(ids), state=STATE_NUMBERS[RowState.PARKED], sign=1)
        self._queue("park_rows", ids=list(ids), reason=pg_text(reason))

    def remove(self, ids: Sequence[int]) -> None:
        self._lock_at_rest(ids)
        self._queue("count_rows", ids=list(ids), state=None, sign=-1)
        self._queue("count_groups", ids=list(ids), state=None, sign=-1)
        known = {row_id: row for row_id in ids if (row := self._locked.get(row_id)) is not None}
        final = []
        for row_id, row in known.items():
            if row.state == _EXHAUSTED:
                self._counts.add_exhausted(row.destination, row.queue, row.is_final, -1)
            elif row.is_final:
                final.append(row_id)
        if final:
            self._queue("exhaust_named_rows", ids=final)
            self._queue("count_rows", ids=final, state=_EXHAUSTED, sign=1)
            self._queue("count_groups", ids=final, state=None, sign=1)
            self._queue("count_exhausted", ids=final)
        self._queue("delete_named_rows", ids=sorted(set(ids) - set(final)))
        self._queue("delete_named_messages", ids=list(ids))

    def change(self, changes: Sequence[tuple[RowView, Change]]) -> None:
        """Write an operator's changes of free rows, with their events."""
        tally, counts = Counter[tuple[str, int]](), self._counts
        kept = [(view, made) for view, made in changes if not made.is_removed]
        for view, _ in changes:
            tally[tally_name(view.destination), STATE_NUMBERS[view.state]] -= 1
            counts.add_rows(view.destination, STATE_NUMBERS[view.state], view.cause_group, -1)
            if view.state is RowState.EXHAUSTED:
                counts.add_exhausted(view.destination, view.final_queue or "", view.is_final, -1)
        for view, made in kept:
            tally[tally_name(made.destination), STATE_NUMBERS[made.state]] += 1
            group = made.cause_group or view.cause_group
            counts.add_rows(made.destination, STATE_NUMBERS[made.state], group, 1)
            if made.state is RowState.EXHAUSTED:
                counts.add_exhausted(made.destination, made.final_queue or "", made.is_final, 1)
        if kept:
            self._queue(
                "change_rows",
                ids=[view.id for view, _ in kept],
                states=[STATE_NUMBERS[made.state] for _, made in kept],
                dues=[made.due_at_ms for _, made in kept],
                destinations=[pg_text(made.destination) for _, made in kept],
                finals=[made.is_final for _, made in kept],
                counts=[made.redelivery_count for _, made in kept],
                reasons=[pg_text_or_none(made.reason) for _, made in kept],
                passes=[made.passes_gates for _, made in kept],
                queues=[pg_text_or_none(made.final_queue) for _, made in kept],
                recalls=[RECALL_NUMBERS[made.recall] for _, made in kept],
                operations=[made.recall_operation for _, made in kept],
                causes=[pg_text_or_none(made.cause) for _, made in kept],
                groups=[group_name(made.cause_group) or None for _, made in kept],
                gates=[pg_text_or_none(made.gate) for _, made in kept],
            )
        if len(kept) < len(changes):
            self._remove([change for change in changes if change[1].is_removed])
        self._queue("add_tallies", **_tally_values(tally))
        self.record([made.event for _, made in changes])

    def _remove(self, changes: Sequence[tuple[RowView, Change]]) -> None:
        """Remove rows, or set them aside."""
        kept = latest_undoable(changes) if self._keeps_discarded else []
        aside = {view.id for view, _ in kept}
        removed = [view.id for view, _ in changes if view.id not in aside]
        self._queue("delete_named_rows", ids=removed)
        self._queue("delete_named_messages", ids=removed)
        if not kept:
            return
        made = kept[0][1]
        values = {"operation": made.undone_by, "at_ms": made.event.at_ms}
        self._queue("set_rows_aside", ids=sorted(aside), **values)
        ((size_bytes,),) = self._database.rows("discarded_size", row_bytes=UNDO_ROW_BYTES)
        if size_bytes > UNDO_BYTES:
            self._queue("trim_discarded", row_bytes=UNDO_ROW_BYTES, most_bytes=UNDO_BYTES)

    def put_back(self, number: int, limit: int) -> list[RowView]:
        """Put back discarded rows of an operation, unchanged; return them."""
        rows = self._database.rows("put_rows_back", number=number, limit=limit)
        views = [view_row(self._database, row) for row in sorted(rows, key=lambda row: row[0])]
        tally = Counter[tuple[str, int]]()
        for view in views:
            state = STATE_NUMBERS[view.state]
            tally[tally_name(view.destination), state] += 1
            self._counts.add_rows(view.destination, state, view.cause_group, 1)
            if view.state is RowState.EXHAUSTED:
                queue = view.final_queue or ""
                self._counts.add_exhausted(view.destination, queue, view.is_final, 1)
        self._queue("add_tallies", **_tally_values(tally))
        return views

    # Records that belong to no row.

    def record(self, events: Sequence[AnyEvent]) -> None:
        self._write_block(events)
        self._counts.add_events(events)

    def add_lying(self, rows: Sequence[TakenRow], events: Sequence[AnyEvent]) -> None:
        """See `Store.adding_lying`."""
        self._add_rows(rows)
        _count_taken(self._counts, rows)
        self._queue("add_tallies", **_tally_values(_tally_of(rows)))
        self.record(events)

    def _add_rows(self, rows: Sequence[TakenRow]) -> None:
        if rows:
            self._database.copy("add_rows", ROW_TYPES, copied_rows(rows))
            kept = [(row.id, row.message) for row in rows if not row.is_in_final_queue]
            self._database.copy("add_messages", ("int8", "bytea"), kept)

    def forget_events(self, count: int) -> None:
        """Maximum events kept."""
        self._new_events -= count

    def set_token_created(self) -> None:
        self._queue("set_token_created", value=True)

    def renew_uid(self) -> str:
        uid = secrets.token_hex(4)
        self._queue("set_uid", value=uid)
        self._queue("forget_lives")
        self._queue("forget_other_transactions")
        self._queue("set_planned", stream="", number=0)
        return uid

    def skip_ids(self) -> None:
        self._database.rows("lock", lock=self._database.advisory_lock("row numbers"))
        self._database.rows("skip_ids", far=_SKIPPED_IDS + secrets.randbelow(_SKIPPED_IDS))

    def holds(self) -> dict[str, int]:
        """See `StoreTransaction`; each instance continues from the numbers of the one before."""
        self._lock_holds()
        return dict(self._database.rows("read_open_holds"))

    def set_hold(self, source: str, remaining: int) -> None:
        self._lock_holds()
        self._queue("set_hold", source=pg_text(source), remaining=remaining)

    def add_signal(self, signal: Signal) -> None:
        values = msgspec.structs.asdict(signal) | {"author": pg_text(signal.author)}
        self._database.queue("add_signal", **values)

    # Parts.

    def _queue(self, name: str, **values: object) -> None:
        self._database.queue(name, instance=self._instance, **values)

    def _expect_unfinished(self, cycle: int) -> _Unfinished:
        if self._unfinished is None or self._unfinished.cycle != cycle:
            found = "none" if self._unfinished is None else str(self._unfinished.cycle)
            raise AssertionError(
                f"cycle {cycle} was to be ended, but the unfinished one is {found}"
            )
        return self._unfinished

    def _close_cycle(self, cycle: int) -> None:
        if self._unfinished is not None and self._unfinished.took_holds:
            self._lock_holds()
            self._queue("count_holds")
        self._queue("delete_unfinished")
        self._unfinished = None
        self._finished_cycle = cycle

    def _lock_holds(self) -> None:
        if not self._has_holds_lock:
            self._database.rows("lock", lock=self._database.advisory_lock("holds"))
            self._has_holds_lock = True

    def _lock_at_rest(self, ids: Sequence[int]) -> None:
        """Lock rows unless they are; none of them may be of an unfinished cycle."""
        if self._locked.keys() >= set(ids):
            return
        database = self._database
        locked, in_flight = database.query_all(
            ("lock_rows", {"ids": list(ids)}), ("in_flight_of", {"ids": list(ids)})
        )
        database.expect(not in_flight, "rows of an unfinished cycle can't be changed")
        self._locked.update((row_id, _Locked(*row)) for row_id, *row in locked)

    def _write_block(self, events: Sequence[AnyEvent]) -> int | None:
        self._new_events += len(events)
        return write_block(self._database, events)


def within(most: int, sizes: Iterable[int]) -> int:
    """Return how many of the first sizes fit into this many bytes; at least one."""
    sums = list(accumulate(sizes))
    return max(1, bisect_right(sums, most))


def _tally_values(tally: Mapping[tuple[str, int], int], prefix: str = "") -> dict[str, object]:
    """Return differences as the queries take them; in one order, to avoid deadlocks."""
    deltas = sorted((*key, count) for key, count in tally.items() if count)
    return {
        f"{prefix}destinations": [delta[0] for delta in deltas],
        f"{prefix}states": [delta[1] for delta in deltas],
        f"{prefix}counts": [delta[2] for delta in deltas],
    }
