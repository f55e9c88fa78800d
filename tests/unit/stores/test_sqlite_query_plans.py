"""Every query of the SQLite store finds its rows by an index, and its work doesn't grow."""

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.failure import CountKind
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.stores.sqlite.database import QUERIES, SqliteDatabase
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import resent, scheduled, taken_row, took
from support.virtual_clock import VirtualClock

WAITING_COUNT = 50_000
FEW = 1_000
GROUP = RowFilter(destination="queue://3", cause_group="order * refused 1")

SMALL_TABLES = {
    "meta",
    "outbox",
    "unfinished_cycle",
    "hold",
    "group_tally",
    "followed",
    "service_mark",
    "kept_value",
}
"""Of these a scan is right: they don't grow with what waits."""

SORTS = ("sorted_", "list_by_ids", "newest_by_ids", "recalled_by_due")
"""What is sorted, because it is few; see `sqlite_pages`."""

SCANS = {
    "ended_waits": "SCAN late",
    "count_all": "SCAN redelivery",
    # What people write by hand.
    "latest_notes": "SCAN group_note USING COVERING INDEX group_note_by_group",
    "count_groups": "SCAN failure_group",
    "newest_visible": "SCAN redelivery",
    # Asked by a person at the command line, for what no index knows.
    "rows_called": "SCAN redelivery",
    "all_blocks": "SCAN event_block",
    # What gates let wait, and nothing else.
    "read_gate_tallies": "SCAN redelivery USING COVERING INDEX redelivery_gated",
    "read_exhausted": "SCAN t",  # One for each destination that has exhausted messages.
    # What people discarded within an hour, bounded.
    "discarded_size": "SCAN discarded USING COVERING INDEX discarded_by_age",
    "written_segments": "SCAN journal_segment",
    "read_failure_counts": "SCAN s",  # What a range of an index was summed up to.
}
"""Other scans on purpose: a few in the order of an index, or everything by its nature."""

