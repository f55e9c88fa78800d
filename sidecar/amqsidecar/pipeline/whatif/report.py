"""The report of the job `whatif`."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any, Final

import altair
import pandas as pd

from amqsidecar.pipeline.report import (
    MOST_LINES,
    MOST_ROWS,
    Report,
    doubt,
    given_up_line,
    percent,
    show_frame,
)
from amqsidecar.pipeline.tables import EVERYWHERE, WHATIF_PROPOSALS
from amqsidecar.pipeline.whatif.models import FailureKind
from amqsidecar.pipeline.whatif.policy import HISTORY

MINUTE_MS: Final = 60_000
_Forecast = Mapping[str, Any]

_COLUMNS: Final = (
    "messages",
    "recovered",
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
"at least" means that much of the policy lies beyond what history tried: there is no estimate; try \
it at one destination.
Gates (`policy.gates`) are not played."""
_REASONS: Final = {
    FailureKind.TIME: "time heals: something is broken for a time, for each message its own",
    FailureKind.CHANCE: "each attempt fails by chance",
    FailureKind.DOWN_OR_LOADED: "the destination is down, for all messages at once",
}


def write_report(
    path: str,
    doubts: Sequence[str],
    facts: Mapping[str, str],
    unmatched: Sequence[tuple[str, str]],
    *,
    forecasts: Sequence[_Forecast],
    evidence: Sequence[Mapping[str, Any]],
    proposals: Sequence[Mapping[str, Any]] | None,
) -> dict[str, list[str]]:
    """Write the report of these tables; return the lists of its first screen."""
    report = Report("What other policies would have done", {})
    ordered = sorted(forecasts, key=lambda row: (row["policy"] != HISTORY, row["policy"]))
    rows = [row for row in ordered if row["destination"] == EVERYWHERE]
    causes = evidence[:MOST_ROWS]
    report.points("What changes", _differences(rows), "No other policy was played.")
    report.points(
        "What does not recover",
        [_reason_line(row) for row in sorted(causes, key=_lost, reverse=True)[:MOST_LINES]],
        "No message of the history says anything.",
    )
    advice = advice_of(rows, unmatched)
    report.points("What to do", advice, "Nothing: keep the policy.")
    doubt(report, [*doubts, *doubts_of(rows)])
    if rows:
        _plot_policies(report, rows)
    report.table(
        ["policy", *_COLUMNS],
        [(row["policy"], *_cells(row)) for row in rows],
        "Each policy on the same messages: likely (90 % interval)",
    )
    with report.folded("Why messages fail"):
        _write_evidence(report, causes)
    with report.folded("Destinations, those that lose most first"):
        _write_destinations(report, [row for row in ordered if row["destination"] != EVERYWHERE])
    if proposals is not None:
        with report.folded("The best setting of each destination"):
            show_frame(
                report,
                pd.DataFrame(proposals, columns=WHATIF_PROPOSALS.names),
                "Those written are in proposal/policy.yaml",
                shares=("share", "share_lower", "share_upper", "history_share"),
            )
    if unmatched:
        with report.folded("Entries that match no message of the history"):
            report.table(["policy", "entry"], unmatched, "Entries")
    with report.folded("What was read, and how to read it"):
        report.facts(facts)
        report.text(_READING)
    report.write(path)
    return report.summary


def _differences(rows: Sequence[_Forecast]) -> list[str]:
    """Return each policy's result beside history, the greatest share first."""
    history = [row for row in rows if row["policy"] == HISTORY]
    others = sorted(
        (row for row in rows if row["policy"] != HISTORY), key=lambda row: -row["share_upper"]
    )
    return [
        f"{row['policy']}: {share_text(row)} recover, {_resends(row)} re-sends"
        for row in (*history, *others)
    ][:MOST_LINES]


def _lost(row: Mapping[str, Any]) -> int:
    """Return about how many messages recovered by none of history's re-sends."""
    missed: float = reduce(mul, (1 - share for share in row["success_by_attempt"]), 1.0)
    return round(int(row["messages"]) * missed)


def _reason_line(row: Mapping[str, Any]) -> str:
    cause = row["cause_group"] if row["cause_group"] is not None else "(small groups)"
    where = f"{row['destination']} · {cause}"
    if not any(row["success_by_attempt"]):
        return f"{where}: no re-send of {row['messages']:,} messages helped, whatever the wait"
    weight, reason = max((row[kind.value], kind) for kind in FailureKind)
    return (
        f"{where}: about {_lost(row):,} of {row['messages']:,} messages; "
        f"{'no model explains it; best' if not row['is_supported'] else 'likely'}: "
        f"{_REASONS[reason]} ({percent(weight)})"
    )


