"""The tables of the job `causes`, all made of deaths counted by cause, destination and hour."""

from functools import reduce
from typing import Final, NamedTuple

import pyarrow
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from amqsidecar.model.cause import GROUP_MAX
from amqsidecar.pipeline import places
from amqsidecar.pipeline.places import TEXTS_MAX, grouped_place
from amqsidecar.pipeline.tables import CAUSE_GROUPS, EVENTS, EVERYWHERE

NO_REASON: Final = "(no reason given)"
"""The group of messages without a cause of death from the broker."""
EXPIRED: Final = "(expired)"
"""The group of messages without a cause whose time to live ran out."""

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
NEW_DAYS: Final = 7
"""Default age below which a group is new."""

_DEATHS = ("received", "returned")
_CELL = ("cause_text", "is_expired", "origin", "hour")
_GROUPS_OF_TEXTS: Final = ("cause_text", "origin", "cause_group")


class ComparedTimes(NamedTuple):
    """The times that are compared, in milliseconds since the epoch.

    Attributes:
        begin_ms: of the history.
        latest_ms: begin of the latest day, at a whole hour.
        end_ms: end of the latest day, exclusive.
        days_before: number of earlier whole days that the latest day is compared with.
        new_since_ms: groups are new if they began then or later; None = the history begins later.
    """

    begin_ms: int
    latest_ms: int
    end_ms: int
    days_before: int
    new_since_ms: int | None


