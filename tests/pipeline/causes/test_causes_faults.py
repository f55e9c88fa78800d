"""Dead letters of twelve faults, as Classic words them, are twelve groups."""

import random
from pathlib import Path

from pyspark.sql import SparkSession

from amqsidecar.model.cause import cause_group
from amqsidecar.pipeline.tables import EVERYWHERE
from pipeline.causes.job import run_causes_of
from pipeline.journals import START_MS, event
from support.histories.faults import FAULTS, say

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
    run_causes_of(spark, tmp_path, rows)
    table = spark.read.parquet(str(tmp_path / "out/cause_groups"))
    groups = table.where(f"origin = '{EVERYWHERE}'").collect()
    expected = {fault: drawn.count(fault) for fault in range(len(FAULTS))}
    assert sorted(row.deaths for row in groups) == sorted(expected.values())
