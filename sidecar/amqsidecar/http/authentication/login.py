"""The log-in page: a name and a password, or the way to an OpenID provider."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

import structlog
from itsdangerous import BadSignature
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from amqsidecar.http.access import HttpRefused, Signing
from amqsidecar.http.answers import own_path
from amqsidecar.http.authentication.attempts import NAME, FailedLogins, network_of
from amqsidecar.http.authentication.files import User, is_password, password_proof
from amqsidecar.http.authentication.proxy import Proxies, clean_name
from amqsidecar.http.authentication.session import Sessions, fingerprint
from amqsidecar.http.guard import LOGIN, LOGOUT

audit = structlog.get_logger("amqsidecar.audit")

_KNOWN: Final = "amqsidecar_known"
_KNOWN_S: Final = 90 * 86_400
_AT_A_TIME: Final = 2
"""Maximum passwords checked at once: each takes memory and a processor."""

_MAX_WAITING: Final = 20
_MAX_PASSWORD: Final = 1024


class LoginPage:
    """Shows the page, checks passwords, begins and ends sessions."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        users: Callable[[], Mapping[str, User]] | None,
        attempts: FailedLogins,
        proxies: Proxies,
        signing: Signing,
        is_https: Callable[[Request], bool],
        has_oidc: bool,
        stylesheet: str,
    ) -> None:
        """Set the page up.

        Args:
            sessions: that it begins and ends.
            users: by name, as they are now; None = there are no passwords.
            attempts: that failed.
            proxies: that determine a request's source address.
            signing: signs cookies of logged-in browsers.
            is_https: whether the browser came by TLS.
            has_oidc: whether there is another way, at `/login/oidc`.
            stylesheet: where it is.
        """
        self._sessions = sessions
        self._users = users
        self._attempts = attempts
        self._proxies = proxies
        self._known = signing.serializer("known")
        self._is_https = is_https
        self._has_oidc = has_oidc
        self._stylesheet = stylesheet
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._waiting = 0
        # What is checked where there is no such user, so that the answer takes as long.
        self._nobody = "" if users is None else password_proof("")
        pages = Environment(
            loader=PackageLoader("amqsidecar.http", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
        )
        self._page = pages.get_template("login.html")

    def routes(self) -> list[Route]:
        """Return the routes."""
        methods = ["GET"] if self._users is None else ["GET", "POST"]
        return [
            Route(LOGIN, self._login, methods=methods),
            Route(LOGOUT, self._logout, methods=["POST"]),
        ]

    async def _login(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._check(request)
        to = own_path(request.query_params.get("next", "/"))
        if self._sessions.caller(request) is not None:
            return RedirectResponse(to, 303)
        if self._has_oidc and self._sessions.lapsed(request) is not None:
            return RedirectResponse(f"{LOGIN}/oidc?next={quote(to, safe='')}", 303)
        return self._show(to)

    def _show(self, to: str, problem: str = "", status: int = 200) -> Response:
        text = self._page.render(
            to=to,
            problem=problem,
            has_password=self._users is not None,
            has_oidc=self._has_oidc,
            stylesheet=self._stylesheet,
        )
        return HTMLResponse(text, status)

    async def _check(self, request: Request) -> Response:
        form = await request.form()
        name, password = clean_name(str(form.get("name", ""))), str(form.get("password", ""))
        to = own_path(str(form.get("next", "/")))
        keys = self._keys(request, name)
        wait_s = max(self._attempts.wait_s(key) for key in keys)
        if wait_s > 0:
            response = self._show(to, f"Too many attempts. Wait {wait_s:.0f} seconds.", 429)
            response.headers["Retry-After"] = f"{wait_s:.0f}"
            return response
        # Before the check, so that many at once don't slip through.
        for key in keys:
            self._attempts.failed(key)
        user = await self._user(name, password)
        where = self._proxies.client_address(request)
        if user is None:
            audit.warning("login_failed", actor=name, way="password", address=where)
            return self._show(to, "Name or password is wrong.", 403)
        for key in keys:
            self._attempts.succeeded(key)
        audit.info("login", actor=name, way="password", role=user.role.value, address=where)
        answer = RedirectResponse(to, 303)
        self._sessions.begin(request, answer, name, "password", user.role, fingerprint(user.proof))
        self._remember(request, answer, name)
        return answer

    async def _user(self, name: str, password: str) -> User | None:
        """Return the user whose name and password these are."""
        if self._waiting >= _MAX_WAITING:
            raise HttpRefused(503, "too many log-ins at this moment", Retry_After="5")
        user = None if self._users is None else self._users().get(name)
        self._waiting += 1
        try:
            async with self._turns:
                proof = self._nobody if user is None else user.proof
                is_right = await asyncio.to_thread(is_password, password[:_MAX_PASSWORD], proof)
        finally:
            self._waiting -= 1
        return user if is_right and user is not None else None

    def _keys(self, request: Request, name: str) -> list[str]:
        """Return the keys by which failures of an attempt are counted."""
        try:
            known = self._known.loads(request.cookies.get(_KNOWN, ""), max_age=_KNOWN_S)
        except BadSignature:
            known = None
        if known == name:
            return [f"known {request.cookies[_KNOWN]}"]
        network = network_of(self._proxies.client_address(request))
        return [f"address {network}", f"address {network} name {name}", f"{NAME}{name}"]

    def _remember(self, request: Request, response: Response, name: str) -> None:
        text = self._known.dumps(name)
        response.set_cookie(
            _KNOWN,
            text if isinstance(text, str) else text.decode(),
            max_age=_KNOWN_S,
            path=LOGIN,
            secure=self._is_https(request),
            httponly=True,
            samesite="strict",
        )

    async def _logout(self, request: Request) -> Response:
        answer = RedirectResponse(LOGIN, 303)
        self._sessions.end(request, answer)
        return answer
