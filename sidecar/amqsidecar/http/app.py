"""The application: metrics, health, API and pages behind one guard."""

from collections.abc import Sequence

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from amqsidecar import __version__
from amqsidecar.errors import StoreError
from amqsidecar.http.access import Access, Caller, HttpRefused
from amqsidecar.http.answers import API, JSON, lead_on, login_url, show_refusal
from amqsidecar.http.guard import Guard, Show, fault
from amqsidecar.http.store_queries import NoStore, StoreBusy, StoreQueries
from amqsidecar.telemetry.health import HealthAnswer


def make_app(
    probes: Sequence[BaseRoute],
    access: Access,
    pages: Sequence[BaseRoute] = (),
    show_page: Show = show_refusal,
) -> ASGIApp:
    """Return the application.

    Args:
        probes: metrics and health, which need no caller.
        access: authorizes callers.
        pages: other routes; they get callers that the guard passed.
        show_page: makes refusals outside of the API.
    """

    def show(request: Request, refused: HttpRefused) -> Response:
        if request.scope["path"].startswith(API):
            return show_refusal(request, refused)
        if refused.status == 401 and access.has_login and request.method == "GET":
            # Why the header: a part of a page can't lead to the log-in, only the page can.
            headers = {**refused.headers, "HX-Refresh": "true"}
            return lead_on(login_url(request), 401, headers)
        return show_page(request, refused)

    async def show_error(request: Request, error: Exception) -> Response:
        return show(request, _refusal(request, error))

    async def show_fault(request: Request, _error: Exception) -> Response:
        """Answer an error page; the guard logs the fault."""
        return show(request, fault())

    app = Starlette(
        routes=[*probes, *pages],
        exception_handlers={
            **dict.fromkeys(
                (HTTPException, HttpRefused, NoStore, StoreBusy, StoreError), show_error
            ),
            Exception: show_fault,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, access, show)


def _refusal(request: Request, error: Exception) -> HttpRefused:
    """Return the answer for an error."""
    match error:
        case HttpRefused():
            return error
        case HTTPException():
            what = error.detail
            if error.status_code == 404:
                what = f"nothing is served at {request.scope['path']}"
            refused = HttpRefused(error.status_code, what)
            refused.headers.update(error.headers or {})
            return refused
        case NoStore():
            return HttpRefused(404, str(error))
        case _:
            return HttpRefused(503, str(error), Retry_After="5")


def probes_of(queries: StoreQueries, *, is_brief: bool = False) -> list[Route]:
    """Return metrics and health, which ask no store and answer while others wait for one.

    Args:
        queries: has them.
        is_brief: health tells only whether it is good, and the version: its reasons name queues.
    """

    def health(answer: HealthAnswer) -> Response:
        brief = {"ok": answer.is_good, "version": __version__}
        body = msgspec.json.encode(brief) if is_brief else answer.body
        return Response(body, 200 if answer.is_good else 503, headers={"Content-Type": JSON})

    async def metrics(request: Request) -> Response:
        caller: Caller | None = request.scope.get("amqsidecar.caller")
        if caller is not None and caller.rights.is_limited:
            raise HttpRefused(403, "metrics are about all destinations; your role views only some")
        body, kind = queries.render_metrics(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": kind})

    async def healthz(_request: Request) -> Response:
        return health(queries.health.healthz())

    async def readyz(_request: Request) -> Response:
        return health(queries.health.readyz())

    return [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
