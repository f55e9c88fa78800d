"""Finds the dead letters that lie in queues which are not read, and gives each of them a row.

It goes through a queue in small steps, so that neither the number of its messages nor their sizes
need memory. A row is forgotten if passes agree that its message is gone.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import structlog

from amqsidecar.broker import BrokerKind, Delivery, IntakeQueue, LookSession
from amqsidecar.clock import Clock
from amqsidecar.engine.in_place import InPlaceMessage, in_place_row
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.errors import BrokerRefused, DiscoveryRefused
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.left_behind import REFUSED, LeftBehind
from amqsidecar.model.outcome import Counters
from amqsidecar.model.provenance import is_of_listener, lying_id
from amqsidecar.model.schedule import WANTED, RowFilter, RowState
from amqsidecar.runtime.final_queues import forget_gone, is_recalling
from amqsidecar.runtime.intake_keeper import FindIntake
from amqsidecar.runtime.mode import LiveMode
from amqsidecar.runtime.seen_rows import Moves, SeenRows
from amqsidecar.runtime.work import MakeJudge
from amqsidecar.schedule import Schedule

ADDED_AT_ONCE: Final = 500
"""Rows of one transaction: cycles wait for it."""
STEP_S: Final = 1.0
"""Time of one call of `look`; the watcher does its other work between two."""
CLASSIC_LOOK_MAX: Final = 400
"""Where Classic's browsers end on a queue with a policyEntry, unless it says more."""
_NO_ID: Final = "no id and no number of the broker by which they could be found again"
_PAGE_BYTES_MAX: Final = 4 << 20

log = structlog.get_logger("amqsidecar.watching")


