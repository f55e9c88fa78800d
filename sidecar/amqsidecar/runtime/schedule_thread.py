"""A thread that works on the schedule beside the cycles, over a connection of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from typing import Final

from amqsidecar.schedule import OpenSchedule, Schedule

STOP_S: Final = 5.0
"""Maximum time a stop waits for a step; an object store may hang."""


class ScheduleThread:
    """Keeps the schedule open from step to step, and reopens it after a failed step.

    Attributes:
        stop: set when the thread is to end.
    """

    def __init__(self, name: str, open_schedule: OpenSchedule) -> None:
        """Prepare; nothing is opened or started yet."""
        self.stop = Flag()
        self._name = name
        self._open_schedule = open_schedule
        self._kept: Schedule | None = None

    @contextmanager
    def running(self, run: Callable[[], None]) -> Iterator[None]:
        """Run a function while the block runs; a step that takes too long is as if killed."""
        thread = Thread(target=run, name=self._name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join(STOP_S)

    @property
    def is_open(self) -> bool:
        """Whether the schedule is open."""
        return self._kept is not None

    @contextmanager
    def schedule(self) -> Iterator[Schedule]:
        """Return the schedule, which is closed if the block fails.

        Raises:
            ConfigError, StoreError: it can't be opened.
        """
        try:
            if self._kept is None:
                self._kept = self._open_schedule()
            yield self._kept
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the schedule; safe to call twice."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()
