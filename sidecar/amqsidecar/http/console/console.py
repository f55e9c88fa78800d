"""The common part of all pages: frame, caller, time, and error pages."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from amqsidecar import __version__
from amqsidecar.clock import Clock
from amqsidecar.errors import StoreError
from amqsidecar.http.access import CSRF_FIELD, Caller, HttpRefused
from amqsidecar.http.answers import show_refusal
from amqsidecar.http.console.query import MessageQuery, QueryError, address, read_query
from amqsidecar.http.console.templating import make_environment
from amqsidecar.http.exports import Exports
from amqsidecar.http.guard import caller_of
from amqsidecar.http.masking import Masking
from amqsidecar.http.static import StaticFiles
from amqsidecar.http.store_queries import (
    AnswerT,
    NoStore,
    StoreBusy,
    StoreQueries,
    StoreQuery,
    Tools,
)
from amqsidecar.operations.last_death import LogLinks, no_links
from amqsidecar.operations.status import SidecarStatus

NAVIGATION: Final = (
    ("/", "Overview"),
    ("/groups", "Groups"),
    ("/messages", "Messages"),
    ("/operations", "Operations"),
    ("/policies", "Policies"),
    ("/plots", "Plots"),
)

REPORTS: Final = ("/reports", "Reports")
AUDIT: Final = ("/audit", "Audit")
WEBHOOKS: Final = ("/webhooks", "Webhooks")

Handler = Callable[[Request], Awaitable[Response]]


_PROGRAM: Final = Caller(name="", role="", way="", session=None)
"""Asks which tools there are."""


class PageMissing(Exception):
    """No page has this address; the text names the missing object."""


class PageFrame:
    """The common part of all pages; an error becomes a page with one clear sentence.

    Args:
        navigation: addresses and names of the pages that every page leads to.
        templates: package with more templates; None = only those of the sidecar's console.
        links: see `LogLinks`.
        tell_status: returns the sidecar's own status; None = no sidecar serves these pages.
    """

    def __init__(
        self,
        clock: Clock,
        masking: Masking,
        navigation: Sequence[tuple[str, str]],
        *,
        templates: str | None = None,
        links: LogLinks = no_links,
        tell_status: Callable[[], SidecarStatus] | None = None,
    ) -> None:
        self.clock = clock
        self.static = StaticFiles(files("amqsidecar.http.console") / "static")
        self._tell_status = tell_status
        self._environment = make_environment(templates)
        self._environment.filters["masked"] = masking.text
        self._environment.filters["masked_json"] = masking.json
        self._environment.filters["as_group"] = masking.group
        self._environment.globals["log_links"] = links
        self._environment.globals.update(
            static=self.static.url,
            address=address,
            version=__version__,
            navigation=navigation,
            csrf_field=CSRF_FIELD,
        )

    def route(self, path: str, handler: Handler, *methods: str) -> Route:
        """Return the route of a page; its handler's deliberate errors become pages."""

        @functools.wraps(handler)
        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except HttpRefused as error:
                return self._refusal(request, error)
            except tuple(_PROBLEMS) as error:
                status, title, next_step = _PROBLEMS[_kind(error)]
                return self.problem(request, status, title, str(error), next_step)

        return Route(path, answered, methods=list(methods) or ["GET"])

    async def page(
        self, request: Request, template: str, status: int = 200, /, **values: Any
    ) -> HTMLResponse:
        """Return a page; it is rendered and masked without blocking others."""
        return HTMLResponse(
            await asyncio.to_thread(self._rendered, request, template, values), status
        )

    def _rendered(
        self, request: Request, template: str, values: dict[str, Any], *, has_status: bool = True
    ) -> str:
        # Why perhaps None: a refused caller gets a page, too.
        caller: Caller | None = request.scope.get("amqsidecar.caller")
        path = request.scope["path"]
        is_told = has_status and caller is not None and not caller.rights.is_limited
        tell = self._tell_status if is_told else None
        return self._environment.get_template(template).render(
            now_ms=values.pop("now_ms", None) or self.clock.now_ms(),
            path=path,
            here=address(path, request.query_params.multi_items()),
            without=functools.partial(_without, request),
            is_live=request.query_params.get("live") != "off",
            who=caller,
            sidecar=None if tell is None else tell(),
            may_change=caller is not None and caller.rights.may_change,
            csrf=request.scope.get("amqsidecar.csrf", ""),
            **values,
        )

    def problem(
        self, request: Request, status: int, title: str, what: str, next_step: str = ""
    ) -> HTMLResponse:
        """Return a page with the error and the next step."""
        values = {"title": title, "what": what, "next_step": next_step}
        # Why without status after a fault: the fault may be in it.
        text = self._rendered(request, "problem.html", values, has_status=status != 500)
        return HTMLResponse(text, status)

    def show_refusal(self, request: Request, refused: HttpRefused) -> Response:
        """Return the answer of a refusal: a page for a browser, a line for a program."""
        if "text/html" not in request.headers.get("accept", ""):
            return show_refusal(request, refused)
        return self._refusal(request, refused)

    def _refusal(self, request: Request, refused: HttpRefused) -> HTMLResponse:
        title, next_step = _REFUSALS.get(refused.status, ("This is refused", ""))
        response = self.problem(request, refused.status, title, refused.what, next_step)
        response.headers.update(refused.headers)
        return response


