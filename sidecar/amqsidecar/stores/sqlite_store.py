"""The schedule in one SQLite file.

Rules: a message costs work only when it comes and when it goes; what is true of a whole cycle is
written once per cycle. The unfinished cycle is one record that names the rows it took, the rows it
sends, its events and its differences of the tallies; rows themselves don't know cycles. So
finishing, undoing and settling are a few statements over runs of ids. Every write transaction is
BEGIN IMMEDIATE (serializable), in WAL with a sync at commit; other processes may use the same file
at the same time.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.errors import ConfigError, Problem, StoreUnavailable
from amqsidecar.model.destination import final_queue, parse_destination
from amqsidecar.model.event import AnyEvent, Cancelled, Held, Released, Retried
from amqsidecar.model.schedule import (
    DueRow,
    RowFilter,
    RowState,
    RowView,
    StoreState,
    TakenRow,
    Tally,
    UnfinishedCycle,
)
from amqsidecar.store import Progress, unwatched
from amqsidecar.stores.packing import (
    pack_deltas,
    pack_events,
    pack_holds,
    pack_runs,
    runs_of,
    storable,
    unpack_deltas,
    unpack_events,
    unpack_holds,
    unpack_runs,
)
from amqsidecar.stores.service_lock import ServiceLock
from amqsidecar.stores.sqlite_database import SqliteDatabase

BUSY_TIMEOUT_MS = 10_000
CHUNK_ROWS = 1_000  # An operator's action holds the write lock for some ten milliseconds at a time.
CLAIM_BYTES = 32 * 1024 * 1024  # More than this is not claimed at once, whatever the limit.

_RESERVED_IDS = 16_384
# Why: further than any store gets, and often enough below 2**53, which is exact everywhere.
_SKIPPED_IDS = 1 << 40
_VACUUM_PAGES = 512
_LAST_ID = 2**63 - 1

_STATES = (RowState.WAITING, RowState.HELD, RowState.PARKED)
_STATE_NUMBERS = {state: number for number, state in enumerate(_STATES)}
_WAITING, _HELD, _PARKED = range(3)


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


class _Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """The cycle whose end is not known, as its record tells.

    Attributes:
        taken: runs of ids; `sent` likewise.
        taken_tally: destination, state, difference; `sent_tally` likewise.
        event_block: number of its events; None = it has none.
    """

    cycle: int
    taken_count: int
    sent_count: int
    taken: list[tuple[int, int]]
    sent: list[tuple[int, int]]
    taken_tally: list[tuple[int, int, int]]
    sent_tally: list[tuple[int, int, int]]
    holds: dict[str, int]
    event_block: int | None


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator's action makes of one row."""

    state: RowState
    due_at_ms: int
    destination: str
    is_final: bool
    reason: str | None
    event: AnyEvent
    redelivery_count_change: int = 0


def _read_unfinished(database: SqliteDatabase) -> _Unfinished | None:
    row = database.query("read_unfinished").fetchone()
    if row is None:
        return None
    return _Unfinished(
        cycle=row[0],
        taken_count=row[1],
        sent_count=row[2],
        taken=unpack_runs(row[3]),
        sent=unpack_runs(row[4]),
        taken_tally=unpack_deltas(row[5]),
        sent_tally=unpack_deltas(row[6]),
        holds=unpack_holds(row[7]),
        event_block=row[8],
    )


def _read_in_flight(database: SqliteDatabase) -> tuple[set[int], set[int]]:
    """Return which rows the unfinished cycle took, and which it sends."""
    record = _read_unfinished(database)
    if record is None:
        return set(), set()
    return _ids_of(record.taken), _ids_of(record.sent)


def _ids_of(runs: Iterable[tuple[int, int]]) -> set[int]:
    return {row_id for first, last in runs for row_id in range(first, last + 1)}


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _json_ids(ids: Iterable[int]) -> str:
    return msgspec.json.encode(list(ids)).decode()


