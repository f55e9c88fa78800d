"""The service with a schedule in a store: cycles, the token, final queues that are read back."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import structlog

from amqsidecar.broker import BrokerKind, IntakeQueue, Link, LookSession, TakeSession
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.foreign_tokens import (
    ORPHAN_MENDS,
    describe,
    foreign_sentence,
    has_other_rules,
    orphan_sentence,
)
from amqsidecar.engine.gates import NO_GATES, Gates
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.death_groups import DeathGroups
from amqsidecar.engine.judging.judge import Judge, Judging
from amqsidecar.engine.judging.noted import CauseNotes, NotedJudge
from amqsidecar.engine.judging.one_queue import OneQueue
from amqsidecar.engine.judging.paired import PairedJudge
from amqsidecar.engine.judging.reported import ReportJudge, Reports
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.recall import FinalQueues, RecallJudge
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.errors import BrokerRefused, ConfigError, Problem
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.foreign_token import ForeignToken, orphans
from amqsidecar.model.row_changes import Exhausting
from amqsidecar.model.schedule import StoreState
from amqsidecar.operations.failures.former_groups import learn_cause_groups
from amqsidecar.runtime.late_notes import LateCauseNotes
from amqsidecar.runtime.mode import LiveMode
from amqsidecar.runtime.recalling import Recalling
from amqsidecar.runtime.work import EngineParts, MakeJudge, OpenedLink, Work
from amqsidecar.schedule import Schedule
from amqsidecar.store import Store
from amqsidecar.telemetry.health import Health


class TokenWatch:
    """Reports tokens of schedules that this sidecar does not know, at each start and periodically.

    Such a token without a consumer is an orphan: no sidecar sends the messages of its schedule. A
    changed `store.url`, a renamed release or another volume leaves it behind.
    """

    def __init__(self, *, accepts_orphans: bool, rules_digest: str) -> None:
        self._rules_digest = rules_digest
        self._accepts_orphans = accepts_orphans
        self._told: frozenset[tuple[str, bool, str]] = frozenset()
        self._is_refused = False

    def check_start(self, link: LookSession, store: Store, state: StoreState) -> None:
        """See that a store that was never used does not begin beside an orphan.

        Raises:
            ConfigError: it would.
            LinkLost: the connection is gone.
        """
        known = _known(store, state)
        if self._accepts_orphans or state.token_created or len(known) > 1:
            return
        found = orphans(self._find(link, known))
        if found:
            what = f"this store is new, and {orphan_sentence(found)}; {ORPHAN_MENDS}"
            raise ConfigError([Problem("store.url", what)])

    def look(self, link: LookSession, store: Store, state: StoreState) -> tuple[ForeignToken, ...]:
        """Return the tokens of other schedules; log tokens that are new since the last look.

        Raises:
            LinkLost: the connection is gone.
        """
        found = self._find(link, _known(store, state))
        for one in found:
            if _said_of(one) in self._told:
                continue
            if one.is_held:
                meaning = foreign_sentence(one, self._rules_digest)
                say = log.warning if has_other_rules(one, self._rules_digest) else log.info
                say("foreign_sidecar", queue=describe(one), meaning=meaning)
            else:
                meaning = f"{orphan_sentence([one])}; {ORPHAN_MENDS}"
                log.warning("orphaned_token", queue=describe(one), meaning=meaning)
        self._told = frozenset(map(_said_of, found))
        return found

    def _find(self, link: LookSession, known: frozenset[str]) -> tuple[ForeignToken, ...]:
        try:
            return link.foreign_tokens(known)
        except BrokerRefused as refused:
            if not self._is_refused:
                self._is_refused = True
                log.info("foreign_tokens_unknown", reason=str(refused))
            return ()


def _said_of(token: ForeignToken) -> tuple[str, bool, str]:
    return token.instance, token.is_held, token.rules_digest


def _known(store: Store, state: StoreState) -> frozenset[str]:
    shared = store.instances()
    return frozenset((state.instance, *(one.instance for one in shared)))


GIVES_BACK = "messages in hand that can't be sent now go back to their dead-letter queues"
TOKEN_WAIT_S = 2.0
"""How long one attempt to get the token takes."""

HELD_ELSEWHERE = (
    "another process still holds the token of this instance, or the broker holds it for a dead "
    "one; nothing is taken until it is free"
)

CLASSIC_COUNT_LIMIT = 400
"""Classic's browsers see no further (maxBrowsePageSize)."""

