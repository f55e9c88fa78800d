"""Migrations of the PostgreSQL schema: programs of two versions work side by side."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from amqsidecar.errors import SchemaMismatch, StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.marker import ServiceMark, ServiceMarkKind
from amqsidecar.model.schedule import RowFilter
from amqsidecar.stores.postgres import database as postgres_database
from amqsidecar.stores.postgres.schema import MIGRATIONS
from amqsidecar.stores.postgres.store import PostgresStore
from support.stores.rows import take_rows, taken_row
from support.virtual_clock import VirtualClock
from support.waiting import eventually

MakeStore = Callable[..., PostgresStore]
VERSION = 110
OLDEST = 101
NEWER = VERSION + 1


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The migrations of a program that adds a column and an index, and drops what the old needs."""
    folder = tmp_path / "migrations"
    shutil.copytree(str(MIGRATIONS), folder)
    added = "ALTER TABLE redelivery ADD COLUMN priority smallint NOT NULL DEFAULT 4;\n"
    added += "CREATE INDEX redelivery_by_priority ON redelivery (priority, id);\n"
    (folder / f"{NEWER:04}_pre_priority.sql").write_text(added)
    (folder / f"{NEWER:04}_post_reason.sql").write_text(
        "ALTER TABLE redelivery DROP COLUMN reason;\n"
    )
    return folder


@pytest.fixture
def make(postgres_url: str) -> Iterator[MakeStore]:
    made = list[PostgresStore]()

    def make_store(**options: Any) -> PostgresStore:
        made.append(PostgresStore(postgres_url, clock=VirtualClock(), **options))
        return made[-1]

    yield make_store
    for store in made:
        store.close()


def service(make: MakeStore, **options: Any) -> PostgresStore:
    store = make(**options)
    store.lock_for_service()
    store.open()
    return store


def schema_of(store: PostgresStore) -> tuple[int, int]:
    """Return the version, and the oldest program that can use it."""
    return store._database.run("SELECT version, oldest_program FROM schema_version")[0]


def columns(store: PostgresStore) -> set[str]:
    query = "SELECT attname FROM pg_attribute WHERE attrelid = 'redelivery'::regclass"
    return {name for (name,) in store._database.run(query + " AND NOT attisdropped")}


def run_cycle(store: PostgresStore, row_id: int) -> None:
    """Take a row, list it, hold it, and let it go again: all that the old program does."""
    cycle = store.open().cycle + 1
    take_rows(store, cycle, [taken_row(row_id)])
    assert store.change(RowFilter(ids=(row_id,)), row_changes.hold(5, "ann")) == 1
    assert store.list_rows(RowFilter(ids=(row_id,)), 1)[0].reason == "held by ann"
    assert store.change(RowFilter(ids=(row_id,)), row_changes.release(5, "ann")) == 1
    with store.transaction() as tx:
        assert row_id in [row.id for row in tx.claim_due(10_000, 9)]


def test_many_that_start_on_an_empty_database_all_succeed(make: MakeStore) -> None:
    stores = [make() for _ in range(6)]
    for store in stores:
        store.lock_for_service()
    with ThreadPoolExecutor(6) as pool:
        states = list(pool.map(lambda store: store.open(), stores))
    assert len({state.instance for state in states}) == 6
    assert schema_of(stores[0]) == (VERSION, OLDEST)


def test_a_rolling_update_breaks_no_sidecar(make: MakeStore, newer: Path) -> None:
    old = service(make)
    run_cycle(old, 1)
    new = service(make, migrations=newer)
    assert schema_of(new) == (NEWER, OLDEST)
    assert {"priority", "reason"} <= columns(new)
    run_cycle(old, 2)
    run_cycle(new, 3)
    # An old one that is restarted meanwhile is welcome, too.
    old.close()
    old.open()
    run_cycle(old, 4)
    make(migrations=newer).open()
    assert schema_of(old) == (NEWER, OLDEST)
    old.close()
    looking = make(migrations=newer, read_only=True)
    looking.open()
    assert schema_of(looking) == (NEWER, OLDEST)
    # The recurring work of the new one opens the store again and again.
    make(migrations=newer).open()
    assert schema_of(new) == (NEWER, NEWER)
    assert "reason" not in columns(new)
    assert new.next_due_ms() == 1_000
    for read_only in (False, True):
        with pytest.raises(SchemaMismatch, match=f"knows its version {NEWER}; .* knows {VERSION}:"):
            make(read_only=read_only).open()
    with pytest.raises(SchemaMismatch):
        old.open()


def test_a_schema_of_the_first_version_serves_programs_of_both(
    make: MakeStore, tmp_path: Path
) -> None:
    for file in Path(str(MIGRATIONS)).glob(f"{OLDEST:04}_*"):
        shutil.copy(file, tmp_path)
    old = service(make, migrations=tmp_path)
    run_cycle(old, 1)
    assert schema_of(old) == (OLDEST, OLDEST)

    new = service(make)
    assert schema_of(new) == (VERSION, OLDEST)
    started = ServiceMark(at_ms=1, instance="a", kind=ServiceMarkKind.START, rules_digest="one")
    new.add_service_mark(started)
    assert new.latest_starts() == [started]
    run_cycle(old, 2)
    run_cycle(new, 3)


