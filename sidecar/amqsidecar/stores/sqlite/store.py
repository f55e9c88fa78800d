"""The schedule in one SQLite file.

Rules: a message costs work only when it comes and when it goes; facts of a whole cycle are written
once per cycle. The unfinished cycle is one record that names the rows it took, the rows it sends,
its events and its differences of the tallies; rows themselves don't know cycles. So finishing,
undoing and settling are a few statements over runs of ids. Every write transaction is BEGIN
IMMEDIATE (serializable), in WAL with a sync at commit; other processes may use the same file at the
same time.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.errors import ConfigError, Problem, StoreUnavailable
from amqsidecar.model.cause_note import CauseNote, SharedNotes
from amqsidecar.model.event import AnyEvent
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
from amqsidecar.store import AddLying, ReportProgress, Room, unwatched
from amqsidecar.stores.packing import of_message, storable, unpack_message
from amqsidecar.stores.rows import LAST_ID, RECALL_NUMBERS, STATES
from amqsidecar.stores.sqlite.checkpoints import Checkpoints
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.events import forget_events
from amqsidecar.stores.sqlite.ledger import SqliteLedger
from amqsidecar.stores.sqlite.outbox import SqliteOutbox
from amqsidecar.stores.sqlite.reserve import Reserve
from amqsidecar.stores.sqlite.rows import (
    chunks_of_ids,
    filter_values,
    filtered,
    json_ids,
    json_texts,
    read_in_flight,
    read_unfinished,
    view_row,
)
from amqsidecar.stores.sqlite.service_lock import ServiceLock
from amqsidecar.stores.sqlite.transaction import SqliteTransaction

BUSY_TIMEOUT_MS = 10_000
CHUNK_ROWS = 500  # An operator's action holds the write lock for some ten milliseconds at a time.

_RESERVED_IDS = 16_384
# Why so few: where the end of the file is free, each page costs the more the more are free, up to
# milliseconds among a million.
_VACUUM_PAGES = 64
_VACUUM_PAGES_WHEN_SHORT = 16
_VACUUM_FROM_PAGES = 512


def path_of_url(url: str) -> Path:
    """Return the file that a `sqlite:` URL names: `sqlite:///var/lib/x.db`, or `sqlite:x.db`.

    Raises:
        ConfigError: it names none.

    Example:
        >>> str(path_of_url("sqlite:///var/lib/amqsidecar/schedule.db"))
        '/var/lib/amqsidecar/schedule.db'
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "sqlite" or parts.netloc or parts.query or parts.fragment or not path:
        raise ConfigError(
            [Problem("store.url", f"{url!r} names no file; write sqlite:///folder/schedule.db")]
        )
    return Path("/" + path.lstrip("/")) if path.startswith("/") else Path(path)


