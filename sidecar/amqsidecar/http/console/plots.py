"""The numbers of plots with the words around them."""

from collections.abc import Callable, Sequence

from amqsidecar.http.console.svg import Plotted
from amqsidecar.http.console.templating import moment, number, percent
from amqsidecar.operations.charts import AttemptRecovery, LatenessBucket, Timeline
from amqsidecar.operations.words import span


def plot_deaths(timeline: Timeline, masked: Callable[[str], str]) -> Plotted:
    """Return what died by hour and cause; causes as they may be shown."""
    total = sum(sum(one.counts) for one in timeline.series)
    largest = max(timeline.series, key=lambda one: sum(one.counts), default=None)
    most = "" if largest is None else f" Most of them: {masked(largest.name)}."
    return Plotted(
        key="deaths",
        title="Dead letters by hour and cause, last 24 hours",
        description=f"{number(total)} deaths.{most}",
        axis="hour from, UTC",
        labels=_hours(timeline),
        names=[masked(one.name) for one in timeline.series],
        counts=[one.counts for one in timeline.series],
    )


def plot_group(timeline: Timeline) -> Plotted:
    """Return what died of one cause by hour, beside the day before."""
    now, before = (sum(one.counts) for one in timeline.series)
    return Plotted(
        key="trend",
        title="Deaths by hour, beside the day before",
        description=f"{number(now)} in the last 24 hours, {number(before)} in those before.",
        axis="hour from, UTC",
        labels=_hours(timeline),
        names=[one.name for one in timeline.series],
        counts=[one.counts for one in timeline.series],
    )


def plot_schedule(timeline: Timeline) -> Plotted:
    """Return what is due by hour."""
    counts = timeline.series[0].counts
    return Plotted(
        key="schedule",
        title="Due in the next 24 hours",
        description=f"{number(sum(counts))} messages are due within 24 hours from now.",
        axis="time from, UTC",
        labels=_hours(timeline),
        names=["messages due"],
        counts=[counts],
    )


def plot_recovery(attempts: Sequence[AttemptRecovery]) -> Plotted:
    """Return how many of each attempt came back."""
    said = [
        f"attempt {one.attempt}: {percent(one.came_back.part / one.came_back.whole)} came back"
        for one in attempts
        if one.came_back.whole
    ]
    return Plotted(
        key="recovery",
        title="What came back, by attempt, last 24 hours",
        description="; ".join(said) + ".",
        axis="attempt",
        labels=[f"{one.attempt}{' and later' if one.has_later else ''}" for one in attempts],
        names=["not come back so far", "came back"],
        counts=[
            [one.came_back.whole - one.came_back.part for one in attempts],
            [one.came_back.part for one in attempts],
        ],
    )


def plot_lateness(buckets: Sequence[LatenessBucket]) -> Plotted:
    """Return how late re-sends were."""
    total = sum(one.count for one in buckets)
    in_time = sum(one.count for one in buckets if one.upper_s is not None and one.upper_s <= 1)
    labels = [
        "later" if one.upper_s is None else f"≤ {span(round(one.upper_s * 1000))}"
        for one in buckets
    ]
    return Plotted(
        key="lateness",
        title="Lateness of re-sends, since this process began",
        description=f"{number(in_time)} of {number(total)} at most a second after they were due.",
        axis="after it was due",
        labels=labels,
        names=["messages re-sent"],
        counts=[[one.count for one in buckets]],
    )


def _hours(timeline: Timeline) -> list[str]:
    steps = len(timeline.series[0].counts) if timeline.series else 0
    begins = (moment(timeline.from_ms + at * timeline.step_ms) for at in range(steps))
    return [f"{begin:%H:%M}" if begin else "" for begin in begins]
