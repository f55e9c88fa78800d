"""Puts the ways in together that the settings ask for."""

import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog
from starlette.requests import HTTPConnection
from starlette.routing import Route

from amqsidecar.clock import Clock
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.access import Access, Caller, Refused, Role, Signing, Way
from amqsidecar.http.access_attempts import Attempts
from amqsidecar.http.access_files import (
    Named,
    WatchedFile,
    parse_tokens,
    parse_users,
    token_digest,
)
from amqsidecar.http.access_login import LoginPage
from amqsidecar.http.access_proxy import Proxies, ProxyWay, Roles
from amqsidecar.http.access_session import Sessions, fingerprint
from amqsidecar.http.access_settings import AccessSettings

audit = structlog.get_logger("amqsidecar.audit")


class Entrance(NamedTuple):
    """Who may come in, and the pages where they do."""

    access: Access
    routes: list[Route]


class _TokenWay:
    """Programs with a bearer token."""

    def __init__(
        self, tokens: Callable[[], Mapping[str, Named]], attempts: Attempts, proxies: Proxies
    ) -> None:
        self._tokens = tokens
        self._attempts = attempts
        self._proxies = proxies

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return whose token it is.

        Raises:
            Refused: nobody's.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        named = self._tokens().get(token_digest(token.strip()))
        if named is None:
            self._tell(self._proxies.client_address(request))
            raise Refused(401, "this token is not known", WWW_Authenticate="Bearer")
        return Caller(name=named.name, role=named.role, way="token", session=None)

    def _tell(self, address: str) -> None:
        """Write a line, but not one for each attempt of a stranger."""
        if self._attempts.wait_s(address) == 0:
            audit.warning("login_failed", actor="", way="token", address=address)
            self._attempts.failed(address)


def set_up(settings: AccessSettings, clock: Clock, stylesheet: str = "") -> Entrance:
    """Return who may come in and where.

    Raises:
        ConfigError: a file can't be used, or a library is missing.
    """
    signing = Signing(settings.session_key or secrets.token_bytes(32))
    proxies = Proxies(settings.trusted_proxies)
    roles = Roles(settings.operator_groups, settings.viewer_groups)
    ways: list[Way] = []
    if settings.tokens_file is not None:
        tokens = WatchedFile(settings.tokens_file, "http.tokens_file", parse_tokens)
        ways.append(_TokenWay(tokens.now, Attempts(clock), proxies))
    users = None
    if settings.users_file is not None:
        users = WatchedFile(settings.users_file, "http.users_file", parse_users)

    def role_now(name: str, proof: str) -> Role | None:
        user = None if users is None else users.now().get(name)
        return user.role if user is not None and fingerprint(user.proof) == proof else None

    def is_https(request: HTTPConnection) -> bool:
        return settings.public_url.startswith("https:") or proxies.is_https(request)

    sessions = Sessions(signing, settings.session_s, is_https, role_now)
    routes: list[Route] = []
    if users is not None or settings.oidc is not None:
        ways.append(sessions)
        page = LoginPage(
            sessions=sessions,
            users=None if users is None else users.now,
            attempts=Attempts(clock),
            proxies=proxies,
            signing=signing,
            has_oidc=settings.oidc is not None,
            stylesheet=stylesheet,
        )
        routes += page.routes()
    if settings.oidc is not None:
        routes += _oidc_routes(settings, sessions, roles, proxies, signing)
    if settings.proxy_user_header:
        ways.append(
            ProxyWay(proxies, roles, settings.proxy_user_header, settings.proxy_groups_header)
        )
    return Entrance(Access(ways, signing, settings.public_url, has_login=bool(routes)), routes)


def _oidc_routes(
    settings: AccessSettings, sessions: Sessions, roles: Roles, proxies: Proxies, signing: Signing
) -> list[Route]:
    assert settings.oidc is not None  # noqa: S101 - asked by the caller
    try:
        from amqsidecar.http.access_oidc import OidcLogin  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = f'needs the libraries of OpenID: pip install "amqsidecar[oidc]" ({error})'
        raise ConfigError([Problem("http.oidc.issuer", what)]) from error
    return OidcLogin(
        settings.oidc,
        public_url=settings.public_url,
        sessions=sessions,
        roles=roles,
        signing=signing,
        address_of=proxies.client_address,
    ).routes()
