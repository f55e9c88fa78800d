"""The re-sends of each message in the history, and their outcomes."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

MESSAGES: Final = StructType(
    [
        # A hash of its id: the same in each run.
        StructField("number", LongType(), False),
        # Why it says nothing; null = it counts.
        StructField("left_out", StringType(), True),
        # Where it died; of a fully qualified name the address, as policies are asked about it.
        StructField("destination", StringType(), True),
        # Of its first death; empty = the broker gave none.
        StructField("cause_group", StringType(), False),
        # Of its first death, in the words of history; null = it has none.
        StructField("cause", StringType(), True),
        # Those of its first death that the journal keeps.
        StructField("properties", MapType(StringType(), StringType()), True),
        StructField("persistent", BooleanType(), False),
        # Whether its first death was that its time to live ran out.
        StructField("expired", BooleanType(), False),
        # Its first death, since the epoch.
        StructField("arrived_ms", LongType(), True),
        # From then to the end of the observation.
        StructField("observed_ms", LongType(), True),
        # Its re-sends, since its first death.
        StructField("sent_ms", ArrayType(LongType(), True), False),
        # How much later than the rules said each went.
        StructField("late_ms", ArrayType(LongType(), False), False),
        # From each re-send to the next death; null = none came.
        StructField("back_ms", ArrayType(LongType(), True), False),
        # The last re-send that failed, since its first death; -1 = none.
        StructField("failed_ms", LongType(), False),
        # The re-send that succeeded, since its first death; null = none, or it is not known yet.
        StructField("recovered_ms", LongType(), True),
    ]
)
"""One row per message."""

BEGAN_EARLIER: Final = "began before the history"
KEPT_FOR_A_PERSON: Final = "was parked or held for a person"

_DEATHS: Final = ("received", "returned")
_SENDS: Final = ("resent", "duplicate_suppressed")
_KEPT: Final = ("parked", "held")
_ENDS: Final = ("exhausted", "discarded", "cancelled")
_RENEWALS: Final = ("retried", "redirected", "restored")
"""Acts of persons after which a message that has ended begins a new life."""


def read_messages(events: DataFrame, until_ms: int | None, horizon_ms: int) -> DataFrame:
    """Return `MESSAGES`, one row per message.

    Counts match a message's n-th death with the n-th re-send after it. So the order in which events
    are read, repeated events and differing clocks make no difference. Of a message that a person
    brought back after its end only the first life counts: the rules ended it. A send to another
    place than that of the death is no re-send.

    Args:
        events: the history, as `EVENTS`.
        until_ms: the end of the observation, since the epoch; None = each stream's latest event.
        horizon_ms: time without another death after which a re-send counts as successful.
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
        f.substring_index("origin", "::", 1).alias("destination"),
        f.coalesce("cause_group", f.lit("")).alias("cause_group"),
        "cause",
        "properties",
        f.coalesce("persistent", f.lit(True)).alias("persistent"),
        f.coalesce("expired", f.lit(False)).alias("expired"),
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
    is_death, is_send = f.col("type").isin(*_DEATHS), f.col("type").isin(*_SENDS)
    is_first = f.col("type") == "received"
    is_scheduled = f.col("type") == "scheduled"
    count = f.col("redelivery_count")
    is_asked = is_death | is_send | is_scheduled
    of_message = Window.partitionBy("redelivery_id")
    ended_ms = f.min(f.when(f.col("type").isin(*_ENDS), at_ms)).over(of_message)
    is_renewal = f.col("type").isin(*_RENEWALS) & (at_ms >= f.col("ended_ms"))
    sent_to = f.max(f.when(is_send, f.col("destination")))
    died_at = f.max(f.when(is_death, f.col("origin")))
    return (
        events.where(is_asked | f.col("type").isin(*_KEPT, *_ENDS, *_RENEWALS))
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
            # Why not a send to another place: it ends the redeliveries, and says nothing of them.
            f.when(
                ~f.coalesce(sent_to != died_at, f.lit(False)), f.min(f.when(is_send, at_ms))
            ).alias("sent_ms"),
            f.min(f.when(is_scheduled, f.col("delay_ms"))).alias("delay_ms"),
            f.min(f.when(is_first, at_ms)).alias("arrived_ms"),
            f.max(f.when(is_first, f.col("origin"))).alias("origin"),
            f.max(f.when(is_first, f.col("cause_group"))).alias("cause_group"),
            f.max(f.when(is_first, f.col("cause"))).alias("cause"),
            # Why: maps have no order; repeated events are alike.
            f.first(f.when(is_first, f.col("properties")), ignorenulls=True).alias("properties"),
            f.max(f.when(is_first, f.col("persistent"))).alias("persistent"),
            f.max(f.when(is_first, f.col("expired"))).alias("expired"),
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
            *(
                f.max(name).alias(name)
                for name in (
                    "arrived_ms", "origin", "cause_group", "cause", "persistent", "expired",
                    "is_kept", "end_ms",
                )
            ),
            f.first("properties", ignorenulls=True).alias("properties"),
            f.array_sort(
                f.collect_list(f.when(f.col("sent_ms").isNotNull(), one_try))
            ).alias("tries"),
        )
    )  # fmt: skip


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
