"""What all pages share: the frame, who looks, the time, and pages that say what went wrong."""

import functools
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from amqsidecar import __version__
from amqsidecar.errors import StoreError
from amqsidecar.http.access import CSRF_FIELD, Refused, Role
from amqsidecar.http.console.query import MessageQuery, QueryError, address, read_query
from amqsidecar.http.console.templating import make_environment
from amqsidecar.http.desk import Desk, DeskBusy, NoStore
from amqsidecar.http.guard import caller_of
from amqsidecar.http.static import StaticFiles

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/groups", "Groups"),
    ("/messages", "Messages"),
    ("/operations", "Operations"),
    ("/policies", "Policies"),
    ("/plots", "Plots"),
)

Handler = Callable[[Request], Awaitable[Response]]


class PageMissing(Exception):
    """There is nothing at this address; the text says what is missing and perhaps why."""


class Console:
    """Renders pages and answers what goes wrong with a page of one clear sentence."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.static = StaticFiles(files("amqsidecar.http.console") / "static")
        self._environment = make_environment()
        self._environment.filters["masked"] = desk.masking.text
        self._environment.globals.update(
            static=self.static.url,
            address=address,
            version=__version__,
            navigation=NAVIGATION,
            csrf_field=CSRF_FIELD,
        )

    def route(self, path: str, handler: Handler, *methods: str) -> Route:
        """Return the route of a page; what its handler raises on purpose becomes a page."""

        @functools.wraps(handler)
        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except Refused as error:
                return self.problem(request, error.status, "This is refused", error.what)
            except tuple(_PROBLEMS) as error:
                status, title, next_step = _PROBLEMS[_kind(error)]
                return self.problem(request, status, title, str(error), next_step)

        return Route(path, answered, methods=list(methods) or ["GET"])

    def query(self, request: Request) -> MessageQuery:
        """Return which messages the address of a page asks for.

        Raises:
            QueryError: it is not understood.
            Refused: it asks for what is not shown to who asks.
        """
        query = read_query(request.query_params, self.desk.clock.now_ms())
        self.desk.masking.check_selection(query.selection, caller_of(request).role)
        return query

    def page(
        self, request: Request, template: str, status: int = 200, /, **values: Any
    ) -> HTMLResponse:
        """Return a page."""
        caller = caller_of(request)
        text = self._environment.get_template(template).render(
            now_ms=values.pop("now_ms", None) or self.desk.clock.now_ms(),
            server_zone=_server_zone(),
            path=request.url.path,
            here=address(request.url.path, request.query_params.multi_items()),
            live_query=_live_query(request),
            is_live=request.query_params.get("live") != "off",
            who=caller,
            may_change=caller.role is Role.OPERATOR,
            csrf=request.scope["amqsidecar.csrf"],
            **values,
        )
        return HTMLResponse(text, status)

    def problem(
        self, request: Request, status: int, title: str, what: str, next_step: str = ""
    ) -> HTMLResponse:
        """Return a page that says what went wrong, and what to do."""
        return self.page(
            request, "problem.html", status, title=title, what=what, next_step=next_step
        )


_PROBLEMS: Final[dict[type[Exception], tuple[int, str, str]]] = {
    QueryError: (400, "This address is not understood", ""),
    PageMissing: (404, "Nothing here", ""),
    NoStore: (
        404,
        "No schedule here",
        "A sidecar that only observes, or whose broker keeps what waits (store.url: broker:), has "
        "no groups, messages or operations to show; /metrics and /readyz still answer.",
    ),
    DeskBusy: (503, "Too much at once", "Load the page again in a moment."),
    StoreError: (
        503,
        "The schedule can't be read now",
        "Nothing is lost by that. Load the page again in a moment; the log of the sidecar says "
        "more if it stays.",
    ),
}
"""What handlers raise, and the status, title and advice of its page."""


def _kind(error: Exception) -> type[Exception]:
    return next(kind for kind in _PROBLEMS if isinstance(error, kind))


def _live_query(request: Request) -> str:
    """Return the query of a page, to which whether it lives can be added."""
    pairs = [pair for pair in request.query_params.multi_items() if pair[0] != "live"]
    return f"{address('', pairs)}&".lstrip("?&")


def _server_zone() -> str:
    """Return the name of this machine's time zone."""
    return time.tzname[time.localtime().tm_isdst > 0]
