"""The report of the job `causes`."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final

import altair
import pandas
import pyarrow
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from amqsidecar.model.marker import Marker
from amqsidecar.pipeline.causes.tables import DAY_MS, HOUR_MS, ComparedTimes
from amqsidecar.pipeline.changes import HOURS, RateSeries, least_jump
from amqsidecar.pipeline.markers import marked, near
from amqsidecar.pipeline.report import MOST_LINES, MOST_ROWS, Report, doubt, shortened, show_frame
from amqsidecar.pipeline.results import begin_text, epoch_ms, minute_text
from amqsidecar.pipeline.tables import EVERYWHERE

MOST_GROUPS: Final = 6
"""Groups in the plot: new or growing groups, then the most frequent; the rest are one group."""
MOST_DAYS: Final = 60
"""In the plot: the latest."""
RECENT_DAYS: Final = 7
"""How long before the end of the history a change may begin to be on the first screen."""
_OTHERS: Final = "all others"
_Row = Mapping[str, Any]
_LABEL_LETTERS: Final = 60
_LINE_LETTERS: Final = 110
_EXAMPLE_LETTERS: Final = 2_000

_READING: Final = """\
A group is what is left of the broker's text without numbers, ids, addresses, times and quoted \
values (*). A death is each time that a message was taken out of a dead-letter queue; a message \
counts once, with the cause of its first death. Deaths beyond the messages are re-sends that failed.
Artemis gives no reasons, and Classic none for what STOMP and AMQP clients refuse: those messages \
are a group of their own."""


def write_report(
    path: str,
    facts: Mapping[str, str],
    doubts: Sequence[str],
    seen: ComparedTimes,
    markers: Sequence[Marker],
    *,
    groups: pyarrow.Table,
    changes: pyarrow.Table,
    cells: DataFrame,
    examples: DataFrame,
) -> dict[str, list[str]]:
    """Write the report of the job; return the lists of its first screen."""
    report = Report("Causes", {})
    frame = groups.to_pandas(integer_object_nulls=True)
    frame["returns"] = frame["deaths"] - frame["messages"]
    is_first = [False, False, True, True]
    frame = frame.sort_values(["returns", "deaths", "cause_group", "origin"], ascending=is_first)
    frame = frame.drop(columns="returns")
    is_everywhere = frame["origin"] == EVERYWHERE
    ordered, there = frame[is_everywhere].drop(columns="origin"), frame[~is_everywhere]
    most = ordered.head(MOST_ROWS).to_dict("records")
    begun = ordered[ordered["is_new"] == 1].sort_values(
        ["deaths", "cause_group"], ascending=[False, True]
    )
    new = begun.head(MOST_ROWS).to_dict("records")
    listed = changes.to_pandas()
    recent = _recent(listed, seen)
    grown = [row for row in recent if row["jump"] > 0]

    what_changed = [_new_line(row) for row in new]
    known = {row["cause_group"] for row in new}
    what_changed += [
        _change_line(row, markers) for row in recent if row["cause_group"] not in known
    ]
    report.points("What changed", _first(what_changed), _unseen_text(most, seen))
    report.points(
        "What comes back after re-sends",
        [_return_line(row) for row in most if row["deaths"] > row["messages"]][:MOST_LINES],
        "No re-send failed.",
    )
    report.points("What to do", _advice(new, grown, most), "Nothing: no group is new or grows.")
    doubt(report, doubts)

    names = [row["cause_group"] for row in (*new[: MOST_GROUPS // 2], *grown[: MOST_GROUPS // 2])]
    names += [row["cause_group"] for row in most]
    _plot_days(report, cells, list(dict.fromkeys(names))[:MOST_GROUPS], markers)
    _show_tables(report, seen, groups=ordered, there=there, changes=listed)
    with report.folded("Some of the latest deaths"):
        shown = examples.withColumn("cause", f.left("cause", f.lit(_EXAMPLE_LETTERS)))
        ordered = shown.orderBy("cause_group", f.desc("at"), "origin").limit(MOST_ROWS + 1)
        show_frame(report, ordered.toArrow().to_pandas(), "Examples")
    with report.folded("What was read, and how to read it"):
        report.facts(facts)
        report.text(_READING)
    report.write(path)
    return report.summary


def _unseen_text(most: Sequence[_Row], seen: ComparedTimes) -> str:
    """Return that nothing changed, and how much would not be seen."""
    hours = (seen.end_ms - seen.begin_ms) // HOUR_MS
    deaths = max((int(row["deaths"]) for row in most), default=0)
    least = least_jump(deaths, hours, RateSeries(), hours)
    if least == inf:
        return "The history is too short to see a change."
    none = "No group" if seen.new_since_ms is None else "No group is new, and none"
    return (
        f"{none} changed by more than {least * HOURS:,.3g} deaths per day; "
        "the history is too short to see less."
    )


def _show_tables(
    report: Report,
    seen: ComparedTimes,
    *,
    groups: pandas.DataFrame,
    there: pandas.DataFrame,
    changes: pandas.DataFrame,
) -> None:
    with report.folded("All groups, those that come back most first"):
        show_frame(report, groups, "All groups", shares=("share",))
    with report.folded("All groups by destination"):
        shown = there.drop(columns="origins")
        show_frame(report, shown, "By destination", shares=("share",))
    if seen.new_since_ms is not None:
        with report.folded("Groups that are new at a destination"):
            columns = ["cause_group", "origin", "deaths", "messages", "first_at", "last_at"]
            show_frame(report, there.loc[there["is_new"] == 1, columns], "New at a destination")
    with report.folded("All changes: begin, end, deaths per day before and after"):
        ordered = changes.sort_values(["begins_at", "cause_group"], ascending=[False, True])
        show_frame(report, ordered, "Changes; a jump has an interval of 95 %")


def _recent(changes: pandas.DataFrame, seen: ComparedTimes) -> list[_Row]:
    """Return recent changes that go on, by the deaths they cost, most first."""
    since_ms = seen.end_ms - RECENT_DAYS * DAY_MS
    rows = [
        row
        for row in changes[changes["ends_at"].isna()].to_dict("records")
        if epoch_ms(row["begins_at"]) >= since_ms
    ]
    rows.sort(
        key=lambda row: (
            row["jump"] * (epoch_ms(row["begins_at"]) - seen.end_ms),
            row["cause_group"],
        )
    )
    return rows[:MOST_ROWS]


def _first(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and a line with the number of the rest."""
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"and {more} more: see the tables below"] if more > 0 else [])]