log = structlog.get_logger("amqsidecar.service")


class StoredSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a service with a store.

    Attributes:
        holds_backlog: hold dead letters that were there before the sidecar.
        backlog_threshold: a queue with at most this many messages isn't a backlog.
        exhausting: see `Judge`.
        accepts_orphans: a new store begins also where tokens of other schedules are left.
        rules_digest: of the rules that decide, compared with other sidecars' rules.
    """

    holds_backlog: bool
    backlog_threshold: int
    exhausting: Exhausting
    accepts_orphans: bool
    rules_digest: str


class StoredMode:
    """Opens links that work on one schedule; `open` and its links belong to one thread."""

    def __init__(
        self,
        *,
        schedule: Schedule,
        make_link: Callable[[str], Link],
        make_judge: MakeJudge,
        parts: EngineParts,
        gates: Gates,
        settings: StoredSettings,
        health: Health,
        death_groups: DeathGroups,
        mode: LiveMode,
        notes: CauseNotes | None = None,
        reports: Reports | None = None,
    ) -> None:
        self.notes = notes
        self._reports = reports
        self.own_queues = [one for one in (notes, reports) if one is not None]
        self.mode = mode
        self.renew: Callable[[str], None] = lambda _reason: None
        self.death_groups = death_groups
        self.schedule = schedule
        self.settings = settings
        self.parts = parts
        self.health = health
        self.finals = FinalQueues()
        self.tokens = TokenWatch(
            accepts_orphans=settings.accepts_orphans, rules_digest=settings.rules_digest
        )
        self._make_link = make_link
        self.make_judge = make_judge
        self._gates = gates
        self._blockages = Blockages()
        self._losses = Losses()
        self._room_problem = ""

    def open(self) -> OpenedLink:
        """Open the schedule again and a link for its instance; see `OpenLink`."""
        state = self.schedule.reopen()
        self.health.store_ok()
        self.death_groups.learn(learn_cause_groups(self.schedule))
        session = self._make_link(state.instance).take(TOKEN_QUEUE_PREFIX + state.instance)
        return OpenedLink(state.instance, session, partial(self._begin, session, state))

    def settler(self, link: TakeSession, store: Schedule) -> CycleEngine:
        """Return an engine like ours for a link and a store that another thread has."""
        judge = self.make_judge(link, IntakeNames(link.description.kind))
        return self._make_engine(link, store, judge, self._make_backlog(link), NO_GATES, None)

    def _make_backlog(self, link: TakeSession) -> BacklogGate:
        """Return the gate that holds the backlog of a link's queues."""
        is_classic = link.description.kind is BrokerKind.CLASSIC

        def count(source: Destination) -> int:
            if self.finals.covers(source) or any(one.is_at(source) for one in self.own_queues):
                return 0
            return link.count(IntakeQueue(source), 1_000_000_000)

        return BacklogGate(
            count,
            holds=self.settings.holds_backlog,
            threshold=self.settings.backlog_threshold,
            count_limit=CLASSIC_COUNT_LIMIT if is_classic else None,
            is_newborn=link.is_newborn,
        )

    def _begin(
        self,
        link: TakeSession,
        state: StoreState,
        is_stopped: Callable[[], bool],
        wake_at: Callable[[int], None],
    ) -> Work | None:
        """Wait until the instance is ours; see `OpenedLink`."""
        self.mode.begin(link)
        self.tokens.check_start(link, self.schedule, state)
        names, backlog = IntakeNames(link.description.kind), self._make_backlog(link)
        judge = self.make_judge(link, names)
        engine = self._make_engine(link, self.schedule, judge, backlog, self._gates, wake_at)
        is_wait_logged = False
        while not engine.recover(state, TOKEN_WAIT_S):
            if is_stopped():
                return None
            # Why: an attempt that fails may have settled the last cycle before.
            state = self.schedule.state()
            if not is_wait_logged:
                self.health.token_awaited(HELD_ELSEWHERE)
                log.warning("token_awaited", instance=state.instance, reason=HELD_ELSEWHERE)
                is_wait_logged = True
            self.health.left_behind(link.left_behind())
        if self.notes is not None and str(self.notes.queue) not in self.schedule.holds():
            # Why: no program on this schedule redirects to a queue that it has read.
            with self.schedule.transaction() as tx:
                tx.set_hold(str(self.notes.queue), 0)
        return _StoredWork(self, link, engine, names, backlog, judge.send_rules, state)

    def _make_engine(
        self,
        link: TakeSession,
        store: Schedule,
        judge_of_deaths: Judge,
        backlog: BacklogGate,
        gates: Gates,
        wake_at: Callable[[int], None] | None,
    ) -> CycleEngine:
        """Return an engine over a link and a store."""
        bound, keeps = self.parts.cycle_size(link), self.settings.exhausting.keeps_exhausted
        lying = {one.queue for one in store.exhausted_tallies() if one.is_in_queue}
        judge_of_deaths.send_rules.note_finals(map(parse_destination, lying))
        paired = PairedJudge(judge_of_deaths, store.known_lives)
        judge: Judging = RecallJudge(
            paired,
            store,
            self.finals,
            None if self.mode.has_left else lying,
            self.mode.now,
            keeps_exhausted=keeps,
            holds_backlog=self.settings.holds_backlog,
        )
        if self.notes is not None:
            judge = NotedJudge(judge, self.notes, OneQueue(link, self.notes.is_copied).holds)
        if self._reports is not None:
            judge = ReportJudge(judge, self._reports)
        return CycleEngine(
            link=link,
            store=store,
            judge=judge,
            backlog=backlog,
            clock=self.parts.clock,
            limits=CycleLimits(max_taken=bound, max_sent=bound),
            observe=self.parts.observe,
            blockages=self._blockages,
            losses=self._losses,
            gates=gates,
            wake_at=wake_at,
            crash_point=self.parts.crash_point,
            from_place=self.finals.place,
            adopts_tokens=self.settings.accepts_orphans,
        )

    def report_room(self) -> None:
        """Report whether the store has room to take dead letters."""
        problem = self.schedule.room().reason
        self.health.taking(problem)
        if bool(problem) == bool(self._room_problem):
            return
        self._room_problem = problem
        if problem:
            log.warning("taking_stopped", reason=problem)
        else:
            log.info("taking_again")


