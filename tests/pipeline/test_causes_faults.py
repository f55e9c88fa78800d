"""Dead letters of twelve faults, as Classic words them, are twelve groups."""

import random
from pathlib import Path

from pyspark.sql import SparkSession

from amqsidecar.journal import SegmentFile, stream_folder
from amqsidecar.model.cause import cause_group
from amqsidecar.pipeline.causes.causes import CausesOptions, run_causes
from pipeline.journals import START_MS, event, write_rows
from support.faults import FAULTS, say

DEAD_LETTERS = 20_000
"""100,000 gave the same twelve."""


def test_twelve_faults_are_twelve_groups(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(12)
    drawn = [chance.randrange(len(FAULTS)) for _ in range(DEAD_LETTERS)]
    rows = [
        event(1, number, cause_group=cause_group(say(chance, FAULTS[fault])))
        | {"origin": f"queue://orders.{fault % 5}", "at": START_MS + number * 5_000}
        for number, fault in enumerate(drawn)
    ]
    write_rows(tmp_path / "journal" / stream_folder("main") / SegmentFile(1, 1).name, rows)
    options = CausesOptions(
        events=str(tmp_path / "journal"),
        output_folder=str(tmp_path / "out"),
        until_ms=None,
        new_since_ms=None,
        days_before=7,
        examples=3,
        similarity=0.8,
    )
    run_causes(spark, options)
    groups = spark.read.parquet(str(tmp_path / "out/cause_groups")).collect()
    expected = {fault: drawn.count(fault) for fault in range(len(FAULTS))}
    assert sorted(row.deaths for row in groups) == sorted(expected.values())
