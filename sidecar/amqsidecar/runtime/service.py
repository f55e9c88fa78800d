"""The service: owns the link, reconnects, and drives the engine until it is told to stop."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event as Flag

import msgspec
import structlog

from amqsidecar.broker import (
    FINAL_SUFFIX,
    REFUSED,
    BrokerKind,
    ForeignToken,
    IntakeQueue,
    IntakeSession,
    LeftBehind,
    Link,
    LookSession,
    MoveSession,
    TakeSession,
)
from amqsidecar.clock import Clock, ClockStep, never_set
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.cycle_events import CycleObserver
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.gates import Gates
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judge import (
    CauseOf,
    GroupOf,
    Judge,
    JudgeSettings,
    PropertiesOf,
    no_cause,
    no_group,
    no_properties,
)
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.move_cycle import MoveEngine
from amqsidecar.engine.origin import TrueOrigin, named_origin
from amqsidecar.engine.recall import FinalQueues, RecallJudge
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.engine.resend_copies import ResendProblem, no_resend_problem
from amqsidecar.errors import BrokerRefused, ConfigError, LinkLost, StoreUnavailable
from amqsidecar.model.destination import Destination
from amqsidecar.model.schedule import StoreState
from amqsidecar.plugin import Chance, Decider
from amqsidecar.runtime.attempts import Attempts, Candidates, OneBroker
from amqsidecar.runtime.broker_held import INSTANCE, open_to_move
from amqsidecar.runtime.intake_keeper import FindIntake, IntakeKeeper
from amqsidecar.runtime.recalling import Recalling, RecallStore
from amqsidecar.runtime.service_clock import ServiceClock
from amqsidecar.runtime.token_watch import TokenWatch
from amqsidecar.store import SharedStore, Store

TOKEN_WAIT_S = 2.0
"""How long one attempt to get the token takes."""

HELD_ELSEWHERE = (
    "another process, or the broker for a dead one, still holds the token of this instance; "
    "nothing is taken until it is free"
)

MAX_MESSAGES = 1000
"""Of one cycle, unless the link or the operator says otherwise."""

CLASSIC_COUNT_LIMIT = 400
"""Classic's browsers see no further (maxBrowsePageSize)."""

SHORTEST_LOOK_S = 1.0
"""Time between two looks for queues, however often the broker tells of new ones."""

log = structlog.get_logger("amqsidecar.service")


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decides about a service.

    Attributes:
        intake_queues: empty = discover.
        holds_backlog: hold dead letters that were there before the sidecar.
        backlog_threshold: a queue that holds no more is no backlog.
        final_suffix, keeps_exhausted: see `JudgeSettings`.
        parks_topics: see `JudgeSettings`; acts on Classic only.
        prefetch: 0 = by broker.
        max_messages: bound of one cycle; 0 = by broker.
        max_wait_s: how long a turn waits at most; what another process changed in the store is
            seen after this.
        accepts_orphans: a new store begins also where tokens of other schedules are left.
        discovery_interval_s: how often dead-letter queues are looked for again.
        first_backoff_s, max_backoff_s: waits between attempts to connect.
    """

    intake_queues: tuple[IntakeQueue, ...] = ()
    holds_backlog: bool = True
    backlog_threshold: int = 100
    final_suffix: str = FINAL_SUFFIX
    parks_topics: bool = True
    keeps_exhausted: bool = False
    prefetch: int = 0
    max_messages: int = 0
    max_wait_s: float = 1.0
    accepts_orphans: bool = False
    discovery_interval_s: float = 30.0
    first_backoff_s: float = 0.5
    max_backoff_s: float = 30.0


class ServiceHealth:
    """What the service says of itself; the methods are called in the service's thread."""

    def link_up(self) -> None:
        """The link is up, the token is ours, the intake reads."""

    def taking(self, problem: str) -> None:
        """Dead letters are taken; or why the store has no room for them; told each second."""

    def link_down(self, reason: str) -> None:
        """Nothing is read or sent for now."""

    def token_awaited(self, reason: str) -> None:
        """The link is up, but the token isn't ours yet."""

    def store_ok(self) -> None:
        """The store takes writes."""

    def store_failed(self, reason: str) -> None:
        """The store does not take writes; nothing is read or sent for now."""

    def reconnected(self) -> None:
        """A link that had been up is up again."""

    def left_behind(self, items: Sequence[LeftBehind]) -> None:
        """These stay in the dead-letter queues; told anew after each look for queues."""

    def foreign_tokens(self, items: Sequence[ForeignToken]) -> None:
        """These tokens of other schedules are in the broker; told anew after each look."""

    def clock(self, step: ClockStep) -> None:
        """The wall clock was looked at, and perhaps somebody had set it; told each second."""

    def intake(self, read_count: int, refused: Mapping[str, str], problem: str) -> None:
        """So many queues are read, these are refused; told anew after each look for queues.

        Args:
            read_count: names and wildcards.
            refused: the broker's words by queue.
            problem: why nothing at all can be read; "" = something is, or may be found any time.
        """


