"""Plans bulk redelivery: the messages, their destinations, their order and their times.

The numbers of a plan run over all destinations in the order of offsets. No task holds all rows, nor
all rows of a destination: rows are partitioned by range, and the number of a row is its place in
its partition plus the rows of the partitions before it.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from amqsidecar.model.redrive import PlannedPlace
from amqsidecar.pipeline.redrive.report import PLANNED, write_report
from amqsidecar.pipeline.results import Results
from amqsidecar.pipeline.sources.events import read_events
from amqsidecar.pipeline.tables import REDRIVE_PLAN, REDRIVE_SUMMARY

LEFT_OUT: Final = {
    "resent": "it was sent to its destination, and has not come back",
    "discarded": "the rules dropped it",
    "in_schedule": "its sidecar has it in hand and sends it itself",
    "unknown_event": "its last event is of a type that this version does not know",
    "cancelled": "a person gave up on it",
    "expired": "its time in the final dead-letter queue is over",
    "no_origin": "its origin is not in the history",
    "not_to_origin": "its sidecar keeps it for another destination than its origin",
    "filtered": "it is not among those that were asked for",
    "same_message_id": "another one with its message id is planned",
}
"""Why a message is not in a plan."""

_DEATHS: Final = ("received", "returned")
_RESENT: Final = ("resent", "duplicate_suppressed")
_IN_SCHEDULE: Final = (*_DEATHS, "scheduled", "exhausted", "retried", "released", "cancelled")
_IN_STORE: Final = ("parked", "held")
_IN_QUEUE: Final = "dead_lettered"
# Why: Spark's increasing ids have the partition above these bits, the place in it below.
_PLACE_BITS: Final = 33
_PLAN: Final = "redrive_plan"
_SUMMARY: Final = "redrive_summary"


class RedriveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `amqsidecar pipeline redrive`; the command's help has the defaults.

    Attributes:
        events: the history.
        output_folder: where tables and report go.
        plan_id: the permanent name of the plan; letters and digits.
        destinations: origins such as `queue://orders`; empty = all.
        cause_groups: of the last death; empty = all.
        since_ms: only messages that died first at or after this time; None = all.
        until_ms: events at or after this time don't count; None = all do.
        min_redeliveries, max_redeliveries: before the last death; None = no limit.
        now_ms: messages whose time in their final queue is over by then are expired.
        with_cancelled: include messages that a person cancelled.
        one_per_message_id: of messages with the same id plan only the one that died first.
        per_second: messages per second to each destination.
        ramp_s: seconds over which the pace grows from nothing to `per_second`.
    """

    events: str
    output_folder: str
    plan_id: str
    destinations: tuple[str, ...]
    cause_groups: tuple[str, ...]
    since_ms: int | None
    until_ms: int | None
    min_redeliveries: int | None
    max_redeliveries: int | None
    now_ms: int
    with_cancelled: bool
    one_per_message_id: bool
    per_second: float
    ramp_s: float


def run_redrive(spark: SparkSession, options: RedriveOptions) -> None:
    """Write the plan, its summary and the report.

    A plan is complete where `_SUCCESS` lies beside its files; a run that was killed leaves nothing
    of an earlier one, and is run again.

    Raises:
        ConfigError: there is no history at the path.
    """
    results = Results(spark, options.output_folder, (_PLAN, _SUMMARY))
    lives = build_lives(
        read_events(spark, options.events, until_ms=options.until_ms), options.until_ms
    )
    decided = decide(lives, options).persist(StorageLevel.MEMORY_AND_DISK)
    plan = results.keep(_PLAN, build_plan(decided, options))
    summary = results.keep(_SUMMARY, build_summary(plan, decided).coalesce(1))
    decided.unpersist()
    write_report(
        results.report_path,
        {
            "Plan": options.plan_id,
            "History": options.events,
            "Pace": f"{options.per_second:g} per second and destination, "
            f"grown to over {options.ramp_s:g} s",
            "Execute it with": "amqsidecar redrive --plan "
            f"{options.output_folder}/{_PLAN} --state FOLDER",
        },
        LEFT_OUT,
        plan=plan,
        summary=summary,
    )


# What became of each message


