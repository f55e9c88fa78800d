"""The history as a DataFrame: a table that `ingest` has made, or a journal itself."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from urllib.parse import unquote

import pyarrow
import structlog
from pyarrow import parquet
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.journal import ADDED
from amqsidecar.pipeline.sources.journal_files import (
    Gap,
    JournalFile,
    Slice,
    cover,
    find_again,
    folder_of,
    list_streams,
    opened,
    read_slice,
    with_columns,
)
from amqsidecar.pipeline.tables import EVENTS, arrow_schema

SINK_LOG = "_spark_metadata"
"""What a streaming query leaves beside the files that it wrote; only files that it names count."""

_READERS = 8
_DAY_MS = 86_400_000

log = structlog.get_logger("amqsidecar.pipeline")


def read_events(
    spark: SparkSession,
    path: str,
    *,
    strict: bool = False,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    """Return the events of a table or a journal, each once, with the columns of `EVENTS`.

    All columns are nullable, as always when Spark reads files. Missing segments are logged with
    their numbers.

    Args:
        spark: the session.
        path: a table that `ingest`, or Spark, has written, or the folder of a journal. A path
            without a scheme is one of this machine.
        strict: whether a missing segment between two others is an error.
        since_ms: only events at or after this, in milliseconds since the epoch; None = all. Days of
            a table, and row groups, that lie outside are not read.
        until_ms: only events before this; None = all.

    Raises:
        ConfigError: it is neither, or a file is torn, foreign or of an unknown version; the
            message names the file. Or `strict` is set and segments are missing.
    """
    table = table_at(spark, path)
    if table is not None:
        return _between(table, since_ms, until_ms).select(*EVENTS.names)
    slices = journal_slices(path, strict=strict)
    _check([one.file for one in slices])
    is_local = slices[0].file.url.startswith("file:")
    read = _read_slices if is_local else _read_elsewhere
    return _between(read(spark, slices), since_ms, until_ms)


def table_at(spark: SparkSession, path: str) -> DataFrame | None:
    """Return the table at a path, with the columns of its folders; None = there is none.

    Raises:
        ConfigError: it has other columns than events.
    """
    system, root, url = folder_of(path)
    if not any(system.exists(f"{root}/{name}") for name in (SINK_LOG, "_SUCCESS")):
        return None
    return _read_table(spark, url)


def journal_slices(path: str, *, strict: bool = False) -> list[Slice]:
    """Return what is read of the files of a journal, without a look into them.

    Args:
        path: its folder.
        strict: whether a missing segment between two others is an error.

    Raises:
        ConfigError: no segment is there; or `strict` is set and segments are missing.
    """
    streams = list_streams([path])
    if not streams:
        what = (
            "holds no events: neither a table that `amqsidecar pipeline ingest` has made, nor "
            "segments of a journal (stream=*/segment-*.parquet)"
        )
        raise ConfigError([Problem(path, what)])
    slices = []
    for stream, files in sorted(streams.items()):
        found, gaps = cover(files, 1, max(file.last for file in files))
        _report_gaps(path, stream, gaps, strict=strict)
        slices += found
    return slices


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


def _read_table(spark: SparkSession, url: str) -> DataFrame:
    table = spark.read.parquet(url)
    for name in ADDED.difference(table.columns):
        table = table.withColumn(name, f.lit(None).cast(EVENTS[name].dataType))
    # Why by their names: Spark takes what it reads from files as nullable.
    types = dict(table.dtypes)
    wrong = [one.name for one in EVENTS if types.get(one.name) != one.dataType.simpleString()]
    if wrong:
        what = f"is no table of events of this version; these columns differ: {', '.join(wrong)}"
        raise ConfigError([Problem(url, what)])
    return table


def _report_gaps(path: str, stream: str, gaps: Sequence[Gap], *, strict: bool) -> None:
    """Log missing segments; retention removes the beginning of a stream."""
    inner = [gap for gap in gaps if gap.first > 1]
    if inner and strict:
        numbers = ", ".join(str(gap) for gap in inner)
        raise ConfigError([Problem(path, f"stream {stream} lacks segments: {numbers}")])
    for gap in gaps:
        if gap.first == 1:
            log.info("journal_begins_later", path=path, stream=stream, removed=str(gap))
        else:
            log.warning("journal_gap", path=path, stream=stream, lacking_segments=str(gap))


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


def _read_elsewhere(spark: SparkSession, slices: Sequence[Slice]) -> DataFrame:
    """Read by Python: Spark may have no file system for a store that the sidecar writes to."""
    schema = arrow_schema(EVENTS)

    def rows(content: parquet.ParquetFile, one: Slice) -> Iterator[pyarrow.RecordBatch]:
        for batch in content.iter_batches(columns=EVENTS.names, use_threads=False):
            yield with_columns(one.rows_of(batch), schema)

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_slice(slices[number], rows, find_again)

    return spark.range(len(slices)).mapInArrow(read, EVENTS)


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
