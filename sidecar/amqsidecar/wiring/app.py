"""The composition root: wires the service."""

import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

import structlog

from amqsidecar import __version__
from amqsidecar.broker import (
    BrokerKind,
    Delivery,
    ForeignToken,
    IntakeQueue,
    LeftBehind,
    LookSession,
)
from amqsidecar.clock import Clock, ClockStep, SystemClock, never_set
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.intake import Backlog
from amqsidecar.config.sections.policy import TopicPolicy
from amqsidecar.config.sections.redelivery import ExhaustedChoice
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.engine import crash_points
from amqsidecar.engine.allowed_origins import within
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.engine.foreign_tokens import orphans
from amqsidecar.engine.gates import Gates
from amqsidecar.engine.intake import named_queues
from amqsidecar.engine.judge import PropertiesOf, no_group, no_properties
from amqsidecar.engine.observation import ObservationTally, Observed, ObservedDeaths
from amqsidecar.engine.origin import ClassicOrigins, TrueOrigin, named_origin
from amqsidecar.engine.resend_copies import (
    ResendProblem,
    classic_resend_problem,
    no_resend_problem,
    resend_warnings,
)
from amqsidecar.errors import BrokerRefused, ConfigError, Problem
from amqsidecar.messages.kept_message import chosen_cause, chosen_properties, group_of
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import AnyEvent
from amqsidecar.plugin import Decider, Plugin
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import AddressSettingEntry, ArtemisRules
from amqsidecar.policy.chain import StoredDeadLetters
from amqsidecar.policy.classic_rules import BROKER_DEFAULTS, ClassicRules
from amqsidecar.policy.dead_letter_decider import DeadLetterDecider
from amqsidecar.policy_source.load import compile_policy, load_policy
from amqsidecar.runtime.broker_held import found_with_waiting, named_with_waiting
from amqsidecar.runtime.discovery import Discovery
from amqsidecar.runtime.housekeeping import Housekeeping
from amqsidecar.runtime.journaling import Journaling
from amqsidecar.runtime.live_policy import LivePolicy, SeenSettings
from amqsidecar.runtime.observer import Observer, ObserverLog, ObserverSettings
from amqsidecar.runtime.process import give_large_blocks_back, give_way_soon
from amqsidecar.runtime.service import (
    Service,
    ServiceHealth,
    ServiceSettings,
    tell_clock_step,
)
from amqsidecar.runtime.steady_clock import NOTICED_MS, SteadyClock
from amqsidecar.runtime.takeover import Takeover
from amqsidecar.store import SharedStore
from amqsidecar.stores.open import open_shared_store, open_store, store_folder
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.logs import LogEvents, configure_logs
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.telemetry.observed_log import LogObserved
from amqsidecar.wiring.gates import gates_at, load_gates, need_groups
from amqsidecar.wiring.http import serving_http
from amqsidecar.wiring.links import LinkMaker
from amqsidecar.wiring.operations import operating
from amqsidecar.wiring.outcomes import watching

log = structlog.get_logger("amqsidecar.wiring.app")

CRASH_POINT_VARIABLE = "AMQSIDECAR_CRASH_POINT"
"""For tests: `name:n` kills the process with SIGKILL when the place is reached the n-th time.

`name:n:SIGSTOP` freezes it there instead, until it gets SIGCONT.
"""


_CRASHES = {"": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}


def load_rules(config: Config, plugins: Mapping[str, Plugin]) -> ClassicRules | ArtemisRules | None:
    """Return the rules that the configuration names; None = none are named.

    Raises:
        ConfigError: with every problem found.
    """
    if config.policy.source is not None:
        return load_policy(config.policy.source, plugins)
    if config.policy.rules is not None:
        return load_policy(config.policy.rules, plugins)
    return None


