"""Counts of the outcomes of re-sends and of messages.

Spark reads the history and brings the steps of each message together; `judge` counts them.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final, NamedTuple

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
    FIRST_END,
    MOMENT_STEP,
    NONE,
    NOTHING,
    STEPS,
    ObservedStreams,
    count_lives,
)
from amqsidecar.pipeline.recovery.packed import PACKED, pack
from amqsidecar.pipeline.results import arrow_schema
from amqsidecar.pipeline.tables import RECOVERY_STREAMS


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
_LAST_ROUND: Final = 2**31
"""Order of an end, which has no count: behind every event."""


class Survey(NamedTuple):
    """What a history holds beside its messages.

    Attributes:
        streams: `RECOVERY_STREAMS`.
        ends_ms: the end of the observation of each stream by its number, the 64-bit hash of its
            name.
        texts: names of places, and cause groups, by number. In a history of a hundred thousand
            texts the probability of a collision is 3e-10.
    """

    streams: pyarrow.Table
    ends_ms: Mapping[int, int]
    texts: Mapping[int, str]


def survey(events: DataFrame, until_ms: int | None) -> Survey:
    """Return the streams and texts of a history, from one pass over it.

    Args:
        events: the history, before any is left out.
        until_ms: the end of the observation, in milliseconds since the epoch; None = the latest
            event of each stream ends its own.
    """
    counted = (
        _until(events, until_ms)
        .groupBy(
            "stream",
            (~f.col("type").isin(*KNOWN_TYPES)).alias("is_unknown"),
            _place().alias("place"),
            _cause_group().alias("cause_group"),
        )
        .agg(
            f.count(f.lit(1)).alias("events"),
            f.unix_micros(f.min("at")).alias("first_at"),
            f.unix_micros(f.max("at")).alias("last_at"),
        )
    )
    names = ("stream", "place", "cause_group")
    found = counted.select("*", *(f.xxhash64(one).alias(f"{one}_number") for one in names))
    rows = found.toArrow().to_pandas()
    texts: dict[int, str] = {}
    for name in names[1:]:
        there = rows[rows[name].notna()].drop_duplicates(name)
        texts.update(zip(there[f"{name}_number"].tolist(), there[name].tolist(), strict=True))
    rows["unknown_types"] = rows["events"].where(rows["is_unknown"], 0)
    streams = (
        rows.groupby(["stream", "stream_number"])
        .agg({"events": "sum", "unknown_types": "sum", "first_at": "min", "last_at": "max"})
        .reset_index()
    )
    ends = streams["last_at"] if until_ms is None else until_ms * 1_000
    streams["observed_until"] = ends
    ends_ms = (streams["observed_until"] // 1_000).tolist()
    schema = arrow_schema(RECOVERY_STREAMS)
    columns = [pyarrow.array(streams[one.name]).cast(one.type) for one in schema]
    return Survey(
        streams=pyarrow.table(columns, schema=schema),
        ends_ms=dict(zip(streams["stream_number"].tolist(), ends_ms, strict=True)),
        texts=texts,
    )


def count_outcomes(
    events: DataFrame,
    ends_ms: Mapping[int, int],
    *,
    horizon_ms: int,
    since_ms: int | None,
    until_ms: int | None,
) -> DataFrame:
    """Return the number of re-sends and of messages by outcome and by time to it.

    One shuffle is by message. Texts don't go through it.

    Args:
        events: the history.
        ends_ms: see `Survey`.
        horizon_ms: time without a return after which a re-sent message counts as recovered.
        since_ms: only messages whose first death is in the history, at or after this; None = all.
        until_ms: events at or after this don't count; None = all do.

    Returns:
        See `packed.pack`; a group may have several rows.
    """
    ends = sorted(ends_ms.items())
    numbers, ends_of = (np.array([one[at] for one in ends], dtype=np.int64) for at in (0, 1))
    observed = ObservedStreams(numbers, ends_of, horizon_ms, NONE if since_ms is None else since_ms)

    def count(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        there = list(batches)
        if there:
            yield from pack(count_lives(pyarrow.Table.from_batches(there), observed))

    return _steps(_until(events, until_ms)).repartition("id").mapInArrow(count, PACKED)


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
