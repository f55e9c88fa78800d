"""A file of an older version: brought up to date by a writer, or left alone."""

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.errors import SchemaMismatch, StoreUnavailable
from amqsidecar.model.marker import ServiceMark, ServiceMarkKind
from amqsidecar.stores import schema_numbers
from amqsidecar.stores.named_queries import read_sql
from amqsidecar.stores.sqlite import database as sqlite_database
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import take_rows, taken_row
from support.virtual_clock import VirtualClock

OLD = sqlite_database.SCHEMA_VERSION
NEW = OLD + 1
ADDS_COLUMN = ("ALTER TABLE redelivery ADD COLUMN priority INTEGER NOT NULL DEFAULT 4",)


def store_at(path: Path, *, read_only: bool = False) -> SqliteStore:
    return SqliteStore(path, clock=VirtualClock(), read_only=read_only)


def take(store: SqliteStore, cycle: int) -> None:
    take_rows(store, cycle, [taken_row(cycle)])


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def note_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {version}")


def columns(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {row[1] for row in database.execute("PRAGMA table_info(redelivery)")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of this version with one row."""
    path = tmp_path / "schedule.db"
    store = store_at(path)
    store.open()
    take(store, 1)
    store.close()
    return path


@pytest.fixture
def newer(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, while the program is newer and knows one more column."""
    monkeypatch.setattr(sqlite_database, "SCHEMA_VERSION", NEW)
    monkeypatch.setattr(sqlite_database, "_MIGRATIONS", {OLD: ADDS_COLUMN})
    return path


def test_a_writer_brings_it_up_to_date_and_keeps_what_is_in_it(newer: Path) -> None:
    store = store_at(newer)
    store.open()
    take(store, 2)
    with store.transaction() as tx:
        claimed = [row.message for row in tx.claim_due(10**9, 10)]
    store.close()

    assert claimed == [taken_row(1).message, taken_row(2).message]
    assert (version_of(newer), "priority" in columns(newer)) == (NEW, True)
    store.open()
    store.close()


STARTED = ServiceMark(at_ms=1, instance="a", kind=ServiceMarkKind.START, rules_digest="one")


def schema(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return {(name, " ".join(words.split())) for name, words in found}


@pytest.mark.parametrize("noted", [schema_numbers.FIRST, 1])
def test_a_file_of_the_first_version_opens_and_equals_a_new_one(
    noted: int, tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "first.db"
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_database, "SCHEMA_VERSION", schema_numbers.FIRST)
        store = store_at(old)
        store.open()
        take(store, 1)
        store.close()
    assert (version_of(old), "service_mark" in dict(schema(old))) == (schema_numbers.FIRST, False)
    note_version(old, noted)

    store = store_at(old)
    store.open()
    store.add_service_mark(STARTED)
    assert store.latest_starts() == [STARTED]
    assert store.message(1) == taken_row(1).message
    store.close()
    assert (version_of(old), schema(old)) == (OLD, schema(path))


@pytest.mark.parametrize("noted", [schema_numbers.FIRST, 1, 2])
def test_a_file_of_the_first_version_that_has_the_new_table_keeps_it(
    noted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "second.db"
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_database, "SCHEMA_VERSION", schema_numbers.FIRST + 1)
        store = store_at(path)
        store.open()
        store.close()
    with closing(sqlite3.connect(path)) as database, database:
        values = (STARTED.at_ms, STARTED.instance, STARTED.kind.value, STARTED.rules_digest)
        database.execute(
            "INSERT INTO service_mark (at_ms, instance, kind, rules_digest) VALUES (?, ?, ?, ?)",
            values,
        )
    note_version(path, noted)
    store.open()
    assert store.latest_starts() == [STARTED]
    store.close()
    assert version_of(path) == OLD


def test_looking_changes_nothing_and_names_the_migrating_command(newer: Path) -> None:
    with pytest.raises(StoreUnavailable, match="older amqsidecar; the service brings it up to"):
        store_at(newer, read_only=True).open()
    assert version_of(newer) == OLD


def test_a_file_that_a_service_of_an_older_version_uses_is_left_alone(newer: Path) -> None:
    service = store_at(newer)
    service.lock_for_service()
    with pytest.raises(StoreUnavailable, match=f"another service, process {os.getpid()} "):
        store_at(newer).open()
    assert version_of(newer) == OLD

    service.open()
    assert version_of(newer) == NEW
    service.close()


def test_a_migration_that_ends_half_way_changes_nothing(
    newer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        steps = {OLD: (*ADDS_COLUMN, "DROP TABLE missing")}
        patched.setattr(sqlite_database, "_MIGRATIONS", steps)
        with pytest.raises(StoreUnavailable, match="no such table: missing"):
            store_at(newer).open()
    assert (version_of(newer), "priority" in columns(newer)) == (OLD, False)

    store = store_at(newer)
    store.open()
    assert store.message(1) == taken_row(1).message
    store.close()


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    note_version(path, NEW)
    with pytest.raises(SchemaMismatch, match=f"{NEW}, .* knows {OLD}: a newer version wrote it"):
        store_at(path).open()
    assert version_of(path) == NEW


# Why these numbers: 1 and 2 stood for other schemas, too, and 12 was the last before those.
@pytest.mark.parametrize("version", [0, 1, 2, 8, 12])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_an_early_development_version_is_refused_with_the_way_out(
    version: int, read_only: bool, tmp_path: Path
) -> None:
    path = tmp_path / "early.db"
    dump = Path(__file__).with_name("f91f798.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(dump)
    assert version_of(path) == 8
    note_version(path, version)
    before = path.read_bytes()

    with pytest.raises(SchemaMismatch, match="early development version"):
        store_at(path, read_only=read_only).open()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("file", "digest"),
    [
        ("sqlite/schema.sql", "97b927671c7e8181"),
        ("postgres/migrations/0101_pre_schema.sql", "6cece155b2b3ad8b"),
        ("postgres/migrations/0102_pre_service_mark.sql", "8e5153bcc8674f6d"),
    ],
)
def test_a_schema_that_stores_were_made_by_never_changes(file: str, digest: str) -> None:
    statements = "".join(
        line.partition("--")[0] for line in read_sql(file).splitlines(keepends=True)
    )
    words = " ".join(statements.split())
    assert hashlib.sha256(words.encode()).hexdigest()[:16] == digest, "write a migration"
