"""The clock contract."""

import time
from typing import NamedTuple, Protocol


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


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()
