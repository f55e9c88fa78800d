"""Checkpoints of a service's file in a thread beside its commits, which hardly wait for one."""

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread
from typing import Final

from amqsidecar.errors import StoreUnavailable

EVERY_S: Final = 0.25
"""Time from one checkpoint to the next while there are commits."""


class Checkpoints:
    """Moves committed pages from the log into the file, beside writers.

    Otherwise the commit that fills the log does it, which delayed 1 % of all messages at a steady
    rate. Writers have a limit of their own, many times higher, beyond which they do the rest: so
    the log stays bounded if this thread can't keep up or fails, and a commit finds and reports a
    fault of the disk.

    Args:
        path: the file, which exists.
        is_short: whether the volume is short of space: then the log is cut, too.
        every_s: see `EVERY_S`.
    """

    def __init__(
        self,
        path: Path,
        *,
        is_short: Callable[[], bool] = lambda: False,
        every_s: float = EVERY_S,
    ) -> None:
        self._path = path
        self._is_short = is_short
        self._every_s = every_s
        self._has_committed = Event()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def notice(self) -> None:
        """Note a commit."""
        self._has_committed.set()

    def stop(self) -> None:
        """End the thread; safe to call twice."""
        self._stop.set()
        self._has_committed.set()
        self._thread.join()

    def _run(self) -> None:
        with ExitStack() as stack:
            connection: sqlite3.Connection | None = None
            while True:
                self._has_committed.wait()
                if self._stop.is_set():
                    return
                self._has_committed.clear()
                try:
                    connection = connection or stack.enter_context(closing(self._connect()))
                    # Why passive: it never blocks, and blocks no other connection.
                    is_short = self._is_short()
                    how = "TRUNCATE" if is_short else "PASSIVE"
                    found = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
                    # Why again: a reader was in the way, and without space no commit follows.
                    if is_short and found[0]:
                        self._has_committed.set()
                except (sqlite3.Error, StoreUnavailable):
                    # Why no report: a commit that meets the same fault reports it.
                    self._has_committed.set()
                self._stop.wait(self._every_s)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=0
        )
