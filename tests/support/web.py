"""The application that is served over HTTP, in this process, for tests."""

from collections.abc import Callable, Sequence
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from amqsidecar.clock import SystemClock
from amqsidecar.http.access import Access, Signing
from amqsidecar.http.app import make_app
from amqsidecar.http.masking import Masking
from amqsidecar.http.store_queries import StoreQueries, Tools
from amqsidecar.messages.edit import edit_message
from amqsidecar.messages.kept_message import chosen_properties
from amqsidecar.messages.view import view_message
from amqsidecar.operations.active_rules import policies_of
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics

SIGNING = Signing("a key for tests")
NOTHING_MASKED = Masking()
NO_RULES = policies_of(lambda: None, {}, intake_queues=(), final_suffix=".final", parks_topics=True)
OPEN_ACCESS = Access((), SIGNING)


def make_desk(
    health: Health | None = None,
    make_store: Callable[[], Any] | None = None,
    masking: Masking = NOTHING_MASKED,
    **tools: Any,
) -> StoreQueries:
    return StoreQueries(
        clock=SystemClock(),
        health=health or Health(),
        render_metrics=Metrics().render,
        make_store=make_store,
        tools=Tools(
            **{
                "final_suffix": ".final",
                "properties_of": chosen_properties,
                "view_message": view_message,
                "edit_message": edit_message,
                "policies": NO_RULES,
                **tools,
            }
        ),
        masking=masking,
    )


def app_of(
    health: Health | None = None, access: Access = OPEN_ACCESS, pages: Sequence[BaseRoute] = ()
) -> ASGIApp:
    return make_app(make_desk(health), access, pages)
