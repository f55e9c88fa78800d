"""A plan of bulk redelivery: what is in it, in what order, and when."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqsidecar.errors import ConfigError
from amqsidecar.journal import SegmentFile, stream_folder
from amqsidecar.pipeline.redrive.plan import RedrivePlan
from amqsidecar.pipeline.redrive.redrive import (
    LEFT_OUT,
    RedriveOptions,
    build_lives,
    build_plan,
    decide,
    offset_ms,
    run_redrive,
)
from amqsidecar.pipeline.sources.events import read_events
from amqsidecar.pipeline.tables import REDRIVE_PLAN, REDRIVE_SUMMARY
from pipeline.journals import START_MS, event, write_rows
from support.sidecar.redrive import write_plan

A, B, FINAL = "queue://A", "queue://B", "queue://DLQ.exhausted"
DAY_MS = 86_400_000
OPTIONS = RedriveOptions(
    events="",
    output_folder="",
    plan_id="p1",
    destinations=(),
    cause_groups=(),
    since_ms=None,
    until_ms=None,
    min_redeliveries=None,
    max_redeliveries=None,
    now_ms=START_MS + DAY_MS,
    with_cancelled=False,
    one_per_message_id=False,
    per_second=10.0,
    ramp_s=0.0,
)

Rows = list[dict[str, Any]]


class History:
    """Events of some messages, each a millisecond after the other."""

    def __init__(self) -> None:
        self.rows: Rows = []

    def died(self, redelivery_id: str, origin: str | None = A, count: int = 0, **more: Any) -> None:
        kind = "returned" if count else "received"
        fields = {"source": "queue://DLQ", "origin": origin, "redelivery_count": count}
        self.add(kind, redelivery_id, **fields | more)

    def add(self, kind: str, redelivery_id: str, **more: Any) -> None:
        position = len(self.rows)
        self.rows.append(event(1, position, type=kind, redelivery_id=redelivery_id) | more)

    def final(self, redelivery_id: str, origin: str | None = A, **more: Any) -> None:
        """Make one die and go to the final queue."""
        self.died(redelivery_id, origin, **more)
        self.add("exhausted", redelivery_id, destination=FINAL, expiration_ms=0)
        self.add("dead_lettered", redelivery_id, destination=FINAL, redelivery_count=0)

    def write(self, folder: Path) -> Path:
        write_rows(folder / stream_folder("main") / SegmentFile(1, 1).name, self.rows)
        return folder


@pytest.fixture
def history() -> History:
    return History()


def reasons(
    spark: SparkSession, history: History, folder: Path, **options: Any
) -> dict[str, str | None]:
    lives = build_lives(read_events(spark, str(history.write(folder))), options.get("until_ms"))
    decided = decide(lives, msgspec.structs.replace(OPTIONS, **options))
    return {row["redelivery_id"]: row["reason"] for row in decided.collect()}


def test_the_latest_state_of_each_message_decides(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    history.final("final")
    history.died("parked")
    history.add("parked", "parked", destination=A, reason="no route")
    history.final("came-again")
    history.add("retried", "came-again", destination=A, actor="me")
    history.add("resent", "came-again", destination=A, redelivery_count=1)
    history.final("came-again", count=1)
    history.final("resent")
    history.add("retried", "resent", destination=A, actor="redrive:p0")
    history.add("resent", "resent", destination=A, redelivery_count=1)
    history.died("discarded")
    history.add("discarded", "discarded", destination=A, rule="r")
    history.final("died-again")
    history.died("died-again", count=1)
    history.add("scheduled", "died-again", destination=A, delay_ms=1, redelivery_count=2, rule="r")
    history.final("odd")
    history.add("invented", "odd")
    history.died("given-up")
    history.add("cancelled", "given-up", destination=FINAL, actor="me")
    history.add("dead_lettered", "given-up", destination=FINAL, redelivery_count=0)
    history.died("over")
    history.add("exhausted", "over", destination=FINAL, expiration_ms=1000)
    history.add("dead_lettered", "over", destination=FINAL, redelivery_count=0)
    history.final("nowhere", origin=None)
    history.died("held-final")
    history.add("exhausted", "held-final", destination=FINAL, expiration_ms=0)
    history.add("held", "held-final", destination=FINAL, reason="backlog")
    history.add("destination_blocked", "", destination=A)
    expected = {
        "final": None,
        "parked": None,
        "came-again": None,
        "resent": "resent",
        "discarded": "discarded",
        "died-again": "in_schedule",
        "odd": "unknown_event",
        "given-up": "cancelled",
        "over": "expired",
        "nowhere": "no_origin",
        "held-final": "not_to_origin",
    }
    assert reasons(spark, history, tmp_path) == expected
    found = reasons(spark, history, tmp_path, with_cancelled=True, now_ms=START_MS)
    assert found == expected | {"given-up": None, "over": None}
    assert set(expected.values()) - {None} <= set(LEFT_OUT)


def test_what_was_not_asked_for_is_left_out(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    history.final("a", cause_group="X", message_id="m1")
    history.final("b", B, cause_group="Y", message_id="m2")
    history.final("again", count=3, cause_group="X", message_id="m1")
    history.final("no-id-1")
    history.final("no-id-2")

    def planned(**options: Any) -> set[str]:
        found = reasons(spark, history, tmp_path, **options)
        return {one for one, reason in found.items() if reason is None}

    assert planned(destinations=(B,)) == {"b"}
    assert planned(cause_groups=("X",)) == {"a", "again"}
    assert planned(since_ms=START_MS + 60_000 + 6) == {"again", "no-id-1", "no-id-2"}
    assert planned(until_ms=START_MS + 60_000 + 6) == {"a", "b"}
    assert planned(min_redeliveries=1) == {"again"}
    assert planned(max_redeliveries=2) == {"a", "b", "no-id-1", "no-id-2"}
    assert planned(one_per_message_id=True) == {"a", "b", "no-id-1", "no-id-2"}


def test_the_pace_grows_and_then_stays(spark: SparkSession) -> None:
    """10/s after 2 s: 2.5 t^2 messages by t <= 2 s, so rank 10 at 2 s, then 0.1 s each.

    Rank 1 at sqrt(1 / 2.5) = 0.632 s.
    """
    ranks = spark.createDataFrame([(one,) for one in (0, 1, 9, 10, 11, 30)], "rank long")
    found = ranks.select(offset_ms(f.col("rank"), 10.0, 2.0)).collect()
    assert [row[0] for row in found] == [0, 632, 1897, 2000, 2100, 4000]
    straight = ranks.select(offset_ms(f.col("rank"), 10.0, 0.0)).collect()
    assert [row[0] for row in straight] == [0, 100, 900, 1000, 1100, 3000]


@pytest.fixture
def many_partitions(spark: SparkSession) -> Iterator[None]:
    """Give small tables as many partitions as large ones."""
    settings = {
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, known in before.items():
        spark.conf.set(key, str(known))


def skewed(spark: SparkSession, count: int) -> DataFrame:
    """Messages that are all planned, 99 of 100 of one destination, in no order."""
    number = f.col("id")
    return spark.range(count).select(
        f.lit(None).cast("string").alias("reason"),
        f.format_string("r-%06d", (number * 7919) % count).alias("redelivery_id"),
        f.lit("queue").alias("place"),
        f.lit(FINAL).alias("source"),
        f.lit("main").alias("stream"),
        f.lit("s").alias("sidecar"),
        f.when(number % 100 == 0, B).otherwise(A).alias("destination"),
        f.lit(0).cast("long").alias("redelivery_count"),
        f.timestamp_millis(START_MS + number % 13).alias("first_death_at"),
        f.timestamp_millis(START_MS + number % 13).alias("last_death_at"),
        f.lit("c").alias("cause_group"),
        f.lit(None).cast("string").alias("message_id"),
    )


@pytest.mark.usefixtures("many_partitions")
def test_numbers_go_on_over_partitions_by_a_total_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Compared with the same plan made by sorting in memory."""
    count = 2000
    decided = skewed(spark, count)
    plan = build_plan(decided, OPTIONS)
    assert plan.rdd.getNumPartitions() == 7
    plan.write.parquet(f"{tmp_path}/plan")
    by_destination: dict[str, list[tuple[Any, str]]] = {A: [], B: []}
    for row in decided.collect():
        key = (row["first_death_at"], row["redelivery_id"])
        by_destination[row["destination"]].append(key)
    expected = sorted(
        (rank * 100, destination, rank, redelivery_id)
        for destination, keys in by_destination.items()
        for rank, (_, redelivery_id) in enumerate(sorted(keys))
    )
    read = RedrivePlan(f"{tmp_path}/plan")
    assert (read.plan_id, read.message_count) == ("p1", count)
    found = list(read.messages(0))
    assert [one.number for one in found] == list(range(count))
    assert [(one.offset_ms, one.destination, one.redelivery_id) for one in found] == [
        (offset, destination, redelivery_id) for offset, destination, _, redelivery_id in expected
    ]
    assert [one.number for one in read.messages(1_234)] == list(range(1_234, count))


