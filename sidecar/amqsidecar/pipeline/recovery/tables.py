"""The tables of the job `recovery`, all made of `RECOVERY_COUNTS`."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from amqsidecar.pipeline.recovery.survival import FLOWS, cumulative_incidence, reached_at
from amqsidecar.pipeline.tables import (
    RECOVERY_BY_ATTEMPT,
    RECOVERY_BY_MESSAGE,
    RECOVERY_CURVE,
    RECOVERY_SUMMARY,
    TIME_TO_RECOVERY,
)

GROUP: Final = ("origin", "cause_group")
RESENDS: Final = (*GROUP, "attempt")
QUANTILES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Of the time to recovery."""

_ENDED: Final = ("exhausted", "discarded", "cancelled", "dead_lettered")


def incidences(counts: DataFrame, confidence: float) -> DataFrame:
    """Return the estimates behind three of the tables, from one pass over the counts.

    Args:
        counts: `RECOVERY_COUNTS`.
        confidence: of the bounds, between 0 and 1.

    Returns:
        The columns of `survival.cumulative_incidence` by `of`, `RESENDS` and `time`. `of` is
        `resend`: returns after each re-send; `message`: recoveries after the first death; `life`:
        recoveries over the stages of lives.
    """
    return cumulative_incidence(_flows(counts), ("of", *RESENDS), "time", confidence)


def recovery_curve(estimates: DataFrame) -> DataFrame:
    """Return `RECOVERY_CURVE` of the estimates of `incidences`."""
    return (
        estimates.where(f.col("of") == "resend")
        .select(
            *RESENDS,
            f.col("time").alias("after_ms"),
            "at_risk",
            f.col("happened").alias("returned"),
            f.col("left").alias("open"),
            (1 - f.col("share")).alias("share_away"),
            (1 - f.col("high")).alias("low"),
            (1 - f.col("low")).alias("high"),
        )
        .select(*RECOVERY_CURVE.names)
    )


def recovery_by_attempt(counts: DataFrame, curve: DataFrame) -> DataFrame:
    """Return `RECOVERY_BY_ATTEMPT`: the curve of each group at the horizon, and its counts.

    If no message was observed up to the horizon and some may still return, the share is unknown.
    Its bounds are then 0 and the upper bound at the last observed time.

    Args:
        counts: `RECOVERY_COUNTS`.
        curve: `RECOVERY_CURVE`.
    """
    tallies = (
        counts.where(f.col("kind") == "resend")
        .groupBy(*RESENDS)
        .agg(
            f.sum("messages").alias("messages"),
            *_tallies(("returned", "returned_later", "stayed", "open")),
            f.sum(f.when(f.col("left_truncated"), f.col("messages")).otherwise(0)).alias(
                "left_truncated"
            ),
            *(_sum(name) for name in ("negative_times", "implied_returns", "repeated_resends")),
        )
    )
    last = curve.groupBy(*RESENDS).agg(
        f.max_by(f.struct("share_away", "low", "high"), "after_ms").alias("last")
    )
    is_known = (f.col("stayed") + f.col("returned_later") > 0) | (f.col("open") == 0)
    return (
        tallies.alias("tallies")
        .join(last.alias("ends"), _same(RESENDS, "tallies", "ends"), "inner")
        .select(
            "tallies.*",
            f.when(is_known, f.col("last.share_away")).alias("share_recovered"),
            f.when(is_known, f.col("last.low")).otherwise(0.0).alias("low"),
            f.col("last.high").alias("high"),
        )
        .select(*RECOVERY_BY_ATTEMPT.names)
    )


