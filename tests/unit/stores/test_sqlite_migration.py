"""A file of an older version: read as it is, brought up to date by a writer, or left alone."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from amqsidecar.errors import StoreUnavailable
from amqsidecar.ledger import RowOrder
from amqsidecar.model import row_changes
from amqsidecar.model.failure import CountKind
from amqsidecar.model.note import GroupNote
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.stores.named_queries import read_sql
from amqsidecar.stores.packing import unpack_deltas
from amqsidecar.stores.sqlite import changes as sqlite_changes
from amqsidecar.stores.sqlite import database as sqlite_database
from amqsidecar.stores.sqlite.store import SqliteStore
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
        patched.setattr(sqlite_changes, "pack_message", lambda message: message)
        take(store, 1)
    store.close()
    make_older(path, 2)
    return path


def make_older(path: Path, version: int) -> None:
    """Replace a closed file by one of an older version that holds the same."""
    older, files = path.with_suffix(".older"), ["sqlite/schema.sql", "sqlite/outbox.sql"]
    with closing(sqlite3.connect(older)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        for file_name in files[: 2 if version >= 4 else 1]:
            database.executescript(read_sql(file_name))
        database.execute("ATTACH ? AS newer", (str(path),))
        for table in ("meta", "word", "redelivery", "message", "hold", "event_block", "event_key"):
            columns = ", ".join(row[1] for row in database.execute(f"PRAGMA table_info({table})"))
            database.execute(f"INSERT INTO {table} SELECT {columns} FROM newer.{table}")
        database.execute(
            "INSERT INTO tally SELECT destination, state, sum(count) FROM newer.group_tally "
            "GROUP BY destination, state"
        )
        for row in database.execute("SELECT * FROM newer.unfinished_cycle").fetchall():
            *head, taken_tally, holds, event_block, _failures, _final, _renamed = row
            taken = msgspec.msgpack.encode([one[:3] for one in unpack_deltas(taken_tally)])
            values = (*head, taken, b"\x90", holds, event_block)
            database.execute(
                f"INSERT INTO unfinished_cycle VALUES ({', '.join('?' * len(values))})", values
            )
        database.execute(f"PRAGMA application_id = {sqlite_database.APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {version}")
        database.commit()
    older.replace(path)


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
    assert version_of(version_2) == sqlite_database.SCHEMA_VERSION
    store.close()


def test_who_only_looks_changes_nothing_and_hears_who_will(version_2: Path) -> None:
    with pytest.raises(StoreUnavailable, match="older amqsidecar; the service brings it up to"):
        store_at(version_2, read_only=True).open()

    assert version_of(version_2) == 2


def test_a_file_that_a_service_of_an_older_version_uses_is_left_alone(version_2: Path) -> None:
    service = store_at(version_2)
    service.lock_for_service()
    with pytest.raises(StoreUnavailable, match=f"another service, process {os.getpid()} "):
        store_at(version_2).open()
    assert version_of(version_2) == 2

    service.open()

    assert version_of(version_2) == sqlite_database.SCHEMA_VERSION
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


def test_rows_that_came_before_causes_were_grouped_have_no_group(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    store = store_at(path)
    store.open()
    states = [RowState.WAITING, RowState.HELD, RowState.WAITING]
    rows = [taken_row(number, state=state) for number, state in enumerate(states, 1)]
    with store.transaction() as tx:
        tx.record_cycle(1, rows, [], [took(row) for row in rows])
        tx.finish_cycle(1)
        tx.record_cycle(2, [taken_row(4)], tx.claim_due(10**6, 1), [took(taken_row(4))])
    store.close()
    make_older(path, 4)

    store.open()
    tallies = {tally.state: tally.count for tally in store.group_tallies()}
    assert tallies == {RowState.WAITING: 2, RowState.HELD: 1}
    with store.transaction() as tx:
        tx.finish_cycle(2)

    assert [row.id for row in store.list_rows(RowFilter(cause_group=""), 10)] == [2, 3, 4]
    assert store.count_rows(RowFilter(cause_group="")) == 3
    held = RowFilter(state=RowState.HELD)
    assert [row.id for row in store.page_rows(held, RowOrder.DUE, 10).rows] == [2]
    assert store.act(RowFilter(), row_changes.retry(7, "ann")) == 3
    assert [(one.cause_group, one.count) for one in store.group_tallies()] == [("", 3)]
    assert store.failure_counts(0, 10**9, list(CountKind)) == []
    store.close()


WITHOUT_RECALL = """
DROP TABLE discarded;
DROP INDEX redelivery_recall;
ALTER TABLE redelivery DROP COLUMN recall;
ALTER TABLE redelivery DROP COLUMN recall_operation;
ALTER TABLE unfinished_cycle DROP COLUMN renamed;
"""

WITHOUT_OWNERS = f"""
{WITHOUT_RECALL}
ALTER TABLE group_note DROP COLUMN owner;
ALTER TABLE group_note DROP COLUMN snoozed_until_ms;
"""

WITHOUT_EXHAUSTED = f"""
{WITHOUT_OWNERS}
DROP INDEX redelivery_exhausted;
DROP TABLE exhausted_tally;
ALTER TABLE redelivery DROP COLUMN final_queue;
ALTER TABLE unfinished_cycle DROP COLUMN final_runs;
"""

WITHOUT_GROUPS = f"""
{WITHOUT_EXHAUSTED}
DROP INDEX redelivery_in_order;
ALTER TABLE redelivery DROP COLUMN message_group;
"""

WITHOUT_GATES = f"""
{WITHOUT_GROUPS}
DROP INDEX redelivery_gated;
ALTER TABLE redelivery DROP COLUMN gate;
ALTER TABLE redelivery DROP COLUMN passes_gates;
"""


def brought_up_to_date(folder: Path, version: int, undo: str) -> SqliteStore:
    """Return the open store of a file of an older version with one row, which has all now."""
    path = folder / "schedule.db"
    store = store_at(path)
    store.open()
    take(store, 1)
    store.close()
    new_schema = schema_of(path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"{undo}PRAGMA user_version = {version};")

    store.open()
    assert schema_of(path) == new_schema
    return store


def test_gates_know_nothing_of_what_waited_before_there_were_marks(tmp_path: Path) -> None:
    store = brought_up_to_date(tmp_path, 6, WITHOUT_GATES)
    assert [row.gate for row in store.list_rows(RowFilter(), 9)] == [None]
    with store.transaction() as tx:
        assert [row.passes_gates for row in tx.claim_due(10**9, 9)] == [False]
    store.close()


def test_what_was_taken_before_groups_were_kept_has_none(tmp_path: Path) -> None:
    store = brought_up_to_date(tmp_path, 7, WITHOUT_GROUPS)
    with store.transaction() as tx:
        assert [row.message_group for row in tx.claim_due(10**9, 9)] == [None]
        assert tx.group_places([1]) == {}
    store.close()


def test_notes_can_be_taken_of_a_file_of_before_there_were_any(tmp_path: Path) -> None:
    store = brought_up_to_date(tmp_path, 5, f"{WITHOUT_GATES} DROP TABLE group_note;")
    note = GroupNote(destination="queue://a", cause_group="boom", at_ms=1, author="ann", text="x")
    store.add_note(note)
    assert store.notes("queue://a", "boom") == [note]
    store.close()


def test_a_note_of_before_groups_had_owners_names_none(tmp_path: Path) -> None:
    store = brought_up_to_date(tmp_path, 9, WITHOUT_OWNERS)
    note = GroupNote(
        destination="queue://a",
        cause_group="boom",
        at_ms=1,
        author="ann",
        text="x",
        owner="bob",
        snoozed_until_ms=7,
    )
    store.add_note(note)
    assert store.notes("queue://a", "boom") == [note]
    store.close()


def test_what_was_on_its_way_to_a_final_queue_before_it_stayed_in_sight_stays_then(
    tmp_path: Path,
) -> None:
    path = tmp_path / "schedule.db"
    store = store_at(path)
    store.open()
    final = taken_row(1, is_final=True, destination="queue://DLQ.exhausted")
    with store.transaction() as tx:
        tx.record_cycle(1, [final, taken_row(2)], [], [])
        tx.finish_cycle(1)
        tx.record_cycle(2, [], [], [])
    store.close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "UPDATE word SET uses = uses - 1 WHERE text = 'queue://DLQ.exhausted';"
            f"{WITHOUT_EXHAUSTED} PRAGMA user_version = 8;"
        )

    store.open()
    with store.transaction() as tx:
        tx.finish_cycle(2)
        claimed = tx.claim_due(10**9, 9)
        assert [row.destination for row in claimed] == ["queue://DLQ.exhausted", "queue://orders"]
        tx.record_cycle(3, [], claimed, [])
        tx.finish_cycle(3)

    (row,) = store.list_rows(RowFilter(), 9)
    assert (row.id, row.state, row.final_queue) == (1, RowState.EXHAUSTED, "queue://DLQ.exhausted")
    (tally,) = store.exhausted_tallies()
    assert (tally.queue, tally.count, tally.since_ms) == ("queue://DLQ.exhausted", 1, 500)
    store.close()
