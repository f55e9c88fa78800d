"""Many journals become one table: each event once, by UTC day, whatever order they come in."""

import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from amqsidecar.errors import ConfigError
from amqsidecar.pipeline.sources.events import read_events
from amqsidecar.pipeline.sources.ingest import IngestOptions, run_ingest, with_day
from amqsidecar.pipeline.tables import EVENTS, EVENTS_BY_DAY
from pipeline.journals import START_MS, event, write_rows, write_segments
from support.machine.processes import run_program

DAY_MS = 86_400_000


@pytest.fixture
def options(tmp_path: Path) -> IngestOptions:
    (tmp_path / "a").mkdir()
    return IngestOptions(
        journals=(str(tmp_path / "a"),),
        table=str(tmp_path / "table"),
        checkpoint=str(tmp_path / "checkpoint"),
        continuous=False,
        interval_s=1,
        max_segments=10_000,
        skip_lost=False,
        keep_days=None,
    )


def ingested(spark: SparkSession, options: IngestOptions) -> Counter[tuple[str, int, int]]:
    rows = read_events(spark, options.table).select("stream", "segment", "position").collect()
    return Counter((row.stream, row.segment, row.position) for row in rows)


def once(stream: str, segments: range, count: int = 3) -> Counter[tuple[str, int, int]]:
    return Counter((stream, segment, n) for segment in segments for n in range(count))


def test_the_table_has_the_columns_of_its_schema_and_days_by_utc(spark: SparkSession) -> None:
    """A millisecond before midnight is the day before; the session's zone changes nothing."""
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        event(1, 0, at=midnight - timedelta(milliseconds=1)),
        event(1, 1, at=midnight),
    ]
    events = spark.createDataFrame(
        [[row.get(name) for name in EVENTS.names] for row in rows], EVENTS
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        table = with_day(events)
        assert table.dtypes == [(one.name, one.dataType.simpleString()) for one in EVENTS_BY_DAY]
        found = [row.day for row in table.orderBy("position").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == [date(2025, 12, 31), date(2026, 1, 1)]


def test_many_journals_become_one_table(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    """Stream main lies in both roots in part; other's clock is two days behind; late comes late.

    main: segments 1 to 40, stream other 1 to 2, late 1: 43 segments of 3 events.
    """
    for number in range(1, 31):
        write_segments(tmp_path / "a", [number])
    for segments in ([25, 26], [27], range(28, 41)):
        write_segments(tmp_path / "b", segments)
    behind = START_MS - 2 * DAY_MS
    write_segments(tmp_path / "b", [1, 2], stream="other", at=behind)
    options = replace(options, journals=(str(tmp_path / "a"), str(tmp_path / "b")), max_segments=30)
    run_ingest(spark, options)
    write_segments(tmp_path / "a", [1], stream="late", at=behind - DAY_MS)
    run_ingest(spark, options)
    run_ingest(spark, options)
    expected = once("main", range(1, 41)) + once("other", range(1, 3)) + once("late", range(1, 2))
    assert ingested(spark, options) == expected
    days = {path.name for path in Path(options.table).glob("day=*")}
    assert days == {"day=2026-01-01", "day=2025-12-30", "day=2025-12-29"}
    files = len(list(Path(options.table).glob("day=*/*.parquet")))
    assert files < 10, "small segments are put together"


def test_what_a_dead_run_left_in_the_folder_does_not_count(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    write_segments(tmp_path / "a", [1])
    run_ingest(spark, options)
    (part,) = Path(options.table).glob("day=*/*.parquet")
    part.with_name("part-00007-left.snappy.parquet").write_bytes(part.read_bytes())
    assert ingested(spark, options) == once("main", range(1, 2))


def test_a_lost_segment_is_an_error_or_is_reported(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    write_segments(tmp_path / "a", [1])
    run_ingest(spark, options)
    write_segments(tmp_path / "a", [3])
    with pytest.raises(ConfigError, match="segments 2 of stream main are in none") as caught:
        run_ingest(spark, options)
    assert caught.value.problems[0].where == options.journals[0]
    with capture_logs() as lines:
        run_ingest(spark, replace(options, skip_lost=True))
    assert [line["events"] for line in lines if line["event"] == "ingested"] == [3]
    assert ingested(spark, options) == once("main", range(1, 2)) + once("main", range(3, 4))


def test_a_torn_file_stops_it_until_it_is_mended(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    write_segments(tmp_path / "a", [1])
    torn = write_segments(tmp_path / "a", [2])
    whole = torn.read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=r"segment-2-2.parquet: is torn"):
        run_ingest(spark, options)
    torn.write_bytes(whole)
    run_ingest(spark, options)
    assert ingested(spark, options) == once("main", range(1, 3))


def test_an_empty_journal_leaves_an_empty_table(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    run_ingest(spark, options)
    write_segments(tmp_path / "a", [1])
    run_ingest(spark, options)
    assert ingested(spark, options) == once("main", range(1, 2))


# Table and checkpoint are of each other: else Spark would leave out what it takes as written


def test_a_table_is_not_written_with_another_checkpoint(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    write_segments(tmp_path / "a", [1])
    run_ingest(spark, options)
    write_segments(tmp_path / "a", [2])
    other = str(tmp_path / "other")
    with pytest.raises(ConfigError, match="was made with another checkpoint than"):
        run_ingest(spark, replace(options, checkpoint=other))
    with pytest.raises(ConfigError, match="belongs to another table than"):
        run_ingest(spark, replace(options, table=other))


def test_a_foreign_folder_is_not_written_into(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    write_rows(tmp_path / "table/file.parquet", [event(1, 0)])
    with pytest.raises(ConfigError, match="is not empty, and no table that"):
        run_ingest(spark, options)


def test_a_journal_that_is_not_there_is_reported_before_anything_is_made(
    spark: SparkSession, tmp_path: Path, options: IngestOptions
) -> None:
    with pytest.raises(ConfigError, match="is not there; expected the folder of a journal"):
        run_ingest(spark, replace(options, journals=(str(tmp_path / "absent"),)))
    assert not Path(options.table).exists()


@pytest.mark.proof
def test_a_worker_that_starts_too_late_is_tried_again_and_reported_in_one_sentence(
    options: IngestOptions,
) -> None:
    """No worker can connect within a millisecond. Nothing is read, so the next run reads all."""
    write_segments(Path(options.journals[0]), [1])
    command = [sys.executable, "-m", "amqsidecar", "pipeline", "ingest"]
    command += ["--journal", options.journals[0], "--table", options.table]
    command += ["--checkpoint", options.checkpoint]
    late = ["--conf", "spark.python.authenticate.socketTimeout=1ms"]
    done = run_program([*command, *late], code=69)
    assert done.stderr.count("reader_not_started") == 2
    assert done.stderr.splitlines()[-1].startswith("amqsidecar: Spark's Python worker did not")
    assert "a fault of amqsidecar" not in done.stderr
    assert "java.lang.Thread" not in done.stderr
    run_program(command, code=0)
