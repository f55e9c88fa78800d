"""The report of the job `recovery`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import altair
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from amqsidecar.pipeline.recovery.tables import GROUP, RESENDS
from amqsidecar.pipeline.report import Report
from amqsidecar.pipeline.results import show_rows

"""Of a table of the report; the Parquet tables have all."""
MOST_GROUPS: Final = 9
"""In the plots: the largest."""
MOST_ATTEMPTS: Final = 5
"""In the plot of curves: the first."""
_POINTS_PER_DECADE: Final = 40
_LABEL_LETTERS: Final = 48
_COLOUR: Final = "#2f7fc1"

_READING: Final = """\
A message that was re-sent and has not returned within the horizon counts as recovered: nothing \
else proves a success. Re-sends younger than the horizon are open, not recovered.
Bounds hold for each number by itself. Few messages have wide bounds."""


def write_report(
    path: str,
    facts: Mapping[str, str],
    min_messages: int,
    *,
    streams: DataFrame,
    summary: DataFrame,
    attempts: DataFrame,
    curve: DataFrame,
    by_message: DataFrame,
    times: DataFrame,
) -> None:
    """Write the report of the job.

    Args:
        path: see `Report.write`.
        facts: what was read, and the options.
        min_messages: groups with fewer messages have no plots.
        streams: `RECOVERY_STREAMS`.
        summary: `RECOVERY_SUMMARY`.
        attempts: `RECOVERY_BY_ATTEMPT`.
        curve: `RECOVERY_CURVE`.
        by_message: `RECOVERY_BY_MESSAGE`.
        times: `TIME_TO_RECOVERY`.
    """
    report = Report("Recovery", facts)
    report.text(_READING)
    groups = _largest(summary, min_messages)
    ranked = [(row["origin"], row["cause_group"]) for row in groups]

    report.heading("Recovered by which re-send")
    _plot_attempts(report, _of(by_message, groups).collect(), ranked)
    show_rows(report, attempts.orderBy(f.desc("messages"), *RESENDS), "Each re-send by itself")
    whole = Window.partitionBy(*GROUP).rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    by_size = by_message.withColumn("size", f.max("at_risk").over(whole))
    by_size = by_size.orderBy(f.desc("size"), *GROUP, "attempts").drop("size")
    show_rows(report, by_size, "Re-sends taken together, from the first death")
    report.heading("When messages return after a re-send")
    _plot_curves(report, _thinned(_of(curve, groups)).collect(), ranked)
    report.heading("Time to recovery")
    show_rows(report, times.orderBy(*GROUP, "quantile"), "From first death, over all messages")
    report.heading("What became of the messages")
    show_rows(report, summary.orderBy(f.desc("messages"), *GROUP), "By the first death")
    report.heading("What was observed")
    show_rows(report, streams.orderBy("stream"), "Streams of the history")
    report.write(path)


def _largest(summary: DataFrame, min_messages: int) -> list[Row]:
    return (
        summary.where(f.col("messages") >= min_messages)
        .orderBy(f.desc("messages"), *GROUP)
        .limit(MOST_GROUPS)
        .collect()
    )


def _of(table: DataFrame, groups: Sequence[Row]) -> DataFrame:
    """Return the rows of these groups."""
    chosen = f.lit(False)
    for row in groups:
        is_one = [f.col(key).eqNullSafe(f.lit(row[key])) for key in GROUP]
        chosen |= is_one[0] & is_one[1]
    return table.where(chosen)


def _thinned(curve: DataFrame) -> DataFrame:
    """Return the last point of each step of time, which grows with time, of the first re-sends."""
    step = f.floor(f.log10(f.col("after_ms").cast("double") + 1) * _POINTS_PER_DECADE)
    last = f.max_by(f.struct("after_ms", "share_away", "low", "high"), "after_ms")
    return (
        curve.where(f.col("attempt") <= MOST_ATTEMPTS)
        .groupBy(*RESENDS, step.alias("step"))
        .agg(last.alias("last"))
        .select(*RESENDS, "last.*")
    )


def _plot_attempts(report: Report, rows: Sequence[Row], ranked: Sequence[tuple[Any, Any]]) -> None:
    points = [
        _labelled(row, ranked)
        | {"re-sends": row["attempts"], "share": row["share_recovered"]}
        | {"low": row["low"], "high": row["high"]}
        for row in rows
        if row["attempts"] > 0
    ]
    if not points:
        report.text("No group has enough messages for a plot (--min-messages).")
        return
    base = altair.Chart(altair.InlineData(values=points)).encode(
        x=altair.X("re-sends:O", axis=altair.Axis(labelAngle=0))
    )
    share = altair.Y("share:Q", title="share recovered", scale=altair.Scale(domain=[0, 1]))
    bounds = base.mark_rule(color=_COLOUR).encode(y=altair.Y("low:Q"), y2="high:Q")
    points_of = base.mark_point(filled=True, size=50).encode(y=share)
    report.chart(
        _facets(
            [bounds, points_of], "share of all messages that recover by at most this many re-sends"
        ),
        "Share of messages recovered by at most this many re-sends, with bounds; largest groups",
    )


def _plot_curves(report: Report, rows: Sequence[Row], ranked: Sequence[tuple[Any, Any]]) -> None:
    points = [
        _labelled(row, ranked)
        | {"seconds": max(row["after_ms"], 1) / 1000, "re-send": str(row["attempt"])}
        | {"share": row["share_away"], "low": row["low"], "high": row["high"]}
        for row in sorted(rows, key=lambda row: row["after_ms"])
    ]
    if not points:
        return
    base = altair.Chart(altair.InlineData(values=points)).encode(
        x=altair.X(
            "seconds:Q",
            scale=altair.Scale(type="log"),
            axis=altair.Axis(grid=False),
            title="seconds after the re-send",
        ),
        color=altair.Color("re-send:N", legend=altair.Legend(symbolOpacity=1)),
    )
    band = base.mark_area(opacity=0.12, interpolate="step-after").encode(
        y=altair.Y("low:Q"), y2="high:Q"
    )
    share = altair.Y("share:Q", title="share not returned", scale=altair.Scale(domain=[0, 1]))
    line = base.mark_line(interpolate="step-after").encode(y=share)
    report.chart(
        _facets([band, line], "share of re-sent messages that have not returned by then"),
        f"Share not returned by time after each of the first {MOST_ATTEMPTS} re-sends, with bounds",
    )


def _facets(layers: Sequence[altair.Chart], description: str) -> altair.TopLevelMixin:
    """Return one small plot per group."""
    each = altair.LayerChart(layer=list(layers)).properties(width=220, height=150)
    return each.facet(
        facet=altair.Facet("group:N", title=None, sort=altair.SortField("rank")), columns=3
    ).properties(description=description)


def _labelled(row: Row, ranked: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Return the name of a row's group, which differs from those of the others, and its rank."""
    rank = ranked.index((row["origin"], row["cause_group"])) + 1
    text = f"{rank}. {row['origin'] or 'unknown'} · {row['cause_group'] or 'no cause'}"
    shown = text if len(text) <= _LABEL_LETTERS else f"{text[: _LABEL_LETTERS - 1]}…"
    return {"rank": rank, "group": shown}
