"""What the events of each message say about its re-sends and its end, as counts.

A message's events are put in order by their redelivery counts, not by their times: sidecars have
clocks of their own. `received` has count 0, re-send n and the death after it have count n.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f

from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Discarded,
    DuplicateSuppressed,
    Event,
    Exhausted,
    Received,
    Resent,
    Returned,
)
from amqsidecar.pipeline.tables import RECOVERY_COUNTS, RECOVERY_STREAMS


def _tag(event: type[Event]) -> str:
    return str(event.__struct_config__.tag)


KNOWN_TYPES: Final = tuple(_tag(event) for event in AnyEvent.__args__)
"""Events of other types, of a later version, are counted and otherwise left alone."""

_RESENT: Final = _tag(Resent)
_SENDS: Final = (_RESENT, _tag(DuplicateSuppressed))
_DEATHS: Final = (_tag(Received), _tag(Returned))
_ENDS: Final = tuple(_tag(event) for event in (Exhausted, Discarded, Cancelled, DeadLettered))

_SEND, _DEATH, _END = 0, 1, 2
"""Steps of one redelivery count, in their order."""
_LAST_COUNT: Final = 2**31
"""Puts an end, which has no count of its own, behind all else: brokers count no further."""


def observed_streams(events: DataFrame, until_ms: int | None) -> DataFrame:
    """Return what is known of each stream, and until when it was observed (`RECOVERY_STREAMS`).

    Args:
        events: the history, before any is left out.
        until_ms: the end of the observation; None = the latest event of each stream ends its own.
    """
    counted = _until(events, until_ms)
    until = f.col("last_at") if until_ms is None else f.timestamp_millis(f.lit(until_ms))
    return (
        counted.groupBy("stream")
        .agg(
            f.count(f.lit(1)).alias("events"),
            f.count_if(~f.col("type").isin(*KNOWN_TYPES)).alias("unknown_types"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
        )
        .withColumn("observed_until", until)
        .select(*RECOVERY_STREAMS.names)
    )


def count_outcomes(
    events: DataFrame,
    streams: DataFrame,
    *,
    horizon_ms: int,
    since_ms: int | None,
    until_ms: int | None,
) -> DataFrame:
    """Return how many re-sends and messages had which outcome after which time (`RECOVERY_COUNTS`).

    The only pass over the history: one shuffle by message, one of counts by group.

    Args:
        events: the history.
        streams: `observed_streams` of it.
        horizon_ms: a message that has not returned for so long after a re-send is recovered.
        since_ms: only messages whose first event is not before this; None = all.
        until_ms: events at or after this don't count; None = all do.
    """
    steps = _first_of_each_step(_steps(_until(events, until_ms), streams))
    sends = _judge_sends(_with_neighbours(steps), horizon_ms)
    rows = _judge_messages(sends, horizon_ms)
    if since_ms is not None:
        rows = rows.where(f.col("begun_ms") >= since_ms)
    counted = f.explode(f.array(_send_count(horizon_ms), _message_count()))
    keys = RECOVERY_COUNTS.names[: RECOVERY_COUNTS.names.index("messages")]
    return (
        rows.select(counted.alias("counted"))
        .where(f.col("counted").isNotNull())
        .select("counted.*")
        .groupBy(*keys)
        .agg(
            f.count(f.lit(1)).alias("messages"),
            *(
                f.count_if(f.col(name)).alias(name)
                for name in ("negative_times", "implied_returns", "repeated_resends")
            ),
        )
        .select(*RECOVERY_COUNTS.names)
    )


def rounded_ms(time_ms: Column) -> Column:
    """Return a time cut to three digits: exact below one second, at most 1 % less above."""
    digits = f.floor(f.log10(f.greatest(time_ms, f.lit(1)).cast("double")))
    unit = f.pow(f.lit(10.0), f.greatest(digits - 2, f.lit(0))).cast("long")
    return time_ms - time_ms % unit


def _until(events: DataFrame, until_ms: int | None) -> DataFrame:
    if until_ms is None:
        return events
    return events.where(f.col("at") < f.timestamp_millis(f.lit(until_ms)))


def _steps(events: DataFrame, streams: DataFrame) -> DataFrame:
    """Return deaths, sends and ends, each with the end of its stream's observation."""
    is_send, is_death = f.col("type").isin(*_SENDS), f.col("type").isin(*_DEATHS)
    is_end = f.col("type").isin(*_ENDS)
    ends = streams.select("stream", f.unix_millis("observed_until").alias("observed_until_ms"))
    return (
        events.where((is_send | is_death | is_end) & (f.col("redelivery_id") != ""))
        .join(f.broadcast(ends), "stream", "inner")
        .select(
            # Why: ids of one store begin alike, so a sort by them compares whole texts.
            f.xxhash64("redelivery_id").alias("id_hash"),
            "redelivery_id",
            f.when(is_end, _LAST_COUNT)
            .otherwise(f.coalesce("redelivery_count", f.lit(0)))
            .alias("count"),
            f.when(is_send, _SEND).when(is_death, _DEATH).otherwise(_END).alias("step"),
            "type",
            f.unix_millis("at").alias("at_ms"),
            "observed_until_ms",
            f.when(is_send, f.col("destination")).otherwise(f.col("origin")).alias("place"),
            f.when(is_death, f.col("cause_group")).alias("cause_group"),
        )
    )


