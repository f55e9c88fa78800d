"""The files of a history, read by Python itself: whole columns, without a row of Spark.

Why beside `events`: to bring a row from Spark to Python costs more than to read it here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow
import structlog
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

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
    opened_parquet,
    read_slice,
    removed,
    row_groups_of,
)
from amqsidecar.pipeline.tables import EVENTS, arrow_schema

SINK_LOG: Final = "_spark_metadata"
"""Log that a streaming query leaves beside its files; only files that it names count."""

_CORES: Final = 8
"""Assumed where Spark Connect does not show the server's."""
_PART_BYTES: Final = 64 * 1024 * 1024
"""Of a file that are read at once, about; row groups and segments are not divided."""
_FILE_BYTES: Final = 256 * 1024
"""That could be read in the time that it takes to open a file."""
_LEAST_TASK_BYTES: Final = 4 * 1024 * 1024
_TASKS_PER_CORE: Final = 3
_BATCH_ROWS: Final = 200_000
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"

log = structlog.get_logger("amqsidecar.pipeline")


class TablePart(NamedTuple):
    """The row groups of a table's file whose middle is between two offsets.

    Attributes:
        folders: values of the columns that the folders of the table hold.
    """

    url: str
    begin: int
    end: int
    folders: Mapping[str, str | None]


EventFile = Slice | TablePart
"""The part of one file that is read."""
_FORMATS: Final = {"_delta_log": "delta", "metadata": "iceberg"}
"""Of tables whose files only their library knows, by a folder in them."""


def find_files(
    spark: SparkSession, path: str, *, since_ms: int | None = None, until_ms: int | None = None
) -> list[EventFile]:
    """Return the files of a table or a journal, as `read_events` takes them, each event once.

    Days of a table that lie outside of the times are left out. A file of a journal is checked when
    it is read.

    Raises:
        ConfigError: it is neither, or a table of Delta or Iceberg.
    """
    table = table_at(spark, path)
    if table is None:
        return list(journal_slices(path))
    if table_of_library(spark, path) is not None:
        raise ConfigError([Problem(path, "has no files of its own: run without --state")])
    days = [None if one is None else _day(one) for one in (since_ms, until_ms)]
    return [one for one in _parts(table, path) if _is_between(one.folders.get("day"), *days)]


def table_at(spark: SparkSession, path: str) -> DataFrame | None:
    """Return the table at a path, with the columns of its folders; None = there is none.

    Raises:
        ConfigError: it has other columns than events, or Spark can't open it.
    """
    return _opened(spark, "parquet", path) if is_table(path) else table_of_library(spark, path)


def is_table(path: str) -> bool:
    """Return whether Spark has written a table there, whole."""
    system, root, _ = folder_of(path)
    return any(system.exists(f"{root}/{name}") for name in (SINK_LOG, "_SUCCESS"))


def table_of_library(spark: SparkSession, path: str) -> DataFrame | None:
    """Return the table of Delta or Iceberg at a path; None = there is none. Raises `table_at`'s."""
    system, root, _ = folder_of(path)
    kinds = [kind for folder, kind in _FORMATS.items() if system.exists(f"{root}/{folder}")]
    return _opened(spark, kinds[0], path) if kinds else None


def _opened(spark: SparkSession, kind: str, path: str) -> DataFrame:
    url = folder_of(path)[2]
    try:
        # Why the check, too: by Spark Connect nothing is opened before.
        return _checked(spark.read.format(kind).load(url), url)
    except ConfigError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        what = f"Spark can't open this table of {kind}; it may need a library (--conf): {reason}"
        raise ConfigError([Problem(path, what)]) from error


def journal_slices(path: str) -> list[Slice]:
    """Return the files of a journal to read, and log missing segments; opens no file.

    Raises:
        ConfigError: no segment is there.
    """
    streams = list_streams([path])
    if not streams:
        what = (
            "holds no events: neither a table that `amqsidecar pipeline ingest` has made, nor "
            "segments of a journal (stream=*/segment-*.parquet)"
        )
        raise ConfigError([Problem(path, what)])
    slices = []
    for stream, found, gaps in _covered(streams):
        slices += found
        for gap in gaps:
            # Why apart: retention removes the beginning of a stream.
            if gap.first == 1:
                log.info("journal_begins_later", path=path, stream=stream, removed=str(gap))
            else:
                log.warning("journal_gap", path=path, stream=stream, lacking_segments=str(gap))
    return slices


