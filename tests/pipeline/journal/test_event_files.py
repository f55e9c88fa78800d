"""Python reads the same events from files as Spark does."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from amqsidecar.cli.main import run_command_line
from amqsidecar.errors import ConfigError
from amqsidecar.journal import ADDED
from amqsidecar.pipeline.recovery.lives import read_steps, survey
from amqsidecar.pipeline.sources.datasource import register
from amqsidecar.pipeline.sources.event_files import (
    EventFile,
    TablePart,
    find_files,
    in_tasks,
    read_batches,
)
from amqsidecar.pipeline.sources.events import read_events
from pipeline.generated import Generated
from pipeline.journals import SCHEMA, START_MS, event, write_rows, write_segments

COLUMNS = ("stream", "segment", "position", "type", "at", "redelivery_id", "outcome")
DAY_MS = 86_400_000


def by_python(files: list[EventFile]) -> list[tuple[Any, ...]]:
    rows = []
    for batch in read_batches(files, COLUMNS, ("stream", "type")):
        rows += [tuple(row[name] for name in COLUMNS) for row in batch.to_pylist()]
    return sorted((*row[:4], row[4].timestamp(), *row[5:]) for row in rows)


def by_spark(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    events = read_events(spark, str(path)).withColumn("at", f.unix_micros("at") / 1_000_000)
    return sorted(tuple(row) for row in events.select(*COLUMNS).collect())


def test_a_table_has_the_same_events(spark: SparkSession, even: Generated) -> None:
    path = even.events
    assert by_python(find_files(spark, str(path))) == by_spark(spark, path)


def test_columns_that_folders_hold_are_read_from_their_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_segments(tmp_path / "journal", [1], stream="a")
    write_segments(tmp_path / "journal", [1, 2], stream="c")
    table = tmp_path / "table"
    events = read_events(spark, str(tmp_path / "journal"))
    named = events.withColumn("stream", f.concat("stream", f.lit(": %")))
    named.write.partitionBy("stream").parquet(str(table))
    found = by_python(find_files(spark, str(table)))
    assert found == by_spark(spark, table)
    assert {row[0] for row in found} == {"a: %", "c: %"}


def test_files_of_earlier_programs_lack_columns(spark: SparkSession, tmp_path: Path) -> None:
    earlier = pyarrow.schema([one for one in SCHEMA if one.name not in ADDED], SCHEMA.metadata)
    journal = tmp_path / "journal"
    write_segments(journal, [1], outcome="consumed")
    write_rows(journal / "stream=main" / "segment-2-2.parquet", [event(2, 0)], schema=earlier)
    found = by_python(find_files(spark, str(journal)))
    assert found == by_spark(spark, journal)
    assert [row[-1] for row in found] == ["consumed"] * 3 + [None]
    read_events(spark, str(journal)).drop(*ADDED).write.parquet(str(tmp_path / "table"))
    found = by_python(find_files(spark, str(tmp_path / "table")))
    assert found == by_spark(spark, tmp_path / "table")
    register(spark)
    rows = spark.read.format("amqsidecar").load(str(journal)).select("outcome").collect()
    assert [row["outcome"] for row in rows] == ["consumed"] * 3 + [None]


def test_a_journal_has_the_same_events_where_files_overlap(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_segments(tmp_path, range(1, 5))
    write_segments(tmp_path, range(3, 8))
    found = by_python(find_files(spark, str(tmp_path)))
    assert found == by_spark(spark, tmp_path)
    assert [row[1] for row in found] == [segment for segment in range(1, 8) for _ in range(3)]


def seen_after(spark: SparkSession, journal: Path, change: Callable[[], object]) -> list[str]:
    """Return the events of each stream, if files change after they were listed."""
    files = find_files(spark, str(journal))
    change()
    found = survey(read_steps(spark, files), None).streams
    return [f"{name}: {one.events}" for name, one in sorted(found.items())]


def test_a_compaction_during_a_run_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Of another stream and of an overlap nothing is read twice either."""
    for segments in ([1], [2], [2, 3], [4], [5]):
        write_segments(tmp_path, segments)
    write_segments(tmp_path, [1, 2], stream="other")

    def compact() -> None:
        write_segments(tmp_path, range(1, 5))
        for name in ("1-1", "2-2", "2-3", "4-4"):
            (tmp_path / f"stream=main/segment-{name}.parquet").unlink()

    assert seen_after(spark, tmp_path, compact) == ["main: 15", "other: 6"]


