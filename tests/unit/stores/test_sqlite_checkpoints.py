"""A service's commits are moved from the log into the file by a thread beside them."""

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from amqsidecar.clock import SystemClock
from amqsidecar.errors import StoreUnavailable
from amqsidecar.stores.sqlite.checkpoints import Checkpoints
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import taken_row, took
from support.waiting import eventually

MIB = 1024 * 1024


def service_store(path: Path) -> SqliteStore:
    store = SqliteStore(path, clock=SystemClock())
    store.lock_for_service()
    store.open()
    return store


def take(store: SqliteStore, cycle: int, size_bytes: int) -> None:
    rows = [taken_row(cycle, message=os.urandom(size_bytes))]
    with store.transaction() as tx:
        if cycle > 1:
            tx.finish_cycle(cycle - 1)
        tx.record_cycle(cycle, rows, [], [took(row) for row in rows])


def test_what_a_service_commits_gets_into_the_file_without_a_full_log(tmp_path: Path) -> None:
    """1 MiB is a quarter of the size to which other connections allow the log to grow."""
    path = tmp_path / "schedule.db"
    store = service_store(path)
    take(store, 1, MIB)
    eventually(lambda: path.stat().st_size > MIB, what="the file grows")
    store.close()


def test_the_log_stays_bounded_while_there_is_no_pause(tmp_path: Path) -> None:
    """64 MiB without a pause; the log holds 32 and what comes before its end is seen."""
    path = tmp_path / "schedule.db"
    store = service_store(path)
    for cycle in range(1, 65):
        take(store, cycle, MIB)
    assert path.with_name("schedule.db-wal").stat().st_size < 48 * MIB
    store.close()


def test_a_log_that_a_reader_kept_from_being_cut_is_cut_once_the_reader_has_ended(
    tmp_path: Path,
) -> None:
    """On a volume without space no other commit can ask for it again."""
    path = tmp_path / "schedule.db"
    store = service_store(path)
    log = path.with_name("schedule.db-wal")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM redelivery").fetchone()
        attempts: list[int] = []

        def is_short() -> bool:
            attempts.append(log.stat().st_size)
            return True

        checkpoints = Checkpoints(path, is_short=is_short, every_s=0.01)
        take(store, 1, MIB)
        checkpoints.notice()
        eventually(lambda: len(attempts) > 2, what="the log is cut again and again")
        assert log.stat().st_size > MIB
        reader.execute("COMMIT")
        eventually(lambda: log.stat().st_size == 0, what="the log is cut")
    checkpoints.stop()
    store.close()


def test_a_volume_that_could_not_be_examined_for_a_while_gets_its_checkpoints(
    tmp_path: Path,
) -> None:
    path = tmp_path / "schedule.db"
    store = service_store(path)
    faults = [StoreUnavailable("the volume can't be examined")] * 3

    def is_short() -> bool:
        if faults:
            raise faults.pop()
        return True

    checkpoints = Checkpoints(path, is_short=is_short, every_s=0.01)
    take(store, 1, MIB)
    checkpoints.notice()
    log = path.with_name("schedule.db-wal")
    eventually(lambda: log.stat().st_size == 0, what="the log is cut")
    checkpoints.stop()
    store.close()


def test_the_thread_ends_with_the_store_and_the_log_with_it(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    store = service_store(path)
    take(store, 1, 10)
    assert "checkpoints" in {thread.name for thread in threading.enumerate()}
    store.close()
    assert "checkpoints" not in {thread.name for thread in threading.enumerate()}
    assert not path.with_name("schedule.db-wal").exists()


def test_a_store_that_is_no_service_starts_no_thread(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock())
    store.open()
    assert "checkpoints" not in {thread.name for thread in threading.enumerate()}
    store.close()
