"""The page of the audit, with a filter."""

import asyncio
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.guard import caller_of
from amqsidecar.operations.audit_lines import LINES_MAX, read_audit


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the route of this page; none where the audit is no file."""
    if not console.has_audit:
        return

    async def audit(request: Request) -> Response:
        path = console.queries.tools(caller_of(request)).audit
        if path is None:
            raise HttpRefused(403, "the audit is about all destinations; your role views only some")
        given = {name: request.query_params.get(name, "") for name in ("who", "action", "contains")}
        if given["contains"] and console.queries.masking.has_patterns:
            raise HttpRefused(403, "masked parts can't be searched (http.masked)")
        try:
            found = await asyncio.to_thread(read_audit, path, **given)
        except OSError as error:
            raise PageMissing(f"The audit can't be read: {error.strerror}.") from error
        return await console.page(request, "audit.html", lines=found, given=given, limit=LINES_MAX)

    yield console.route("/audit", audit)