@pytest.mark.parametrize(("noted", "reached"), [(1, 101), (3, 103)])
def test_a_schema_of_a_development_version_gets_its_number_when_no_older_program_runs(
    noted: int, reached: int, make: MakeStore, tmp_path: Path
) -> None:
    for file in Path(str(MIGRATIONS)).iterdir():
        if int(file.name[:4]) <= reached:
            shutil.copy(file, tmp_path)
    old = service(make, migrations=tmp_path)
    run_cycle(old, 1)
    old._database.run("UPDATE schema_version SET version = %s, oldest_program = 1", noted)
    old._database.run("UPDATE instance SET program = %s WHERE number > 0", noted)
    with pytest.raises(StoreUnavailable, match=f"has the version {noted} still"):
        make(read_only=True).open()

    new = service(make)
    assert schema_of(new) == (VERSION, 1)
    run_cycle(old, 2)
    run_cycle(new, 3)
    old.close()
    make().open()
    assert schema_of(new) == (VERSION, OLDEST)


# As the program of commit f91f798 leaves it, reduced to what the check reads.
EARLY = """
CREATE SCHEMA amqsidecar;
CREATE TABLE amqsidecar.schema_version (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL,
    oldest_program integer NOT NULL
);
INSERT INTO amqsidecar.schema_version VALUES (true, 5, 3);
"""


@pytest.mark.parametrize("version", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_schema_of_an_early_development_version_is_refused_with_the_way_out(
    version: int, read_only: bool, make: MakeStore, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(EARLY)
        connection.execute("UPDATE amqsidecar.schema_version SET version = %s", (version,))
    with pytest.raises(SchemaMismatch, match="early development version"):
        make(read_only=read_only).open()
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT version FROM amqsidecar.schema_version").fetchall() == [
            (version,)
        ]


def test_a_crashed_migration_leaves_the_schema_as_it_was(make: MakeStore, newer: Path) -> None:
    old = service(make)
    with (newer / f"{NEWER:04}_pre_priority.sql").open("a") as file:
        file.write("CREATE TABLE hold (source text);\n")
    with pytest.raises((AssertionError, StoreUnavailable)):
        service(make, migrations=newer)
    assert schema_of(old) == (VERSION, OLDEST)
    assert "priority" not in columns(old)
    run_cycle(old, 1)


def test_looking_changes_no_schema(make: MakeStore, newer: Path) -> None:
    make().open()
    with pytest.raises(StoreUnavailable, match="the service brings it there when it starts"):
        make(migrations=newer, read_only=True).open()


def test_what_breaks_older_programs_waits_also_for_a_busy_one(make: MakeStore, newer: Path) -> None:
    old = make()
    old.open()
    run_cycle(old, 1)
    with old.transaction() as tx:
        tx.claim_due(10_000, 9)
        (newer / f"{NEWER:04}_pre_priority.sql").write_text("SELECT 1;\n")
        new = service(make, migrations=newer)
        assert schema_of(new) == (NEWER, OLDEST)
    make(migrations=newer).open()
    assert schema_of(new) == (NEWER, NEWER)


def test_a_migration_may_take_longer_than_a_statement(
    make: MakeStore, newer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "_GRACE_S", 0.1)
    make().open()
    (newer / f"{NEWER:04}_pre_priority.sql").write_text("SELECT pg_sleep(4);\n")
    store = service(make, migrations=newer, statement_timeout_s=2)
    assert schema_of(store)[0] == NEWER
    with pytest.raises(StoreUnavailable):
        store._database.run("SELECT pg_sleep(4)")


def test_a_migration_that_has_to_wait_gives_up_and_blocks_no_sidecar(
    make: MakeStore, newer: Path
) -> None:
    old = service(make)
    run_cycle(old, 1)
    with old.transaction() as tx:
        tx.claim_due(10_000, 9)
        with pytest.raises(StoreUnavailable, match="another process is writing for too long"):
            service(make, migrations=newer)
    run_cycle(old, 2)
    service(make, migrations=newer)
    run_cycle(old, 3)


def indexes(store: PostgresStore) -> set[str]:
    query = "SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid"
    return {name for (name,) in store._database.run(query)}


def test_an_index_is_made_later_where_many_wait_and_blocks_no_sidecar(
    make: MakeStore, newer: Path
) -> None:
    (newer / f"{NEWER:04}_index_redelivery_by_cause.sql").write_text(
        "CREATE INDEX {concurrently} IF NOT EXISTS redelivery_by_cause ON redelivery (cause);\n"
    )
    old = service(make)
    run_cycle(old, 1)
    new = service(make, migrations=newer)
    assert "redelivery_by_cause" not in indexes(new)
    # One that was left half made, as by a process that died.
    new._database.run("CREATE INDEX redelivery_by_cause ON redelivery (cause)")
    new._database.run(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'redelivery_by_cause'::regclass"
    )
    person = make(migrations=newer)
    person.open()
    with ThreadPoolExecutor(1) as pool:
        with old.transaction() as tx:
            tx.claim_due(10_000, 9)
            making = pool.submit(person.forget_ledger, 0, 0, 9)
            waiting = (
                "SELECT 1 FROM pg_stat_activity WHERE query LIKE %s AND wait_event IS NOT NULL"
            )
            wanted = "%INDEX CONCURRENTLY%redelivery_by_cause%"
            eventually(lambda: bool(new._database.run(waiting, wanted)), what="it is being made")
            new.forget_ledger(0, 0, 9)
            run_cycle(new, 2)
        assert making.result(60) == 0
    assert "redelivery_by_cause" in indexes(new)
    assert {"redelivery_by_group", "redelivery_kept_due"} <= indexes(new)
    assert person._database.run("SHOW lock_timeout") != [("0",)]
