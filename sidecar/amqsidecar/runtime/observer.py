"""The observer: browses the dead-letter queues, decides, reports, and touches nothing.

It makes nothing in the broker that stays, takes nothing, sends nothing and has no store. Any number
of observers can run beside each other and beside a sidecar of any instance.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import structlog

from amqsidecar.broker import BrokerKind, Delivery, HeardDeaths, IntakeQueue, Link, LookSession
from amqsidecar.clock import Clock
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.observation import ObservationTally, Observed, ObservedDeaths
from amqsidecar.errors import BrokerRefused, DiscoveryRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.runtime.attempts import Attempts
from amqsidecar.runtime.intake_keeper import FindIntake
from amqsidecar.runtime.service import LinkLoop
from amqsidecar.runtime.work import MakeJudge
from amqsidecar.telemetry.health import Health

INSTANCE = "observer"
"""In the place of an instance's name; a broker sees it as part of the client id."""

CLASSIC_LOOK_MAX = 400
"""Where Classic's browsers end on a queue with a policy, unless maxBrowsePageSize is configured."""

SUMMARY_EVERY_S = 60.0
_TURN_S = 1.0

log = structlog.get_logger("amqsidecar.observer")

DeadLetterQueueOf = Callable[[Delivery], Destination | None]
"""Returns the dead-letter queue of a message that died; None = not known."""


class ObserverLog:
    """Receives observations; called in the observer's thread."""

    def observe(self, items: Sequence[Observed]) -> None:
        """These were seen for the first time."""

    def summary(self, tally: ObservationTally) -> None:
        """Report the totals since the start."""


