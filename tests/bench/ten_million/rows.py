"""Lets millions of messages wait: copies of one that a real sidecar took, loaded in bulk.

The loader, `SqliteScale`, is all that is specific to one kind of store.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from amqsidecar.clock import SystemClock
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import RowFilter, RowState, TakenRow
from amqsidecar.schedule import Schedule
from amqsidecar.store import Store
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import scheduled, took
from support.stores.unsynced import UnsyncedStore

DESTINATIONS = 10
"""A tenth of what waits is for each: a million of ten."""

WITH_EVENTS = 400_000
"""The number of last rows that have a history of two events each, which fills it."""

_AT_ONCE = 5_000
_EARLIEST_MS = 24 * 3_600_000
_SPREAD_MS = 30 * 24 * 3_600_000
_APART_MS = 250
_SCATTER = 1_000_003_337  # A prime: rows that came together are due at times far apart.


class Scale(Protocol):
    """One kind of store, empty."""

    name: str
    url: str

    def store(self) -> Schedule:
        """Return the store, not yet opened, as the service uses it."""
        ...

    def loading(self) -> AbstractContextManager[Store]:
        """Return the store, opened, for loading: it need not outlive a power cut."""
        ...


class SqliteScale:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.name = "SQLite"
        self._path = folder / "schedule.db"
        self.url = f"sqlite:///{self._path}"

    def store(self) -> Schedule:
        return SqliteStore(self._path, clock=SystemClock())

    @contextmanager
    def loading(self) -> Iterator[Store]:
        """Without syncs and without the index of due times, which is made again at the end."""
        store = UnsyncedStore(self._path, clock=SystemClock())
        store.reopen()
        run = store._database.run
        index = "SELECT sql FROM sqlite_schema WHERE name = 'redelivery_due'"
        statement = run(index).fetchone()[0]
        run("DROP INDEX redelivery_due")
        yield store
        run(statement)
        store.close()
        # Why: or the next cycle's sync would wait for all that was loaded.
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


class Model(NamedTuple):
    """The message that is copied, and its row."""

    row: TakenRow
    uid: str

    def rows(self, first: int, count: int, now_ms: int) -> list[TakenRow]:
        """Return copies with these numbers, due at times between tomorrow and in a month.

        Half of them in the order in which they came, as a fixed delay makes it, half at random.
        """
        row, uid, base_ms = self.row, self.uid, now_ms + _EARLIEST_MS
        return [
            TakenRow(
                id=number,
                state=RowState.WAITING,
                due_at_ms=base_ms + number * (_SCATTER if number % 2 else _APART_MS) % _SPREAD_MS,
                destination=destination(number),
                is_final=False,
                source=row.source,
                redelivery_id=f"{uid}-{number:012d}",
                redelivery_count=1,
                delay_ms=row.delay_ms,
                expiration_ms=0,
                rule=row.rule,
                cause=row.cause,
                cause_group=row.cause_group,
                message_id=f"{row.message_id}-{number}",
                received_at_ms=now_ms,
                encoding=row.encoding,
                message=row.message,
            )
            for number in range(first, first + count)
        ]


def destination(number: int) -> str:
    return f"queue://bench.scale.{number // 2 % DESTINATIONS}"


def model_of(scale: Scale) -> Model:
    """Return the message that waits in a store in which only one does."""
    store = scale.store()
    uid = store.reopen().uid
    [view] = store.list_rows(RowFilter(), 2)
    message = store.message(view.id)
    assert message is not None
    row = TakenRow(
        id=view.id,
        state=view.state,
        due_at_ms=view.due_at_ms,
        destination=view.destination,
        is_final=view.is_final,
        source=view.source,
        redelivery_id=view.redelivery_id,
        redelivery_count=view.redelivery_count,
        delay_ms=view.delay_ms,
        expiration_ms=0,
        rule=view.rule,
        cause=view.cause,
        cause_group=view.cause_group,
        message_id=view.message_id,
        received_at_ms=view.received_at_ms,
        encoding=view.encoding,
        message=message,
    )
    store.close()
    return Model(row, uid)


def load(scale: Scale, model: Model, count: int, now_ms: int) -> None:
    """Add this many waiting messages."""
    left = count
    with scale.loading() as store:
        before = cycle = store.reopen().cycle
        while left:
            rows = model.rows(store.allocate_ids(min(left, _AT_ONCE)), min(left, _AT_ONCE), now_ms)
            events: list[AnyEvent] = []
            if left <= WITH_EVENTS:
                events = [event for row in rows for event in (took(row), scheduled(row))]
            left -= len(rows)
            cycle += 1
            with store.transaction() as tx:
                tx.record_cycle(cycle, rows, [], events)
                tx.finish_cycle(cycle)
        with store.transaction() as tx:
            # Why: as the token in the broker says, or a service would find it in doubt.
            tx.set_cycle(before)


def unload(scale: Scale, count: int) -> None:
    """Remove `count` waiting messages, the oldest first; exhausted ones stay."""
    left, after_id = count, 0
    waiting = RowFilter(state=RowState.WAITING)
    with scale.loading() as store:
        while left:
            ids = [row.id for row in store.list_rows(waiting, min(left, _AT_ONCE), after_id)]
            left, after_id = left - len(ids), ids[-1]
            with store.transaction() as tx:
                tx.remove(ids)
