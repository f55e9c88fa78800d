"""When causes began, grew, shrank or ended."""

from typing import Final

import numpy as np
import pandas
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from amqsidecar.pipeline.causes.tables import HOUR_MS, ComparedTimes
from amqsidecar.pipeline.changes import HOURS, LevelChange, RateSeries, find_changes
from amqsidecar.pipeline.tables import CAUSE_CHANGES

LEAST_DEATHS: Final = 20
"""Of a group, for change points."""
MOST_GROUPS: Final = 500
"""That are looked at: those with the most deaths."""
_US: Final = 1_000


def cause_changes(spark: SparkSession, by_hour: DataFrame, seen: ComparedTimes) -> DataFrame:
    """Return `CAUSE_CHANGES`.

    Args:
        spark: the session.
        by_hour: `CAUSES_BY_HOUR`.
        seen: from when to when the history reaches.
    """
    most = (
        by_hour.groupBy("cause_group")
        .agg(f.sum("deaths").alias("all_deaths"))
        .where(f.col("all_deaths") >= LEAST_DEATHS)
        .orderBy(f.desc("all_deaths"), "cause_group")
        .limit(MOST_GROUPS)
    )
    counted: pandas.DataFrame = (
        by_hour.join(f.broadcast(most), "cause_group", "inner")
        .groupBy("cause_group", (f.unix_millis("hour") / HOUR_MS).cast("long").alias("hour"))
        .agg(f.sum("deaths").alias("deaths"))
        .toPandas()
    )
    first, end = seen.begin_ms // HOUR_MS, seen.end_ms // HOUR_MS
    rows = []
    for name, part in counted[counted["hour"] < end].groupby("cause_group"):
        deaths = np.bincount(part["hour"] - first, part["deaths"], end - first).astype(int)
        changes = find_changes(deaths, np.ones(len(deaths), dtype=int), RateSeries())
        rows += [_row(str(name), first, one) for one in changes]
    schema = to_arrow_schema(CAUSE_CHANGES, timezone="UTC")
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pyarrow.array(values, one.type) for one, values in zip(schema, columns, strict=True)]
    return spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=schema))


def _row(name: str, first: int, one: LevelChange) -> tuple[object, ...]:
    hours = (one.begins, one.earliest, one.latest, one.ends)
    times = (None if at is None else (first + at) * HOUR_MS * _US for at in hours)
    levels = (one.before, one.level, one.level - one.before, one.low, one.high)
    return name, *times, *(HOURS * level for level in levels)