class _Rules:
    """The rules of a running service: given ones, or what suits the broker that answered."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._plugins = load_plugins()
        self._config = config
        self._clock = clock
        self.given = load_rules(config, self._plugins)
        self._decider = None if self.given is None else _compile(self.given, self._plugins)
        self._discovery = Discovery(self.classic)
        self._seen = SeenSettings()
        self._kind: BrokerKind | None = None
        for warning in () if self.given is None else self.given.warnings:
            log.warning("policy_warning", meaning=warning)
        if self.classic is not None:
            for reason in resend_warnings(self.classic.interceptors, config.redelivery.allow):
                log.warning("redeliveries_parked", meaning=reason)

    def decider(self, link: LookSession) -> Decider:
        expected = self._config.broker.expected_kind
        kind = link.description.kind
        if expected is not None and expected is not kind:
            raise BrokerRefused(
                f"the broker is {kind.value}, but broker.kind says {expected.value}"
            )
        if kind is BrokerKind.CLASSIC and isinstance(self.given, ArtemisRules):
            what = (
                "holds address settings of Artemis, and the broker is Classic: name its "
                "activemq.xml, or the broker that these settings are of in broker.url"
            )
            raise ConfigError([Problem("policy.source", what)])
        if self._decider is not None:
            return self._decider
        if kind is BrokerKind.ARTEMIS:
            tells = link.features.settings
            assert tells is not None  # noqa: S101 - every wire to Artemis asks for them
            # Why: a broker that tells us nothing is refused before the first dead letter.
            tells.address_settings(["#"])
            log.info("policy", source="the broker's own address settings, read live")
            self._kind = kind
            return LivePolicy(tells, self._clock, self._config.discovery.interval_s, self._seen)
        log.info("policy", source="none given: the broker's default redelivery policy for all")
        self._kind = kind
        return _compile(BROKER_DEFAULTS, self._plugins)

    def acting(self) -> ClassicRules | ArtemisRules | Mapping[str, AddressSettingEntry] | None:
        """Return the rules that act; None = no broker answered yet. Any thread may call it."""
        if self.given is None and self._kind is BrokerKind.ARTEMIS:
            return self._seen.entries
        return self.given or (None if self._kind is None else BROKER_DEFAULTS)

    @property
    def classic(self) -> ClassicRules | None:
        """The given rules, if they are Classic's."""
        return self.given if isinstance(self.given, ClassicRules) else None

    def true_origin(self) -> TrueOrigin:
        return (
            named_origin if self.classic is None else ClassicOrigins(self.classic.dead_letter).find
        )

    def resend_problem(self) -> ResendProblem:
        """Return what tells where no re-send may go, or Classic would copy it.

        The latter as far as its rules are given.
        """
        options = self._config.redelivery
        problem: ResendProblem = no_resend_problem
        if self.classic is not None:
            problem = classic_resend_problem(self.classic.interceptors, options.allow)
        return within(options.allowed_origins, problem)

    def dead_letter_queue_of(self) -> Callable[[Delivery], Destination | None]:
        """Return what tells into which queue Classic put what died."""
        rules = self.classic or BROKER_DEFAULTS
        decider = DeadLetterDecider(rules.dead_letter)

        def find(delivery: Delivery) -> Destination | None:
            provenance = delivery.provenance
            if provenance.origin is None:
                return None
            dead_letter = DeadLetter(
                destination=provenance.origin,
                redelivery_count=provenance.redelivery_count,
                persistent=provenance.persistent,
                expired=provenance.expired,
            )
            decision = decider.decide(dead_letter, None)
            return decision.destination if isinstance(decision, DeadLetterTo) else None

        return find

    def intake(self, link: LookSession) -> Sequence[IntakeQueue]:
        return self._discovery.find(link)


def _compile(rules: ClassicRules | ArtemisRules, plugins: Mapping[str, Plugin]) -> Decider:
    decider = compile_policy(rules, plugins)
    if isinstance(rules, ClassicRules):
        return StoredDeadLetters(decider, rules.dead_letter)
    return decider