def lacking_segments(path: str) -> Iterator[str]:
    """Yield the gaps of a journal in sentences, for people who did not see the log.

    None of a table, where `ingest` leaves no gap unseen.
    """
    for stream, _, gaps in () if is_table(path) else _covered(list_streams([path])):
        for gap in gaps:
            if gap.first == 1:
                yield f"Stream {stream} is cut: its segments {gap} were removed before this run."
            else:
                yield f"Stream {stream} lacks segments {gap}: returns in them look like recoveries."


def _covered(
    streams: Mapping[str, Sequence[JournalFile]],
) -> Iterator[tuple[str, list[Slice], list[Gap]]]:
    for stream, files in sorted(streams.items()):
        yield stream, *cover(files, 1, max(file.last for file in files))


def _checked(table: DataFrame, url: str) -> DataFrame:
    for name in ADDED.difference(table.columns):
        table = table.withColumn(name, f.lit(None).cast(EVENTS[name].dataType))
    # Why by their names: Spark treats every column of a file as nullable.
    types = dict(table.dtypes)
    wrong = [one.name for one in EVENTS if types.get(one.name) != one.dataType.simpleString()]
    if wrong:
        what = f"is no table of events of this version; these columns differ: {', '.join(wrong)}"
        raise ConfigError([Problem(url, what)])
    return table


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()


def _is_between(day: str | None, first: str | None, last: str | None) -> bool:
    try:
        day = None if day is None else date.fromisoformat(day).isoformat()
    except ValueError:
        day = None
    return day is None or ((first is None or day >= first) and (last is None or day <= last))


def _parts(table: DataFrame, path: str) -> Iterator[TablePart]:
    system, root, _ = folder_of(path)
    sizes = {name: int(one["size"] or 0) for name, one in system.find(root, detail=True).items()}
    for url in sorted(map(unquote, table.inputFiles())):
        inner = system._strip_protocol(url)  # noqa: SLF001  fsspec has no other name for it
        inside = inner.removeprefix(root)
        folders = dict(one.split("=", 1) for one in inside.split("/")[:-1] if "=" in one)
        values = {
            name: None if one == _NULL_FOLDER else unquote(one) for name, one in folders.items()
        }
        size = sizes.get(inner, 0)
        for begin in range(0, max(size, 1), _PART_BYTES):
            is_last = begin + _PART_BYTES >= size
            yield TablePart(url, begin, size + 1 if is_last else begin + _PART_BYTES, values)


