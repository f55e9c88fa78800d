"""A file of an older version: read as it is, brought up to date by a writer, or left alone."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.errors import StoreUnavailable
from amqsidecar.model.schedule import RowFilter
from amqsidecar.stores import sqlite_database, sqlite_transaction
from amqsidecar.stores.sqlite_store import SqliteStore
from support.schedule_rows import taken_row, took
from support.virtual_clock import VirtualClock

LARGE = b"<order>text that repeats itself</order>" * 1_000


def store_at(path: Path, *, read_only: bool = False) -> SqliteStore:
    return SqliteStore(path, clock=VirtualClock(), read_only=read_only)


def take(store: SqliteStore, cycle: int) -> None:
    with store.transaction() as tx:
        tx.record_cycle(cycle, [taken_row(cycle, message=LARGE)], [], [])
        tx.finish_cycle(cycle)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture
def version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file as version 2 wrote it: no message is deflated."""
    path = tmp_path / "schedule.db"
    store = store_at(path)
    store.open()
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_transaction, "pack_message", lambda message: message)
        take(store, 1)
    store.close()
    make_older(path, 2)
    return path


def make_older(path: Path, version: int) -> None:
    """Take out of a closed file what came after a version."""
    with closing(sqlite3.connect(path)) as database:
        for table in ("outbox", "journal_segment"):
            database.execute(f"DROP TABLE {table}")
        database.execute("ALTER TABLE redelivery DROP COLUMN cause_group")
        database.execute(f"PRAGMA user_version = {version}")


def schema_of(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as database:
        return set(database.execute("SELECT name, sql FROM sqlite_schema").fetchall())


def test_what_an_older_version_wrote_is_read_beside_what_this_one_writes(version_2: Path) -> None:
    store = store_at(version_2)
    store.open()
    take(store, 2)
    with store.transaction() as tx:
        claimed = [row.message for row in tx.claim_due(10**9, 10)]

    assert claimed == [store.message(1), store.message(2)] == [LARGE, LARGE]
    assert version_of(version_2) == 5
    store.close()


def test_looking_changes_nothing(version_2: Path) -> None:
    store = store_at(version_2, read_only=True)
    store.open()

    assert store.message(1) == LARGE
    assert store.count_rows(RowFilter()) == 1
    assert version_of(version_2) == 2
    store.close()


def test_a_file_that_a_service_of_an_older_version_uses_is_left_alone(version_2: Path) -> None:
    service = store_at(version_2)
    service.lock_for_service()
    with pytest.raises(StoreUnavailable, match=f"another service, process {os.getpid()} "):
        store_at(version_2).open()
    assert version_of(version_2) == 2

    service.open()

    assert version_of(version_2) == 5
    service.close()


@pytest.mark.parametrize("version", [2, 3])
def test_the_history_of_an_older_version_goes_into_the_journal(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "schedule.db"
    store = store_at(path)
    store.open()
    with store.transaction() as tx:
        tx.record([took(taken_row(1))])
    store.close()
    new_schema = schema_of(path)
    make_older(path, version)

    store.open()
    assert schema_of(path) == new_schema
    assert store.outbox_lag().events == 1
    segment = store.plan_segment(10)
    assert segment is not None
    assert list(store.segment_events(segment)) == [[took(taken_row(1))]]
    store.close()


def test_a_migration_that_ends_half_way_changes_nothing(
    version_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: dict[int, Sequence[str]] = {2: ("CREATE TABLE half (x)", "DROP TABLE missing")}
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_database, "_MIGRATIONS", steps)
        with pytest.raises(StoreUnavailable, match="no such table: missing"):
            store_at(version_2).open()
    with closing(sqlite3.connect(version_2)) as database:
        assert database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'half'").fetchall() == []
    assert version_of(version_2) == 2

    store = store_at(version_2)
    store.open()
    assert store.message(1) == LARGE
    store.close()
