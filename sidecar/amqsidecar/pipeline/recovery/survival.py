"""Estimates of survival analysis with censoring: Kaplan-Meier and Aalen-Johansen.

They work on counts per distinct time, so the cost does not depend on the number of messages.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

_TINY: Final = 1e-12
"""Shares this near to 0 or 1 count as 0 or 1: sums of floating-point numbers are not exact."""

FLOWS: Final = ("entered", "happened", "competed", "left")
"""Counts at one time: came under observation; it happened; what makes it impossible happened;
no longer observed. At its time of entry and of leaving a message is at risk."""


def cumulative_incidence(
    flows: DataFrame, keys: Sequence[str], time: str, confidence: float
) -> DataFrame:
    """Return the cumulative incidence at each time of each group, with confidence bounds.

    The estimator is Aalen-Johansen; without competing events it is one minus Kaplan-Meier. The
    variance is that of the delta method, without competing events Greenwood's. Bounds are
    pointwise, on the scale of log(-log(1 - share)). Where the share is 0 or 1 it has no variance,
    and the bound is the exact binomial one: of 0 in the number still at risk, or of all that it
    happened to.

    Args:
        flows: `keys`, `time` and the columns `FLOWS` (bigint); one row per group and time. Keys may
            be null.
        keys: names of the columns of groups.
        time: name of the column of times.
        confidence: of the two-sided bounds, such as 0.95.

    Returns:
        Keys, time, `at_risk`, `happened`, `competed`, `left` (bigint), `share`, `low`, `high`, and
        `remaining` (double), the share without either event.
    """
    order = Window.partitionBy(*keys).orderBy(time)
    upto = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = order.rowsBetween(Window.unboundedPreceding, -1)

    def total(of: Column) -> Column:
        return f.sum(of).over(upto)

    gone = f.col("happened") + f.col("competed")
    gone_before = f.coalesce(f.sum(gone + f.col("left")).over(before), f.lit(0))
    n, d, all_d = (f.col(name).cast("double") for name in ("at_risk", "happened", "gone"))
    prior, share = f.col("prior"), f.col("share")
    kept = f.when(f.col("gone") > 0, 1 - all_d / n).otherwise(f.lit(1.0))
    step = f.when(f.col("happened") > 0, prior * d / n).otherwise(f.lit(0.0))
    estimated = (
        flows.withColumns({"gone": gone, "at_risk": total(f.col("entered")) - gone_before})
        .withColumn("remaining", f.product(kept).over(upto))
        .withColumn("prior", f.coalesce(f.lag("remaining").over(order), f.lit(1.0)))
        # Why: in floating point the steps may not sum to exactly 1.
        .withColumn("share", f.least(total(step), f.lit(1.0)))
    )
    # Why: (I(t) - I(i))^2 = I(t)^2 - 2 I(t) I(i) + I(i)^2, so that running sums are enough.
    hazard = f.when(
        (f.col("gone") > 0) & (f.col("gone") < f.col("at_risk")), all_d / (n * (n - all_d))
    ).otherwise(f.lit(0.0))
    cross = f.when(f.col("happened") > 0, prior * d / (n * n)).otherwise(f.lit(0.0))
    own = f.when(f.col("happened") > 0, prior * prior * (n - d) * d / (n * n * n)).otherwise(
        f.lit(0.0)
    )
    variance = (
        share * share * total(hazard)
        - 2 * share * total(hazard * share)
        + total(hazard * share * share)
        + total(own)
        - 2 * (share * total(cross) - total(cross * share))
    )
    bounded = estimated.withColumns(
        {"variance": f.greatest(variance, f.lit(0.0)), "happened_so_far": total(f.col("happened"))}
    )
    low, high = _bounds(confidence)
    return bounded.select(
        *keys, time, "at_risk", "happened", "competed", "left",
        "share", low.alias("low"), high.alias("high"), "remaining",
    )  # fmt: skip


def _bounds(confidence: float) -> tuple[Column, Column]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    tail = (1 - confidence) / 2
    share, missing = f.col("share"), 1 - f.col("share")
    width = z * f.sqrt("variance") / (missing * f.abs(f.log(missing)))
    is_none, is_all = share < _TINY, missing < _TINY
    low = (
        f.when(is_none, 0.0)
        .when(is_all, f.pow(f.lit(tail), 1 / f.col("happened_so_far")))
        .otherwise(1 - f.pow(missing, f.exp(-width)))
    )
    high = (
        f.when(is_none & (f.col("at_risk") > 0), 1 - f.pow(f.lit(tail), 1 / f.col("at_risk")))
        .when(is_none | is_all, 1.0)
        .otherwise(1 - f.pow(missing, f.exp(width)))
    )
    return low, high


def reached_at(
    curve: DataFrame, keys: Sequence[str], time: str, shares: Sequence[float]
) -> DataFrame:
    """Return when the incidence reaches each share, with confidence bounds of that time.

    Args:
        curve: `cumulative_incidence`.
        keys: names of the columns of groups.
        time: name of the column of times.
        shares: the quantiles.

    Returns:
        Keys, `quantile` (double), and of the type of `time`: `after`, when the estimate reaches it,
        `earliest`, when the upper bound does, `latest`, when the lower bound does; null = never
        in the time observed.
    """

    def first(of: str) -> Column:
        return f.min(f.when(f.col(of) >= f.col("quantile") - _TINY, f.col(time)))

    quantiles = f.explode(f.array(*(f.lit(share) for share in shares)))
    return (
        curve.withColumn("quantile", quantiles)
        .groupBy(*keys, "quantile")
        .agg(
            first("share").alias("after"),
            first("high").alias("earliest"),
            first("low").alias("latest"),
        )
    )
