"""Policies in force, and effects of other rules."""

from collections.abc import Iterable, Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.errors import ConfigError
from amqsidecar.http.console.console import Console, Visit
from amqsidecar.operations.policies import PolicyEffect, effect_of, policy_view


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of this page."""
    yield console.visited("/policies", _show)
    yield console.visited("/policies", _try_rules, "POST")


async def _show(
    visit: Visit,
    written: str | None = None,
    effect: PolicyEffect | None = None,
    problems: Sequence[str] = (),
) -> Response:
    policies = visit.tools.policies
    view = await visit.ask(lambda at: policy_view(at.store, policies, at.now_ms))
    return await visit.page(
        "policies.html",
        problems,
        view=view,
        written=view.yaml if written is None else written,
        effect=effect,
        problems=problems,
    )


async def _try_rules(visit: Visit) -> Response:
    text = (await visit.form()).get("rules", "").replace("\r\n", "\n")
    policies, opens = visit.tools.policies, visit.queries.masking.may_probe(visit.caller)
    try:
        effect = await visit.ask(
            lambda at: effect_of(at.store, policies, text, at.now_ms, opens=opens)
        )
    except ConfigError as error:
        return await _show(visit, text, problems=[str(one) for one in error.problems])
    return await _show(visit, text, effect)
