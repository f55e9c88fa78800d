"""The numbers of plots with the words around them."""

from collections.abc import Callable, Sequence
from typing import Final

from amqsidecar.http.console.svg import Plotted, PlottedMark
from amqsidecar.http.console.templating import moment, number, percent
from amqsidecar.model.cause_groups import split_stack
from amqsidecar.model.failure import MERGED_STEP_MS, MINUTES_KEPT_MS
from amqsidecar.operations.charts import (
    MINUTE_MS,
    AttemptRecovery,
    ChartMark,
    Timeline,
    Zoom,
)
from amqsidecar.operations.failures.groups import HOUR_MS
from amqsidecar.operations.words import span

_PERIODS: Final = {Zoom.MINUTES: "5 minutes", Zoom.HOUR: "hour", Zoom.DAY: "24 hours"}


def plot_deaths(
    timeline: Timeline,
    masked: Callable[[str], str],
    marks: Sequence[ChartMark] = (),
    *,
    is_one_cause: bool = False,
    is_past: bool = False,
) -> Plotted:
    """Return deaths by time and cause.

    Args:
        timeline: the numbers.
        masked: returns a cause without hidden values.
        marks: events meanwhile.
        is_one_cause: all deaths have one cause.
        is_past: it ends with the last death, since nothing died in the requested time.
    """
    total = sum(sum(one.counts) for one in timeline.series)
    largest = max(timeline.series, key=lambda one: sum(one.counts), default=None)
    most = "" if largest is None else f" Most of them: {masked(split_stack(largest.name)[0])}."
    step = _step_name(timeline)
    causes, period = "" if is_one_cause else " and cause", _PERIODS[timeline.zoom]
    shown, note = f"last {period}", ""
    if is_past:
        is_merged = timeline.step_ms == MERGED_STEP_MS
        until = moment(timeline.until_ms)
        shown = f"the {_PERIODS[Zoom.HOUR] if is_merged else period} until {until:%H:%M} UTC"
        note = f"Nothing died in the last {period}; this is when something died last."
        if is_merged:
            note += f" Counts by the minute are kept for {span(MINUTES_KEPT_MS)}."
    return Plotted(
        key="deaths",
        title=f"Dead letters by {step}{causes}, {shown}",
        empty=f"Nothing died in the last {period}.",
        note=note,
        zoom=timeline.zoom,
        description=f"{number(total)} deaths.{most}",
        axis=f"{step} from, UTC",
        labels=_times(timeline),
        names=[masked(split_stack(one.name)[0]) for one in timeline.series],
        counts=[one.counts for one in timeline.series],
        marks=_placed(timeline, marks),
    )


def plot_group(timeline: Timeline, marks: Sequence[ChartMark] = ()) -> Plotted:
    """Return the deaths of one cause by hour, beside the day before."""
    now, before = (sum(one.counts) for one in timeline.series)
    return Plotted(
        key="deaths",
        title="Deaths by hour, beside the day before",
        empty="Nothing died of this in the last 48 hours.",
        zoom=timeline.zoom,
        is_compared=True,
        description=f"{number(now)} in the last 24 hours, {number(before)} in those before.",
        axis="hour from, UTC",
        labels=_times(timeline),
        names=[one.name for one in timeline.series],
        counts=[one.counts for one in timeline.series],
        marks=_placed(timeline, marks),
    )


def plot_schedule(timeline: Timeline) -> Plotted:
    """Return due messages by time."""
    counts = timeline.series[0].counts
    within = _PERIODS[timeline.zoom]
    return Plotted(
        key="due",
        title=f"Due in the next {within}, by {_step_name(timeline)}",
        empty=f"Nothing is due in the next {within}.",
        zoom=timeline.zoom,
        description=f"{number(sum(counts))} messages are due in the next {within}.",
        axis="time from, UTC",
        labels=_times(timeline),
        names=["messages due"],
        counts=[counts],
    )


def plot_recovery(attempts: Sequence[AttemptRecovery]) -> Plotted:
    """Return the number of returns of each attempt."""
    said = [
        f"attempt {one.attempt}: {percent(one.came_back.part / one.came_back.whole)} came back"
        for one in attempts
        if one.came_back.whole
    ]
    return Plotted(
        key="recovery",
        title="Returns by attempt, last 24 hours",
        empty="Nothing was re-sent in the last 24 hours.",
        description="; ".join(said) + ".",
        axis="attempt",
        labels=[f"{one.attempt}{' and later' if one.has_later else ''}" for one in attempts],
        names=["not returned so far", "came back"],
        counts=[
            [one.came_back.whole - one.came_back.part for one in attempts],
            [one.came_back.part for one in attempts],
        ],
    )


def plot_lateness(buckets: Sequence[tuple[float | None, int]]) -> Plotted:
    """Return the lateness of re-sends; see `ProcessCounts.lateness`."""
    total = sum(count for _, count in buckets)
    in_time = sum(count for upper_s, count in buckets if upper_s is not None and upper_s <= 1)
    labels = [
        "later" if upper_s is None else f"≤ {span(round(upper_s * 1000))}" for upper_s, _ in buckets
    ]
    return Plotted(
        key="lateness",
        title="Lateness of re-sends, since this process began",
        empty="Nothing was re-sent since this process began.",
        description=f"{number(in_time)} of {number(total)} at most a second late.",
        axis="after it was due",
        labels=labels,
        names=["messages re-sent"],
        counts=[[count for _, count in buckets]],
    )


def _step_name(timeline: Timeline) -> str:
    names = {MINUTE_MS: "minute", MERGED_STEP_MS: "five minutes", HOUR_MS: "hour"}
    return names[timeline.step_ms]


def _times(timeline: Timeline) -> list[str]:
    steps = len(timeline.series[0].counts) if timeline.series else 0
    begins = (moment(timeline.from_ms + at * timeline.step_ms) for at in range(steps))
    return [f"{begin:%H:%M}" if begin else "" for begin in begins]


def _placed(timeline: Timeline, marks: Sequence[ChartMark]) -> list[PlottedMark]:
    steps = len(timeline.series[0].counts) if timeline.series else 0
    placed = ((one, (one.at_ms - timeline.from_ms) / timeline.step_ms) for one in marks)
    return [
        PlottedMark(place=place, at_ms=one.at_ms, what=one.what, operation=one.operation)
        for one, place in placed
        if 0 <= place <= steps
    ]
