"""Attempts of messages as arrays: history's attempts with outcomes, and a policy's attempts.

One row per message, one column per re-send; times are in milliseconds, infinity = no such re-send.
"""

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from amqsidecar.pipeline.whatif.curve import Numbers

Mask = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int64]

WINDOW_MS: Final = 30_000
"""Re-sends of the same window are compared with each other."""


GroupKey = tuple[str, str | None]
"""Destination and cause group; None = all groups that are too small for models of their own."""


@dataclass(frozen=True)
class Usual:
    """Medians of a destination, used where a message's own history has no value."""

    late_ms: float
    back_ms: float


@dataclass(frozen=True)
class WindowCounts:
    """Counts by window of `WINDOW_MS` of a destination, from the first to the last of history.

    Attributes:
        first: number of the first window, since the epoch.
        deaths: first deaths in each window.
        successes: successful re-sends in each window.
        failures: failed re-sends of messages that recovered later.
        lost: failed re-sends of messages that never recovered.
    """

    first: int
    deaths: Numbers
    successes: Numbers
    failures: Numbers
    lost: Numbers

    def numbers_of(self, at_ms: Numbers) -> Indexes:
        """Return the index of the window of each time since the epoch; the nearest one outside."""
        last = self.first + len(self.deaths) - 1
        finite = np.where(np.isfinite(at_ms), at_ms, 0.0)
        numbers = np.clip(finite // WINDOW_MS, self.first, last) - self.first
        result: Indexes = numbers.astype(np.int64)
        return result


@dataclass(frozen=True)
class Tries:
    """Re-sends, without their outcomes.

    Attributes:
        at_ms: since the first death.
        waited_ms: since the death before.
        window: index of the window that each falls in; see `WindowCounts.numbers_of`.
    """

    at_ms: Numbers
    waited_ms: Numbers
    window: Indexes

    @property
    def is_made(self) -> Mask:
        """Whether the policy has this re-send."""
        return np.isfinite(self.at_ms)


@dataclass(frozen=True)
class KnownTries(Tries):
    """Re-sends of history.

    Attributes:
        has_failed: whether another death followed.
        has_succeeded: whether the message stayed away; neither = not known yet.
    """

    has_failed: Mask
    has_succeeded: Mask

    @property
    def is_known(self) -> Mask:
        """Whether history shows the outcome."""
        return self.has_failed | self.has_succeeded

    @property
    def has_recovered(self) -> Mask:
        """By message."""
        return np.asarray(self.has_succeeded.any(axis=1))

    @property
    def failed_ms(self) -> Numbers:
        """Return the last re-send that failed, by message; -1 = none."""
        latest: Numbers = np.where(self.has_failed, self.at_ms, -1.0).max(axis=1, initial=-1.0)
        return latest

    @property
    def recovered_ms(self) -> Numbers:
        """Return the re-send that succeeded, by message; infinity = none."""
        at_ms = np.where(self.has_succeeded, self.at_ms, np.inf)
        earliest: Numbers = at_ms.min(axis=1, initial=np.inf)
        return earliest

    def take(self, rows: Indexes | Mask) -> "KnownTries":
        """Return these messages only."""
        return replace(self, **{one.name: getattr(self, one.name)[rows] for one in fields(self)})


@dataclass(frozen=True)
class Reach:
    """The range that history tried with enough messages for a forecast.

    Attributes:
        first_ms: time of the first re-sends, since the first death.
        at_ms: time of the last re-sends, likewise.
        least_wait_ms: shortest waits since the death before.
        number: number of re-sends of one message.
    """

    first_ms: float
    at_ms: float
    least_wait_ms: float
    number: int

    def is_too_early(self, planned: Tries) -> Mask:
        """Return re-sends before any of history that no later re-send within its range follows."""
        is_early = (planned.at_ms < self.first_ms) | ~planned.is_made
        return np.logical_and.accumulate(is_early[:, ::-1], axis=1)[:, ::-1]


MOST_REACHED: Final = 20
"""History reaches a point if at least this number of re-sends are at or beyond it."""
_LEAST_SHARE: Final = 0.05
"""... or re-sends of this share of few messages."""
_SLACK: Final = 1.1
"""A re-send a little later than any of history still counts as within its reach."""


def reach_of(known: KnownTries) -> Reach:
    """Return the range that history tried with these messages."""
    least = min(MOST_REACHED, max(1, int(len(known.at_ms) * _LEAST_SHARE)))

    def far(values: Numbers) -> float:
        if len(values) == 0:
            return 0.0
        place = min(least, len(values))
        return float(np.partition(values, len(values) - place)[len(values) - place])

    is_known = known.is_known
    tried = is_known.sum(axis=0)
    return Reach(
        first_ms=-far(-known.at_ms[is_known]) / _SLACK,
        at_ms=far(known.at_ms[is_known]) * _SLACK,
        least_wait_ms=-far(-known.waited_ms[is_known]) / _SLACK,
        number=int((tried >= least).sum()),
    )
