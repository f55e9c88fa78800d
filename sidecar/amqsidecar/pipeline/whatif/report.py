"""The report of the job `whatif`."""

from collections.abc import Mapping, Sequence
from typing import Final

import altair
import pandas as pd
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from amqsidecar.pipeline.report import Report
from amqsidecar.pipeline.results import MOST_ROWS
from amqsidecar.pipeline.whatif.policy import HISTORY, PROPOSAL

MOST_PLOTTED: Final = 6
"""Destinations in the plot of choices: those with the most messages."""
MOST_POINTS: Final = 2000
"""Buckets in the plot of load."""

MINUTE_MS: Final = 60_000
NEAR_BEST: Final = 0.05
"""In the plot of choices: how far from the best share."""

_COLUMNS: Final = (
    "messages",
    "recovered",
    "of those that recovered in history",
    "re-sends",
    "minutes until half of the recovered are back",
    "nine tenths",
    "cut off",
)
_READING: Final = f"""\
`{HISTORY}` is what really happened, counted by the same code. A message is taken to become \
recoverable at one moment after its first death, and to stay so: where history tried later in \
vain, an earlier re-send fails too; where it succeeded, a later one succeeds. In between history \
can't tell. Lower and upper are what is possible there, the number between them is likely, by the \
messages of the same destination and cause.
Beyond the last re-send that history made, nothing is known: the likely number counts no recovery \
there, the upper one counts all. Where the two lie far apart, try a policy with longer delays on \
a few messages and ask again.
Gates (`policy.gates`) are not played: a policy that is tried re-sends when its rules say, \
whatever pace, breaker or window would delay it."""


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
        path: see `Report.write`.
        facts: what was read, and the options.
        unmatched: pairs of a policy and an entry of it that matches no destination of history.
        policies: `WHATIF_BY_POLICY`.
        destinations: `WHATIF_BY_DESTINATION`.
        load: `WHATIF_LOAD`.
        proposals: `WHATIF_PROPOSALS`; None = there was no search.
    """
    report = Report("What other policies would have done", facts)
    report.text(_READING)
    report.heading("Policies")
    rows = policies.orderBy(f.col("policy") != HISTORY, "policy").collect()
    report.table(
        ["policy", *_COLUMNS],
        [(row["policy"], *_cells(row)) for row in rows],
        "Each policy on the same messages: likely (lower to upper)",
    )
    if rows:
        _plot_policies(report, [row.asDict() for row in rows])
    if unmatched:
        report.table(["policy", "entry"], unmatched, "Entries that match no message of the history")
    report.heading("Re-sends over time")
    _plot_load(report, load)
    report.heading("Destinations")
    ordered = destinations.orderBy(f.desc("messages"), "destination", f.col("policy") != HISTORY)
    shown = ordered.limit(MOST_ROWS).collect()
    report.table(
        ["destination", "policy", *_COLUMNS],
        [(row["destination"], row["policy"], *_cells(row)) for row in shown],
        f"The first {MOST_ROWS} rows; the Parquet table has all",
    )
    if proposals is not None:
        report.heading("Settings that none beats")
        chosen = proposals.where("is_chosen").drop("is_chosen").orderBy("destination")
        report.table(
            chosen.columns,
            [tuple(row) for row in chosen.limit(MOST_ROWS).collect()],
            f"What `{PROPOSAL}` holds (proposal/policy.yaml): the first {MOST_ROWS} destinations",
        )
        _plot_choices(report, proposals, destinations)
    report.write(path)


def _cells(row: Row) -> tuple[object, ...]:
    share = f"{row['share']:.1%} ({row['share_lower']:.1%} to {row['share_upper']:.1%})"
    times = (row[f"recovery_{name}_ms"] for name in ("p50", "p90"))
    return (
        row["messages"],
        share,
        _span(row, "kept"),
        _span(row, "resends"),
        *(None if time is None else time / MINUTE_MS for time in times),
        row["cut_off_messages"],
    )


def _span(row: Row, name: str) -> str:
    return f"{row[name]:,.0f} ({row[f'{name}_lower']:,} to {row[f'{name}_upper']:,})"


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
    whole = Window.partitionBy("destination").rowsBetween(
        Window.unboundedPreceding, Window.unboundedFollowing
    )
    rows = (
        proposals.join(f.broadcast(largest), "destination", "inner")
        .withColumn("best", f.max("share").over(whole))
        .where(f.col("share") >= f.col("best") - NEAR_BEST)
        .select(*shown)
        .collect()
    )
    if not rows:
        report.text("No destination has enough messages for a proposal (--least-messages).")
        return
    points = [row.asDict() | {"minutes": row["recovery_mean_ms"] / 60_000} for row in rows]
    chart = (
        altair.Chart(pd.DataFrame(points))
        .mark_point(filled=True)
        .encode(
            x=altair.X("resends_per_message:Q", title="re-sends per message"),
            y=altair.Y("minutes:Q", title="minutes to recovery", scale=altair.Scale(type="log")),
            color=altair.Color("share:Q", title="share recovered"),
            size=altair.Size(
                "is_chosen:N", title="chosen", scale={"domain": [False, True], "range": [20, 200]}
            ),
        )
        .properties(width=280, height=180)
    )
    report.chart(
        chart.facet(altair.Facet("destination:N", title=None), columns=2)
        .resolve_scale(x="independent", y="independent")
        .properties(
            description="time to recovery against re-sends, of settings near the best share"
        ),
        f"Settings of the front within {NEAR_BEST:.0%} of the best share; largest destinations",
    )
