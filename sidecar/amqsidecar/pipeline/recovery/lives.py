"""Counts of the outcomes of re-sends and of messages.

Python reads the files of the history and makes steps of them (`steps`); Spark brings the steps of
each message together; `judge` counts them.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

import numpy as np
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.places import learn_groups
from amqsidecar.pipeline.recovery.judge import (
    COUNTS,
    MOMENT_STEP,
    NONE,
    ObservedStreams,
    add_up,
    count_lives,
)
from amqsidecar.pipeline.recovery.steps import (
    COLUMNS,
    DIVIDED,
    SEEN_BUCKET,
    TEXT_COLUMNS,
    Seen,
    SeenStream,
    buckets_of,
    divided,
    seen_in,
    text_number,
)
from amqsidecar.pipeline.sources.event_files import EventFile, read_batches, read_in_tasks

_COUNTED: Final = ", ".join(f"{name} bigint" for name in COUNTS.names)


class Survey(NamedTuple):
    """Facts of a history beside its messages.

    Attributes:
        streams: by their names.
        ends_ms: the end of the observation of each stream by its number.
        texts: names of places, consumers and cause groups, by number.
        groups: number of the containing group, by origin and cause group.
    """

    streams: Mapping[str, SeenStream]
    ends_ms: Mapping[int, int]
    texts: Mapping[int, str]
    groups: Mapping[tuple[int, int], int]


def read_steps(
    spark: SparkSession,
    files: Sequence[EventFile] | DataFrame,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    """Return the steps of all messages, and the files' other facts: `steps.DIVIDED`.

    Args:
        files: of the history, or its table.
        since_ms: only events at or after this, in milliseconds since the epoch; None = all.
        until_ms: only events before this; None = all.
    """

    def read(own: Iterator[EventFile]) -> Iterator[pyarrow.RecordBatch]:
        events = read_batches(own, COLUMNS, TEXT_COLUMNS, since_ms=since_ms, until_ms=until_ms)
        return divided(events, since_ms, until_ms)

    if isinstance(files, DataFrame):
        events = files.select(*COLUMNS)
        return events.mapInArrow(lambda rows: divided(rows, since_ms, until_ms), DIVIDED)
    return read_in_tasks(spark, files, read, DIVIDED)


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
    """Return the parts of files besides their steps; see `survey`."""
    found = read.where(f.col("bucket") == SEEN_BUCKET).select("content").toArrow()
    seen = seen_in(found.column("content").to_pylist())
    if seen.problems:
        raise ConfigError([Problem(*one) for one in seen.problems])
    return seen


def surveyed(seen: Seen, until_ms: int | None) -> Survey:
    """Return the streams and texts of all `Seen`; see `survey`."""
    texts = {text_number(one): one for one in seen.texts}
    until_us = inf if until_ms is None else until_ms * 1_000
    causes = (
        (texts.get(place, ""), texts[cause], deaths, first_us)
        for (place, cause), (deaths, first_us) in seen.causes.items()
        if first_us < until_us
    )
    merges = {group: merge for group, merge in seen.merges.items() if merge[0] < until_us}
    groups = learn_groups(causes, merges)
    texts |= {text_number(one): one for one in groups.values()}
    return Survey(
        streams=seen.streams,
        ends_ms={
            text_number(name): one.last_us // 1_000 if until_ms is None else until_ms
            for name, one in seen.streams.items()
        },
        texts=texts,
        groups={
            (place, cause): text_number(group)
            for place, cause in seen.causes
            if (group := groups.get((texts.get(place, ""), texts[cause]), texts[cause]))
            != texts[cause]
        },
    )


def count_outcomes(
    read: DataFrame,
    ends_ms: Mapping[int, int],
    *,
    horizon_ms: int,
    since_ms: int | None,
    until_ms: int | None,
) -> DataFrame:
    """Return the number of re-sends and of messages by outcome and by time to it.

    One shuffle is by message. Texts don't go through it.

    Args:
        read: `steps.DIVIDED`.
        ends_ms: see `Survey`.
        horizon_ms: time without a return after which a re-sent message counts as recovered.
        since_ms: only messages whose first death is in the history, at or after this; None = all.
        until_ms: only steps before this; None = all.

    Returns:
        `COUNTS`; a key may have several rows.
    """
    ends = sorted(ends_ms.items())
    numbers, ends_of = (np.array([one[at] for one in ends], dtype=np.int64) for at in (0, 1))
    first_ms = NONE if since_ms is None else since_ms
    observed = ObservedStreams(numbers, ends_of, horizon_ms, first_ms)

    def inside(steps: pyarrow.Table) -> pyarrow.Table:
        if until_ms is None:
            return steps
        return steps.filter(steps.column("moment").to_numpy() < until_ms * MOMENT_STEP)

    def count(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        counts = [count_lives(inside(steps), observed) for steps in buckets_of(batches)]
        if counts:
            yield from add_up(pyarrow.concat_tables(counts)).to_batches()

    steps = read.where(f.col("bucket") != SEEN_BUCKET)
    return steps.repartition("bucket").mapInArrow(count, _COUNTED)
