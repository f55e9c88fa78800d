"""What only the SQLite store promises: its file, its faults in clear words, its locks."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.errors import ConfigError, StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.stores.packing import pack_runs, runs_of, unpack_runs
from amqsidecar.stores.sqlite import rows as sqlite_rows
from amqsidecar.stores.sqlite import transaction as sqlite_transaction
from amqsidecar.stores.sqlite.store import SqliteStore, path_of_url
from support.stores.rows import take_rows, taken_row, took
from support.virtual_clock import VirtualClock

TESTS = Path(__file__).parents[2]


def store_at(path: Path, **options: Any) -> SqliteStore:
    return SqliteStore(path, clock=VirtualClock(), **options)


def filled(path: Path, **options: Any) -> SqliteStore:
    store = store_at(path, **options)
    store.open()
    take_rows(store, 1, [taken_row(1), taken_row(2)], [took(taken_row(1))])
    return store


@pytest.mark.parametrize("count", [49, 50, 51, 123])
def test_rows_of_one_statement_and_beyond_are_each_kept(tmp_path: Path, count: int) -> None:
    """Rows and the keys of their histories are written fifty in one statement."""
    rows = [taken_row(number, due_at_ms=number) for number in range(1, count + 1)]
    store = store_at(tmp_path / "schedule.db")
    store.open()
    take_rows(store, 1, rows, map(took, rows))

    found = store.list_rows(RowFilter(), 1_000)
    assert [(view.id, view.due_at_ms) for view in found] == [(row.id, row.id) for row in rows]
    assert [store.history(row.redelivery_id) for row in rows] == [[took(row)] for row in rows]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/lib/amqsidecar/schedule.db", "/var/lib/amqsidecar/schedule.db"),
        ("sqlite:////var/x.db", "/var/x.db"),
        ("sqlite:///a%20b%23.db", "/a b#.db"),
        ("sqlite:schedule.db", "schedule.db"),
    ],
)
def test_a_url_names_a_file(url: str, path: str) -> None:
    assert path_of_url(url) == Path(path)


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite://host/x.db", "sqlite:///x.db?mode=ro", "postgresql:///x", "x.db"]
)
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"store.url: .* names no file; write sqlite:///"):
        path_of_url(url)


@pytest.mark.parametrize("name", ["a b.db", "50%#?.db", "\u00e4.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    filled(tmp_path / name).close()
    assert (tmp_path / name).stat().st_size > 0


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none" / "schedule.db"
    for attempt in (store_at(path).open, store_at(path).lock_for_service):
        with pytest.raises(StoreUnavailable, match=r"the folder .*none does not exist; create it"):
            attempt()
    assert not path.parent.exists()


def test_a_name_that_the_system_refuses_is_a_fault_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)
    for attempt in (store_at(path).open, store_at(path).lock_for_service):
        with pytest.raises(StoreUnavailable, match="could not be opened: File name too long"):
            attempt()


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it is a folder"):
        store_at(tmp_path).open()


def test_another_file_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 500)
    with pytest.raises(StoreUnavailable, match=r"notes.txt .* it is not an SQLite file"):
        store_at(path).open()
    assert path.read_text() == "dear diary " * 500


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE meta (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"other.db is a database of another program"):
        store_at(path).open()
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    path.touch()
    filled(path).close()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    filled(path).close()
    content = bytearray(path.read_bytes())
    content[8192:] = os.urandom(len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"schedule.db could not be read: .*damaged"):
        store_at(path).open()


def test_a_store_that_is_read_only_is_never_made_and_never_written(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    with pytest.raises(StoreUnavailable, match="does not exist yet"):
        store_at(path, read_only=True).open()
    path.touch()
    with pytest.raises(StoreUnavailable, match="is empty"):
        store_at(path, read_only=True).open()
    path.unlink()
    writer = filled(path)
    reader = store_at(path, read_only=True)
    assert reader.open() == writer.open()
    assert len(reader.list_rows(RowFilter(), 10)) == 2
    with pytest.raises(StoreUnavailable, match="check its owner, permissions"):
        reader.change(RowFilter(), row_changes.retry(1, "ann"))
    with writer.transaction() as tx:
        tx.park([1], "why")
    assert reader.tallies() == writer.tallies()
    reader.close()
    writer.close()


def test_a_full_disk_changes_nothing_and_is_survived(tmp_path: Path) -> None:
    store = filled(tmp_path / "schedule.db")
    before = store.list_rows(RowFilter(), 10), store.tallies(), store.open()
    pages = store._database.run("PRAGMA page_count").fetchone()[0]
    store._database.run(f"PRAGMA max_page_count = {pages + 2}")
    rows = [taken_row(number, message=os.urandom(10_000)) for number in range(3, 20)]
    for _ in range(2):
        with (
            pytest.raises(StoreUnavailable, match=r"schedule.db .*the disk is full; make room"),
            store.transaction() as tx,
        ):
            tx.record_cycle(2, rows, [], [took(row) for row in rows])
        assert (store.list_rows(RowFilter(), 10), store.tallies(), store.open()) == before
    store._database.run("PRAGMA max_page_count = 1000000")
    with store.transaction() as tx:
        tx.record_cycle(2, rows, [], [took(row) for row in rows])
    store.close()


def test_a_transaction_with_a_fault_is_not_committed_even_if_the_fault_is_ignored(
    tmp_path: Path,
) -> None:
    store = filled(tmp_path / "schedule.db")
    with (  # noqa: PT012
        pytest.raises(StoreUnavailable, match="gave up a transaction; nothing was changed"),
        store.transaction() as tx,
    ):
        tx.set_hold("queue://DLQ", 3)
        with pytest.raises(AssertionError, match="UNIQUE"):
            tx.record_cycle(2, [taken_row(1)], [], [])
    assert store.holds() == {}
    store.close()


def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    store = filled(tmp_path / "schedule.db")
    store.close()
    with pytest.raises(AssertionError, match="not open"):
        store.tallies()


def test_large_messages_are_claimed_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_transaction, "CLAIM_BYTES", 2_500)
    store = store_at(tmp_path / "schedule.db")
    store.open()
    sizes = [1_000, 1_000, 9_000, 10]
    rows = [taken_row(number, message=b"x" * size) for number, size in enumerate(sizes, 1)]
    take_rows(store, 1, rows)
    claims = []
    with store.transaction() as tx:
        while due := tx.claim_due(5_000, 10):
            claims.append([row.id for row in due])
            tx.remove(claims[-1])
    assert claims == [[1, 2], [3], [4]]
    store.close()


@pytest.mark.parametrize(
    ("message", "share"),
    [
        (b"", 0),
        (b"small " * 600, 1),
        (b"text that repeats itself " * 4_000, 0.1),
        (os.urandom(100_000), 1),
        (b"x" * 60_000 + os.urandom(40_000), 0.5),
        (b"x" * 10_000 + os.urandom(200_000) + b"x" * 10_000, 1),
        (b"text that repeats itself " * 100_000, 0.1),
        (os.urandom(3_000_000), 1),
        (b"x" * 1_000_000 + b"text" * 1_000 + os.urandom(2_000_000) + b"x" * 1_000_000, 1),
    ],
    ids=[
        *("empty", "small", "text", "random", "half", "a random middle"),
        *("much text", "much that is random", "text between much that is random"),
    ],
)
def test_large_messages_are_deflated_where_it_pays(
    tmp_path: Path, message: bytes, share: float
) -> None:
    """What comes back is always the same, to the byte."""
    store = store_at(tmp_path / "schedule.db")
    store.open()
    with store.transaction() as tx:
        tx.record_cycle(1, [taken_row(1, message=message)], [], [])
        tx.finish_cycle(1)
        assert [row.message for row in tx.claim_due(5_000, 1)] == [message]
    assert store.message(1) == message
    assert store.list_rows(RowFilter(), 1)[0].size_bytes == len(message)
    kept = store._database.run("SELECT length(body) FROM message").fetchone()[0]
    assert kept == len(message) if share == 1 else kept <= share * len(message)
    store.close()


def test_a_damaged_message_is_named(tmp_path: Path) -> None:
    store = store_at(tmp_path / "schedule.db")
    store.open()
    take_rows(store, 1, [taken_row(1, message=b"x" * 10_000)])
    store._database.run("UPDATE message SET body = x'00112233'")
    with pytest.raises(StoreUnavailable, match=r"the store is damaged: .* recover it"):
        store.message(1)
    store.close()


def test_an_event_of_a_newer_version_is_no_damage(tmp_path: Path) -> None:
    store = store_at(tmp_path / "schedule.db")
    store.open()
    take_rows(store, 1, [], [took(taken_row(1))])
    store._database.run("UPDATE event_block SET packing = 0, body = ?", [b'[{"type": "new"}]'])
    with pytest.raises(StoreUnavailable, match="a newer amqsidecar wrote"):
        store.events_after("0/0", 9)
    store.close()


def test_the_service_lock_has_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    service, rival = filled(path), store_at(path)
    service.lock_for_service()
    service.lock_for_service()
    with pytest.raises(StoreUnavailable, match=f"another service, process {os.getpid()} "):
        rival.lock_for_service()
    rival.open()
    assert rival.change(RowFilter(), row_changes.retry(5, "ann")) == 2
    service.close()
    rival.lock_for_service()
    with pytest.raises(StoreUnavailable, match="another service"):
        service.open()
    rival.close()
    service.open()
    with pytest.raises(StoreUnavailable, match="another service"):
        rival.lock_for_service()
    service.close()


def test_the_service_lock_is_free_when_its_owner_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "support.stores.writer", str(path), "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        store = store_at(path)
        with pytest.raises(StoreUnavailable, match=f"process {writer.pid} "):
            store.lock_for_service()
        writer.send_signal(signal.SIGKILL)
    store.lock_for_service()
    store.close()


def test_processes_that_create_the_file_at_once_get_the_same_store(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; sys.stdin.read(1)\n"
        "from amqsidecar.clock import SystemClock\n"
        "from amqsidecar.stores.sqlite.store import SqliteStore\n"
        "print(SqliteStore(Path(sys.argv[1]), clock=SystemClock()).open().instance)"
    )
    for attempt in range(3):
        command = [sys.executable, "-c", program, str(tmp_path / f"{attempt}.db")]
        makers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(4)
        ]
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write(b"x")
            maker.stdin.flush()
        names = {maker.communicate()[0] for maker in makers}
        assert len(names) == 1
        assert names != {b""}


def test_a_file_that_is_mostly_free_shrinks_again(tmp_path: Path) -> None:
    store = store_at(tmp_path / "schedule.db")
    store.open()
    rows = [taken_row(number, message=os.urandom(100_000)) for number in range(1, 120)]
    take_rows(store, 1, rows)
    with store.transaction() as tx:
        tx.remove([row.id for row in rows])
    pages = store._database.run("PRAGMA page_count").fetchone()[0]
    while store.shrink():
        pass
    assert store._database.run("PRAGMA page_count").fetchone()[0] < pages // 2
    store.close()


def test_pages_are_of_the_size_that_was_measured(tmp_path: Path) -> None:
    store = filled(tmp_path / "schedule.db")
    settings = {
        name: store._database.run(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "journal_mode", "synchronous", "auto_vacuum")
    }
    assert settings == {
        "page_size": 8192,
        "journal_mode": "wal",
        "synchronous": 2,
        "auto_vacuum": 2,
    }
    store.close()


def test_a_filter_that_hits_few_of_many_reports_step_by_step_without_the_write_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_rows, "LOOKED_AT", 2)
    path = tmp_path / "schedule.db"
    store, service = store_at(path), store_at(path, busy_timeout_ms=0)
    store.open()
    service.open()
    with service.transaction() as tx:
        causes = ["no", "no", "no", "no", "no", "yes", "no"]
        rows = [taken_row(number, cause=cause) for number, cause in enumerate(causes, 1)]
        tx.record_cycle(1, rows, [], [])
        tx.finish_cycle(1)
    told: list[tuple[int, int]] = []

    def tell(*counts: int) -> None:
        told.append((counts[0], counts[1]))
        with service.transaction() as tx:
            tx.set_hold("queue://DLQ", 1)

    assert store.change(RowFilter(cause_contains="yes"), row_changes.hold(5, "ann"), tell) == 1

    assert told == [(0, 0), (0, 0), (1, 1), (0, 0)]
    store.close()
    service.close()


def test_an_action_leaves_what_another_changed_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are looked for first and changed afterwards."""
    store, other = filled(tmp_path / "schedule.db"), store_at(tmp_path / "schedule.db")
    other.open()
    transaction = SqliteStore.transaction

    def interfered(of: SqliteStore) -> Any:
        if of is store:
            other.change(RowFilter(ids=(2,)), row_changes.hold(5, "bob"))
        return transaction(of)

    monkeypatch.setattr(SqliteStore, "transaction", interfered)

    assert store.change(RowFilter(state=RowState.WAITING), row_changes.retry(7, "ann")) == 1

    assert [row.reason for row in store.list_rows(RowFilter(), 10)] == [None, "held by bob"]
    store.close()
    other.close()


@pytest.mark.parametrize("ids", [[], [0], [5, 4, 9, 3], [1, 1, 2], list(range(1_000))])
def test_runs_name_exactly_their_ids(ids: list[int]) -> None:
    runs = unpack_runs(pack_runs(runs_of(ids)))
    assert [n for first, last in runs for n in range(first, last + 1)] == sorted(set(ids))
