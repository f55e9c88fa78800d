"""A schedule with something to look at, in a real SQLite file, for tests of the console."""

from collections.abc import Sequence
from pathlib import Path

from amqsidecar.clock import SystemClock
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import failure_cause
from amqsidecar.model.schedule import TakenRow
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import scheduled, taken_row, took


def open_store(path: Path) -> SqliteStore:
    store = SqliteStore(path, clock=SystemClock())
    store.open()
    return store


def dead(row_id: int, cause: str | None, at_ms: int, **fields: object) -> TakenRow:
    """Return a row that died at a time of a cause, and is due an hour later."""
    return taken_row(
        row_id,
        cause=cause,
        cause_group=failure_cause(cause, expired=False),
        received_at_ms=at_ms,
        **{"due_at_ms": at_ms + 3_600_000, **fields},
    )


def keep(store: SqliteStore, rows: Sequence[TakenRow], more: Sequence[AnyEvent] = ()) -> None:
    """Make a cycle take rows, with their events."""
    events: list[AnyEvent] = [event for row in rows for event in (took(row), scheduled(row))]
    cycle = store.open().cycle + 1 if rows else 0
    with store.transaction() as tx:
        if rows:
            store.allocate_ids(len(rows))
            tx.record_cycle(cycle, rows, [], events)
            tx.finish_cycle(cycle)
        tx.record(more)