def _life() -> WindowSpec:
    return Window.partitionBy("id_hash", "redelivery_id").orderBy("count", "step", "at_ms")


def _so_far() -> WindowSpec:
    return _life().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _first_of_each_step(steps: DataFrame) -> DataFrame:
    """Keep the earliest of steps of one kind and count; mark a re-send that was repeated.

    What the broker knew already counts as sent where the message died, not as a final dead letter.
    """
    life = _life()

    def is_like(other: Column, other_step: Column) -> Column:
        return f.coalesce((other == f.col("count")) & (other_step == f.col("step")), f.lit(False))

    before = is_like(f.lag("count").over(life), f.lag("step").over(life))
    after = is_like(f.lead("count").over(life), f.lead("step").over(life))
    both_resent = (f.col("type") == _RESENT) & (f.lead("type").over(life) == _RESENT)
    goes_back = f.col("place").eqNullSafe(f.lag("place").over(life))
    is_final = (f.col("step") == _SEND) & (f.col("type") != _RESENT) & ~goes_back
    return steps.withColumns(
        {
            "is_left_out": before | is_final,
            "repeated_resends": after & f.coalesce(both_resent, f.lit(False)),
        }
    ).where(~f.col("is_left_out"))


def _with_neighbours(steps: DataFrame) -> DataFrame:
    """Add the step before, the step after, and how the history of the message begins."""
    life, so_far = _life(), _so_far()
    before = {
        f"before_{name}": f.lag(name).over(life)
        for name in ("step", "count", "place", "cause_group")
    }
    after = {f"after_{name}": f.lead(name).over(life) for name in ("step", "count", "at_ms")}
    begun = {
        "begun_step": f.first("step").over(so_far),
        "begun_count": f.first("count").over(so_far),
        "begun_ms": f.first("at_ms").over(so_far),
        "begun_place": f.first("place").over(so_far),
        "begun_cause_group": f.first("cause_group").over(so_far),
    }
    return steps.withColumns({**before, **after, **begun})


def _judge_sends(steps: DataFrame, horizon_ms: int) -> DataFrame:
    """Add to each re-send when the message returned, and whether it stayed away."""
    died = (f.col("before_step") == _DEATH) & (f.col("before_count") == f.col("count") - 1)
    returned = (f.col("after_step") == _DEATH) & (f.col("after_count") == f.col("count"))
    # Why: who is sent or dies with a higher count has returned, though nobody has told so.
    went_on = (f.col("after_count") > f.col("count")) & (f.col("after_count") < _LAST_COUNT)
    return_ms = f.when(returned | went_on, f.col("after_at_ms") - f.col("at_ms"))
    return (
        steps.withColumns(
            {
                "is_send": f.col("step") == _SEND,
                "knows_death": f.coalesce(died, f.lit(False)),
                "implied_returns": f.coalesce(~returned & went_on, f.lit(False)),
                "negative_times": f.coalesce(return_ms < 0, f.lit(False)),
                "return_ms": f.when(return_ms < 0, 0).otherwise(return_ms),
                "seen_ms": f.greatest(f.col("observed_until_ms") - f.col("at_ms"), f.lit(0)),
            }
        )
        .withColumn(
            "is_returned", f.col("return_ms") <= f.least(f.col("seen_ms"), f.lit(horizon_ms))
        )
        .withColumn("is_returned", f.coalesce("is_returned", f.lit(False)))
        .withColumn("stayed", ~f.col("is_returned") & (f.col("seen_ms") >= horizon_ms))
    )


