"""Counts of the outcomes of re-sends and of messages.

Spark reads the history and brings the steps of each message together; `judge` counts them.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Final

import numpy as np
import pyarrow
from pyspark.sql import Column, DataFrame
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
from amqsidecar.pipeline.places import grouped_place
from amqsidecar.pipeline.recovery.judge import (
    COUNTS,
    FIRST_END,
    KEYS,
    MOMENT_STEP,
    NONE,
    NOTHING,
    OUTCOMES,
    STEPS,
    SUMS,
    ObservedStreams,
    count_lives,
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
"""What is done with a message that died, in the order of `judge`'s numbers."""
_HOUR_S: Final = 3_600
_LAST_ROUND: Final = 2**31
"""Order of an end, which has no count: behind every event."""


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
        since_ms: only messages whose first death is in the history, at or after this; None = all.
        until_ms: events at or after this don't count; None = all do.

    Returns:
        The columns of `RECOVERY_COUNTS`, with `origin` and `cause_group` as numbers (bigint); see
        `texts_of` and `with_texts`.
    """
    observed = _observed(streams, horizon_ms, NONE if since_ms is None else since_ms)

    def count(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        there = list(batches)
        if there:
            yield from count_lives(pyarrow.Table.from_batches(there), observed).to_batches()

    counted = (
        _steps(_until(events, until_ms))
        .repartition("id")
        .mapInArrow(count, _bigints(COUNTS.names))
        .groupBy(*KEYS)
        .agg(*(f.sum(name).alias(name) for name in SUMS))
    )
    return counted.select(*_named())


def _bigints(names: Iterable[str]) -> str:
    return ", ".join(f"{name} bigint" for name in names)


def _observed(streams: DataFrame, horizon_ms: int, since_ms: int) -> ObservedStreams:
    rows = streams.select(
        f.xxhash64("stream").alias("number"), f.unix_millis("observed_until").alias("until_ms")
    ).collect()
    ends = sorted((row["number"], row["until_ms"]) for row in rows)
    numbers, until_ms = (np.array([one[at] for one in ends], dtype=np.int64) for at in (0, 1))
    return ObservedStreams(numbers, until_ms, horizon_ms, since_ms)


def _named() -> Iterator[Column]:
    """Yield the columns of `RECOVERY_COUNTS` of those of `COUNTS`."""
    place = f.floor(f.col("what") / 2).cast("int")
    kinds, outcomes = (
        f.get(f.array(*(f.lit(one[at]) for one in OUTCOMES)), place) for at in (0, 1)
    )
    named = {
        "kind": kinds,
        "outcome": outcomes,
        "left_truncated": f.col("what") % 2 == 1,
        **{name: f.nullif(name, f.lit(NOTHING)) for name in ("origin", "cause_group")},
        **{
            name: f.nullif(name, f.lit(NONE))
            for name in ("attempt", "entry_stage", "exit_stage", "after_ms")
        },
        "hour": f.timestamp_seconds(f.nullif("hour", f.lit(NONE)) * _HOUR_S),
    }
    for name in RECOVERY_COUNTS.names:
        yield named.get(name, f.col(name)).alias(name)


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


def _until(events: DataFrame, until_ms: int | None) -> DataFrame:
    if until_ms is None:
        return events
    return events.where(f.col("at") < f.timestamp_millis(f.lit(until_ms)))


# Events to steps


def _is_death() -> Column:
    return f.col("type").isin(*_DEATHS)


def _place() -> Column:
    """Return where a message died, was sent, or ended; null = the event is no step of a life."""
    is_send, is_end = (
        f.col("type").isin(*kinds) for kinds in (_ACTS[:FIRST_END], _ACTS[FIRST_END:])
    )
    return f.when(is_send, grouped_place(f.col("destination"))).when(
        _is_death() | is_end, grouped_place(f.col("origin"))
    )


def _cause_group() -> Column:
    return f.when(_is_death(), f.col("cause_group"))


def _number_of(text: Column) -> Column:
    return f.when(text.isNotNull(), f.xxhash64(text)).otherwise(NOTHING)


def _steps(events: DataFrame) -> DataFrame:
    """Return deaths, sends and ends as `STEPS`."""
    act = reduce(
        lambda so_far, one: so_far.when(f.col("type") == one[1], one[0]),
        enumerate(_ACTS[1:], 1),
        f.when(f.col("type") == _ACTS[0], 0),
    )
    count = f.coalesce("redelivery_count", f.lit(0)).cast("bigint")
    number = f.when(_is_death(), count + 1).when(act < FIRST_END, count).otherwise(_LAST_ROUND)
    steps = {
        "id": f.xxhash64("redelivery_id"),
        # Why: among 64-bit numbers of a hundred million messages two are the same by a chance of
        # 3e-4; with 32 bits more by one of 1e-13.
        "check": f.hash("redelivery_id"),
        "step": number * 2 + f.when(_is_death(), 0).otherwise(1),
        "moment": f.unix_millis("at") * MOMENT_STEP + f.coalesce(act, f.lit(0)),
        "stream": f.xxhash64("stream"),
        "place": _number_of(_place()),
        "cause": _number_of(_cause_group()),
    }
    return events.where(
        f.col("type").isin(*_DEATHS, *_ACTS) & (f.col("redelivery_id") != "")
    ).select(*(steps[name].cast("bigint").alias(name) for name in STEPS.names))