_Begun = tuple[CycleEngine | MoveEngine, IntakeNames, BacklogGate]


def tell_clock_step(step: ClockStep) -> None:
    """Log that somebody has set the wall clock, and what that does to delays."""
    log.warning(
        "clock_stepped",
        set_by_s=step.by_ms / 1000,
        behind_wall_clock_s=step.behind_ms / 1000,
        meaning="waiting messages keep their delay: the schedule follows the machine's uptime and "
        "closes the gap to the wall clock by a twentieth of the time that passes",
    )


MakeDecider = Callable[[LookSession], Decider]
"""Rules may come from the live broker, so they are made when the link is open."""


class Service:
    """One sidecar: one store, one link at a time."""

    def __init__(
        self,
        *,
        make_link: Callable[[str], Link],
        make_decider: MakeDecider,
        find_intake: FindIntake,
        store: Store | None,
        clock: Clock,
        look_at_clock: Callable[[], ClockStep] = never_set,
        chance: Chance,
        settings: ServiceSettings,
        health: ServiceHealth,
        observe: CycleObserver,
        crash_point: CrashPoint = no_crash,
        true_origin: TrueOrigin = named_origin,
        properties_of: PropertiesOf = no_properties,
        cause_of: CauseOf = no_cause,
        group_of: GroupOf = no_group,
        resend_problem: ResendProblem = no_resend_problem,
        candidates: Candidates | None = None,
        gates: Gates | None = None,
    ) -> None:
        self._make_link = make_link
        self._make_decider = make_decider
        self._intake = IntakeKeeper(settings.intake_queues, find_intake, health.intake)
        self._store = store
        self._clock = clock
        self._look_at_clock = look_at_clock
        self._chance = chance
        self._settings = settings
        self._health = health
        self._observe = observe
        self._crash_point = crash_point
        self._true_origin = true_origin
        self._properties_of = properties_of
        self._cause_of = cause_of
        self._group_of = group_of
        self._resend_problem = resend_problem
        self._gates = gates
        self._stop = Flag()
        self._look_again = Flag()
        self._link: LookSession | None = None
        self._blockages = Blockages()
        self._losses = Losses()
        self._candidates = candidates or OneBroker()
        self._attempts = Attempts(
            self._candidates, settings.first_backoff_s, settings.max_backoff_s, chance
        )
        self._finals = FinalQueues()
        self._recalling: Recalling | None = None
        self._is_up = False
        self._tokens = TokenWatch(accepts_orphans=settings.accepts_orphans)
        self._left_behind: tuple[LeftBehind, ...] = ()
        self._room_problem = ""
        self.service_clock = ServiceClock(self.wake, clock)

    # ------------------------------------------------------------------ for other threads

    def stop(self) -> None:
        """Finish the running cycle, then leave `run`; may be called from a signal handler."""
        self._stop.set()
        self.wake()

    def wake(self) -> None:
        """End a running wait."""
        link = self._link
        if link is not None:
            link.wake()

    def look_again(self) -> None:
        """Look for dead-letter queues again, soon."""
        self._look_again.set()
        self.wake()

    def settler(self, link: TakeSession, store: Store) -> CycleEngine:
        """Return an engine like ours for a link and a store that another thread has."""
        engine, _, _ = self._make_engine(link, store)
        return engine

    # ------------------------------------------------------------------ the service's own thread

    def run(self) -> None:
        """Run until `stop`.

        Raises:
            BrokerRefused: a broker refused us for good when all were tried for the first time.
            ConfigError: at the first attempt a file can't be used.
        """
        self.service_clock.start()
        self.service_clock.every(self._settings.discovery_interval_s, "discovery", self.look_again)
        try:
            is_first = True
            while not self._stop.is_set() and not self._run_once(is_first=is_first):
                is_first = False
        finally:
            self.service_clock.stop()

    def _run_once(self, *, is_first: bool) -> bool:
        """Run one link until it ends; return whether it was told to stop, else wait."""
        attempts = self._attempts
        self._is_up = False
        self._watch_clock()
        try:
            self._run_link(has_been_up=attempts.has_been_up)
        except (LinkLost, BrokerRefused, ConfigError) as error:
            reason, pause_s = attempts.fault(error, was_up=self._is_up, is_first=is_first)
        except StoreUnavailable as failed:
            reason = f"the store fails: {failed}"
            self._health.store_failed(str(failed))
            pause_s = attempts.ended()
        else:
            return True
        self._health.link_down(reason)
        log.warning("link_down", reason=reason, next_attempt_s=round(pause_s, 2))
        self._stop.wait(pause_s)
        return False

    def _run_link(self, *, has_been_up: bool) -> None:
        state = None
        if self._store is not None:
            self._store.close()
            state = self._store.open()
            self._health.store_ok()
        instance = INSTANCE if state is None else state.instance
        link = self._make_link(instance)
        begun: _Begun | None
        if self._store is None or state is None:
            moving = open_to_move(link)
            with self._current(moving):
                begun = self._begin_to_move(moving)
                self._work(moving, begun, None, instance, has_been_up=has_been_up)
            return
        taking = link.take(TOKEN_QUEUE_PREFIX + instance)
        with self._current(taking):
            begun = self._begin(taking, self._store, state)
            if begun is not None:
                self._work(taking, begun, state, instance, has_been_up=has_been_up)

    @contextmanager
    def _current(self, session: LookSession) -> Iterator[None]:
        """Let other threads wake this session until the block ends, then close it."""
        self._link = session
        try:
            yield
        finally:
            self._link = self._recalling = None
            session.close()

    def _work(
        self,
        link: IntakeSession,
        begun: _Begun,
        state: StoreState | None,
        instance: str,
        *,
        has_been_up: bool,
    ) -> None:
        """Redeliver over a session until we are told to stop."""
        engine, names, backlog = begun
        self._recalling = self._make_recalling(link)
        self._look_for_queues(link, names, backlog)
        self._look_for_tokens(link, state)
        self._is_up = True
        self._attempts.up()
        self._health.link_up()
        if has_been_up:
            self._health.reconnected()
        log.info(
            "link_up",
            url=self._candidates.current,
            broker=link.description.kind.value,
            version=link.description.version,
            instance=instance,
        )
        self._drive(engine, link, names, backlog, state)
        engine.settle_up()

    def _begin(self, link: TakeSession, store: Store, state: StoreState) -> _Begun | None:
        """Wait until the instance is ours; None = told to stop before."""
        self._tokens.check_start(link, store, state)
        engine, names, backlog = self._make_engine(link, store, self._gates)
        is_waiting_told = False
        while not engine.recover(state, TOKEN_WAIT_S):
            if self._stop.is_set():
                return None
            # Why: an attempt that fails may have settled the last cycle before.
            state = store.open()
            if not is_waiting_told:
                self._health.token_awaited(HELD_ELSEWHERE)
                log.warning("token_awaited", instance=state.instance, reason=HELD_ELSEWHERE)
                is_waiting_told = True
            self._tell_left_behind(link.left_behind())
        return engine, names, backlog

    def _begin_to_move(self, link: MoveSession) -> _Begun:
        """Make what moves dead letters on a broker that keeps what waits."""
        names = IntakeNames(link.description.kind)
        engine = MoveEngine(
            link=link,
            judge=self._make_judge(link, names),
            uid=secrets.token_hex(8),
            clock=self._clock,
            max_messages=self._max_messages(link),
            observe=self._observe,
            blockages=self._blockages,
            losses=self._losses,
            crash_point=self._crash_point,
        )
        return engine, names, BacklogGate(lambda _source: 0, holds=False, threshold=0)

    def _drive(
        self,
        engine: CycleEngine | MoveEngine,
        link: IntakeSession,
        names: IntakeNames,
        backlog: BacklogGate,
        state: StoreState | None,
    ) -> None:
        shared = self._store if isinstance(self._store, SharedStore) else None
        not_before_s = self._clock.monotonic_s() + SHORTEST_LOOK_S
        has_changed = False
        while not self._stop.is_set():
            engine.turn(self._settings.max_wait_s)
            self._tell_room()
            self._watch_clock()
            if shared is not None:
                shared.keep()
            if link.queues_changed():
                has_changed = True
            if self._recalling is not None and self._recalling.tend():
                self._look_for_queues(link, names, backlog)
            is_time = has_changed and self._clock.monotonic_s() >= not_before_s
            if self._look_again.is_set():
                self._look_again.clear()
                is_time = True
                self._look_for_tokens(link, state)
            if is_time:
                has_changed = False
                self._look_for_queues(link, names, backlog)
                not_before_s = self._clock.monotonic_s() + SHORTEST_LOOK_S

    def _tell_room(self) -> None:
        """Return whether the store has room to take dead letters."""
        if self._store is None:
            return
        problem = self._store.room().reason
        self._health.taking(problem)
        if bool(problem) == bool(self._room_problem):
            return
        self._room_problem = problem
        if problem:
            log.warning("taking_stopped", reason=problem)
        else:
            log.info("taking_again")

    def _watch_clock(self) -> None:
        step = self._look_at_clock()
        self._health.clock(step)
        if step.by_ms:
            tell_clock_step(step)
            self.service_clock.wall_clock_was_set()

    def _look_for_queues(
        self, link: IntakeSession, names: IntakeNames, backlog: BacklogGate
    ) -> None:
        prefetch = self._settings.prefetch or 2 * self._max_messages(link)
        finals = [] if self._recalling is None else self._recalling.queues()
        items = self._intake.look(link, names, prefetch, finals)
        for queue in link.queues_read():
            backlog.meet(queue)
        self._tell_left_behind(items)

    def _make_recalling(self, link: IntakeSession) -> Recalling | None:
        store = self._store
        if not isinstance(store, RecallStore):
            return None
        return Recalling(
            store,
            link,
            self._finals,
            self._clock,
            final_suffix=self._settings.final_suffix,
            keeps_exhausted=self._settings.keeps_exhausted,
        )

    def _look_for_tokens(self, link: IntakeSession, state: StoreState | None) -> None:
        if self._store is not None and state is not None:
            self._health.foreign_tokens(self._tokens.look(link, self._store, state))

    def _tell_left_behind(self, items: tuple[LeftBehind, ...]) -> None:
        if items == self._left_behind:
            return
        self._left_behind = items
        self._health.left_behind(items)
        for item in items:
            if item.reason == REFUSED:
                continue
            log.warning(
                "left_behind",
                queue=str(item.queue),
                count=item.count,
                at_least=item.at_least,
                reason=item.reason,
                meaning=item.meaning,
            )

    def _max_messages(self, link: IntakeSession) -> int:
        if self._settings.max_messages:
            return self._settings.max_messages
        return link.features.preferred_batch or MAX_MESSAGES

    def _make_engine(
        self, link: TakeSession, store: Store, gates: Gates | None = None
    ) -> tuple[CycleEngine, IntakeNames, BacklogGate]:
        settings = self._settings
        is_classic = link.description.kind is BrokerKind.CLASSIC
        names = IntakeNames(link.description.kind)
        backlog = BacklogGate(
            lambda source: self._count(link, source),
            holds=settings.holds_backlog,
            threshold=settings.backlog_threshold,
            count_limit=CLASSIC_COUNT_LIMIT if is_classic else None,
            is_newborn=link.is_newborn,
        )
        bound = self._max_messages(link)
        engine = CycleEngine(
            link=link,
            store=store,
            judge=RecallJudge(
                self._make_judge(link, names),
                store,
                self._finals,
                link.description.encoding,
                keeps_exhausted=settings.keeps_exhausted,
            ),
            backlog=backlog,
            clock=self._clock,
            limits=CycleLimits(max_taken=bound, max_sent=bound),
            observe=self._observe,
            blockages=self._blockages,
            losses=self._losses,
            gates=gates,
            wake_at=self.service_clock.wake_at,
            crash_point=self._crash_point,
            adopts_tokens=settings.accepts_orphans,
        )
        return engine, names, backlog

    def _count(self, link: IntakeSession, source: Destination) -> int:
        """Return how many messages of a dead-letter queue may be backlog."""
        if self._finals.covers(source):
            return 0
        return link.count(IntakeQueue(source), 1_000_000_000)

    def _make_judge(self, link: IntakeSession, names: IntakeNames) -> Judge:
        is_classic = link.description.kind is BrokerKind.CLASSIC
        return Judge(
            self._make_decider(link),
            names.covers,
            JudgeSettings(
                encoding=link.description.encoding,
                final_suffix=self._settings.final_suffix,
                parks_topics=is_classic and self._settings.parks_topics,
                keeps_exhausted=self._settings.keeps_exhausted,
            ),
            self._chance,
            self._true_origin,
            self._properties_of,
            self._cause_of,
            self._group_of,
            self._resend_problem,
        )
