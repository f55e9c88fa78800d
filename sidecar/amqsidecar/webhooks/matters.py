"""Reads the matters of a schedule and its sidecar that subscriptions report."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final
from urllib.parse import urlencode

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.engine.foreign_tokens import describe
from amqsidecar.model.cause_groups import CauseGroups
from amqsidecar.model.failure import GROUPS_MAX
from amqsidecar.model.foreign_token import orphans
from amqsidecar.model.operation import OperationState, awaits_second
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.failures.former_groups import Place, read_cause_groups
from amqsidecar.operations.failures.groups import DAY_MS, read_groups
from amqsidecar.operations.markers import new_since
from amqsidecar.operations.overview import RecoveryState, count_resends, read_recoveries
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.health import Readiness
from amqsidecar.webhooks.outbox import Kind, Matter

LOOK_S: Final = 2.0
IDLE_S: Final = 20.0
"""Between looks where nothing happened."""
SHARE: Final = 100
"""The shortest pause after a look, as a multiple of the look's duration."""

OUT_MS: Final = 600_000
"""A message that was re-sent so long ago is taken for consumed."""

_OPERATIONS: Final = 50
_DESTINATIONS: Final = 500
_LOST_S: Final = 120.0
"""An instance without a sign of life for so long is not taken over any moment."""


class Matters:
    """Looks for matters, once for all subscriptions of a process; any thread may ask."""

    def __init__(
        self,
        oldest_ms: int,
        clock: Clock,
        owner_of: Callable[[str], str],
        readiness: Callable[[], Readiness],
    ) -> None:
        """Know of nothing yet; an oldest message of less than `oldest_ms` is no matter."""
        self._oldest_ms = oldest_ms
        self._clock = clock
        self._owner_of = owner_of
        self._readiness = readiness
        self._lock = Lock()
        self._found: dict[Kind, Sequence[Matter]] = {}
        self.known = CauseGroups()
        self._tail = ""
        self._soon_s = self._later_s = 0.0

    def look(self, schedule: Schedule) -> Mapping[Kind, Sequence[Matter]]:
        """Return the matters of each kind that was looked for.

        Raises:
            StoreError: the store can't be asked.
        """
        with self._lock:
            now_s, tail = self._clock.monotonic_s(), schedule.tail()
            if now_s >= self._later_s or (tail != self._tail and now_s >= self._soon_s):
                self._read(schedule, self._clock.now_ms())
                spent_s = self._clock.monotonic_s() - now_s
                self._tail, self._soon_s = tail, now_s + max(LOOK_S, SHARE * spent_s)
                self._later_s = max(self._soon_s, now_s + IDLE_S)
            return dict(self._found)

    def _read(self, schedule: Schedule, now_ms: int) -> None:
        self.known = read_cause_groups(schedule)
        found = {
            **_read_groups(schedule, self.known, now_ms),
            Kind.OPERATION: _read_operations(schedule),
            Kind.NOT_RECOVERING: _read_recoveries(schedule, now_ms),
            Kind.OLDEST: _read_oldest(schedule, now_ms - self._oldest_ms),
        }
        # Why: without a link nobody has looked for tokens.
        if (readiness := self._readiness()).link.up:
            found[Kind.STRANDED] = _read_stranded(schedule, readiness, now_ms)
        self._found |= {kind: [*map(self._completed, matters)] for kind, matters in found.items()}

    def _completed(self, matter: Matter) -> Matter:
        place = matter.destination
        owner = matter.owner or (self._owner_of(place) if place else "")
        path = matter.path or (_page("/groups", destination=place) if place else "/")
        return msgspec.structs.replace(matter, owner=owner, path=path)


def _page(path: str, **pairs: str) -> str:
    return f"{path}?{urlencode(pairs, errors='replace')}"


