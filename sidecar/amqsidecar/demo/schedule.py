"""Reads what a sidecar's store says about messages, beside the running process."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock

from amqsidecar.clock import SystemClock
from amqsidecar.errors import StoreError
from amqsidecar.model.event import Discarded, Received, Resent
from amqsidecar.model.schedule import RowFilter, RowState, RowView
from amqsidecar.schedule import Schedule
from amqsidecar.stores.open import open_file


class DemoSchedule:
    """Reads the store of one sidecar; never writes. Any thread may call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: set[str] = set()
        self._discarded: set[str] = set()
        self._lock = Lock()

    def rows(self) -> list[RowView]:
        """Return what the sidecar still has to do something with; without exhausted messages."""
        with self._opened() as store:
            rows = [] if store is None else store.list_rows(RowFilter(), 10_000)
        return [one for one in rows if one.state is not RowState.EXHAUSTED]

    def discarded(self) -> frozenset[str]:
        """Return the JMSMessageIDs of which the history says that a rule discarded them."""
        with self._lock, self._opened() as store:
            if store is None:
                return frozenset()
            for redelivery_id in self._redelivery_ids() - self._read:
                told = store.history(redelivery_id)
                # Why once is enough: it is decided when a message is received.
                if told:
                    self._read.add(redelivery_id)
                if any(isinstance(event, Discarded) for event in told):
                    self._discarded.update(
                        str(event.message_id) for event in told if isinstance(event, Received)
                    )
            return frozenset(self._discarded)

    def survivor(self) -> str | None:
        """Return the redelivery id of a message that came back more than once, to the end."""
        with self._opened() as store:
            if store is None:
                return None
            for redelivery_id in sorted(self._read):
                told = store.history(redelivery_id)
                resends = sum(isinstance(event, Resent) for event in told)
                if resends > 1 and isinstance(told[-1], Resent):
                    return redelivery_id
        return None

    @contextmanager
    def _opened(self) -> Iterator[Schedule | None]:
        """Open the store; None = it is not there yet."""
        try:
            schedule = open_file(self._path, SystemClock(), read_only=True)
        except StoreError:
            yield None
            return
        with closing(schedule):
            yield schedule

    def _redelivery_ids(self) -> set[str]:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
            return {row[0] for row in database.execute("SELECT redelivery_id FROM event_key")}
