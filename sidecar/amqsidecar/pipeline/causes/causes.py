"""The job `causes`: groups of causes of death, new groups, and growing groups."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pandas
import pyarrow
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqsidecar.model.marker import Marker
from amqsidecar.pipeline.causes.report import write_report
from amqsidecar.pipeline.causes.tables import (
    HOUR_MS,
    ComparedTimes,
    cause_examples,
    cause_groups,
    count_cells,
    group_cells,
    in_cells,
    learn_groups,
    name_by_notes,
    observation,
    read_merges,
)
from amqsidecar.pipeline.changes import HOURS, LevelChange, RateSeries, find_changes
from amqsidecar.pipeline.markers import journaled_markers
from amqsidecar.pipeline.results import Results
from amqsidecar.pipeline.sources.event_files import lacking_segments
from amqsidecar.pipeline.sources.events import read_events
from amqsidecar.pipeline.tables import CAUSE_CHANGES, CAUSE_GROUPS, arrow_schema

LEAST_DEATHS: Final = 20
"""Of a group, for change points."""
MOST_GROUPS: Final = 500
"""That are looked at: those with the most deaths."""
_US: Final = 1_000


def cause_changes(cells: DataFrame, seen: ComparedTimes) -> pyarrow.Table:
    """Return `CAUSE_CHANGES`."""
    most = (
        cells.groupBy("cause_group")
        .agg(f.sum("deaths").alias("all_deaths"))
        .where(f.col("all_deaths") >= LEAST_DEATHS)
        .orderBy(f.desc("all_deaths"), "cause_group")
        .limit(MOST_GROUPS)
    )
    counted: pandas.DataFrame = (
        cells.join(f.broadcast(most), "cause_group", "inner")
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
    schema = arrow_schema(CAUSE_CHANGES)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pyarrow.array(values, one.type) for one, values in zip(schema, columns, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _row(name: str, first: int, one: LevelChange) -> tuple[object, ...]:
    hours = (one.begins, one.earliest, one.latest, one.ends)
    times = (None if at is None else (first + at) * HOUR_MS * _US for at in hours)
    levels = (one.before, one.level, one.level - one.before, one.low, one.high)
    return name, *times, *(HOURS * level for level in levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class CausesOptions:
    """The options of `amqsidecar pipeline causes`; its help explains them. None = not given."""

    events: str
    output_folder: str
    until_ms: int | None
    new_since_ms: int | None
    days_before: int
    examples: int
    markers: tuple[Marker, ...]


def run_causes(spark: SparkSession, options: CausesOptions) -> dict[str, object]:
    """Write the tables and the report; return its first screen.

    A run that is killed leaves each table whole or without `_SUCCESS`, none of an earlier run, and
    is simply run again; the report is written last.

    Raises:
        ConfigError: the history can't be read.
    """
    results = Results(options.output_folder, ("cause_groups", "cause_changes"))
    history = read_events(spark, options.events, until_ms=options.until_ms)
    events = name_by_notes(history)
    placed = in_cells(events)
    counted = count_cells(placed).persist(StorageLevel.MEMORY_AND_DISK)
    cells = counted.where("is_death")
    try:
        seen = _observe(counted, options)
        grouped = group_cells(cells, learn_groups(spark, cells, read_merges(history)))
        groups = cause_groups(grouped, seen).toArrow().cast(arrow_schema(CAUSE_GROUPS))
        changes = cause_changes(grouped, seen)
        results.write("cause_groups", groups)
        results.write("cause_changes", changes)
        summary = write_report(
            results.report_path,
            _facts(options, seen),
            [*lacking_segments(options.events)],
            seen,
            journaled_markers(history, options.markers),
            groups=groups,
            changes=changes,
            cells=grouped,
            examples=cause_examples(placed.where("is_death"), grouped, options.examples),
        )
    finally:
        counted.unpersist()
    return results.finish(summary)


def _observe(counted: DataFrame, options: CausesOptions) -> ComparedTimes:
    bounds = counted.agg(f.unix_millis(f.min("first_at")), f.unix_millis(f.max("last_at")))
    first_ms, last_ms = bounds.collect()[0]
    return observation(
        first_ms or 0,
        last_ms or 0,
        until_ms=options.until_ms,
        new_since_ms=options.new_since_ms,
        days_max=options.days_before,
    )


def _facts(options: CausesOptions, seen: ComparedTimes) -> dict[str, str]:
    before = f"{seen.days_before} days before" if seen.days_before else "nothing: history is short"
    is_new = (
        "not known: the history does not reach back"
        if seen.new_since_ms is None
        else (f"first death at or after {_time(seen.new_since_ms)}")
    )
    return {
        "history": options.events,
        "from": _time(seen.begin_ms),
        "latest day": f"{_time(seen.latest_ms)} to {_time(seen.end_ms)}",
        "compared with": before,
        "new": is_new,
        "one group": "as in the sidecar: by stack, or a class and the constant words of its texts",
    }


def _time(time_ms: int) -> str:
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "minutes").removesuffix("+00:00")
    )
