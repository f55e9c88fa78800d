"""Wires the HTTP server; the web libraries are imported only if it is on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.http import split_listen
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.wiring.gate import lying_reader, opened_gate
from amqsidecar.wiring.rules import load_links, send_rules

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from amqsidecar.engine.gates import GatesAt
    from amqsidecar.http.authentication.settings import AccessSettings
    from amqsidecar.operations.active_rules import FindRules
    from amqsidecar.schedule import OpenSchedule


@contextmanager
def serving_http(
    config: Config,
    clock: Clock,
    health: Health,
    metrics: Metrics,
    find_rules: "FindRules",
    *,
    open_schedule: "OpenSchedule | None",
    gates_at: "GatesAt",
) -> Iterator[str]:
    """Serve while the block runs; gives the address, "" = off.

    Args:
        config: the options.
        clock: the time of pages.
        health: the answers to probes.
        metrics: the answers to scrapes.
        find_rules: returns those that act; any thread calls it.
        open_schedule: opens the schedule; None = there is none to look at.
        gates_at: returns the active gates; any thread calls it.

    Raises:
        ConfigError: the address can't be listened on, or would be open to strangers.
    """
    if not config.http.listen:
        yield ""
        return
    if config.http.strangers_problem:
        raise ConfigError([Problem("http.listen", config.http.strangers_problem)])
    from amqsidecar.http.api.api import routes as api_routes  # noqa: PLC0415
    from amqsidecar.http.app import make_app  # noqa: PLC0415
    from amqsidecar.http.authentication.proxy import Proxies  # noqa: PLC0415 - as said above
    from amqsidecar.http.authentication.settings import Bodies  # noqa: PLC0415
    from amqsidecar.http.authentication.setup import set_up  # noqa: PLC0415
    from amqsidecar.http.console.console import Console  # noqa: PLC0415
    from amqsidecar.http.console.pages import routes as console_routes  # noqa: PLC0415
    from amqsidecar.http.masking import Masking  # noqa: PLC0415
    from amqsidecar.http.serving import HttpServer  # noqa: PLC0415
    from amqsidecar.http.store_queries import StoreQueries, Tools  # noqa: PLC0415
    from amqsidecar.operations.active_rules import policies_of  # noqa: PLC0415
    from amqsidecar.operations.charts import lateness  # noqa: PLC0415
    from amqsidecar.operations.status import sidecar_status  # noqa: PLC0415

    queries = StoreQueries(
        clock=clock,
        health=health,
        render_metrics=metrics.render,
        open_schedule=open_schedule,
        tools=Tools(
            final_suffix=config.redelivery.final_suffix,
            policies=policies_of(
                find_rules,
                load_plugins(),
                send_rules_of=partial(send_rules, config),
                intake_queues=config.intake.queues,
                gates_at=gates_at,
                live_plugins=load_links(config, load_plugins()),
            ),
            gate=lambda: opened_gate(config, clock, find_rules()),
            lying=lying_reader(config, clock),
            reports=config.http.reports,
            links=config.http.links,
            sidecar_status=lambda: sidecar_status(health, metrics),
            lateness=lambda: lateness(metrics.counts().lateness),
        ),
        masking=Masking(Bodies(config.http.bodies.value), config.http.masked),
    )
    console = Console(queries)
    routes: list[BaseRoute] = []
    if config.http.console:
        routes = [*api_routes(queries), *console_routes(console)]
    entrance = set_up(
        access_settings(config), clock, console.static.url("console.css"), metrics.logged_in
    )
    routes += entrance.routes
    server = HttpServer(
        make_app(queries, entrance.access, routes, console.show_refusal),
        is_shared=Proxies(config.http.trusted_proxies).has,
    )
    host, port = server.start(*split_listen(config.http.listen))
    try:
        yield f"{host}:{port}"
    finally:
        server.stop()
        queries.close()


def access_settings(config: Config) -> "AccessSettings":
    """Return the authentication methods that the options name.

    Raises:
        ConfigError: a file can't be used.
    """
    from amqsidecar.http.authentication.settings import AccessSettings, OidcSettings  # noqa: PLC0415

    options = config.http

    def client_secret() -> str | None:
        secret = options.client_secret()
        return None if secret is None else secret.reveal()

    oidc = None
    if options.oidc.issuer:
        client_secret()  # So that a file that can't be read ends the start, not the first log-in.
        oidc = OidcSettings(
            issuer=options.oidc.issuer,
            client_id=options.oidc.client_id,
            client_secret=client_secret,
            scopes=options.oidc.scopes,
            name_claim=options.oidc.name_claim,
            groups_claim=options.oidc.groups_claim,
            recheck_s=options.oidc.recheck_minutes * 60,
        )
    key = options.session_key()
    return AccessSettings(
        public_url=options.public_url,
        tokens_file=options.tokens_file,
        users_file=options.users_file,
        session_key=None if key is None else key.reveal(),
        session_s=options.session_hours * 3600,
        idle_s=options.idle_minutes * 60,
        trusted_proxies=options.trusted_proxies,
        proxy_user_header=options.proxy_user_header,
        proxy_groups_header=options.proxy_groups_header,
        operator_groups=options.operator_groups,
        viewer_groups=options.viewer_groups,
        oidc=oidc,
    )