class SqliteStore(SqliteLedger, SqliteOutbox):
    """A `Schedule` in one file.

    Args:
        path: the file; its folder must exist.
        clock: measures how long an operator's action held the write lock.
        instance_name: name of this sidecar's share; None = the file's own, made once.
        read_only: never create and never write.
        busy_timeout_ms: how long a write waits for another process.
        reserve_bytes: space on the volume that dead letters are not taken into; 0 = none.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock,
        instance_name: str | None = None,
        read_only: bool = False,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        reserve_bytes: int = 0,
    ) -> None:
        self._path = Path(path).resolve()
        self._clock = clock
        self._instance_name = instance_name
        self._reserve = Reserve(self._path, reserve_bytes, clock)
        self._database = SqliteDatabase(
            self._path,
            read_only=read_only,
            busy_timeout_ms=busy_timeout_ms,
            reserve=self._reserve,
        )
        self._lock = ServiceLock(self._path.with_name(self._path.name + ".lock"))
        self._is_for_service = False
        self._checkpoints: Checkpoints | None = None
        self._next_id = 1
        self._reserved_end = 1

    # Opening and closing.

    def open(self) -> StoreState:
        """Open, create missing parts, and return the state.

        A file of an older version is brought up to date, unless this store only reads.

        Promise: safe to call again. If the process dies inside, the file is a whole store of its
        old or its new version, or the next call makes it one.

        Raises:
            StoreUnavailable: it can't be opened, or belongs to another instance; or it is of an
                older version, and a service uses it.
            SchemaMismatch: it was written by an unknown version.
        """
        if self._is_for_service:
            self._lock.take()
        if not self._database.is_open:
            self._database.open(self._instance_name)
            self._migrate()
            if self._is_for_service:
                self._database.leave_checkpoints_to_others()
                self._checkpoints = Checkpoints(self._path, is_short=lambda: self._reserve.is_used)
        state = self._read_state()
        if self._instance_name not in (None, state.instance):
            self._close_database()
            raise StoreUnavailable(
                f"the store {self._path} belongs to the instance {state.instance!r}, not to "
                f"{self._instance_name!r}; use that name, or give this one a store.url of its own"
            )
        return state

    def state(self) -> StoreState:
        """Return the state now."""
        return self._read_state()

    def reopen(self) -> StoreState:
        """Close and open again; see `open`."""
        self.close()
        return self.open()

    def close(self) -> None:
        """Close, and release the service lock; safe to call twice."""
        self._close_database()
        self._lock.release()

    def _close_database(self) -> None:
        checkpoints, self._checkpoints = self._checkpoints, None
        if checkpoints is not None:
            checkpoints.stop()
        self._database.close()

    def lock_for_service(self) -> None:
        """Become the only service on this file until `close`; `open` after it takes the lock again.

        Promise: safe to call twice; the kernel gives the lock up however the process ends.

        Raises:
            StoreUnavailable: another process is the service; the message has its id.
        """
        self._database.check_place()
        self._reserve.give_way()
        self._lock.take()
        self._is_for_service = True

    def keep(self) -> None:
        """Do nothing: the kernel knows whether the holder of the service lock lives."""

    def share_notes(self, notes: Sequence[CauseNote]) -> None:
        """Do nothing: the schedule has one instance."""

    def shared_notes(self, position: int | None) -> SharedNotes:
        """Return no notes."""
        return SharedNotes(0)

    def abandoned(self) -> list[str]:
        """Return none: the file is of one instance."""
        return []

    def instances(self) -> list[InstanceView]:
        """Return none: the file is not shared."""
        return []

    def set_manual(self, instance: str, patterns: Sequence[str]) -> None:
        """Do nothing: the file is not shared."""

    @property
    def keeps_exhausted_rows(self) -> bool:
        """Return True."""
        return True

    @property
    def group_key(self) -> bytes:
        """Return that of the file."""
        return self._database.group_key

    def _migrate(self) -> None:
        if self._database.is_up_to_date:
            return
        try:
            # Why the lock: a service of the older version must not read this version's writes.
            self._lock.take()
            self._database.migrate()
        except BaseException:
            self.close()
            raise
        if not self._is_for_service:
            self._lock.release()

    def _read_state(self) -> StoreState:
        with self._database.snapshot():
            instance, cycle, token_created, uid = self._database.query("read_meta").fetchone()[:4]
            record = read_unfinished(self._database)
            newest = self._database.query("read_taken_until").fetchone()
        unfinished = None
        if record is not None:
            unfinished = UnfinishedCycle(
                cycle=record.cycle, taken_count=record.taken_count, sent_count=record.sent_count
            )
        return StoreState(
            instance=instance,
            uid=uid,
            cycle=cycle,
            unfinished=unfinished,
            token_created=bool(token_created),
            taken_until_ms=newest[0] if newest else 0,
        )

    # Writing.

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """See `Store`.

        Raises:
            StoreFull: the volume has no space left.
            StoreUnavailable: it can't be written (locked for too long).
        """
        reserved_end = self._reserved_end
        try:
            with self._database.transaction():
                yield SqliteTransaction(self._database)
        except BaseException:
            self._reserved_end = reserved_end
            raise
        finally:
            # Why also after a failure: the log holds the part written by then.
            if self._checkpoints is not None:
                self._checkpoints.notice()

    def allocate_ids(self, count: int) -> int:
        """Return the first of `count` consecutive row numbers that were never used before.

        Promise: they are out of use when this returns, also after an undo and after a crash; inside
        a transaction once that is durable.
        """
        first = self._next_id
        if first + count > self._reserved_end:
            reserved = count + _RESERVED_IDS
            with self._database.mapped("be written"):
                values = {"at_least": first, "count": reserved}
                (self._reserved_end,) = self._database.query("reserve_ids", values).fetchall()[0]
            first = self._reserved_end - reserved
        self._next_id = first + count
        return first

    # Reading.

    def next_due_ms(self) -> int | None:
        """See `Rows`; rows of an unfinished cycle don't count."""
        database = self._database
        with database.snapshot():
            taken, sent = read_in_flight(database)
            with closing(database.query("next_due", (1 + len(taken) + len(sent),))) as rows:
                for row_id, due_at_ms in rows:
                    if row_id not in taken and row_id not in sent:
                        return int(due_at_ms)
        return None

    def holds(self) -> dict[str, int]:
        with self._database.mapped("be read"):
            return dict(self._database.query("read_holds").fetchall())

    def tallies(self) -> list[Tally]:
        database = self._database
        with database.snapshot():
            tallies = [
                Tally(destination=database.word(number), state=STATES[state], count=count)
                for number, state, count in database.query("read_tallies").fetchall()
            ]
        return sorted(tallies, key=lambda tally: (tally.destination, tally.state))

    def list_rows(self, row_filter: RowFilter, limit: int, after_id: int = 0) -> list[RowView]:
        database = self._database
        with database.snapshot():
            taken, sent = read_in_flight(database)
            rows = filtered(database, row_filter, limit + len(taken), after_id, LAST_ID)
            visible = [row for row in rows if row[0] not in taken][:limit]
            return [view_row(database, row, row[0] in sent) for row in visible]

    def count_rows(self, row_filter: RowFilter) -> int:
        """Return the number of rows that match the filter; tallied filters need no scan."""
        with self._database.snapshot():
            source, values = filter_values(self._database, row_filter)
            name = f"count_{source}"
            tallied = RowFilter(
                destination=row_filter.destination,
                state=row_filter.state,
                cause_group=row_filter.cause_group,
            )
            if row_filter == tallied:
                name = "sum_tallies"
            else:
                values["hidden"] = json_ids(read_in_flight(self._database)[0])
            return int(self._database.query(name, values).fetchone()[0])

    def lying(self, redelivery_ids: Collection[str]) -> list[RowView]:
        database = self._database
        with database.snapshot():
            taken, sent = read_in_flight(database)
            names = {"redelivery_ids": json_texts(map(storable, redelivery_ids))}
            rows = database.query("lying_rows", names).fetchall()
            hidden = taken | sent
            return [view_row(database, row) for row in sorted(rows) if row[0] not in hidden]

    @contextmanager
    def adding_lying(self) -> Iterator[AddLying]:
        with self.transaction() as transaction:
            yield transaction.add_lying

    def known_lives(self, lives: Collection[str]) -> dict[str, bool]:
        """See `Store`; there is no other instance."""
        return {key: True for (key,) in self._database.query("known_keys", (json_texts(lives),))}

    def recalled(self, recall: Recall, limit: int) -> list[RowView]:
        return self._recalled("recalled_by_number", recall, limit)

    def recalled_by_due(self, recall: Recall, limit: int) -> list[RowView]:
        return self._recalled("recalled_by_due", recall, limit)

    def _recalled(self, query: str, recall: Recall, limit: int) -> list[RowView]:
        database = self._database
        with database.snapshot():
            taken, sent = read_in_flight(database)
            hidden = taken | sent
            values = (RECALL_NUMBERS[recall], limit + len(hidden))
            rows = database.query(query, values).fetchall()
            return [view_row(database, row) for row in rows if row[0] not in hidden][:limit]

    def count_recalled(self, recall: Recall) -> dict[str, int]:
        database = self._database
        with database.snapshot():
            rows = database.rows("count_recalled", recall=RECALL_NUMBERS[recall])
            return {database.word(queue): count for queue, count in rows}

    def message(self, row_id: int) -> bytes | None:
        """Return the encoded message of a row; None = no such row."""
        with self._database.snapshot():
            taken, _ = read_in_flight(self._database)
            row = self._database.query("read_message", (row_id,)).fetchone()
            return None if row is None or row_id in taken else unpack_message(*row)

    def history(self, redelivery_id: str) -> list[AnyEvent]:
        with self._database.snapshot():
            record = read_unfinished(self._database)
            hidden = None if record is None else record.event_block
            key = storable(redelivery_id)
            blocks = self._database.query("blocks_of_message", (key,))
            return of_message(
                ((packing, body) for block, packing, body in blocks if block != hidden),
                lambda redelivery_id: redelivery_id == key,
            )

    def size_bytes(self) -> int:
        """Return how much space the file and its write-ahead log take."""
        total = 0
        for name in (self._path.name, self._path.name + "-wal"):
            with self._database.mapped("be read"), suppress(FileNotFoundError):
                total += self._path.with_name(name).stat().st_size
        return total

    def room(self) -> Room:
        if not self._is_for_service:
            return self._reserve.look()
        room = self._reserve.keep()
        # Why: what a checkpoint wrote may have cut the reserve, and no commit need follow.
        if not room.is_enough and self._checkpoints is not None:
            self._checkpoints.notice()
        return room

    # Actions of people.

    def change(
        self, row_filter: RowFilter, change: RowChange, progress: ReportProgress = unwatched
    ) -> int:
        """See `Store`; the write lock is left to others between the steps."""
        total, pause_s = 0, 0.0
        for ids in chunks_of_ids(self._database, row_filter, CHUNK_ROWS):
            if not ids:
                progress(0, 0)
                continue
            time.sleep(pause_s)
            began_s = self._clock.monotonic_s()
            with self.transaction() as transaction, self._database.mapped("be written"):
                # Why the whole filter again: they were read outside of this transaction.
                chunk = msgspec.structs.replace(row_filter, ids=ids)
                rows = filtered(self._database, chunk, CHUNK_ROWS, 0, LAST_ID)
                matched, changes = transaction.change_rows(rows, change)
            # Why: SQLite's lock is not fair; others get it for as long as we had it, and for longer
            # than they wait before they ask again.
            pause_s = max(0.03, min(1.0, self._clock.monotonic_s() - began_s))
            progress(matched, len(changes))
            total += len(changes)
        return total

    # Retention.

    def forget_history(self, before_ms: int, limit: int) -> int:
        """See `Store`; safe to call again.

        Events that were written together go when all of them are old enough. Texts that no row has
        any more go as well, as many at most.
        """
        with self.transaction(), self._database.mapped("be written"):
            removed = forget_events(self._database, "oldest_blocks", limit, before_ms=before_ms)
            self._database.forget_words(limit)
        return removed

    def trim_history(self, max_events: int, limit: int) -> int:
        """See `Store`; removes texts as `forget_history` does."""
        with self.transaction(), self._database.mapped("be written"):
            excess = self._database.query("read_meta").fetchone()[4] - max_events
            removed = (
                forget_events(self._database, "first_blocks", min(limit, excess))
                if excess > 0
                else 0
            )
            self._database.forget_words(limit)
        return removed

    def shrink(self) -> bool:
        """Give some free pages back to the disk when more than half of the file is free.

        Where the volume is short it gives back all that it can, in smaller steps, and cuts the log.

        Returns:
            Whether there is more to give back still.
        """
        database, is_short = self._database, self._reserve.is_used
        with database.mapped("be written"):
            if is_short:
                database.cut_log()
            if not self._has_too_much():
                return False
            database.give_back(_VACUUM_PAGES_WHEN_SHORT if is_short else _VACUUM_PAGES)
            if is_short:
                # Why now: only then the file is shorter, and the log doesn't need the space.
                database.cut_log()
            return self._has_too_much()

    def _has_too_much(self) -> bool:
        pages = self._database.run("PRAGMA page_count").fetchone()[0]
        free = self._database.run("PRAGMA freelist_count").fetchone()[0]
        if self._reserve.is_used:
            return bool(free > _VACUUM_PAGES)
        return bool(free > max(_VACUUM_FROM_PAGES, pages // 2))
