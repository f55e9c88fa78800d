"""Counts of the outcomes of re-sends and of messages.

A message's events are put in order by their redelivery counts, not by their times: sidecars have
clocks of their own. Round n of a message is its death with count n - 1 and its re-send n; the death
after that is in round n + 1.
"""

from functools import reduce
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

_DEATHS: Final = (_tag(Received), _tag(Returned))
_ACTS: Final = tuple(
    _tag(event)
    for event in (Resent, DuplicateSuppressed, Exhausted, Discarded, Cancelled, DeadLettered)
)
"""What is done with a message that died, by number; the first two are sends, the others ends."""
_RESENT, _SUPPRESSED, _FIRST_END = 0, 1, 2
_LAST_ROUND: Final = 2**31
"""Puts an end, which has no count of its own, behind all else: brokers count no further."""


def survey(events: DataFrame, until_ms: int | None) -> DataFrame:
    """Return the number of events by stream and texts, from one pass over the history.

    Args:
        events: the history, before any is left out.
        until_ms: the end of the observation, in milliseconds since the epoch; None = all count.

    Returns:
        `stream`, `place`, `cause_group` (string), `is_unknown` (boolean: of a type that this
        version does not know), `events` (bigint), `first_at` and `last_at` (timestamp); few rows.
    """
    return (
        _until(events, until_ms)
        .groupBy(
            "stream",
            (~f.col("type").isin(*KNOWN_TYPES)).alias("is_unknown"),
            _place().alias("place"),
            _cause_group().alias("cause_group"),
        )
        .agg(
            f.count(f.lit(1)).alias("events"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
        )
    )


def observed_streams(surveyed: DataFrame, until_ms: int | None) -> DataFrame:
    """Return `RECOVERY_STREAMS`: the events of each stream, and until when it was observed.

    Args:
        surveyed: see `survey`.
        until_ms: the end of the observation; None = the latest event of each stream ends its own.
    """
    until = f.col("last_at") if until_ms is None else f.timestamp_millis(f.lit(until_ms))
    return (
        surveyed.groupBy("stream")
        .agg(
            f.sum("events").alias("events"),
            f.sum(f.when(f.col("is_unknown"), f.col("events")).otherwise(0)).alias("unknown_types"),
            f.min("first_at").alias("first_at"),
            f.max("last_at").alias("last_at"),
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
    """Return the number of re-sends and of messages by outcome and by time to it.

    One shuffle is by message, another by group. Texts go through neither.

    Args:
        events: the history.
        streams: `observed_streams` of it.
        horizon_ms: time without a return after which a re-sent message counts as recovered.
        since_ms: only messages whose first event is not before this; None = all.
        until_ms: events at or after this don't count; None = all do.

    Returns:
        The columns of `RECOVERY_COUNTS`, with `origin` and `cause_group` as numbers (bigint); see
        `texts_of` and `with_texts`.
    """
    rounds = _with_neighbours(_rounds(_steps(_until(events, until_ms), streams)))
    rows = _judge_messages(_judge_sends(rounds, horizon_ms), horizon_ms)
    if since_ms is not None:
        rows = rows.where(f.col("begun_ms") >= since_ms)
    keys = RECOVERY_COUNTS.names[: RECOVERY_COUNTS.names.index("messages")]
    return (
        rows.select(f.explode(f.array(_send_count(), _message_count())).alias("counted"))
        .where(f.col("counted").isNotNull())
        .select("counted.*")
        .withColumn("after_ms", rounded_ms(f.col("after_ms")))
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


def texts_of(surveyed: DataFrame) -> DataFrame:
    """Return the number of each text, its 64-bit hash.

    In a history of a hundred thousand texts the probability of a collision is 3e-10.

    Args:
        surveyed: see `survey`.

    Returns:
        `number` (bigint) and `text` (string).
    """
    return (
        surveyed.select(f.explode(f.array("place", "cause_group")).alias("text"))
        .distinct()
        .select(f.xxhash64("text").alias("number"), "text")
    )


def with_texts(table: DataFrame, texts: DataFrame) -> DataFrame:
    """Return a table with the texts of `origin` and `cause_group` in place of their numbers.

    Args:
        table: has these two columns, as numbers.
        texts: see `texts_of`.
    """
    names = table.columns
    for name in ("origin", "cause_group"):
        known = texts.select(f.col("number").alias(name), f.col("text").alias(f"{name}_text"))
        table = table.join(f.broadcast(known), name, "left").drop(name)
        table = table.withColumnRenamed(f"{name}_text", name)
    return table.select(*names)


def rounded_ms(time_ms: Column) -> Column:
    """Return a time rounded down to three digits: exact below 1 s, at most 1 % less above."""
    digits = f.floor(f.log10(f.greatest(time_ms, f.lit(1)).cast("double")))
    unit = f.pow(f.lit(10.0), f.greatest(digits - 2, f.lit(0))).cast("long")
    return time_ms - time_ms % unit


def _until(events: DataFrame, until_ms: int | None) -> DataFrame:
    if until_ms is None:
        return events
    return events.where(f.col("at") < f.timestamp_millis(f.lit(until_ms)))


# Events to rounds


def _is_death() -> Column:
    return f.col("type").isin(*_DEATHS)


def _place() -> Column:
    """Return where a message died, was sent, or ended; null = the event is no step of a life."""
    is_send, is_end = (
        f.col("type").isin(*kinds) for kinds in (_ACTS[:_FIRST_END], _ACTS[_FIRST_END:])
    )
    return f.when(is_send, f.col("destination")).when(_is_death() | is_end, f.col("origin"))


def _cause_group() -> Column:
    return f.when(_is_death(), f.col("cause_group"))


def _number_of(text: Column) -> Column:
    return f.when(text.isNotNull(), f.xxhash64(text))


def _steps(events: DataFrame, streams: DataFrame) -> DataFrame:
    """Return deaths, sends and ends, each with the end of its stream's observation."""
    act = reduce(
        lambda so_far, one: so_far.when(f.col("type") == one[1], one[0]),
        enumerate(_ACTS[1:], 1),
        f.when(f.col("type") == _ACTS[0], 0),
    )
    ends = streams.select("stream", f.unix_millis("observed_until").alias("until_ms"))
    count = f.coalesce("redelivery_count", f.lit(0))
    return (
        events.where(f.col("type").isin(*_DEATHS, *_ACTS) & (f.col("redelivery_id") != ""))
        .join(f.broadcast(ends), "stream", "inner")
        .select(
            # Why: ids of one store begin alike, so a sort by them compares whole texts.
            f.xxhash64("redelivery_id").alias("id_hash"),
            "redelivery_id",
            f.when(_is_death(), count + 1)
            .when(act < _FIRST_END, count)
            .otherwise(_LAST_ROUND)
            .alias("round"),
            f.when(_is_death(), f.unix_millis("at")).alias("died_ms"),
            f.when(~_is_death(), f.unix_millis("at")).alias("acted_ms"),
            act.alias("act"),
            "until_ms",
            _number_of(_place()).alias("place"),
            _number_of(_cause_group()).alias("cause_group"),
        )
    )


def _rounds(steps: DataFrame) -> DataFrame:
    """Return one row per message and round; of equal steps the earliest counts."""
    earliest = {
        "died_ms": {
            "died_place": "place",
            "cause_group": "cause_group",
            "died_until_ms": "until_ms",
        },
        "acted_ms": {"act": "act", "acted_place": "place", "acted_until_ms": "until_ms"},
    }
    return (
        steps.repartition("id_hash")
        .groupBy("id_hash", "redelivery_id", "round")
        .agg(
            *(f.min(time).alias(time) for time in earliest),
            *(
                f.min_by(of, time).alias(name)
                for time, columns in earliest.items()
                for name, of in columns.items()
            ),
            f.count_if(f.col("act") == _RESENT).alias("resends"),
        )
    )


# Rounds to outcomes


def _life() -> WindowSpec:
    return Window.partitionBy("id_hash", "redelivery_id").orderBy("round")


def _so_far() -> WindowSpec:
    return _life().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _with_neighbours(rounds: DataFrame) -> DataFrame:
    """Add when the next round began, and leave out final dead letters that the broker knew already.

    What the broker knew already counts as sent where the message was before, not elsewhere.
    """
    life = _life()
    is_suppressed = f.col("act") == _SUPPRESSED
    has_died = f.col("died_ms").isNotNull()
    is_send = f.col("act") < _FIRST_END
    last_place = f.when(f.col("act").isNotNull(), f.col("acted_place")).otherwise(
        f.col("died_place")
    )
    begins = rounds.withColumns(
        {
            "last_place": last_place,
            "begins_ms": f.coalesce("died_ms", f.when(is_send, f.col("acted_ms"))),
            "begins_suppressed": ~has_died & f.coalesce(is_suppressed, f.lit(False)),
        }
    ).withColumns(
        {
            "before_place": f.lag("last_place").over(life),
            **{
                f"next_{name}": f.lead(name).over(life)
                for name in (
                    *("round", "died_ms", "begins_ms", "begins_suppressed", "acted_place"),
                )
            },
        }
    )
    came_from = f.when(has_died, f.col("died_place")).otherwise(f.col("before_place"))
    is_final = is_suppressed & ~f.col("acted_place").eqNullSafe(came_from)
    has_acted = f.coalesce(f.col("act").isNotNull() & ~is_final, f.lit(False))
    is_next = ~f.col("next_begins_suppressed") | f.col("next_acted_place").eqNullSafe(
        f.col("last_place")
    )
    is_next_death = (f.col("next_round") == f.col("round") + 1) & f.col("next_died_ms").isNotNull()
    return begins.withColumns(
        {
            "act": f.when(has_acted, f.col("act")),
            "next_ms": f.when(is_next, f.col("next_begins_ms")),
            "is_next_death": f.coalesce(is_next_death, f.lit(False)),
        }
    ).where(has_died | f.col("act").isNotNull())


def _judge_sends(rounds: DataFrame, horizon_ms: int) -> DataFrame:
    """Add to each re-send when the message returned, and whether it stayed away.

    Column by column: what is used twice is computed once, and plans stay small.
    """
    # Why by next_ms: a later send or death with a higher count proves a return.
    seen_ms = f.greatest(f.col("acted_until_ms") - f.col("acted_ms"), f.lit(0))
    return (
        rounds.withColumns(
            {
                "is_send": f.coalesce(f.col("act") < _FIRST_END, f.lit(False)),
                "took_ms": f.col("next_ms") - f.col("acted_ms"),
                "seen_ms": f.least(seen_ms, f.lit(horizon_ms)),
            }
        )
        .withColumn("return_ms", f.when(f.col("took_ms") < 0, 0).otherwise(f.col("took_ms")))
        .withColumn("is_returned", f.coalesce(f.col("return_ms") <= f.col("seen_ms"), f.lit(False)))
        .withColumn("stayed", ~f.col("is_returned") & (f.col("seen_ms") >= horizon_ms))
    )


def _judge_messages(sends: DataFrame, horizon_ms: int) -> DataFrame:
    """Add to the last round of each message what became of it until `closed_ms`.

    Why not until the end of the observation: what was re-sent less than the horizon ago and has
    returned is known, what has not is open; who counts only the known counts too few recoveries.
    """
    so_far = _so_far()
    has_died = f.col("died_ms").isNotNull()
    # Why stages: they are the places of steps in a life. Re-send n is 2n - 1, the death after 2n.
    death_stage, send_stage = 2 * f.col("round") - 2, 2 * f.col("round") - 1
    is_death_known = f.col("died_ms") <= f.col("died_until_ms") - horizon_ms
    is_send_known = f.col("is_send") & (f.col("acted_ms") <= f.col("acted_until_ms") - horizon_ms)
    recovers = f.col("is_send") & f.col("stayed")
    acted_until_ms = f.when(f.col("act").isNotNull(), f.col("acted_until_ms"))
    begun = {
        "ms": f.coalesce("died_ms", "acted_ms"),
        "stage": f.when(has_died, death_stage).when(f.col("is_send"), send_stage),
        "place": f.when(has_died, f.col("died_place")).otherwise(f.col("acted_place")),
        "cause_group": f.col("cause_group"),
    }
    lives = sends.withColumns(
        {
            **{f"begun_{name}": f.first(value).over(so_far) for name, value in begun.items()},
            "closed_ms": f.min(f.least("died_until_ms", acted_until_ms) - horizon_ms).over(so_far),
            "recovered_ms": f.first(f.when(recovers, f.col("acted_ms")), True).over(so_far),
            "recovered_stage": f.first(f.when(recovers, send_stage), True).over(so_far),
            "known_stage": f.max(
                f.when(is_send_known, send_stage).when(is_death_known, death_stage)
            ).over(so_far),
            "is_last": f.lead("round").over(_life()).isNull(),
            "ended_ms": f.when(f.col("act") >= _FIRST_END, f.col("acted_ms")),
        }
    )
    ends = f.array(*map(f.lit, _ACTS))
    outcome = (
        f.when(f.col("begun_ms") > f.col("closed_ms"), "too_young")
        .when(f.col("recovered_ms").isNotNull(), "recovered")
        .when(f.col("ended_ms") <= f.col("closed_ms"), ends[f.col("act")])
        .otherwise("waiting")
    )
    is_known = (f.col("outcome") != "too_young") & f.col("begun_stage").isNotNull()
    is_recovered, is_waiting = f.col("outcome") == "recovered", f.col("outcome") == "waiting"
    exit_stage = (
        f.when(is_recovered, f.col("recovered_stage"))
        .when(is_waiting, f.col("known_stage"))
        .otherwise(f.col("known_stage") + f.col("known_stage") % 2)
    )
    exit_ms = (
        f.when(is_recovered, f.col("recovered_ms"))
        .when(is_waiting, f.col("closed_ms"))
        .otherwise(f.col("ended_ms"))
    )
    return (
        lives.withColumn("outcome", outcome)
        .withColumns(
            {"is_placed": is_known, "is_whole": f.coalesce(f.col("begun_stage") == 0, f.lit(False))}
        )
        .withColumn("exit_stage", f.when(f.col("is_placed"), exit_stage))
        .withColumn(
            "exit_after_ms",
            f.when(f.col("is_placed") & f.col("is_whole"), exit_ms - f.col("begun_ms")),
        )
    )


def _send_count() -> Column:
    """Return a re-send as one row of counts; null = the round has none."""
    has_returned = f.col("return_ms").isNotNull()
    outcome = (
        f.when(f.col("is_returned"), "returned")
        .when(f.col("stayed") & has_returned, "returned_later")
        .when(f.col("stayed"), "stayed")
        .otherwise("open")
    )
    after_ms = f.when(f.col("is_returned"), f.col("return_ms")).otherwise(f.col("seen_ms"))
    return f.when(
        f.col("is_send"),
        f.struct(
            f.lit("resend").alias("kind"),
            f.coalesce("died_place", "acted_place").alias("origin"),
            "cause_group",
            f.col("round").alias("attempt"),
            f.lit(None).cast("long").alias("entry_stage"),
            f.lit(None).cast("long").alias("exit_stage"),
            after_ms.alias("after_ms"),
            outcome.alias("outcome"),
            f.col("died_ms").isNull().alias("left_truncated"),
            f.coalesce(f.col("took_ms") < 0, f.lit(False)).alias("negative_times"),
            (has_returned & ~f.col("is_next_death")).alias("implied_returns"),
            (f.col("resends") > 1).alias("repeated_resends"),
        ),
    )


def _message_count() -> Column:
    """Return a message as one row of counts, from its last round; null = the round is none."""
    exit_ms = f.col("exit_after_ms")
    return f.when(
        f.col("is_last"),
        f.struct(
            f.lit("message").alias("kind"),
            f.col("begun_place").alias("origin"),
            f.col("begun_cause_group").alias("cause_group"),
            f.lit(None).cast("long").alias("attempt"),
            f.when(f.col("is_placed"), f.col("begun_stage")).alias("entry_stage"),
            "exit_stage",
            f.when(exit_ms < 0, 0).otherwise(exit_ms).alias("after_ms"),
            "outcome",
            (~f.col("is_whole")).alias("left_truncated"),
            f.coalesce(exit_ms < 0, f.lit(False)).alias("negative_times"),
            f.lit(False).alias("implied_returns"),
            f.lit(False).alias("repeated_resends"),
        ),
    )
