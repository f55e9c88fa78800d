"""Shares that are not observed to the end: by hand, and as the library lifelines has them."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest

from amqsidecar.pipeline.recovery.survival import FLOWS, cumulative_incidence, reached_at

CONFIDENCE = 0.9
GROUPS = 30


def flows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what comes and goes of `group`, `time`, `outcome`: 1 happened, 2 competed, 0 left."""
    names = {1: "happened", 2: "competed", 0: "left"}
    goes = pd.crosstab([rows.group, rows.time], rows.outcome.map(names)).reset_index()
    comes = rows.groupby("group").size().rename("entered").reset_index().assign(time=0)
    both = pd.concat([comes, goes]).reindex(columns=["group", "time", *FLOWS]).fillna(0)
    summed = both.astype(dict.fromkeys(("time", *FLOWS), "int64"))
    return summed.groupby(["group", "time"]).sum().reset_index()


def curve_of(rows: pd.DataFrame) -> pd.DataFrame:
    return cumulative_incidence(flows(rows), CONFIDENCE).set_index(["group", "time"])


def table(rows: list[tuple[int, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["group", "time", *FLOWS])


def simulated(*, ties: bool) -> pd.DataFrame:
    """Groups of 2 to 900: times to the event and to its competitor, cut at a time of each."""
    chance = np.random.default_rng(20261122)
    frames = []
    for group in range(GROUPS):
        count = int(2 * 1.23**group)
        times = chance.exponential([[80], [120], [100]], (3, count))
        time, outcome = times.min(axis=0), np.array([1, 2, 0])[times.argmin(axis=0)]
        if ties:
            outcome[outcome == 2] = 1
            time = time // 7
        else:
            # Why: the library breaks ties by chance.
            time = np.argsort(np.argsort(time)) + 1
        frames.append(pd.DataFrame({"group": group, "time": time.astype(int), "outcome": outcome}))
    return pd.concat(frames)


def each_group(
    rows: pd.DataFrame, curve: pd.DataFrame
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    for group in range(GROUPS):
        yield rows[rows.group == group], curve.loc[group]


@pytest.fixture
def lifelines() -> Any:
    """The library, which takes a second to import: each worker collects this file."""
    return import_module("lifelines")


def test_it_is_one_minus_kaplan_meier_where_nothing_competes(lifelines: Any) -> None:
    """Bounds as well, but where the library has none: no event so far, or all are gone."""
    rows = simulated(ties=True)
    compared = 0
    for those, ours in each_group(rows, curve_of(rows)):
        fitted = lifelines.KaplanMeierFitter(alpha=1 - CONFIDENCE).fit(
            those.time, those.outcome == 1
        )
        theirs = fitted.survival_function_["KM_estimate"].loc[ours.index]
        np.testing.assert_allclose(1 - ours.share, theirs, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(ours.at_risk, fitted.event_table.at_risk.loc[ours.index])
        inside = (ours.share > 0) & (theirs > 1e-12)
        bounds = fitted.confidence_interval_.loc[ours.index][inside]
        np.testing.assert_allclose(1 - ours.high[inside], bounds.iloc[:, 0], rtol=0, atol=1e-9)
        np.testing.assert_allclose(1 - ours.low[inside], bounds.iloc[:, 1], rtol=0, atol=1e-9)
        compared += int(inside.sum())
    assert compared > 300


def test_it_is_aalen_johansen_where_something_competes(lifelines: Any) -> None:
    """The library's bounds are of log(-log(share)), so ours are made of its variance here."""
    rows = simulated(ties=False)
    z = 1.6448536269514722
    compared = 0
    for those, ours in each_group(rows, curve_of(rows)):
        fitted = lifelines.AalenJohansenFitter(alpha=1 - CONFIDENCE).fit(
            those.time, those.outcome, event_of_interest=1
        )
        theirs = fitted.cumulative_density_["CIF_1"].loc[ours.index]
        np.testing.assert_allclose(ours.share, theirs, rtol=0, atol=1e-9)
        variance = fitted.variance_.loc[ours.index]
        inside = (theirs > 1e-12) & (theirs < 1 - 1e-12) & np.isfinite(variance)
        missing = 1 - theirs[inside]
        width = z * np.sqrt(variance[inside]) / (missing * -np.log(missing))
        np.testing.assert_allclose(ours.low[inside], 1 - missing ** np.exp(-width), atol=1e-9)
        np.testing.assert_allclose(ours.high[inside], 1 - missing ** np.exp(width), atol=1e-9)
        np.testing.assert_allclose(
            ours.remaining, fitted_survival(lifelines, those).loc[ours.index], rtol=0, atol=1e-9
        )
        compared += int(inside.sum())
    assert compared > 500


def fitted_survival(lifelines: Any, rows: pd.DataFrame) -> pd.Series:
    fitted = lifelines.KaplanMeierFitter().fit(rows.time, rows.outcome > 0)
    return fitted.survival_function_["KM_estimate"]


def test_by_hand() -> None:
    """Eight, of which two enter at time 2.

    Time 1: 6 at risk, 1 happens, 1 competes: share 1/6, remaining 4/6, 1 leaves.
    Time 2: 6 - 3 + 2 = 5 at risk, 1 happens: share 1/6 + 4/6 * 1/5 = 3/10, remaining 8/15.
    Time 3: 4 at risk, all 4 compete: share stays, nobody remains.
    """
    curve = cumulative_incidence(
        table([(0, 0, 6, 0, 0, 0), (0, 1, 0, 1, 1, 1), (0, 2, 2, 1, 0, 0), (0, 3, 0, 0, 4, 0)]),
        CONFIDENCE,
    )
    assert curve.at_risk.tolist() == [6, 6, 5, 4]
    assert curve.share.tolist() == pytest.approx([0, 1 / 6, 3 / 10, 3 / 10])
    assert curve.remaining.tolist() == pytest.approx([1, 4 / 6, 8 / 15, 0])
    assert ((curve.low <= curve.share) & (curve.share <= curve.high)).all()


def test_without_variance_bounds_are_the_binomial_ones() -> None:
    """No return of 10: 1 - 0.05^(1/10). All of 3 returned: 0.05^(1/3)."""
    curve = cumulative_incidence(
        table([(0, 0, 10, 0, 0, 0), (0, 9, 0, 0, 0, 10), (1, 0, 3, 0, 0, 0), (1, 9, 0, 3, 0, 0)]),
        CONFIDENCE,
    )
    none, every = curve[curve.time == 9].itertuples()
    assert (none.low, none.high) == (0, pytest.approx(1 - 0.05**0.1))
    assert (every.low, every.high) == (pytest.approx(0.05 ** (1 / 3)), 1)


def test_when_a_share_is_reached() -> None:
    """Half is reached at 3, and 65 % never."""
    rows = [(7, 1, 0.1), (7, 2, 0.4), (7, 3, 0.5), (7, 4, 0.6)]
    curve = pd.DataFrame(rows, columns=["group", "time", "share"])
    assert reached_at(curve, 0.5).to_dict() == {7: 3}
    assert reached_at(curve, 0.65).to_dict() == {}