class Observer:
    """Looks and decides until `stop`, over one link at a time; see `LinkLoop`."""

    def __init__(
        self,
        *,
        make_link: Callable[[str], Link],
        make_judge: MakeJudge,
        find_intake: FindIntake,
        dead_letter_queue_of: DeadLetterQueueOf,
        observation: ObservedDeaths,
        clock: Clock,
        attempts: Attempts,
        intake_queues: tuple[IntakeQueue, ...],
        discovery_interval_s: float,
        interval_s: float,
        max_messages: int,
        health: Health,
        observer_log: ObserverLog,
    ) -> None:
        """Prepare.

        Args:
            make_link: returns a link for an instance.
            make_judge: makes the judge of an open link.
            find_intake: finds dead-letter queues.
            dead_letter_queue_of: of a message that died.
            observation: keeps what was seen.
            clock: the time.
            attempts: to connect.
            intake_queues: empty = discover.
            discovery_interval_s: how often dead-letter queues are looked for again.
            interval_s: from one look to the next.
            max_messages: of each dead-letter queue that a look goes through.
            health: receives the state.
            observer_log: receives what was observed.
        """
        self._make_link = make_link
        self._make_judge = make_judge
        self._find_intake = find_intake
        self._dead_letter_queue_of = dead_letter_queue_of
        self._observation = observation
        self._clock = clock
        self._intake_queues = intake_queues
        self._discovery_interval_s = discovery_interval_s
        self._interval_s = interval_s
        self._max_messages = max_messages
        self._health = health
        self._observer_log = observer_log
        self._loop = LinkLoop("observer", attempts, health)
        self.stop = self._loop.stop
        self._told: set[str] = set()
        self._left_behind: tuple[LeftBehind, ...] = ()
        self._summary_at_s = 0.0

    def run(self) -> None:
        """Run until `stop`.

        Raises:
            BrokerRefused: a broker refused us for good when all were tried for the first time.
            ConfigError: at the first attempt a file can't be used.
        """
        self._summary_at_s = self._clock.monotonic_s() + SUMMARY_EVERY_S
        try:
            self._loop.run(self._run_link)
        finally:
            self._observer_log.summary(self._observation.tally)

    def _run_link(self) -> None:
        link = self._make_link(INSTANCE).look()
        with self._loop.current(link):
            names = IntakeNames(link.description.kind)
            judge = self._make_judge(link, names)
            hears = self._listen(link)
            self._find_queues(link, names)
            self._look(link, judge, names, is_heard=hears is not None)
            self._loop.up(link.description, mode="observe: nothing is taken, nothing is sent")
            self._drive(link, judge, names, hears)

    def _drive(
        self, link: LookSession, judge: Judge, names: IntakeNames, hears: HeardDeaths | None
    ) -> None:
        clock = self._clock
        since_s = clock.monotonic_s()
        look_at_s = since_s + self._interval_s
        find_at_s = since_s + self._discovery_interval_s
        while self._loop.goes_on(since_s):
            link.wait(max(0.0, min(_TURN_S, look_at_s - clock.monotonic_s())))
            if hears is not None:
                self._hear(hears, judge)
            now_s = clock.monotonic_s()
            if now_s >= find_at_s:
                self._find_queues(link, names)
                find_at_s = now_s + self._discovery_interval_s
            if now_s >= look_at_s:
                self._look(link, judge, names, is_heard=hears is not None)
                look_at_s = clock.monotonic_s() + self._interval_s
            if now_s >= self._summary_at_s:
                self._observer_log.summary(self._observation.tally)
                self._summary_at_s = now_s + SUMMARY_EVERY_S

    # Where dead letters are

    def _listen(self, link: LookSession) -> HeardDeaths | None:
        hears = link.features.deaths
        if hears is None:
            return None
        try:
            return hears.listen()
        except BrokerRefused as refused:
            self._log_once("deaths_not_heard", meaning=str(refused))
            return None

    def _find_queues(self, link: LookSession, names: IntakeNames) -> None:
        try:
            queues = tuple(self._intake_queues or self._find_intake(link))
        except DiscoveryRefused as refused:
            queues = names.queues or ()
            self._log_once("discovery_refused", meaning=f"{refused}; or name intake.queues")
        if queues == names.queues:
            return
        names.replace(queues)
        if queues:
            log.info("intake", queues=[item.destination.name for item in queues])
        else:
            log.warning(
                "intake_empty",
                meaning="no dead-letter queue is known, so nothing is observed: name them in "
                "intake.queues, or give the sidecar's user the right to query the broker",
            )

    # Looking and hearing

    def _look(self, link: LookSession, judge: Judge, names: IntakeNames, *, is_heard: bool) -> None:
        """Go through all queues once.

        Raises:
            BrokerRefused: not one of them can be looked into.
        """
        refused: dict[str, str] = {}
        queues = names.queues or ()
        skipped = self._observation.skipped_count
        self._observation.begin_look()
        for queue in queues:
            if self._loop.is_stopped():
                return
            try:
                seen = link.browse(queue, self._max_messages)
            except BrokerRefused as words:
                refused[str(queue.destination)] = str(words)
                self._log_once("not_looked_into", queue=str(queue.destination), meaning=str(words))
                continue
            self._report_more(link, queue, seen, is_heard=is_heard)
            # Why here: of all queues together the messages may be too many to hold.
            self._observer_log.observe(self._observation.look(judge, seen, self._clock.now_ms()))
        if refused and len(refused) == len(queues):
            raise BrokerRefused("; ".join(refused.values()))
        problem = "" if queues else "no dead-letter queue is known, so nothing is observed"
        self._health.intake(len(queues) - len(refused), refused, problem)
        self._observation.end_look()
        if self._observation.skipped_count > skipped:
            self._log_once(
                "not_judged",
                meaning="more dead letters are visible than can be remembered; the last ones are "
                "skipped: name fewer queues in intake.queues, or lower "
                "observe.max_messages",
            )
        self._report_left_behind(link.left_behind())

    def _hear(self, hears: HeardDeaths, judge: Judge) -> None:
        deaths = []
        for delivery in hears.heard():
            source = self._dead_letter_queue_of(delivery)
            if source is not None and judge.send_rules.is_intake(source):
                deaths.append(msgspec.structs.replace(delivery, source=source))
        if deaths:
            self._observer_log.observe(self._observation.hear(judge, deaths, self._clock.now_ms()))

    # What an operator has to know, once

    def _report_more(
        self, link: LookSession, queue: IntakeQueue, seen: Sequence[Delivery], *, is_heard: bool
    ) -> None:
        is_classic = link.description.kind is BrokerKind.CLASSIC
        later = "advisories report later deaths" if is_heard else "later deaths are not seen"
        for source, number in Counter(delivery.source for delivery in seen).items():
            is_cut = number >= self._max_messages
            if not is_cut and not (is_classic and number == CLASSIC_LOOK_MAX):
                continue
            count = 0 if is_classic else link.count(queue, 1_000_000_000)
            behind = f"of {count}" if count > number else "and there may be more"
            self._log_once(
                "sees_in_part",
                queue=str(source),
                meaning=f"a browse shows the first {number}, {behind}; {later}",
            )

    def _log_once(self, event: str, *, meaning: str, queue: str = "") -> None:
        key = f"{event} {queue}"
        if key not in self._told:
            self._told.add(key)
            log.warning(event, **({"queue": queue} if queue else {}), meaning=meaning)

    def _report_left_behind(self, items: tuple[LeftBehind, ...]) -> None:
        if items == self._left_behind:
            return
        self._left_behind = items
        self._health.left_behind(items)
        for item in items:
            self._log_once("left_behind", queue=str(item.queue), meaning=item.meaning)