def crash_point_of(environ: Mapping[str, str]) -> CrashPoint:
    """Return where the environment wants this process to end, for tests; nowhere by default.

    Raises:
        ConfigError: it names no such place.
    """
    wish = environ.get(CRASH_POINT_VARIABLE, "")
    if not wish:
        return crash_points.no_crash
    name, _, when = wish.partition(":")
    count, _, how = when.partition(":")
    crash = _CRASHES.get(how)
    names = (*crash_points.ALL_NAMES, *crash_points.JOURNAL_NAMES)
    if name not in names or not count.isdigit() or crash is None:
        known = ", ".join(names)
        expected = f"expected one of {known} and a count, such as stored:3 or stored:3:SIGSTOP"
        raise ConfigError([Problem(CRASH_POINT_VARIABLE, expected)])
    left = int(count)

    def hit(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), crash)

    return hit


def service_settings(config: Config) -> ServiceSettings:
    """Return what a service needs to know of the configuration."""
    named = named_queues(config.intake.queues)
    return ServiceSettings(
        intake_queues=named_with_waiting(named) if config.store.url == BROKER_HELD else named,
        holds_backlog=config.intake.backlog is Backlog.HOLD,
        backlog_threshold=config.intake.backlog_threshold,
        final_suffix=config.redelivery.final_suffix,
        parks_topics=config.policy.topics is TopicPolicy.PARK,
        keeps_exhausted=config.redelivery.exhausted is ExhaustedChoice.KEEP,
        prefetch=config.intake.prefetch,
        max_messages=config.cycle.max_messages,
        max_wait_s=config.cycle.max_wait_ms / 1000,
        accepts_orphans=config.store.accept_orphans,
        discovery_interval_s=config.discovery.interval_s,
    )


