"""A SQLite file as one end of a move."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from amqsidecar.clock import SystemClock
from amqsidecar.model.failure import FailureGroup, Failures
from amqsidecar.model.operation import is_working
from amqsidecar.stores.ledger import decode_operation, set_followed
from amqsidecar.stores.moving import (
    FENCED,
    TABLES,
    Contents,
    Fence,
    MovedHead,
    MovedInstance,
    instance_for_file,
    portions,
    read_statement,
    unfinished,
)
from amqsidecar.stores.packing import TallyDelta, pack_message, structs_of, unpack_message
from amqsidecar.stores.sqlite.changes import count_rows
from amqsidecar.stores.sqlite.counts import KINDS, add_failures, no_deaths
from amqsidecar.stores.sqlite.database import (
    LARGE_BYTES,
    SCHEMA_VERSION,
    SqliteDatabase,
    read_fence,
)
from amqsidecar.stores.sqlite.operations import OUTCOME_NUMBERS, OUTCOMES
from amqsidecar.stores.sqlite.outbox import planned_range
from amqsidecar.stores.sqlite.reserve import Reserve
from amqsidecar.stores.sqlite.rows import read_unfinished
from amqsidecar.stores.sqlite.service_lock import ServiceLock

_BUSY_TIMEOUT_MS: Final = 10_000
_WORDS: Final = ("destination", "source", "rule", "encoding", "cause_group", "final_queue")
_WORD_PLACES: Final = [TABLES["redelivery"].index(name) for name in _WORDS]
_READ: Final = {
    **TABLES,
    "message": (*TABLES["message"], "size_bytes"),
    "original": (*TABLES["original"], "size_bytes"),
}
_SOURCES: Final = {
    "message": """(
        SELECT id, size_bytes FROM redelivery UNION ALL SELECT id, size_bytes FROM discarded
    ) JOIN message USING (id)""",
    "event_block": "event_block ORDER BY seq",
    # Why without that one: positions of the stores differ.
    "kept_value": "kept_value WHERE name <> 'followed'",
    # Why not all: some only hold counts of events without a cause.
    "failure_group": "failure_group WHERE total > 0",
    "failure_count": "failure_count JOIN failure_group ON id = failure_group",
}
_EXPRESSIONS: Final = {
    "event_block": {"is_written": "seq <= (SELECT last_block FROM outbox)"},
    **{
        table: {name: f"(SELECT text FROM word WHERE id = {table}.{name})" for name in _WORDS}  # noqa: S608
        for table in ("redelivery", "discarded")
    },
}
_WRITTEN: Final = {
    **_READ,
    "event_block": TABLES["event_block"][:-1],
    "operation": ("id", "is_running", "ended_at_ms", "body"),
}
_HEAD: Final = (
    *("group_key", "instance", "uid", "finished_cycle", "token_created", "next_id", "is_kept"),
    *("stream", "last_number"),
)
_WRITE_META: Final = """UPDATE meta SET group_key = ?, instance = ?, uid = ?, finished_cycle = ?,
token_created = ?, next_id = ?,
event_count = (SELECT coalesce(sum(event_count), 0) FROM event_block)"""
_WRITE_OUTBOX: Final = """UPDATE outbox SET is_kept = :is_kept, stream = :stream,
last_number = :last_number, last_block = :last_block, written_count = (
    SELECT coalesce(sum(event_count), 0) FROM event_block WHERE seq <= :last_block
)"""
_ALL_IDS: Final = (0, (1 << 63) - 1)


def _named(row: tuple[Any, ...], place: int, values: Any) -> tuple[Any, ...]:
    return (*row[:place], values[row[place]], *row[place + 1 :])


_TO_COMMON: Final[Mapping[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {
    "message": lambda row: (row[0], unpack_message(row[1], row[2])),
    "failure_count": lambda row: _named(row, 1, KINDS),
    "operation_member": lambda row: _named(row, 5, OUTCOMES),
    "original": lambda row: (*row[:6], unpack_message(row[6], row[7])),
}


def _operation(row: tuple[Any, ...]) -> tuple[Any, ...]:
    operation = decode_operation(row[1])
    return row[0], is_working(operation), operation.ended_at_ms, row[1]


_FROM_COMMON: Final[Mapping[str, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = {
    "operation": _operation,
    "operation_member": lambda row: _named(row, 5, OUTCOME_NUMBERS),
    "original": lambda row: (*row[:6], pack_message(row[6]), len(row[6])),
}


class SqliteMove:
    """The `MovedStore` of a file, which it creates where it is missing.

    Args:
        path: the file.
        instance_name: as the target: name of its instance; None = the first of the source that has
            a token.
    """

    def __init__(self, path: Path, instance_name: str | None) -> None:
        self._instance_name = instance_name
        path = path.resolve()
        self._lock = ServiceLock(path.with_name(path.name + ".lock"))
        self._database = SqliteDatabase(
            path,
            read_only=False,
            busy_timeout_ms=_BUSY_TIMEOUT_MS,
            reserve=Reserve(path, 0, SystemClock()),
            passes_fence=True,
        )
        self._database.check_place()
        self._lock.take()
        try:
            self._database.open(instance_name)
            if self.fence() is None and not self._database.is_up_to_date:
                self._database.migrate()
        except BaseException:
            self.close()
            raise
        self.place = self._database.place

    def close(self) -> None:
        """Close, and release the service lock; safe to call twice."""
        self._database.close()
        self._lock.release()

    def fence(self) -> Fence | None:
        with self._database.snapshot():
            return read_fence(self._database)

    def group_key(self) -> bytes:
        return bytes(self._database.rows("read_group_key")[0][0])

    def is_unused(self) -> bool:
        with self._database.snapshot():
            _, cycle, token_created, _, events = self._database.query("read_meta").fetchone()
            newest = self._database.query("newest_id").fetchone()[0]
        return not (cycle or token_created or events or newest)

    def tokens(self) -> set[str]:
        name, _, token_created, *_ = self._database.rows("read_meta")[0]
        return {name} if token_created else set()

    @contextmanager
    def giving_up(self, other: str) -> Iterator[Contents]:
        database = self._database
        with database.transaction(), database.mapped("be moved"):
            first, last = planned_range(database)
            if read_unfinished(database) is not None:
                raise unfinished(self.place, "its last cycle has no end; run the command again")
            if first <= last:
                raise unfinished(
                    self.place, "the journal lacks a planned segment; start the service once"
                )
            yield _SqliteContents(database)
            self._set_fence(Fence(is_source=True, other=other))

    def receive(self, contents: Contents, other: str) -> None:
        database = self._database
        with database.transaction(), database.mapped("be written"):
            for table in (*TABLES, "word", "group_tally", "exhausted_tally"):
                database.run(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            database.forget_texts()
            writer = _SqliteWriter(database)
            for table in TABLES:
                for portion in portions(contents.rows(table)):
                    writer.add(table, portion)
            writer.finish(contents.head, self._instance_name)
            self._set_fence(Fence(is_source=False, other=other))

    def open_up(self) -> None:
        with self._database.transaction(), self._database.mapped("be written"):
            self._database.run("DROP TABLE fence")
            self._database.run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _set_fence(self, fence: Fence) -> None:
        database = self._database
        database.run("CREATE TABLE IF NOT EXISTS fence (is_source INTEGER, other TEXT) STRICT")
        database.run("DELETE FROM fence")
        database.run("INSERT INTO fence VALUES (?, ?)", fence)
        database.run(f"PRAGMA user_version = {FENCED}")


class _SqliteContents:
    """See `Contents`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        key, name, uid, cycle, created, next_id, is_kept, stream, last_number = database.run(
            read_statement(_HEAD, "meta, outbox")
        ).fetchone()
        self.head = MovedHead(
            group_key=bytes(key),
            instances=[MovedInstance(name, uid, cycle, bool(created))],
            next_id=next_id,
            is_kept=bool(is_kept),
            stream=stream,
            last_number=last_number,
        )

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        common = _TO_COMMON.get(table)
        source = _SOURCES.get(table, table)
        select = read_statement(_READ[table], source, _EXPRESSIONS.get(table))
        with closing(self._database.run(select)) as rows:
            yield from rows if common is None else map(common, rows)