def build_lives(events: DataFrame, until_ms: int | None) -> DataFrame:
    """Return one row per message, with its last event, its last death and its first one.

    The last event is the one with the latest time; within a stream, of those with the same time,
    the one that was written last.

    Args:
        events: the history, as `EVENTS`.
        until_ms: events at or after this time don't count; None = all do.

    Returns:
        `redelivery_id` (string), `last` (struct of `type`, `at`, `stream`, `sidecar` and
        `destination`), `death` (struct of `origin`, `source`, `cause_group`, `message_id`,
        `redelivery_count` and `at`), `first_death_at` and `cancelled_at` (timestamp), and
        `exhausted` (struct of `at` and `expiration_ms`); null = there was no such event.
    """
    if until_ms is not None:
        events = events.where(f.col("at") < f.timestamp_millis(f.lit(until_ms)))
    order = f.struct("at", "stream", "segment", "position")
    death_order = f.when(f.col("type").isin(*_DEATHS), order)
    last = f.struct("type", "at", "stream", "sidecar", "destination")
    death = f.struct("origin", "source", "cause_group", "message_id", "redelivery_count", "at")
    return (
        events.where(f.col("redelivery_id") != "")
        .groupBy("redelivery_id")
        .agg(
            f.max_by(last, order).alias("last"),
            f.max_by(death, death_order).alias("death"),
            f.min(f.when(f.col("type").isin(*_DEATHS), f.col("at"))).alias("first_death_at"),
            f.max(f.when(f.col("type") == "cancelled", f.col("at"))).alias("cancelled_at"),
            f.max_by(
                f.struct("at", "expiration_ms"), f.when(f.col("type") == "exhausted", order)
            ).alias("exhausted"),
        )
    )


def decide(lives: DataFrame, options: RedriveOptions) -> DataFrame:
    """Return each message with the decision about it.

    Args:
        lives: see `build_lives`.
        options: what is to be planned.

    Returns:
        One row per message. `reason` (string): why it is left out; null = it is planned. The other
        columns are inputs of `build_plan`: `redelivery_id`, `place`, `source`, `stream`, `sidecar`,
        `destination`, `cause_group`, `message_id` (string), `redelivery_count` (int),
        `first_death_at` and `last_death_at` (timestamp).
    """
    cant = _why_not(options.now_ms, with_cancelled=options.with_cancelled)
    reasoned = lives.withColumn("reason", f.coalesce(cant, _why_filtered(options)))
    if options.one_per_message_id:
        # Why the second: messages without an id are not each other's doubles.
        same = Window.partitionBy(
            f.col("reason").isNull(),
            f.col("death.message_id"),
            f.when(f.col("death.message_id").isNull(), f.col("redelivery_id")),
        ).orderBy("first_death_at", "redelivery_id")
        is_double = f.col("reason").isNull() & (f.row_number().over(same) > 1)
        reasoned = reasoned.withColumn(
            "reason", f.when(is_double, f.lit("same_message_id")).otherwise(f.col("reason"))
        )
    is_in_queue = f.col("last.type") == _IN_QUEUE
    return reasoned.select(
        "reason",
        "redelivery_id",
        f.when(is_in_queue, f.lit(PlannedPlace.QUEUE.value))
        .otherwise(PlannedPlace.STORE.value)
        .alias("place"),
        f.when(is_in_queue, f.col("last.destination"))
        .otherwise(f.col("death.source"))
        .alias("source"),
        f.col("last.stream").alias("stream"),
        f.col("last.sidecar").alias("sidecar"),
        f.col("death.origin").alias("destination"),
        f.col("death.redelivery_count").alias("redelivery_count"),
        "first_death_at",
        f.col("death.at").alias("last_death_at"),
        f.col("death.cause_group").alias("cause_group"),
        f.col("death.message_id").alias("message_id"),
    )


def _why_not(now_ms: int, *, with_cancelled: bool) -> Column:
    """Return why a message can't be redelivered by a plan; null = it can."""
    kind, died_at = f.col("last.type"), f.col("death.at")
    given_up = f.lit(not with_cancelled) & (f.col("cancelled_at") >= died_at)
    expiration_ms = f.col("exhausted.expiration_ms")
    over_ms = f.unix_millis("exhausted.at") + expiration_ms
    is_over = (expiration_ms > 0) & (f.col("exhausted.at") >= died_at) & (over_ms <= now_ms)
    in_queue, in_store = kind == _IN_QUEUE, kind.isin(*_IN_STORE)
    return (
        f.when(kind.isin(*_RESENT), "resent")
        .when(kind == "discarded", "discarded")
        .when(kind.isin(*_IN_SCHEDULE), "in_schedule")
        .when(~in_queue & ~in_store, "unknown_event")
        .when(f.col("death.origin").isNull(), "no_origin")
        .when(in_queue & given_up, "cancelled")
        .when(in_queue & is_over, "expired")
        .when(in_store & (f.col("last.destination") != f.col("death.origin")), "not_to_origin")
    )


def _why_filtered(options: RedriveOptions) -> Column:
    """Return `filtered` for what was not asked for; null = it was."""
    wanted = f.lit(True)
    if options.destinations:
        wanted &= f.col("death.origin").isin(*options.destinations)
    if options.cause_groups:
        wanted &= f.coalesce(f.col("death.cause_group"), f.lit("")).isin(*options.cause_groups)
    if options.since_ms is not None:
        wanted &= f.unix_millis("first_death_at") >= options.since_ms
    count = f.coalesce(f.col("death.redelivery_count"), f.lit(0))
    if options.min_redeliveries is not None:
        wanted &= count >= options.min_redeliveries
    if options.max_redeliveries is not None:
        wanted &= count <= options.max_redeliveries
    return f.when(~wanted, "filtered")