def recovery_by_message(estimates: DataFrame) -> DataFrame:
    """Return `RECOVERY_BY_MESSAGE` of the estimates of `incidences`."""
    at_end = f.struct("share", "low", "high", "remaining")
    return (
        estimates.where(f.col("of") == "life")
        .withColumn("attempts", f.ceil(f.col("time") / 2))
        .groupBy(*GROUP, "attempts")
        .agg(
            f.min_by("at_risk", "time").alias("at_risk"),
            f.sum("happened").alias("recovered"),
            f.sum("competed").alias("ended"),
            f.sum("left").alias("waiting"),
            f.max_by(at_end, "time").alias("last"),
        )
        .select(
            "*",
            f.col("last.share").alias("share_recovered"),
            "last.low",
            "last.high",
            f.greatest(1 - f.col("last.share") - f.col("last.remaining"), f.lit(0.0)).alias(
                "share_ended"
            ),
        )
        .select(*RECOVERY_BY_MESSAGE.names)
    )


def time_to_recovery(estimates: DataFrame) -> DataFrame:
    """Return `TIME_TO_RECOVERY` of the estimates of `incidences`, at `QUANTILES`."""
    curve = estimates.where(f.col("of") == "message")
    return (
        reached_at(curve, GROUP, "time", QUANTILES)
        .withColumnsRenamed({"after": "after_ms", "earliest": "earliest_ms", "latest": "latest_ms"})
        .select(*TIME_TO_RECOVERY.names)
    )


def recovery_summary(counts: DataFrame) -> DataFrame:
    """Return `RECOVERY_SUMMARY` of `RECOVERY_COUNTS`: numbers of messages, without estimates."""
    return (
        counts.where(f.col("kind") == "message")
        .groupBy(*GROUP)
        .agg(
            f.sum("messages").alias("messages"),
            *_tallies(("recovered", *_ENDED, "waiting", "too_young")),
            f.sum(f.when(f.col("left_truncated"), f.col("messages")).otherwise(0)).alias(
                "left_truncated"
            ),
            _sum("negative_times"),
        )
        .select(*RECOVERY_SUMMARY.names)
    )


def _flows(counts: DataFrame) -> DataFrame:
    """Return who comes and who goes at each time of each estimate; see `survival.FLOWS`."""
    has_happened = f.col("outcome").isin("returned", "recovered")
    has_competed = f.col("outcome").isin(*_ENDED)
    comes = {"entered": f.lit(True)}
    goes = {
        "happened": has_happened,
        "competed": has_competed,
        "left": ~(has_happened | has_competed),
    }
    has_time, has_stage = f.col("after_ms").isNotNull(), f.col("exit_stage").isNotNull()

    def flow(of: Column, time: Column, who: dict[str, Column]) -> Column:
        counted = (
            f.when(who.get(name, f.lit(False)), f.col("messages")).otherwise(0).alias(name)
            for name in FLOWS
        )
        return f.struct(of.alias("of"), time.cast("long").alias("time"), *counted)

    sides = [
        f.when(has_time, flow(f.col("kind"), f.lit(0), comes)),
        f.when(has_time, flow(f.col("kind"), f.col("after_ms"), goes)),
        f.when(has_stage, flow(f.lit("life"), f.col("entry_stage"), comes)),
        f.when(has_stage, flow(f.lit("life"), f.col("exit_stage"), goes)),
    ]
    return (
        counts.select(*RESENDS, f.explode(f.array(*sides)).alias("flow"))
        .where(f.col("flow").isNotNull())
        .select(*RESENDS, "flow.*")
        .groupBy("of", *RESENDS, "time")
        .agg(*(_sum(name) for name in FLOWS))
    )


def _sum(name: str) -> Column:
    return f.sum(name).alias(name)


def _tallies(outcomes: Sequence[str]) -> list[Column]:
    return [
        f.sum(f.when(f.col("outcome") == name, f.col("messages")).otherwise(0)).alias(name)
        for name in outcomes
    ]


def _same(keys: Sequence[str], left: str, right: str) -> Column:
    """Return whether the keys of two tables are the same; null is the same as null."""
    return reduce(
        Column.__and__,
        [f.col(f"{left}.{key}").eqNullSafe(f.col(f"{right}.{key}")) for key in keys],
    )
