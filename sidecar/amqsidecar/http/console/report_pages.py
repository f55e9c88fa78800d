"""Pages of reports: which there are, and each as the job wrote it, shut in."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.console import Console, PageMissing
from amqsidecar.http.guard import caller_of
from amqsidecar.operations.reports import REPORT_POLICY, list_reports, read_report

HEADERS = {
    "Content-Security-Policy": REPORT_POLICY,
    # Why: the HTML standard has browsers refuse a page that is shut in and cut off from its opener.
    "Cross-Origin-Opener-Policy": "unsafe-none",
}


def routes(console: Console) -> Iterable[BaseRoute]:
    """Return the routes of these pages; none where no folder is named."""
    if not console.has_reports:
        return

    def folder_of(request: Request) -> Path:
        folder = console.queries.tools(caller_of(request)).reports
        if folder is None:
            raise HttpRefused(403, "reports are about all destinations; your role views only some")
        return folder

    async def reports(request: Request) -> Response:
        try:
            found = await asyncio.to_thread(list_reports, folder_of(request))
        except OSError as error:
            raise PageMissing(f"The reports can't be listed: {error.strerror}.") from error
        return await console.page(request, "reports.html", reports=found)

    async def report(request: Request) -> Response:
        name = request.query_params.get("name", "")
        try:
            page = await asyncio.to_thread(read_report, folder_of(request), name)
        except OSError as error:
            raise PageMissing(f"The report {name} can't be read: {error.strerror}.") from error
        if page is None:
            raise PageMissing(f"There is no report {name} (any more).")
        return HTMLResponse(page, headers=HEADERS)

    yield console.route("/reports", reports)
    yield console.route("/reports/one", report)
