"""The report of the job `whatif`."""

from collections.abc import Mapping, Sequence
from typing import Final

import altair
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from amqsidecar.pipeline.report import Report
from amqsidecar.pipeline.whatif_policy import HISTORY, PROPOSAL

MOST_ROWS: Final = 200
"""Of a table of the report; the Parquet tables have all."""
MOST_PLOTTED: Final = 6
"""Destinations in the plot of choices: those with the most messages."""
MOST_POINTS: Final = 2000
"""Buckets in the plot of load."""

_READING: Final = f"""\
`{HISTORY}` is what really happened, counted by the same code. A message is taken to become \
recoverable at one moment after its first death, and to stay so: where history tried later in \
vain, an earlier re-send fails too; where it succeeded, a later one succeeds. In between history \
can't tell. Lower and upper are what is possible there, the number between them is likely, by the \
messages of the same destination and cause.
Beyond the last re-send that history made, nothing is known: the likely number counts no recovery \
there, the upper one counts all. Where the two lie far apart, try a policy with longer delays on \
a few messages and ask again."""


def write_report(
    path: str,
    facts: Mapping[str, str],
    unmatched: Sequence[tuple[str, str]],
    *,
    policies: DataFrame,
    destinations: DataFrame,
    load: DataFrame,
    proposals: DataFrame | None,
) -> None:
    """Write the report of these tables.

    Args:
        path: where.
        facts: what was read, with which options.
        unmatched: policies and entries of theirs that act on nothing in history.
        policies: as `WHATIF_BY_POLICY`.
        destinations: as `WHATIF_BY_DESTINATION`.
        load: as `WHATIF_LOAD`.
        proposals: as `WHATIF_PROPOSALS`; None = nothing was searched.
    """
    report = Report("What other policies would have done", facts)
    report.text(_READING)
    report.heading("Policies")
    rows = policies.orderBy(f.col("policy") != HISTORY, "policy").collect()
    report.table(policies.columns, [tuple(row) for row in rows], "Each policy on the same messages")
    if rows:
        _plot_policies(report, [row.asDict() for row in rows])
    if unmatched:
        report.table(
            ["policy", "entry"], unmatched, "Entries that no message of history can tell about"
        )
    report.heading("Re-sends over time")
    _plot_load(report, load)
    report.heading("Destinations")
    _table(
        report,
        destinations.orderBy(f.desc("messages"), "destination", "policy"),
        "Each policy by destination",
    )
    if proposals is not None:
        report.heading("Settings that none beats")
        chosen = proposals.where("is_chosen").drop("is_chosen").orderBy("destination")
        _table(report, chosen, f"What `{PROPOSAL}` holds (proposal/policy.yaml, values.yaml)")
        _plot_choices(report, proposals, destinations)
    report.write(path)


def _table(report: Report, table: DataFrame, caption: str) -> None:
    """Add the first rows; say so where there are more."""
    rows = table.limit(MOST_ROWS + 1).collect()
    if len(rows) > MOST_ROWS:
        caption = f"{caption} (the first {MOST_ROWS} rows; the Parquet table has all)"
    report.table(table.columns, [tuple(row) for row in rows[:MOST_ROWS]], caption)


def _plot_policies(report: Report, rows: Sequence[Mapping[str, object]]) -> None:
    shown = ("policy", "share", "share_lower", "share_upper", "resends")
    points = [{name: row[name] for name in shown} for row in rows]
    base = altair.Chart(pd.DataFrame(points)).encode(
        x=altair.X("resends:Q", title="re-sends"), color="policy:N"
    )
    share = altair.Y("share:Q", title="share recovered", scale=altair.Scale(domain=[0, 1]))
    bounds = base.mark_rule().encode(y="share_lower:Q", y2="share_upper:Q")
    report.chart(
        altair.layer(bounds, base.mark_point(filled=True, size=80).encode(y=share)).properties(
            width=600, description="share of messages recovered against re-sends, by policy"
        ),
        "Share recovered, with bounds, and what it costs",
    )


def _plot_load(report: Report, load: DataFrame) -> None:
    rows = (
        load.groupBy("policy", "begins_at")
        .agg(f.sum("resends").alias("resends"))
        .orderBy("begins_at", "policy")
        .limit(MOST_POINTS)
        .select("policy", "resends", f.col("begins_at").alias("at"))
        .collect()
    )
    if not rows:
        report.text("Nothing was re-sent.")
        return
    if len(rows) == MOST_POINTS:
        report.text("The plot shows the beginning; the Parquet table has all.")
    line = altair.Chart(pd.DataFrame([row.asDict() for row in rows])).mark_line(
        interpolate="step-after"
    )
    report.chart(
        line.encode(
            x=altair.X("at:T", title="time", scale=altair.Scale(type="utc")),
            y=altair.Y("resends:Q", title="re-sends in a bucket"),
            color="policy:N",
        ).properties(width=600, description="likely re-sends over time, by policy"),
        "Likely re-sends over time",
    )


def _plot_choices(report: Report, proposals: DataFrame, destinations: DataFrame) -> None:
    largest = (
        destinations.where(f.col("policy") == HISTORY)
        .join(
            f.broadcast(proposals.where("is_chosen").select("destination")), "destination", "semi"
        )
        .orderBy(f.desc("messages"), "destination")
        .limit(MOST_PLOTTED)
        .select("destination")
    )
    shown = ("destination", "share", "resends_per_message", "recovery_mean_ms", "is_chosen")
    rows = proposals.join(f.broadcast(largest), "destination", "inner").select(*shown).collect()
    if not rows:
        report.text("No destination has enough messages for a proposal (--least-messages).")
        return
    points = [row.asDict() | {"minutes": row["recovery_mean_ms"] / 60_000} for row in rows]
    chart = (
        altair.Chart(pd.DataFrame(points))
        .mark_point(filled=True)
        .encode(
            x=altair.X("resends_per_message:Q", title="re-sends per message"),
            y=altair.Y("share:Q", title="share recovered"),
            color=altair.Color("minutes:Q", title="minutes to recovery", scale={"type": "log"}),
            size=altair.Size(
                "is_chosen:N", title="chosen", scale={"domain": [False, True], "range": [20, 200]}
            ),
        )
        .properties(width=280, height=180)
    )
    report.chart(
        chart.facet(altair.Facet("destination:N", title=None), columns=2)
        .resolve_scale(x="independent", y="independent")
        .properties(description="share recovered against re-sends of the settings of the front"),
        "The Pareto front of the largest destinations",
    )
