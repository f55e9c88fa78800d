"""The preview offers the messages of a Classic queue that can be taken while others stay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations import preview as previews
from amqsidecar.operations import reach
from amqsidecar.operations.preview import preview
from support.stores.opened import opened
from support.stores.rows import taken_row
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

OURS, OTHERS = "queue://ours", "queue://others"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UnsyncedStore]:
    found = opened(UnsyncedStore(tmp_path / "schedule.db", clock=VirtualClock()))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def short_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a reach of 1,000 bytes, counted in pages of two rows."""
    monkeypatch.setattr(reach, "REACH_BYTES", 1_000)
    monkeypatch.setattr(reach, "_PAGE_ROWS", 2)


def lie(
    store: UnsyncedStore, names: str, *, queue: str = "queue://DLQ", encoding: str = "openwire/12"
) -> None:
    """Put messages of 100 bytes into a queue: `o` is ours, `x` another one."""
    first = store.allocate_ids(len(names))
    rows = [
        taken_row(
            number,
            state=RowState.EXHAUSTED,
            is_final=True,
            destination=OURS if name == "o" else OTHERS,
            final_queue=queue,
            encoding=encoding,
            message=bytes(100),
        )
        for number, name in enumerate(names, first)
    ]
    with store.adding_lying() as add:
        add(rows, [])


def offers(store: UnsyncedStore, action: Action = Action.RETRY, **conditions: object) -> list[str]:
    rows = RowFilter(**({"destination": OURS} | conditions))  # type: ignore[arg-type]
    found = preview(store, action, Selection(rows=rows), suffix=".exhausted")
    return [one for one in found.notes if "keep their place" in one]


@pytest.mark.parametrize("action", [Action.RETRY, Action.REDIRECT, Action.DISCARD])
def test_the_prefix_before_too_many_others_is_offered(store: UnsyncedStore, action: Action) -> None:
    lie(store, "oxo" + "x" * 8 + "o" + "x" + "oo")
    [offer] = offers(store, action)
    assert "the whole of queue://DLQ; at most the oldest 3 messages (--limit 3)" in offer
    assert offers(store, action, ids=(1, 3, 12), destination=None) == []


def test_the_prefix_of_many_is_offered_too(
    store: UnsyncedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "ROWS_MAX", 3)
    lie(store, "oxo" + "x" * 9 + "ooo")
    [offer] = offers(store)
    assert "(--limit 2)" in offer


def test_the_prefix_is_offered_by_the_first_page_of_a_preview_alone(
    store: UnsyncedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "ROWS_MAX", 1)
    lie(store, "oxo" + "x" * 9 + "o")
    chosen = Selection(rows=RowFilter(ids=(1, 3, 13)))
    first = preview(store, Action.RETRY, chosen, suffix=".x")
    second = preview(store, Action.RETRY, chosen, suffix=".x", after=first.next_after)
    assert [first.count, second.count] == [1, 1]
    assert ["(--limit 2)" in str(one.notes) for one in (first, second)] == [True, False]


def test_a_prefix_counts_what_comes_before_from_elsewhere(store: UnsyncedStore) -> None:
    lie(store, "oo", queue="queue://short")
    lie(store, "o" + "x" * 10 + "o")
    lie(store, "o", queue="queue://short")
    [offer] = offers(store)
    assert "the whole of queue://DLQ; at most the oldest 3 messages" in offer


@pytest.mark.parametrize("names", ["oxo", "o" * 30, "o" + "x" * 30, "x" * 30])
def test_nothing_is_offered_where_all_can_be_taken_alone(store: UnsyncedStore, names: str) -> None:
    lie(store, names)
    assert offers(store) == []


def test_nothing_is_offered_on_other_brokers_and_for_what_takes_nothing(
    store: UnsyncedStore,
) -> None:
    names = "o" + "x" * 20 + "o"
    lie(store, names, encoding="core/1")
    assert offers(store) == []
    lie(store, names, queue="queue://other")
    assert offers(store, Action.CANCEL) == []
    assert len(offers(store)) == 1


def test_a_walk_is_bounded(store: UnsyncedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "WALKED_MAX", 5)
    lie(store, "o" + "x" * 20 + "o")
    assert offers(store) == []
