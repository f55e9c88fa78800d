"""The guard: every request passes it before pages and API, and every answer after them."""

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
    RENEWED,
    SAFE_METHODS,
    TRIALS,
    Access,
    Caller,
    HttpRefused,
)
from amqsidecar.http.answers import FORM, JSON
from amqsidecar.http.static import PATH as STATIC
from amqsidecar.telemetry import audit

BODIES_BYTES_MAX: Final = 32 * 2**20
"""Bodies of changes that are in memory at a time."""

ANSWERS_BYTES_MAX: Final = 64 * 2**20
"""Answers that are in memory and not yet read at a time."""


class Budget:
    """Bytes that are in use together; for one thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0

    def take(self, size: int) -> None:
        """Count bytes as in use until `give`; one alone may be larger than the budget.

        Raises:
            HttpRefused: too many are in use.
        """
        if self._used and self._used + size > self._most:
            raise HttpRefused(503, "too much data is being sent at this moment", Retry_After="5")
        self._used += size

    def give(self, size: int) -> None:
        """Count bytes of `take` as free again."""
        self._used -= size


log = structlog.get_logger("amqsidecar.http")

MAX_BODY_BYTES: Final = 8 * 2**20

MAX_LOGIN_BYTES: Final = 16_384
"""Limit for unauthenticated requests: they must cost little memory and work."""

OPEN: Final = frozenset({"/metrics", "/healthz", "/readyz"})
"""Open to every client."""

LOGIN: Final = "/login"
"""Open without authentication, with all paths below, from pages of the console."""

LOGOUT: Final = "/logout"
"""Any caller may do this: logging out needs no role."""

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

_HSTS: Final = {"Strict-Transport-Security": "max-age=31536000"}
"""Header of all answers where browsers see us by TLS."""

_PIECE_BYTES: Final = 65_536
"""Answers are passed on in pieces, so that an unread one is in memory only once."""

Show = Callable[[Request, HttpRefused], Response]
"""Makes the answer of a refusal."""


def caller_of(request: HTTPConnection) -> Caller:
    """Return the caller of a request that the guard has passed."""
    caller = request.scope["amqsidecar.caller"]
    assert isinstance(caller, Caller)  # noqa: S101 - the guard put it there
    return caller


def fault() -> HttpRefused:
    """Return the answer for a defect of amqsidecar."""
    return HttpRefused(500, "an internal error of amqsidecar; see its log")


class Guard:
    """Passes authorized requests with bounded bodies, and makes every answer safe to show.

    Attributes:
        headers: of every answer.
        answers: counts the answers in memory.
    """

    def __init__(self, app: ASGIApp, access: Access, show: Show) -> None:
        self._app = app
        self._access = access
        self._show = show
        self.headers = _HEADERS | _HSTS if access.is_tls_only else _HEADERS
        self._bodies = Budget(BODIES_BYTES_MAX)
        self.answers = Budget(ANSWERS_BYTES_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        answer = _Answer(self, request, send)
        body = _Body(request, self._bodies)
        try:
            try:
                replayed = await self._let_through(request, body)
                await self._app(scope, replayed, answer.send)
            except (HttpRefused, _NoRoom) as error:
                refused = error.refused if isinstance(error, _NoRoom) else error
                await self._show(request, refused)(scope, receive, answer.send_small)
        except (ClientDisconnect, _CallerGone):
            return
        except Exception:
            log.exception("request_failed", method=request.method, path=quote(scope["path"]))
            if not answer.status:
                await self._show(request, fault())(scope, receive, answer.send_small)
        finally:
            body.close()
            answer.close()
            _write_refused(request, answer.status)

    def _closed_to(self, request: Request) -> frozenset[str]:
        """Return the paths open to inside clients only: metrics name queues."""
        is_closed = self._access.has_roles or self._access.is_from_outside(request)
        return frozenset({"/metrics"} if is_closed else ())

    def is_caller_gone(self, request: Request) -> bool:
        """Whether the caller of a request has lost access or role since the guard passed it."""
        caller = request.scope.get("amqsidecar.caller")
        try:
            return caller is not None and self._access.caller(request) != caller
        except HttpRefused:
            return True

    async def _let_through(self, request: Request, body: "_Body") -> Receive:
        """Put the caller into the scope; returns the function that reads the body.

        A body is read only after the caller is authorized to send it.

        Raises:
            HttpRefused: not this request.
        """
        _check_framing(request)
        path, is_change = request.scope["path"], request.method not in SAFE_METHODS
        if path.startswith(STATIC) or path in (OPEN - self._closed_to(request)):
            return body.unread()
        if path == LOGIN or path.startswith(f"{LOGIN}/"):
            if not is_change:
                return body.unread()
            self._access.check_site(request)
            await body.read(MAX_LOGIN_BYTES)
            return body.replay()
        caller = self._access.caller(request)
        if caller is None:
            raise HttpRefused(401, "log in or send a token", WWW_Authenticate="Bearer")
        request.scope["amqsidecar.caller"] = caller
        address = self._access.address_of(request)
        audit.enter(audit.Actor(name=caller.name, way=caller.way, address=address))
        request.scope["amqsidecar.csrf"] = self._access.csrf_token(caller)
        if not is_change:
            return body.unread()
        if path != LOGOUT and path not in TRIALS:
            self._access.check_role(caller)
        data = await body.read(MAX_LOGIN_BYTES if path == LOGOUT else MAX_BODY_BYTES)
        token = request.headers.get(CSRF_HEADER) or _form_token(request, data)
        self._access.check_intention(request, caller, token)
        return body.replay()


def _write_refused(request: Request, status: int) -> None:
    """Audit a refused change of an authenticated caller.

    Why only refusals: a change is audited where it is made.
    """
    is_change = "amqsidecar.caller" in request.scope and request.method not in SAFE_METHODS
    if is_change and status >= 400:
        fields = {
            "http.request.method": request.method,
            "url.path": quote(request.scope["path"]),
            "http.response.status_code": status,
        }
        audit.write("request", is_success=False, fields=fields)


def _form_token(request: Request, body: bytes) -> str | None:
    if not request.headers.get("content-type", "").lower().startswith(FORM):
        return None
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=1000)
    except ValueError:
        return None
    return fields.get(CSRF_FIELD, [None])[0]


def _check_framing(request: Request) -> None:
    """Check that a request can't be taken apart in two ways.

    Raises:
        HttpRefused: it can; the connection ends, because the next request has no known beginning.
    """
    if "content-length" in request.headers and "transfer-encoding" in request.headers:
        what = "a request has either Content-Length or Transfer-Encoding"
        raise HttpRefused(400, what, Connection="close")


class _Body:
    """The body of a request, of bounded size, counted while it is in memory."""

    def __init__(self, request: Request, budget: Budget) -> None:
        self._request = request
        self._budget = budget
        self._data = bytearray()
        self._counted = 0
        self._is_told = False

    async def read(self, max_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            HttpRefused: the body is too large or neither JSON nor a plain form, or too many bodies
                are being read.
        """
        headers = self._request.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        # Why no multipart: its parts name codecs of Python, and some of those take minutes.
        if kind not in ("", FORM, JSON):
            raise HttpRefused(415, f"only {FORM} and {JSON} are taken")
        too_large = HttpRefused(
            413, f"more than {max_bytes} bytes are not taken", Connection="close"
        )
        if int(headers.get("content-length", 0)) > max_bytes:
            raise too_large
        async for chunk in self._request.stream():
            self._count(len(chunk))
            self._data += chunk
            if len(self._data) > max_bytes:
                raise too_large
        return bytes(self._data)

    def replay(self) -> Receive:
        """Return the body that was read, for the application."""
        return self._receive

    def unread(self) -> Receive:
        """Return the body as it arrives, for the application; no route here reads one."""
        return self._request.receive

    def close(self) -> None:
        """Count it as gone."""
        self._budget.give(self._counted)
        self._counted = 0

    def _count(self, size: int) -> None:
        try:
            self._budget.take(size)
        except HttpRefused as refused:
            refused.headers["Connection"] = "close"
            raise
        self._counted += size

    async def _receive(self) -> Message:
        if self._is_told:
            return await self._request.receive()
        self._is_told = True
        data, self._data = bytes(self._data), bytearray()
        return {"type": "http.request", "body": data, "more_body": False}


