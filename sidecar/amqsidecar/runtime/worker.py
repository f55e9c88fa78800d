"""A thread of the service beside the cycles: it repeats a step, and outlives each failure."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Final

import structlog

from amqsidecar.errors import SidecarError
from amqsidecar.runtime.process import prepare_structs
from amqsidecar.schedule import OpenSchedule, Schedule

RETRY_S: Final = (2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Pauses after failures in a row; the longest pause repeats."""
STOP_S: Final = 5.0
"""Maximum time from a stop in which a step may end; an object store may hang."""
LEFT: Final = set[str]()
"""Names of the threads that a stop has not waited for."""


def _nothing() -> None:
    pass


class Worker:
    """Runs a step again and again while its block runs; pauses longer after failures.

    Attributes:
        stop: set when the thread is to end.
        retry_s: see `RETRY_S`.
        stop_s: see `STOP_S`; None = until the step ends.

    Args:
        name: of the thread; the log and the event `<name>_failed` are called after it.
        step: returns the seconds until its next run.
        first_pause_s: before the first step.
        retry_s: see `RETRY_S`.
        waits_for_step: a stop waits for the running step, however long; otherwise a step that
            takes longer than `STOP_S` is as if killed.
        release: called in the thread after each failed step, and at the end.
        wake: ends a wait inside the step; called by a stop in another thread.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        *,
        first_pause_s: float = 1.0,
        retry_s: Sequence[float] = RETRY_S,
        waits_for_step: bool = False,
        release: Callable[[], None] = _nothing,
        wake: Callable[[], None] = _nothing,
    ) -> None:
        self.stop = Flag()
        self._ends_s = 0.0
        self.retry_s = retry_s
        self._name = name
        self._step = step
        self._pause_s = first_pause_s
        self.stop_s = None if waits_for_step else STOP_S
        self._release = release
        self._wake = wake
        self._thread = Thread(target=self._run, name=name, daemon=not waits_for_step)

    def __enter__(self) -> None:
        prepare_structs()
        self._thread.start()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.end()
        is_limited = self.stop_s is not None
        self._thread.join(max(0.0, self._ends_s - time.monotonic()) if is_limited else None)
        if self._thread.is_alive():
            LEFT.add(self._name)

    def end(self) -> None:
        """Let the thread end; its time to do so runs from the first call."""
        if not self.stop.is_set():
            self._ends_s = time.monotonic() + (self.stop_s or 0.0)
            self.stop.set()
            self._wake()

    def _run(self) -> None:
        log = structlog.get_logger(f"amqsidecar.{self._name}")
        event, failures = f"{self._name}_failed", 0
        while not self.stop.wait(self._pause_s):
            try:
                self._pause_s = self._step()
                failures = 0
            except Exception as error:
                self._release()
                self._pause_s = self.retry_s[min(failures, len(self.retry_s) - 1)]
                failures += 1
                is_ours = not isinstance(error, SidecarError)
                log.log(
                    logging.ERROR if is_ours else logging.WARNING,
                    event,
                    reason="a fault of amqsidecar" if is_ours else str(error),
                    again_in_s=self._pause_s,
                    exc_info=is_ours,
                )
        self._release()


@contextmanager
def all_running(workers: Sequence[Worker]) -> Iterator[None]:
    """Run workers while the block runs; they end side by side, in the time of one."""
    with ExitStack() as stack:
        for one in workers:
            stack.enter_context(one)
        try:
            yield
        finally:
            # Why first: otherwise a stop waits for one step after the other.
            for one in workers:
                one.end()


def join_all(threads: Sequence[Thread]) -> None:
    """Wait for threads that are ending, for `STOP_S` together."""
    ends_s = time.monotonic() + STOP_S
    for one in threads:
        one.join(max(0.0, ends_s - time.monotonic()))
        if one.is_alive():
            LEFT.add(one.name)


class KeptSchedule:
    """Keeps a schedule open from step to step of one thread; reopens it after a failed step."""

    def __init__(self, open_schedule: OpenSchedule) -> None:
        self._open_schedule = open_schedule
        self._kept: Schedule | None = None

    @property
    def is_open(self) -> bool:
        """Whether the schedule is open."""
        return self._kept is not None

    @contextmanager
    def open(self) -> Iterator[Schedule]:
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
