"""The application: metrics, health, API and pages behind one guard."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from amqsidecar.errors import StoreError
from amqsidecar.http.access import Access, Refused
from amqsidecar.http.desk import Desk, DeskBusy, NoStore
from amqsidecar.http.guard import Guard
from amqsidecar.telemetry.health import HealthAnswer

API: Final = "/api/"
_JSON: Final = "application/json"
_PROBLEM: Final = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error as RFC 9457 has it.

    Attributes:
        title: the status in words.
        detail: one sentence.
    """

    status: int
    title: str
    detail: str


def make_app(desk: Desk, access: Access, pages: Sequence[BaseRoute] = ()) -> ASGIApp:
    """Return the application.

    Args:
        desk: who is asked.
        access: who may ask.
        pages: routes beside metrics and health; they get callers that the guard let through.
    """
    app = Starlette(
        routes=[*_probes(desk), *pages],
        exception_handlers={
            HTTPException: _show_http,
            Refused: _show_refused,
            NoStore: _show_sidecar,
            DeskBusy: _show_sidecar,
            StoreError: _show_sidecar,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, access, show)


def _probes(desk: Desk) -> list[Route]:
    """Return metrics and health, which ask no store and answer while others wait for one."""

    async def metrics(request: Request) -> Response:
        body, kind = desk.render_metrics(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": kind})

    async def healthz(_request: Request) -> Response:
        return _health(desk.health.healthz())

    async def readyz(_request: Request) -> Response:
        return _health(desk.health.readyz())

    return [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]


def _health(answer: HealthAnswer) -> Response:
    status = 200 if answer.is_good else 503
    return Response(answer.body, status, headers={"Content-Type": _JSON})


def show(request: Request, refused: Refused) -> Response:
    """Return the answer of a refusal: a problem for programs, a line for people."""
    if request.scope["path"].startswith(API):
        problem = Problem(status=refused.status, title=_title(refused.status), detail=refused.what)
        body, kind = msgspec.json.encode(problem), _PROBLEM
    else:
        body = f"{refused.status} {_title(refused.status).lower()}: {refused.what}\n".encode()
        kind = "text/plain; charset=utf-8"
    return Response(body, refused.status, headers={**refused.headers, "Content-Type": kind})


def _title(status: int) -> str:
    return HTTPException(status).detail


async def _show_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    what = (
        f"nothing is served at {request.scope['path']}"
        if error.status_code == 404
        else error.detail
    )
    refused = Refused(error.status_code, what)
    refused.headers.update(error.headers or {})
    return show(request, refused)


async def _show_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)  # noqa: S101 - registered for it
    return show(request, error)


async def _show_sidecar(request: Request, error: Exception) -> Response:
    if isinstance(error, NoStore):
        return show(request, Refused(404, str(error)))
    return show(request, Refused(503, str(error), Retry_After="5"))
