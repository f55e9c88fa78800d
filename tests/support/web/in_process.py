"""The application that is served over HTTP, in this process, for tests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from amqsidecar.clock import Clock, SystemClock
from amqsidecar.http.access import ROLES, Access, Caller, Role, Signing
from amqsidecar.http.app import make_app, probes_of
from amqsidecar.http.masking import Masking
from amqsidecar.http.store_queries import StoreQueries, Tools
from amqsidecar.operations.active_rules import Policies, policies_of
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import load_policy
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics
from support.send_rules import send_rules_of

SIGNING = Signing("a key for tests")
NOTHING_MASKED = Masking()
FINAL = send_rules_of("redelivery.final_suffix=.final")
NO_RULES = policies_of(lambda: None, {}, send_rules_of=FINAL)
OPEN_ACCESS = Access((), SIGNING)


def make_queries(
    health: Health | None = None,
    open_schedule: Callable[[], Any] | None = None,
    masking: Masking = NOTHING_MASKED,
    clock: Clock | None = None,
    **tools: Any,
) -> StoreQueries:
    return StoreQueries(
        clock=clock or SystemClock(),
        health=health or Health(),
        render_metrics=Metrics().render,
        open_schedule=open_schedule,
        tools=Tools(
            **{
                "final_suffix": ".final",
                "policies": NO_RULES,
                **tools,
            }
        ),
        masking=masking,
    )


def caller_as(role: Role = Role.OPERATOR) -> Caller:
    """Return a caller with a role that needs no file."""
    return Caller(name="ann", role=role.value, way="local", session=None, rights=ROLES[role])


def policies_of_file(path: Path) -> Policies:
    """Return the policies of a file of rules."""
    plugins = load_plugins()
    rules = load_policy(path, plugins)
    return policies_of(lambda: rules, plugins, send_rules_of=FINAL)


def app_of(
    health: Health | None = None, access: Access = OPEN_ACCESS, pages: Sequence[BaseRoute] = ()
) -> ASGIApp:
    return make_app(probes_of(make_queries(health)), access, pages)
