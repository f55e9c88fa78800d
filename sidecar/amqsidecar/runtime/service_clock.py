"""The clock of the service: the wake-up at the next due time, and recurring work.

APScheduler runs a few jobs, never one per message: waiting messages are rows behind an index.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event

from apscheduler.executors.debug import DebugExecutor
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from amqsidecar.clock import Clock, SteadyClock
from amqsidecar.runtime.process import prepare_structs

WAKE_UP = "wake_up"


class ServiceClock:
    """Runs recurring work and one wake-up in threads of its own.

    Attributes:
        stopping: set by `stop`; long work ends soon then.

    Args:
        wake: called in a thread of the clock when the next due time has come.
        clock: of the schedule; APScheduler itself goes by the wall clock.
        machine: notices that the wall clock was set; None = the machine's own.
    """

    def __init__(
        self, wake: Callable[[], None], clock: Clock, machine: SteadyClock | None = None
    ) -> None:
        self.stopping = Event()
        self._wake = wake
        self._clock = clock
        self._machine = machine or SteadyClock()
        self._wake_at_ms: int | None = None
        self._recurring: dict[str, tuple[float, Callable[[], None]]] = {}
        self._scheduler = BackgroundScheduler(
            # Why in the scheduler's thread: long work may have both of the others.
            executors={"default": ThreadPoolExecutor(2), WAKE_UP: DebugExecutor()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )

    def start(self) -> None:
        """Begin to run jobs."""
        prepare_structs()
        self._scheduler.start()

    def stop(self) -> None:
        """Run no further jobs; wait for running jobs."""
        self.stopping.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def wake_at(self, due_at_ms: int) -> None:
        """Call `wake` at this time; replaces an earlier wish."""
        if due_at_ms == self._wake_at_ms:
            return
        self._wake_at_ms = due_at_ms
        wait = timedelta(milliseconds=max(0, due_at_ms - self._clock.now_ms()))
        self._scheduler.add_job(
            self._fire,
            "date",
            run_date=datetime.now(UTC) + wait,
            id=WAKE_UP,
            executor=WAKE_UP,
            replace_existing=True,
        )

    def _fire(self) -> None:
        self._wake_at_ms = None
        self._wake()

    def look(self) -> None:
        """Run each job now if the wall clock was set; to be called every few seconds.

        After a step back none would run until the old time comes again.
        """
        if not self._machine.look().by_ms:
            return
        for name, (seconds, work) in list(self._recurring.items()):
            self.every(seconds, name, work)
        self._fire()

    def every(self, seconds: float, name: str, work: Callable[[], None]) -> None:
        """Call `work` now and then again and again, at most one call at a time."""
        self._recurring[name] = (seconds, work)
        self._scheduler.add_job(
            work,
            "interval",
            seconds=seconds,
            id=name,
            replace_existing=True,
            next_run_time=datetime.now(UTC),
        )
