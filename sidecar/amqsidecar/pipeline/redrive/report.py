"""The report of the job `redrive`."""

from collections.abc import Mapping
from typing import Final

import altair
import pandas
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from amqsidecar.pipeline.report import Report
from amqsidecar.pipeline.report_tables import MOST_ROWS

PLANNED: Final = "planned"
"""The outcome of messages that are in the plan."""
MOST_DESTINATIONS: Final = 6
"""In the plot: the largest; all others are one."""
BARS: Final = 60

_OTHERS: Final = "all others"


def write_report(
    path: str,
    facts: Mapping[str, str],
    left_out: Mapping[str, str],
    *,
    plan: DataFrame,
    summary: DataFrame,
) -> None:
    """Write the report of a plan.

    Args:
        path: see `Report.write`.
        facts: what was planned, and the options.
        left_out: by outcome, why a message is not planned.
        plan: `REDRIVE_PLAN`.
        summary: `REDRIVE_SUMMARY`.
    """
    planned = summary.where(f.col("outcome") == PLANNED)
    totals = planned.agg(
        f.coalesce(f.sum("messages"), f.lit(0)), f.coalesce(f.max("last_offset_ms"), f.lit(0))
    ).head()
    total, last_ms = totals or (0, 0)
    report = Report(
        "Bulk redelivery: a plan",
        {"Messages": f"{total:,}", "Takes": f"{last_ms / 1000:,.0f} s", **facts},
    )
    report.heading("Planned")
    largest = planned.orderBy(f.desc("messages"), "destination").limit(MOST_ROWS).collect()
    if largest:
        names = [row["destination"] for row in largest[:MOST_DESTINATIONS]]
        _plot_times(report, plan, names, last_ms)
    report.table(
        ("destination", "messages", "last due after, s"),
        [(row["destination"], row["messages"], row["last_offset_ms"] / 1000) for row in largest],
        "The largest destinations",
    )
    report.heading("Left out")
    others = summary.where(f.col("outcome") != PLANNED).groupBy("outcome")
    counted = others.agg(f.sum("messages").alias("messages"))
    report.table(
        ("reason", "messages", "meaning"),
        [
            (row["outcome"], row["messages"], left_out[row["outcome"]])
            for row in counted.orderBy(f.desc("messages"), "outcome").collect()
        ],
        "Messages of the history that are not planned",
    )
    report.write(path)


def _plot_times(report: Report, plan: DataFrame, names: list[str], last_ms: int) -> None:
    width_ms = last_ms // BARS + 1
    is_named = f.col("destination").isin(*names)
    bars = plan.groupBy(
        f.floor(f.col("offset_ms") / width_ms).alias("bar"),
        f.when(is_named, f.col("destination")).otherwise(_OTHERS).alias("destination"),
    ).agg(f.count("*").alias("messages"))
    points = [
        {
            "begin": row["bar"] * width_ms / 1000,
            "end": (row["bar"] + 1) * width_ms / 1000,
            "destination": row["destination"],
            "messages": row["messages"],
        }
        for row in bars.orderBy("bar", "destination").collect()
    ]
    chart = (
        altair.Chart(pandas.DataFrame(points))
        .mark_bar()
        .encode(
            x=altair.X("begin:Q", title="seconds from the start", bin="binned"),
            x2="end:Q",
            y=altair.Y("messages:Q", title="messages"),
            color=altair.Color("destination:N", sort=[*names, _OTHERS], legend=_LEGEND),
        )
    )
    described = chart.properties(
        width=700, height=260, description="messages due over time, by the largest destinations"
    )
    report.chart(described, "When messages are due")


_LEGEND: Final = altair.Legend(title=None, orient="bottom", columns=2, labelLimit=300)
