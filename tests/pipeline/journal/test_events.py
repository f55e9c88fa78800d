"""The history is read whole and once, or an error names the file."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from structlog.testing import capture_logs

from amqsidecar.errors import ConfigError
from amqsidecar.journal import (
    SCHEMA_VERSION_KEY,
    Segment,
    SegmentFile,
    current_files,
    stream_folder,
)
from amqsidecar.journals.columns import table_of
from amqsidecar.journals.parquet import parquet_writer
from amqsidecar.model.cause import cause_group
from amqsidecar.model.event import AnyEvent, Received, Scheduled
from amqsidecar.pipeline.sources.events import read_events
from amqsidecar.pipeline.sources.journal import JournalReader, JournalSourceOptions
from amqsidecar.pipeline.sources.journal_files import Gap, JournalFile, cover
from amqsidecar.pipeline.tables import EVENTS
from pipeline.journals import SCHEMA, START_MS, event, write_journal, write_rows, write_segments


def keys(events: DataFrame) -> list[tuple[str, int, int]]:
    rows = events.select("stream", "segment", "position").collect()
    return sorted((row.stream, row.segment, row.position) for row in rows)


def file(first: int, last: int) -> JournalFile:
    return JournalFile(f"segment-{first}-{last}.parquet", "main", first, last, 0)


def read(files: list[JournalFile], first: int, last: int) -> list[int]:
    slices, _ = cover(files, first, last)
    return [number for one in slices for number in range(one.first, one.last + 1)]


def read_all(reader: JournalReader) -> list[Any]:
    return [batch for partition in reader.partitions() for batch in reader.read(partition)]


# Which files hold what


def test_each_segment_is_taken_once_however_files_overlap() -> None:
    files = [file(1, 1), file(2, 2), file(1, 4), file(3, 6), file(5, 5), file(6, 6)]
    assert read(files, 1, 6) == [1, 2, 3, 4, 5, 6]
    assert read(files, 2, 5) == [2, 3, 4, 5]


def test_after_an_interrupted_compaction_the_files_are_those_of_the_contract() -> None:
    files = [file(1, 1), file(2, 2), file(1, 3), file(3, 3), file(4, 4)]
    slices, gaps = cover(files, 1, 4)
    assert [(one.file.first, one.file.last) for one in slices] == [
        (one.first, one.last) for one in current_files([one.url for one in files])
    ]
    assert not gaps


def test_what_no_file_holds_is_reported() -> None:
    _, gaps = cover([file(3, 4), file(7, 7)], 1, 9)
    assert gaps == [Gap(1, 2), Gap(5, 6), Gap(8, 9)]


# Reading


def test_a_journal_is_read_with_the_values_of_the_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    properties = {"tenant": "a"}
    write_journal(
        tmp_path,
        [event(1, 0, due_at=START_MS, properties=properties, expired=False)],
    )
    write_segments(tmp_path, [1, 2], stream="other-1")
    events = read_events(spark, str(tmp_path))
    assert events.dtypes == [(one.name, one.dataType.simpleString()) for one in EVENTS]
    row = events.where("stream = 'main'").first()
    assert row is not None
    assert row.properties == properties
    assert row.cause is None
    assert row.due_at.timestamp() * 1000 == START_MS
    assert len(keys(events)) == 1 + 6


def test_what_the_sidecar_writes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    events: list[AnyEvent] = [
        Received(at_ms=START_MS, id=1, redelivery_id="a", source="queue://DLQ", cause="x 12"),
        Scheduled(
            at_ms=START_MS,
            id=1,
            redelivery_id="a",
            destination="queue://A",
            delay_ms=2**62,
            due_at_ms=2**62,
            redelivery_count=1,
            rule="r",
        ),
    ]
    segment = Segment(stream="main", number=1, event_count=2)
    path = tmp_path / stream_folder("main") / SegmentFile(1, 1).name
    path.parent.mkdir()
    with path.open("wb") as file, parquet_writer(file) as writer:
        writer.write_table(table_of(segment, [events], sidecar="s", cause_text=True))
    rows = read_events(spark, str(tmp_path)).orderBy("position").collect()
    assert [(row.type, row.cause, row.delay_ms) for row in rows] == [
        ("received", "x 12", None),
        ("scheduled", None, 2**62),
    ]
    assert rows[0].cause_group == cause_group("x 12")
    (batch,) = read_all(JournalReader(JournalSourceOptions((str(tmp_path),), True, None)))
    assert batch.column("due_at").to_pylist()[1].year == 9999


def test_a_gap_is_reported_with_its_numbers(spark: SparkSession, tmp_path: Path) -> None:
    for number in (3, 4, 8):
        write_segments(tmp_path, [number])
    with capture_logs() as lines:
        assert len(keys(read_events(spark, str(tmp_path)))) == 9
    told = {line["event"]: line for line in lines}
    assert told["journal_gap"]["lacking_segments"] == "5 to 7"
    assert told["journal_begins_later"]["removed"] == "1 to 2"


def test_a_folder_with_characters_of_patterns_is_read(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "a [b] {c}, d?*"
    write_segments(root, [1])
    assert len(keys(read_events(spark, str(root)))) == 3


def test_many_segments_are_found_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would list more than 32 files that are named one by one in a job of its own."""
    for number in range(1, 41):
        write_segments(tmp_path, [number], stream=f"store-{number % 2}", count=1)
    context = spark.sparkContext
    context.setJobGroup("listing", "of a journal")
    try:
        events = read_events(spark, str(tmp_path))
        jobs = context.statusTracker().getJobIdsForGroup("listing")
    finally:
        context.setLocalProperty("spark.jobGroup.id", "")
    assert len(jobs) == 0
    assert events.count() == 40


