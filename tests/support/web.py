"""The application that is served over HTTP, in this process, for tests."""

from collections.abc import Callable, Sequence
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from amqsidecar.clock import SystemClock
from amqsidecar.http.access import Access, Signing
from amqsidecar.http.app import make_app
from amqsidecar.http.desk import Desk, Tools
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics

SIGNING = Signing("a key for tests")
OPEN_ACCESS = Access((), SIGNING)


def make_desk(
    health: Health | None = None,
    make_store: Callable[[], Any] | None = None,
    **tools: Any,
) -> Desk:
    return Desk(
        clock=SystemClock(),
        health=health or Health(),
        render_metrics=Metrics().render,
        make_store=make_store,
        tools=Tools(**{"final_suffix": ".final", **tools}),
    )


def app_of(
    health: Health | None = None, access: Access = OPEN_ACCESS, pages: Sequence[BaseRoute] = ()
) -> ASGIApp:
    return make_app(make_desk(health), access, pages)
