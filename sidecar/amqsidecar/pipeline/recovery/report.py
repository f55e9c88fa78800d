"""The report of the job `recovery`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import altair
import pandas
import pyarrow

from amqsidecar.model.marker import Marker
from amqsidecar.pipeline.changes import HOURS, ShareSeries, least_jump
from amqsidecar.pipeline.markers import marker_layers, marker_points, near
from amqsidecar.pipeline.recovery.judge import ENDS, GIVEN_UP, GROUP
from amqsidecar.pipeline.recovery.steps import SeenStream
from amqsidecar.pipeline.recovery.tables import RESENDS
from amqsidecar.pipeline.report import (
    MOST_LINES,
    MOST_ROWS,
    Report,
    doubt,
    given_up_line,
    percent,
    shortened,
    show_frame,
)
from amqsidecar.pipeline.results import begin_text, epoch_ms, minute_text

MOST_GROUPS: Final = 6
"""Groups in the plots, by messages lost, most first."""
RECENT_DAYS: Final = 7
"""How long before the latest change another may begin to be on the first screen."""
_HOPELESS: Final = 0.05
"""Re-sends that recover less than this, with confidence, are not worth their load."""
_LABEL_LETTERS: Final = 48
_LINE_LETTERS: Final = 100
_COLOUR: Final = "#2f7fc1"
_DAY_MS: Final = 86_400_000
_Row = Mapping[str, Any]
_BOUNDS: Final = ("share_recovered", "low", "high")

_READING: Final = """\
A message that was re-sent and has not returned within the horizon counts as recovered; of some \
counters prove that they were consumed. Re-sends younger than the horizon are open, not \
recovered.
Bounds hold for each number by itself. Few messages have wide bounds."""


def write_report(
    path: str,
    doubts: Sequence[str],
    facts: Mapping[str, str],
    markers: Sequence[Marker],
    *,
    streams: Mapping[str, SeenStream],
    tables: Mapping[str, pyarrow.Table],
    min_messages: int,
) -> dict[str, list[str]]:
    """Write the report of the job; return the lists of its first screen."""
    report = Report("Recovery", {})
    frames = {name: one.to_pandas(integer_object_nulls=True) for name, one in tables.items()}
    summary, changes = frames["recovery_summary"], frames["recovery_changes"]
    groups = _rows(_most_lost(summary[summary["messages"] >= min_messages]).head(MOST_GROUPS))
    ranked = [(row["origin"], row["cause_group"]) for row in groups]
    shares = _of(frames["recovery_by_message"], groups, (*GROUP, "attempts"))
    tries = _of(frames["recovery_by_attempt"], groups, RESENDS)
    recent = _recent(changes)

    lines = [_change_line(row, markers) for row in recent]
    by_period = frames["recovery_over_time"]
    report.points("What changed", lines, _unseen_text(by_period))
    lost = [_lost_line(row, shares) for row in groups if _lost(row)]
    report.points("What does not recover", lost[:MOST_LINES], "No message was given up.")
    given_up, messages = int(summary[list(GIVEN_UP)].sum().sum()), int(summary["messages"].sum())
    advice = _advice(tries, ranked, recent) or given_up_line(given_up, messages)
    report.points("What to do", advice, "Nothing: re-sends of each group recover some.")
    cut = int(summary["left_truncated"].sum())
    what = "messages died first before the history; their earlier past is unknown."
    doubt(report, [*doubts, *([f"{cut:,} {what}"] if cut else []), *_unknown(streams)])
    _plot_over_time(report, _of(by_period, groups, ("begins_at",)), ranked, markers)
    with report.folded("Recovered by which re-send"):
        _plot_attempts(report, shares, ranked)
        by_lost = _by_lost(frames["recovery_by_attempt"], summary, RESENDS)
        show_frame(report, by_lost, "Each re-send by itself", shares=_BOUNDS)
        show_frame(
            report,
            _by_lost(frames["recovery_by_message"], summary, (*GROUP, "attempts")),
            "Re-sends taken together, from the first death",
            shares=(*_BOUNDS, "share_ended"),
        )
    with report.folded("Recovery over time, and all changes of it"):
        jumps = ("share_before", "share_recovered", "jump", "jump_low", "jump_high")
        ordered = _sorted(changes, ("begins_at",), GROUP)
        show_frame(report, ordered, "Changes; a jump has an interval of 95 %", shares=jumps)
        ordered = _sorted(by_period, ("begins_at", "resends"), GROUP)
        show_frame(report, ordered, "Re-sends of every number, by period", shares=_BOUNDS)
    with report.folded("What became of the messages"):
        show_frame(report, _most_lost(summary), "By the first death")
    if summary["owner"].notna().any():
        with report.folded("By the owner of the group"):
            show_frame(report, _by_owner(summary), "Of all groups; – = nobody's", shares=("share",))
    noted = _sorted(frames["recovery_by_consumer"], ("resends",), (*GROUP, "consumer"))
    if len(noted):
        with report.folded("By the consumer that had failed"):
            show_frame(report, noted, "Name and version by its notes", shares=_BOUNDS)
    with report.folded("What was read, and how to read it"):
        recovered, proved = (int(summary[one].sum()) for one in ("recovered", "proved"))
        rests = f"{proved:,} by the broker's counters, {recovered - proved:,} by the horizon"
        report.facts({**facts, "recovered messages": rests})
        report.text(_READING)
        columns = ("stream", "events", "of unknown types", "first", "last")
        rows = [
            (name, one.events, one.unknown_types, *map(_moment, (one.first_us, one.last_us)))
            for name, one in sorted(streams.items())
        ]
        report.table(columns, rows[:MOST_ROWS], "Streams of the history")
    report.write(path)
    return report.summary


def _unseen_text(by_period: pandas.DataFrame) -> str:
    """Return that no share changed lately, and how much would not be seen."""
    sums = by_period.groupby(list(GROUP), dropna=False)[["resends", "recovered"]].sum()
    if len(sums):
        most = sums.iloc[sums["resends"].argmax()]
        days = (by_period["begins_at"].max() - by_period["begins_at"].min()).days + 1
        least = least_jump(most["recovered"], most["resends"], ShareSeries(), HOURS * days)
        if least < 1:
            return (
                f"No share of recovered re-sends changed lately; the history is too short to see a "
                f"change of less than {least * 100:.2g} points."
            )
    return "The history is too short to see a change of the share of recovered re-sends."


def _moment(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


def _unknown(streams: Mapping[str, SeenStream]) -> list[str]:
    unknown = sum(one.unknown_types for one in streams.values())
    what = "events are of types that this version does not know, and were left alone."
    return [f"{unknown:,} {what}"] if unknown else []


def _lost(row: _Row) -> int:
    return sum(int(row[name]) for name in GIVEN_UP)


def _sorted(
    table: pandas.DataFrame, most_first: Sequence[str], then: Sequence[str]
) -> pandas.DataFrame:
    """Return a table in order; unknown values come first."""
    is_ascending = [False] * len(most_first) + [True] * len(then)
    return table.sort_values(
        [*most_first, *then], ascending=is_ascending, na_position="first", kind="stable"
    )


def _most_lost(summary: pandas.DataFrame) -> pandas.DataFrame:
    """Return the groups by messages lost, then by messages, most first."""
    lost = summary.assign(lost=summary[list(GIVEN_UP)].sum(axis=1))
    return _sorted(lost, ("lost", "messages"), GROUP).drop(columns="lost")


def _rows(table: pandas.DataFrame) -> list[_Row]:
    rows: list[_Row] = table.to_dict("records")
    return rows


def _by_owner(summary: pandas.DataFrame) -> pandas.DataFrame:
    columns = ["messages", "recovered", "proved", *ENDS, "waiting"]
    found = summary.groupby("owner", dropna=False)[columns].sum().reset_index()
    return found.assign(share=(found["recovered"] / found["messages"]).astype(float))


def _by_lost(
    table: pandas.DataFrame, summary: pandas.DataFrame, keys: Sequence[str]
) -> pandas.DataFrame:
    """Return a table with the groups first that lose most messages.

    The cause of a re-send may be that of no first death.
    """
    lost = summary[list(GROUP)].assign(lost=summary[list(GIVEN_UP)].sum(axis=1))
    joined = table.merge(lost, how="left", on=list(GROUP))
    return _sorted(joined.fillna({"lost": 0}), ("lost",), keys).drop(columns="lost")


def _recent(changes: pandas.DataFrame) -> list[_Row]:
    """Return the latest changes that go on: the greatest drops first."""
    since = changes["begins_at"].max() - pandas.Timedelta(days=RECENT_DAYS)
    there = changes[(changes["begins_at"] >= since) & changes["ends_at"].isna()]
    return _rows(_sorted(there, (), ("jump", *GROUP)).head(MOST_LINES))


def _change_line(row: _Row, markers: Sequence[Marker]) -> str:
    earliest, latest = (epoch_ms(row[name]) for name in ("earliest_at", "latest_at"))
    return (
        f"{_name(row)}: {percent(row['share_before'])} to {percent(row['share_recovered'])} of the "
        f"re-sends recover since {begin_text(row)}{near(markers, earliest, latest, row['origin'])}"
    )


def _lost_line(row: _Row, shares: Sequence[_Row]) -> str:
    own = [one for one in shares if all(one[key] == row[key] for key in GROUP)]
    recovers = ""
    if own:
        last = own[-1]
        recovers = (
            f"; {percent(last['share_recovered'])} ({percent(last['low'])} to "
            f"{percent(last['high'])}) recover by {last['attempts']} re-sends"
        )
    return f"{_name(row)}: {_lost(row):,} of {row['messages']:,} messages given up{recovers}"


def _advice(
    tries: Sequence[_Row], ranked: Sequence[tuple[Any, Any]], recent: Sequence[_Row]
) -> list[str]:
    lines = [
        f"Look for what happened to {_name(row)} at {minute_text(row['earliest_at'])} to "
        f"{minute_text(row['latest_at'])}: fewer re-sends recover since."
        for row in recent
        if row["jump_high"] < 0
    ]
    for key in ranked:
        own = [one for one in tries if (one["origin"], one["cause_group"]) == key]
        hopeless = [one["attempt"] for one in own if one["high"] < _HOPELESS]
        if hopeless and own[0]["attempt"] in hopeless:
            lines.append(
                f"{_name(own[0])}: no re-send recovers {percent(_HOPELESS)}; fix the cause, and "
                "hold these messages or give them fewer redeliveries."
            )
        elif hopeless:
            lines.append(
                f"{_name(own[0])}: from re-send {hopeless[0]} on fewer than {percent(_HOPELESS)} "
                "recover; ask `amqsidecar pipeline whatif` for fewer or longer waits."
            )
    return lines[:MOST_LINES]


def _name(row: _Row) -> str:
    return shortened(_group_text(row), _LINE_LETTERS)


def _group_text(row: _Row) -> str:
    return f"{row['origin'] or 'unknown'} · {row['cause_group'] or 'no cause'}"


def _of(table: pandas.DataFrame, groups: Sequence[_Row], order: Sequence[str]) -> list[_Row]:
    """Return the rows of these groups."""
    chosen = pandas.DataFrame([{key: row[key] for key in GROUP} for row in groups], columns=GROUP)
    return _rows(_sorted(table.merge(chosen, on=list(GROUP)), (), order))


def _plot_over_time(
    report: Report,
    rows: Sequence[_Row],
    ranked: Sequence[tuple[Any, Any]],
    markers: Sequence[Marker],
) -> None:
    points = [_point(row, ranked, "at", epoch_ms(row["begins_at"])) for row in rows]
    if not points:
        return
    first_ms, last_ms = points[0]["at"], points[-1]["at"] + _DAY_MS
    words = marker_points(markers, first_ms, last_ms)
    axis = altair.Axis(tickCount=4, format="%b %d")
    layers = _shares(altair.X("at:T", title=None, scale=altair.Scale(type="utc"), axis=axis))
    if words:
        # Why in each row of the data: a facet has one table.
        points += [
            {"group": group, "rank": rank, **one}
            for group, rank in sorted({(one["group"], one["rank"]) for one in points})
            for one in words
        ]
        layers += marker_layers()
    report.chart(
        _facets(layers, "share of re-sends that recover, by period; dashed: what happened", points),
        "Share of re-sends that recover over time, with bounds; groups that lose most",
    )


def _plot_attempts(report: Report, rows: Sequence[_Row], ranked: Sequence[tuple[Any, Any]]) -> None:
    points = [
        _point(row, ranked, "re-sends", row["attempts"]) for row in rows if row["attempts"] > 0
    ]
    if not points:
        report.text("No group has enough messages for a plot (--min-messages).")
        return
    layers = _shares(altair.X("re-sends:O", axis=altair.Axis(labelAngle=0)))
    report.chart(
        _facets(layers, "share of all messages that recover by at most this many re-sends", points),
        "Share of messages recovered by at most this many re-sends, with bounds",
    )


def _shares(x: altair.X) -> list[altair.Chart]:
    """Return layers with `share`, and its bounds `low` and `high`."""
    base = altair.Chart().encode(x=x)
    share = altair.Y("share:Q", title="share recovered", axis=altair.Axis(format="%"))
    share = share.scale(domain=[0, 1])
    return [
        base.mark_rule(color=_COLOUR, strokeWidth=2.5, opacity=0.6).encode(y="low:Q", y2="high:Q"),
        base.mark_line(color=_COLOUR, point=altair.OverlayMarkDef(size=25)).encode(y=share),
    ]


def _facets(
    layers: Sequence[altair.Chart], description: str, points: Sequence[Mapping[str, Any]]
) -> altair.TopLevelMixin:
    """Return one small plot per group."""
    data = altair.InlineData(values=list(points))
    each = altair.LayerChart(layer=list(layers)).properties(width=250, height=120)
    return each.facet(
        facet=altair.Facet("group:N", title=None, sort=altair.SortField("rank")),
        columns=3,
        data=data,
    ).properties(description=description)


def _point(row: _Row, ranked: Sequence[tuple[Any, Any]], x: str, place: object) -> dict[str, Any]:
    """Return a row in a plot, with a unique name of its group."""
    rank = ranked.index((row["origin"], row["cause_group"])) + 1
    label = shortened(f"{rank}. {_group_text(row)}", _LABEL_LETTERS)
    shares = {"share": row["share_recovered"], "low": row["low"], "high": row["high"]}
    return {"rank": rank, "group": label, x: place, **shares}
