"""The page of the subscriptions: waiting notices, the log, and a test notice for each."""

from starlette.responses import RedirectResponse, Response

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.console import PageMissing, Visit
from amqsidecar.http.rights import Right
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.telemetry import audit
from amqsidecar.webhooks.outbox import PREFIX, WebhookOutbox, read_outbox
from amqsidecar.webhooks.reporting import request_test
from amqsidecar.webhooks.sending import title_of


async def show_webhooks(visit: Visit) -> Response:
    """Show each subscription's waiting notices, and the latest notices."""
    described = visit.tools.webhooks

    def read(at: QueryContext) -> dict[str, WebhookOutbox]:
        return {
            name: read_outbox(at.store.read_value(PREFIX + name), at.now_ms) for name in described
        }

    outboxes = await visit.ask(read)
    lines = [(name, one) for name, outbox in outboxes.items() for one in outbox.log]
    lines.sort(key=lambda line: -line[1].tried_ms)
    return await visit.page(
        "webhooks.html",
        described=described,
        outboxes=outboxes,
        lines=lines,
        title_of=title_of,
        may_test=_may_test(visit),
    )


async def send_test(visit: Visit) -> Response:
    """Send a notice that tests a subscription."""
    name = visit.part("name")
    if name not in visit.tools.webhooks:
        raise PageMissing("There is no subscription of this name.")
    if not _may_test(visit):
        raise HttpRefused(403, "a test needs a role that may act everywhere")
    if not await visit.ask(lambda at: request_test(at.store, name, visit.actor, at.now_ms)):
        raise HttpRefused(503, "too many notices wait already", Retry_After="60")
    audit.write("test-webhook", selection={"subscription": name})
    return RedirectResponse("/webhooks", 303)


def _may_test(visit: Visit) -> bool:
    rights = visit.caller.rights
    return not rights.is_limited and rights.patterns(Right.ACT) is None
