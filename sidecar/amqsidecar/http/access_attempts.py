"""Slows down who guesses, and locks nobody out.

Counted are failures of an address, and of a name from an address. A browser in which somebody has
logged in before is counted by itself: strangers can't make it wait.
"""

from collections import OrderedDict
from typing import Final

from amqsidecar.clock import Clock

_FREE: Final = 5
"""So many may fail before the next has to wait."""

_MAX_WAIT_S: Final = 60.0
_FORGET_S: Final = 900.0
_MAX_KNOWN: Final = 10_000


class Attempts:
    """Failures by key, the least recent forgotten first; for one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_s(self, key: str) -> float:
        """Return for how long the next attempt is refused; 0 = it may be made."""
        count, last_s = self._failures.get(key, (0, 0.0))
        if count < _FREE:
            return 0.0
        passed_s = self._clock.monotonic_s() - last_s
        if passed_s >= _FORGET_S:
            return 0.0
        return max(0.0, min(_MAX_WAIT_S, 2.0 ** (count - _FREE)) - passed_s)

    def failed(self, key: str) -> None:
        """Count a failure."""
        now_s = self._clock.monotonic_s()
        count, last_s = self._failures.pop(key, (0, now_s))
        self._failures[key] = (1 if now_s - last_s >= _FORGET_S else count + 1, now_s)
        if len(self._failures) > _MAX_KNOWN:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        """Forget the failures."""
        self._failures.pop(key, None)
