"""One connection to one SQLite file: making it, its transactions, its faults, and its words."""

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from amqsidecar.errors import SchemaMismatch, StoreFull, StoreUnavailable
from amqsidecar.private_files import mend, open_private, sync_folder
from amqsidecar.stores import schema_numbers
from amqsidecar.stores.moving import FENCED, Fence
from amqsidecar.stores.named_queries import read_queries, read_sql
from amqsidecar.stores.packing import storable
from amqsidecar.stores.sqlite.reserve import Reserve

APPLICATION_ID = 0x616D7173  # "amqs": distinguishes our files from those of other programs.
SCHEMA_VERSION = 108
QUERIES = read_queries(
    *map(read_sql, ("sqlite/queries.sql", "sqlite/ledger_queries.sql", "queries.sql"))
)

_MIGRATIONS: Mapping[int, Sequence[str]] = {
    # What the service did; the latest marks are kept.
    # Why IF NOT EXISTS: development versions wrote files of version 101 that have the table.
    schema_numbers.FIRST: (
        """CREATE TABLE IF NOT EXISTS service_mark (
            id INTEGER PRIMARY KEY,
            at_ms INTEGER NOT NULL,
            instance TEXT NOT NULL,
            kind TEXT NOT NULL,
            rules_digest TEXT NOT NULL
        ) STRICT""",
    ),
    # A group is muted until more die of it, and may be merged into another one.
    102: (
        "ALTER TABLE group_note ADD COLUMN muted_deaths INTEGER",
        "ALTER TABLE group_note ADD COLUMN merged_into TEXT NOT NULL DEFAULT ''",
    ),
    # The key of the numbers of groups (`ScheduleView.group_key`).
    103: (
        "ALTER TABLE meta ADD COLUMN group_key BLOB NOT NULL DEFAULT x''",
        "UPDATE meta SET group_key = randomblob(16)",
    ),
    # Values kept by name; one is the position up to which events were followed.
    104: (
        "CREATE TABLE kept_value (name TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT",
        "INSERT INTO kept_value SELECT 'followed', CAST(position AS BLOB) FROM followed",
        "DROP TABLE followed",
    ),
    # Markers of people and deployment pipelines, beside the service's events.
    105: tuple(
        f"ALTER TABLE service_mark ADD COLUMN {name} TEXT NOT NULL DEFAULT ''"
        for name in ("destination", "text", "author")
    ),
    # Held rows that wait for an event outside, which `gate` names, and the reported events.
    106: (
        "DROP INDEX redelivery_gated",
        """CREATE INDEX redelivery_gated ON redelivery (state, destination, gate, due_at_ms)
        WHERE gate IS NOT NULL""",
        """CREATE INDEX redelivery_awaited ON redelivery (gate, state)
        WHERE gate IS NOT NULL AND state = 1""",
        """CREATE INDEX redelivery_awaited_until ON redelivery (due_at_ms, state, gate)
        WHERE gate IS NOT NULL AND state = 1""",
        """CREATE TABLE signal (
            name TEXT PRIMARY KEY,
            at_ms INTEGER NOT NULL,
            author TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX signal_by_age ON signal (at_ms)",
    ),
    # The newest block of events when an event outside was reported.
    107: ("ALTER TABLE signal ADD COLUMN last_block INTEGER NOT NULL DEFAULT 0",),
}
"""Statements that make the next version of a file of this one. `schema.sql` makes the first, and a
new file runs them all."""

_PAGE_BYTES = (
    8192  # Why: six messages of 1 KiB fill a page; with 4096 a quarter of the file is air.
)
# Why not more: the commit that meets a checkpoint waits for all of it, a hundredth of all messages
# at a steady rate. Writing four times as often costs a quarter more bytes and no time.
_CHECKPOINT_BYTES = 4 * 1024 * 1024
_LEFT_TO_OTHERS_BYTES = 32 * 1024 * 1024
_CACHE_KIB = 16 * 1024
_WORDS_CACHED = 10_000
_WORD_CHARACTERS_CACHED = 1 << 20
"""Both ways, of each of about ten connections: strangers name destinations."""
LARGE_BYTES = 1024 * 1024
"""Messages from here on are written and read page by page: SQLite would copy them twice."""
_SQLITE_OLDEST = (3, 38, 0)

_HINTS = {
    sqlite3.SQLITE_BUSY: "another process is writing for too long; find the one that has it open",
    sqlite3.SQLITE_FULL: "the disk is full; make room, nothing was changed",
    sqlite3.SQLITE_READONLY: "check its owner, permissions and mount options",
    sqlite3.SQLITE_CANTOPEN: "check that the file and its folder are readable and writable",
    sqlite3.SQLITE_NOTADB: "it is not an SQLite file; move it away or change store.url",
    sqlite3.SQLITE_CORRUPT: "it is damaged; stop the service and recover the file from a backup or "
    "with `.recover` of the sqlite3 shell",
    sqlite3.SQLITE_IOERR: "the disk reports an error; check the medium and its mount",
    sqlite3.SQLITE_TOOBIG: "a message is larger than SQLite's limit of 1 GB",
}

# Why: a statement takes as long to begin and to end as to add a row and its index entries.
_ROWS_AT_ONCE = 50


@cache
def _of_many_rows(insert: str) -> str:
    """Return an INSERT of one row of values as one of `_ROWS_AT_ONCE`."""
    head, values, row = insert.partition("VALUES ")
    return head + values + ", ".join([row] * _ROWS_AT_ONCE)


# Invariant: these can only come from a defect of amqsidecar, never from the file or the disk.
_BUGS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.IntegrityError)


class SqliteDatabase:
    """One connection to one file, used by one thread; runs named queries.

    Args:
        path: the file; its folder must exist.
        read_only: never create and never write.
        busy_timeout_ms: how long a write waits for another process.
        reserve: gives way before writes where the volume is short.
        passes_fence: this is a move, which a fence does not keep out.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        busy_timeout_ms: int,
        reserve: Reserve,
        passes_fence: bool = False,
    ) -> None:
        self.path = path.resolve()
        self.place = f"the store {self.path}"
        self._read_only = read_only
        self._busy_timeout_ms = busy_timeout_ms
        self._reserve = reserve
        self._passes_fence = passes_fence
        self._connection: sqlite3.Connection | None = None
        self._is_spoiled = False
        self._data_version = 0
        self._word_ids: dict[str, int] = {}
        self._words: dict[int, str] = {}
        self._id_characters = self._word_characters = 0

    @cached_property
    def group_key(self) -> bytes:
        """The key of the numbers of groups; see `ScheduleView.group_key`."""
        return bytes(self.query("read_group_key").fetchone()[0])

    # Opening and closing.

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._connection is not None

    def open(self, instance_name: str | None) -> None:
        """Open the file; create a missing or empty one.

        Raises:
            StoreUnavailable: it can't be opened.
            SchemaMismatch: it was written by an unknown version.
        """
        self.check_place()
        if not self._read_only:
            # Why first: opening makes files, too.
            self._reserve.give_way()
            self._keep_private()
        with self.mapped("be opened"):
            self._connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode={'ro' if self._read_only else 'rwc'}",
                uri=True,
                isolation_level=None,
                timeout=self._busy_timeout_ms / 1000,
            )
        try:
            with self.mapped("be opened"):
                self._prepare(instance_name)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._data_version = 0
        self.forget_texts()
        if connection is not None:
            with self.mapped("be closed"):
                connection.close()

    @property
    def is_short(self) -> bool:
        """Whether the volume is short of space, so that optional data is dropped."""
        return not self._reserve.look().is_enough

    def check_place(self) -> None:
        """Raise StoreUnavailable if such a file can't exist."""
        if sqlite3.sqlite_version_info < _SQLITE_OLDEST:
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old for the store {self.path}; "
                "use a Python that is linked with 3.38 or later"
            )
        with self.mapped("be opened"):
            self._check_names()

    def _check_names(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            raise StoreUnavailable(
                f"the store {self.path} can't be opened: the folder {folder} does not exist; "
                "create it, or change store.url"
            )
        if self.path.is_dir():
            raise StoreUnavailable(
                f"the store {self.path} can't be opened: it is a folder; name a file in store.url"
            )
        if self._read_only and not self.path.exists():
            raise StoreUnavailable(
                f"the store {self.path} does not exist yet; the service creates it when it starts"
            )

    def _keep_private(self) -> None:
        """Make the file if it is missing; make it and its log unreadable to others."""
        # Why made here: SQLite gives its log the mode of the file.
        with suppress(OSError):
            os.close(open_private(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        for end in ("", "-wal", "-shm", ".reserve"):
            mend(self.path.with_name(self.path.name + end))

    def _prepare(self, instance_name: str | None) -> None:
        version = self._schema_version()
        if version is None:
            if self._read_only:
                raise StoreUnavailable(
                    f"the store {self.path} is empty; the service creates the tables when it starts"
                )
            self._create(instance_name)
        elif version != FENCED and self._schema_number(version) > SCHEMA_VERSION:
            raise SchemaMismatch(
                f"the store {self.path} has schema version {version}, this amqsidecar knows "
                f"{SCHEMA_VERSION}: a newer version wrote it; run that version, or change store.url"
            )
        elif version != SCHEMA_VERSION and self._read_only:
            raise StoreUnavailable(
                f"the store {self.path} was written by an older amqsidecar; the service brings it "
                "up to date when it starts"
            )
        self.run("PRAGMA synchronous = FULL")
        self.run("PRAGMA secure_delete = OFF")
        self._checkpoint_at(_CHECKPOINT_BYTES)
        self.run(f"PRAGMA cache_size = -{_CACHE_KIB}")

    def leave_checkpoints_to_others(self) -> None:
        """Do a checkpoint only when the log is longer than the checkpoint thread allows."""
        self._checkpoint_at(_LEFT_TO_OTHERS_BYTES)

    def _checkpoint_at(self, log_bytes: int) -> None:
        log_bytes = min(log_bytes, self._reserve.log_bytes)
        kept_bytes = min(4 * _CHECKPOINT_BYTES, self._reserve.log_bytes)
        self.run(f"PRAGMA wal_autocheckpoint = {max(1, log_bytes // _PAGE_BYTES)}")
        self.run(f"PRAGMA journal_size_limit = {kept_bytes}")

    def _schema_version(self) -> int | None:
        """Return the version of the file; None = it is new."""
        # Why one moment: another process may create the file between two of these reads.
        with self.snapshot():
            application_id = self.run("PRAGMA application_id").fetchone()[0]
            version: int = self.run("PRAGMA user_version").fetchone()[0]
            is_empty = self.run("SELECT 1 FROM sqlite_schema").fetchone() is None
        if application_id == APPLICATION_ID:
            return version
        if application_id == 0 and is_empty:
            return None
        raise StoreUnavailable(
            f"the file {self.path} is a database of another program; change store.url"
        )

    def _schema_number(self, noted: int) -> int:
        """Return `schema_number` of the version in the file."""
        found = self.run("SELECT 1 FROM sqlite_schema WHERE name = 'discarded'").fetchone()
        return schema_numbers.schema_number(
            noted, has_discarded=found is not None, place=f"the store {self.path}"
        )

    def _create(self, instance_name: str | None) -> None:
        self.run(f"PRAGMA page_size = {_PAGE_BYTES}")
        # Why: after a large backlog the file can shrink again, some pages at a time.
        self.run("PRAGMA auto_vacuum = INCREMENTAL")
        self.run("PRAGMA journal_mode = WAL")
        self.run("BEGIN IMMEDIATE")
        try:
            # Invariant: of two processes that create the file at once, the second finds it made.
            if self._schema_version() is None:
                for statement in read_sql("sqlite/schema.sql").split(";\n"):
                    self.run(statement)
                values = (instance_name or secrets.token_hex(4), secrets.token_hex(4))
                self.query("create_meta", values)
                self.run(f"PRAGMA application_id = {APPLICATION_ID}")
                self._run_migrations(schema_numbers.FIRST)
            self.run("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        sync_folder(self.path.parent)

    @property
    def is_up_to_date(self) -> bool:
        """Whether there is nothing to migrate."""
        return self._schema_version() == SCHEMA_VERSION

    def migrate(self) -> None:
        """Make the file one of this version.

        Promise: if the process dies inside, nothing was changed.
        """
        with self.transaction(), self.mapped("be brought up to date"):
            # Invariant: of two processes that come at once, the second finds it done.
            self._run_migrations(self._schema_number(self._schema_version() or SCHEMA_VERSION))

    def _run_migrations(self, version: int) -> None:
        for older in range(version, SCHEMA_VERSION):
            for statement in _MIGRATIONS[older]:
                self.run(statement)
        self.run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    # Transactions.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write; durable when the block is left without an exception, else undone.

        Raises:
            StoreFull: the volume has no space left.
            StoreUnavailable: it can't be written (locked for too long).
        """
        self.expect(not self._connected().in_transaction, "transactions don't nest")
        self._is_spoiled = False
        self._reserve.give_way()
        with self.mapped("be written"):
            self.run("BEGIN IMMEDIATE")
        try:
            with self.mapped("be written"):
                self._notice_others()
            yield
            if self._is_spoiled:
                raise StoreUnavailable(
                    f"the store {self.path} gave up a transaction; nothing was changed"
                )
            with self.mapped("be written"):
                self.run("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read several times from one snapshot."""
        with self.mapped("be read"):
            if self._connected().in_transaction:
                yield
                return
            self.run("BEGIN")
            try:
                self._notice_others()
                yield
            finally:
                self.run("ROLLBACK")

    @contextmanager
    def mapped(self, what: str) -> Iterator[None]:
        """Translate faults of the file to store errors; never commit a transaction that had one.

        Args:
            what: the failed act, as in `the store ... could not be read`.
        """
        try:
            yield
        except _BUGS as error:
            self._is_spoiled = True
            raise AssertionError(f"store {self.path}: {error}") from error
        except sqlite3.Error as error:
            self._is_spoiled = True
            # Why: the upper bits only identify the system call that failed.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            hint = _HINTS.get(code, "nothing was changed")
            fault = StoreUnavailable
            if code == sqlite3.SQLITE_FULL:
                fault = StoreFull
                self._reserve.note_full()
            raise fault(f"the store {self.path} could not {what}: {error}; {hint}") from error
        except OSError as error:
            # Why spelled out: the file may be another one, such as the target of a copy.
            reason = ": ".join(map(str, filter(None, (error.strerror, error.filename))))
            raise StoreUnavailable(f"the store {self.path} could not {what}: {reason}") from error

    def expect(self, condition: bool, rule: str) -> None:
        """Raise an AssertionError when a rule that callers must keep is broken."""
        if not condition:
            raise AssertionError(f"store {self.path}: {rule}")

    def _roll_back(self) -> None:
        # Why: the rolled-back transaction may have made words.
        self.forget_texts()
        if self._connection is not None and self._connection.in_transaction:
            with self.mapped("be rolled back"):
                self._connection.execute("ROLLBACK")

    # Queries.

    def run(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement that has no name."""
        return self._connected().execute(sql, values)

    def run_each(self, sql: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Run a statement that has no name once for each row of values."""
        self._connected().executemany(sql, rows)

    def give_back(self, pages: int) -> None:
        """Return free pages to the disk, in a transaction of its own."""
        # Why a script: it steps to the end, where `execute` stops after the first page.
        self._connected().executescript(f"PRAGMA incremental_vacuum({pages})")

    def cut_log(self) -> None:
        """Write the log into the file and empty it, unless others are using it."""
        self.run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def copy_into(self, other: sqlite3.Connection) -> None:
        """Copy one consistent state of the file; others may write meanwhile."""
        self._connected().backup(other)

    def rows(self, name: str, /, **values: Any) -> list[tuple[Any, ...]]:
        with self._mapped_query():
            return self.query(name, values).fetchall()

    def change(self, name: str, /, **values: Any) -> int:
        with self._mapped_query():
            return self.query(name, values).rowcount

    def queue(self, name: str, /, **values: Any) -> None:
        """Run a named query."""
        self.change(name, **values)

    def text(self, text: str, indexed_characters: int | None = None) -> str:
        """Return a text as the file has it, never cut."""
        return storable(text)

    def _mapped_query(self) -> AbstractContextManager[None]:
        return self.mapped("be written" if self._connected().in_transaction else "be read")

    def query(self, name: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a named query."""
        return self.run(QUERIES[name], values)

    def query_each(self, name: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Run a named query once for each row of values."""
        self.run_each(QUERIES[name], rows)

    def add_each(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a named INSERT once for each row of values."""
        connection, insert = self._connected(), QUERIES[name]
        alone = len(rows) % _ROWS_AT_ONCE
        connection.executemany(insert, rows[:alone])
        for at in range(alone, len(rows), _ROWS_AT_ONCE):
            values = list(chain.from_iterable(rows[at : at + _ROWS_AT_ONCE]))
            connection.execute(_of_many_rows(insert), values)

    def add_large_message(self, row_id: int, body: bytes) -> None:
        """Add the message of a row without a copy in SQLite's memory."""
        self.query("add_room", (row_id, len(body)))
        with self._connected().blobopen("message", "body", row_id) as room:
            room.write(body)

    def large_message(self, row_id: int) -> bytes:
        """Return the message of a row without a copy in SQLite's memory."""
        with self._connected().blobopen("message", "body", row_id, readonly=True) as room:
            return room.read()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise AssertionError(f"store {self.path}: not open")
        return self._connection

    # Words.

    def intern(self, texts: set[str]) -> Mapping[str, int]:
        """Return the numbers of at least these texts; store new texts."""
        numbers = self._word_ids
        if len(numbers) > _WORDS_CACHED or self._id_characters > _WORD_CHARACTERS_CACHED:
            numbers.clear()
            self._id_characters = 0
        for text in texts:
            if text not in numbers:
                stored = storable(text)
                row = self.query("find_word", (stored,)).fetchone()
                row = row or self.query("add_word", (stored,)).fetchone()
                numbers[text] = row[0]
                self._id_characters += len(text)
        return numbers

    def use_words(self, more: Mapping[int, int]) -> None:
        """Add differences to the number of places that have a text, by the number of the text."""
        self.query_each("use_word", [(count, number) for number, count in more.items()])

    def forget_words(self, limit: int) -> None:
        """Remove texts that no row has, up to a limit."""
        self.query("forget_words", (limit,))
        self.forget_texts()

    def _notice_others(self) -> None:
        """Forget the numbers of texts where another connection may have removed some."""
        version = self.run("PRAGMA data_version").fetchone()[0]
        if version != self._data_version:
            if not self._passes_fence and (fence := read_fence(self)) is not None:
                raise fence.refusal(self.place)
            self._data_version = version
            self.forget_texts()

    def word(self, number: int) -> str:
        """Return the text of a number."""
        text = self._words.get(number)
        if text is None:
            is_full = self._word_characters > _WORD_CHARACTERS_CACHED
            if is_full or len(self._words) > _WORDS_CACHED:
                self._words.clear()
                self._word_characters = 0
            text = str(self.query("read_word", (number,)).fetchone()[0])
            self._words[number] = text
            self._word_characters += len(text)
        return text

    def find_word(self, text: str) -> int:
        """Return the number of a text; -1 = no row has it."""
        row = self.query("find_word", (storable(text),)).fetchone()
        return row[0] if row else -1

    def forget_texts(self) -> None:
        """Forget the numbers of texts, because the table of words changed."""
        self._word_ids.clear()
        self._words.clear()
        self._id_characters = self._word_characters = 0


def read_fence(database: SqliteDatabase) -> Fence | None:
    """Return why no program may use a file; None = it has no fence."""
    if database.run("PRAGMA user_version").fetchone()[0] != FENCED:
        return None
    is_source, other = database.run("SELECT is_source, other FROM fence").fetchone()
    return Fence(bool(is_source), other)