class Console(PageFrame):
    """Pages about one schedule."""

    def __init__(self, queries: StoreQueries) -> None:
        self.queries = queries
        self.exports = Exports(queries)
        tools = queries.tools(_PROGRAM)
        more = ((REPORTS, tools.reports), (AUDIT, tools.audit), (WEBHOOKS, tools.webhooks))
        self.missing = tuple(page[0] for page, tool in more if not tool)
        super().__init__(
            queries.clock,
            queries.masking,
            (*NAVIGATION, *(page for page, tool in more if tool)),
            links=tools.links,
            tell_status=tools.sidecar_status,
        )

    def visited(self, path: str, handler: "VisitHandler", method: str) -> Route:
        """Return the route of a page about the schedule; see `route`."""

        @functools.wraps(handler)
        async def visit(request: Request) -> Response:
            return await handler(Visit(self, request))

        return self.route(path, visit, method)


class Visit:
    """One request of a page, with the means to answer it."""

    def __init__(self, console: Console, request: Request) -> None:
        self.console = console
        self.queries = console.queries
        self.request = request
        self.params = request.query_params
        self.caller = caller_of(request)

    @property
    def tools(self) -> Tools:
        """The tools that the caller may use."""
        return self.queries.tools(self.caller)

    @property
    def actor(self) -> str:
        """The caller's name in events."""
        return self.caller.actor("console")

    def part(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    async def form(self) -> dict[str, str]:
        """Return the fields of the form."""
        return {name: str(value) for name, value in (await self.request.form()).items()}

    async def ask(self, question: StoreQuery[AnswerT]) -> AnswerT:
        """Return the result of a question about the schedule; see `StoreQueries.ask`."""
        return await self.queries.ask(self.caller, question)

    async def page(self, template: str, problem: object = "", /, **values: Any) -> HTMLResponse:
        """Return a page; with a problem, it refuses the form."""
        return await self.console.page(self.request, template, 422 if problem else 200, **values)

    def query(self) -> MessageQuery:
        """Return the selection of messages in the address.

        Raises:
            QueryError: it is not understood.
            HttpRefused: the caller may not see it.
        """
        query = read_query(self.params, self.queries.clock.now_ms())
        self.queries.masking.check_selection(query.selection, self.caller)
        return query


VisitHandler = Callable[[Visit], Awaitable[Response]]

_REFUSALS: Final = {
    401: (
        "You are not logged in",
        "Open the console at the address of the proxy that logs you in; programs send a token.",
    ),
    403: ("This is not allowed", "Ask a person with the required role, or go back."),
    404: ("Nothing here", "The address may be wrong, or the page no longer exists."),
    405: ("This address accepts only forms", ""),
    413: ("That is too large", ""),
    421: (
        "Not by this name",
        "Open the console as localhost, or by the IP address of this machine; or give people a way "
        "to log in (http.users_file and others).",
    ),
    500: (
        "A fault of amqsidecar",
        "If you requested an action, it may not have been carried out: check before you repeat it.",
    ),
    503: ("Not now", "Reload the page in a moment."),
}
"""Title and advice of the pages of refusals."""

_PROBLEMS: Final[dict[type[Exception], tuple[int, str, str]]] = {
    QueryError: (400, "This address is not valid", ""),
    PageMissing: (404, "Nothing here", ""),
    NoStore: (
        404,
        "No schedule here",
        "A sidecar whose broker keeps the waiting messages (store.url: broker:) has no groups, "
        "messages or operations to show; /metrics and /readyz still answer.",
    ),
    StoreBusy: (503, "Too much at once", "Reload the page in a moment."),
    StoreError: (
        503,
        "The schedule can't be read now",
        "Nothing is lost. Reload the page in a moment; if the problem lasts, see the sidecar's "
        "log.",
    ),
}
"""Exceptions of handlers, with the status, title and advice of their pages."""


def _kind(error: Exception) -> type[Exception]:
    return next(kind for kind in _PROBLEMS if isinstance(error, kind))


def _without(request: Request, name: str) -> str:
    """Return the query of a page, to which a parameter of this name can be added."""
    pairs = [pair for pair in request.query_params.multi_items() if pair[0] != name]
    return f"{address('', pairs)}&".lstrip("?&")
