"""Change points of series with known truths: found where there are some, rarely where none are."""

import numpy as np
import numpy.typing as npt
import pytest

from amqsidecar.pipeline.changes import (
    HOURS,
    RateSeries,
    ShareSeries,
    find_changes,
    least_jump,
)

DAYS = 30
SERIES = 60
Hours = npt.NDArray[np.int64]


def hours(days: int = DAYS) -> Hours:
    return np.ones(days * HOURS, dtype=np.int64)


@pytest.mark.parametrize("per_hour", [0.02, 0.3, 5])
def test_a_steady_rate_has_no_change(per_hour: float) -> None:
    chance = np.random.default_rng(1)
    found = [
        find_changes(chance.poisson(per_hour, DAYS * HOURS), hours(), RateSeries())
        for _ in range(SERIES)
    ]
    assert found == [[]] * SERIES


def test_what_comes_each_morning_and_each_weekend_is_no_change() -> None:
    chance = np.random.default_rng(2)
    at = np.arange(DAYS * HOURS)
    usual = 5 * (1 + np.sin(at / HOURS * 2 * np.pi)) * np.where(at // HOURS % 7 >= 5, 0.3, 1.0)
    assert not any(
        find_changes(chance.poisson(usual), hours(), RateSeries()) for _ in range(SERIES)
    )


def test_bursts_and_days_that_differ_are_rarely_changes() -> None:
    """Of days that differ by a gamma distribution, fewer than one series in twenty has one."""
    chance = np.random.default_rng(3)
    uneven = [
        find_changes(
            chance.poisson(np.repeat(chance.gamma(2, 1, DAYS), HOURS)), hours(), RateSeries()
        )
        for _ in range(SERIES)
    ]
    assert sum(map(bool, uneven)) <= SERIES / 20
    shares = []
    for _ in range(SERIES):
        resends = chance.poisson(3, DAYS * HOURS)
        daily = np.repeat(chance.beta(6, 4, DAYS), HOURS)
        shares.append(find_changes(chance.binomial(resends, daily), resends, ShareSeries()))
    assert sum(map(bool, shares)) <= SERIES / 20


def test_a_doubled_rate_is_found_and_the_intervals_hold_the_truth() -> None:
    chance = np.random.default_rng(4)
    placed, jumps = [], []
    for _ in range(3 * SERIES):
        begins = int(chance.integers(5, DAYS - 5) * HOURS + chance.integers(HOURS))
        rate = np.where(np.arange(DAYS * HOURS) < begins, 1.0, 2.0)
        (one,) = find_changes(chance.poisson(rate), hours(), RateSeries())
        placed.append(one.earliest <= begins <= one.latest)
        jumps.append(one.low <= 1.0 <= one.high)
        assert one.ends is None
    assert np.mean(placed) >= 0.94
    assert np.mean(jumps) >= 0.9


def test_a_halved_share_is_found_within_a_day() -> None:
    chance = np.random.default_rng(5)
    found = 0
    for _ in range(SERIES):
        resends = chance.poisson(6, 14 * HOURS)
        begins = 13 * HOURS - int(chance.integers(HOURS // 2))
        share = np.where(np.arange(14 * HOURS) < begins, 0.8, 0.4)
        changes = find_changes(chance.binomial(resends, share), resends, ShareSeries())
        found += any(one.earliest <= begins <= one.latest for one in changes)
    assert found >= 0.9 * SERIES


def test_an_incident_begins_and_ends() -> None:
    rate = np.ones(DAYS * HOURS, dtype=np.int64)
    rate[10 * HOURS + 5 : 13 * HOURS + 7] = 9
    first, second = find_changes(rate, hours(), RateSeries())
    assert (first.begins, first.ends) == (10 * HOURS + 5, 13 * HOURS + 7)
    assert (second.begins, second.ends) == (13 * HOURS + 7, None)
    assert (first.before, first.level, second.level) == (1, 9, 1)
    assert first.low < 8 < first.high


@pytest.mark.parametrize("count", [0, 1, HOURS, 2 * HOURS - 1, 2 * HOURS + 3])
def test_short_and_empty_series_have_no_change(count: int) -> None:
    for kind in (RateSeries(), ShareSeries()):
        for value in (0, 1):
            assert find_changes([value] * count, [1] * count, kind) == []
        assert find_changes([0] * count, [0] * count, kind) == []


@pytest.mark.parametrize("count", [HOURS, 2 * HOURS, 5 * HOURS])
def test_a_short_history_shows_a_fall_of_its_share_by_the_hour(count: int) -> None:
    """From 40 to 10 %, with 480 re-sends in all; no change where there is none."""
    chance = np.random.default_rng(6)
    found, alarms = 0, 0
    for _ in range(SERIES):
        resends = chance.poisson(480 / count, count)
        begins = count // 2 + int(chance.integers(-count // 8, count // 8))
        share = np.where(np.arange(count) < begins, 0.4, 0.1)
        changes = find_changes(chance.binomial(resends, share), resends, ShareSeries())
        found += any(one.earliest <= begins <= one.latest for one in changes)
        alarms += bool(find_changes(chance.binomial(resends, 0.4), resends, ShareSeries()))
    assert found >= 0.8 * SERIES
    assert alarms <= 1


@pytest.mark.parametrize("days", [1, 2, 3, 5])
def test_a_cycle_of_a_day_is_no_change_of_a_short_history(days: int) -> None:
    chance = np.random.default_rng(7)
    at = np.arange(days * HOURS) / HOURS
    alarms = 0
    for _ in range(SERIES):
        rate = 10 * (1 + 0.7 * np.sin((at + chance.random()) * 2 * np.pi))
        alarms += bool(find_changes(chance.poisson(rate), hours(days), RateSeries()))
    assert alarms <= 1


def test_the_least_jump_that_is_seen_shrinks_with_the_history() -> None:
    least = [least_jump(4 * one, 10 * one, ShareSeries(), one) for one in (6, HOURS, 5 * HOURS)]
    assert least[0] == np.inf
    assert 0.2 < least[1] < 0.3
    assert least[2] < 0.15
