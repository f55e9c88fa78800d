"""The report of the job `causes`."""

from collections.abc import Mapping, Sequence
from typing import Final

import altair
import pandas
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from amqsidecar.pipeline.causes.tables import ComparedTimes
from amqsidecar.pipeline.report import Report
from amqsidecar.pipeline.results import MOST_ROWS, show_rows

MOST_GROUPS: Final = 6
"""In the plot: the largest; all others are one."""
MOST_DAYS: Final = 60
"""In the plot: the latest."""
_OTHERS: Final = "all others"
_LABEL_LETTERS: Final = 60
_EXAMPLE_LETTERS: Final = 2_000

_READING: Final = """\
A group is what is left of the broker's text without numbers, ids, addresses, times and quoted \
values (*). A death is each time that a message was taken out of a dead-letter queue; a message \
counts once, with the cause of its first death.
Artemis gives no reasons, and Classic none for what STOMP and AMQP clients refuse: those messages \
are a group of their own."""


def write_report(
    path: str,
    facts: Mapping[str, str],
    seen: ComparedTimes,
    *,
    groups: DataFrame,
    by_destination: DataFrame,
    by_day: DataFrame,
    examples: DataFrame,
) -> None:
    """Write the report of the job.

    Args:
        path: see `Report.write`.
        facts: what was read, and the options.
        seen: the times that are compared.
        groups: `CAUSE_GROUPS`.
        by_destination: `CAUSES_BY_DESTINATION`.
        by_day: `CAUSES_BY_DAY`.
        examples: `CAUSE_EXAMPLES`.
    """
    report = Report("Causes", facts)
    report.text(_READING)
    largest = groups.orderBy(f.desc("deaths"), "cause_group").limit(MOST_ROWS + 1).collect()

    report.heading("What is new")
    if seen.new_since_ms is None:
        report.text("The history is too short for this.")
    else:
        new = groups.where("is_new").select(
            *("cause_group", "deaths", "messages", "origins", "first_at", "last_at")
        )
        show_rows(
            report, new.orderBy(f.desc("deaths"), "cause_group"), "Groups seen for the first time"
        )
        new_there = by_destination.where("is_new").select(
            *("cause_group", "origin", "deaths", "messages", "first_at", "last_at")
        )
        ordered = new_there.orderBy(f.desc("deaths"), "cause_group", "origin")
        show_rows(report, ordered, "Groups seen for the first time at a destination")

    report.heading("What grows")
    more = f.col("latest_day") - f.col("per_day_before")
    grown = groups.where(more > 0).select(
        *("cause_group", "latest_day", "per_day_before", "growth", "deaths")
    )
    ordered = grown.orderBy(f.desc(more), "cause_group")
    show_rows(report, ordered, "More deaths in the latest day than per day before")

    report.heading("What messages die of")
    _plot_days(report, by_day, [row["cause_group"] for row in largest[:MOST_GROUPS]])
    show_rows(report, groups.orderBy(f.desc("deaths"), "cause_group"), "All groups")
    ordered = by_destination.orderBy(f.desc("deaths"), "cause_group", "origin")
    show_rows(report, ordered, "By destination")

    report.heading("Examples")
    shown = examples.withColumn("cause", f.left("cause", f.lit(_EXAMPLE_LETTERS)))
    show_rows(
        report, shown.orderBy("cause_group", f.desc("at"), "origin"), "Some of the latest deaths"
    )
    report.write(path)


def _plot_days(report: Report, by_day: DataFrame, largest: Sequence[str]) -> None:
    name = f.when(f.col("cause_group").isin(*largest), f.col("cause_group")).otherwise(_OTHERS)
    days = by_day.groupBy("day").agg(f.count("*")).orderBy(f.desc("day")).limit(MOST_DAYS)
    rows = (
        by_day.join(f.broadcast(days.select("day")), "day", "inner")
        .groupBy("day", name.alias("name"))
        .agg(f.sum("deaths").alias("deaths"))
        .orderBy("day", "name")
        .collect()
    )
    if not rows:
        return
    points = [_point(row, largest) for row in rows]
    chart = (
        altair.Chart(pandas.DataFrame(points))
        .mark_bar()
        .encode(
            x=altair.X("day:O", title="day, UTC"),
            y=altair.Y("deaths:Q", title="deaths"),
            color=altair.Color("cause:N", sort=altair.SortField("rank"), legend=_LEGEND),
            order=altair.Order("rank:Q"),
        )
    )
    described = chart.properties(
        width=700, height=260, description="deaths per day, by the largest groups of causes"
    )
    report.chart(described, "Deaths per day")


_LEGEND: Final = altair.Legend(title=None, orient="bottom", columns=1, labelLimit=0)


def _point(row: Row, largest: Sequence[str]) -> dict[str, object]:
    is_other = row["name"] not in largest
    rank = len(largest) + 1 if is_other else largest.index(row["name"]) + 1
    text = _OTHERS if is_other else f"{rank}. {row['name']}"
    shown = text if len(text) <= _LABEL_LETTERS else f"{text[: _LABEL_LETTERS - 1]}…"
    return {
        "day": row["day"].strftime("%Y-%m-%d"),
        "cause": shown,
        "rank": rank,
        "deaths": row["deaths"],
    }
