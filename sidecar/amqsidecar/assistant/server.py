"""The server of the protocol, over stdio and streamable HTTP."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import structlog
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from amqsidecar import __version__
from amqsidecar.assistant.caller import ApiCaller, ApiRefused
from amqsidecar.assistant.marked import MARK, harmless
from amqsidecar.assistant.tools import AssistantTools, Tool
from amqsidecar.errors import SidecarError

log = structlog.get_logger("amqsidecar.assistant")

PATH: Final = "/mcp"
"""Of streamable HTTP."""

_INSTRUCTIONS: Final = (
    "Dead letters of a message broker. Look with `overview` and `groups`, then at a few messages. "
    "To act: `preview`, show it to a person, `act` with its token and count, and `operation` "
    f"until it has ended; being sent is no success. {MARK}"
)
_CALLER: Final = "amqsidecar.assistant.caller"
_BODY_BYTES_MAX: Final = 2**20

CallerOf = Callable[[Any], Awaitable[ApiCaller]]
"""Returns who sent a request of HTTP (None = over stdio); raises SidecarError."""

OpenCaller = Callable[[str], Awaitable[ApiCaller]]
"""Returns the caller with a token, "" = without; raises SidecarError."""


def make_server(tools: AssistantTools, caller_of: CallerOf) -> Server[Any]:
    """Return the server; tools that a caller has no right to don't exist for them."""

    async def list_tools(
        ctx: Any, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        caller = await _caller(ctx)
        found = [one for one in tools.table.values() if one.exists_for(caller)]
        return types.ListToolsResult(
            tools=[_listed(one, caller) for one in found], ttl_ms=0, cache_scope="private"
        )

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        caller, tool = await _caller(ctx), tools.table.get(params.name)
        if tool is None or not tool.exists_for(caller):
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {harmless(params.name, 100)}")
        try:
            asked = msgspec.convert(params.arguments or {}, tool.input)
            return _said(await tool.run(caller, asked))
        except (SidecarError, msgspec.ValidationError) as error:
            return _said(harmless(str(error)), is_error=True)
        except Exception as error:
            log.exception("request_failed", tool=tool.name)
            raise MCPError(types.INTERNAL_ERROR, "a fault of amqsidecar; see its log") from error

    async def _caller(ctx: Any) -> ApiCaller:
        try:
            return await caller_of(ctx.request)
        except SidecarError as error:
            raise MCPError(types.INTERNAL_ERROR, harmless(str(error))) from error

    return Server(
        "amqsidecar",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _listed(tool: Tool, caller: ApiCaller) -> types.Tool:
    is_change = tool.name in ("act", "pause", "undo")
    return types.Tool(
        name=tool.name,
        description=tool.about,
        input_schema=tool.schema(caller),
        annotations=types.ToolAnnotations(
            read_only_hint=not is_change, destructive_hint=tool.is_final, open_world_hint=False
        ),
    )


def _said(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )


def http_app(
    tools: AssistantTools, open_caller: OpenCaller, listen: str, public_url: str
) -> Starlette:
    """Return the application of streamable HTTP; it keeps no session and no credential.

    Args:
        open_caller: asks the sidecar for the owner of a token.
        listen: the address, such as `127.0.0.1`.
        public_url: where clients reach it from outside; "" = only from this machine.
    """

    async def caller_of(request: Request) -> ApiCaller:
        caller = request.scope[_CALLER]
        assert isinstance(caller, ApiCaller)  # noqa: S101 - the door put it there
        return caller

    security = _security(listen, public_url)
    manager = StreamableHTTPSessionManager(
        make_server(tools, caller_of),
        json_response=True,
        stateless=True,
        security_settings=security,
        max_request_body_size=_BODY_BYTES_MAX,
    )
    door = _Door(manager, security, open_caller, is_outside=bool(public_url))
    return Starlette(routes=[Route(PATH, door)], lifespan=lambda _app: manager.run())


def _security(listen: str, public_url: str) -> TransportSecuritySettings:
    parts = urlsplit(public_url)
    own = f"[{listen}]" if ":" in listen else listen
    hosts = [
        one for name in ("localhost", "127.0.0.1", "[::1]", own) for one in (name, f"{name}:*")
    ]
    origins = [f"http://{one}" for one in hosts]
    if public_url:
        hosts, origins = [*hosts, parts.netloc], [*origins, f"{parts.scheme}://{parts.netloc}"]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


class _Door:
    """Passes requests of known callers that no page of another site sent."""

    def __init__(
        self,
        manager: StreamableHTTPSessionManager,
        security: TransportSecuritySettings,
        open_caller: OpenCaller,
        *,
        is_outside: bool,
    ) -> None:
        self._manager = manager
        self._security = TransportSecurityMiddleware(security)
        self._open_caller = open_caller
        self._is_outside = is_outside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope)
        refusal = await self._refusal(request)
        await (refusal or self._manager.asgi_app)(scope, receive, send)

    async def _refusal(self, request: Request) -> Response | None:
        """Return why a request is not passed; None = its caller is in its scope."""
        refusal: Response | None = await self._security.validate_request(request)
        if refusal is not None:
            return refusal
        if request.method != "POST":
            return PlainTextResponse("only POST is answered\n", 405, {"Allow": "POST"})
        try:
            caller = await self._open_caller(_token_of(request))
        except SidecarError as error:
            return _answer_of(error)
        if self._is_outside and caller.session.way == "local":
            # Why: to a sidecar without a log-in whoever reaches us would be an operator.
            return PlainTextResponse("the sidecar knows no callers: set http.tokens_file\n", 403)
        request.scope[_CALLER] = caller
        return None


def _answer_of(error: SidecarError) -> Response:
    if not isinstance(error, ApiRefused) or error.status not in (401, 403):
        return PlainTextResponse("the sidecar does not answer as expected\n", 503)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return PlainTextResponse(f"{harmless(str(error))}\n", error.status, headers)


def _token_of(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