def test_a_table_is_read_with_the_columns_of_events(spark: SparkSession, tmp_path: Path) -> None:
    write_segments(tmp_path / "journal", [1, 2])
    events = read_events(spark, str(tmp_path / "journal"))
    events.selectExpr("*", "to_date(at) AS day").write.partitionBy("day").parquet(
        str(tmp_path / "table")
    )
    read = read_events(spark, str(tmp_path / "table"))
    assert read.columns == EVENTS.names
    assert keys(read) == keys(events)


def test_days_outside_of_the_asked_times_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Of four days two are asked for, from noon to noon: their folders alone are opened."""
    day_ms = 86_400_000
    rows = [event(1, number, at=START_MS + number * day_ms // 2) for number in range(8)]
    write_journal(tmp_path / "journal", rows)
    whole = read_events(spark, str(tmp_path / "journal"))
    table = whole.selectExpr("*", "to_date(at) AS day").write.partitionBy("day")
    table.parquet(str(tmp_path / "table"))
    from_table, from_journal = (
        read_events(
            spark,
            str(tmp_path / name),
            since_ms=START_MS + 3 * day_ms // 2,
            until_ms=START_MS + 5 * day_ms // 2,
        )
        for name in ("table", "journal")
    )
    assert keys(from_table) == keys(from_journal) == [("main", 1, 3), ("main", 1, 4)]
    metrics = from_table._jdf.queryExecution().executedPlan().toString()
    assert re.search(r"PartitionFilters: \[[^]]*day#\d+ >= 2026-01-02", metrics)
    assert re.search(r"PartitionFilters: \[[^]]*day#\d+ <= 2026-01-03", metrics)
    assert "GreaterThanOrEqual(at" in from_journal._jdf.queryExecution().toString()


# Bad input: each ends in one sentence that names the file


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "is torn, or no Parquet file"),
        (lambda path: path.write_bytes(b""), "is torn, or no Parquet file"),
        (lambda path: path.rename(path.with_name("part-0.parquet")), "is no segment of a journal"),
        (lambda path: path.rename(path.with_name("segment-3-3.parquet")), "holds segments 2 to 2"),
        (
            lambda path: write_rows(path, [event(2, 0)], schema=SCHEMA.remove_metadata()),
            "is not of this program",
        ),
        (
            lambda path: write_rows(
                path, [event(2, 0)], schema=SCHEMA.with_metadata({SCHEMA_VERSION_KEY: "2"})
            ),
            "has columns of version 2, and this amqsidecar knows version 1 only",
        ),
        (
            lambda path: write_rows(path, [event(2, 0)], schema=SCHEMA.remove(9)),
            "lacks columns: origin",
        ),
    ],
)
def test_a_bad_file_is_named(spark: SparkSession, tmp_path: Path, damage, words) -> None:  # type: ignore[no-untyped-def]
    write_segments(tmp_path, [1])
    damage(write_segments(tmp_path, [2]))
    with pytest.raises(ConfigError, match=words) as caught:
        read_events(spark, str(tmp_path))
    (problem,) = caught.value.problems
    assert "stream=main/" in problem.where


def test_a_damaged_page_is_an_error_to_both_readers(spark: SparkSession, tmp_path: Path) -> None:
    """The value between the smallest and the largest is in no statistics, but in a page."""
    causes = ("a", "damage" * 20, "z")
    path = write_journal(
        tmp_path,
        [event(1, position, cause=cause) for position, cause in enumerate(causes)],
    )
    content = path.read_bytes()
    at = content.index(b"damagedamage")
    path.write_bytes(content[:at] + b"D" + content[at + 1 :])
    with pytest.raises(Exception, match=r"checksum|CRC"):
        read_events(spark, str(tmp_path)).select("cause").collect()
    reader = JournalReader(JournalSourceOptions((str(tmp_path),), True, None))
    with pytest.raises(ConfigError, match=r"segment-1-1.parquet: is torn, or no Parquet file"):
        read_all(reader)


def test_a_file_in_the_folder_of_another_stream_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_segments(tmp_path, [1])
    (tmp_path / "stream=other").mkdir()
    path.rename(tmp_path / "stream=other" / path.name)
    with pytest.raises(ConfigError, match="of stream main, which contradicts its name"):
        read_events(spark, str(tmp_path))


def test_a_file_that_is_being_written_is_no_file_yet(spark: SparkSession, tmp_path: Path) -> None:
    path = write_segments(tmp_path, [1])
    path.with_name(".segment-2-2.parquet").write_bytes(b"half")
    assert len(keys(read_events(spark, str(tmp_path)))) == 3


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("empty", "holds no events"),
        ("absent", "is not there; expected the folder of a journal"),
        ("unheard-of://bucket", "can't be read: Protocol not known"),
    ],
)
def test_what_is_no_history_is_refused(
    spark: SparkSession, tmp_path: Path, path: str, words: str
) -> None:
    (tmp_path / "empty").mkdir()
    where = path if "://" in path else str(tmp_path / path)
    with pytest.raises(ConfigError, match=words):
        read_events(spark, where)


def test_a_table_of_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_segments(tmp_path / "journal", [1])
    events = read_events(spark, str(tmp_path / "journal"))
    events.drop("cause").write.parquet(str(tmp_path / "table"))
    with pytest.raises(ConfigError, match="these columns differ: cause"):
        read_events(spark, str(tmp_path / "table"))