def _read_groups(
    schedule: Schedule, known: CauseGroups, now_ms: int
) -> dict[Kind, Iterable[Matter]]:
    """Return new causes and exhausted messages; costs no scan of rows."""
    # Why first: messages exhausted by then have their group.
    tallies = schedule.group_tallies()
    groups = {
        (one.destination, one.cause_group): one
        for one in read_groups(schedule, now_ms, limit=GROUPS_MAX)
    }

    def matter(kind: Kind, head: str, place: Place, count: int) -> Matter:
        text = f"{head} at {place[0]}: {place[1]}"
        found = Matter(kind, *place, count=count, since_ms=now_ms, text=text)
        if (one := groups.get(place)) is None:
            return found
        return msgspec.structs.replace(
            found,
            since_ms=one.first_at_ms,
            path=_page("/groups/one", destination=place[0], group=f"#{one.number}"),
            owner=one.note.owner if one.note else "",
            is_quiet=one.is_snoozed(now_ms),
            marker=new_since(one.new_since, now_ms) if one.new_since else "",
        )

    exhausted = Counter[Place]()
    for tally in tallies:
        if tally.state is RowState.EXHAUSTED and tally.count:
            group = known.find(tally.destination, tally.cause_group)
            exhausted[tally.destination, group] += tally.count
    day_ms = now_ms - DAY_MS
    new = [(place, one.total) for place, one in groups.items() if one.first_at_ms >= day_ms]
    return {
        Kind.NEW_CAUSE: [matter(Kind.NEW_CAUSE, "New cause", *one) for one in new],
        Kind.EXHAUSTED: [matter(Kind.EXHAUSTED, "Exhausted", *one) for one in exhausted.items()],
    }


def _read_operations(schedule: Schedule) -> Iterator[Matter]:
    """Yield operations that wait for a second person, or stopped by themselves."""
    for one in schedule.operations(_OPERATIONS):
        reason = "waits for a second person" if awaits_second(one) else ""
        if one.state is OperationState.STOPPED:
            reason = f"stopped by itself: {one.state_reason}"
        if reason:
            yield Matter(
                Kind.OPERATION,
                one.selection.rows.destination or one.target or "",
                reference=f"{one.id} {one.state}",
                since_ms=one.created_at_ms,
                text=f"Operation {one.id}, {one.action.word} by {one.actor}, {reason}",
                path=f"/operations/{one.id}",
            )


def _read_recoveries(schedule: Schedule, now_ms: int) -> Iterator[Matter]:
    """Yield destinations whose re-sent messages come back; where it is not clear, quiet.

    Where no message is kept and none was re-sent lately, nothing is left to recover.
    """
    found = [
        one for one in read_recoveries(schedule, now_ms) if one.state is not RecoveryState.HOLDS
    ]
    left = {one.destination for one in schedule.tallies() if one.count} if found else set[str]()
    if not left.issuperset(one.destination for one in found):
        left |= count_resends(schedule, now_ms - OUT_MS, now_ms)[0].keys()
    for one in found:
        if one.destination not in left:
            continue
        share = f"{one.came_back.part} of {one.came_back.whole} re-sent messages came back"
        yield Matter(
            Kind.NOT_RECOVERING,
            one.destination,
            since_ms=one.since_ms,
            text=f"{one.destination} does not recover: {share}",
            is_quiet=one.state is not RecoveryState.FAILS,
        )


def _read_oldest(schedule: Schedule, before_ms: int) -> Iterator[Matter]:
    """Yield destinations whose oldest message was taken before a time; one query each."""
    places = sorted({one.destination for one in schedule.tallies() if one.count})
    for place in places[:_DESTINATIONS]:
        rows = schedule.list_rows(RowFilter(destination=place), 1)
        if rows and rows[0].received_at_ms < before_ms:
            text = f"The oldest message of {place} waits for too long"
            yield Matter(Kind.OLDEST, place, since_ms=rows[0].received_at_ms, text=text)


def _read_stranded(schedule: Schedule, readiness: Readiness, now_ms: int) -> Iterator[Matter]:
    """Yield schedules, or shares of this one, whose messages no sidecar sends."""
    found = {one.instance: describe(one) for one in orphans(readiness.other_schedules)}
    for one in schedule.instances():
        if not one.is_held and one.unfinished_cycle and one.seen_seconds_ago > _LOST_S:
            found[one.instance] = one.instance
    for name, described in found.items():
        text = f"No sidecar works on the schedule of {described}: its messages are not sent"
        yield Matter(Kind.STRANDED, reference=name, since_ms=now_ms, text=text)