def read_in_tasks(
    spark: SparkSession,
    files: Sequence[EventFile],
    read: Callable[[Iterator[EventFile]], Iterator[pyarrow.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Return the rows of files that Spark's tasks read by Python."""
    tasks = in_tasks(files, _CORES if is_remote() else spark.sparkContext.defaultParallelism)

    def own(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return read(one for number in numbers for one in tasks[number])

    return spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(own, schema)


def in_tasks(files: Sequence[EventFile], cores: int = 1) -> list[list[EventFile]]:
    """Return files in parts of about equal duration; large files are divided."""
    costs = sum(_bytes_of(one) + _FILE_BYTES for one in files)
    share = max(_LEAST_TASK_BYTES, min(_PART_BYTES, costs // (cores * _TASKS_PER_CORE)))
    tasks: list[list[EventFile]] = []
    left = 0
    for one in (part for file in files for part in _divided(file)):
        if left <= 0:
            tasks.append([])
            left = share
        tasks[-1].append(one)
        left -= _bytes_of(one) + _FILE_BYTES
    return tasks


def _divided(one: EventFile) -> Iterator[EventFile]:
    if isinstance(one, TablePart):
        yield one
        return
    number = one.last - one.first + 1
    step = max(1, number * _PART_BYTES // max(_bytes_of(one), _PART_BYTES))
    for first in range(one.first, one.last + 1, step):
        yield Slice(one.file, first, min(first + step - 1, one.last))


def _bytes_of(one: EventFile) -> int:
    if isinstance(one, TablePart):
        return one.end - one.begin
    file = one.file
    return file.size_bytes * (one.last - one.first + 1) // (file.last - file.first + 1)


def read_batches(
    files: Iterable[EventFile],
    columns: Sequence[str],
    texts: Sequence[str],
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the events of files with these columns.

    Row groups outside the period are left out; the others come with all rows. If a compaction
    moves a journal's segments, they are found again.

    Args:
        files: see `find_files`.
        columns: names of columns of `EVENTS`.
        texts: the columns that come as dictionaries.
        since_ms: see `find_files`.
        until_ms: see `find_files`.

    Raises:
        ConfigError: a file is torn, foreign, of an unknown version, or gone; the message names it.
    """

    def has_times(low: datetime, high: datetime) -> bool:
        return (since_ms is None or _epoch_ms(high) >= since_ms) and (
            until_ms is None or _epoch_ms(low) < until_ms
        )

    asked: dict[str, Any] = {} if since_ms is None and until_ms is None else {"at": has_times}

    def read(content: parquet.ParquetFile, one: Slice) -> Iterator[pyarrow.RecordBatch]:
        return read_columns(content, one, columns, asked)

    for one in files:
        if isinstance(one, TablePart):
            try:
                yield from _read_part(one, columns, texts, asked)
            except FileNotFoundError as error:
                raise removed(one.url) from error
        else:
            yield from read_slice(one, read, find_again, texts)


def _epoch_ms(moment: datetime) -> float:
    # Why: a timestamp without a zone is in UTC in all our tables.
    return moment.replace(tzinfo=UTC).timestamp() * 1000


def _read_part(
    part: TablePart, columns: Sequence[str], texts: Sequence[str], asked: Mapping[str, Any]
) -> Iterator[pyarrow.RecordBatch]:
    with opened_parquet(part.url, texts) as content:
        footer = content.metadata
        groups = [
            one
            for one in row_groups_of(footer, asked)
            if part.begin <= _middle(footer, one) < part.end
        ]
        there = [one for one in columns if one in content.schema_arrow.names]
        for batch in content.iter_batches(
            batch_size=_BATCH_ROWS, row_groups=groups, columns=there, use_threads=False
        ):
            yield _with_folders(batch, columns, part.folders)


def _middle(footer: parquet.FileMetaData, group: int) -> int:
    """Return the offset of a row group's middle in the file, as Spark divides files."""
    chunks = [footer.row_group(group).column(one) for one in range(footer.num_columns)]
    starts = [one.dictionary_page_offset or one.data_page_offset for one in chunks]
    return int(min(starts) + sum(one.total_compressed_size for one in chunks) // 2)


_TYPES: Final = {one.name: one.type for one in arrow_schema(EVENTS)}


def _with_folders(
    batch: pyarrow.RecordBatch, columns: Sequence[str], folders: Mapping[str, str | None]
) -> pyarrow.RecordBatch:
    """Add the columns that the file lacks: their folders name their values, else they are null."""
    if batch.schema.names == list(columns):
        return batch
    whole = []
    for name in columns:
        if name in batch.schema.names:
            whole.append(batch.column(name))
        else:
            value = pyarrow.scalar(folders.get(name), pyarrow.string())
            whole.append(pyarrow.repeat(value, batch.num_rows).cast(_TYPES[name]))
    return pyarrow.RecordBatch.from_arrays(whole, list(columns))


def read_columns(
    content: parquet.ParquetFile, one: Slice, columns: Sequence[str], asked: Mapping[str, Any]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield these columns of a slice, from the row groups that may have matching events."""
    groups = row_groups_of(content.metadata, {**asked, "segment": one.overlaps})
    wanted = list(columns) if one.is_whole else [*columns, "segment"]
    for batch in content.iter_batches(
        batch_size=_BATCH_ROWS, row_groups=groups, columns=wanted, use_threads=False
    ):
        yield _with_folders(one.rows_of(batch), columns, {})