def _view(database: SqliteDatabase, row: tuple[Any, ...], in_flight: bool = False) -> RowView:
    state = row[1]
    return RowView(
        id=row[0],
        state=_STATES[state],
        due_at_ms=row[2],
        destination=database.word(row[3]),
        is_final=bool(row[4]),
        source=database.word(row[5]),
        redelivery_id=row[6],
        redelivery_count=row[7],
        delay_ms=row[8],
        rule=database.word(row[9]),
        reason=row[15],
        cause=row[10],
        message_id=row[11],
        received_at_ms=row[12],
        encoding=database.word(row[13]),
        size_bytes=row[14],
        in_flight=in_flight,
    )


def _redelivery_ids(events: Iterable[AnyEvent]) -> set[str]:
    return {event.redelivery_id for event in events} - {""}


def _write_block(database: SqliteDatabase, events: Sequence[AnyEvent]) -> int | None:
    """Append events; returns their block, None = there were none."""
    if not events:
        return None
    block: int = database.query("add_block", _block_values(events)).fetchone()[0]
    database.query("add_event_count", (len(events),))
    database.query_each(
        "add_key", [(storable(key), block) for key in sorted(_redelivery_ids(events))]
    )
    return block


def _read_block(database: SqliteDatabase, block: int) -> list[AnyEvent]:
    return unpack_events(*database.query("read_block", (block,)).fetchone())


def _rewrite_block(
    database: SqliteDatabase, block: int, events: Sequence[AnyEvent], left: Sequence[AnyEvent]
) -> None:
    """Let a block keep only some of its events."""
    gone = _redelivery_ids(events) - _redelivery_ids(left)
    database.query_each("delete_key", [(key, block) for key in sorted(gone)])
    database.query("add_event_count", (len(left) - len(events),))
    if left:
        database.query("replace_block", (*_block_values(left), block))
    else:
        database.query("delete_block", (block,))


