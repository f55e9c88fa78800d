"""The clock of the service: the wake-up at the next due time, and recurring work.

APScheduler runs a handful of jobs, never one per message: what waits is rows behind an index.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

WAKE_UP = "wake_up"


class ServiceClock:
    """Runs recurring work and one wake-up in threads of its own."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Make a clock.

        Args:
            wake: called in a thread of the clock when the next due time has come.
        """
        self._wake = wake
        self._wake_at_ms: int | None = None
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(2)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )

    def start(self) -> None:
        """Begin to run jobs."""
        self._scheduler.start()

    def stop(self) -> None:
        """Run no further jobs; waits for those that run."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def wake_at(self, due_at_ms: int) -> None:
        """Call `wake` at this time; replaces an earlier wish."""
        if due_at_ms == self._wake_at_ms:
            return
        self._wake_at_ms = due_at_ms
        self._scheduler.add_job(
            self._fire,
            "date",
            run_date=datetime.fromtimestamp(due_at_ms / 1000, UTC),
            id=WAKE_UP,
            replace_existing=True,
        )

    def _fire(self) -> None:
        self._wake_at_ms = None
        self._wake()

    def every(self, seconds: float, name: str, work: Callable[[], None]) -> None:
        """Call `work` now and then again and again, at most one call at a time."""
        self._scheduler.add_job(
            work,
            "interval",
            seconds=seconds,
            id=name,
            replace_existing=True,
            next_run_time=datetime.now(UTC),
        )