class _NoRoom(Exception):
    """Too many answers are not yet read; nothing of this one was sent.

    Why none of `HttpRefused`: to the application it has begun to answer.
    """

    def __init__(self, refused: HttpRefused) -> None:
        self.refused = refused
        super().__init__(refused.what)


class _CallerGone(OSError):
    """The caller of a streamed answer has lost access: it ends unfinished.

    Why an OSError: the application takes it for the end of the connection.
    """


class _Answer:
    """An answer on its way: safe to show, and counted until it is read."""

    def __init__(self, guard: Guard, request: Request, send: Send) -> None:
        self.status = 0
        self._guard = guard
        self._request = request
        self._send = send
        self._counted = 0
        self._start: Message | None = None

    async def send(self, message: Message) -> None:
        """Send a part of an answer.

        Raises:
            _NoRoom, _CallerGone: see there.
        """
        if message["type"] != "http.response.body":
            self._start = message
            return
        body = message.get("body", b"")
        if self._start is None and body and self._guard.is_caller_gone(self._request):
            raise _CallerGone
        if self._start is not None and len(body) > _PIECE_BYTES:
            try:
                self._guard.answers.take(len(body))
            except HttpRefused as refused:
                self._start = None
                raise _NoRoom(refused) from None
            self._counted += len(body)
        await self.send_small(message)

    async def send_small(self, message: Message) -> None:
        """Send a part of an answer that takes little memory."""
        if message["type"] != "http.response.body":
            self._start = message
            return
        if self._start is not None:
            start, self._start = self._start, None
            self.status = start["status"]
            headers = MutableHeaders(scope=start)
            for name, value in self._guard.headers.items():
                headers.setdefault(name, value)
            if renewed := self._request.scope.get(RENEWED):
                headers.setdefault("Set-Cookie", renewed)
            await self._send(start)
        body, has_more = message.get("body", b""), message.get("more_body", False)
        for at in range(0, len(body) - _PIECE_BYTES, _PIECE_BYTES):
            piece = body[at : at + _PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        rest = body[(max(0, len(body) - 1) // _PIECE_BYTES) * _PIECE_BYTES :]
        await self._send({"type": "http.response.body", "body": rest, "more_body": has_more})

    def close(self) -> None:
        """Count it as read."""
        self._guard.answers.give(self._counted)
        self._counted = 0
