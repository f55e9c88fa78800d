"""A file of an older version: brought up to date by a writer, or left alone."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.errors import SchemaMismatch, StoreUnavailable
from amqsidecar.stores.sqlite import database as sqlite_database
from amqsidecar.stores.sqlite.store import SqliteStore
from support.schedule_rows import taken_row
from support.virtual_clock import VirtualClock

OLD = sqlite_database.SCHEMA_VERSION
NEW = OLD + 1
ADDS_COLUMN = ("ALTER TABLE redelivery ADD COLUMN priority INTEGER NOT NULL DEFAULT 4",)


def store_at(path: Path, *, read_only: bool = False) -> SqliteStore:
    return SqliteStore(path, clock=VirtualClock(), read_only=read_only)


def take(store: SqliteStore, cycle: int) -> None:
    with store.transaction() as tx:
        tx.record_cycle(cycle, [taken_row(cycle)], [], [])
        tx.finish_cycle(cycle)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


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


def test_who_only_looks_changes_nothing_and_hears_who_will(newer: Path) -> None:
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


@pytest.mark.parametrize("version", [0, OLD + 1])
def test_a_file_of_an_unknown_version_is_refused(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(SchemaMismatch, match=f"has schema version {version}, .* knows {OLD}; run"):
        store_at(path).open()
    assert version_of(path) == version