def _block_values(events: Sequence[AnyEvent]) -> tuple[int, int, int, bytes]:
    return (max(event.at_ms for event in events), len(events), *pack_events(events))


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
                events = _read_block(self._database, record.event_block)
                _rewrite_block(self._database, record.event_block, events, [])
            self._database.query("delete_unfinished")

    def settle_in_doubt(self, cycle: int) -> None:
        """Nobody knows: what the cycle took waits, what it sent waits again.

        The cycle number counts as used. Events that tell of the sent rows are thrown away.
        """
        with self._database.mapped("be written"):
            record = self._unfinished(cycle)
            if record.event_block is not None:
                sent = _ids_of(record.sent)
                events = _read_block(self._database, record.event_block)
                left = [event for event in events if event.id not in sent]
                if len(left) < len(events):
                    _rewrite_block(self._database, record.event_block, events, left)
            self._count(record.taken_tally)
            self._close_cycle(record)

    def claim_due(self, now_ms: int, limit: int) -> list[DueRow]:
        """Return waiting rows that are due, by due time, then number; at most `limit`.

        Fewer when their messages are large (`CLAIM_BYTES`). Rows of an unfinished cycle are never
        returned.
        """
        database, claimed, size_bytes = self._database, list[DueRow](), 0
        with database.mapped("be read"):
            taken, sent = _read_in_flight(database)
            hidden = taken | sent
            with closing(database.query("claim_due", (now_ms, limit + len(hidden)))) as rows:
                for row in rows:
                    if row[0] in hidden:
                        continue
                    size_bytes += len(row[9])
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
                            message=row[9],
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
            holds: how many more dead letters of a source are held as backlog, new values.
        """
        database = self._database
        with database.mapped("be written"):
            finished = self._finished_cycle()
            database.expect(
                _read_unfinished(database) is None and cycle == finished + 1,
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
                        (destination, _STATE_NUMBERS[state], count)
                        for (destination, state), count in taken_tally.items()
                    ),
                    pack_deltas((number, _WAITING, -count) for number, count in sent_tally.items()),
                    pack_holds(dict(holds or {})),
                    _write_block(database, events),
                ),
            )

    def set_cycle(self, cycle: int) -> None:
        """Continue after this cycle number; only when no cycle is unfinished."""
        with self._database.mapped("be written"):
            self._database.expect(
                _read_unfinished(self._database) is None,
                "the cycle number can't be set while a cycle is unfinished",
            )
            self._database.query("set_finished_cycle", (cycle,))

    # Single rows.

    def postpone(self, ids: Sequence[int], due_at_ms: int, reason: str) -> None:
        """Give rows a later due time because their destination can't take them now."""
        with self._database.mapped("be written"):
            self._expect_at_rest(ids)
            values = {"ids": _json_ids(ids), "due_at_ms": due_at_ms, "reason": storable(reason)}
            self._database.query("postpone_rows", values)

    def park(self, ids: Sequence[int], reason: str) -> None:
        """Keep rows for a person."""
        with self._database.mapped("be written"):
            self._expect_at_rest(ids)
            values = {"ids": _json_ids(ids), "reason": storable(reason)}
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

    def change_rows(
        self, rows: Sequence[tuple[Any, ...]], change: Callable[[RowView], _Change | None]
    ) -> tuple[int, int]:
        """Apply an operator's action to listed rows with their events; in-flight rows are left.

        Args:
            rows: rows of a `list_` query.
            change: what becomes of a row; None = it is left as it is.

        Returns:
            How many of the rows count already, and how many were changed.
        """
        database = self._database
        taken, sent = _read_in_flight(database)
        counting = [row for row in rows if row[0] not in taken]
        views = [_view(database, row) for row in counting if row[0] not in sent]
        changes = [(view, made) for view in views if (made := change(view)) is not None]
        words = database.intern({made.destination for _, made in changes})
        deltas = Counter[tuple[int, int]]()
        values = []
        for view, made in changes:
            destination, state = words[made.destination], _STATE_NUMBERS[made.state]
            deltas[database.find_word(view.destination), _STATE_NUMBERS[view.state]] -= 1
            deltas[destination, state] += 1
            values.append(
                {
                    "id": view.id,
                    "state": state,
                    "due_at_ms": made.due_at_ms,
                    "destination": destination,
                    "is_final": made.is_final,
                    "reason": made.reason,
                    "redelivery_count": view.redelivery_count + made.redelivery_count_change,
                }
            )
        database.query_each("change_row", values)
        self._count([(*key, delta) for key, delta in deltas.items()])
        uses = Counter[int]()
        for (destination, _), delta in deltas.items():
            uses[destination] += delta
        database.use_words(uses)
        _write_block(database, [made.event for _, made in changes])
        return len(counting), len(changes)

    # What belongs to no row.

    def record(self, events: Sequence[AnyEvent]) -> None:
        """Write events that belong to no cycle; they count at once."""
        with self._database.mapped("be written"):
            _write_block(self._database, events)

    def set_token_created(self) -> None:
        """The first token is in the broker."""
        with self._database.mapped("be written"):
            self._database.query("set_token_created")

    def renew_uid(self) -> str:
        """Take and return another uid: the broker knows of a later state of this store."""
        uid = secrets.token_hex(4)
        with self._database.mapped("be written"):
            self._database.query("set_uid", (uid,))
        return uid

    def skip_ids(self) -> None:
        """Go on with row numbers that no state of this store can have used."""
        far = _SKIPPED_IDS + secrets.randbelow(_SKIPPED_IDS)
        with self._database.mapped("be written"):
            self._database.query("reserve_ids", {"at_least": 1, "count": far}).fetchall()

    def set_hold(self, source: str, remaining: int) -> None:
        """Remember that so many more dead letters of a source are backlog; 0 = none, but seen."""
        with self._database.mapped("be written"):
            self._database.query("set_hold", (source, remaining))

    # Parts.

    def _finished_cycle(self) -> int:
        return int(self._database.query("read_meta").fetchone()[1])

    def _unfinished(self, cycle: int) -> _Unfinished:
        record = _read_unfinished(self._database)
        if record is None or record.cycle != cycle:
            found = "none" if record is None else str(record.cycle)
            raise AssertionError(
                f"cycle {cycle} was to be ended, but the unfinished one is {found}"
            )
        return record

    def _close_cycle(self, record: _Unfinished) -> None:
        self._database.query_each("set_hold", record.holds.items())
        self._database.query("delete_unfinished")
        self._database.query("set_finished_cycle", (record.cycle,))

    def _expect_at_rest(self, ids: Sequence[int]) -> None:
        taken, sent = _read_in_flight(self._database)
        self._database.expect(
            (taken | sent).isdisjoint(ids), "rows of an unfinished cycle can't be changed"
        )

    def _intern(self, taken: Sequence[TakenRow], sent: Sequence[DueRow]) -> Mapping[str, int]:
        texts = {row.destination for row in taken}
        texts.update(row.source for row in taken)
        texts.update(row.rule for row in taken)
        texts.update(row.encoding for row in taken)
        texts.update(row.destination for row in sent)
        return self._database.intern(texts)

    def _add_rows(self, taken: Sequence[TakenRow], words: Mapping[str, int]) -> None:
        self._database.query_each(
            "add_row",
            [
                (
                    row.id,
                    _STATE_NUMBERS[row.state],
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
                    _storable(row.cause),
                    _storable(row.message_id),
                )
                for row in taken
            ],
        )
        self._database.query_each("add_message", [(row.id, row.message) for row in taken])
        texts = ((row.destination, row.source, row.rule, row.encoding) for row in taken)
        self._database.use_words(Counter(map(words.__getitem__, chain.from_iterable(texts))))
        if taken:
            above = max(row.id for row in taken) + 1
            self._database.query("reserve_ids", {"at_least": above, "count": 0}).fetchall()

    def _delete_rows(self, runs: Sequence[tuple[int, int]]) -> None:
        deleted = chain.from_iterable(self._database.query("delete_rows", run) for run in runs)
        uses = Counter[int](chain.from_iterable(deleted))
        self._database.use_words({number: -count for number, count in uses.items()})
        self._database.query_each("delete_messages", runs)

    def _tally_of(self, ids: Sequence[int]) -> list[tuple[int, int, int]]:
        return self._database.query("tally_of_ids", {"ids": _json_ids(ids)}).fetchall()

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


