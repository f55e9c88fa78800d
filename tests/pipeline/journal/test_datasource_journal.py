"""`format("amqsidecar")` reads journals once, as they grow, are compacted and forget."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from amqsidecar.errors import ConfigError
from amqsidecar.pipeline.sources.datasource import register
from amqsidecar.pipeline.sources.journal import (
    JournalSourceOptions,
    JournalStreamReader,
    SlicesPartition,
)
from amqsidecar.pipeline.sources.journal_files import Slice
from amqsidecar.pipeline.tables import EVENTS
from pipeline.journals import START_MS, event, write_journal, write_segments


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def keys(events: DataFrame) -> list[tuple[str, int, int]]:
    rows = events.select("stream", "segment", "position").collect()
    return sorted((row.stream, row.segment, row.position) for row in rows)


def load(spark: SparkSession, *paths: Path, **options: str) -> DataFrame:
    reader = spark.read.format("amqsidecar").options(**options)
    return reader.load(",".join(str(path) for path in paths))


def stream_reader(
    *paths: Path, fails: bool = True, limit: int | None = None
) -> JournalStreamReader:
    return JournalStreamReader(
        JournalSourceOptions(tuple(str(path) for path in paths), fails, limit)
    )


def read_partitions(reader: JournalStreamReader, start: Any, end: Any) -> list[int]:
    """Return the segments, one for each event, that a micro-batch reads."""
    return [
        segment
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for segment in batch.column("segment").to_pylist()
    ]


# Batch


def test_a_journal_has_the_fixed_columns_and_its_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [event(1, 0, due_at=START_MS, properties={"tenant": "a"}), event(1, 1, cause="c")]
    write_journal(tmp_path, rows)
    events = load(spark, tmp_path)
    assert events.schema.simpleString() == EVENTS.simpleString()
    first, second = events.orderBy("position").collect()
    assert (first.properties, first.due_at.timestamp() * 1000) == ({"tenant": "a"}, START_MS)
    assert (second.properties, second.due_at, second.cause) == (None, None, "c")


def test_a_stream_in_two_roots_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """Both roots hold 2 to 5, cut differently; each segment has three events."""
    for segments in ([1], [2], [3, 4, 5]):
        write_segments(tmp_path / "a", segments)
    for segments in ([2, 3], [4, 5, 6], [7]):
        write_segments(tmp_path / "b", segments)
    write_segments(tmp_path / "b", [1], stream="other")
    read = keys(load(spark, tmp_path / "a", tmp_path / "b"))
    assert read == [
        *(("main", segment, n) for segment in range(1, 8) for n in range(3)),
        *(("other", 1, n) for n in range(3)),
    ]


def test_a_gap_is_an_error_unless_it_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    for number in (1, 4):
        write_segments(tmp_path, [number])
    with pytest.raises(Exception, match="segments 2 to 3 of stream main are in none") as caught:
        load(spark, tmp_path).count()
    assert isinstance(caught.value, AnalysisException | PythonException)
    assert load(spark, tmp_path, failOnDataLoss="false").count() == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "option path: is not set"),
        ({"path": "x", "pth": "y"}, "option pth: there is no such option; known: path"),
        ({"path": "x", "maxSegmentsPerTrigger": "0"}, "expected a whole number from 1, found 0"),
        ({"path": "x", "failOnDataLoss": "perhaps"}, "expected true or false, found perhaps"),
        ({"path": "/absent"}, "/absent: is not there; expected the folder of a journal"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        spark.read.format("amqsidecar").options(**options).load().count()


# Offsets


def test_offsets_go_on_with_each_segment_and_each_stream(tmp_path: Path) -> None:
    reader = stream_reader(tmp_path)
    for number in (3, 4):
        write_segments(tmp_path, [number])
    first = reader.latestOffset({}, ReadAllAvailable())
    assert first == {"main": {"first": 3, "last": 4}}
    write_segments(tmp_path, [5])
    write_segments(tmp_path, [1], stream="other")
    second = reader.latestOffset(first, ReadAllAvailable())
    assert second == {"main": {"first": 3, "last": 5}, "other": {"first": 1, "last": 1}}
    assert read_partitions(reader, {}, first) == [3, 3, 3, 4, 4, 4]
    assert read_partitions(reader, first, second) == [5, 5, 5, 1, 1, 1]
    assert reader.latestOffset(second, ReadAllAvailable()) == second


def test_a_micro_batch_takes_a_bounded_number_of_segments_of_each_stream(tmp_path: Path) -> None:
    reader = stream_reader(tmp_path, limit=2)
    assert reader.getDefaultReadLimit() == ReadMaxFiles(2)
    write_segments(tmp_path, [1, 2, 3])
    end = reader.latestOffset({}, ReadMaxFiles(2))
    assert end == {"main": {"first": 1, "last": 2}}
    assert read_partitions(reader, {}, end) == [1, 1, 1, 2, 2, 2]


def test_available_now_does_not_run_after_what_comes_later(tmp_path: Path) -> None:
    reader = stream_reader(tmp_path)
    write_segments(tmp_path, [1])
    reader.prepareForTriggerAvailableNow()
    write_segments(tmp_path, [2])
    write_segments(tmp_path, [1], stream="other")
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == {"main": {"first": 1, "last": 1}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def compact(root: Path) -> None:
    for number in (1, 2, 3):
        (root / f"stream=main/segment-{number}-{number}.parquet").unlink()
    write_segments(root, [1, 2, 3])


def test_a_compaction_between_planning_and_reading_changes_nothing(tmp_path: Path) -> None:
    reader = stream_reader(tmp_path)
    for number in (1, 2, 3):
        write_segments(tmp_path, [number])
    partitions = reader.partitions(
        {"main": {"first": 1, "last": 1}}, {"main": {"first": 1, "last": 3}}
    )
    compact(tmp_path)
    read = [batch for partition in partitions for batch in reader.read(partition)]
    assert [n for batch in read for n in batch.column("segment").to_pylist()] == [2] * 3 + [3] * 3


def vanish(root: Path, *numbers: int) -> None:
    for number in numbers:
        (root / f"stream=main/segment-{number}-{number}.parquet").unlink()


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader, start, end: reader.latestOffset(start, ReadAllAvailable()),
        lambda reader, start, end: reader.partitions(start, end),
    ],
    ids=["new batch", "batch that is repeated"],
)
def test_what_vanished_before_it_was_read_is_an_error(
    tmp_path: Path, ask: Callable[[JournalStreamReader, Any, Any], Any]
) -> None:
    for number in (1, 2, 3, 4):
        write_segments(tmp_path, [number])
    start, end = {"main": {"first": 1, "last": 1}}, {"main": {"first": 1, "last": 4}}
    vanish(tmp_path, 1, 2, 3)
    with pytest.raises(ConfigError, match="segments 2 to 3 of stream main are in none"):
        ask(stream_reader(tmp_path), start, end)
    assert read_partitions(stream_reader(tmp_path, fails=False), start, end) == [4, 4, 4]


def test_a_first_batch_that_is_repeated_misses_what_vanished_meanwhile(tmp_path: Path) -> None:
    for number in (1, 2):
        write_segments(tmp_path, [number])
    end = stream_reader(tmp_path).latestOffset({}, ReadAllAvailable())
    vanish(tmp_path, 1)
    with pytest.raises(ConfigError, match="segments 1 of stream main"):
        stream_reader(tmp_path).partitions({}, end)


def test_what_comes_before_a_gap_is_read_first(tmp_path: Path) -> None:
    for number in (1, 2, 4):
        write_segments(tmp_path, [number])
    reader = stream_reader(tmp_path)
    end = reader.latestOffset({}, ReadAllAvailable())
    assert end == {"main": {"first": 1, "last": 2}}
    with pytest.raises(ConfigError, match="segments 3 of stream main"):
        reader.latestOffset(end, ReadAllAvailable())


def test_large_files_are_divided_and_small_ones_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = write_segments(tmp_path, range(1, 101))
    small = [write_segments(tmp_path, [number]) for number in range(101, 111)]
    size = small[0].stat().st_size
    for name, number in (("PART", 11 * size // 2), ("LEAST_TASK", size), ("FILE", 0)):
        monkeypatch.setattr(f"amqsidecar.pipeline.sources.event_files._{name}_BYTES", number)
    reader = stream_reader(tmp_path)
    end = {"main": {"first": 1, "last": 110}}
    partitions = reader.partitions({}, end)
    sizes = [
        [one.last - one.first + 1 for one in partition.slices if isinstance(one, Slice)]
        for partition in partitions
        if isinstance(partition, SlicesPartition)
    ]
    assert len([one for task in sizes for one in task]) > 10 + large.stat().st_size // (5 * size)
    assert any(len(task) > 3 for task in sizes)
    assert sorted(read_partitions(reader, {}, end)) == sorted([*range(1, 111)] * 3)


# Streaming, by Spark


def run_stream(spark: SparkSession, root: Path, out: Path, **options: str) -> list[Any]:
    stream = spark.readStream.format("amqsidecar").options(**options).load(str(root))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{out}-checkpoint")
    query = writer.trigger(availableNow=True).start(str(out))
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_a_query_reads_on_where_it_was_after_compaction_and_retention(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal, out = tmp_path / "journal", tmp_path / "out"
    for number in (1, 2, 3):
        write_segments(journal, [number])
    assert sum(run_stream(spark, journal, out, maxSegmentsPerTrigger="2")) == 9
    compact(journal)
    write_segments(journal, [4])
    (journal / "stream=main/segment-1-3.parquet").unlink()
    assert sum(run_stream(spark, journal, out)) == 3
    read = keys(spark.read.parquet(str(out)))
    assert read == [("main", segment, n) for segment in (1, 2, 3, 4) for n in range(3)]
    write_segments(journal, [6])
    with pytest.raises(StreamingQueryException, match="segments 5 of stream main are in none"):
        run_stream(spark, journal, out)


def test_a_stream_refuses_wrong_options_before_it_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="option pth: there is no such option"):
        spark.readStream.format("amqsidecar").option("pth", "y").load(str(tmp_path))
