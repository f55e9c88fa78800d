"""The job `recovery`: the share of messages that recover by each re-send, and how soon.

A message that was re-sent and did not return is the only sign of success, so the return is the
event of a survival analysis, and the end of the observation censors it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from amqsidecar.model.marker import Marker
from amqsidecar.pipeline.markers import journaled_markers
from amqsidecar.pipeline.recovery.lives import count_outcomes, read_steps, survey
from amqsidecar.pipeline.recovery.over_time import Periods
from amqsidecar.pipeline.recovery.report import write_report
from amqsidecar.pipeline.recovery.state import KeptState
from amqsidecar.pipeline.recovery.tables import TABLES, Estimator, collected, in_groups, with_owners
from amqsidecar.pipeline.results import Results, time_text
from amqsidecar.pipeline.sources.event_files import (
    find_files,
    lacking_segments,
    table_of_library,
)
from amqsidecar.pipeline.sources.events import read_events

_HOUR_MS: Final = 3_600_000
_CLOCKS_MS: Final = 3_600_000
"""Maximum difference of two sidecars' clocks when `--since` leaves out older events."""

log = structlog.get_logger("amqsidecar.pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """The options of `amqsidecar pipeline recovery`; its help explains them.

    None = not given. `owners` are by destination and cause group.
    """

    events: str
    output_folder: str
    state: str | None
    since_ms: int | None
    until_ms: int | None
    horizon_ms: int
    confidence: float
    min_messages: int
    period_days: int
    owners: Mapping[tuple[str, str], str]
    markers: tuple[Marker, ...]


def run_recovery(spark: SparkSession, options: RecoveryOptions) -> dict[str, object] | None:
    """Write the tables and the report; return its first screen, None if nothing is new.

    A run that is killed leaves each table whole or without `_SUCCESS`, none of an earlier run, and
    is simply run again; the report is written after all tables.

    Raises:
        ConfigError: the history can't be read.
    """
    results = Results(options.output_folder, tuple(TABLES))
    if options.state is not None:
        state = KeptState(spark, options.state, options.events)
        if state.is_current and results.are_of(f"{state.name} {options}"):
            log.info("nothing_is_new", kept=options.output_folder)
            return None
        found = _write(options, results, state.advance())
        results.name_source(f"{state.name} {options}")
        return found
    # Why earlier: the first death of a message may bear the time of a clock that is ahead.
    since_ms = None if options.since_ms is None else options.since_ms - _CLOCKS_MS
    times = {"since_ms": since_ms, "until_ms": options.until_ms}
    table = table_of_library(spark, options.events)
    history = find_files(spark, options.events, **times) if table is None else table
    read = read_steps(spark, history, **times)
    # Why not in memory: Spark fills the heap with the steps of each task at once.
    read = read.persist(StorageLevel.DISK_ONLY)
    found = _write(options, results, read)
    read.unpersist()
    return found


def _write(options: RecoveryOptions, results: Results, read: DataFrame) -> dict[str, object]:
    surveyed = survey(read, options.until_ms)
    counted = count_outcomes(
        read,
        surveyed.ends_ms,
        horizon_ms=options.horizon_ms,
        since_ms=options.since_ms,
        until_ms=options.until_ms,
    )
    latest_ms = max(surveyed.ends_ms.values(), default=0)
    periods = Periods(options.period_days, (latest_ms - options.horizon_ms) // _HOUR_MS)
    named = in_groups(counted, surveyed.groups)
    estimator = Estimator(surveyed.texts, options.confidence, periods)
    tables = collected(estimator.estimate(named))
    tables["recovery_summary"] = with_owners(tables["recovery_summary"], options.owners)
    for name, table in tables.items():
        results.write(name, table)
    times = {"since_ms": options.since_ms, "until_ms": options.until_ms}
    events = read_events(read.sparkSession, options.events, **times)
    summary = write_report(
        results.report_path,
        [*lacking_segments(options.events)],
        _facts(options),
        journaled_markers(events, options.markers),
        streams=surveyed.streams,
        tables=tables,
        min_messages=options.min_messages,
    )
    return results.finish(summary)


def _facts(options: RecoveryOptions) -> dict[str, str]:
    return {
        "history": options.events,
        "messages since": time_text(options.since_ms, "the beginning"),
        "observed until": time_text(options.until_ms, "the latest event of each stream"),
        "recovered": f"not returned within {options.horizon_ms / 1000:,.0f} s after a re-send",
        "bounds": f"{options.confidence:.4g}, two-sided",
        "plots": f"groups of at least {options.min_messages} messages",
    }