def advice_of(rows: Sequence[_Forecast], unmatched: Sequence[tuple[str, str]]) -> list[str]:
    """Return the conclusions that the numbers support; none from an unsupported forecast."""
    lines = []
    history = next((row for row in rows if row["policy"] == HISTORY), None)
    better = [
        row
        for row in rows
        if history and row["is_supported"] and row["share_lower"] > history["share_upper"]
    ]
    if better:
        best = max(better, key=lambda row: row["share_lower"])
        lines.append(
            f"{best['policy']} recovers more than history did, with 90 % confidence: roll it out "
            "at one destination first."
        )
    if history and not lines:
        lines += given_up_line(
            history["messages"] - history["recovered_upper"], history["messages"]
        )
    if unmatched:
        lines.append(f"{len(unmatched):,} entries match no message of the history: see below.")
    return lines[:MOST_LINES]


def doubts_of(rows: Sequence[_Forecast]) -> list[str]:
    """Return the forecasts that no model supports."""
    return [
        f"Do not rely on the forecast of {row['policy']}: no model explains the history."
        for row in rows
        if not row["is_supported"] and row["policy"] != HISTORY
    ]


def proposal_line(row: Mapping[str, Any]) -> str:
    """Return a chosen setting with its numbers and its doubt, for people."""
    was = f"history {percent(row['history_share'])}"
    if not row["is_written"]:
        return f"{row['destination']}: no proposal: {row['doubt']}; {was}"
    return (
        f"{row['destination']}: {percent(row['share'])} ({percent(row['share_lower'])} to "
        f"{percent(row['share_upper'])}) recover, {was}; {row['resends_per_message']:.3g} re-sends "
        f"per message; by {row['doubt']}"
    )


def _write_destinations(report: Report, rows: Sequence[_Forecast]) -> None:
    lost = {
        row["destination"]: row["recovered_upper"] - row["messages"]
        for row in rows
        if row["policy"] == HISTORY
    }
    shown = sorted(rows, key=lambda row: (lost[row["destination"]], row["destination"]))[:MOST_ROWS]
    report.table(
        ["destination", "policy", *_COLUMNS],
        [(row["destination"], row["policy"], *_cells(row)) for row in shown],
        f"The first {MOST_ROWS} rows; the Parquet table has all",
    )


def _cells(row: _Forecast) -> tuple[object, ...]:
    times = (row[f"recovery_{name}_ms"] for name in ("p50", "p90"))
    return (
        row["messages"],
        share_text(row),
        _resends(row),
        *(None if time is None else time / MINUTE_MS for time in times),
        row["cut_off_messages"],
    )


def share_text(row: _Forecast) -> str:
    """Return the share that recovers, for people; without an estimate where there is none."""
    doubt = "" if row["is_supported"] else "; no model explains the history: do not rely on it"
    if row["share"] is None:
        beyond = f"beyond reach: {row['beyond_reach_messages']:,} messages"
        return f"at least {percent(row['share_lower'])}, {beyond}{doubt}"
    share, lower, upper = (
        f"{row[name] * 100:.1f} %" for name in ("share", "share_lower", "share_upper")
    )
    return f"{share} ({lower} to {upper}){doubt}"


def _resends(row: _Forecast) -> str:
    bounds = f"{row['resends_lower']:,} to {row['resends_upper']:,}"
    return bounds if row["resends"] is None else f"{row['resends']:,.0f} ({bounds})"


def _write_evidence(report: Report, rows: Sequence[Mapping[str, Any]]) -> None:
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
                ", ".join(percent(share) for share in row["success_by_attempt"]),
                ", ".join(_time_text(wait) for wait in row["waited_ms"]),
                ", ".join(f"{one:.1f} x" for one in row["over_dispersion"]),
            )
            for row in rows
        ],
        "Failures together: variance of failures within 30 s, 10 min, 1 h, 6 h, a day; 1 x = "
        "messages fail by themselves",
    )  # fmt: skip


def _reasons_text(row: Mapping[str, Any]) -> str:
    weights = sorted(((row[kind.value], kind) for kind in FailureKind), reverse=True)
    shown = "; ".join(
        f"{percent(weight)} {_REASONS[kind]}" for weight, kind in weights if weight > 0.05
    )
    return shown if row["is_supported"] else f"no model explains this history (best: {shown})"


def _time_text(time_ms: float) -> str:
    for unit, name in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if time_ms >= unit:
            return f"{time_ms / unit:.3g} {name}"
    return f"{time_ms:.0f} ms"


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
    share = altair.Y("share:Q", title="share recovered", axis=altair.Axis(format="%"))
    share = share.scale(domain=[0, 1])
    bounds = base.mark_rule(strokeWidth=2.5).encode(y="share_lower:Q", y2="share_upper:Q")
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
