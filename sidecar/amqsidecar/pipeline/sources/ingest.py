"""The journals of many sidecars in one table, each event once.

A micro-batch is a range of segments that the checkpoint fixes before it is read, and Spark's file
sink takes a batch of a number once. So a process may die at any time: the next one reads the same
segments again, and files of the dead process that the table's log doesn't name don't count.
"""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from types import FrameType
from typing import Final
from uuid import uuid4

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from amqsidecar.errors import ConfigError, Problem, ReaderNotStarted
from amqsidecar.pipeline.sources.datasource import FORMAT, register
from amqsidecar.pipeline.sources.journal_files import folder_of, list_streams
from amqsidecar.pipeline.sources.output_files import list_names, read_file, write_file
from amqsidecar.pipeline.tables import EVENTS_BY_DAY

_MARK: Final = "_amqsidecar_ingest"
"""A file with a random name as content, equal in table and checkpoint."""

_MARK_LENGTH: Final = 32
_OUR_WORDS: Final = re.compile(r"amqsidecar\.errors\.ConfigError: (.+)")

_NOT_STARTED: Final = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
)
"""Spark's words where a Python worker needs longer to start than Spark waits."""
_TRIES: Final = 3
_TURN_S: Final = 1

log = structlog.get_logger("amqsidecar.pipeline")


@dataclass(frozen=True)
class IngestOptions:
    """The options of `amqsidecar pipeline ingest`; its help explains them.

    None for `keep_days` = for ever.
    """

    journals: tuple[str, ...]
    table: str
    checkpoint: str
    continuous: bool
    interval_s: int
    max_segments: int
    skip_lost: bool
    keep_days: int | None


def with_day(events: DataFrame) -> DataFrame:
    """Return events (`EVENTS`) with the UTC day that partitions the table: `EVENTS_BY_DAY`."""
    # Why not to_date: it goes by the session's time zone, which a user may set.
    day = f.expr("date_from_unix_date(CAST(unix_seconds(at) DIV 86400 AS INT))")
    return events.withColumn("day", day).select(*EVENTS_BY_DAY.names)


def run_ingest(spark: SparkSession, options: IngestOptions) -> None:
    """Append new events of the journals to the table (`EVENTS_BY_DAY`), each once.

    SIGTERM and SIGINT end it soon. However it ends, the next run continues from the checkpoint.

    Raises:
        ConfigError: a journal can't be read or lacks segments, or the checkpoint is of another
            table.
        ReaderNotStarted: Spark's Python worker did not start in time, in all of `_TRIES`.
    """
    list_streams(options.journals)
    _pair(options.table, options.checkpoint)
    register(spark)
    with _stop_asked() as is_stop_asked:
        rows = _read_all(spark, options, is_stop_asked)
    log.info("ingested", events=sum(rows.values()), batches=len(rows), table=options.table)


def _read_all(
    spark: SparkSession, options: IngestOptions, is_stop_asked: Callable[[], bool]
) -> dict[int, int]:
    """Return the number of events of each batch, with new tries where a worker starts too late."""
    for turn in range(1, _TRIES + 1):
        query = _start(spark, options)
        try:
            return _follow(query, is_stop_asked)
        except StreamingQueryException as error:
            told = _told(error)
            if not isinstance(told, ReaderNotStarted) or turn == _TRIES:
                raise told from error
            log.warning("reader_not_started", turn=turn, tries=_TRIES)
        finally:
            query.stop()
    raise AssertionError


def _start(spark: SparkSession, options: IngestOptions) -> StreamingQuery:
    events = (
        spark.readStream.format(FORMAT)
        .option("failOnDataLoss", str(not options.skip_lost).lower())
        .option("maxSegmentsPerTrigger", options.max_segments)
        .load(",".join(options.journals))
    )
    writer = (
        with_day(events)
        .writeStream.format("parquet")
        .queryName("amqsidecar ingest")
        .partitionBy("day")
        .option("checkpointLocation", folder_of(options.checkpoint)[2])
        .option("path", folder_of(options.table)[2])
    )
    if options.keep_days is not None:
        writer = writer.option("retention", f"{options.keep_days}d")
    if options.continuous:
        return writer.trigger(processingTime=f"{options.interval_s} seconds").start()
    return writer.trigger(availableNow=True).start()


def _follow(query: StreamingQuery, is_stop_asked: Callable[[], bool]) -> dict[int, int]:
    """Wait for the end; return the number of events of each batch."""
    rows: dict[int, int] = {}
    has_ended = False
    while not has_ended and not is_stop_asked():
        has_ended = bool(query.awaitTermination(_TURN_S))
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                rows[progress["batchId"]] = progress["numInputRows"]
    return rows


def _told(error: StreamingQueryException) -> Exception:
    """Return our source's message, which Spark wraps in another text."""
    if any(words in str(error) for words in _NOT_STARTED):
        return ReaderNotStarted(
            f"Spark's Python worker did not start in time, {_TRIES} times: this machine is busy; "
            "run the command again, or give workers longer by "
            "--conf spark.python.authenticate.socketTimeout=60s"
        )
    found = _OUR_WORDS.findall(str(error))
    if not found:
        return error
    where, _, what = found[-1].partition(": ")
    return ConfigError([Problem(where, what)])


@contextmanager
def _stop_asked() -> Iterator[Callable[[], bool]]:
    """Give a function that returns whether SIGTERM or SIGINT came while the block runs."""
    asked = Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Table and checkpoint


def _pair(table: str, checkpoint: str) -> None:
    """Make sure that a table and a checkpoint belong together, or are both new.

    A new checkpoint counts its batches from 0. Spark would skip batches whose numbers the table
    has already, so events would be missing. If the process dies midway, the next call goes on.

    Raises:
        ConfigError: they don't belong together.
    """
    of_table, of_checkpoint = _mark(table), _mark(checkpoint)
    if of_table is not None and of_table == of_checkpoint:
        return
    if of_table is not None:
        what = f"was made with another checkpoint than {checkpoint}: name that one, or a new table"
        raise ConfigError([Problem(table, what)])
    if _is_used(table):
        what = (
            "is not empty, and no table that `amqsidecar pipeline ingest` has made; name a new one"
        )
        raise ConfigError([Problem(table, what)])
    if _is_used(checkpoint):
        what = f"belongs to another table than {table}, or a removed one; name its table"
        raise ConfigError([Problem(checkpoint, what)])
    mark = of_checkpoint or uuid4().hex
    for path in (checkpoint, table):
        write_file(f"{path}/{_MARK}", mark.encode())


def _mark(path: str) -> str | None:
    try:
        text = read_file(f"{path}/{_MARK}").decode("ascii", errors="replace")
    except FileNotFoundError:
        return None
    return text if len(text) == _MARK_LENGTH else None


def _is_used(path: str) -> bool:
    """Return whether there is anything but our mark."""
    return any(name != _MARK for name in list_names(path))
