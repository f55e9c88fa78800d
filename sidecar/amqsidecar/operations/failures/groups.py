"""Groups of failures by destination and cause, with their trends."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.cause import group_number
from amqsidecar.model.cause_groups import CauseGroups
from amqsidecar.model.failure import BUCKET_MS, GROUPS_MAX, FailureCount, FailureGroup, GroupNote
from amqsidecar.model.marker import Marker
from amqsidecar.model.schedule import RowState
from amqsidecar.operations.failures.former_groups import (
    Place,
    read_cause_groups,
    read_deaths,
    read_failure_groups,
)
from amqsidecar.operations.markers import MARKERS_MAX, NEW_SINCE_MS, marker_before
from amqsidecar.schedule import Schedule

DAY_MS: Final = 24 * 3_600_000
HOUR_MS: Final = 3_600_000


class Trend(StrEnum):
    """Trend of a group, compared with the same hours of the day before."""

    NEW = "new"
    """No message died of it before the last 24 hours, and some did in the last hours."""
    UP = "up"
    STEADY = "steady"
    DOWN = "down"
    QUIET = "quiet"
    """No message died of it in the last hours."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one cause at one destination.

    Attributes:
        number: names it, for its life; see `group_number`.
        recent: deaths in the window that ends now; messages that came back count again.
        recent_messages: least number of messages that was, by `messages_of` and by those kept.
        day_before: deaths in the same window of the day before.
        first_at_ms: the first death of it in the history.
        last_at_ms: when one died of it last.
        total: all deaths in the history.
        waiting: messages that wait for their next try now.
        held: messages that wait for a person.
        parked: messages that can't be sent as things are.
        exhausted: messages that are redelivered no more, until a person acts.
        example_id: redelivery id of the last one that died.
        note: the latest note on it.
        new_since: the latest marker in the day before its first death, where it is new.
    """

    number: int
    destination: str
    cause_group: str
    trend: Trend
    recent: int
    recent_messages: int
    day_before: int
    first_at_ms: int
    last_at_ms: int
    total: int
    waiting: int
    held: int
    parked: int
    exhausted: int
    example_id: str
    note: GroupNote | None
    new_since: Marker | None = None

    @property
    def kept(self) -> int:
        """Messages of it that the schedule knows."""
        return self.waiting + self.held + self.parked + self.exhausted

    @property
    def is_muted(self) -> bool:
        """Whether it is muted, and does not die more often than when it was."""
        had = None if self.note is None else self.note.muted_deaths
        return had is not None and trend(self.recent, had, is_new=False) is not Trend.UP

    def snoozed_until(self, now_ms: int) -> int:
        """Return the end of its snooze; 0 = it has none, or one died since."""
        note = self.note
        if note is None or note.at_ms < self.last_at_ms or note.snoozed_until_ms <= now_ms:
            return 0
        return note.snoozed_until_ms

    def is_snoozed(self, now_ms: int) -> bool:
        """Whether it is muted now, or snoozed without a death since."""
        return self.is_muted or self.snoozed_until(now_ms) > 0


def messages_of(deaths: Iterable[FailureCount]) -> int:
    """Return how many messages died so often, at least.

    Each message dies once with each attempt; after a retry of an exhausted one the count begins
    anew.
    """
    by_attempt = Counter[int]()
    for one in deaths:
        by_attempt[one.key.attempt] += one.count
    return max(by_attempt.values(), default=0)


def trend(recent: int, day_before: int, *, is_new: bool) -> Trend:
    """Return the trend of a count; up and down only if chance is an unlikely reason."""
    if not recent:
        return Trend.QUIET
    if is_new:
        return Trend.NEW
    difference = recent - day_before
    # Why: the difference of two counts of rare events varies by the root of their sum.
    if difference * difference <= 4 * (recent + day_before):
        return Trend.STEADY
    return Trend.UP if difference > 0 else Trend.DOWN


def window(now_ms: int, length_ms: int = HOUR_MS) -> tuple[int, int]:
    """Return begin and end of whole buckets that end with the one that is running."""
    until_ms = now_ms - now_ms % BUCKET_MS + BUCKET_MS
    return until_ms - max(length_ms // BUCKET_MS, 1) * BUCKET_MS, until_ms


def read_groups(
    schedule: Schedule,
    now_ms: int,
    *,
    window_ms: int = HOUR_MS,
    since_ms: int = 0,
    destination: str | None = None,
    limit: int = 100,
) -> list[Group]:
    """Return groups, the one with the most deaths first.

    Args:
        window_ms: length of "recent".
        since_ms: only groups of which one died since.
        destination: only of this one, canonical text; None = of all.
        limit: maximum number returned.
    """
    with schedule.snapshot():
        known = read_cause_groups(schedule)
        found = [
            group
            for group in read_failure_groups(schedule, known)
            if destination in (None, group.destination) and group.last_at_ms >= since_ms
        ]
        return _describe(schedule, known, found, now_ms, window_ms)[:limit]


def read_group(schedule: Schedule, place: Place, now_ms: int) -> Group | None:
    """Return the group at a place, or the one that it became a part of.

    None = the history has no death of this cause there.
    """
    with schedule.snapshot():
        known = read_cause_groups(schedule)
        place = place[0], known.find(*place)
        found = [
            group
            for group in read_failure_groups(schedule, known)
            if (group.destination, group.cause_group) == place
        ]
        return next(iter(_describe(schedule, known, found, now_ms, HOUR_MS)), None)


def _describe(
    schedule: Schedule,
    known: CauseGroups,
    found: Iterable[FailureGroup],
    now_ms: int,
    window_ms: int,
) -> list[Group]:
    from_ms, until_ms = window(now_ms, window_ms)
    by_place: dict[Place, list[FailureCount]] = defaultdict(list)
    for one in read_deaths(schedule, known, from_ms, until_ms, DAY_MS):
        by_place[one.key.destination, one.key.cause_group].append(one)
    recent = {place: sum(one.count for one in found) for place, found in by_place.items()}
    day_before = _deaths(schedule, known, from_ms - DAY_MS, until_ms - DAY_MS)
    rows = Counter[tuple[str, RowState, str]]()
    for tally in schedule.group_tallies():
        group_now = known.find(tally.destination, tally.cause_group)
        rows[tally.destination, tally.state, group_now] += tally.count
    notes: dict[Place, GroupNote] = {}
    for note in schedule.latest_notes(GROUPS_MAX):
        place = note.destination, known.find(note.destination, note.cause_group)
        # Why its own note first: a note on a former group is one before the groups were joined.
        if note.cause_group == place[1] or place not in notes:
            notes[place] = note
    markers = schedule.markers(now_ms - DAY_MS - NEW_SINCE_MS, MARKERS_MAX)
    groups = []
    for group in found:
        place = group.destination, group.cause_group
        is_new = group.first_at_ms > now_ms - DAY_MS
        # Why besides: of messages that came with a count from another store none died for the
        # first time here.
        kept = sum(rows[group.destination, state, group.cause_group] for state in RowState)
        least = kept if group.first_at_ms >= from_ms else 0
        groups.append(
            Group(
                number=group_number(schedule.group_key, *place),
                destination=group.destination,
                cause_group=group.cause_group,
                trend=trend(recent.get(place, 0), day_before[place], is_new=is_new),
                recent=recent.get(place, 0),
                recent_messages=max(messages_of(by_place.get(place, ())), least),
                day_before=day_before[place],
                first_at_ms=group.first_at_ms,
                last_at_ms=group.last_at_ms,
                total=group.total,
                waiting=rows[group.destination, RowState.WAITING, group.cause_group],
                held=rows[group.destination, RowState.HELD, group.cause_group],
                parked=rows[group.destination, RowState.PARKED, group.cause_group],
                exhausted=rows[group.destination, RowState.EXHAUSTED, group.cause_group],
                example_id=group.example_id,
                note=notes.get(place),
                new_since=marker_before(markers, place[0], group.first_at_ms) if is_new else None,
            )
        )
    return sorted(groups, key=lambda group: (-group.recent, -group.last_at_ms))


def _deaths(schedule: Schedule, known: CauseGroups, from_ms: int, until_ms: int) -> Counter[Place]:
    deaths = Counter[Place]()
    for one in read_deaths(schedule, known, from_ms, until_ms, DAY_MS):
        deaths[one.key.destination, one.key.cause_group] += one.count
    return deaths
