"""The re-sends of each message in the history, and their outcomes."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import LongType

from amqsidecar.pipeline.recovery.steps import DEATHS, ENDS, RENEWALS, SENDS

BEGAN_EARLIER: Final = "began before the history"
KEPT_FOR_A_PERSON: Final = "was parked or held for a person"

_KEPT: Final = ("parked", "held")
_FIRST: Final = ("origin", "cause_group", "cause", "properties", "persistent", "expired")
"""Columns of a message that come from its first death."""


def read_messages(events: DataFrame, until_ms: int | None, horizon_ms: int) -> DataFrame:
    """Return the messages of a history.

    Counts match a message's n-th death with the n-th re-send after it. So the order in which events
    are read, repeated events and differing clocks make no difference. Of a message that a person
    brought back after its end only the first life counts: the rules ended it. A send to another
    place than that of the death is no re-send. Lives are those of `recovery`, which keeps neither
    waits nor texts and counts a message without a row of Spark.

    Args:
        events: the history, as `EVENTS`.
        until_ms: the end of the observation, since the epoch; None = each stream's latest event.
        horizon_ms: time without another death after which a re-send counts as successful.

    Returns:
        One row per message: `number`, a hash of its id; `left_out`, why it doesn't count (null = it
        counts); of its first death `destination` (the address of a fully qualified name),
        `cause_group` ("" = the broker gave none), `cause`, `properties`, `persistent`, `expired`
        and `arrived_ms`; `observed_ms` from then to the end of the observation. By re-send
        `sent_ms` since the first death, `late_ms` after the time of the rules, and `back_ms` to the
        next death (null = none came). Since the first death `failed_ms` of the last re-send that
        failed (-1 = none), and `recovered_ms` of the one that succeeded (null = none yet).
    """
    at_ms = f.unix_millis("at")
    if until_ms is not None:
        events = events.where(at_ms < until_ms)
    ends = events.groupBy("stream").agg(
        (f.max(at_ms) if until_ms is None else f.lit(until_ms)).alias("end_ms")
    )
    events = events.join(f.broadcast(ends), "stream", "inner")
    return _lives(_steps(events)).select(
        f.xxhash64("redelivery_id").alias("number"),
        f.when(f.col("arrived_ms").isNull(), BEGAN_EARLIER)
        .when(f.col("is_kept"), KEPT_FOR_A_PERSON)
        .alias("left_out"),
        f.substring_index("first.origin", "::", 1).alias("destination"),
        f.coalesce("first.cause_group", f.lit("")).alias("cause_group"),
        "first.cause",
        "first.properties",
        f.coalesce("first.persistent", f.lit(True)).alias("persistent"),
        f.coalesce("first.expired", f.lit(False)).alias("expired"),
        "arrived_ms",
        (f.col("end_ms") - f.col("arrived_ms")).alias("observed_ms"),
        f.transform("tries", lambda one: _since_arrival(one["sent_ms"])).alias("sent_ms"),
        f.transform("tries", lambda one: one["late_ms"]).alias("late_ms"),
        f.transform("tries", lambda one: one["back_at_ms"] - one["sent_ms"]).alias("back_ms"),
        _failed_ms().alias("failed_ms"),
        _recovered_ms(f.col("end_ms") - horizon_ms).alias("recovered_ms"),
    )


def _steps(events: DataFrame) -> DataFrame:
    """Return one row per message and death: when it died, how long it had to wait, when it went."""
    at_ms = f.unix_millis("at")
    is_death, is_send = f.col("type").isin(*DEATHS), f.col("type").isin(*SENDS)
    is_first = f.col("type") == "received"
    is_scheduled = f.col("type") == "scheduled"
    count = f.col("redelivery_count")
    is_asked = is_death | is_send | is_scheduled
    of_message = Window.partitionBy("redelivery_id")
    ended_ms = f.min(f.when(f.col("type").isin(*ENDS), at_ms)).over(of_message)
    is_renewal = f.col("type").isin(*RENEWALS) & (at_ms >= f.col("ended_ms"))
    sent_to = f.max(f.when(is_send, f.col("destination")))
    died_at = f.max(f.when(is_death, f.col("origin")))
    return (
        events.where(is_asked | f.col("type").isin(*_KEPT, *ENDS, *RENEWALS))
        # Why: the steps that follow are all by message, so that rows move once.
        .repartition("redelivery_id")
        .withColumn("ended_ms", ended_ms)
        .withColumn("renewed_ms", f.min(f.when(is_renewal, at_ms)).over(of_message))
        .where(is_asked | f.col("type").isin(*_KEPT))
        .where(f.col("renewed_ms").isNull() | (at_ms < f.col("renewed_ms")))
        .withColumn(
            "deaths_before",
            f.when(is_death, count).when(is_send | is_scheduled, count - 1).otherwise(f.lit(0)),
        )
        .groupBy("redelivery_id", "deaths_before")
        .agg(
            f.min(f.when(is_death, at_ms)).alias("died_ms"),
            # Why not a send to another place: it ends the redeliveries and is no evidence of them.
            f.when(
                ~f.coalesce(sent_to != died_at, f.lit(False)), f.min(f.when(is_send, at_ms))
            ).alias("sent_ms"),
            f.min(f.when(is_scheduled, f.col("delay_ms"))).alias("delay_ms"),
            f.min(f.when(is_first, at_ms)).alias("arrived_ms"),
            f.min_by(f.struct(*_FIRST), f.when(is_first, at_ms)).alias("first"),
            f.max(f.col("type").isin(*_KEPT)).alias("is_kept"),
            f.max("end_ms").alias("end_ms"),
        )
    )


def _lives(steps: DataFrame) -> DataFrame:
    following = (
        Window.partitionBy("redelivery_id")
        .orderBy("deaths_before")
        .rowsBetween(1, Window.unboundedFollowing)
    )
    waited = f.col("sent_ms") - f.col("died_ms") - f.coalesce("delay_ms", f.lit(0))
    one_try = f.struct(
        "deaths_before",
        "sent_ms",
        f.greatest(f.coalesce(waited, f.lit(0)), f.lit(0)).alias("late_ms"),
        # Why the greater one: two sidecars have two clocks.
        f.when(f.col("back_at_ms").isNotNull(), f.greatest("back_at_ms", "sent_ms")).alias(
            "back_at_ms"
        ),
    )
    return (
        steps.withColumn("back_at_ms", f.min("died_ms").over(following))
        .groupBy("redelivery_id")
        .agg(
            *(f.max(name).alias(name) for name in ("arrived_ms", "is_kept", "end_ms")),
            f.first("first", ignorenulls=True).alias("first"),
            f.array_sort(f.collect_list(f.when(f.col("sent_ms").isNotNull(), one_try))).alias(
                "tries"
            ),
        )
    )


def _since_arrival(at_ms: Column) -> Column:
    return f.greatest(at_ms - f.col("arrived_ms"), f.lit(0))


def _failed_ms() -> Column:
    failed = f.filter("tries", lambda one: one["back_at_ms"].isNotNull())
    latest = f.array_max(f.transform(failed, lambda one: _since_arrival(one["sent_ms"])))
    return f.coalesce(latest, f.lit(-1)).cast(LongType())


def _recovered_ms(settled_ms: Column) -> Column:
    last = f.try_element_at("tries", f.lit(-1))
    is_settled = last["back_at_ms"].isNull() & (last["sent_ms"] <= settled_ms)
    return f.when(is_settled, f.greatest(_since_arrival(last["sent_ms"]), _failed_ms() + f.lit(1)))