class _Health(ServiceHealth):
    """Passes the service's own status to health answers and metrics."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics

    def link_up(self) -> None:
        self._health.link_up()
        self._metrics.set_link_up(True)
        self._metrics.set_token_awaited(False)

    def link_down(self, reason: str) -> None:
        self._health.link_down(reason)
        self._metrics.set_link_up(False)
        self._metrics.set_token_awaited(False)

    def taking(self, problem: str) -> None:
        self._health.taking(problem)
        self._metrics.set_taking_stopped(bool(problem))

    def token_awaited(self, reason: str) -> None:
        self._health.token_awaited(reason)
        self._metrics.set_token_awaited(True)

    def store_ok(self) -> None:
        self._health.store_ok()

    def store_failed(self, reason: str) -> None:
        self._health.store_failed(reason)

    def reconnected(self) -> None:
        self._metrics.reconnected()

    def left_behind(self, items: Sequence[LeftBehind]) -> None:
        self._metrics.set_left_behind(items)

    def foreign_tokens(self, items: Sequence[ForeignToken]) -> None:
        self._health.foreign_tokens(items)
        self._metrics.set_orphaned_tokens(len(orphans(items)))

    def clock(self, step: ClockStep) -> None:
        self._health.clock(step.behind_ms)
        self._metrics.clock(step)

    def intake(self, read_count: int, refused: Mapping[str, str], problem: str) -> None:
        self._health.intake(read_count, refused, problem)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT while the block runs."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _TokenlessHealth(_Health):
    """The same of an observer and of a service without a store, which need no token."""

    def link_up(self) -> None:
        self._health.looking()
        self._metrics.set_link_up(True)


class _ObserverLog(ObserverLog):
    """Sends what was observed to log and metrics."""

    def __init__(self, metrics: Metrics, log_observed: LogObserved) -> None:
        self._metrics = metrics
        self._log = log_observed

    def observe(self, items: Sequence[Observed]) -> None:
        self._metrics.observed(items)
        self._log.observe(items)

    def summary(self, tally: ObservationTally) -> None:
        self._log.summary(tally)


def require_url(config: Config) -> None:
    """See that a broker is named.

    Raises:
        ConfigError: none is.
    """
    if not config.broker.url:
        what = (
            "is not set: say where the broker listens, such as amqp://user@host:5672; "
            "`amqsidecar init` writes it"
        )
        raise ConfigError([Problem("broker.url", what)])


def run_observer(config: Config) -> int:
    """Observe, and log what a service would do, until SIGTERM or SIGINT; return the exit code.

    Needs no store and opens none.

    Raises:
        ConfigError: the configuration or the policy can't be used.
        BrokerRefused: the broker refuses us for good at the first attempt.
    """
    require_url(config)
    clock = SystemClock()
    configure_logs(config.log.level, config.log.format)
    rules = _Rules(config, clock)
    metrics, health = Metrics(config.http.metrics_destinations, clock), Health()
    links = LinkMaker(config, clock, rules=rules.classic)
    observer = Observer(
        make_link=links.make,
        candidates=links,
        make_decider=rules.decider,
        find_intake=rules.intake,
        dead_letter_queue_of=rules.dead_letter_queue_of(),
        observation=ObservedDeaths(
            holds_backlog=config.intake.backlog is Backlog.HOLD,
            backlog_threshold=config.intake.backlog_threshold,
        ),
        clock=clock,
        chance=random.Random().random,  # noqa: S311 - spreads load, protects nothing
        settings=ObserverSettings(
            intake_queues=named_queues(config.intake.queues),
            final_suffix=config.redelivery.final_suffix,
            parks_topics=config.policy.topics is TopicPolicy.PARK,
            keeps_exhausted=config.redelivery.exhausted is ExhaustedChoice.KEEP,
            discovery_interval_s=config.discovery.interval_s,
            interval_s=config.observe.interval_s,
            max_messages=config.observe.max_messages,
        ),
        health=_TokenlessHealth(health, metrics),
        tell=_ObserverLog(
            metrics, LogObserved(clock, config.observe.max_log_lines, gates_at=gates_at(config))
        ),
        true_origin=rules.true_origin(),
        resend_problem=rules.resend_problem(),
        cause_of=chosen_cause(config.intake.cause_properties),
    )
    with (
        serving_http(
            config,
            clock,
            health,
            metrics,
            rules.acting,
            has_store=False,
            gates_at=gates_at(config),
        ) as address,
        _signals(observer.stop),
    ):
        log.info("started", version=__version__, http=address, mode="observe")
        observer.run()
    log.info("stopped")
    return 0


def _takeover(
    config: Config, clock: Clock, links: LinkMaker, service: Service, metrics: Metrics
) -> AbstractContextManager[None]:
    """Settle, while the block runs, what other sidecars on the same schedule have left behind."""
    if not config.store.is_shared:
        return nullcontext()

    def make_store(instance: str | None) -> SharedStore:
        store = open_shared_store(config, clock, instance)
        if instance is not None:
            store.lock_for_service()
        return store

    return Takeover(
        make_store=make_store,
        make_link=links.make,
        make_engine=service.settler,
        every_s=config.store.lease_s / 2,
        taken_over=metrics.taken_over,
    ).running()


def _properties_of(config: Config) -> PropertiesOf:
    names = config.journal.properties
    return chosen_properties(names) if names else no_properties


def _journaling(
    config: Config, clock: Clock, instance: str, metrics: Metrics, crash_point: CrashPoint
) -> AbstractContextManager[None]:
    """Write the journal while the block runs, where one is wanted.

    Raises:
        ConfigError: what it needs is not installed.
    """
    options = config.journal
    if not options.path:
        return nullcontext()
    from amqsidecar.journals.folder import open_folder  # noqa: PLC0415 - only where it is wanted

    folder = open_folder(options.path, instance, lambda: crash_point("segment_hidden"))
    from amqsidecar.journals.writer import JournalWriter  # noqa: PLC0415 - an extra, which is there

    return Journaling(
        make_store=lambda: open_store(config, clock),
        writer=JournalWriter(
            folder, sidecar=options.name or instance, cause_text=options.cause_text
        ),
        clock=clock,
        gauges=metrics,
        segment_events=options.segment_events,
        segment_ms=options.segment_s * 1000,
        keep_ms=options.keep_days * 86_400_000,
        crash_point=crash_point,
    ).running()


def run_service(config: Config, environ: Mapping[str, str] = os.environ) -> int:
    """Run the service until SIGTERM or SIGINT; return the exit code.

    Raises:
        ConfigError: the configuration or the policy can't be used.
        BrokerRefused: the broker refuses us for good at the first attempt.
        StoreError: the store can't be opened.
    """
    require_url(config)
    give_large_blocks_back()
    give_way_soon()
    # Why two: the broker's own time is the wall clock's, a delay is nobody's to change.
    wall, steady = SystemClock(), SteadyClock()
    clock: Clock = wall if config.store.url == BROKER_HELD else steady
    configure_logs(config.log.level, config.log.format)
    crash_point = crash_point_of(environ)
    rules, gates = _Rules(config, clock), load_gates(config)
    metrics, health = Metrics(config.http.metrics_destinations, clock), Health()
    log_events = LogEvents(clock)

    def observe(events: Sequence[AnyEvent], stats: CycleStats | None) -> None:
        metrics.observe(events)
        log_events.observe(events)
        if stats is not None:
            metrics.cycle_finished(stats.duration_s, stats.taken + stats.sent)

    store = None if config.store.url == BROKER_HELD else open_store(config, clock)
    if store is not None:
        store.lock_for_service()
    journaling: AbstractContextManager[None] = nullcontext()
    looking: AbstractContextManager[None] = nullcontext()
    links = LinkMaker(config, wall, crash_point, rules.classic)
    try:
        if store is not None:
            # At once, so that one that can't be used ends the process and not a loop.
            state = store.open()
            instance = state.instance
            step = steady.start_at_least(state.taken_until_ms)
            if step.by_ms <= -NOTICED_MS:
                tell_clock_step(step)
                metrics.clock(step)
            journaling = _journaling(config, clock, instance, metrics, crash_point)
            store.keep_for_journal(bool(config.journal.path))
            looking = watching(config, clock, links, instance, metrics)
        service = Service(
            make_link=links.make,
            candidates=links,
            make_decider=rules.decider,
            find_intake=found_with_waiting(rules.intake) if store is None else rules.intake,
            store=store,
            clock=clock,
            look_at_clock=never_set if store is None else steady.look,
            chance=random.Random().random,  # noqa: S311 - spreads load, protects nothing
            settings=service_settings(config),
            health=(_TokenlessHealth if store is None else _Health)(health, metrics),
            observe=observe,
            crash_point=crash_point,
            true_origin=rules.true_origin(),
            resend_problem=rules.resend_problem(),
            properties_of=_properties_of(config),
            cause_of=chosen_cause(config.intake.cause_properties),
            group_of=group_of if need_groups(gates) else no_group,
            gates=Gates(gates, metrics.gate_waits) if gates else None,
        )
        housekeeping = Housekeeping(
            make_store=lambda: open_store(config, clock),
            clock=clock,
            gauges=metrics,
            keep_ms=config.history.keep_days * 86_400_000,
            max_events=config.history.max_events,
            folder=store_folder(config),
        )
        with (
            serving_http(
                config,
                clock,
                health,
                metrics,
                rules.acting,
                has_store=True,
                gates_at=gates_at(config),
            ) as address,
            _signals(service.stop),
            _takeover(config, clock, links, service, metrics),
            nullcontext() if store is None else operating(config, clock, service.wake, metrics),
            journaling,
            looking,
        ):
            if store is not None:
                housekeeping.plan(service.service_clock)
            service.service_clock.every(1.0, "log_summary", log_events.flush_if_due)
            log.info("started", version=__version__, http=address)
            service.run()
    finally:
        if store is not None:
            store.close()
        log_events.flush()
    log.info("stopped")
    return 0