class SqliteStore:
    """A `Store` in one file.

    Args:
        path: the file; its folder must exist.
        clock: measures how long an operator's action held the write lock.
        instance_name: name of this sidecar's share; None = the file's own, made once.
        read_only: never create and never write.
        busy_timeout_ms: how long a write waits for another process.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock,
        instance_name: str | None = None,
        read_only: bool = False,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> None:
        self._path = Path(path).resolve()
        self._clock = clock
        self._instance_name = instance_name
        self._database = SqliteDatabase(
            self._path, read_only=read_only, busy_timeout_ms=busy_timeout_ms
        )
        self._lock = ServiceLock(self._path.with_name(self._path.name + ".lock"))
        self._is_for_service = False
        self._next_id = 1
        self._reserved_end = 1

    # Opening and closing.

    def open(self) -> StoreState:
        """Open, create where missing, and say where things stand.

        Promise: safe to call again. If the process dies inside, the file is a whole store, or the
        next call makes it one.

        Raises:
            StoreUnavailable: it can't be opened, or belongs to another instance.
            SchemaMismatch: it was written by an unknown version.
        """
        if self._is_for_service:
            self._lock.take()
        if not self._database.is_open:
            self._database.open(self._instance_name)
        state = self._read_state()
        if self._instance_name not in (None, state.instance):
            self._database.close()
            raise StoreUnavailable(
                f"the store {self._path} belongs to the instance {state.instance!r}, not to "
                f"{self._instance_name!r}; use that name, or give this one a store.url of its own"
            )
        return state

    def close(self) -> None:
        """Close, and give the service lock up; safe to call twice."""
        self._database.close()
        self._lock.release()

    def lock_for_service(self) -> None:
        """Become the only service on this file until `close`; `open` after it takes the lock again.

        Promise: safe to call twice; the kernel gives the lock up however the process ends.

        Raises:
            StoreUnavailable: another process is the service; the message has its id.
        """
        self._database.check_place()
        self._lock.take()
        self._is_for_service = True

    def _read_state(self) -> StoreState:
        with self._database.snapshot():
            instance, cycle, token_created, uid = self._database.query("read_meta").fetchone()
            record = _read_unfinished(self._database)
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
        )

    # Writing.

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """Begin a transaction; durable when the block is left without an exception.

        Promise: if the block is left by an exception, or the process dies inside, nothing of it
        happened.

        Raises:
            StoreUnavailable: it can't be written (disk full, locked for too long).
        """
        reserved_end = self._reserved_end
        try:
            with self._database.transaction():
                yield SqliteTransaction(self._database)
        except BaseException:
            self._reserved_end = reserved_end
            raise

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
        """Return the earliest due time of a waiting row; None = nothing waits.

        Rows of an unfinished cycle don't count.
        """
        database = self._database
        with database.snapshot():
            taken, sent = _read_in_flight(database)
            with closing(database.query("next_due", (1 + len(taken) + len(sent),))) as rows:
                for row_id, due_at_ms in rows:
                    if row_id not in taken and row_id not in sent:
                        return int(due_at_ms)
        return None

    def holds(self) -> dict[str, int]:
        """Return for each source ever seen how many more of its dead letters are backlog."""
        with self._database.mapped("be read"):
            return dict(self._database.query("read_holds").fetchall())

    def tallies(self) -> list[Tally]:
        """Return how many rows there are by destination and state; costs no scan of the rows."""
        database = self._database
        with database.snapshot():
            tallies = [
                Tally(destination=database.word(number), state=_STATES[state], count=count)
                for number, state, count in database.query("read_tallies").fetchall()
            ]
        return sorted(tallies, key=lambda tally: (tally.destination, tally.state))

    def list_rows(self, row_filter: RowFilter, limit: int, after_id: int = 0) -> list[RowView]:
        """Return rows by number, only those with a number above `after_id`."""
        database = self._database
        with database.snapshot():
            taken, sent = _read_in_flight(database)
            rows = self._filtered(row_filter, limit + len(taken), after_id, _LAST_ID)
            visible = [row for row in rows if row[0] not in taken][:limit]
            return [_view(database, row, row[0] in sent) for row in visible]

    def count_rows(self, row_filter: RowFilter) -> int:
        """Return how many rows the filter hits; by destination and state it costs no scan."""
        with self._database.snapshot():
            source, values = self._filter_values(row_filter)
            name = f"count_{source}"
            if row_filter == RowFilter(destination=row_filter.destination, state=row_filter.state):
                name = "sum_tallies"
            else:
                values["hidden"] = _json_ids(_read_in_flight(self._database)[0])
            return int(self._database.query(name, values).fetchone()[0])

    def message(self, row_id: int) -> bytes | None:
        """Return the encoded message of a row; None = no such row."""
        with self._database.snapshot():
            taken, _ = _read_in_flight(self._database)
            row = self._database.query("read_message", (row_id,)).fetchone()
            return None if row is None or row_id in taken else bytes(row[0])

    def history(self, redelivery_id: str) -> list[AnyEvent]:
        """Return all events of a message over all its deaths, oldest first."""
        with self._database.snapshot():
            record = _read_unfinished(self._database)
            hidden = None if record is None else record.event_block
            key = storable(redelivery_id)
            return [
                event
                for block, packing, body in self._database.query("blocks_of_message", (key,))
                if block != hidden
                for event in unpack_events(packing, body)
                if event.redelivery_id == key
            ]

    def size_bytes(self) -> int:
        """Return how much space the file and its write-ahead log take."""
        total = 0
        for name in (self._path.name, self._path.name + "-wal"):
            try:
                total += self._path.with_name(name).stat().st_size
            except FileNotFoundError:
                continue
        return total

    def _filter_values(self, row_filter: RowFilter) -> tuple[str, dict[str, Any]]:
        """Return which index serves a filter best, and the values of its conditions."""
        destination, state = row_filter.destination, row_filter.state
        state_number = None if state is None else _STATE_NUMBERS[state]
        values: dict[str, Any] = {
            "destination": None if destination is None else self._database.find_word(destination),
            "redelivery_id": _storable(row_filter.redelivery_id),
            "state": state_number,
            "received_before_ms": row_filter.received_before_ms,
            "cause_contains": _storable(row_filter.cause_contains),
        }
        if row_filter.ids is not None:
            return "by_ids", values | {"ids": _json_ids(row_filter.ids)}
        if row_filter.redelivery_id is not None:
            return "by_redelivery_id", values
        if state_number:
            return "kept", values | {"kept": state_number}
        return ("all" if destination is None else "by_destination"), values

    def _filtered(
        self, row_filter: RowFilter, limit: int, after_id: int, until_id: int
    ) -> list[tuple[Any, ...]]:
        source, values = self._filter_values(row_filter)
        values |= {"after_id": after_id, "until_id": until_id, "limit": limit}
        return self._database.query(f"list_{source}", values).fetchall()

    # What operators do.

    def retry(
        self, row_filter: RowFilter, now_ms: int, actor: str, progress: Progress = unwatched
    ) -> int:
        """Make rows due now, also held and parked ones; returns how many. In-flight rows are left.

        Promise: done in small transactions, each durable with its events; if the process dies
        between two, calling it again does the rest.
        """

        def change(row: RowView) -> _Change:
            due_at_ms = min(row.due_at_ms, now_ms) if row.state is RowState.WAITING else now_ms
            event = Retried(
                at_ms=now_ms,
                id=row.id,
                redelivery_id=row.redelivery_id,
                destination=row.destination,
                actor=actor,
            )
            return _Change(
                state=RowState.WAITING,
                due_at_ms=due_at_ms,
                destination=row.destination,
                is_final=row.is_final,
                reason=None,
                event=event,
            )

        return self._act(row_filter, change, progress)

    def cancel(
        self,
        row_filter: RowFilter,
        now_ms: int,
        actor: str,
        suffix: str,
        progress: Progress = unwatched,
    ) -> int:
        """Send rows to their final dead-letter queue now; returns how many.

        Args:
            row_filter: which rows; in-flight rows and final ones are left as they are.
            now_ms: the new due time.
            actor: who asked.
            suffix: the final dead-letter queue is the source plus this.
            progress: told after each step.

        Promise: as `retry`.
        """

        def change(row: RowView) -> _Change | None:
            if row.is_final:
                return None
            destination = str(final_queue(parse_destination(row.source), suffix))
            event = Cancelled(
                at_ms=now_ms,
                id=row.id,
                redelivery_id=row.redelivery_id,
                destination=destination,
                actor=actor,
            )
            return _Change(
                state=RowState.WAITING,
                due_at_ms=now_ms,
                destination=destination,
                is_final=True,
                # Why: a final message carries the redeliveries that were, not the next one.
                redelivery_count_change=-1,
                reason=None,
                event=event,
            )

        return self._act(row_filter, change, progress)

    def hold(
        self, row_filter: RowFilter, now_ms: int, actor: str, progress: Progress = unwatched
    ) -> int:
        """Keep waiting rows until a person releases them; returns how many.

        Promise: as `retry`.
        """
        reason = f"held by {actor}"

        def change(row: RowView) -> _Change:
            event = Held(
                at_ms=now_ms,
                id=row.id,
                redelivery_id=row.redelivery_id,
                destination=row.destination,
                reason=reason,
                actor=actor,
            )
            return _Change(
                state=RowState.HELD,
                due_at_ms=row.due_at_ms,
                destination=row.destination,
                is_final=row.is_final,
                reason=reason,
                event=event,
            )

        return self._act_on_state(row_filter, RowState.WAITING, change, progress)

    def release(
        self, row_filter: RowFilter, now_ms: int, actor: str, progress: Progress = unwatched
    ) -> int:
        """Let held rows go at their due time, at once if it has passed; returns how many.

        Promise: as `retry`.
        """

        def change(row: RowView) -> _Change:
            due_at_ms = max(row.due_at_ms, now_ms)
            event = Released(
                at_ms=now_ms,
                id=row.id,
                redelivery_id=row.redelivery_id,
                destination=row.destination,
                due_at_ms=due_at_ms,
                actor=actor,
            )
            return _Change(
                state=RowState.WAITING,
                due_at_ms=due_at_ms,
                destination=row.destination,
                is_final=row.is_final,
                reason=None,
                event=event,
            )

        return self._act_on_state(row_filter, RowState.HELD, change, progress)

    def _act_on_state(
        self,
        row_filter: RowFilter,
        state: RowState,
        change: Callable[[RowView], _Change | None],
        progress: Progress,
    ) -> int:
        if row_filter.state not in (None, state):
            return 0
        return self._act(msgspec.structs.replace(row_filter, state=state), change, progress)

    def _act(
        self,
        row_filter: RowFilter,
        change: Callable[[RowView], _Change | None],
        progress: Progress,
    ) -> int:
        """Change rows chunk by chunk, leaving the write lock to others in between."""
        with self._database.mapped("be read"):
            until_id = self._database.query("newest_id").fetchone()[0]
        total, after_id, pause_s = 0, 0, 0.0
        for part in _parts(row_filter):
            is_more = True
            while is_more:
                time.sleep(pause_s)
                began_s = self._clock.monotonic_s()
                with self.transaction() as transaction, self._database.mapped("be written"):
                    rows = self._filtered(part, CHUNK_ROWS, after_id, until_id)
                    matched, changed = transaction.change_rows(rows, change)
                progress(matched, changed)
                total += changed
                is_more = len(rows) == CHUNK_ROWS
                after_id = rows[-1][0] if rows else after_id
                # Why: SQLite's lock is not fair; others get it for as long as we had it.
                pause_s = max(0.001, min(0.1, self._clock.monotonic_s() - began_s))
        return total

    # Retention.

    def forget_history(self, before_ms: int, limit: int) -> int:
        """Remove at most `limit` of the oldest events before a time; returns how many.

        Events that were written together go when all of them are old enough. Texts that no row has
        any more go as well, as many at most.

        Promise: safe to call again; if the process dies inside, nothing was removed.
        """
        with self.transaction(), self._database.mapped("be written"):
            removed = self._forget("oldest_blocks", limit, before_ms=before_ms)
            self._database.forget_words(limit)
        return removed

    def trim_history(self, max_events: int, limit: int) -> int:
        """Remove at most `limit` of the first events beyond `max_events`; returns how many.

        Texts and promise: as `forget_history`.
        """
        with self.transaction(), self._database.mapped("be written"):
            excess = self._database.query("read_event_count").fetchone()[0] - max_events
            removed = self._forget("first_blocks", min(limit, excess)) if excess > 0 else 0
            self._database.forget_words(limit)
        return removed

    def _forget(self, blocks: str, limit: int, **conditions: int) -> int:
        """Remove at most `limit` events of the blocks that a query names; returns how many."""
        database, removed = self._database, 0
        record = _read_unfinished(database)
        unfinished = None if record is None else record.event_block
        values = conditions | {"unfinished": unfinished, "limit": limit}
        for block, count in database.query(blocks, values).fetchall():
            forgotten = min(count, limit - removed)
            if forgotten <= 0:
                break
            events = _read_block(database, block)
            _rewrite_block(database, block, events, events[forgotten:])
            removed += forgotten
        return removed

    def shrink(self) -> bool:
        """Give some free pages back to the disk when more than half of the file is free.

        Returns:
            Whether more than half of it is free still.
        """
        database = self._database
        with database.mapped("be written"):
            if not self._is_mostly_free():
                return False
            database.give_back(_VACUUM_PAGES)
            return self._is_mostly_free()

    def _is_mostly_free(self) -> bool:
        pages = self._database.run("PRAGMA page_count").fetchone()[0]
        free = self._database.run("PRAGMA freelist_count").fetchone()[0]
        return bool(free > max(_VACUUM_PAGES, pages // 2))


def _parts(row_filter: RowFilter) -> Iterator[RowFilter]:
    """Split a filter with many ids, in the order of the ids."""
    if row_filter.ids is None:
        yield row_filter
        return
    ids = sorted(set(row_filter.ids))
    for start in range(0, len(ids), CHUNK_ROWS):
        part = tuple(ids[start : start + CHUNK_ROWS])
        yield msgspec.structs.replace(row_filter, ids=part)
