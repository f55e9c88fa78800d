"""The tables of the job `recovery`, all made of `RECOVERY_COUNTS`."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from amqsidecar.pipeline.survival import FLOWS, cumulative_incidence, reached_at
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


def recovery_curve(counts: DataFrame, confidence: float) -> DataFrame:
    """Return `RECOVERY_CURVE`: after each re-send, how many have not returned by when."""
    flows = _flows(
        counts.where(f.col("kind") == "resend"),
        RESENDS,
        begin=f.lit(0),
        end=f.col("after_ms"),
        happened=f.col("outcome") == "returned",
        competed=f.lit(False),
    )
    return (
        cumulative_incidence(flows, RESENDS, "time", confidence)
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
    """Return `RECOVERY_BY_ATTEMPT`: the curve of each group at the horizon, and what it is made of.

    Where nobody was observed up to the horizon and some may still return, the share is not known,
    and its bounds are 0 and the upper bound at the last time that is.
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


def recovery_by_message(counts: DataFrame, confidence: float) -> DataFrame:
    """Return `RECOVERY_BY_MESSAGE`: the incidence of recovery over the stages of lives."""
    flows = _flows(
        counts.where(f.col("exit_stage").isNotNull()),
        GROUP,
        begin=f.col("entry_stage"),
        end=f.col("exit_stage"),
        happened=f.col("outcome") == "recovered",
        competed=f.col("outcome").isin(*_ENDED),
    )
    curve = cumulative_incidence(flows, GROUP, "time", confidence)
    at_end = f.struct("share", "low", "high", "remaining")
    return (
        curve.withColumn("attempts", f.ceil(f.col("time") / 2))
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


def time_to_recovery(counts: DataFrame, confidence: float) -> DataFrame:
    """Return `TIME_TO_RECOVERY`: when the incidence of recovery reaches `QUANTILES`."""
    flows = _flows(
        counts.where((f.col("kind") == "message") & f.col("after_ms").isNotNull()),
        GROUP,
        begin=f.lit(0),
        end=f.col("after_ms"),
        happened=f.col("outcome") == "recovered",
        competed=f.col("outcome").isin(*_ENDED),
    )
    curve = cumulative_incidence(flows, GROUP, "time", confidence)
    return (
        reached_at(curve, GROUP, "time", QUANTILES)
        .withColumnsRenamed({"after": "after_ms", "earliest": "earliest_ms", "latest": "latest_ms"})
        .select(*TIME_TO_RECOVERY.names)
    )


def recovery_summary(counts: DataFrame) -> DataFrame:
    """Return `RECOVERY_SUMMARY`: what became of the messages, without estimates."""
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


def _flows(
    counts: DataFrame,
    keys: Sequence[str],
    *,
    begin: Column,
    end: Column,
    happened: Column,
    competed: Column,
) -> DataFrame:
    """Return who comes and who goes at each time; see `survival.FLOWS`."""
    comes = {"entered": f.col("messages")}
    goes = {
        "happened": f.when(happened, f.col("messages")),
        "competed": f.when(competed, f.col("messages")),
        "left": f.when(~(happened | competed), f.col("messages")),
    }
    sides = [
        counts.select(
            *keys,
            time.cast("long").alias("time"),
            *(f.coalesce(flows.get(name, f.lit(None)), f.lit(0)).alias(name) for name in FLOWS),
        )
        for time, flows in ((begin, comes), (end, goes))
    ]
    both = reduce(DataFrame.unionAll, sides)
    return both.groupBy(*keys, "time").agg(*(_sum(name) for name in FLOWS))


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
