"""The texts that rows of the SQLite store repeat: stored once, and removed with the last row."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from amqsidecar.model import row_changes
from amqsidecar.model.schedule import RowFilter, TakenRow
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import taken_row, took
from support.virtual_clock import VirtualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "schedule.db"


def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path, clock=VirtualClock())
    store.open()
    return store


def take(store: SqliteStore, cycle: int, rows: list[TakenRow]) -> None:
    with store.transaction() as tx:
        tx.record_cycle(cycle, rows, [], [])
        tx.finish_cycle(cycle)


def send_all(store: SqliteStore, cycle: int) -> None:
    with store.transaction() as tx:
        tx.record_cycle(cycle, [], tx.claim_due(10**9, 10**6), [])
        tx.finish_cycle(cycle)


def rows_of(first: int, count: int) -> list[TakenRow]:
    """Rows each of which has a destination, a source, a rule and a group that no other has."""
    return [
        taken_row(
            number,
            destination=f"queue://hostile.{number}",
            source=f"queue://DLQ.{number}",
            rule=f"the broker's settings of hostile.{number}, read live",
            cause_group=f"hostile.{number}: *",
        )
        for number in range(first, first + count)
    ]


def stored_words(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT text, uses FROM word"))


def words_in_rows(path: Path) -> Counter[str]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(
            "SELECT destination, source, rule, encoding, cause_group, final_queue FROM redelivery"
        )
        texts = dict(database.execute("SELECT id, text FROM word"))
        return Counter(texts[number] for row in rows for number in row if number)


def test_texts_go_after_the_last_row_that_has_them(path: Path) -> None:
    store = opened(path)
    take(store, 1, rows_of(1, 300))
    send_all(store, 2)
    take(store, 3, rows_of(301, 2))
    assert len(stored_words(path)) == 302 * 4 + 1

    store.forget_history(0, 5_000)

    assert stored_words(path) == words_in_rows(path)
    assert [view.destination for view in store.list_rows(RowFilter(), 10)] == [
        "queue://hostile.301",
        "queue://hostile.302",
    ]
    store.close()


def test_no_more_than_asked_for_go_at_once(path: Path) -> None:
    store = opened(path)
    take(store, 1, rows_of(1, 100))
    send_all(store, 2)

    store.forget_history(0, 40)

    assert len(stored_words(path)) == 401 - 40
    store.close()


def test_texts_go_as_well_where_history_is_bounded_by_its_length(path: Path) -> None:
    """A busy service trims thousands of events before any is old."""
    store = opened(path)
    take(store, 1, rows_of(1, 100))
    send_all(store, 2)
    with store.transaction() as tx:
        tx.record([took(row) for row in rows_of(1, 100)])

    assert store.trim_history(10, 5_000) == 90

    assert stored_words(path) == {}
    store.close()


def test_what_one_process_removes_another_does_not_go_on_using(path: Path) -> None:
    """The service remembers numbers of texts; housekeeping has a connection of its own."""
    service, housekeeping = opened(path), opened(path)
    take(service, 1, rows_of(1, 1))
    send_all(service, 2)
    housekeeping.forget_history(0, 5_000)
    take(housekeeping, 3, [taken_row(2, destination="queue://other")])

    take(service, 4, rows_of(1, 1)[:1])

    assert [view.destination for view in service.list_rows(RowFilter(), 10)] == [
        "queue://hostile.1",
        "queue://other",
    ]
    service.close()
    housekeeping.close()


def test_uses_are_counted_whatever_becomes_of_rows(path: Path) -> None:
    store = opened(path)
    take(store, 1, rows_of(1, 6))
    with store.transaction() as tx:
        tx.record_cycle(2, rows_of(7, 3), tx.claim_due(10**9, 2), [])
        tx.undo_cycle(2)
    with store.transaction() as tx:
        tx.record_cycle(2, rows_of(7, 3), tx.claim_due(10**9, 2), [])
        tx.settle_in_doubt(2)
    with store.transaction() as tx:
        tx.remove([3])
        tx.park([4], "refused")
        tx.postpone([5], 5_000, "full")
    store.change(RowFilter(ids=(5, 6)), row_changes.cancel(1_000, "test", ".exhausted"))
    store.change(RowFilter(ids=(4,)), row_changes.retry(1_000, "test"))
    assert {text: uses for text, uses in stored_words(path).items() if uses} == words_in_rows(path)

    store.forget_history(0, 5_000)

    assert stored_words(path) == words_in_rows(path)
    store.close()


def test_a_rule_without_a_text_is_counted_as_well(path: Path) -> None:
    store = opened(path)
    take(store, 1, [taken_row(1, rule="", cause_group="")])
    store.change(RowFilter(), row_changes.hold(5, "test"))
    store.forget_history(0, 5_000)
    store.close()

    store = opened(path)
    assert [view.rule for view in store.list_rows(RowFilter(), 10)] == [""]
    assert stored_words(path) == words_in_rows(path)
    store.close()


def test_long_texts_are_not_all_kept_in_memory(path: Path) -> None:
    """A stranger names destinations; each connection keeps the texts that it has used."""
    store, count, name = opened(path), 1_000, 4_000 * "x"
    rows = [taken_row(number, destination=f"queue://{number}{name}") for number in range(1, count)]
    for at in range(0, len(rows), 100):
        take(store, at // 100 + 1, rows[at : at + 100])
    assert sum(map(len, store._database._word_ids)) < 2 << 20
    found = [
        row.destination
        for at in range(0, count, 100)
        for row in store.list_rows(RowFilter(), 100, at)
    ]
    assert found == [row.destination for row in rows]
    assert sum(map(len, store._database._words.values())) < 2 << 20
    store.close()
