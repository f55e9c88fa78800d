"""The guard: what every request goes through before pages and API, and every answer after them."""

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, quote

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amqsidecar.http.access import (
    CSRF_FIELD,
    CSRF_HEADER,
    SAFE_METHODS,
    Access,
    Caller,
    Refused,
)
from amqsidecar.http.answers import FORM, JSON
from amqsidecar.http.static import PATH as STATIC

log = structlog.get_logger("amqsidecar.http")
audit = structlog.get_logger("amqsidecar.audit")

MAX_BODY_BYTES: Final = 8 * 2**20

MAX_LOGIN_BYTES: Final = 16_384
"""Of what anybody may send: nobody's memory and no long work for who is not known yet."""

OPEN: Final = frozenset({"/metrics", "/healthz", "/readyz"})
"""Whoever reaches us may ask these."""

LOGIN: Final = "/login"
"""Whoever reaches us may come here and below, by pages of ours."""

LOGOUT: Final = "/logout"
"""Any caller may change this: who goes needs no role."""

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    # Why not no-referrer: browsers would then name no origin in our own forms either.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Show = Callable[[Request, Refused], Response]
"""Makes the answer of a refusal."""


def caller_of(request: HTTPConnection) -> Caller:
    """Return who asks; only where the guard has let somebody through."""
    caller = request.scope["amqsidecar.caller"]
    assert isinstance(caller, Caller)  # noqa: S101 - the guard put it there
    return caller


def fault() -> Refused:
    """Return what is said where amqsidecar itself failed."""
    return Refused(500, "a fault of amqsidecar; its log says more")


class Guard:
    """Lets through who may, with a body of bounded size; sees that every answer is safe to show."""

    def __init__(self, app: ASGIApp, access: Access, show: Show) -> None:
        self._app = app
        self._access = access
        self._show = show

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        status = 0

        async def send_safe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            try:
                body = await self._let_through(request)
            except Refused as refused:
                await self._show(request, refused)(scope, receive, send_safe)
                return
            await self._app(scope, receive if body is None else _replay(body, receive), send_safe)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("request_failed", method=request.method, path=quote(scope["path"]))
            if not status:
                await self._show(request, fault())(scope, receive, send_safe)
        finally:
            _tell(request, status)

    async def _let_through(self, request: Request) -> bytes | None:
        """Put the caller into the scope; returns the body of a change.

        Raises:
            Refused: not this request.
        """
        path, is_change = request.scope["path"], request.method not in SAFE_METHODS
        if path in OPEN or path.startswith(STATIC):
            return None
        if path == LOGIN or path.startswith(f"{LOGIN}/"):
            if not is_change:
                return None
            self._access.check_site(request)
            return await _body(request, MAX_LOGIN_BYTES)
        caller = self._access.caller(request)
        if caller is None:
            raise Refused(401, "log in, or send a token", WWW_Authenticate="Bearer")
        request.scope["amqsidecar.caller"] = caller
        request.scope["amqsidecar.csrf"] = self._access.csrf_token(caller)
        if not is_change:
            return None
        body = await _body(request, MAX_BODY_BYTES)
        token = request.headers.get(CSRF_HEADER) or _form_token(request, body)
        if path == LOGOUT:
            self._access.check_intention(request, caller, token)
        else:
            self._access.check_change(request, caller, token)
        return body


def _tell(request: Request, status: int) -> None:
    """Write what somebody that we know has changed, or was refused to change."""
    caller = request.scope.get("amqsidecar.caller")
    if caller is not None and request.method not in SAFE_METHODS:
        audit.info(
            "change",
            actor=caller.name,
            way=caller.way,
            method=request.method,
            # Why quoted: a line end in it would begin a line of the log.
            path=quote(request.scope["path"]),
            status=status,
        )


async def _body(request: Request, max_bytes: int) -> bytes:
    """Return the whole body.

    Raises:
        Refused: it is too large, or neither JSON nor a plain form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Why no multipart: its parts name codecs of Python, and some of those take minutes.
    if kind not in ("", FORM, JSON):
        raise Refused(415, f"only {FORM} and {JSON} are taken")
    too_large = Refused(413, f"more than {max_bytes} bytes are not taken", Connection="close")
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


def _form_token(request: Request, body: bytes) -> str | None:
    if not request.headers.get("content-type", "").lower().startswith(FORM):
        return None
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=1000)
    except ValueError:
        return None
    return fields.get(CSRF_FIELD, [None])[0]


def _replay(body: bytes, receive: Receive) -> Receive:
    is_told = False

    async def replay() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