SEARCHES = {
    "claim_due": [
        "SEARCH r USING INDEX redelivery_due (state=? AND due_at_ms<?)",
        "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
    ],
    "group_places": [
        "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH f USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH b USING COVERING INDEX redelivery_in_order (destination=? AND message_group=? AND",
        "SEARCH h USING COVERING INDEX redelivery_in_order (destination=? AND message_group=?)",
    ],
    "read_exhausted": [
        "SEARCH r USING COVERING INDEX redelivery_exhausted (destination=? AND final_queue=?"
    ],
    "next_due": ["USING COVERING INDEX redelivery_due (state=?)"],
    "window_all": ["SEARCH redelivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "window_kept": ["USING COVERING INDEX redelivery_kept (state=? AND rowid>? AND rowid<?)"],
    "lowest_by_group": [
        "USING COVERING INDEX redelivery_by_group (destination=? AND cause_group=?"
    ],
    "list_by_group": ["INDEX redelivery_by_group (destination=? AND cause_group=? AND rowid>?"],
    "newest_by_group": ["INDEX redelivery_by_group (destination=? AND cause_group=? AND rowid>?"],
    "newest_kept": ["USING INDEX redelivery_kept (state=? AND rowid>? AND rowid<?)"],
    "due_waiting": ["USING INDEX redelivery_due (state=? AND due_at_ms>? AND due_at_ms<?)"],
    "due_kept": ["USING INDEX redelivery_kept_due (state=? AND due_at_ms>? AND due_at_ms<?)"],
    "latest_waiting": ["USING COVERING INDEX redelivery_due (state=? AND due_at_ms>?)"],
    "count_due": ["USING COVERING INDEX redelivery_due (state=? AND due_at_ms>? AND due_at_ms<?)"],
    "read_failure_counts": ["SEARCH c USING PRIMARY KEY (bucket_ms>? AND bucket_ms<?)"],
    "read_groups": ["USING INDEX failure_group_by_age (last_at_ms>?)"],
    "add_to_group": ["USING INDEX sqlite_autoindex_failure_group_1 (destination=? AND cause_group"],
    "open_members": ["USING INDEX operation_member_open (redelivery_id=?)"],
    "due_members": ["INDEX operation_member_due (operation=? AND resent_at_ms<?)"],
    "read_members": ["SEARCH operation_member USING PRIMARY KEY (operation=? AND redelivery_id>?)"],
    "next_followed": ["INDEX operation_member_by_outcome (outcome=? AND operation>?)"],
    "read_observations": ["SEARCH queue_observation USING PRIMARY KEY (destination=? AND minute>?"],
    "recent_observations": [
        "SEARCH queue_observation USING INDEX queue_observation_by_age (at_ms>?"
    ],
    "list_all": ["SEARCH redelivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "list_kept": ["USING INDEX redelivery_kept (state=? AND rowid>? AND rowid<?)"],
    "list_by_destination": [
        "USING INDEX redelivery_by_destination (destination=? AND rowid>? AND rowid<?)"
    ],
    "list_by_redelivery_id": ["USING INDEX redelivery_by_redelivery_id (redelivery_id=? AND rowid"],
    "list_by_ids": ["SEARCH redelivery USING INTEGER PRIMARY KEY (rowid=?)"],
    "count_kept": ["INDEX redelivery_kept (state=?)"],
    "count_by_destination": ["USING INDEX redelivery_by_destination (destination=?)"],
    "delete_from_redelivery": ["SEARCH redelivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "postpone_rows": ["SEARCH redelivery USING INTEGER PRIMARY KEY (rowid=?)"],
    "park_rows": ["SEARCH redelivery USING INTEGER PRIMARY KEY (rowid=?)"],
    "tally_of_ids": ["SEARCH redelivery USING INTEGER PRIMARY KEY (rowid=?)"],
    "blocks_of_message": [
        "SEARCH k USING PRIMARY KEY (redelivery_id=?)",
        "SEARCH b USING INTEGER PRIMARY KEY (rowid=?)",
    ],
    "first_blocks": ["SEARCH event_block USING INTEGER PRIMARY KEY (rowid<?)"],
    "blocks_between": ["SEARCH event_block USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "next_block": ["SEARCH event_block USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "first_unwritten": ["SEARCH event_block USING INTEGER PRIMARY KEY (rowid>?)"],
    "planned_segment": ["SEARCH journal_segment USING INDEX journal_segment_planned"],
    "drop_planned": ["SEARCH journal_segment USING INDEX"],
    "set_written": ["SEARCH journal_segment USING INDEX"],
    "forget_segment": ["SEARCH journal_segment USING INTEGER PRIMARY KEY (rowid=?)"],
    "oldest_blocks": ["USING COVERING INDEX event_block_by_age (newest_at_ms<?)"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


def filled(path: Path, count: int) -> SqliteStore:
    """Return a store in which this many rows wait, a few of them due."""
    store = SqliteStore(path, clock=VirtualClock())
    store.open()
    store._database.run("PRAGMA synchronous = OFF")
    kept = {7: RowState.HELD, 11: RowState.PARKED}
    for cycle, first in enumerate(range(1, count + 1, 1_000), 1):
        rows = [
            taken_row(
                row_id,
                due_at_ms=1 + row_id * 7919 % count,
                state=kept.get(row_id % 1_000, RowState.WAITING),
                destination=f"queue://{row_id % 50}",
                cause=f"order {row_id} refused",
                cause_group=f"order * refused {row_id % 3}",
            )
            for row_id in range(first, first + 1_000)
        ]
        with store.transaction() as tx:
            events = [event for row in rows for event in (took(row), scheduled(row))]
            tx.record_cycle(cycle, rows, [], events)
            tx.finish_cycle(cycle)
    return store


@pytest.fixture(scope="module")
def many(folder: Path) -> Iterator[SqliteStore]:
    store = filled(folder / "many.db", WAITING_COUNT)
    yield store
    store.close()


@pytest.fixture(scope="module")
def few(folder: Path) -> Iterator[SqliteStore]:
    store = filled(folder / "few.db", FEW)
    yield store
    store.close()


def plan_of(store: SqliteStore, name: str) -> list[str]:
    sql = QUERIES[name]
    named = set(re.findall(r":(\w+)", sql))
    values: Any = dict.fromkeys(named, 1) if named else (1,) * sql.count("?")
    for name_of_list in named & {"ids", "hidden", "kinds"}:
        values[name_of_list] = "[1]"
    connection = store._database._connection
    assert connection is not None
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
    except sqlite3.Error as error:
        raise AssertionError(f"{name}: {error}") from error
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_no_query_scans_what_grows(many: SqliteStore, name: str) -> None:
    for step in plan_of(many, name):
        assert "TEMP B-TREE FOR ORDER BY" not in step or name.startswith(SORTS)
        scanned = re.match(r"SCAN (\w+)", step)
        if scanned and scanned[1] not in SMALL_TABLES | {"json_each"}:
            assert step == SCANS.get(name)


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_a_query_uses_its_index(many: SqliteStore, name: str) -> None:
    plan = plan_of(many, name)
    for expected in SEARCHES[name]:
        assert any(expected in step for step in plan), plan


def steps_of(store: SqliteStore, read: Callable[[], object]) -> int:
    """Return how many instructions of SQLite's machine a read takes."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = store._database._connection
    assert connection is not None
    connection.set_progress_handler(count, 1)
    try:
        read()
    finally:
        connection.set_progress_handler(None, 1)
    return steps


READS: dict[str, Callable[[SqliteStore], object]] = {
    "claim 100": lambda store: claim(store, 100),
    "next due": lambda store: store.next_due_ms(),
    "tallies": lambda store: store.tallies(),
    "count by destination": lambda store: store.count_rows(RowFilter(destination="queue://3")),
    "a page": lambda store: store.list_rows(RowFilter(), 50, after_id=500),
    "a page of a destination": lambda store: store.list_rows(RowFilter(destination="queue://3"), 9),
    "a page of parked rows": lambda store: store.list_rows(RowFilter(state=RowState.PARKED), 1),
    "a page by id": lambda store: store.list_rows(RowFilter(ids=(5, 6)), 9),
    "a page of a message": lambda store: store.list_rows(
        RowFilter(redelivery_id="test-000000000009"), 9
    ),
    "history": lambda store: store.history("test-000000000009"),
    "message": lambda store: store.message(9),
    "holds": lambda store: store.holds(),
    "group tallies": lambda store: store.group_tallies(),
    "failure groups": lambda store: store.failure_groups(0, 100),
    "failure counts": lambda store: store.failure_counts(0, 10**15, list(CountKind)),
    "newest rows": lambda store: store.page_rows(RowFilter(), RowOrder.NEWEST, 50),
    "next rows": lambda store: store.page_rows(
        RowFilter(state=RowState.WAITING), RowOrder.DUE, 50, RowKey(20, 0)
    ),
    "newest rows of a group": lambda store: store.page_rows(GROUP, RowOrder.NEWEST, 5),
    "rows of a group counted": lambda store: store.count_rows(GROUP),
    "tail": lambda store: store.events_after(store.tail(), 10),
    "operations": lambda store: store.open_operations(),
    "state": lambda store: store.open(),
    "lag": lambda store: store.outbox_lag(),
    "retention, nothing to do": lambda store: store.trim_history(10**9, 100),
}


def claim(store: SqliteStore, limit: int) -> None:
    with store.transaction() as tx:
        assert len(tx.claim_due(10**9, limit)) == limit


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_work_does_not_grow_with_the_number_waiting(
    many: SqliteStore, few: SqliteStore, read: Callable[[SqliteStore], object]
) -> None:
    read(few)
    read(many)
    assert steps_of(many, lambda: read(many)) <= steps_of(few, lambda: read(few)) * 1.1 + 10


def test_a_claim_reads_as_much_as_it_returns(many: SqliteStore) -> None:
    small, large = (steps_of(many, partial(claim, many, size)) for size in (100, 1_000))
    assert large < small * 11


def test_statements_of_a_cycle_do_not_grow_with_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path / "schedule.db", FEW)
    statements = Counter[str]()
    run = SqliteDatabase.query

    def counted(database: SqliteDatabase, name: str, *values: Any) -> sqlite3.Cursor:
        statements[name] += 1
        return run(database, name, *values)

    monkeypatch.setattr(SqliteDatabase, "query", counted)
    found = []
    for cycle, size in ((2, 60), (3, 60), (4, 600)):
        rows = [
            taken_row(cycle * 10_000 + n, cause=f"order {n} refused", cause_group="order * refused")
            for n in range(size)
        ]
        with store.transaction() as tx:
            sent = [row for row in tx.claim_due(10**9, size) if row.destination == "queue://3"]
            statements.clear()
            events = [event for row in rows for event in (took(row), scheduled(row))]
            tx.record_cycle(cycle, rows, sent[:1], [*events, *(resent(row) for row in sent[:1])])
            tx.finish_cycle(cycle)
        found.append(statements.copy())
    assert found[1] == found[2]
    assert found[2]["add_to_group"] == 2
    store.close()


def test_every_query_is_used() -> None:
    """An unused query is only a burden."""
    stores = Path(__file__).parents[3] / "sidecar/amqsidecar/stores"
    code = "".join(path.read_text() for path in (*stores.glob("*.py"), *stores.glob("sqlite/*.py")))
    sources = ("all", "kept", "by_destination", "by_group", "by_redelivery_id", "by_ids")
    verbs = ("list", "count", "newest", "window", "lowest", "sorted")
    built = {f"{verb}_{source}" for verb in verbs for source in sources}
    built |= {f"{verb}_{kind}" for verb in ("due", "latest") for kind in ("waiting", "kept")}
    tallies = ("group_tally", "exhausted_tally")
    built |= {f"{verb}_{tally}" for verb in ("add", "subtract", "drop_empty") for tally in tallies}
    built |= {f"kinds_of_{table}" for table in ("redelivery", "discarded")}
    assert [name for name in QUERIES if f'"{name}"' not in code and name not in built] == []
