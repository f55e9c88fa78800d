"""The schedule of several sidecars in one PostgreSQL database.

Each sidecar is one instance, by a lease (`lease.py`); rows belong to no instance, and any instance
sends due rows (`PostgresTransaction.claim_due`). Transactions are READ COMMITTED and short, except
in a cycle; only cycles that take from the same backlog wait for each other. Reads are single
statements, so each sees one snapshot.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.resources.abc import Traversable

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.journal import OutboxLag, Segment
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.provenance import pair_of
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import (
    InstanceView,
    Recall,
    RowFilter,
    RowView,
    StoreState,
    Tally,
    UnfinishedCycle,
)
from amqsidecar.store import LEASE_S, AddLying, ReportProgress, Room, unwatched
from amqsidecar.stores.outbox import CommonOutbox, oldest_at_ms
from amqsidecar.stores.packing import of_message, structs_of, unpack_events
from amqsidecar.stores.postgres.database import PostgresDatabase, PostgresRows, checked_dsn, pg_text
from amqsidecar.stores.postgres.events import event_key, forget_events, lock_journal
from amqsidecar.stores.postgres.free_rows import lock_free
from amqsidecar.stores.postgres.lease import Lease
from amqsidecar.stores.postgres.ledger import PostgresLooking
from amqsidecar.stores.postgres.operations import ATTEMPTS, PAUSE_S, PostgresOperations
from amqsidecar.stores.postgres.reserve import PostgresReserve
from amqsidecar.stores.postgres.rows import (
    conditions_of,
    count_tallied,
    filter_values,
    filtered,
    view_row,
)
from amqsidecar.stores.postgres.schema import MIGRATIONS, Schema, read_fence
from amqsidecar.stores.postgres.shared_notes import PostgresSharedNotes
from amqsidecar.stores.postgres.transaction import PostgresTransaction
from amqsidecar.stores.rows import INDEXED_CHARACTERS, LAST_ID, RECALL_NUMBERS, STATES

_BLOCKS_AT_ONCE = 20


class PostgresOutbox(CommonOutbox):
    """The `Outbox` of the store that inherits it: one stream for the whole schedule.

    Several instances write blocks of events at once, so a block may become visible after others
    with higher numbers. Therefore a segment is no range: it is planned by marking finished blocks
    that have no mark yet, and an instance in the middle of a cycle delays no other. An effect is
    never in an earlier segment than its cause: its block has a higher number, and was written when
    the block of the cause was finished.

    Locks: planning and retention take the lock on the journal; retention has its instance by then,
    and planning takes none.
    """

    _database: PostgresDatabase

    def _lock_journal(self) -> None:
        lock_journal(self._database)

    def _unplanned(self, limit: int) -> tuple[str, int, PostgresRows]:
        ((stream, last_number),) = self._database.rows("read_outbox")
        return stream, last_number, self._database.rows("unplanned_blocks", limit=limit)

    def _keep_segment(self, segment: Segment, blocks: Sequence[int]) -> None:
        values = {"stream": segment.stream, "number": segment.number}
        ((segment_id,),) = self._database.rows(
            "add_segment", **values, event_count=segment.event_count
        )
        self._database.queue("set_planned", **values)
        self._database.queue("mark_blocks", segment=segment_id, seqs=list(blocks))

    def _segment_blocks(self, segment: Segment) -> Iterator[tuple[int, bytes]]:
        values = {"stream": segment.stream, "number": segment.number}
        for (segment_id,) in self._database.rows("find_segment", **values):
            place = {"segment": segment_id, "limit": _BLOCKS_AT_ONCE, "after": 0}
            while blocks := self._database.rows("segment_blocks", **place):
                yield from ((packing, body) for _, packing, body in blocks)
                place["after"] = blocks[-1][0]

    def outbox_lag(self) -> OutboxLag:
        ((events, packing, body),) = self._database.rows("read_lag")
        at_ms = None if body is None else oldest_at_ms(unpack_events(packing, body))
        return OutboxLag(events=events, oldest_at_ms=at_ms)


SCHEMA = "amqsidecar"
LOCK_TIMEOUT_MS = 10_000
STATEMENT_TIMEOUT_S = 60.0
CHUNK_ROWS = 1_000  # Maximum rows that an operator's action locks at a time.

_SHORTEST_IDLE_S = 10.0  # A cycle asks the broker in the middle of its transaction.
_BLOCK_IDS = 16_384  # As the sequence steps.
_NOBODY = 0  # Instance number of a process that is no instance.


class PostgresStore(PostgresLooking, PostgresOperations, PostgresOutbox, PostgresSharedNotes):
    """A `Schedule` in one schema of one database, which several processes share.

    Args:
        dsn: a `postgresql:` URL as libpq takes it.
        clock: decides when to renew the lease.
        instance_name: which instance to be; None = any free instance, else a new one.
        read_only: never create and never write.
        lease_s: time without a heartbeat after which an instance is free for others.
        password: returns it at each connect; None = libpq's own ways.
        schema: where the tables are.
        busy_timeout_ms: how long a write waits for another process.
        statement_timeout_s: how long a statement may take.
        migrations: known to this program.
        reserve_bytes: size of the reserve in the database (`reserve.py`); 0 = none.
    """

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock,
        instance_name: str | None = None,
        read_only: bool = False,
        lease_s: float = LEASE_S,
        password: Callable[[], str | None] = lambda: None,
        schema: str = SCHEMA,
        busy_timeout_ms: int = LOCK_TIMEOUT_MS,
        statement_timeout_s: float = STATEMENT_TIMEOUT_S,
        migrations: Traversable = MIGRATIONS,
        reserve_bytes: int = 0,
    ) -> None:
        self._read_only = read_only
        self._database = PostgresDatabase(
            checked_dsn(dsn),
            schema=schema,
            password=password,
            read_only=read_only,
            lock_timeout_ms=busy_timeout_ms,
            statement_timeout_s=statement_timeout_s,
            # Why: a process that hangs in a transaction must not keep its instance for ever.
            idle_timeout_s=max(lease_s, _SHORTEST_IDLE_S),
        )
        self._schema = Schema(self._database, schema, migrations)
        self._reserve = PostgresReserve(self._database, reserve_bytes, clock)
        self._database.give_way = self._reserve.give_way
        self._lease = Lease(self._database, clock, instance_name, lease_s)
        self._is_for_service = False
        self._number = _NOBODY
        self._next_id = self._reserved_end = 0

    # Opening and closing.

    def open(self) -> StoreState:
        """Open, create missing parts, and return the state.

        Promise: safe to call again; while it is open the instance stays the same. If the process
        dies inside, the next call makes it whole.

        Raises:
            StoreUnavailable: it can't be opened, or the wanted instance is another process's.
            SchemaMismatch: this program is too old for it.
        """
        if self._database.is_open:
            return self.state()
        self.close()
        self._database.open()
        try:
            self._schema.prepare(read_only=self._read_only)
            if self._is_for_service:
                self._lease.acquire(self._schema)
                self._reserve.make()
            else:
                self._lease.find(read_only=self._read_only)
            return self._read_state()
        except BaseException:
            self._database.close()
            raise

    def state(self) -> StoreState:
        """Return the state now; renews the lease.

        Raises:
            StoreUnavailable: it can't be read, or another process took the instance over.
        """
        if self._lease.holder is not None:
            self._lease.renew()
        return self._read_state()

    def reopen(self) -> StoreState:
        self.close()
        return self.open()

    def close(self) -> None:
        """Close, and release this instance at once; safe to call twice."""
        if self._database.is_open:
            self._lease.release()
        self._database.close()
        # Why: a crashed server gives out numbers again that it had not written down.
        self._next_id = self._reserved_end = 0

    def lock_for_service(self) -> None:
        """Make this object the only holder of its instance at `open`, until `close`."""
        self._is_for_service = True

    @property
    def group_key(self) -> bytes:
        """Return that of the database."""
        return self._database.group_key

    @property
    def keeps_exhausted_rows(self) -> bool:
        """Return True."""
        return True

    def keep(self) -> None:
        self._lease.keep()

    def abandoned(self) -> list[str]:
        return [name for (name,) in self._database.rows("abandoned")]

    def instances(self) -> list[InstanceView]:
        return structs_of(InstanceView, self._database.rows("list_instances"))

    def set_manual(self, instance: str, patterns: Sequence[str]) -> None:
        """See `Store`."""
        self._database.change("set_manual", name=instance, patterns=list(patterns))

    def _read_state(self) -> StoreState:
        name = self._lease.name
        ((number, uid, finished_cycle, token_created, *begun, taken_until_ms),) = (
            self._database.rows("read_state", name=name)
        )
        cycle, taken_count, sent_count = begun
        self._number = number
        unfinished = None
        if cycle is not None:
            unfinished = UnfinishedCycle(
                cycle=cycle, taken_count=taken_count, sent_count=sent_count
            )
        return StoreState(
            instance=name,
            uid=uid,
            cycle=finished_cycle,
            unfinished=unfinished,
            token_created=token_created,
            taken_until_ms=taken_until_ms,
        )

    # Writing.

    @contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        """See `Store`.

        Raises:
            StoreUnavailable: it can't be written, or another process is this instance now.
        """
        with self._written_as(self._number) as transaction:
            yield transaction
        self._lease.renewed()

    @contextmanager
    def _written_as(self, instance: int) -> Iterator[PostgresTransaction]:
        is_nobody = instance == _NOBODY
        holder = None if is_nobody else self._lease.holder
        keeps = is_nobody and self._reserve.look().is_enough
        with self._database.transaction():
            try:
                transaction = PostgresTransaction(
                    self._database, instance, holder, keeps_discarded=keeps
                )
            except LookupError:
                fence = read_fence(self._database)
                raise fence.refusal(self._database.place) if fence else self._lease.lost() from None
            yield transaction
            transaction.close()

    def _written(self) -> AbstractContextManager[PostgresTransaction]:
        return self._written_as(_NOBODY)

    def allocate_ids(self, count: int) -> int:
        """Return the first of `count` consecutive row numbers that were never used before.

        Promise: no other call returns them, even after an undo or a crash of this process. A crash
        of the server may forget that a number was given out, but not that it was used: a row with
        it follows the step of the sequence in the same log. Numbers unused by then are forgotten
        with the connection.
        """
        if self._next_id + count > self._reserved_end:
            blocks = -(-count // _BLOCK_IDS)
            firsts = [row[0] for row in self._database.rows("take_ids", blocks=blocks)]
            while firsts[-1] - firsts[0] != (blocks - 1) * _BLOCK_IDS:  # others took some between
                firsts = [row[0] for row in self._database.rows("take_ids", blocks=blocks)]
            self._next_id = firsts[0]
            self._reserved_end = firsts[-1] + _BLOCK_IDS
        first = self._next_id
        self._next_id += count
        return first

    # Reading.

    def next_due_ms(self) -> int | None:
        """See `Rows`; rows of unfinished cycles don't count."""
        rows = self._database.rows("next_due")
        return rows[0][0] if rows else None

    def holds(self) -> dict[str, int]:
        return dict(self._database.rows("read_holds"))

    def tallies(self) -> list[Tally]:
        return [
            Tally(destination=destination, state=STATES[state], count=count)
            for destination, state, count in self._database.rows("read_tallies")
        ]

    def list_rows(self, row_filter: RowFilter, limit: int, after_id: int = 0) -> list[RowView]:
        return filtered(self._database, row_filter, limit, after_id, LAST_ID)

    def count_rows(self, row_filter: RowFilter) -> int:
        """Return the number of matching rows; destination, state and group need no scan."""
        if row_filter == RowFilter(
            destination=row_filter.destination,
            state=row_filter.state,
            cause_group=row_filter.cause_group,
        ):
            return count_tallied(self._database, row_filter)
        name, values = filter_values(row_filter)
        return int(self._database.rows(f"count_{name}", **values)[0][0])

    def message(self, row_id: int) -> bytes | None:
        rows = self._database.rows("read_message", id=row_id)
        return rows[0][0] if rows else None

    def history(self, redelivery_id: str) -> list[AnyEvent]:
        told = pg_text(redelivery_id)
        blocks = self._database.rows("blocks_of_message", key=event_key(redelivery_id))
        return of_message(blocks, lambda one: pg_text(one) == told)

    def size_bytes(self) -> int:
        """Return the bytes of the tables with their indexes and TOAST."""
        return int(self._database.rows("size_bytes")[0][0])

    def lying(self, redelivery_ids: Collection[str]) -> list[RowView]:
        names = [pg_text(one) for one in redelivery_ids]
        keys = [name[:INDEXED_CHARACTERS] for name in names]
        rows = self._database.rows("lying_rows", keys=keys, redelivery_ids=names)
        return [view_row(self._database, row) for row in rows]

    @contextmanager
    def adding_lying(self) -> Iterator[AddLying]:
        with self._written() as transaction:
            transaction.holds()
            yield transaction.add_lying

    def known_lives(self, lives: Collection[str]) -> dict[str, bool]:
        """See `Store`; waits for the transactions of others that ask for the same or a twin."""
        pairs = sorted(set(map(pair_of, lives)))
        _, known, _ = self._database.query_all(
            ("claim_pairs", {"pairs": pairs}),
            ("known_keys", {"keys": list(lives), "instance": self._number}),
            # Others still wait for the end of the transaction.
            ("delete_keys", {"keys": pairs, "block": -1}),
        )
        return dict(known)

    def recalled(self, recall: Recall, limit: int) -> list[RowView]:
        number = RECALL_NUMBERS[recall]
        rows = self._database.rows("recalled_by_number", recall=number, limit=limit)
        return [view_row(self._database, row) for row in rows]

    def recalled_by_due(self, recall: Recall, limit: int) -> list[RowView]:
        number = RECALL_NUMBERS[recall]
        rows = self._database.rows("recalled_by_due", recall=number, limit=limit)
        return [view_row(self._database, row) for row in rows]

    def count_recalled(self, recall: Recall) -> dict[str, int]:
        return dict(self._database.rows("count_recalled", recall=RECALL_NUMBERS[recall]))

    # Actions of people.

    def change(
        self, row_filter: RowFilter, change: RowChange, progress: ReportProgress = unwatched
    ) -> int:
        """See `Store`; rows that a cycle is just looking at are tried again."""
        until_id = self._database.rows("newest_id")[0][0]
        total = 0
        for part in _parts(row_filter):
            after_id = 0
            while rows := filtered(self._database, part, CHUNK_ROWS, after_id, until_id):
                after_id = rows[-1].id
                changed = self._change_some([row.id for row in rows], part, change)
                progress(len(rows), changed)
                total += changed
        return total

    def _change_some(self, ids: list[int], row_filter: RowFilter, change: RowChange) -> int:
        conditions = conditions_of(row_filter)
        total = 0
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_S)
            with self._written() as transaction:
                free = lock_free(self._database, ids, conditions)
                changes = [(view, made) for view in free.views if (made := change(view))]
                if changes:
                    transaction.change(changes)
            total += len(changes)
            ids = free.skipped
            if not ids:
                break
        return total

    # Retention.

    def forget_history(self, before_ms: int, limit: int) -> int:
        """See `Store`; safe to call again.

        Events that were written together go when all of them are old enough. Tallies of
        destinations without rows go as well.
        """
        with self._written() as transaction:
            removed = forget_events(self._database, "oldest_blocks", limit, before_ms=before_ms)
            transaction.forget_events(removed)
            self._database.queue("forget_tally", limit=limit)
        return removed

    def trim_history(self, max_events: int, limit: int) -> int:
        with self._written() as transaction:
            excess = self._database.rows("read_event_count")[0][0] - max_events
            if excess <= 0:
                return 0
            removed = forget_events(self._database, "first_blocks", min(limit, excess))
            transaction.forget_events(removed)
        return removed

    def shrink(self) -> bool:
        """Make the reserve where it is gone; the server's autovacuum does the rest."""
        self._reserve.make()
        return False

    def room(self) -> Room:
        """See `Rows`; mostly cached."""
        return self._reserve.look()


def _parts(row_filter: RowFilter) -> Iterator[RowFilter]:
    """Split a filter with many ids, in the order of the ids."""
    if row_filter.ids is None:
        yield row_filter
        return
    ids = sorted(set(row_filter.ids))
    for start in range(0, len(ids), CHUNK_ROWS):
        yield msgspec.structs.replace(row_filter, ids=tuple(ids[start : start + CHUNK_ROWS]))
