"""What every store must still do on a volume that is full."""

import random

from amqsidecar.model import row_changes
from amqsidecar.model.operation import Action, OperationState, Selection
from amqsidecar.model.schedule import RowFilter, TakenRow
from amqsidecar.operations import operate
from amqsidecar.stores.postgres.store import PostgresStore
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import scheduled, taken_row
from support.virtual_clock import VirtualClock

Store = SqliteStore | PostgresStore
MIB = 1024 * 1024
LATER_MS = 10**12
ALL = RowFilter()
BATCH = 20
_chance = random.Random(20)


def take(store: Store, size_bytes: int = 24 * 1024) -> list[TakenRow]:
    """Take some messages in one cycle."""
    cycle = store.open().cycle + 1
    first = store.allocate_ids(BATCH)
    rows = [
        taken_row(number, message=_chance.randbytes(size_bytes), due_at_ms=LATER_MS)
        for number in range(first, first + BATCH)
    ]
    with store.transaction() as tx:
        tx.record_cycle(cycle, rows, [], [scheduled(row) for row in rows])
    with store.transaction() as tx:
        tx.finish_cycle(cycle)
    return rows


def send(store: Store, count: int = 100) -> int:
    """Send what waits, in one cycle; return how many it was."""
    cycle = store.open().cycle + 1
    with store.transaction() as tx:
        due = tx.claim_due(LATER_MS, count)
        tx.record_cycle(cycle, [], due, [])
    with store.transaction() as tx:
        tx.finish_cycle(cycle)
    return len(due)


def drain(store: Store) -> int:
    """Send all that waits; return how many it was."""
    total = 0
    while sent := send(store):
        total += sent
    return total


def do_all_but_taking(store: Store, person: Store, clock: VirtualClock) -> None:
    """Discard, give up, begin and cancel an operation, forget, and send all that waits."""
    rows = person.list_rows(ALL, 10_000)
    first, second = (RowFilter(ids=(row.id,)) for row in rows[:2])
    assert person.change(first, row_changes.discard(1, "ann", 7)) == 1
    assert person.count_discarded(7) == 0  # What makes room is kept by nobody.
    assert person.change(second, row_changes.cancel(1, "ann", ".exhausted")) == 1
    wish = operate.Wish(action=Action.HOLD, selection=Selection(rows=ALL), actor="ann")
    begun = operate.begin(person, wish, clock.now_ms())
    assert operate.cancel(person, begun.id, 2, "ann").state is OperationState.CANCELLED
    assert person.forget_history(LATER_MS, 10_000) > 0
    assert drain(store) == len(rows) - 1
