"""The log-in page: a name and a password, or the way to an OpenID provider."""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from amqsidecar.clock import Clock
from amqsidecar.http.access import HttpRefused
from amqsidecar.http.answers import own_path
from amqsidecar.http.authentication.attempts import NAME, FailedLogins, network_of
from amqsidecar.http.authentication.cookies import AccessMeans, SignedCookie
from amqsidecar.http.authentication.files import User, is_password, password_proof
from amqsidecar.http.authentication.proxy import clean_name
from amqsidecar.http.authentication.session import SessionOwner, Sessions, fingerprint
from amqsidecar.http.guard import LOGIN, LOGOUT
from amqsidecar.telemetry import audit

_KNOWN_S: Final = 90 * 86_400
_KNOWN_NETWORKS_MAX: Final = 10_000
_MAX_PASSWORD: Final = 1024


CountLogin = Callable[[str, str], None]
"""Counts a log-in by password: `known` or `unknown` caller, and its result."""


class LoginPage:
    """Shows the page, checks passwords, begins and ends sessions."""

    def __init__(
        self,
        means: AccessMeans,
        sessions: Sessions,
        clock: Clock,
        stylesheet: str,
        count: CountLogin,
    ) -> None:
        self._means = means
        self._sessions = sessions
        self._attempts = FailedLogins(clock)
        self._known = SignedCookie("amqsidecar_known", means, _KNOWN_S)
        self._digest = means.signing.digest
        self._has_password = means.users is not None
        self._has_oidc = means.settings.oidc is not None
        self._stylesheet = stylesheet
        self._count = count
        self._places = {"known": PasswordPlaces(), "unknown": PasswordPlaces()}
        self._known_networks: OrderedDict[str, None] = OrderedDict()
        # What is checked where there is no such user, so that the answer takes as long.
        self._nobody = password_proof("") if self._has_password else ""
        pages = Environment(
            loader=PackageLoader("amqsidecar.http", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
        )
        self._page = pages.get_template("login.html")

    def routes(self) -> list[Route]:
        """Return the routes."""
        methods = ["GET", "POST"] if self._has_password else ["GET"]
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
            has_password=self._has_password,
            has_oidc=self._has_oidc,
            stylesheet=self._stylesheet,
        )
        return HTMLResponse(text, status)

    async def _check(self, request: Request) -> Response:
        form = await request.form()
        name, password = clean_name(str(form.get("name", ""))), str(form.get("password", ""))
        to = own_path(str(form.get("next", "/")))
        where = self._means.proxies.client_address(request)
        network, is_known = network_of(where), self._is_known(request, name)
        kind = "known" if is_known or network in self._known_networks else "unknown"
        browser = f"known {self._known.text(request)}" if is_known else f"address {network}"
        keys = [browser] if is_known else [browser, f"{browser} name {name}", f"{NAME}{name}"]
        wait_s = max(self._attempts.wait_s(key) for key in keys)
        if wait_s > 0:
            self._count(kind, "delayed")
            response = self._show(to, f"Too many attempts. Wait {wait_s:.0f} seconds.", 429)
            response.headers["Retry-After"] = f"{wait_s:.0f}"
            return response
        places = self._places[kind]
        try:
            with places.taken(browser):
                # Before the check, so that many at once don't slip through.
                for key in keys:
                    self._attempts.failed(key)
                async with places.turn:
                    user = await self._user(name, password)
        except HttpRefused:
            self._count(kind, "crowded")
            raise
        self._count(kind, "wrong" if user is None else "accepted")
        by = audit.Actor(name=name, way="password", address=where)
        if user is None:
            audit.write("log-in", audit.ActKind.LOG_IN, by=by, is_success=False)
            return self._show(to, "Name or password is wrong.", 403)
        for key in keys:
            self._attempts.succeeded(key)
        audit.write("log-in", audit.ActKind.LOG_IN, by=by, role=user.role)
        answer = RedirectResponse(to, 303)
        owner = SessionOwner(name=name, way="password", proof=fingerprint(user.proof))
        self._sessions.begin(request, answer, owner)
        self._remember(request, answer, name, network)
        return answer

    async def _user(self, name: str, password: str) -> User | None:
        """Return the user whose name and password these are."""
        user = self._means.user(name)
        proof = self._nobody if user is None else user.proof
        is_right = await asyncio.to_thread(is_password, password[:_MAX_PASSWORD], proof)
        return user if is_right and user is not None else None

    def _is_known(self, request: Request, name: str) -> bool:
        """Whether this browser has logged in by this name before."""
        (salt, digest), _ = self._known.read(request) or (("", ""), 0.0)
        return bool(digest) and digest == self._digest(f"{salt} {name}")

    def _remember(self, request: Request, response: Response, name: str, network: str) -> None:
        """Remember browser and network; the cookie proves a known name but doesn't reveal it."""
        salt = secrets.token_urlsafe(16)
        self._known.write(request, response, (salt, self._digest(f"{salt} {name}")))
        self._known_networks[network] = None
        self._known_networks.move_to_end(network)
        if len(self._known_networks) > _KNOWN_NETWORKS_MAX:
            self._known_networks.popitem(last=False)

    async def _logout(self, request: Request) -> Response:
        answer = RedirectResponse(LOGIN, 303)
        self._sessions.end(request, answer)
        audit.write("log-out", audit.ActKind.LOG_OUT)
        return answer


PLACES: Final = 20
PLACES_OF_ONE: Final = 5
"""Maximum places of one browser or network."""


class PasswordPlaces:
    """Places for the checks of passwords of one kind of callers; for the server's thread.

    They keep guessers from locking out known users.

    Attributes:
        turn: lets one check run at a time: each takes memory and a processor.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Semaphore(1)
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Take a place while the block runs.

        Args:
            key: the caller's browser or network.

        Raises:
            HttpRefused: all places of the kind, or of this caller, are taken.
        """
        if self._taken.total() >= PLACES or self._taken[key] >= PLACES_OF_ONE:
            raise HttpRefused(503, "too many log-ins at this moment", Retry_After="5")
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken -= Counter((key,))
