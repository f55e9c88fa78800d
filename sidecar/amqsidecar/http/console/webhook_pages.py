"""The page of the subscriptions: what waits, the log, and a notice to test each."""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.guard import caller_of
from amqsidecar.http.rights import Right
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.telemetry import audit
from amqsidecar.webhooks.outbox import PREFIX, WebhookOutbox, read_outbox
from amqsidecar.webhooks.reporting import request_test
from amqsidecar.webhooks.sending import title_of


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of this page; none without a subscription."""
    if not console.has_webhooks:
        return
    queries = console.queries

    async def webhooks(request: Request) -> Response:
        caller = caller_of(request)
        described = queries.tools(caller).webhooks

        def read(at: QueryContext) -> dict[str, WebhookOutbox]:
            return {
                name: read_outbox(at.store.read_value(PREFIX + name), at.now_ms)
                for name in described
            }

        outboxes = await queries.ask(caller, read)
        lines = [(name, one) for name, outbox in outboxes.items() for one in outbox.log]
        lines.sort(key=lambda line: -line[1].tried_ms)
        return await console.page(
            request,
            "webhooks.html",
            described=described,
            outboxes=outboxes,
            lines=lines,
            title_of=title_of,
            may_test=_may_test(request),
        )

    async def test(request: Request) -> Response:
        caller, name = caller_of(request), request.path_params["name"]
        if name not in queries.tools(caller).webhooks:
            raise PageMissing("There is no subscription of this name.")
        if not _may_test(request):
            raise HttpRefused(403, "a test needs a role that may act everywhere")
        actor = caller.actor("console")
        if not await queries.ask(caller, lambda at: request_test(at.store, name, actor, at.now_ms)):
            raise HttpRefused(503, "too many notices wait already", Retry_After="60")
        audit.write("test-webhook", selection={"subscription": name})
        return RedirectResponse("/webhooks", 303)

    yield console.route("/webhooks", webhooks)
    yield console.route("/webhooks/{name}/test", test, "POST")


def _may_test(request: Request) -> bool:
    rights = caller_of(request).rights
    return not rights.is_limited and rights.patterns(Right.ACT) is None
