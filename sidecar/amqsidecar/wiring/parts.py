"""Common parts of all modes of the running program, and its HTTP server."""

import asyncio
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import structlog

from amqsidecar import __version__
from amqsidecar.broker import IntakeQueue
from amqsidecar.clock import Clock, ClockStep
from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import revealed
from amqsidecar.config.sections.http import split_listen
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.destination import parse_destination, parse_pattern
from amqsidecar.model.event import AnyEvent
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.destination_map import DestinationMap
from amqsidecar.runtime.attempts import FIRST_PAUSE_S, LONGEST_PAUSE_S, Attempts
from amqsidecar.runtime.intake_keeper import FindIntake, IntakeKeeper
from amqsidecar.runtime.mode import LiveMode
from amqsidecar.runtime.process import collect_seldom
from amqsidecar.runtime.service import Service
from amqsidecar.runtime.work import EngineParts, OpenLink
from amqsidecar.schedule import OpenSchedule, Schedule
from amqsidecar.telemetry.audit import STDERR, STDOUT, open_audit
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.logs import LogEvents, configure_logs
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.wiring.gate import lying_reader, opened_gate
from amqsidecar.wiring.links import LinkMaker, look_now
from amqsidecar.wiring.rules import RunningRules, gates_at, manual_of, send_rules
from amqsidecar.wiring.schedules import open_schedule

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from amqsidecar.http.authentication.settings import AccessSettings
    from amqsidecar.otlp.sender import OtlpSender

log = structlog.get_logger("amqsidecar.wiring.app")


def owner_of(owners: Mapping[str, str]) -> Callable[[str], str]:
    """Return the function that names the team of a destination; "" = no pattern matches."""
    patterns = DestinationMap([((parse_pattern(text),), owner) for text, owner in owners.items()])
    return lambda destination: patterns.find(parse_destination(destination)) or ""


