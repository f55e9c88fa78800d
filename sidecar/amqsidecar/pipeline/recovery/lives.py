"""Counts of the outcomes of re-sends and of messages.

Python reads the files of the history and makes steps of them (`steps`); Spark brings the steps of
each message together; `judge` counts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.utils import is_remote

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.places import learn_groups
from amqsidecar.pipeline.recovery.judge import NONE, ObservedStreams, add_up, count_lives
from amqsidecar.pipeline.recovery.packed import PACKED, pack
from amqsidecar.pipeline.recovery.steps import (
    COLUMNS,
    DIVIDED,
    SEEN_BUCKET,
    TEXT_COLUMNS,
    Seen,
    buckets_of,
    divided,
    seen_in,
    text_number,
)
from amqsidecar.pipeline.sources.event_files import EventFile, in_tasks, read_batches
from amqsidecar.pipeline.tables import RECOVERY_STREAMS, arrow_schema

_CORES: Final = 8
"""Assumed where Spark Connect does not show the server's."""


class Survey(NamedTuple):
    """What a history holds beside its messages.

    Attributes:
        streams: `RECOVERY_STREAMS`.
        ends_ms: the end of the observation of each stream by its number.
        texts: names of places, consumers and cause groups, by number.
        groups: by origin and cause group the number of the group that it is a part of.
    """

    streams: pyarrow.Table
    ends_ms: Mapping[int, int]
    texts: Mapping[int, str]
    groups: Mapping[tuple[int, int], int]


def read_steps(
    spark: SparkSession,
    files: Sequence[EventFile],
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    keeps_later: bool = False,
    keeps_ids: bool = False,
) -> DataFrame:
    """Return the steps of all messages, and what else the files hold: `steps.DIVIDED`.

    Args:
        spark: the session.
        files: of the history.
        since_ms: only events at or after this, in milliseconds since the epoch; None = all.
        until_ms: only events before this; None = all.
        keeps_later: see `steps.divided`; `until_ms` leaves no event out then.
        keeps_ids: see `steps.divided`.
    """
    last_ms = None if keeps_later else until_ms
    tasks = in_tasks(files, _CORES if is_remote() else spark.sparkContext.defaultParallelism)

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        own = (
            one for batch in batches for task in batch.column(0).to_pylist() for one in tasks[task]
        )
        events = read_batches(own, COLUMNS, TEXT_COLUMNS, since_ms=since_ms, until_ms=last_ms)
        return divided(events, since_ms, until_ms, keeps_later=keeps_later, keeps_ids=keeps_ids)

    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    return numbers.mapInArrow(read, DIVIDED)


def survey(read: DataFrame, until_ms: int | None) -> Survey:
    """Return the streams and texts of a history.

    Args:
        read: `steps.DIVIDED`.
        until_ms: the end of the observation, in milliseconds since the epoch; None = the latest
            event of each stream ends its own.

    Raises:
        ConfigError: files can't be read; the message names them.
    """
    return surveyed(seen_of(read), until_ms)


def seen_of(read: DataFrame) -> Seen:
    """Return what files hold beside steps; see `survey`."""
    found = read.where(f.col("bucket") == SEEN_BUCKET).select("content").toArrow()
    seen = seen_in(found.column("content").to_pylist())
    if seen.problems:
        raise ConfigError([Problem(*one) for one in seen.problems])
    return seen


def surveyed(seen: Seen, until_ms: int | None) -> Survey:
    """Return the streams and texts of what was seen; see `survey`."""
    ends_us = {
        name: one.last_us if until_ms is None else until_ms * 1_000
        for name, one in sorted(seen.streams.items())
    }
    rows = [
        {
            "stream": name,
            "events": seen.streams[name].events,
            "unknown_types": seen.streams[name].unknown_types,
            "first_at": seen.streams[name].first_us,
            "last_at": seen.streams[name].last_us,
            "observed_until": end_us,
        }
        for name, end_us in ends_us.items()
    ]
    texts = {text_number(one): one for one in seen.texts}
    groups = learn_groups(
        (texts.get(place, ""), texts[cause], *counted)
        for (place, cause), counted in seen.causes.items()
    )
    texts |= {text_number(one): one for one in groups.values()}
    return Survey(
        streams=pyarrow.Table.from_pylist(rows, arrow_schema(RECOVERY_STREAMS)),
        ends_ms={text_number(name): end_us // 1_000 for name, end_us in ends_us.items()},
        texts=texts,
        groups={
            (place, cause): text_number(group)
            for place, cause in seen.causes
            if (group := groups.get((texts.get(place, ""), texts[cause]), texts[cause]))
            != texts[cause]
        },
    )


def count_outcomes(
    read: DataFrame, ends_ms: Mapping[int, int], *, horizon_ms: int, since_ms: int | None
) -> DataFrame:
    """Return the number of re-sends and of messages by outcome and by time to it.

    One shuffle is by message. Texts don't go through it.

    Args:
        read: `steps.DIVIDED`.
        ends_ms: see `Survey`.
        horizon_ms: time without a return after which a re-sent message counts as recovered.
        since_ms: only messages whose first death is in the history, at or after this; None = all.

    Returns:
        See `packed.pack`; a group may have several rows.
    """
    observed = observed_streams(ends_ms, horizon_ms, since_ms)

    def count(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        counts = [count_lives(steps, observed) for steps in buckets_of(batches)]
        if counts:
            yield from pack(add_up(pyarrow.concat_tables(counts)))

    steps = read.where(f.col("bucket") != SEEN_BUCKET)
    return steps.repartition("bucket").mapInArrow(count, PACKED)


def observed_streams(
    ends_ms: Mapping[int, int], horizon_ms: int, since_ms: int | None
) -> ObservedStreams:
    """Return what `judge` has to know; see `count_outcomes`."""
    ends = sorted(ends_ms.items())
    numbers, ends_of = (np.array([one[at] for one in ends], dtype=np.int64) for at in (0, 1))
    return ObservedStreams(numbers, ends_of, horizon_ms, NONE if since_ms is None else since_ms)