def _new_line(row: _Row) -> str:
    return (
        f"New since {minute_text(row['first_at'])}: {_short(row['cause_group'])}: "
        f"{row['deaths']:,} deaths of {row['messages']:,} messages at {_places(row)}"
    )


def _change_line(row: _Row, markers: Sequence[Marker]) -> str:
    verb = "More" if row["jump"] > 0 else "Fewer"
    earliest, latest = (epoch_ms(row[name]) for name in ("earliest_at", "latest_at"))
    return (
        f"{verb} since {begin_text(row)}: {_short(row['cause_group'])}: "
        f"{row['per_day_before']:,.3g} to {row['per_day']:,.3g} deaths per day"
        f"{near(markers, earliest, latest)}"
    )


def _return_line(row: _Row) -> str:
    returns = row["deaths"] - row["messages"]
    return (
        f"{_short(row['cause_group'])}: {returns:,} re-sends failed, {row['messages']:,} messages "
        f"at {_places(row)}"
    )


def _advice(new: Sequence[_Row], grown: Sequence[_Row], most: Sequence[_Row]) -> list[str]:
    lines = []
    begun = [row["cause_group"] for row in (*new, *grown)]
    if begun:
        lines.append(
            f"Look first at what is new or grows: {_short(begun[0])}. Examples are below; its "
            "begin shows which rollout or incident to look for (--markers draws them)."
        )
    if most and most[0]["deaths"] > most[0]["messages"]:
        lines.append(
            "Ask `amqsidecar pipeline recovery` whether re-sends of "
            f"{_short(most[0]['cause_group'])} recover at all; "
            "those that never do need a fix, not another re-send."
        )
    return lines


def _places(row: _Row) -> str:
    return "one destination" if row["origins"] == 1 else f"{row['origins']:,} destinations"


def _short(text: str) -> str:
    return shortened(text, _LINE_LETTERS)


def _plot_days(
    report: Report, cells: DataFrame, chosen: Sequence[str], markers: Sequence[Marker]
) -> None:
    name = f.when(f.col("cause_group").isin(*chosen), f.col("cause_group")).otherwise(_OTHERS)
    by_day = cells.withColumn("day", f.date_trunc("day", "hour"))
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
    points = [_point(row, chosen) for row in rows]
    first_ms, last_ms = epoch_ms(rows[0]["day"]), epoch_ms(rows[-1]["day"]) + DAY_MS
    chart = (
        altair.Chart(pandas.DataFrame(points))
        .mark_bar()
        .encode(
            x=altair.X(
                "day:T",
                timeUnit="utcyearmonthdate",
                title="day, UTC",
                axis=altair.Axis(format="%b %d"),
            ),
            y=altair.Y("deaths:Q", title="deaths"),
            color=altair.Color("cause:N", sort=altair.SortField("rank"), legend=_LEGEND),
            order=altair.Order("rank:Q"),
        )
    )
    described = marked(chart, markers, first_ms, last_ms).properties(
        width=900,
        height=220,
        description="deaths per day, by groups of causes: the new and the growing first",
    )
    report.chart(described, "Deaths per day; first what is new or grows, then what comes back most")


_LEGEND: Final = altair.Legend(title=None, orient="bottom", columns=2, labelLimit=0)


def _point(row: Row, chosen: Sequence[str]) -> dict[str, object]:
    is_other = row["name"] not in chosen
    rank = len(chosen) + 1 if is_other else chosen.index(row["name"]) + 1
    text = _OTHERS if is_other else f"{rank}. {row['name']}"
    shown = shortened(text, _LABEL_LETTERS)
    return {"day": epoch_ms(row["day"]), "cause": shown, "rank": rank, "deaths": row["deaths"]}
