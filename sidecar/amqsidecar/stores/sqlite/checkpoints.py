"""Checkpoints of a service's file in a thread beside its commits, which hardly wait for one."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Final

EVERY_S: Final = 0.25
"""Time from one checkpoint to the next while there are commits."""


class Checkpoints:
    """Moves committed pages from the log into the file, beside writers.

    The commit that fills the log would otherwise do it: a hundredth of all messages at a steady
    rate waited for that. Writers keep a limit of their own, many times higher, beyond which they do
    what is left: so the log stays bounded where this thread can't keep up or fails, and a fault of
    the disk is met, and reported, by a commit.

    Args:
        path: the file, which exists.
        is_short: whether the volume has no space to spare: then the log is cut, too.
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
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=0
        )
        try:
            while True:
                self._has_committed.wait()
                if self._stop.is_set():
                    return
                self._has_committed.clear()
                try:
                    # Why passive: it never blocks, and blocks no other connection.
                    is_short = self._is_short()
                    how = "TRUNCATE" if is_short else "PASSIVE"
                    found = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
                    # Why again: a reader was in the way, and without space no commit follows.
                    if is_short and found[0]:
                        self._has_committed.set()
                except sqlite3.Error:
                    # Why no report: a commit that meets the same fault reports it.
                    self._has_committed.set()
                self._stop.wait(self._every_s)
        finally:
            connection.close()