def observation(
    begin_ms: int, last_ms: int, *, until_ms: int | None, new_since_ms: int | None, days_max: int
) -> ComparedTimes:
    """Return the times that are compared.

    Args:
        begin_ms: the first event of the history, in milliseconds since the epoch.
        last_ms: its last event.
        until_ms: the end of the latest day, rounded up to an hour; None = the last event.
        new_since_ms: begin of the time in which groups are new; None = the last week, or the
            latter half of a shorter history.
        days_max: maximum number of earlier days.
    """
    end_ms = -(-(last_ms + 1 if until_ms is None else until_ms) // HOUR_MS) * HOUR_MS
    latest_ms = end_ms - DAY_MS
    known_ms = -(-begin_ms // HOUR_MS) * HOUR_MS
    days = max(0, (latest_ms - known_ms) // DAY_MS)
    since_ms = new_since_ms
    if since_ms is None:
        since_ms = latest_ms - min(NEW_DAYS - 1, days // 2) * DAY_MS
    return ComparedTimes(
        begin_ms=begin_ms,
        latest_ms=latest_ms,
        end_ms=end_ms,
        days_before=min(days_max, days),
        new_since_ms=since_ms if begin_ms < since_ms else None,
    )


def name_by_notes(events: DataFrame) -> DataFrame:
    """Return a history whose deaths have the causes of notes that came after them."""
    is_death = f.col("type").isin(*_DEATHS)
    notes = (
        events.where((f.col("type") == "explained") & f.col("cause_group").isNotNull())
        .groupBy(f.col("stream").alias("note_stream"), f.col("row_id").alias("note_row_id"))
        .agg(f.max_by("cause_group", f.struct("segment", "position")).alias("noted"))
    )
    is_about = (
        is_death
        & (f.col("stream") == f.col("note_stream"))
        & (f.col("row_id") == f.col("note_row_id"))
    )
    joined = events.join(notes, is_about, "left")
    return joined.withColumn("cause_group", f.coalesce("noted", "cause_group")).select(
        *EVENTS.names
    )


def in_cells(events: DataFrame) -> DataFrame:
    """Return events with the columns that identify cells.

    Returns:
        One row per event. Cells: `is_death` (boolean), `cause_text` (string, null = none),
        `is_expired` (boolean), `origin` (string) and `hour` (timestamp); of other events than
        deaths `cause_text` and `origin` are null. As in `EVENTS`: `type`, `at`, `stream`,
        `segment`, `position`, `redelivery_id` and `cause`.
    """
    is_death = f.col("type").isin(*_DEATHS)
    text = f.when(is_death, f.left(f.col("cause_group"), f.lit(GROUP_MAX)))
    is_expired = is_death & text.isNull() & f.coalesce(f.col("expired"), f.lit(False))
    return events.select(
        is_death.alias("is_death"),
        text.alias("cause_text"),
        is_expired.alias("is_expired"),
        f.when(is_death, grouped_place(f.col("origin"))).alias("origin"),
        f.date_trunc("hour", "at").alias("hour"),
        "type",
        "at",
        *("stream", "segment", "position", "redelivery_id", "cause"),
    )


def count_cells(events: DataFrame) -> DataFrame:
    """Return the number of events by cell: by cause, destination and hour.

    The shuffle has one row per task and cell, regardless of skew.

    Returns:
        The columns of cells (see `in_cells`), `deaths` (bigint: events of the cell), `messages`
        (bigint: first deaths among them), `first_at` and `last_at` (timestamp).
    """
    return events.groupBy("is_death", *_CELL).agg(
        f.count("*").alias("deaths"),
        f.count_if(f.col("type") == "received").alias("messages"),
        f.min("at").alias("first_at"),
        f.max("at").alias("last_at"),
    )


def read_merges(events: DataFrame) -> places.Merges:
    """Return the groups of a history (`EVENTS`) that became parts of others."""
    latest = f.max_by("cause_group", "at").alias("group"), f.unix_millis(f.max("at")).alias("at_ms")
    merges = events.where(f.col("type") == "regrouped").groupBy(
        f.coalesce(grouped_place(f.col("destination")), f.lit("")).alias("place"), "former_group"
    )
    return {
        (row["place"], row["former_group"]): (row["at_ms"], row["group"])
        for row in merges.agg(*latest).collect()
    }


def learn_groups(spark: SparkSession, cells: DataFrame, merges: places.Merges) -> DataFrame:
    """Return the group of each text at each destination, as the sidecar learns it (`CauseGroups`).

    Returns:
        `cause_text`, `origin` and `cause_group` (string, never null), for at most `TEXTS_MAX`
        texts; `origin` is empty where it is not known.
    """
    place = f.coalesce("origin", f.lit("")).alias("origin")
    texts = (
        cells.where(f.col("cause_text").isNotNull())
        .groupBy("cause_text", place)
        .agg(f.sum("deaths").alias("deaths"), f.unix_millis(f.min("first_at")).alias("first_ms"))
        .orderBy(f.desc("deaths"), "cause_text", "origin")
        .limit(TEXTS_MAX)
        .select("origin", "cause_text", "deaths", "first_ms")
        .collect()
    )
    groups = places.learn_groups(map(tuple, texts), merges)
    rows = ((text, origin, group) for (origin, text), group in groups.items())
    columns = list(zip(*rows, strict=True)) or [()] * len(_GROUPS_OF_TEXTS)
    # Why by Arrow: from rows Spark would make it in Python processes of its own.
    arrays = [pyarrow.array(values, pyarrow.string()) for values in columns]
    table = pyarrow.table(arrays, names=_GROUPS_OF_TEXTS)
    return spark.createDataFrame(table, "cause_text string, origin string, cause_group string")


def group_cells(cells: DataFrame, groups: DataFrame) -> DataFrame:
    """Return the cells with one more column, `cause_group` (string, never null).

    Args:
        cells: see `count_cells`; deaths only.
        groups: see `learn_groups`; small enough for a broadcast.
    """
    without_cause = f.when(f.col("is_expired"), EXPIRED).otherwise(NO_REASON)
    return (
        cells.alias("cells")
        .join(
            f.broadcast(groups).alias("groups"),
            (f.col("cells.cause_text") == f.col("groups.cause_text"))
            & (f.coalesce("cells.origin", f.lit("")) == f.col("groups.origin")),
            "left",
        )
        .select(
            "cells.*",
            f.coalesce("groups.cause_group", "cells.cause_text", without_cause).alias(
                "cause_group"
            ),
        )
    )


def cause_groups(cells: DataFrame, seen: ComparedTimes) -> DataFrame:
    """Return `CAUSE_GROUPS`; a cause is new at a destination by its first death there."""
    there = cells.withColumn("place", f.coalesce("origin", f.lit("")))
    of_all = Window.partitionBy("origin").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    return (
        there.unionByName(there.withColumn("origin", f.lit(EVERYWHERE)))
        .groupBy("cause_group", "origin")
        .agg(
            f.sum("deaths").alias("deaths"),
            f.sum("messages").alias("messages"),
            f.min("first_at").alias("first_at"),
            f.max("last_at").alias("last_at"),
            f.count_distinct("cause_text").alias("texts"),
            f.count_distinct("place").alias("origins"),
            *_trend_sums(seen),
        )
        .withColumn("total", f.sum("deaths").over(of_all))
        .select("*", *_trend(seen))
        .select(*CAUSE_GROUPS.names)
    )


def cause_examples(deaths: DataFrame, cells: DataFrame, count: int) -> DataFrame:
    """Return the last deaths of the latest cells of each group.

    Args:
        deaths: see `in_cells`.
        cells: see `group_cells`.
        count: maximum examples per group.

    Returns:
        `cause_group`, `origin`, `at`, `stream`, `redelivery_id` and `cause`.
    """
    latest = Window.partitionBy("cause_group").orderBy(
        f.desc("last_at"), f.asc_nulls_first("origin"), f.asc_nulls_first("cause_text")
    )
    nth = f.row_number().over(latest.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    wanted = cells.select("*", nth.alias("nth")).where(f.col("nth") <= count)
    # Why: older events need not be read.
    oldest_ms = wanted.agg(f.unix_millis(f.min("last_at")).alias("at_ms")).collect()[0]["at_ms"]
    is_wanted = [f.col("deaths.at") == f.col("wanted.last_at")]
    is_wanted += [f.col(f"deaths.{one}").eqNullSafe(f.col(f"wanted.{one}")) for one in _CELL]
    one_of_them = f.min(f.struct("stream", "segment", "position", "redelivery_id", "cause"))
    return (
        deaths.where(f.col("at") >= _time(oldest_ms or 0))
        .alias("deaths")
        .join(f.broadcast(wanted).alias("wanted"), reduce(Column.__and__, is_wanted), "inner")
        .select("deaths.*", "wanted.cause_group")
        .groupBy("cause_group", *_CELL, "at")
        .agg(one_of_them.alias("example"))
        .select(
            *("cause_group", "origin", "at"),
            *(f"example.{name}" for name in ("stream", "redelivery_id", "cause")),
        )
    )


def _trend_sums(seen: ComparedTimes) -> list[Column]:
    before_ms = seen.latest_ms - seen.days_before * DAY_MS
    return [
        _deaths_between(seen.latest_ms, seen.end_ms).alias("latest_day"),
        _deaths_between(before_ms, seen.latest_ms).alias("before"),
    ]


def _deaths_between(begin_ms: int, end_ms: int) -> Column:
    is_between = (f.col("hour") >= _time(begin_ms)) & (f.col("hour") < _time(end_ms))
    return f.sum(f.when(is_between, f.col("deaths")).otherwise(0))


def _trend(seen: ComparedTimes) -> list[Column]:
    """Return the columns `_TREND` of `_trend_sums`, and of the deaths that they are a share of."""
    since = (
        f.lit(None) if seen.new_since_ms is None else f.col("first_at") >= _time(seen.new_since_ms)
    )
    per_day = f.col("before") / f.lit(seen.days_before or None).cast("long")
    return [
        (f.col("deaths") / f.col("total")).alias("share"),
        since.cast("boolean").alias("is_new"),
        per_day.alias("per_day_before"),
        f.when(f.col("before") > 0, f.col("latest_day") / per_day).alias("growth"),
    ]


def _time(time_ms: int) -> Column:
    return f.timestamp_millis(f.lit(time_ms))
