"""Finds the dead letters that lie in queues which are not read, and gives each of them a row.

What others take out of these queues is found by `runtime/final_queues.py`, as in every queue in
which rows lie. Where the broker shows no depth, it is found here: a message is gone if several
browses show a later one and not this one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog

from amqsidecar.broker import Delivery, IntakeQueue, LookSession
from amqsidecar.clock import Clock
from amqsidecar.engine.in_place import in_place_row
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.errors import BrokerRefused, DiscoveryRefused
from amqsidecar.model import row_changes
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.life import is_of_listener
from amqsidecar.model.outcome import Counters
from amqsidecar.model.provenance import lying_id
from amqsidecar.model.schedule import WANTED, RowFilter, RowState
from amqsidecar.runtime.final_queues import is_recalling
from amqsidecar.runtime.intake_keeper import FindIntake
from amqsidecar.runtime.mode import LiveMode
from amqsidecar.runtime.work import MakeJudge
from amqsidecar.schedule import Schedule

ADDED_AT_ONCE: Final = 500
"""Rows of one transaction: cycles wait for it."""
GONE_S: Final = 10.0
"""Time in which no browse shows a message that is gone: one of Classic may show too few."""
_EVENTS_MAX: Final = 5_000
"""More events during a look: it is too old to add anything."""

log = structlog.get_logger("amqsidecar.watching")


class InPlaceIndex:
    """Adds rows for messages that have none; one object belongs to one thread."""

    def __init__(
        self,
        *,
        named: Sequence[IntakeQueue],
        find_intake: FindIntake,
        make_judge: MakeJudge,
        clock: Clock,
        interval_s: float,
        max_messages: int,
        mode: LiveMode,
    ) -> None:
        """Make it.

        Args:
            named: dead-letter queues that the operator named; none = those that are found.
            find_intake: finds dead-letter queues.
            make_judge: makes the judge of an open link.
            clock: the time.
            interval_s: from one look to the next.
            max_messages: of each queue that get rows, from its head.
            mode: which messages get rows: those that are left to a person.
        """
        self._mode = mode
        self._manual = mode.now
        self._named = named
        self._find_intake = find_intake
        self._make_judge = make_judge
        self._clock = clock
        self._interval_s = interval_s
        self._max_messages = max_messages
        self._look_at_s = 0.0
        self._judge: tuple[LookSession, IntakeNames, Judge] | None = None
        self._unchanged: dict[IntakeQueue, Mapping[Destination, Counters]] = {}
        self._missing_s: dict[Destination, dict[int, float]] = {}
        """Since when a browse did not show a row's message, by number."""
        self._said: set[str] = set()

    @property
    def is_wanted(self) -> bool:
        """Whether anything is left to a person."""
        return self._mode.now.is_any

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self.is_wanted and self._clock.monotonic_s() >= self._look_at_s

    def look(self, schedule: Schedule, link: LookSession) -> None:
        """Look into all dead-letter queues, and add the rows of messages that have none.

        Promise: a row and the events of its death are durable together. If the process dies
        between two of them, the next look adds the others.

        Raises:
            LinkLost: the connection is gone.
        """
        self._look_at_s = self._clock.monotonic_s() + self._interval_s
        if self._manual != self._mode.now:
            self._manual = self._mode.now
            self._unchanged.clear()
        try:
            queues = self._named or tuple(self._find_intake(link))
            judge = self._judge_of(link, queues)
        except DiscoveryRefused as refused:
            self._say("in_place_queues_unknown", "", f"{refused}; or name intake.queues")
            return
        except BrokerRefused as refused:
            self._say("in_place_rules_unknown", "", str(refused))
            return
        for queue in queues:
            if is_of_listener(queue.destination):
                continue
            try:
                self._look_into(schedule, link, judge, queue)
            except BrokerRefused as refused:
                self._say("not_looked_into", str(queue.destination), str(refused))

    def _judge_of(self, link: LookSession, queues: Sequence[IntakeQueue]) -> Judge:
        """Return the judge of a link; a new link gets another judge."""
        if self._judge is None or self._judge[0] is not link:
            names = IntakeNames(link.description.kind)
            self._judge = link, names, self._make_judge(link, names)
            self._unchanged.clear()
        _, names, judge = self._judge
        if names.queues != tuple(queues):
            names.replace(queues)
        return judge

    def _look_into(
        self, schedule: Schedule, link: LookSession, judge: Judge, queue: IntakeQueue
    ) -> None:
        before = self._unchanged.pop(queue, None)
        if before and _depths(link, before) == before:
            self._unchanged[queue] = before
            return
        moves = _Moves(schedule)
        # Why before the browse: what comes in between is found by the next look.
        lying = {
            parse_destination(one.queue) for one in schedule.exhausted_tallies() if one.is_in_queue
        }
        places = [one for one in lying if judge.send_rules.is_intake(one)]
        counters = _depths(link, places)
        found = list(filter(self._manual.leaves, link.browse(queue, self._max_messages)))
        sources = {one.source for one in found}
        for place in {queue.destination, *sources}.intersection(places) - counters.keys():
            self._forget_gone(schedule, place, [one for one in found if one.source == place])
        unnamed = [one for one in found if not lying_id(one.provenance)]
        if unnamed:
            meaning = f"{len(unnamed)} messages have no id by which they could be found again"
            self._say("not_in_schedule", str(queue.destination), meaning)
        named = [one for one in found if lying_id(one.provenance)]
        is_whole = all(
            self._add(schedule, judge, named[at : at + ADDED_AT_ONCE], moves)
            for at in range(0, len(named), ADDED_AT_ONCE)
        )
        if is_whole and sources and counters.keys() >= sources:
            self._unchanged[queue] = {source: counters[source] for source in sources}

    def _forget_gone(
        self, schedule: Schedule, place: Destination, found: Sequence[Delivery]
    ) -> None:
        """Forget rows whose messages several browses did not show, but later ones."""
        seen = {lying_id(one.provenance) for one in found}
        lying = RowFilter(state=RowState.EXHAUSTED, lies_in=str(place))
        rows = schedule.list_rows(lying, self._max_messages)
        last = max((row.id for row in rows if row.redelivery_id in seen), default=math.inf)
        before, now_s = self._missing_s.get(place, {}), self._clock.monotonic_s()
        missing = {
            row.id: before.get(row.id, now_s)
            for row in rows
            if row.id < last and row.redelivery_id not in seen and row.recall not in WANTED
        }
        self._missing_s[place] = missing
        gone = tuple(sorted(one for one, since_s in missing.items() if now_s - since_s >= GONE_S))
        if gone:
            act = row_changes.miss(self._clock.now_ms(), str(place))
            count = schedule.change(RowFilter(ids=gone), act)
            log.warning("exhausted_gone", queue=str(place), count=count)

    def _add(
        self, schedule: Schedule, judge: Judge, found: Sequence[Delivery], moves: "_Moves"
    ) -> bool:
        """Add rows of messages that have none; False = another look has to.

        Nothing is added beside a take-back: whether a message still lies there is not known then.
        """
        by_place: dict[tuple[str, str], Delivery] = {
            (lying_id(one.provenance), str(one.source)): one for one in found
        }
        with schedule.adding_lying() as add:
            known = {
                (row.redelivery_id, row.goes_to)
                for row in schedule.lying({redelivery_id for redelivery_id, _ in by_place})
            }
            new = [one for place, one in by_place.items() if place not in known]
            if not new:
                return True
            if is_recalling(schedule) or not moves.read_on():
                return False
            # Why here: from this moment on the service may take what was seen.
            if self._manual != self._mode.now:
                return False
            if any(lying_id(one.provenance) in moves.ids for one in new):
                return False
            row_id, now_ms = schedule.allocate_ids(len(new)), self._clock.now_ms()
            made = [
                in_place_row(judge, one, row_id + at, now_ms)
                for at, one in enumerate(judge.prepare(new))
            ]
            add([row for row, _ in made], [event for _, events in made for event in events])
        for name, count in Counter(str(one.source) for one in new).items():
            log.info("found_in_place", queue=name, count=count)
        return True

    def _say(self, event: str, queue: str, meaning: str) -> None:
        if f"{event} {queue}" not in self._said:
            self._said.add(f"{event} {queue}")
            log.warning(event, queue=queue, meaning=meaning)


class _Moves:
    """The messages of which something became since a look began.

    Attributes:
        ids: their redelivery ids.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.ids: set[str] = set()
        self._schedule = schedule
        self._position = schedule.tail()

    def read_on(self) -> bool:
        """Add those of later events; return whether all of these could be read."""
        tail = self._schedule.events_after(self._position, _EVENTS_MAX)
        self._position = tail.position
        self.ids.update(event.redelivery_id for event in tail.events)
        return len(tail.events) < _EVENTS_MAX


def _depths(link: LookSession, places: Iterable[Destination]) -> dict[Destination, Counters]:
    """Return the counters of queues whose depth the broker shows."""
    try:
        found = link.queue_counters(list(places))
    except BrokerRefused:
        return {}
    return {
        place: one
        for place, one in found.items()
        if one.depth is not None and one.removed is not None
    }
