"""The report of the job `whatif`."""

from collections.abc import Mapping, Sequence
from typing import Final

import altair
import pandas as pd
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from amqsidecar.pipeline.report import Report
from amqsidecar.pipeline.results import MOST_ROWS
from amqsidecar.pipeline.whatif.failure_model import FailureKind
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
`{HISTORY}` is what really happened, counted by the same code. What another policy comes to \
depends on why messages fail, so history is asked first: see "Why messages fail". Each number is a \
forecast over the models that explain the history, with an interval that holds in nine of ten \
cases.
"at least" means that much of the policy lies beyond what history tried: there is no estimate, and \
a trial on a few messages answers more than another forecast.
Gates (`policy.gates`) are not played."""
_REASONS: Final = {
    FailureKind.REPAIR: "something is broken for a time, for each message its own",
    FailureKind.CHANCE: "each attempt fails by chance",
    FailureKind.REST: "success depends on the time since the attempt before",
    FailureKind.MIXTURE: "some messages fail by chance, others until something is repaired",
    FailureKind.OUTAGE: "the destination is out of order, for all messages at the same time",
    FailureKind.LOAD: "attempts fail because there are many at the same time",
}


def write_report(
    path: str,
    facts: Mapping[str, str],
    unmatched: Sequence[tuple[str, str]],
    *,
    policies: DataFrame,
    destinations: DataFrame,
    load: DataFrame,
    evidence: DataFrame,
    trials: DataFrame,
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
        evidence: `WHATIF_EVIDENCE`.
        trials: `WHATIF_TRIALS`.
        proposals: `WHATIF_PROPOSALS`; None = there was no search.
    """
    report = Report("What other policies would have done", facts)
    report.text(_READING)
    report.heading("Policies")
    rows = policies.orderBy(f.col("policy") != HISTORY, "policy").collect()
    report.table(
        ["policy", *_COLUMNS],
        [(row["policy"], *_cells(row)) for row in rows],
        "Each policy on the same messages: likely (90 % interval)",
    )
    if rows:
        _plot_policies(report, [row.asDict() for row in rows])
    if unmatched:
        report.table(["policy", "entry"], unmatched, "Entries that match no message of the history")
    _write_evidence(report, evidence)
    _write_trials(report, trials)
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
    times = (row[f"recovery_{name}_ms"] for name in ("p50", "p90"))
    return (
        row["messages"],
        share_text(row),
        _span(row, "kept"),
        _span(row, "resends"),
        *(None if time is None else time / MINUTE_MS for time in times),
        row["cut_off_messages"],
    )


def share_text(row: Row) -> str:
    """Return the share that recovers, for people; without an estimate where there is none."""
    doubt = "" if row["is_supported"] else "; no model explains the history: do not rely on it"
    if row["share"] is None:
        beyond = f"beyond reach: {row['beyond_reach_messages']:,} messages"
        return f"at least {row['share_lower']:.0%}, {beyond}{doubt}"
    bounds = f"{row['share_lower']:.1%} to {row['share_upper']:.1%}"
    return f"{row['share']:.1%} ({bounds}){doubt}"


def _span(row: Row, name: str) -> str:
    bounds = f"{row[f'{name}_lower']:,} to {row[f'{name}_upper']:,}"
    return bounds if row[name] is None else f"{row[name]:,.0f} ({bounds})"


def _write_evidence(report: Report, evidence: DataFrame) -> None:
    report.heading("Why messages fail")
    rows = evidence.orderBy(f.desc("messages"), "destination", "cause_group").limit(MOST_ROWS)
    report.table(
        [
            *("destination", "cause", "messages", "likely reason"),
            *("success by attempt", "wait before it", "failures together"),
        ],
        [
            (
                row["destination"],
                row["cause_group"] if row["cause_group"] is not None else "(small groups)",
                row["messages"],
                _reasons_text(row),
                ", ".join(f"{share:.0%}" for share in row["success_by_attempt"]),
                ", ".join(_time_text(wait) for wait in row["waited_ms"]),
                f"{row['over_dispersion']:.1f} x",
            )
            for row in rows.collect()
        ],
        "Failures together: variance of failures within 30 s; 1 x = messages fail by themselves",
    )  # fmt: skip


def _reasons_text(row: Row) -> str:
    weights = sorted(((row[kind.value], kind) for kind in FailureKind), reverse=True)
    shown = "; ".join(f"{weight:.0%} {_REASONS[kind]}" for weight, kind in weights if weight > 0.05)
    return shown if row["is_supported"] else f"no model explains this history (best: {shown})"


def _time_text(time_ms: float) -> str:
    for unit, name in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if time_ms >= unit:
            return f"{time_ms / unit:.3g} {name}"
    return f"{time_ms:.0f} ms"


def _write_trials(report: Report, trials: DataFrame) -> None:
    rows = trials.collect()
    if not rows:
        return
    report.heading("Trials that would tell more")
    report.table(
        ["destination", "cause", "question", "messages", "re-sends of each", "known after",
         "share recovered: first answer", "second answer"],
        [
            (
                row["destination"],
                row["cause_group"],
                row["question"],
                row["messages"],
                f"{row['resends']} x {_time_text(row['delay_ms'])}",
                _time_text(row["duration_ms"]),
                f"{row['answer_low']:.0%}",
                f"{row['answer_high']:.0%}",
            )
            for row in rows
        ],
        "Try these settings on this number of messages, then ask again",
    )  # fmt: skip


def _plot_policies(report: Report, rows: Sequence[Mapping[str, object]]) -> None:
    shown = ("policy", "share", "share_lower", "share_upper")
    points = [
        {name: row[name] for name in shown}
        | {
            "resends": row["resends"] if row["resends"] is not None else row["resends_upper"],
            "at_least": row["share_lower"] if row["share"] is None else None,
        }
        for row in rows
    ]
    base = altair.Chart(pd.DataFrame(points)).encode(
        x=altair.X("resends:Q", title="re-sends"), color="policy:N"
    )
    share = altair.Y("share:Q", title="share recovered", scale=altair.Scale(domain=[0, 1]))
    bounds = base.mark_rule(strokeWidth=2).encode(y="share_lower:Q", y2="share_upper:Q")
    marks = [bounds, base.mark_point(filled=True, size=80).encode(y=share)]
    if any(point["at_least"] is not None for point in points):
        marks.append(base.mark_point(shape="triangle-up", size=80).encode(y="at_least:Q"))
    report.chart(
        altair.layer(*marks).properties(
            width=600,
            description="share of messages recovered against re-sends, by policy; a triangle is "
            "the least share of a policy beyond the reach of history",
        ),
        "Share recovered, with 90 % intervals, and what it costs",
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
