"""One table defines the API; routes and the OpenAPI document are made of it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from amqsidecar.errors import EditRefused, NotHereYet
from amqsidecar.http.access import Caller, HttpRefused
from amqsidecar.http.answers import JSON
from amqsidecar.http.guard import caller_of
from amqsidecar.http.store_queries import StoreQueries, StoreQuery
from amqsidecar.operations.act import ActionRefused

API_V1: Final = "/api/v1"


class Call(msgspec.Struct, frozen=True):
    """One request, taken apart.

    Attributes:
        query: as the endpoint's `query` says; an empty struct where it has none.
        body: as the endpoint's `body` says; None where it has none.
    """

    request: Request
    caller: Caller
    query: Any
    body: Any

    @property
    def actor(self) -> str:
        """The caller's name in events."""
        return self.caller.actor("api")

    def part(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def number(self) -> int:
        """Return the number in the path.

        Raises:
            HttpRefused: it is none.
        """
        text = self.part("number")
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise HttpRefused(404, f"{text} is no number")
        return int(text)


class ApiEndpoint(msgspec.Struct, frozen=True):
    """One operation of the API.

    Attributes:
        path: below `/api/v1`, with names in braces.
        summary: one sentence.
        run: returns a value of `answer`, or a whole response.
        answer: type of its return value; None = see `media_type`.
        query: struct of the query parameters; a repeated name gives a list.
        body: struct of the request's JSON.
        body_may_lack: a missing body means a body with nothing set.
        media_type: of an answer that isn't JSON.
        problems: refusals beyond the common ones, by status.
        refusal: status for an action that can't be done.
    """

    path: str
    summary: str
    run: Callable[[Call], Awaitable[Any]]
    answer: Any = None
    query: type[msgspec.Struct] | None = None
    method: str = "GET"
    body: type[msgspec.Struct] | None = None
    body_may_lack: bool = False
    status: int = 200
    media_type: str = JSON
    problems: dict[int, str] = {}
    refusal: int = 400

    @property
    def name(self) -> str:
        """Its name in the document."""
        return str(getattr(self.run, "__name__", "")).lstrip("_")


class StoreCall(Call, frozen=True):
    """One request about the schedule."""

    queries: StoreQueries

    async def ask(self, question: StoreQuery[Any]) -> Any:
        """Return the result of a question about the schedule; see `StoreQueries.ask`."""
        return await self.queries.ask(self.caller, question)


class ApiTable:
    """A part of the table; its endpoints are decorated functions, in their order.

    The docstring is the summary, the annotation the answer. A function of a `StoreCall` and an open
    store is one question; a coroutine function of a `StoreCall` alone asks by itself.
    """

    def __init__(self) -> None:
        self._made: list[Callable[[StoreQueries], ApiEndpoint]] = []

    def bound(self, queries: StoreQueries) -> list[ApiEndpoint]:
        """Return the endpoints over an open store."""
        return [make(queries) for make in self._made]

    def get(self, path: str, **fields: Any) -> Callable[[Callable[..., Any]], None]:
        """Return the decorator of an endpoint; `fields` as in `ApiEndpoint`."""

        def decorate(function: Callable[..., Any]) -> None:
            answer = get_type_hints(function)["return"]
            fields.setdefault("answer", None if answer is Response else answer)
            fields.setdefault("summary", " ".join((function.__doc__ or "").split()))

            def make(queries: StoreQueries) -> ApiEndpoint:
                async def run(call: Call) -> Any:
                    asked = StoreCall(call.request, call.caller, call.query, call.body, queries)
                    if iscoroutinefunction(function):
                        return await function(asked)
                    return await asked.ask(partial(function, asked))

                run.__name__ = function.__name__
                return ApiEndpoint(path, run=run, **fields)

            self._made.append(make)

        return decorate

    def post(self, path: str, **fields: Any) -> Callable[[Callable[..., Any]], None]:
        """Return the decorator of an endpoint that changes something, or tries it."""
        return self.get(path, method="POST", **fields)


def routes_of(
    endpoints: Sequence[ApiEndpoint], masked: Callable[[Any], Awaitable[Any]]
) -> list[Route]:
    """Return the routes of a table; `masked` hides what an answer may not show."""
    return [_route(endpoint, masked) for endpoint in endpoints]


def _route(endpoint: ApiEndpoint, masked: Callable[[Any], Awaitable[Any]]) -> Route:
    async def handle(request: Request) -> Response:
        query = None if endpoint.query is None else read_query(request, endpoint.query)
        body = None if endpoint.body is None else await _read_body(request, endpoint)
        try:
            answer = await endpoint.run(Call(request, caller_of(request), query, body))
        except EditRefused as error:
            raise HttpRefused(400, str(error)) from error
        except ActionRefused as error:
            raise HttpRefused(endpoint.refusal, str(error)) from error
        except NotHereYet as error:
            raise HttpRefused(503, str(error)) from error
        if isinstance(answer, Response):
            return answer
        return Response(
            msgspec.json.encode(await masked(answer)),
            endpoint.status,
            headers={"Content-Type": JSON},
        )

    # Why: a server shows an encoded slash of a name as a slash of the path.
    path = f"{API_V1}{endpoint.path.replace('{name}', '{name:path}')}"
    return Route(path, handle, methods=[endpoint.method], name=endpoint.name)


def read_query(request: Request, kind: type[msgspec.Struct]) -> Any:
    """Return the values in the query.

    Raises:
        HttpRefused: it is invalid; an unknown name is an error, since an ignored filter would widen
            an action.
    """
    hints = get_type_hints(kind)
    fields = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name in request.query_params:
        if name not in fields:
            known = ", ".join(fields)
            raise HttpRefused(400, f"{name} is not known in this query; known are {known}")
        values = request.query_params.getlist(name)
        if is_list(fields[name]):
            given[name] = values
        elif len(values) > 1:
            raise HttpRefused(400, f"{name} stands in this query more than once")
        else:
            given[name] = values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HttpRefused(400, f"this query can't be parsed: {error}") from error


def is_list(kind: Any) -> bool:
    """Whether a field may be given several times."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return any(get_origin(option) in (list, tuple) for option in options if option is not NoneType)


async def _read_body(request: Request, endpoint: ApiEndpoint) -> Any:
    """Return the body.

    Raises:
        HttpRefused: it is not understood.
    """
    assert endpoint.body is not None  # noqa: S101 - asked by the caller
    text = await request.body()
    if not text and endpoint.body_may_lack:
        text = b"{}"
    elif not request.headers.get("content-type", "").startswith(JSON):
        raise HttpRefused(415, f"a body of type {JSON} is expected")
    try:
        return msgspec.json.decode(text, type=endpoint.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpRefused(400, f"this body can't be parsed: {error}") from error
