"""Estimates of survival analysis with censoring: Kaplan-Meier and Aalen-Johansen.

They work on counts per distinct time, so the cost does not depend on the number of messages.
"""

from statistics import NormalDist
from typing import Final

import numpy as np
import pandas

_TINY: Final = 1e-12
"""Shares this near to 0 or 1 count as 0 or 1: sums of floating-point numbers are not exact."""

FLOWS: Final = ("entered", "happened", "competed", "left")
"""Counts at one time: observation began; the event happened; a competing event happened;
observation ended. A message is at risk at its times of entry and of leaving."""


def cumulative_incidence(flows: pandas.DataFrame, confidence: float) -> pandas.DataFrame:
    """Return the cumulative incidence at each time of each group, with confidence bounds.

    The estimator is Aalen-Johansen; without competing events it is one minus Kaplan-Meier. The
    variance is that of the delta method, without competing events Greenwood's. Bounds are
    pointwise, on the scale of log(-log(1 - share)). Where the share is 0 or 1 it has no variance,
    and the bound is the exact binomial one: of 0 in the number still at risk, or of all that it
    happened to.

    Args:
        flows: `group`, `time` and the columns `FLOWS`, all whole numbers; one row per group and
            time, in this order.
        confidence: of the two-sided bounds, such as 0.95.

    Returns:
        For each row `group`, `time`, `at_risk`, `happened`, `competed`, `left`, `share`,
        `low`, `high`, and `remaining`, the share without either event.
    """
    group = flows["group"]

    def total(values: pandas.Series) -> pandas.Series:
        return values.groupby(group, sort=False).cumsum()

    gone = flows["happened"] + flows["competed"]
    left_before = total(gone + flows["left"]) - (gone + flows["left"])
    at_risk = total(flows["entered"]) - left_before
    n, d, all_d = (one.astype("float64") for one in (at_risk, flows["happened"], gone))
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = (1 - all_d / n).where(gone > 0, 1.0)
        remaining = kept.groupby(group, sort=False).cumprod()
        prior = remaining.groupby(group, sort=False).shift(fill_value=1.0)
        has_happened = flows["happened"] > 0
        # Why: in floating point the steps may not sum to exactly 1.
        share = total((prior * d / n).where(has_happened, 0.0)).clip(upper=1.0)
        # Why: (I(t) - I(i))^2 = I(t)^2 - 2 I(t) I(i) + I(i)^2, so that running sums are enough.
        hazard = (all_d / (n * (n - all_d))).where((gone > 0) & (gone < at_risk), 0.0)
        cross = (prior * d / (n * n)).where(has_happened, 0.0)
        own = (prior * prior * (n - d) * d / (n * n * n)).where(has_happened, 0.0)
    variance = (
        share * share * total(hazard)
        - 2 * share * total(hazard * share)
        + total(hazard * share * share)
        + total(own)
        - 2 * (share * total(cross) - total(cross * share))
    ).clip(lower=0.0)
    low, high = _bounds(share, variance, total(flows["happened"]), at_risk, confidence)
    return flows[["group", "time"]].assign(
        at_risk=at_risk,
        happened=flows["happened"],
        competed=flows["competed"],
        left=flows["left"],
        share=share,
        low=low,
        high=high,
        remaining=remaining,
    )


def _bounds(
    share: pandas.Series,
    variance: pandas.Series,
    happened_so_far: pandas.Series,
    at_risk: pandas.Series,
    confidence: float,
) -> tuple[pandas.Series, pandas.Series]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    tail = (1 - confidence) / 2
    missing = 1 - share
    is_none, is_all = share < _TINY, missing < _TINY
    with np.errstate(divide="ignore", invalid="ignore"):
        width = z * np.sqrt(variance) / (missing * np.abs(np.log(missing)))
        low = (1 - missing ** np.exp(-width)).mask(is_none, 0.0)
        low = low.mask(is_all, tail ** (1 / happened_so_far))
        high = (1 - missing ** np.exp(width)).mask(is_none | is_all, 1.0)
        high = high.mask(is_none & (at_risk > 0), 1 - tail ** (1 / at_risk))
    return low, high


def reached_at(curve: pandas.DataFrame, share: float) -> pandas.Series:
    """Return by group when the incidence reaches a share; a group in which it never does lacks."""
    there = curve[curve["share"] >= share - _TINY]
    return there.groupby("group")["time"].min().astype("Int64")