def test_a_run_writes_plan_summary_and_report(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    for number in range(5):
        history.final(f"a-{number}", cause_group="<script>")
    history.final("b-0", B)
    history.died("gone", B)
    history.add("resent", "gone", destination=B, redelivery_count=1)
    output = f"{tmp_path}/out"
    options = msgspec.structs.replace(
        OPTIONS, events=str(history.write(tmp_path / "journal")), output_folder=output
    )
    run_redrive(spark, options)
    plan = spark.read.parquet(f"{output}/redrive_plan")
    assert plan.schema.simpleString() == REDRIVE_PLAN.simpleString()
    found = list(RedrivePlan(f"{output}/redrive_plan").messages(0))
    ids = ["a-0", "b-0", "a-1", "a-2", "a-3", "a-4"]
    assert [one.redelivery_id for one in found] == ids
    assert [one.offset_ms for one in found] == [0, 0, 100, 200, 300, 400]
    assert (found[0].source, found[0].destination) == (FINAL, A)
    summary = spark.read.parquet(f"{output}/redrive_summary")
    assert summary.schema.simpleString() == REDRIVE_SUMMARY.simpleString()
    told = {(row["destination"], row["outcome"]): row["messages"] for row in summary.collect()}
    assert told == {(A, "planned"): 5, (B, "planned"): 1, (B, "resent"): 1}
    page = Path(f"{output}/report.html").read_text(encoding="utf-8")
    assert "redrive_plan" in page
    assert "messages due over time" in page


def test_a_plan_with_nothing_in_it_is_a_plan(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    history.died("on-its-way")
    output = f"{tmp_path}/out"
    events = str(history.write(tmp_path / "journal"))
    run_redrive(spark, msgspec.structs.replace(OPTIONS, events=events, output_folder=output))
    plan = RedrivePlan(f"{output}/redrive_plan")
    assert (plan.message_count, plan.plan_id, list(plan.messages(0))) == (0, "", [])


def test_a_torn_plan_is_refused(tmp_path: Path) -> None:
    rows = [{"redelivery_id": f"r-{n}", "source": FINAL, "destination": A} for n in range(4)]
    plan = write_plan(tmp_path / "plan", rows)
    assert Counter(one.place for one in RedrivePlan(str(plan)).messages(0)) == {"queue": 4}
    (plan / "part-00000-x.parquet").unlink()
    with pytest.raises(ConfigError, match="has row 2 where 0 should be"):
        list(RedrivePlan(str(plan)).messages(0))
    (plan / "_SUCCESS").unlink()
    with pytest.raises(ConfigError, match="holds no whole plan"):
        RedrivePlan(str(plan))