def _judge_messages(sends: DataFrame, horizon_ms: int) -> DataFrame:
    """Add to the last row of each message what became of it until `closed_ms`.

    Why not until the end of the observation: what was re-sent less than the horizon ago and has
    returned is known, what has not is open; who counts only the known counts too few recoveries.
    """
    so_far = _so_far()
    closed_ms = f.col("observed_until_ms") - horizon_ms
    recovered = f.col("is_send") & f.col("stayed")
    is_known = (f.col("step") != _END) & (f.col("at_ms") <= closed_ms)
    return sends.withColumns(
        {
            "closed_ms": f.min(closed_ms).over(so_far),
            "recovered_ms": f.first(f.when(recovered, f.col("at_ms")), True).over(so_far),
            "recovered_count": f.first(f.when(recovered, f.col("count")), True).over(so_far),
            "known_stage": f.max(f.when(is_known, _stage("count", "step"))).over(so_far),
        }
    )


def _send_count(horizon_ms: int) -> Column:
    """Return a re-send as one row of counts; null = the row is none."""
    outcome = (
        f.when(f.col("is_returned"), "returned")
        .when(f.col("stayed") & f.col("return_ms").isNotNull(), "returned_later")
        .when(f.col("stayed"), "stayed")
        .otherwise("open")
    )
    seen_ms = f.least(f.col("seen_ms"), f.lit(horizon_ms))
    after_ms = f.when(f.col("is_returned"), f.col("return_ms")).otherwise(seen_ms)
    knows_death = f.col("knows_death")
    return f.when(
        f.col("is_send"),
        f.struct(
            f.lit("resend").alias("kind"),
            f.when(knows_death, f.coalesce("before_place", "place"))
            .otherwise(f.col("place"))
            .alias("origin"),
            f.when(knows_death, f.col("before_cause_group")).alias("cause_group"),
            f.col("count").cast("long").alias("attempt"),
            f.lit(None).cast("long").alias("entry_stage"),
            f.lit(None).cast("long").alias("exit_stage"),
            rounded_ms(after_ms).alias("after_ms"),
            outcome.alias("outcome"),
            (~knows_death).alias("left_truncated"),
            "negative_times",
            "implied_returns",
            "repeated_resends",
        ),
    )


def _message_count() -> Column:
    """Return a message as one row of counts, from its last row; null = the row is none."""
    is_end = f.col("step") == _END
    outcome = (
        f.when(f.col("begun_ms") > f.col("closed_ms"), "too_young")
        .when(f.col("recovered_ms").isNotNull(), "recovered")
        .when(is_end & (f.col("at_ms") <= f.col("closed_ms")), f.col("type"))
        .otherwise("waiting")
    )
    is_placed = (f.col("begun_ms") <= f.col("closed_ms")) & (f.col("begun_step") != _END)
    is_recovered = outcome == "recovered"
    exit_stage = (
        f.when(is_recovered, 2 * f.col("recovered_count") - 1)
        .when(outcome == "waiting", f.col("known_stage"))
        .otherwise(f.col("known_stage") + f.col("known_stage") % 2)
    )
    exit_ms = (
        f.when(is_recovered, f.col("recovered_ms"))
        .when(outcome == "waiting", f.col("closed_ms"))
        .otherwise(f.col("at_ms"))
    ) - f.col("begun_ms")
    is_whole = (f.col("begun_step") == _DEATH) & (f.col("begun_count") == 0)
    return f.when(
        f.col("after_step").isNull(),
        f.struct(
            f.lit("message").alias("kind"),
            f.col("begun_place").alias("origin"),
            f.col("begun_cause_group").alias("cause_group"),
            f.lit(None).cast("long").alias("attempt"),
            f.when(is_placed, _stage("begun_count", "begun_step")).alias("entry_stage"),
            f.when(is_placed, exit_stage).cast("long").alias("exit_stage"),
            f.when(is_placed & is_whole, rounded_ms(f.greatest(exit_ms, f.lit(0)))).alias(
                "after_ms"
            ),
            outcome.alias("outcome"),
            (~is_whole).alias("left_truncated"),
            (is_placed & is_whole & (exit_ms < 0)).alias("negative_times"),
            f.lit(False).alias("implied_returns"),
            f.lit(False).alias("repeated_resends"),
        ),
    )


def _stage(count: str, step: str) -> Column:
    """Return the place of a step in a life: re-send n is 2n - 1, the death after it 2n."""
    return (2 * f.col(count) - f.when(f.col(step) == _SEND, 1).otherwise(0)).cast("long")