class ProcessParts:
    """The rules, the links and the telemetry of one process."""

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

        Raises:
            ConfigError: the configuration or the policy can't be used.
        """
        configure_logs(config.log.level, config.log.format)
        open_audit(config.log.audit, keep_days=config.log.audit_days)
        self.config = config
        self.clock = clock
        self.crash_point = crash_point
        self.chance = random.Random().random  # noqa: S311 - spreads load, protects nothing
        self.rules = RunningRules(config, clock)
        self.health = Health(needs_token=needs_token)
        self.metrics = Metrics(
            config.http.metrics_destinations,
            clock,
            self.health.state,
            owner_of(config.http.metrics_owners),
        )
        self.log_events = LogEvents(clock)
        self._sender: OtlpSender | None = None
        is_held = config.store.url == BROKER_HELD
        self._shown: OpenSchedule | None = None if is_held else self.open_schedule
        self.links = LinkMaker(
            config, link_clock, crash_point, self.rules.classic, self.rules.digest
        )
        self.mode = LiveMode(manual_of(config, self.rules.given))
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
    ) -> Service:
        """Return the service."""
        return Service(
            open_link=open_link,
            intake=IntakeKeeper(
                named,
                find_intake,
                self.health.intake,
                self.mode,
            ),
            attempts=self.attempts,
            clock=self.clock,
            look_at_clock=look_at_clock,
            prefetch=self.config.intake.prefetch,
            max_wait_s=self.config.cycle.max_wait_ms / 1000,
            discovery_interval_s=self.config.discovery.interval_s,
            health=self.health,
        )

    def run(self, service: Service, beside: AbstractContextManager[None]) -> None:
        """Run a service until SIGTERM or SIGINT, and serve HTTP.

        Raises:
            BrokerRefused: the broker refuses us for good at the first attempt.
            ConfigError: the address can't be listened on, or a file can't be used.
        """
        with (
            self.sending(),
            self.serving() as address,
            stopping(service.stop),
            beside,
        ):
            service.service_clock.every(1.0, "log_summary", self.log_events.flush_if_due)
            log.info("started", version=__version__, http=address)
            collect_seldom()
            service.run()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send to the receiver of OTLP while the block runs, where there is one."""
        with otlp_sending(self.config, self.clock, self.metrics, self._shown) as self._sender:
            yield

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve HTTP while the block runs; gives the address, "" = off.

        The web libraries are imported only if it is on.

        Raises:
            ConfigError: the address can't be listened on, or would be open to strangers.
        """
        config, clock = self.config, self.clock
        if not config.http.listen:
            yield ""
            return
        if config.http.strangers_problem:
            raise ConfigError([Problem("http.listen", config.http.strangers_problem)])
        from amqsidecar.http.api.api import routes as api_routes  # noqa: PLC0415
        from amqsidecar.http.app import make_app, probes_of  # noqa: PLC0415
        from amqsidecar.http.authentication.proxy import Proxies  # noqa: PLC0415 - as said above
        from amqsidecar.http.authentication.settings import Bodies  # noqa: PLC0415
        from amqsidecar.http.authentication.setup import set_up  # noqa: PLC0415
        from amqsidecar.http.console.console import Console  # noqa: PLC0415
        from amqsidecar.http.console.pages import routes as console_routes  # noqa: PLC0415
        from amqsidecar.http.masking import Masking  # noqa: PLC0415
        from amqsidecar.http.serving import HttpServer  # noqa: PLC0415
        from amqsidecar.http.store_queries import StoreQueries, Tools  # noqa: PLC0415
        from amqsidecar.operations.active_rules import policies_of  # noqa: PLC0415
        from amqsidecar.operations.last_death import log_links  # noqa: PLC0415
        from amqsidecar.operations.status import sidecar_status  # noqa: PLC0415

        open_look = partial(look_now, self.links)
        queries = StoreQueries(
            clock=clock,
            health=self.health,
            render_metrics=self.metrics.render,
            open_schedule=self._shown,
            tools=Tools(
                final_suffix=config.redelivery.final_suffix,
                second_person_above=config.http.second_person_above,
                policies=policies_of(
                    self.rules.acting,
                    load_plugins(),
                    send_rules_of=partial(send_rules, config),
                    intake_queues=config.intake.queues,
                    gates_at=gates_at(config),
                    live_plugins=self.rules.links,
                ),
                gate=lambda: opened_gate(config, open_look, self.rules.acting()),
                lying=lying_reader(open_look),
                reports=config.http.reports,
                audit=None if config.log.audit in (STDERR, STDOUT) else Path(config.log.audit),
                links=partial(log_links, config.http.links, config.otel.traced_share),
                webhooks={name: one.about for name, one in config.webhooks.subscriptions.items()},
                sidecar_status=lambda: sidecar_status(self.health, self.metrics),
                lateness=lambda: self.metrics.counts().lateness,
            ),
            masking=Masking(Bodies(config.http.bodies.value), config.http.masked),
        )
        console = Console(queries)
        routes: list[BaseRoute] = []
        if config.http.console:
            routes = [*api_routes(queries), *console_routes(console)]
        entrance = set_up(
            access_settings(config),
            clock,
            console.static.url("console.css"),
            partial(self.metrics.add, "amqsidecar_log_ins_total", 1),
        )
        routes += entrance.routes
        server = HttpServer(
            make_app(
                probes_of(queries, is_brief=entrance.access.has_roles),
                entrance.access,
                routes,
                console.show_refusal,
            ),
            is_shared=Proxies(config.http.trusted_proxies).has,
        )
        host, port = server.start(*split_listen(config.http.listen))
        try:
            yield f"{host}:{port}"
        finally:
            server.stop()
            queries.close()

    def _observe(self, events: Sequence[AnyEvent], stats: CycleStats | None) -> None:
        self.metrics.observe(events)
        self.log_events.observe(events)
        if self._sender is not None:
            self._sender.observe(events, stats)
        if stats is not None:
            self.metrics.cycle_finished(stats.duration_s, stats.taken + stats.sent)


@contextmanager
def otlp_sending(
    config: Config, clock: Clock, metrics: Metrics, open_schedule: OpenSchedule | None
) -> Iterator["OtlpSender | None"]:
    """Send to the receiver of OTLP while the block runs; gives None where there is none."""
    options = config.otel
    if not options.endpoint:
        yield None
        return
    from amqsidecar.otlp.sender import OtlpSender  # noqa: PLC0415 - an extra, which is there

    sender = OtlpSender(
        options.endpoint, options.signals, options.traced_share, clock, metrics, open_schedule
    )
    with sender.running():
        yield sender


@contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """Give an event of the running loop that SIGTERM and SIGINT set while the block runs."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    with stopping(lambda: loop.call_soon_threadsafe(stop.set)):
        yield stop


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[None]:
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


def access_settings(config: Config) -> "AccessSettings":
    """Return the authentication methods that the options name.

    Raises:
        ConfigError: a file can't be used.
    """
    from amqsidecar.http.authentication.settings import AccessSettings, OidcSettings  # noqa: PLC0415

    options = config.http

    oidc = None
    if options.oidc.issuer:
        # Why read here: a file that can't be read ends the start, and not the first log-in.
        options.client_secret()
        oidc = OidcSettings(
            issuer=options.oidc.issuer,
            client_id=options.oidc.client_id,
            client_secret=lambda: revealed(options.client_secret()),
            scopes=options.oidc.scopes,
            name_claim=options.oidc.name_claim,
            groups_claim=options.oidc.groups_claim,
            recheck_s=options.oidc.recheck_minutes * 60,
        )
    return AccessSettings(
        public_url=options.public_url,
        tokens_file=options.tokens_file,
        users_file=options.users_file,
        roles_file=options.roles_file,
        session_key=revealed(options.session_key()),
        session_s=options.session_hours * 3600,
        idle_s=options.idle_minutes * 60,
        trusted_proxies=options.trusted_proxies,
        proxy_user_header=options.proxy_user_header,
        proxy_groups_header=options.proxy_groups_header,
        operator_groups=options.operator_groups,
        viewer_groups=options.viewer_groups,
        oidc=oidc,
    )
