"""Retention announces operations, each place once, and no more after a person cancelled it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.config.load import load_config
from amqsidecar.errors import ConfigError
from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import RowState, TakenRow
from amqsidecar.operations.operate import cancel, carry_out
from amqsidecar.operations.preview import preview
from amqsidecar.operations.retention import ACTOR, DAY_MS, announced
from amqsidecar.wiring.rules import load_retention
from support.stores.opened import opened
from support.stores.rows import take_rows, taken_row
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

NOW_MS = 100 * DAY_MS
KEEPS = """
redelivery:
  parked_keep:
    entries:
    - {queue: "pay.>", days: 30, move_to: archive}
  exhausted_keep:
    default_entry: {days: 30}
  in_place_keep:
    entries:
    - {queue: orders, days: 60}
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UnsyncedStore]:
    found = opened(UnsyncedStore(tmp_path / "schedule.db", clock=VirtualClock()))
    yield found
    found.close()


def add(store: UnsyncedStore, *rows: TakenRow) -> None:
    cycle = store.state().cycle + 1
    take_rows(store, cycle, rows)


def row(
    number: int,
    days: int,
    state: RowState,
    queue: str,
    final: str | None,
    source: str = "queue://DLQ",
) -> TakenRow:
    return taken_row(
        number,
        state=state,
        destination=f"queue://{queue}",
        final_queue=final,
        source=source,
        received_at_ms=NOW_MS - days * DAY_MS,
        is_final=state is RowState.EXHAUSTED,
        message=b"" if state is RowState.EXHAUSTED else b"body",
    )


def test_what_lies_too_long_is_announced_once(store: UnsyncedStore, tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(KEEPS)
    retention = load_retention(load_config(file, (), {}))
    parked, exhausted = RowState.PARKED, RowState.EXHAUSTED
    add(
        store,
        row(1, 40, parked, "pay.card", None),
        row(2, 20, parked, "pay.card", None),
        row(3, 40, parked, "other", None),
        row(4, 40, exhausted, "orders", "queue://DLQ.exhausted"),
        row(5, 40, exhausted, "orders", "queue://DLQ"),
        row(6, 70, exhausted, "orders", "queue://DLQ"),
        row(7, 70, exhausted, "other", "queue://DLQ"),
        row(8, 40, exhausted, "orders", "queue://orders.dead"),
        row(9, 40, exhausted, "orders", "queue://x.exhausted", "queue://x.exhausted"),
    )
    assert len(retention.announce(store, NOW_MS)) == 4
    assert retention.announce(store, NOW_MS + 60_000) == []
    found = {one.id: one for one in store.open_operations()}
    assert {one.actor for one in found.values()} == {ACTOR}
    assert announced(found.values(), NOW_MS) == 4
    assert announced(found.values(), NOW_MS + DAY_MS) == 0
    kinds = sorted(
        (str(one.action), one.selection.rows.destination, one.selection.rows.lies_in, one.target)
        for one in found.values()
    )
    assert kinds == [
        ("discard", "queue://orders", "queue://DLQ", None),
        ("discard", "queue://orders", "queue://DLQ.exhausted", None),
        ("discard", "queue://orders", "queue://orders.dead", None),
        ("redirect", "queue://pay.card", None, "queue://archive"),
    ]
    [moved] = [one for one in found.values() if one.action is Action.REDIRECT]
    assert "moved to queue://archive, which can't be undone" in moved.reason
    shown = preview(store, moved.action, moved.selection, suffix=".exhausted")
    assert shown.notes[-1] == "a redirect can't be undone"
    turn = carry_out(store, moved.id, "me", ".exhausted", lambda: NOW_MS + 60_000)
    assert turn.changed == 0
    cancel(store, moved.id, NOW_MS + 60_000, "cli:anna")
    assert retention.announce(store, NOW_MS + 120_000) == []
    [(again, _)] = retention.announce(store, NOW_MS + DAY_MS)
    turn = carry_out(store, again, "me", ".exhausted", lambda: NOW_MS + 2 * DAY_MS)
    assert turn.changed == 1


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{days: 0}", "days"),
        ("{move_to: archive}", "expected a number of days"),
        ("{days: 3, move_to: amqsidecar.token.x}", "the sidecar's own"),
        ("{days: 3, export: true}", "needs journal.path"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, entry: str, problem: str) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"redelivery:\n  in_place_keep:\n    default_entry: {entry}\n")
    with pytest.raises(ConfigError, match=problem):
        load_retention(load_config(file, (), {}))
