"""Policies in force, and effects of other rules."""

from collections.abc import Iterable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.errors import ConfigError
from amqsidecar.http.console.console import Console
from amqsidecar.http.guard import caller_of
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.operations.policies import PolicyEffect, PolicyView, effect_of, policy_view


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of this page."""
    queries = console.queries

    async def show(
        request: Request,
        written: str | None = None,
        effect: PolicyEffect | None = None,
        problems: Sequence[str] = (),
    ) -> Response:
        policies = queries.tools(caller_of(request)).policies

        def read(at: QueryContext) -> PolicyView:
            return policy_view(at.store, policies, at.now_ms)

        view = await queries.ask(caller_of(request), read)
        return await console.page(
            request,
            "policies.html",
            422 if problems else 200,
            view=view,
            written=view.yaml if written is None else written,
            effect=effect,
            problems=problems,
        )

    async def look(request: Request) -> Response:
        return await show(request)

    async def try_rules(request: Request) -> Response:
        text = str((await request.form()).get("rules", "")).replace("\r\n", "\n")

        caller = caller_of(request)
        policies = queries.tools(caller).policies
        opens = queries.masking.may_probe(caller)

        def read(at: QueryContext) -> PolicyEffect:
            return effect_of(at.store, policies, text, at.now_ms, opens=opens)

        try:
            return await show(request, text, await queries.ask(caller_of(request), read))
        except ConfigError as error:
            return await show(request, text, problems=[str(one) for one in error.problems])

    yield console.route("/policies", look)
    yield console.route("/policies", try_rules, "POST")
