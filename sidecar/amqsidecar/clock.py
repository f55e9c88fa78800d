"""The contract of clocks, the machine's own clock, and one that can't be set."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

NOTICED_MS: Final = 1_000
"""A smaller step of the wall clock is followed without a word."""

SLEW: Final = 20
"""The gap closes by one millisecond in this many; a delay is off by at most this fraction."""

_LOOK_EVERY_MS: Final = 1_000
# Why: between the two readings another process may have had the processor.
_READ_WITHIN_MS: Final = 100


class Clock(Protocol):
    """Where the time comes from."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never goes back; only differences mean anything."""
        ...


class ClockStep(NamedTuple):
    """A change of the wall clock.

    Attributes:
        by_ms: by how much it was set; negative = back, 0 = it was not set.
        behind_ms: by how much the sidecar's clock is behind it now; negative = ahead.
    """

    by_ms: int
    behind_ms: int


def never_set() -> ClockStep:
    """Return that the wall clock was not set; for a clock that is the wall clock itself."""
    return ClockStep(0, 0)


def system_wall_ms() -> int:
    """Return the machine's wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        return system_wall_ms()

    def monotonic_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()


def system_uptime_ms() -> int:
    """Return the milliseconds since the machine started, with those in which it slept.

    Where the system has no such clock (macOS), the monotonic clock.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class Course(msgspec.Struct, frozen=True):
    """How a steady clock goes on from one moment.

    Attributes:
        began_uptime_ms: the uptime at that moment.
        began_ms: the clock at that time.
        behind_ms: by how much it was behind the wall clock then; negative = ahead.
    """

    began_uptime_ms: int
    began_ms: int
    behind_ms: int = 0

    def closed_ms(self, uptime_ms: int) -> int:
        """Return how much of the gap is closed by now; negative where the clock was ahead.

        Example:
            >>> Course(0, 0, 50).closed_ms(200), Course(0, 0, 50).closed_ms(5_000)
            (10, 50)
        """
        closed_ms = min(abs(self.behind_ms), (uptime_ms - self.began_uptime_ms) // SLEW)
        return closed_ms if self.behind_ms > 0 else -closed_ms

    def now_ms(self, uptime_ms: int) -> int:
        """Return the time of the clock.

        Example:
            >>> Course(0, 1_000).now_ms(200), Course(0, 1_000, -50).now_ms(200)
            (1200, 1190)
        """
        passed_ms = uptime_ms - self.began_uptime_ms
        return self.began_ms + passed_ms + self.closed_ms(uptime_ms)

    def looked(self, uptime_ms: int, wall_ms: int) -> "tuple[Course, ClockStep]":
        """Return the course from now on, and the step of the wall clock since the course began.

        Example:
            >>> Course(0, 1_000).looked(200, 4_200)[1]
            ClockStep(by_ms=3000, behind_ms=3000)
        """
        now_ms = self.now_ms(uptime_ms)
        behind_ms = wall_ms - now_ms
        by_ms = behind_ms - (self.behind_ms - self.closed_ms(uptime_ms))
        return Course(uptime_ms, now_ms, behind_ms), ClockStep(by_ms, behind_ms)


class SteadyClock:
    """The clock of a service that keeps a schedule: it starts at the wall clock and can't be set.

    A delay that is measured by the wall clock changes when that clock is set: an hour back turns
    12 s into an hour. This clock advances with the machine's uptime, keeps its course and closes
    the gap slowly, as time daemons do: it agrees with the wall clock again some day, and no delay
    is off by more than a twentieth.

    Any thread may read it; `look` and `start_at_least` belong to one thread.
    """

    def __init__(
        self,
        wall_ms: Callable[[], int] = system_wall_ms,
        uptime_ms: Callable[[], int] = system_uptime_ms,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the wall clock.

        Args:
            wall_ms: milliseconds since the epoch; may be set at any time.
            uptime_ms: milliseconds of a clock that can't be set and that counts suspension.
            monotonic_s: see `Clock`.
        """
        self._wall_ms = wall_ms
        self._uptime_ms = uptime_ms
        self.monotonic_s = monotonic_s
        self._course = Course(uptime_ms(), wall_ms())

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC; never less than before."""
        return self._course.now_ms(self._uptime_ms())

    def start_at_least(self, stored_ms: int) -> ClockStep:
        """Go on from a stored time where the wall clock says less: it was set back meanwhile.

        Returns:
            By how much it was set back at least; `by_ms` 0 = it was not.
        """
        now_ms = self.now_ms()
        if stored_ms <= now_ms:
            return ClockStep(0, 0)
        self._course = Course(self._uptime_ms(), stored_ms, now_ms - stored_ms)
        return ClockStep(now_ms - stored_ms, now_ms - stored_ms)

    def look(self) -> ClockStep:
        """Compare with the wall clock, at most once in a second, and begin to close the gap.

        Returns:
            `by_ms` 0 = the wall clock was not set by `NOTICED_MS` or more since the last look.
        """
        before_ms = self._uptime_ms()
        wall_ms = self._wall_ms()
        uptime_ms = self._uptime_ms()
        course = self._course
        if uptime_ms - course.began_uptime_ms < _LOOK_EVERY_MS or (
            uptime_ms - before_ms > _READ_WITHIN_MS
        ):
            return ClockStep(0, course.behind_ms)
        self._course, step = course.looked(uptime_ms, wall_ms)
        return step if abs(step.by_ms) >= NOTICED_MS else ClockStep(0, step.behind_ms)
