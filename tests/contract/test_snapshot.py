"""Totals and their parts are read as of one moment, while others change the schedule."""

from collections.abc import Callable, Sequence

import pytest

from amqsidecar.model import row_changes
from amqsidecar.model.schedule import RowFilter, Tally
from amqsidecar.operations.browse import read_status
from amqsidecar.operations.overview import Overview, read_overview, read_waiting
from amqsidecar.schedule import Schedule
from support.stores.rows import take_rows, taken_row

MakeStore = Callable[[], Schedule]
NOW_MS = 5_000


@pytest.fixture
def both(open_store: MakeStore) -> tuple[Schedule, Schedule]:
    """Give two connections to a schedule with three overdue messages."""
    store, other = open_store(), open_store()
    take_rows(store, 1, [taken_row(number, due_at_ms=1_000) for number in (1, 2, 3)], [])
    return store, other


def test_all_in_a_snapshot_is_of_its_begin(both: tuple[Schedule, Schedule]) -> None:
    store, other = both

    def read() -> tuple[Overview, list[Tally]]:
        status = read_status(store, store.state(), NOW_MS)
        return read_overview(store, NOW_MS), status.waiting

    with store.snapshot():
        before = read()
        assert other.change(RowFilter(), row_changes.hold(NOW_MS, "ann")) == 3
        assert read() == before
    assert read_overview(store, NOW_MS).waiting.overdue == 0
    assert store.change(RowFilter(), row_changes.release(NOW_MS, "ann")) == 3


def test_the_parts_of_what_waits_are_those_of_its_total(
    both: tuple[Schedule, Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change between two statements showed messages that are due later."""
    store, other = both
    count = store.due_counts

    def change_and_count(bounds_ms: Sequence[int]) -> list[int]:
        other.change(RowFilter(), row_changes.hold(NOW_MS, "ann"))
        return count(bounds_ms)

    monkeypatch.setattr(store, "due_counts", change_and_count)
    found = read_waiting(store, NOW_MS)
    assert (found.overdue, found.later) == (3, 0)
    assert found.by_destination[0].waiting == 3