class _StoredWork:
    """See `Work`."""

    def __init__(
        self,
        mode: StoredMode,
        link: TakeSession,
        engine: CycleEngine,
        names: IntakeNames,
        backlog: BacklogGate,
        send_rules: SendRules,
        state: StoreState,
    ) -> None:
        self.engine = engine
        self.names = names
        self.cycle_size = mode.parts.cycle_size(link)
        self._mode = mode
        self._link = link
        self._backlog = backlog
        self._state = state
        exhausting = mode.settings.exhausting
        self._recalling = Recalling(
            mode.schedule,
            link,
            mode.finals,
            mode.parts.clock,
            final_suffix=exhausting.final_suffix,
            keeps_exhausted=exhausting.keeps_exhausted,
            admit=engine.admit if mode.mode.now.redelivers else None,
        )
        self._late_notes: tuple[LateCauseNotes, ...] = ()
        if mode.notes is not None:
            self._late_notes = (
                LateCauseNotes(
                    mode.notes,
                    mode.schedule,
                    engine,
                    send_rules.redirect_problem,
                    OneQueue(link, mode.notes.is_copied).holds,
                    mode.death_groups.of_late_note,
                    mode.parts.clock,
                    exhausting,
                ),
            )

    def queues_besides(self) -> Sequence[IntakeQueue]:
        # Why an origin: Classic over AMQP reads no queue without.
        own = (IntakeQueue(one.queue, origin=one.queue) for one in self._mode.own_queues)
        return [*self._recalling.queues(), *own]

    def meet(self, queues: Sequence[Destination]) -> None:
        for queue in queues:
            self._backlog.meet(queue)

    def look_for_tokens(self) -> None:
        mode = self._mode
        mode.health.foreign_tokens(mode.tokens.look(self._link, mode.schedule, self._state))

    def tend(self) -> bool:
        if self._mode.finals.place.gives_back:
            self._mode.renew(GIVES_BACK)
        self._mode.report_room()
        self._mode.schedule.keep()
        for one in self._late_notes:
            one.tend()
        return self._recalling.tend()