# In what order, and when


def build_plan(decided: DataFrame, options: RedriveOptions) -> DataFrame:
    """Return `REDRIVE_PLAN`, sorted by number over partitions and within each.

    Messages of one destination go in the order of their first deaths; destinations go side by side.

    Args:
        decided: see `decide`.
        options: the name of the plan, and its pace.
    """
    selected = decided.where(f.col("reason").isNull())
    ranked = _ranked(selected, ("first_death_at", "redelivery_id"))
    timed = ranked.withColumn(
        "offset_ms", offset_ms(f.col("rank"), options.per_second, options.ramp_s)
    )
    numbered = _numbered(timed, ("offset_ms", "destination", "rank"))
    return numbered.withColumn("plan_id", f.lit(options.plan_id)).select(
        [f.col(one.name).cast(one.dataType) for one in REDRIVE_PLAN]
    )


def offset_ms(rank: Column, per_second: float, ramp_s: float) -> Column:
    """Return when a message is due, in milliseconds after the start of the plan.

    During the ramp `per_second * t * t / (2 * ramp_s)` messages are due by time t, which is half of
    what the full pace would send by its end; after the ramp the pace is constant.

    Args:
        rank: place of the message in its destination, 0-based.
        per_second: messages per second.
        ramp_s: length of the ramp; 0 = full pace from the start.
    """
    straight_ms = rank * 1000 / per_second + ramp_s * 500
    growing_ms = f.sqrt(rank * 2_000_000 * ramp_s / per_second)
    found_ms = f.when(rank < per_second * ramp_s / 2, growing_ms).otherwise(straight_ms)
    return f.floor(found_ms).cast("long")


def _ranked(rows: DataFrame, order: Sequence[str]) -> DataFrame:
    """Add `rank`: the place of each row in its destination by a total order, 0-based."""
    placed = _placed(rows, ("destination", *order))
    runs = placed.groupBy("destination", "_partition").agg(
        f.count("*").alias("size"), f.min("_at").alias("first_at")
    )
    before = (
        Window.partitionBy("destination")
        .orderBy("_partition")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    starts = runs.select(
        "destination",
        "_partition",
        (f.coalesce(f.sum("size").over(before), f.lit(0)) - f.col("first_at")).alias("start"),
    )
    return placed.join(f.broadcast(starts), ["destination", "_partition"], "inner").select(
        *rows.columns, (f.col("start") + f.col("_at")).alias("rank")
    )


def _numbered(rows: DataFrame, order: Sequence[str]) -> DataFrame:
    """Add `number`: the place of each row of all by a total order, 0-based; rows come sorted."""
    placed = _placed(rows, order)
    sizes = sorted((row[0], row[1]) for row in placed.groupBy("_partition").count().collect())
    ends = accumulate(size for _, size in sizes)
    starts = {part: end - size for (part, size), end in zip(sizes, ends, strict=True)}
    start = f.lit(0).cast("long")
    if starts:
        items = [f.lit(one) for item in starts.items() for one in item]
        start = f.create_map(*items)[f.col("_partition")].cast("long")
    return placed.select(*rows.columns, (start + f.col("_at")).alias("number"))


def _placed(rows: DataFrame, order: Sequence[str]) -> DataFrame:
    """Sort over partitions and within each; add `_partition`, and the row's place `_at` in it.

    Kept as it is, since ranges come from samples and another run would cut others: if a part of it
    is lost, the job fails, and is run again.
    """
    return (
        rows.repartitionByRange(*order)
        .sortWithinPartitions(*order)
        .withColumn("_id", f.monotonically_increasing_id())
        .withColumn("_partition", f.shiftright("_id", _PLACE_BITS))
        .withColumn("_at", f.col("_id") - f.shiftleft("_partition", _PLACE_BITS))
        .localCheckpoint(eager=True)
    )


# The report


def build_summary(plan: DataFrame, decided: DataFrame) -> DataFrame:
    """Return `REDRIVE_SUMMARY`: planned messages by destination, and those left out by reason.

    Args:
        plan: `REDRIVE_PLAN`.
        decided: see `decide`.
    """
    planned = plan.groupBy("destination").agg(
        f.lit(PLANNED).alias("outcome"),
        f.count("*").alias("messages"),
        f.min("offset_ms").alias("first_offset_ms"),
        f.max("offset_ms").alias("last_offset_ms"),
    )
    left_out = (
        decided.where(f.col("reason").isNotNull())
        .groupBy("destination", "reason")
        .agg(f.count("*").alias("messages"))
        .withColumnRenamed("reason", "outcome")
    )
    return planned.unionByName(left_out, allowMissingColumns=True).select(
        [f.col(one.name).cast(one.dataType) for one in REDRIVE_SUMMARY]
    )