class _SqliteWriter:
    """Writes the contents of another store into an empty file, in its transaction."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._last_block = self._next_block = 0
        self._renumbered = dict[int, int]()
        self._failures = Failures(counts={}, groups={})

    def add(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Add rows of a table."""
        if table == "message":
            self._add_messages(rows)
        elif table == "failure_group":
            for group in structs_of(FailureGroup, rows):
                self._failures.groups[group.destination, group.cause_group] = group
        elif table == "failure_count":
            self._failures.counts.update({row[:5]: row[5] for row in rows})
        else:
            if table in ("redelivery", "discarded"):
                rows = self._with_words(rows)
            elif table == "event_block":
                rows = list(map(self._block, rows))
            elif table == "event_key":
                rows = [(key, self._renumbered.get(block, block)) for key, block in rows]
            elif (convert := _FROM_COMMON.get(table)) is not None:
                rows = list(map(convert, rows))
            columns = _WRITTEN[table]
            values = ", ".join("?" * len(columns))
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608
            self._database.run_each(insert, rows)

    def finish(self, head: MovedHead, instance_name: str | None) -> None:
        """Write counts, and the file's own state."""
        database, failures = self._database, self._failures
        for bucket_ms, _, destination, group, _ in failures.counts:
            # Why: counts of a cause whose group is forgotten need one.
            place = destination, group
            failures.groups.setdefault(place, no_deaths(bucket_ms, *place))
        add_failures(database, failures)
        tallies, uses = [], Counter[int]()
        for table in ("redelivery", "discarded"):
            for state, *words, is_final, count in database.query(f"kinds_of_{table}", _ALL_IDS):
                destination, cause_group, final_queue, *_ = words
                for word in filter(None, words):
                    uses[word] += count
                if table == "redelivery":
                    kind = destination, state, count, cause_group, final_queue, is_final
                    tallies.append(TallyDelta(*kind))
        count_rows(database, tallies)
        database.use_words(uses)
        outbox = {"is_kept": head.is_kept, "stream": head.stream}
        numbers = {"last_number": head.last_number, "last_block": self._last_block}
        database.run(_WRITE_OUTBOX, outbox | numbers)
        name, uid, cycle, token_created = instance_for_file(head, instance_name)
        meta = (head.group_key, name, uid, cycle, token_created, head.next_id)
        database.run(_WRITE_META, meta)
        position = f"{max(self._next_block - 1, 0)}/0"
        set_followed(database, position)

    def _add_messages(self, rows: list[tuple[Any, ...]]) -> None:
        for row_id, message in rows:
            body = pack_message(message)
            if len(message) < LARGE_BYTES:
                self._database.query("add_message", (row_id, body))
            else:
                self._database.add_large_message(row_id, body)

    def _with_words(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        texts = {row[place] for row in rows for place in _WORD_PLACES if row[place]}
        words = {None: 0, "": 0} | dict(self._database.intern(texts))
        return [
            tuple(
                words[value] if place in _WORD_PLACES else value for place, value in enumerate(row)
            )
            for row in rows
        ]

    def _block(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a block of events, renumbered after all others if the journal lacks it."""
        seq, *values, is_written = row
        if is_written:
            self._last_block = max(self._last_block, seq)
        elif seq < self._next_block:
            self._renumbered[seq] = self._next_block
            seq = self._next_block
        self._next_block = max(self._next_block, seq + 1)
        return (seq, *values)