def test_segments_that_are_removed_during_a_run_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = [write_segments(tmp_path, [number]) for number in (1, 2, 3)]
    with pytest.raises(ConfigError, match="segments 2 of stream main were removed"):
        seen_after(spark, tmp_path, files[1].unlink)


def test_a_file_of_a_table_that_is_removed_during_a_run_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_segments(tmp_path / "journal", [1])
    table = tmp_path / "table"
    read_events(spark, str(tmp_path / "journal")).write.parquet(str(table))
    (part,) = table.glob("*.parquet")
    with pytest.raises(ConfigError, match=f"{part.name}: was removed while the job ran"):
        seen_after(spark, table, part.unlink)


def test_each_row_group_is_in_one_part(spark: SparkSession, tmp_path: Path) -> None:
    write_segments(tmp_path / "journal", range(1, 3), count=500)
    table = tmp_path / "table"
    events = read_events(spark, str(tmp_path / "journal"))
    events.coalesce(1).write.option("parquet.block.size", 4_000).parquet(str(table))
    (whole,) = find_files(spark, str(table))
    assert isinstance(whole, TablePart)
    edges = [*range(0, whole.end, 1_000), whole.end]
    parts = [whole._replace(begin=one, end=other) for one, other in pairwise(edges)]
    assert by_python(list(parts)) == by_python([whole])
    assert len([one for one in parts if by_python([one])]) > 1


def test_days_outside_of_the_times_are_not_read(spark: SparkSession, even: Generated) -> None:
    files = find_files(spark, str(even.events))
    days = sorted({one.folders["day"] for one in files if isinstance(one, TablePart)}, key=str)
    assert len(days) > 1
    begin = min(row[4] for row in by_python(files)) * 1000 + DAY_MS
    later = find_files(spark, str(even.events), since_ms=int(begin))
    found = {one.folders["day"] for one in later if isinstance(one, TablePart)}
    assert found == set(days[1:])
    assert not find_files(spark, str(even.events), until_ms=START_MS - 400 * DAY_MS)


@pytest.mark.parametrize(("folder", "kind"), [("_delta_log", "delta"), ("metadata", "iceberg")])
def test_a_table_without_its_library_is_an_error(
    spark: SparkSession, tmp_path: Path, folder: str, kind: str
) -> None:
    (tmp_path / folder).mkdir()
    with pytest.raises(ConfigError, match=f"this table of {kind}; it may need a library"):
        find_files(spark, str(tmp_path))


def test_tasks_have_all_files_once_in_order(tmp_path: Path) -> None:
    files: list[EventFile] = [
        TablePart(str(number), 0, size, {}) for number, size in enumerate([90_000_000, *[5] * 500])
    ]
    tasks = in_tasks(files, 2)
    assert [one for task in tasks for one in task] == files
    assert len(tasks) > 2
    assert not in_tasks([], 2)


@pytest.mark.usefixtures("spark")
def test_recovery_names_a_file_that_is_torn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = write_segments(tmp_path / "journal", [1])
    torn.write_bytes(torn.read_bytes()[:-20])
    arguments = ["--events", str(tmp_path / "journal"), "--output-folder", str(tmp_path / "out")]
    assert run_command_line(["pipeline", "recovery", *arguments]) == 78
    assert f"{torn.name}: is torn, or no Parquet file" in capsys.readouterr().err
