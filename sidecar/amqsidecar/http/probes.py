"""Metrics and health of a command without a schedule; no log-in needed."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route


def make_probes(
    render_metrics: Callable[[str], tuple[bytes, str]],
    problem: Callable[[], str],
    warning: Callable[[], str],
) -> list[BaseRoute]:
    """Return the routes of the probes and of `/metrics`.

    Args:
        render_metrics: returns a response to a scrape for an `Accept` header, and its kind.
        problem: returns why the command isn't ready; "" = it is. May block.
        warning: returns a possible problem; "" = none.
    """

    def metrics(request: Request) -> Response:
        body, kind = render_metrics(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": kind})

    def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    def readyz(_request: Request) -> Response:
        found = problem()
        said = found or "; ".join(filter(None, ("ok", warning())))
        return PlainTextResponse(f"{said}\n", 503 if found else 200)

    return [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
