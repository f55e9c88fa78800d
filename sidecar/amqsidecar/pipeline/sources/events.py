"""The history as a DataFrame: a table that `ingest` has made, or a journal itself."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from urllib.parse import unquote

import pyarrow
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from amqsidecar.pipeline.sources.event_files import (
    EventFile,
    journal_slices,
    read_batches,
    read_in_tasks,
    table_at,
)
from amqsidecar.pipeline.sources.journal_files import JournalFile, Slice, opened
from amqsidecar.pipeline.tables import EVENTS, arrow_schema

_READERS = 8
_DAY_MS = 86_400_000


def read_events(
    spark: SparkSession, path: str, *, since_ms: int | None = None, until_ms: int | None = None
) -> DataFrame:
    """Return the events of a table or a journal, each once, with the columns of `EVENTS`.

    All columns are nullable, as always when Spark reads files. Missing segments are logged with
    their numbers.

    Args:
        path: a table that `ingest`, or Spark, has written, or the folder of a journal. A path
            without a scheme is one of this machine.
        since_ms: only events at or after this, in milliseconds since the epoch; None = all. Days of
            a table, and row groups, that lie outside are not read.
        until_ms: only events before this; None = all.

    Raises:
        ConfigError: it is neither, or a file is torn, foreign or of an unknown version; the
            message names the file.
    """
    table = table_at(spark, path)
    if table is not None:
        return _between(table, since_ms, until_ms).select(*EVENTS.names)
    slices = journal_slices(path)
    _check([one.file for one in slices])
    is_local = slices[0].file.url.startswith("file:")
    # Why by Python: Spark may have no file system for a store that the sidecar writes to.
    read = _read_slices(spark, slices) if is_local else read_in_tasks(spark, slices, _rows, EVENTS)
    return _between(read, since_ms, until_ms)


def _rows(files: Iterator[EventFile]) -> Iterator[pyarrow.RecordBatch]:
    schema = arrow_schema(EVENTS)
    return (batch.cast(schema) for batch in read_batches(files, EVENTS.names, ()))


def _between(events: DataFrame, since_ms: int | None, until_ms: int | None) -> DataFrame:
    """Return the events between two times, by the folders of days where the table has such."""
    is_divided = dict(events.dtypes).get("day") == "date"
    for limit_ms, is_inside in ((since_ms, Column.__ge__), (until_ms, Column.__lt__)):
        if limit_ms is None:
            continue
        events = events.where(is_inside(f.col("at"), f.timestamp_millis(f.lit(limit_ms))))
        if is_divided:
            # Why not strictly: the day of the end has events before it, too.
            day = f.date_from_unix_date(f.lit(limit_ms // _DAY_MS).cast("int"))
            is_at_most = is_inside is Column.__lt__
            events = events.where(f.col("day") <= day if is_at_most else f.col("day") >= day)
    return events


def _check(files: Sequence[JournalFile]) -> None:
    with ThreadPoolExecutor(_READERS) as pool:
        for _ in pool.map(_check_one, files):
            pass


def _check_one(file: JournalFile) -> None:
    with opened(file):
        pass


def _read_slices(spark: SparkSession, slices: Sequence[Slice]) -> DataFrame:
    """Read by Spark's own reader; the few partly used files are read separately."""
    reader = spark.read.schema(EVENTS).option("parquet.page.verify-checksum.enabled", "true")
    whole = [one.file.url for one in slices if one.is_whole]
    parts = [
        reader.parquet(_literal(one.file.url)).where(f.col("segment").between(one.first, one.last))
        for one in slices
        if not one.is_whole
    ]
    frames = [_read_whole(reader, whole), *parts] if whole else parts
    return reduce(DataFrame.unionAll, frames)


def _read_whole(reader: DataFrameReader, urls: Sequence[str]) -> DataFrame:
    """Read files; by their folders if these hold no other files.

    Why: Spark lists many files that are named one by one in a job with a task for each, which takes
    minutes for ten thousand.
    """
    folders = dict.fromkeys(url.rpartition("/")[0] for url in urls)
    if len(folders) < len(urls):
        frame = reader.parquet(*map(_literal, folders))
        # Why asked: a compaction may have added a file since we listed them.
        if sorted(map(_place, frame.inputFiles())) == sorted(map(_place, urls)):
            return frame
    return reader.parquet(*map(_literal, urls))


def _place(url: str) -> str:
    """Return the folder and the name of a file, however its URL is written."""
    return unquote("/".join(url.split("/")[-2:]))


def _literal(url: str) -> str:
    """Return a path that Spark takes as it stands, not as a pattern."""
    return "".join(f"\\{letter}" if letter in "\\*?[]{}" else letter for letter in url)