class InPlaceIndex:
    """Adds rows for messages that have none; one object belongs to one thread.

    Attributes:
        queues: the dead-letter queues of the last pass.

    Args:
        named: dead-letter queues that the operator named; if empty, the found queues.
        find_intake: finds dead-letter queues.
        make_judge: makes the judge of an open link.
        interval_s: minimum time between passes; a longer pass is followed by an equal rest.
        max_messages: maximum messages per queue that get rows, from its head.
        max_per_second: maximum messages browsed, over all queues.
        report: called after a pass with the messages that get no row.
        report_discards: called with the numbers of new rows that the rules would discard, by
            destination.
        mode: decides which messages are left to a person, and so get rows.
    """

    def __init__(
        self,
        *,
        named: Sequence[IntakeQueue],
        find_intake: FindIntake,
        make_judge: MakeJudge,
        clock: Clock,
        interval_s: float,
        max_messages: int,
        max_per_second: int,
        report: Callable[[tuple[LeftBehind, ...]], None],
        report_discards: Callable[[Mapping[str, int]], None],
        mode: LiveMode,
    ) -> None:
        self._mode = mode
        self._manual = mode.now
        self._named = named
        self._find_intake = find_intake
        self._make_judge = make_judge
        self._clock = clock
        self._interval_s = interval_s
        self._max_messages = max_messages
        self._max_per_second = max_per_second
        self._report = report
        self._report_discards = report_discards
        self._due_at_s = 0.0
        self._began_s = self._paced_s = 0.0
        self._link: LookSession | None = None
        self._judge: tuple[IntakeNames, Judge] | None = None
        self.queues: tuple[IntakeQueue, ...] = ()
        self._left: dict[IntakeQueue, tuple[LeftBehind, ...]] = {}
        self._pass: Iterator[int] | None = None
        self._schedule: Schedule | None = None
        self._moves = Moves()
        self._unchanged: dict[IntakeQueue, Mapping[Destination, Counters]] = {}
        self._seen: dict[Destination, SeenRows] = {}
        self._said: set[str] = set()

    @property
    def is_wanted(self) -> bool:
        """Whether anything is left to a person."""
        return self._mode.now.is_any

    @property
    def due_in_s(self) -> float:
        """Time until `look` has something to do; infinity = nothing is left to a person."""
        if not self.is_wanted:
            return math.inf
        return max(0.0, self._due_at_s - self._clock.monotonic_s())

    def leave(self) -> None:
        """End the open pass; the next `look` begins another."""
        self._link = self._pass = None

    def look(self, schedule: Schedule, link: LookSession) -> None:
        """Go on with the pass through all dead-letter queues, for a moment, or begin the next one.

        Promise: a row and the events of its death are durable together. If the process dies
        between two of them, the next pass adds the others.

        Raises:
            BrokerRefused: the broker does not show the rules.
            LinkLost: the connection is gone.
        """
        self._schedule = schedule
        if self._link is not link or self._manual != self._mode.now:
            self._link, self._judge, self._pass = link, None, None
            self._manual = self._mode.now
            self._unchanged.clear()
        began_s = self._clock.monotonic_s()
        steps = self._pass
        if steps is None:
            self._began_s = began_s
            steps = self._go_through(link)
        # Why: a pass that fails is over.
        self._pass, self._due_at_s = None, began_s + self._interval_s
        paced_s = self._paced_s
        for count in steps:
            now_s = self._clock.monotonic_s()
            paced_s = max(paced_s, now_s - STEP_S) + count / self._max_per_second
            if paced_s > now_s or now_s - began_s > STEP_S:
                self._pass, self._paced_s, self._due_at_s = steps, paced_s, paced_s
                return
        now_s = self._clock.monotonic_s()
        self._due_at_s = now_s + max(self._interval_s, now_s - self._began_s)

    @property
    def _store(self) -> Schedule:
        """The schedule, which may be another one after each step."""
        assert self._schedule is not None  # noqa: S101 - `look` sets it
        return self._schedule

    def _go_through(self, link: LookSession) -> Iterator[int]:
        """Go through all queues; after each step, return how many messages it browsed."""
        try:
            queues = self.queues = tuple(self._named or self._find_intake(link))
        except DiscoveryRefused as refused:
            self._say("in_place_queues_unknown", "", f"{refused}; or name intake.queues")
            return
        judge = self._judge_of(link, queues)
        self._left = {one: left for one, left in self._left.items() if one in queues}
        for queue in queues:
            if is_of_listener(queue.destination):
                continue
            try:
                yield from self._look_into(link, judge, queue)
            except BrokerRefused as refused:
                self._say("not_looked_into", str(queue.destination), str(refused))
                words = str(refused)
                self._left[queue] = (LeftBehind(queue.destination, REFUSED, 0, words, True),)
        self._report((*self.left, *link.left_behind()))

    @property
    def left(self) -> list[LeftBehind]:
        """The messages that get no row, by the last look into each queue."""
        return [one for left in self._left.values() for one in left]

    def _judge_of(self, link: LookSession, queues: Sequence[IntakeQueue]) -> Judge:
        """Return the judge of the link."""
        if self._judge is None:
            names = IntakeNames(link.description.kind)
            self._judge = names, self._make_judge(link, names)
        names, judge = self._judge
        if names.queues != tuple(queues):
            names.replace(queues)
        return judge

    def _look_into(self, link: LookSession, judge: Judge, queue: IntakeQueue) -> Iterator[int]:
        unchanged = self._unchanged.get(queue)
        if unchanged and _depths(link, unchanged) == unchanged:
            return
        self._unchanged.pop(queue, None)
        # Why before the browse: the next pass finds messages that come in between.
        known = self._count_rows(judge)
        self._moves.begin_look(self._store)
        is_artemis = link.description.kind is BrokerKind.ARTEMIS
        before = _depths(link, {*known, queue.destination} if is_artemis else known)
        shown, unnamed = Counter[Destination](), Counter[Destination]()
        last: dict[Destination, int] = {}
        is_whole = True
        found = link.browse(queue, self._max_messages)
        while page := _page(found):
            shown.update(one.source for one in page)
            unnamed.update(one.source for one in page if not lying_id(one.provenance))
            is_whole &= self._add(judge, page, last)
            yield len(page)
        names = IntakeNames(link.description.kind)
        names.replace([queue])
        # Why: a wildcard shows no message of a queue that others have emptied.
        places = {*shown, *known.keys() & {queue.destination}}
        if not is_artemis:
            places.update(filter(names.covers, known))
        after = _depths(link, places or {queue.destination})
        rows = self._count_rows(judge)
        left: list[LeftBehind] = []
        for place in places:
            depth = after[place].depth if place in after else None
            left += self._hidden(place, shown[place], depth, is_artemis=is_artemis)
            if unnamed[place]:
                left.append(LeftBehind(place, "no_id", unnamed[place], _NO_ID))
            seen = self._seen_of(place)
            if seen.count >= rows[place]:
                del self._seen[place]
                continue
            is_whole = False
            # Why not else: an Artemis that shows counters hides messages in another reader's hand.
            if depth is None or not is_artemis or shown[place] >= depth:
                is_all = depth is not None and shown[place] >= depth
                yield from self._forget_gone(
                    place, seen, math.inf if is_all else last.get(place, math.inf)
                )
        self._left[queue] = tuple(left)
        if is_whole and shown and before.keys() >= shown.keys():
            self._unchanged[queue] = {place: before[place] for place in shown}

    def _count_rows(self, judge: Judge) -> Counter[Destination]:
        """Return how many rows lie in each dead-letter queue."""
        rows = Counter[Destination]()
        for one in self._store.exhausted_tallies():
            if one.is_in_queue:
                rows[parse_destination(one.queue)] += one.count
        return Counter({one: rows[one] for one in rows if judge.send_rules.is_intake(one)})

    def _seen_of(self, place: Destination) -> SeenRows:
        seen = self._seen.get(place)
        if seen is None:
            seen = SeenRows(self._moves.look, self._store.allocate_ids(1))
            self._seen[place] = seen
        return seen

    def _forget_gone(self, place: Destination, seen: SeenRows, last: float) -> Iterator[int]:
        """Forget rows of a queue whose messages several passes did not find.

        Args:
            last: as `SeenRows.agree` wants it.
        """
        if not seen.agree(last, self._clock.monotonic_s()):
            return
        del self._seen[place]
        lying = RowFilter(state=RowState.EXHAUSTED, lies_in=str(place))
        after_id = 0
        while rows := self._store.list_rows(lying, ADDED_AT_ONCE, after_id):
            if is_recalling(self._store) or not self._moves.read_on(self._store):
                return
            after_id = rows[-1].id
            gone = tuple(
                row.id
                for row in rows
                if seen.misses(row.id)
                and row.recall not in WANTED
                and not self._moves.has_moved(row.redelivery_id, seen.began)
            )
            if gone:
                forget_gone(self._store, str(place), gone, self._clock.now_ms())
            yield 0

    def _add(self, judge: Judge, page: Sequence[Delivery], last: dict[Destination, int]) -> bool:
        """Add rows of messages that have none; False = another pass has to.

        Nothing is added beside a take-back: whether a message still lies there is not known then.
        """
        by_place: dict[tuple[str, str], Delivery] = {
            (found, str(one.source)): one for one in page if (found := lying_id(one.provenance))
        }
        store, moves, redelivers = self._store, self._moves, self._manual.redelivers
        added: list[InPlaceMessage] = []
        with store.adding_lying() as add:
            ids = {
                (row.redelivery_id, row.final_queue): row.id
                for row in store.lying({redelivery_id for redelivery_id, _ in by_place})
            }
            wanted = [
                one
                for place, one in by_place.items()
                if place not in ids and self._manual.leaves(one)
            ]
            # Why the mode here: after its change the service may take the messages seen.
            is_current = moves.read_on(store) and self._manual == self._mode.now
            new = [
                one
                for one in (wanted if is_current and not is_recalling(store) else ())
                if not moves.has_moved(lying_id(one.provenance), moves.look)
                and not (redelivers and is_in_flight(store, lying_id(one.provenance)))
            ]
            if new:
                row_id, now_ms = store.allocate_ids(len(new)), self._clock.now_ms()
                added = [
                    in_place_row(judge, one, row_id + at, now_ms, redelivers=redelivers)
                    for at, one in enumerate(judge.prepare(new))
                ]
                add([one.row for one in added], [event for one in added for event in one.events])
                moves.own = range(row_id, row_id + len(new))
                ids.update(
                    ((one.row.redelivery_id, one.row.final_queue), one.row.id) for one in added
                )
        for place, one in by_place.items():
            if (row_id := ids.get(place, 0)) > 0:
                self._seen_of(one.source).add(row_id)
                last[one.source] = max(row_id, last.get(one.source, 0))
        self._report_discards(
            Counter(one.row.destination for one in added if one.would_be_discarded)
        )
        for name, count in Counter(str(one.source) for one in new).items():
            log.info("found_in_place", queue=name, count=count)
        # Why moved: its row is of the death before, and goes with the cycle that sent it.
        is_moving = any(moves.has_moved(name, moves.look) for name, _ in by_place)
        return len(new) == len(wanted) and not is_moving

    def _hidden(
        self, place: Destination, shown: int, depth: int | None, *, is_artemis: bool
    ) -> Iterator[LeftBehind]:
        """Return how many messages of a queue a pass did not show, and which setting lifts it."""
        hidden = 0 if depth is None else max(0, depth - shown)
        # Why guessed: where no depth is known, only the number shows that the browse was cut.
        is_cut = depth is None and shown == CLASSIC_LOOK_MAX
        if not hidden and not is_cut:
            return
        reason, words = "not_shown", "another reader has them in hand, or the wire shows no more"
        if shown >= self._max_messages:
            reason = "max_messages"
            words = f"a pass ends after {shown}: raise observe.max_messages"
        elif not is_artemis:
            reason = "browse_ends"
            words = (
                f"ActiveMQ Classic ended the browse after {shown}: raise maxBrowsePageSize "
                f"({CLASSIC_LOOK_MAX} unless configured) or memoryLimit in its policyEntry"
            )
        yield LeftBehind(place, reason, hidden, words, at_least=depth is None)

    def _say(self, event: str, queue: str, meaning: str) -> None:
        if f"{event} {queue}" not in self._said:
            self._said.add(f"{event} {queue}")
            log.warning(event, queue=queue, meaning=meaning)


def is_in_flight(store: Schedule, redelivery_id: str) -> bool:
    """Return whether a cycle sends a message that may still be seen in its queue."""
    rows = store.list_rows(RowFilter(redelivery_id=redelivery_id), ADDED_AT_ONCE)
    return any(row.in_flight for row in rows)


def _page(found: Iterator[Delivery]) -> list[Delivery]:
    """Return the next messages of a browse; empty = it ended."""
    page: list[Delivery] = []
    held_bytes = 0
    for one in islice(found, ADDED_AT_ONCE):
        page.append(one)
        held_bytes += len(one.message)
        if held_bytes > _PAGE_BYTES_MAX:
            break
    return page


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
