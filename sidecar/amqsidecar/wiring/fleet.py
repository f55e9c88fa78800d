"""Assembles the console over many sidecars (`amqsidecar fleet`)."""

import asyncio
from collections.abc import Iterator

import structlog
from prometheus_client import Metric
from starlette.requests import Request

from amqsidecar import __version__
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.http import split_listen
from amqsidecar.config.tls_context import trusted_by
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.fleet import api, pages
from amqsidecar.fleet.desk import Desk
from amqsidecar.fleet.gather import Gatherer, person_of
from amqsidecar.fleet.sources import ACCOUNT, FleetSources, PodSource
from amqsidecar.fleet.watch import PROBE_S, Watch
from amqsidecar.http.app import make_app
from amqsidecar.http.authentication.proxy import Proxies
from amqsidecar.http.authentication.setup import set_up
from amqsidecar.http.console.console import PageFrame
from amqsidecar.http.masking import Masking
from amqsidecar.http.probes import make_probes
from amqsidecar.http.serving import HttpServer
from amqsidecar.runtime.process import collect_seldom
from amqsidecar.telemetry import audit
from amqsidecar.telemetry.logs import configure_logs
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.web_client import Client
from amqsidecar.wiring.parts import access_settings, otlp_sending, stop_event

log = structlog.get_logger("amqsidecar.wiring.app")

_MIB = 1 << 20


def run_fleet(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Raises:
        ConfigError: no sidecar is named, a file can't be used, or the address can't be listened on.
    """
    options = config.fleet
    if not (options.sidecars or options.services or options.srv or options.pods):
        what = "is not set; name sidecars, such as orders: http://orders:9464, or set fleet.pods"
        raise ConfigError([Problem("fleet.sidecars", what)])
    for key, is_off in (("listen", not config.http.listen), ("console", not config.http.console)):
        if is_off:
            raise ConfigError([Problem(f"http.{key}", "is off, and `fleet` is a console")])
    if config.http.strangers_problem:
        raise ConfigError([Problem("http.listen", config.http.strangers_problem)])
    configure_logs(config.log.level, config.log.format)
    audit.open_audit(config.log.audit, keep_days=config.log.audit_days)
    collect_seldom()
    clock, metrics = SystemClock(), _FleetMetrics()
    with otlp_sending(config, clock, metrics, None):
        asyncio.run(_serve(config, clock, metrics))
    log.info("stopped")
    return 0


async def _serve(config: Config, clock: SystemClock, metrics: Metrics) -> None:
    options = config.fleet
    tls = trusted_by(options.ca_file, "fleet.ca_file")
    client = Client(tls, options.timeout_s, options.answer_mib * _MIB)
    watch = Watch(_sources(config), Client(tls, PROBE_S, _MIB), clock)
    gatherer = Gatherer(watch, client, clock, options.requests)
    frame = PageFrame(clock, Masking(), pages.NAVIGATION, templates="amqsidecar.fleet")
    settings = access_settings(config)
    entrance = set_up(settings, clock, frame.static.url("console.css"))

    def desk_of(request: Request) -> Desk:
        return Desk(gatherer, person_of(request, entrance.access, settings))

    app = make_app(
        make_probes(metrics.render, lambda: "", lambda: "; ".join(watch.sources.problems)),
        entrance.access,
        [*api.routes(desk_of), *pages.routes(frame, desk_of), *entrance.routes],
        frame.show_refusal,
    )
    http = HttpServer(app, is_shared=Proxies(config.http.trusted_proxies).has)
    with stop_event() as stop:
        # Why before the console: its first answer would name no sidecar.
        await watch.look()
        host, port = http.start(*split_listen(config.http.listen))
        log.info("started", version=__version__, mode="fleet", http=f"{host}:{port}")
        try:
            await watch.run(stop)
        finally:
            http.stop()


def _sources(config: Config) -> FleetSources:
    options = config.fleet
    pods = None
    if options.pods:
        try:
            tls = trusted_by(ACCOUNT / "ca.crt", "fleet.pods")
        except ConfigError as error:
            what = f"needs a pod with a token of its service account: {error.problems[0].what}"
            raise ConfigError([Problem("fleet.pods", what)]) from error
        client = Client(tls, options.timeout_s, options.answer_mib * _MIB)
        pods = PodSource(
            client=client,
            selector=options.pods,
            namespaces=options.namespaces,
            port=options.pod_port,
        )
    return FleetSources(
        options.sidecars, options.services, options.srv, pods, console_url=options.console_url
    )


class _FleetMetrics(Metrics):
    """The metrics of the service's table that this process has, beside memory and processor."""

    def families(self) -> Iterator[Metric]:
        return (one for one in super().families() if one.name == "amqsidecar_otlp_dropped")
