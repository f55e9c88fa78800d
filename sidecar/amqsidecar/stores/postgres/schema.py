"""Migrations of the PostgreSQL schema; programs of two versions can run side by side.

`NNNN_pre_*.sql` only adds what older programs may ignore, also where they settle the last cycle of
a newer program; the first program that knows it runs it at its start. `NNNN_post_*.sql` removes
what only older programs need; it is run as soon as no older program is an instance any more. Each
file runs in one transaction with the note that it ran.

`NNNN_index_<name>.sql` makes an optional index: at once if the schema is new, else concurrently
with the sidecars' work, because millions of rows take long.
"""

import re
from contextlib import suppress
from importlib import resources
from importlib.resources.abc import Traversable

from amqsidecar.errors import SchemaMismatch, StoreUnavailable
from amqsidecar.stores.moving import FENCED, Fence
from amqsidecar.stores.postgres.database import PostgresDatabase
from amqsidecar.stores.schema_numbers import FIRST, schema_number

MIGRATIONS = resources.files(__package__) / "migrations"

_FILE = re.compile(r"(\d{4})_(pre|post|index)_(\w+)\.sql")


class Schema:
    """The schema as one version of the program knows it.

    Args:
        database: an open database.
        folder: the migrations that the program knows.
    """

    def __init__(self, database: PostgresDatabase, name: str, folder: Traversable) -> None:
        self._database = database
        self._name = name
        files = sorted(
            (int(match[1]), match[2], match[3], file)
            for file in folder.iterdir()
            if (match := _FILE.fullmatch(file.name)) is not None
        )
        self._pre = [(number, file) for number, kind, _, file in files if kind == "pre"]
        self._post = [(number, file) for number, kind, _, file in files if kind == "post"]
        self._indexes = {name: file for _, kind, name, file in files if kind == "index"}
        self.version = max(number for number, _ in self._pre)

    def prepare(self, *, read_only: bool) -> None:
        """Bring the schema up to this program's version, and tidy up after older programs.

        Promise: safe to call again, and by several processes at once. If the process dies inside,
        the schema is whole.

        Raises:
            StoreUnavailable: it does not exist and may not be made, or can't be changed now.
            SchemaMismatch: this program is too old for it, or too new.
        """
        found = self._read()
        if found is not None:
            self._number(found[0])
        if found is None and read_only:
            raise StoreUnavailable(
                f"{self._database.place} is empty; the service creates the tables when it starts"
            )
        if found is not None and found[0] < self.version and read_only:
            raise StoreUnavailable(
                f"{self._database.place} has the version {found[0]} still, this amqsidecar needs "
                f"{self.version}; the service brings it there when it starts"
            )
        if found is None or found[0] < self.version:
            self._migrate()
            found = self._read() or (0, 0)
        version, oldest_program = found
        self._check(oldest_program)
        if not read_only and any(oldest_program < number <= version for number, _ in self._post):
            # Why: it is optional, and the next process that opens the store tries again.
            with suppress(StoreUnavailable):
                self._tidy()

    def guard(self) -> None:
        """Keep other programs from removing parts of the schema until the transaction ends.

        Raises:
            SchemaMismatch: one did so before.
        """
        self._check(self._database.rows("guard_schema")[0][0])

    def make_indexes(self) -> None:
        """Make missing indexes without blocking others; may take minutes.

        Promise: safe to call again, and by several processes at once: one does it. If the process
        dies inside, the next call makes everything again.
        """
        database = self._database
        for name, file in self._indexes.items():
            made = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid"
            if database.run(made, name):
                continue
            with database.at_leisure("indexes") as is_ours:
                if not is_ours:
                    return
                database.run(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
                database.run(_text(file).format(concurrently="CONCURRENTLY"))

    def _check(self, oldest_program: int) -> None:
        if oldest_program == FENCED and (fence := read_fence(self._database)) is not None:
            raise fence.refusal(self._database.place)
        if oldest_program > self.version:
            raise SchemaMismatch(
                f"{self._database.place} is in use by newer programs and needs one that knows its "
                f"version {oldest_program}; this amqsidecar knows {self.version}: run a newer one"
            )

    def _read(self) -> tuple[int, int] | None:
        """Return the version in it and the oldest program that can use it; None = not made yet."""
        database = self._database
        if not database.run("SELECT 1 WHERE to_regclass('schema_version') IS NOT NULL"):
            return None
        (row,) = database.run("SELECT version, oldest_program FROM schema_version")
        return row[0], row[1]

    def _migrate(self) -> None:
        database = self._database
        with database.transaction():
            database.rows("lock", lock=database.advisory_lock("schema"))
            if self._read() is None:
                self._create()
            found = self._read()
            if found is not None and found[0] >= self.version:
                return
            version = 0 if found is None else self._number(found[0])
            for number, file in self._pre:
                if number > version:
                    self._apply(file)
            if found is None:
                database.run(
                    "INSERT INTO schema_version VALUES (true, %s, %s)", self.version, FIRST
                )
                for file in self._indexes.values():
                    database.run(_text(file).format(concurrently=""))
            else:
                database.run("UPDATE schema_version SET version = %s", self.version)

    def _number(self, noted: int) -> int:
        """Return `schema_number` of the version in the schema."""
        query = "SELECT to_regclass('discarded') IS NOT NULL"
        ((has_discarded,),) = self._database.run(query)
        return schema_number(noted, has_discarded=has_discarded, place=self._database.place)

    def _create(self) -> None:
        database = self._database
        # Why asked first: making it where it exists takes a right on the database all the same.
        if not database.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", self._name):
            database.run(f'CREATE SCHEMA "{self._name}"')

    def _tidy(self) -> None:
        """Run changes that older programs can't use, if none of them is an instance now."""
        database = self._database
        with database.transaction():
            database.rows("lock", lock=database.advisory_lock("schema"))
            # Invariant: whatever becomes an instance reads this row locked, before or after us.
            version, oldest_program = database.run(
                "SELECT version, oldest_program FROM schema_version FOR UPDATE"
            )[0]
            (alive,) = database.rows("oldest_program")[0]
            for number, file in self._post:
                if oldest_program < number <= version and (alive is None or alive >= number):
                    self._apply(file)
                    database.run("UPDATE schema_version SET oldest_program = %s", number)

    def _apply(self, file: Traversable) -> None:
        database = self._database
        # Why: an index on many rows takes its time, but others queue up behind a lock on a table.
        database.run("SET LOCAL statement_timeout = 0")
        database.run("SET LOCAL lock_timeout = '2s'")
        with database.patience():
            database.run(_text(file))


def read_fence(database: PostgresDatabase) -> Fence | None:
    """Return why no program may use a schedule; None = it has no fence."""
    if not database.run("SELECT 1 WHERE to_regclass('fence') IS NOT NULL"):
        return None
    return Fence(*database.run("SELECT is_source, other FROM fence")[0])


def _text(file: Traversable) -> str:
    return file.read_text(encoding="utf-8")
