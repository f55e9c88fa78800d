"""Change points: when a rate of events, or a share, changed, and how sure that is.

A series has a number of events for each hour, and their chances: time for a rate, re-sends for a
share. Days are divided into levels by the least sum of costs (optimal partitioning).
A cost is how unlikely a level makes its days, and each level more costs a penalty. Chance alone
rarely pays for one. Days are counted back from the end, so that the last one is whole. Then each
begin is placed at an hour. A history of less than a week is divided by the hour.

Days that differ more than chance makes them differ (`dispersion`) raise the penalty. So a rise
each morning or each weekend is not a change. In a short history parts of a day replace days.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, log, sqrt
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

_Numbers = npt.NDArray[np.float64]

HOURS: Final = 24
"""Of a day."""
_PENALTY: Final = 7.0
_PENALTY_PER_DAYS: Final = 1.5
"""Of a level: 7 + 1.5 log(days). `test_changes.py` counts the false alarms that are left."""
_SURE: Final = 1.96
"""95 % of a normal distribution lie within this number of standard deviations."""
_WITHIN: Final = 3.0
"""How much less likely an hour of the interval of a begin may be than the likeliest, in logarithm.

Why not 1.92, as for other parameters: a begin is not a smooth parameter, and 1.92 covers 91 %.
For tiny changes in long series 3.68 is right (Hansen 2000); 3.0 covers at least 95 % of the changes
that are found in hours.
"""
_UPPER_QUARTER: Final = 0.75
_ITS_CHI_SQUARE: Final = 1.3233
"""Why not the median: it would take each weekend for two changes."""
_SHORT: Final = 7 * HOURS
"""A history of fewer hours is divided by the hour."""
_PARTS: Final = 8
"""Parts of a short history, whose differences are the usual noise; at most `_LONGEST_PART` long."""
_LONGEST_PART: Final = 6
_LEAST_DAYS: Final = 4
"""Of the penalty: by the hour there are more places for a begin than by the day."""


class SeriesKind(Protocol):
    """Arithmetic of the quantity that a series counts.

    Attributes:
        least_hours: a series of fewer shows no change.
    """

    least_hours: int

    def log_likelihood(self, events: _Numbers, chances: _Numbers) -> _Numbers:
        """Return the log-likelihood of sums of events at their own level, up to a constant."""

    def variance(self, events: float, chances: float) -> float:
        """Return the variance of a level, if events are independent; never 0."""

    def distances(self, events: _Numbers, chances: _Numbers) -> _Numbers:
        """Return the squared differences of neighbours, in variances; NaN = nothing to compare."""


class RateSeries:
    """Events over time; the chances are hours."""

    # Why: on its first day a cycle of a day looks like a change.
    least_hours = 2 * HOURS

    def log_likelihood(self, events: _Numbers, chances: _Numbers) -> _Numbers:
        """See `SeriesKind`."""
        return _times_log(events, events, chances) - events

    def variance(self, events: float, chances: float) -> float:
        """See `SeriesKind`."""
        return (events + 0.5) / max(chances, 1.0) ** 2

    def distances(self, events: _Numbers, chances: _Numbers) -> _Numbers:
        """See `SeriesKind`."""
        del chances
        return _quotient((events[1:] - events[:-1]) ** 2, events[1:] + events[:-1])


class ShareSeries:
    """Events of which each is one of the chances."""

    least_hours = HOURS // 2

    def log_likelihood(self, events: _Numbers, chances: _Numbers) -> _Numbers:
        """See `SeriesKind`."""
        others = chances - events
        return _times_log(events, events, chances) + _times_log(others, others, chances)

    def variance(self, events: float, chances: float) -> float:
        """See `SeriesKind`."""
        share = (events + 0.5) / (chances + 1)
        return share * (1 - share) / max(chances, 1.0)

    def distances(self, events: _Numbers, chances: _Numbers) -> _Numbers:
        """See `SeriesKind`."""
        both = chances[1:] + chances[:-1]
        share = _quotient(events[1:] + events[:-1], both)
        alone = _quotient(events, chances)
        expected = share * (1 - share) * _quotient(both, chances[1:] * chances[:-1])
        return _quotient((alone[1:] - alone[:-1]) ** 2, expected)


def _times_log(weight: _Numbers, part: _Numbers, whole: _Numbers) -> _Numbers:
    is_there = (part > 0) & (whole > 0)
    ratio = np.divide(part, whole, out=np.ones_like(part), where=is_there)
    cost: _Numbers = np.where(is_there, weight * np.log(ratio), 0.0)
    return cost


def _quotient(one: _Numbers, other: _Numbers) -> _Numbers:
    is_there = other > 0
    ratio: _Numbers = np.divide(one, other, out=np.full(len(one), np.nan), where=is_there)
    return ratio


@dataclass(frozen=True)
class LevelChange:
    """A new level. Hours are places in the series.

    Attributes:
        begins: its first hour.
        earliest: least hour that is nearly as likely (95 %).
        latest: greatest such hour.
        ends: hour in which the next level begins; None = it goes on.
        before: level before: events per chance.
        level: the new one.
        low: lower bound of `level - before`, with 95 % confidence.
        high: upper bound of it.
    """

    begins: int
    earliest: int
    latest: int
    ends: int | None
    before: float
    level: float
    low: float
    high: float


class _Sums(NamedTuple):
    """Running sums of a series, from 0."""

    events: _Numbers
    chances: _Numbers

    def between(self, begin: _Numbers | int, end: _Numbers | int) -> tuple[_Numbers, _Numbers]:
        """Return events and chances from `begin` to before `end`."""
        first, last = np.asarray(begin, np.int64), np.asarray(end, np.int64)
        return self.events[last] - self.events[first], self.chances[last] - self.chances[first]


def find_changes(
    events: npt.ArrayLike, chances: npt.ArrayLike, kind: SeriesKind
) -> list[LevelChange]:
    """Return the changes of a series, in order.

    Args:
        events: by hour, from the first hour observed to the last, without a gap.
        chances: one per hour as well; their unit is that of `kind`.
        kind: a rate or a share.

    Example:
        >>> [found] = find_changes([1] * 240 + [9] * 72, [1] * 312, RateSeries())
        >>> found.begins, found.before, found.level
        (240, 1.0, 9.0)
    """
    by_hour = _Sums(*(np.concatenate([[0.0], np.cumsum(one)]) for one in (events, chances)))
    hours = len(by_hour.events) - 1
    if hours < kind.least_hours:
        return []
    is_short = hours < _SHORT
    unit, part = (1, min(hours // _PARTS, _LONGEST_PART)) if is_short else (HOURS, HOURS)
    skipped = hours % part
    by_part = _Sums(*(one[skipped::part] - one[skipped] for one in by_hour))
    spread = dispersion(np.diff(by_part.events), np.diff(by_part.chances), kind)
    penalty = spread * _penalty(hours)
    skipped = hours % unit
    starts = _levels(_Sums(*(one[skipped::unit] for one in by_hour)), kind, penalty)
    # Why from 0: the hours before the first whole day belong to the first level.
    edges = [0, *(skipped + unit * one for one in starts[1:]), hours]
    while True:
        placed = list(_placed(edges, by_hour, kind, spread))
        exact = [0, *(begins for begins, _, _ in placed), hours]
        # Why: the part of a day before its level begins would look like another level.
        gains = [_gain(exact[at : at + 3], by_hour, kind) for at in range(len(placed))]
        if not gains or min(gains) >= penalty:
            break
        del edges[1 + int(np.argmin(gains))]
    return [
        _change(exact[number : number + 3], place, by_hour, kind, spread)
        for number, place in enumerate(placed)
    ]


def least_jump(events: float, chances: float, kind: SeriesKind, hours: int) -> float:
    """Return the least change of a level that would be seen if it came in the middle.

    Returns:
        Events per chance; infinity = none would be seen.
    """
    if hours < kind.least_hours or not chances:
        return inf
    return sqrt(8 * _penalty(hours) * kind.variance(events, chances))


def _penalty(hours: int) -> float:
    return _PENALTY + _PENALTY_PER_DAYS * log(max(hours / HOURS, _LEAST_DAYS))


def dispersion(events: _Numbers, chances: _Numbers, kind: SeriesKind) -> float:
    """Return the over-dispersion of neighbouring days, at least 1.

    It is taken from the upper quartile, so that a few changes don't count as such differences.
    """
    distances = kind.distances(events, chances)
    known = distances[~np.isnan(distances)]
    if not len(known):
        return 1.0
    return max(1.0, float(np.quantile(known, _UPPER_QUARTER)) / _ITS_CHI_SQUARE)


def _levels(sums: _Sums, kind: SeriesKind, penalty: float) -> list[int]:
    """Return the first places of the levels; the first is 0."""
    count = len(sums.events) - 1
    place = np.arange(count + 1, dtype=np.float64)
    costs = penalty - kind.log_likelihood(*sums.between(place[:, None], place[None, :]))
    best = np.zeros(count + 1)
    came_from = np.zeros(count + 1, dtype=np.int64)
    for end in range(1, count + 1):
        until = best[:end] + costs[:end, end]
        came_from[end] = int(np.argmin(until))
        best[end] = until[came_from[end]]
    starts = [int(came_from[count])]
    while starts[0]:
        starts.insert(0, int(came_from[starts[0]]))
    return starts


def _placed(
    edges: Sequence[int], sums: _Sums, kind: SeriesKind, spread: float
) -> Iterator[tuple[int, int, int]]:
    """Yield the likeliest hour of each change between two levels, and its interval."""
    for (before, about), (_, after) in pairwise(pairwise(edges)):
        hours = np.arange(before + 1, after, dtype=np.float64)
        likely = kind.log_likelihood(*sums.between(before, hours))
        likely = likely + kind.log_likelihood(*sums.between(hours, after))
        is_near = np.abs(hours - about) < HOURS
        begins = int(hours[is_near][np.argmax(likely[is_near])])
        most = float(likely[is_near].max())
        possible = hours[likely >= most - _WITHIN * spread]
        yield begins, int(possible.min()), int(possible.max())


def _gain(edges: Sequence[int], sums: _Sums, kind: SeriesKind) -> float:
    """Return how much likelier two levels are than one."""
    before, begins, after = edges
    parts = ((before, begins), (begins, after), (before, after))
    one, other, both = (float(kind.log_likelihood(*sums.between(*part))) for part in parts)
    return one + other - both


def _change(
    edges: Sequence[int], place: tuple[int, int, int], sums: _Sums, kind: SeriesKind, spread: float
) -> LevelChange:
    before, begins, after = edges
    parts = [tuple(map(float, sums.between(*one))) for one in ((before, begins), (begins, after))]
    was, level = (events / chances if chances else 0.0 for events, chances in parts)
    width = _SURE * sqrt(spread * sum(kind.variance(*one) for one in parts))
    _, earliest, latest = place
    return LevelChange(
        begins=begins,
        earliest=earliest,
        latest=latest,
        ends=after if after < len(sums.events) - 1 else None,
        before=was,
        level=level,
        low=level - was - width,
        high=level - was + width,
    )
