"""Numbers for plots: recovery by attempt, deaths by cause, the schedule ahead."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.failure import MERGED_STEP_MS, MINUTES_KEPT_MS, CountKind, FailureCount
from amqsidecar.model.marker import ServiceMarkKind
from amqsidecar.operations.failures.former_groups import Place, read_cause_groups, read_deaths
from amqsidecar.operations.failures.groups import DAY_MS, HOUR_MS
from amqsidecar.operations.markers import MARKERS_MAX
from amqsidecar.operations.words import one_line
from amqsidecar.schedule import Schedule

_Z = 1.96


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a whole.

    Attributes:
        part: the number of the part.
        whole: the number of the whole; 0 = nothing is known.
        low: with 95 % confidence the true share is not lower; see `share`.
        high: and not higher.
    """

    part: int
    whole: int
    low: float
    high: float


def share(part: int, whole: int) -> Share:
    """Return a share with its Wilson score interval, which is wide where little was seen.

    Args:
        part: at most `whole` of it counts.
        whole: 0 or more.

    Example:
        >>> two_of_three = share(2, 3)
        >>> round(two_of_three.low, 2), round(two_of_three.high, 2)
        (0.21, 0.94)
    """
    if whole <= 0:
        return Share(part=0, whole=0, low=0.0, high=1.0)
    part = min(part, whole)
    found = part / whole
    weight = 1 + _Z**2 / whole
    middle = (found + _Z**2 / (2 * whole)) / weight
    reach = _Z * math.sqrt(found * (1 - found) / whole + _Z**2 / (4 * whole**2)) / weight
    return Share(
        part=part, whole=whole, low=max(0.0, middle - reach), high=min(1.0, middle + reach)
    )


OTHER: Final = "(all others)"
"""The series of the causes that have none of their own."""

MINUTE_MS: Final = 60_000

_CAUSES_MAX = 5
"""Maximum causes with a series of their own."""
_ATTEMPTS_MAX = 12
_MARKS_MAX = 20
_SERVICE_MARKS_MAX = 500


class Zoom(StrEnum):
    """The time that a chart shows, before or after now; as addresses have it."""

    MINUTES = "5m"
    HOUR = "1h"
    DAY = "24h"

    @property
    def span_ms(self) -> int:
        """Its length."""
        return {Zoom.MINUTES: 5 * MINUTE_MS, Zoom.HOUR: HOUR_MS, Zoom.DAY: DAY_MS}[self]

    @property
    def step_ms(self) -> int:
        """Length of one step of it, where counts by the minute are kept."""
        return HOUR_MS if self is Zoom.DAY else MINUTE_MS


class AttemptRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes of the re-sends of one attempt.

    Attributes:
        attempt: 1 = the first redelivery.
        has_later: includes all later attempts.
        came_back: the messages that died again, of those re-sent.
    """

    attempt: int
    has_later: bool
    came_back: Share


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A series of counts, one for each step of a `Timeline`.

    Attributes:
        name: a cause group, or `OTHER`.
    """

    name: str
    counts: list[int]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Counts by time.

    Attributes:
        from_ms: begin of the first step.
        step_ms: length of each.
        zoom: as it was asked for.
        series: each with as many counts as there are steps.
    """

    from_ms: int
    step_ms: int
    zoom: Zoom
    series: list[Series]

    @property
    def until_ms(self) -> int:
        """End of the last step."""
        return self.from_ms + self.step_ms * max(
            (len(one.counts) for one in self.series), default=0
        )


class ChartMark(msgspec.Struct, frozen=True, kw_only=True):
    """An act of a person or a process, shown in a timeline.

    Attributes:
        what: a short description.
        operation: its number; None = not an operation.
    """

    at_ms: int
    what: str
    operation: int | None = None


def recovery_by_attempt(schedule: Schedule, now_ms: int) -> list[AttemptRecovery]:
    """Return for each attempt how many re-sent messages returned."""
    resent, returned = Counter[int](), Counter[int]()
    kinds = (CountKind.RESENT, CountKind.RETURNED)
    for one in schedule.failure_counts(now_ms - DAY_MS, now_ms + 1, kinds, DAY_MS):
        counts = resent if one.key.kind is CountKind.RESENT else returned
        counts[min(one.key.attempt, _ATTEMPTS_MAX)] += one.count
    return [
        AttemptRecovery(
            attempt=attempt,
            has_later=attempt == _ATTEMPTS_MAX,
            came_back=share(returned[attempt], resent[attempt]),
        )
        for attempt in sorted(resent)
    ]


def deaths_by_cause(
    schedule: Schedule,
    now_ms: int,
    zoom: Zoom = Zoom.DAY,
    *,
    place: Place | None = None,
    until_ms: int | None = None,
) -> Timeline:
    """Return deaths by time and cause; the most frequent causes, and one series for the others.

    Where counts by the minute are not kept any more, it is at least an hour, by five minutes.

    Args:
        zoom: how long before it.
        place: only of this group; None = of all.
        until_ms: the end of this time; None = now.
    """
    step_ms, end_ms = zoom.step_ms, now_ms if until_ms is None else until_ms - 1
    from_ms, steps = _steps(end_ms, zoom.span_ms, step_ms)
    if step_ms < MERGED_STEP_MS and from_ms < now_ms - MINUTES_KEPT_MS:
        step_ms = MERGED_STEP_MS
        from_ms, steps = _steps(end_ms, max(HOUR_MS, zoom.span_ms), step_ms)
    counts = [
        one
        for one in read_deaths(
            schedule, read_cause_groups(schedule), from_ms, from_ms + steps * step_ms, step_ms
        )
        if place in (None, (one.key.destination, one.key.cause_group))
    ]
    totals = Counter[str]()
    for one in counts:
        totals[one.key.cause_group] += one.count
    # Why by name: a cause then has the same colour in charts of different spans.
    named = sorted(name for name, _ in totals.most_common(_CAUSES_MAX))
    by_name: dict[str, list[FailureCount]] = defaultdict(list)
    for one in counts:
        name = one.key.cause_group
        by_name[name if name in named else OTHER].append(one)
    names = named + ([OTHER] if OTHER in by_name else [])
    series = [
        Series(name=name, counts=_binned(by_name[name], from_ms, step_ms, steps)) for name in names
    ]
    return Timeline(from_ms=from_ms, step_ms=step_ms, zoom=zoom, series=series)


def last_deaths_until(schedule: Schedule, now_ms: int, place: Place | None = None) -> int | None:
    """Return an end of a timeline soon after the last death of 24 hours; None = there is none."""
    known, step_ms = read_cause_groups(schedule), MERGED_STEP_MS
    found = (
        one.key.bucket_ms
        for one in read_deaths(schedule, known, now_ms - DAY_MS, now_ms + 1, step_ms)
        if place in (None, (one.key.destination, one.key.cause_group))
    )
    last_ms = max(found, default=None)
    return None if last_ms is None else last_ms + step_ms


def deaths_of_group(schedule: Schedule, place: Place, now_ms: int) -> Timeline:
    """Return deaths of a group by hour: of this day, and at the same times of the day before."""
    step_ms = Zoom.DAY.step_ms
    from_ms, steps = _steps(now_ms, DAY_MS, step_ms)
    known = read_cause_groups(schedule)
    series = []
    for name, begin_ms in (("last 24 hours", from_ms), ("the day before", from_ms - DAY_MS)):
        found = (
            one
            for one in read_deaths(schedule, known, begin_ms, begin_ms + steps * step_ms, step_ms)
            if (one.key.destination, one.key.cause_group) == place
        )
        series.append(Series(name=name, counts=_binned(found, begin_ms, step_ms, steps)))
    return Timeline(from_ms=from_ms, step_ms=step_ms, zoom=Zoom.DAY, series=series)


def schedule_ahead(schedule: Schedule, now_ms: int, zoom: Zoom = Zoom.DAY) -> Timeline:
    """Return how many waiting messages are due in each step from now on."""
    step_ms = zoom.step_ms
    counts = schedule.due_counts([*range(now_ms, now_ms + zoom.span_ms + 1, step_ms)])
    due = Series(name="due", counts=list(counts))
    return Timeline(from_ms=now_ms, step_ms=step_ms, zoom=zoom, series=[due])


def marks_since(
    schedule: Schedule, from_ms: int, destination: str | None = None
) -> list[ChartMark]:
    """Return the latest acts since a time, and markers: all, or those that concern a destination.

    The oldest first.
    """
    markers = [
        ChartMark(at_ms=one.at_ms, what=f"{one_line(one.text)}, marked by {one.author}")
        for one in schedule.markers(from_ms, MARKERS_MAX)
        if destination is None or one.concerns(destination)
    ]
    marks = [*acts_since(schedule, from_ms), *markers[:_MARKS_MAX]]
    return sorted(marks, key=lambda one: one.at_ms)


def acts_since(schedule: Schedule, from_ms: int) -> list[ChartMark]:
    """Return the latest operations, starts of services and changes of their rules since a time."""
    operations = [
        ChartMark(
            at_ms=one.created_at_ms,
            what=f"{one.action.word} by {one.actor}",
            operation=one.id,
        )
        for one in schedule.operations(_MARKS_MAX)
        if one.created_at_ms >= from_ms
    ]
    services = [one for one in _service_marks(schedule) if one.at_ms >= from_ms]
    return [*operations, *services[-_MARKS_MAX:]]


def _service_marks(schedule: Schedule) -> Iterator[ChartMark]:
    """Yield the marks of services, the oldest first; each start is compared with the one before."""
    digests: dict[str, str] = {}
    found = schedule.service_marks(_SERVICE_MARKS_MAX)[::-1]
    is_shared = len({one.instance for one in found}) > 1
    for one in found:
        name = f"sidecar {one.instance}" if is_shared else "the sidecar"
        if one.kind is ServiceMarkKind.RULES:
            what = f"{name} read other settings from the broker"
        elif digests.get(one.instance, one.rules_digest) != one.rules_digest:
            what = f"{name} started with another policy"
        else:
            what = f"{name} started"
        digests[one.instance] = one.rules_digest
        yield ChartMark(at_ms=one.at_ms, what=what)


def _steps(now_ms: int, span_ms: int, step_ms: int) -> tuple[int, int]:
    """Return the begin of the first step and how many there are; the last one is running."""
    steps = span_ms // step_ms
    return now_ms - now_ms % step_ms - (steps - 1) * step_ms, steps


def _binned(counts: Iterable[FailureCount], from_ms: int, step_ms: int, steps: int) -> list[int]:
    bins = [0] * steps
    for one in counts:
        bins[(one.key.bucket_ms - from_ms) // step_ms] += one.count
    return bins
