"""Common parts of all modes of the running program."""

import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

import structlog

from amqsidecar import __version__
from amqsidecar.broker import IntakeQueue
from amqsidecar.clock import Clock, ClockStep
from amqsidecar.config.schema import Config
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.event import AnyEvent
from amqsidecar.runtime.attempts import FIRST_PAUSE_S, LONGEST_PAUSE_S, Attempts
from amqsidecar.runtime.intake_keeper import FindIntake, IntakeKeeper
from amqsidecar.runtime.left_behind import LeftBehindNews
from amqsidecar.runtime.process import collect_seldom
from amqsidecar.runtime.service import Service
from amqsidecar.runtime.work import EngineParts, OpenLink
from amqsidecar.schedule import OpenSchedule, Schedule
from amqsidecar.telemetry.audit import open_audit
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.logs import LogEvents, configure_logs
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.wiring.http import serving_http
from amqsidecar.wiring.links import LinkMaker
from amqsidecar.wiring.rules import RunningRules, gates_at
from amqsidecar.wiring.schedules import open_schedule

log = structlog.get_logger("amqsidecar.wiring.app")


class ProcessParts:
    """The rules, the links and the telemetry of one process.

    Attributes:
        clock: of the schedule.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        link_clock: Clock,
        crash_point: CrashPoint,
        *,
        needs_token: bool,
    ) -> None:
        """Make them.

        Args:
            config: the options.
            clock: of the schedule.
            link_clock: of links.
            crash_point: where a test ends the process.
            needs_token: see `Health`.

        Raises:
            ConfigError: the configuration or the policy can't be used.
        """
        configure_logs(config.log.level, config.log.format)
        open_audit(config.log.audit)
        self.config = config
        self.clock = clock
        self.crash_point = crash_point
        self.chance = random.Random().random  # noqa: S311 - spreads load, protects nothing
        self.rules = RunningRules(config, clock)
        self.health = Health(needs_token=needs_token)
        self.metrics = Metrics(config.http.metrics_destinations, clock, self.health.state)
        self.log_events = LogEvents(clock)
        self.links = LinkMaker(
            config, link_clock, crash_point, self.rules.classic, self.rules.digest
        )
        self.attempts = Attempts(self.links, FIRST_PAUSE_S, LONGEST_PAUSE_S, self.chance)

    def open_schedule(self) -> Schedule:
        """Open the schedule that the options name; see `open_schedule`."""
        return open_schedule(self.config, self.clock)

    def engine_parts(self) -> EngineParts:
        """Return the inputs of engines."""
        return EngineParts(
            clock=self.clock,
            observe=self._observe,
            crash_point=self.crash_point,
            max_messages=self.config.cycle.max_messages,
        )

    def make_service(
        self,
        open_link: OpenLink,
        named: Sequence[IntakeQueue],
        find_intake: FindIntake,
        look_at_clock: Callable[[], ClockStep],
        left_behind: LeftBehindNews,
    ) -> Service:
        """Return the service.

        Args:
            open_link: of its mode.
            named: the queues that the operator named; none = find them.
            find_intake: finds the others.
            look_at_clock: whether the wall clock was set.
            left_behind: reports messages that stay.
        """
        return Service(
            open_link=open_link,
            intake=IntakeKeeper(named, find_intake, self.health.intake),
            attempts=self.attempts,
            clock=self.clock,
            look_at_clock=look_at_clock,
            prefetch=self.config.intake.prefetch,
            max_wait_s=self.config.cycle.max_wait_ms / 1000,
            discovery_interval_s=self.config.discovery.interval_s,
            health=self.health,
            left_behind=left_behind,
        )

    def run(
        self,
        service: Service,
        open_schedule: OpenSchedule | None,
        beside: AbstractContextManager[None],
    ) -> None:
        """Run a service until SIGTERM or SIGINT, and serve HTTP.

        Args:
            service: which one.
            open_schedule: for pages and the API; None = there is no schedule to look at.
            beside: what else runs meanwhile.

        Raises:
            BrokerRefused: the broker refuses us for good at the first attempt.
            ConfigError: the address can't be listened on, or a file can't be used.
        """
        with self.serving(open_schedule) as address, stopping(service.stop), beside:
            service.service_clock.every(1.0, "log_summary", self.log_events.flush_if_due)
            log.info("started", version=__version__, http=address)
            collect_seldom()
            service.run()

    def serving(self, open_schedule: OpenSchedule | None) -> AbstractContextManager[str]:
        """Serve HTTP while the block runs; gives the address, "" = off."""
        return serving_http(
            self.config,
            self.clock,
            self.health,
            self.metrics,
            self.rules.acting,
            open_schedule=open_schedule,
            gates_at=gates_at(self.config),
        )

    def _observe(self, events: Sequence[AnyEvent], stats: CycleStats | None) -> None:
        self.metrics.observe(events)
        self.log_events.observe(events)
        if stats is not None:
            self.metrics.cycle_finished(stats.duration_s, stats.taken + stats.sent)


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT while the block runs."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def require_url(config: Config) -> None:
    """See that a broker is named.

    Raises:
        ConfigError: none is.
    """
    if not config.broker.url:
        what = (
            "is not set: give the broker's address, such as artemis://user@host:61616; "
            "`amqsidecar init` writes it"
        )
        raise ConfigError([Problem("broker.url", what)])
