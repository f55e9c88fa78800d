"""Wires what is served over HTTP; the web libraries are imported only where something is."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config, split_listen
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.stores.open import open_store
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from amqsidecar.http.desk import OpenStore


@contextmanager
def serving_http(
    config: Config, clock: Clock, health: Health, metrics: Metrics, *, has_store: bool
) -> Iterator[str]:
    """Serve while the block runs; gives the address, "" = off.

    Args:
        config: the options.
        clock: tells pages what time it is.
        health: what probes are told.
        metrics: what scrapers are told.
        has_store: whether there is a schedule to look at.

    Raises:
        ConfigError: the address can't be listened on, or would be open to strangers.
    """
    if not config.http.listen:
        yield ""
        return
    from amqsidecar.http.access import Access, Signing  # noqa: PLC0415 - as said above
    from amqsidecar.http.app import make_app  # noqa: PLC0415
    from amqsidecar.http.desk import Desk, Tools  # noqa: PLC0415
    from amqsidecar.http.serving import HttpServer  # noqa: PLC0415
    from amqsidecar.operations.charts import lateness  # noqa: PLC0415
    from amqsidecar.operations.wellness import read_wellness  # noqa: PLC0415

    def make_store() -> "OpenStore":
        return cast("OpenStore", open_store(config, clock))

    keeps_schedule = has_store and config.store.url != BROKER_HELD
    desk = Desk(
        clock=clock,
        health=health,
        render_metrics=metrics.render,
        make_store=make_store if keeps_schedule else None,
        tools=Tools(
            final_suffix=config.redelivery.final_suffix,
            wellness=lambda: read_wellness(health, metrics),
            lateness=lambda: lateness(metrics.histogram("amqsidecar_lateness_seconds")[0]),
        ),
    )
    access = Access((), Signing(secrets.token_bytes(32)))
    server = HttpServer(make_app(desk, access))
    host, port = server.start(*split_listen(config.http.listen))
    try:
        yield f"{host}:{port}"
    finally:
        server.stop()
        desk.close()
