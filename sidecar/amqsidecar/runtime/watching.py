"""Watches destinations after re-sends to determine outcomes.

A thread with its own store and read-only link: its faults don't affect redelivery. A destination is
looked at often while a re-send to it may still come back, and now and then while anything is kept
for it, so that there is a look from before its re-send. Without either the link is closed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import structlog

from amqsidecar.broker import Link, LookSession
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, ConfigError, LinkLost
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.event import AnyEvent, Received, Resent
from amqsidecar.model.outcome import COUNTING_MENDS, NOT_COUNTED, Account, Counters, Observation
from amqsidecar.model.schedule import Tally
from amqsidecar.runtime.attempts import CurrentBroker
from amqsidecar.runtime.discovery import FindUnread, no_unread_queues
from amqsidecar.runtime.final_queues import FinalQueueWatch
from amqsidecar.runtime.in_place import InPlaceIndex
from amqsidecar.runtime.intake_keeper import lasting_words
from amqsidecar.runtime.open_resends import OpenResends
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.schedule import Schedule

DESTINATIONS_MAX: Final = 100
"""Maximum destinations watched, those with the latest re-sends first."""
EVENTS_AT_ONCE: Final = 5_000
READS_AT_ONCE: Final = 20
PROOFS_AT_ONCE: Final = 500
"""Why no more: cycles wait for the write; 20,000 proofs at once took half a second."""
RESTING_S: Final = 30.0
"""From one look to the next where nothing was re-sent lately."""
UNCONSUMED_MS: Final = 24 * 3_600_000
"""Time after a re-send in which a queue is observed that was not seen empty since."""
CONFIRM_S: Final = 10.0
"""From a look at a final queue that holds too little to the next, which may confirm it."""
LOOK_MAX_S: Final = 2.0
"""A look that took longer is not one of a moment and proves nothing."""
FIND_S: Final = 60.0
"""From one search for dead-letter queues that are not read to the next."""
REFUSED_S: Final = 3_600.0
"""The same where the broker refuses to show them."""
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0
_RETRY_S: Final = 15.0
"""From a failure of the store to the next attempt."""

log = structlog.get_logger("amqsidecar.watching")


class Brokers(CurrentBroker, Protocol):
    """Where links are made to; the main link may go from one broker to another."""

    def make(self, instance: str) -> Link:
        """Return a link to the current one."""
        ...


class _Watched:
    """One destination and its observations."""

    def __init__(self, destination: str) -> None:
        self.destination = parse_destination(destination)
        self.account = Account(destination)
        self.latest: Observation | None = None
        self.died = 0
        self.expired = 0
        self.at_least = 0
        self.look_at_s = 0.0

    @property
    def is_steady(self) -> bool:
        """Whether the last look followed from the one before."""
        return self.latest is not None and self.latest.steady_since_ms is not None


class Watching:
    """Looks again and again until it is stopped.

    Attributes:
        worker: runs it.

    Args:
        schedule: no other thread uses it.
        brokers: opens the links.
        instance: names our links; must differ from the main link's.
        window_ms: how long after a re-send.
        interval_s: how often.
        resends: counts outcomes.
        keeps_proofs: whether proved outcomes become events; if the process dies, some don't.
        find_unread: finds unread dead-letter queues, which are watched, too.
        in_place: gives rows to messages in unread queues; None = no such rows.
        report_counted: called after each look with whether the broker counts acknowledgements.
    """

    def __init__(
        self,
        *,
        schedule: KeptSchedule,
        brokers: Brokers,
        instance: str,
        clock: Clock,
        window_ms: int,
        interval_s: float,
        resends: OpenResends,
        keeps_proofs: bool,
        find_unread: FindUnread = no_unread_queues,
        in_place: InPlaceIndex | None = None,
        report_counted: Callable[[bool], None] = lambda _is_counted: None,
    ) -> None:
        self.worker = Worker(
            "watching",
            self._step,
            first_pause_s=0.0,
            retry_s=(_RETRY_S,),
            release=self._release,
            wake=self._wake,
        )
        self._kept = schedule
        self._brokers = brokers
        self._instance = instance
        self._clock = clock
        self._window_ms = window_ms
        self._interval_s = interval_s
        self._resends = resends
        self._keeps_proofs = keeps_proofs
        self._find_unread = find_unread
        self._in_place = in_place
        self._finals = FinalQueueWatch()
        self._unread: tuple[str, ...] = ()
        self._find_at_s = 0.0
        self._since_s = 0.0
        self._report_counted = report_counted
        self._link: LookSession | None = None
        self._url = ""
        self._pause_s = _FIRST_PAUSE_S
        self._link_at_s = 0.0
        self._told: set[tuple[str, str]] = set()
        self._position = ""
        self._resent_at_ms: dict[str, int] = {}
        self._unconsumed_at_ms: dict[str, int] = {}
        self._watched: dict[str, _Watched] = {}

    def _wake(self) -> None:
        link = self._link
        if link is not None:
            link.wake()

    def _release(self) -> None:
        self._close_link()
        self._kept.close()

    def _step(self) -> float:
        with self._kept.open() as store:
            self.turn(store)
        self._rest()
        return 0.0

    def turn(self, store: Schedule) -> None:
        """Read events, examine destinations, and store the observations."""
        self._index(store)
        # Why before the events: a message sent meanwhile is then in at least one of them.
        tallies, known = store.tallies(), self._finals.count_known(store)
        self._read(store)
        self._find()
        self._choose(store, tallies, [*known, *self._unread])
        if not self._watched and not (self._in_place and self._in_place.is_wanted):
            self._close_link()
        now_s = self._clock.monotonic_s()
        due = [
            one
            for name, one in self._watched.items()
            if one.look_at_s <= now_s or name in self._resent_at_ms
        ]
        if due:
            seen = self._look([one for one in due if not self._is_unread(one, known)])
            seen += self._look_unread([one for one in due if self._is_unread(one, known)])
            store.add_observations([self._compare(store, one, known) for one in seen])
        latest = {name: one.latest for name, one in self._watched.items() if one.latest is not None}
        proved = self._resends.judge(latest, self._clock.now_ms())
        if self._keeps_proofs:
            for at in range(0, len(proved), PROOFS_AT_ONCE):
                store.record_outcomes(proved[at : at + PROOFS_AT_ONCE])

    def _index(self, store: Schedule) -> None:
        """Add rows of messages in unread queues, if it is time."""
        index = self._in_place
        link = self._open_link() if index is not None and not index.due_in_s else None
        if index is None or link is None:
            return
        try:
            index.look(store, link)
        except BrokerRefused as refused:
            self._log_once(
                "not_seen_in_place", reason=str(refused), meaning="no dead letter is shown in place"
            )
        except LinkLost as lost:
            self._lost(f"the link is lost: {lost}")

    def _find(self) -> None:
        """Find dead-letter queues that are not read, if it is time."""
        now_s = self._clock.monotonic_s()
        if now_s < self._find_at_s or self._find_unread is no_unread_queues:
            return
        with self._asking_unread() as link:
            if link is not None:
                self._unread = tuple(map(str, self._find_unread(link)))
                self._find_at_s = now_s + FIND_S

    def _is_unread(self, one: _Watched, known: Mapping[str, int]) -> bool:
        name = str(one.destination)
        return name in self._unread and name not in known and name not in self._resent_at_ms

    def _look_unread(self, due: Sequence[_Watched]) -> list[Observation]:
        """Look at queues that are not read; nothing where the broker can't be asked now."""
        if not due:
            return []
        counters: Mapping[Destination, Counters] | None = None
        with self._asking_unread() as link:
            if link is not None:
                counters = link.queue_counters([one.destination for one in due])
        if counters is None:
            return []
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        seen = []
        for one in due:
            one.look_at_s = now_s + RESTING_S
            if (found := counters.get(one.destination)) is not None:
                one.at_least = found.at_least
                one.latest = one.account.look(now_ms, found, one.died, one.expired)
                seen.append(one.latest)
        return seen

    @contextmanager
    def _asking_unread(self) -> Iterator[LookSession | None]:
        """Ask in the block about queues that are not read; None = the broker can't be asked now.

        A refusal ends the counting of these queues for a while, and no more than that: the
        sidecar's user needs no permission on them.
        """
        try:
            yield self._open_link()
        except BrokerRefused as refused:
            self._give_up_unread(str(refused))
        except LinkLost as lost:
            self._give_up_unread(f"the link is lost: {lost}")
            self._lost(f"the link is lost: {lost}")

    def _give_up_unread(self, reason: str) -> None:
        self._unread = ()
        self._find_at_s = self._clock.monotonic_s() + REFUSED_S
        self._log_once(
            "unread_queues_not_counted",
            reason=reason,
            meaning="messages that other programs gave up are not shown; everything else continues",
        )

    def _compare(self, store: Schedule, seen: Observation, known: Mapping[str, int]) -> Observation:
        """Return an observation of a dead-letter queue compared with the schedule."""
        name = seen.destination
        if name not in self._unread and name not in known:
            return seen
        watched = self._watched[name]
        try:
            seen = self._finals.compare(
                store, self._link, seen, known.get(name, 0), watched.at_least
            )
        except LinkLost as lost:
            self._lost(f"the link is lost: {lost}")
        if self._finals.needs_look_soon(name):
            watched.look_at_s = self._clock.monotonic_s() + CONFIRM_S
        return seen

    def _rest(self) -> None:
        """Wait until the next turn, and keep the link alive."""
        if self.worker.stop.is_set():
            # Why here, too: a link that was being opened at the stop was not woken.
            return
        rest_s = self._interval_s
        if self._in_place is not None:
            rest_s = min(rest_s, self._in_place.due_in_s)
        if self._link is None:
            self.worker.stop.wait(self._interval_s)
            return
        try:
            self._link.wait(rest_s)
        except LinkLost as lost:
            self._lost(f"the link is lost: {lost}")

    # What happened

    def _read(self, store: Schedule) -> None:
        self._position = self._position or store.tail()
        for _ in range(READS_AT_ONCE):
            tail = store.events_after(self._position, EVENTS_AT_ONCE)
            if tail.position == self._position:
                return
            self._position = tail.position
            self._follow(tail.events)

    def _follow(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Received):
                watched = self._watched.get(event.origin or "")
                if watched is not None:
                    watched.died += 1
                    watched.expired += event.expired
            elif isinstance(event, Resent):
                # Why removed before: the order is that of the latest re-sends.
                self._resent_at_ms.pop(event.destination, None)
                self._resent_at_ms[event.destination] = event.at_ms
                if self._in_place is not None and self._in_place.is_wanted:
                    self._finals.forget_looks()
        self._resends.follow(events)
        self._finals.follow(events)

    def _choose(self, store: Schedule, tallies: Sequence[Tally], finals: Sequence[str]) -> None:
        """Decide which destinations to watch."""
        operations = store.open_operations()
        windows = [one.pace.window_ms for one in operations]
        window_ms = max(self._window_ms, *windows) if windows else self._window_ms
        # Why twice: a re-send waits up to that long for a proof.
        since_ms = self._clock.now_ms() - 2 * window_ms - int(self._interval_s * 1000)
        resent = self._resent_at_ms
        self._resent_at_ms = {name: at_ms for name, at_ms in resent.items() if at_ms >= since_ms}
        # Why after the windows, too: people must know that re-sent messages lie there, or no more.
        self._unconsumed_at_ms = {
            name: at_ms
            for name, at_ms in {**self._unconsumed_at_ms, **resent}.items()
            if at_ms >= self._clock.now_ms() - UNCONSUMED_MS and self._is_unconsumed(name, at_ms)
        }
        names = dict.fromkeys(reversed(self._resent_at_ms))
        # Why before the first re-send: looks that were there before it prove its outcome.
        names.update((one.target, None) for one in operations if one.target is not None)
        names.update(dict.fromkeys(finals))
        names.update(dict.fromkeys(reversed(self._unconsumed_at_ms)))
        kept = sorted(tallies, key=lambda tally: -tally.count)
        names.update(dict.fromkeys(tally.destination for tally in kept))
        chosen = list(names)[:DESTINATIONS_MAX]
        self._watched = {name: self._watched.get(name) or _Watched(name) for name in chosen}

    def _is_unconsumed(self, name: str, resent_at_ms: int) -> bool:
        """Return whether observations show that a destination may still hold a re-sent message."""
        watched = self._watched.get(name)
        latest = None if watched is None else watched.latest
        if latest is None or latest.depth or latest.acknowledged is None:
            return latest is not None and bool(latest.depth)
        return latest.empty_at_ms is None or latest.empty_at_ms <= resent_at_ms

    # Looking

    def _look(self, due: Sequence[_Watched]) -> list[Observation]:
        """Look at destinations; nothing, where the broker can't be asked now."""
        link = self._open_link() if due else None
        if link is None:
            return []
        began_s = self._clock.monotonic_s()
        try:
            counters = link.queue_counters([one.destination for one in due])
        except BrokerRefused as refused:
            self._lost(str(refused))
            return []
        except LinkLost as lost:
            self._lost(f"the link is lost: {lost}")
            return []
        self._pause_s = _FIRST_PAUSE_S
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        if now_s - began_s > LOOK_MAX_S:
            return []
        is_counted = any(one.acknowledged is not None for one in counters.values())
        if counters:
            self._report_counted(is_counted)
        if counters and not is_counted:
            self._log_once(
                "outcomes_not_counted",
                reason=NOT_COUNTED,
                meaning=f"outcomes stay unknown except for returns; on Classic {COUNTING_MENDS} "
                "(operations.md)",
            )
        seen = []
        for one in due:
            found = counters.get(one.destination)
            if found is not None:
                one.latest = one.account.look(now_ms, found, one.died, one.expired)
                one.died = one.expired = 0
                one.at_least = found.at_least
                seen.append(one.latest)
            # Why at once while nothing is steady: it takes two looks to have something to go by.
            is_new = found is not None and found.removed is not None and not one.is_steady
            one.look_at_s = now_s if is_new else now_s + RESTING_S
        return seen

    def _open_link(self) -> LookSession | None:
        if self._link is not None and self._has_better():
            self._close_link()
        if self._link is None and self._clock.monotonic_s() >= self._link_at_s:
            self._url = self._brokers.current
            try:
                self._link = self._brokers.make(self._instance).look()
                self._since_s = self._clock.monotonic_s()
            except (LinkLost, BrokerRefused, ConfigError) as error:
                self._lost(str(error))
        return self._link

    def _has_better(self) -> bool:
        """Return whether the service is at another broker, or a newer token is at hand."""
        is_elsewhere = self._url != self._brokers.current
        return is_elsewhere or self._brokers.login_outdated(self._since_s)

    def _lost(self, reason: str) -> None:
        """Give the link up for a while; each reason is logged once."""
        self._close_link()
        self._link_at_s = self._clock.monotonic_s() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _MAX_PAUSE_S)
        self._log_once(
            "outcomes_not_watched",
            reason=reason,
            meaning="outcomes stay unknown except for returns; redelivery continues",
        )

    def _log_once(self, event: str, *, reason: str, meaning: str) -> None:
        key = event, lasting_words(reason)
        if key not in self._told:
            self._told.add(key)
            # Why no warning: redelivery, our purpose, goes on.
            log.info(event, reason=reason, meaning=meaning)

    def _close_link(self) -> None:
        link, self._link = self._link, None
        if self._in_place is not None:
            self._in_place.leave()
        if link is not None:
            link.close()
