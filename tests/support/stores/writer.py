"""A process that runs cycles on a SQLite store until it is killed; see `test_sqlite_store_kill.py`.

Usage: python -m support.stores.writer FILE SEED. After each durable step it prints a line of JSON.
"""

import json
import random
import sys
from collections.abc import Sequence

from amqsidecar.clock import SystemClock
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import DueRow, RowFilter, RowState, TakenRow
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.stores.sqlite.transaction import SqliteTransaction
from support.stores.rows import resent, taken_row, took


def write(path: str, seed: int) -> None:
    """Run cycles for ever, with all that a service and its operators do."""
    chance = random.Random(seed)
    store = SqliteStore(path, clock=SystemClock())
    store.lock_for_service()
    state = store.open()
    cycle = state.cycle
    is_begun = state.unfinished is not None
    while True:
        taken = _rows(store, chance)
        with store.transaction() as tx:
            if is_begun:
                cycle += _end(tx, cycle + 1, chance)
            due = tx.claim_due(chance.randrange(1_000), chance.randrange(60))
            sent, kept = due[3:], due[:3]
            if chance.random() < 0.5:
                tx.postpone([row.id for row in kept], 900, "no route")
            tx.record_cycle(cycle + 1, taken, sent, _events(taken, sent), {"queue://DLQ": cycle})
        is_begun = True
        print(json.dumps({"cycle": cycle}), flush=True)
        _operate(store, chance)


def _rows(store: SqliteStore, chance: random.Random) -> list[TakenRow]:
    count = chance.choice([0, 1, 3, 50])
    first = store.allocate_ids(count)
    return [
        taken_row(
            row_id,
            due_at_ms=chance.randrange(1_000),
            destination=f"queue://{chance.randrange(5)}",
            state=chance.choice([RowState.WAITING, RowState.WAITING, RowState.HELD]),
            message=b"x" * chance.randrange(4_000),
        )
        for row_id in range(first, first + count)
    ]


def _events(taken: Sequence[TakenRow], sent: Sequence[DueRow]) -> list[AnyEvent]:
    return [*map(took, taken), *map(resent, sent)]


def _end(tx: SqliteTransaction, cycle: int, chance: random.Random) -> int:
    """End the unfinished cycle somehow; returns by how much the last finished number grows."""
    end = chance.choice(["finish", "finish", "undo", "doubt"])
    if end == "undo":
        tx.undo_cycle(cycle)
        return 0
    if end == "finish":
        tx.finish_cycle(cycle)
    else:
        tx.settle_in_doubt(cycle)
    return 1


def _operate(store: SqliteStore, chance: random.Random) -> None:
    row_filter = RowFilter(destination=f"queue://{chance.randrange(5)}")
    match chance.randrange(8):
        case 0:
            store.change(row_filter, row_changes.hold(500, "ann"))
        case 1:
            store.change(row_filter, row_changes.release(500, "ann"))
        case 2:
            store.change(row_filter, row_changes.retry(500, "ann"))
        case 3:
            store.change(row_filter, row_changes.cancel(500, "ann", ".final"))


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
