"""Builds the authentication methods that the settings name."""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from starlette.requests import HTTPConnection
from starlette.routing import Route

from amqsidecar.clock import Clock
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.access import Access, Caller, HttpRefused, Signing, Way
from amqsidecar.http.authentication.attempts import FailedLogins
from amqsidecar.http.authentication.cookies import AccessMeans
from amqsidecar.http.authentication.files import (
    User,
    access_file,
    parse_tokens,
    parse_users,
    token_digest,
)
from amqsidecar.http.authentication.login import CountLogin, LoginPage
from amqsidecar.http.authentication.proxy import Proxies, ProxyWay
from amqsidecar.http.authentication.roles import Roles, parse_roles
from amqsidecar.http.authentication.session import Sessions
from amqsidecar.http.authentication.settings import AccessSettings, OidcSettings
from amqsidecar.telemetry import audit


class Entrance(NamedTuple):
    """Authentication methods and their pages."""

    access: Access
    routes: list[Route]


class _TokenWay:
    """Programs with a bearer token."""

    def __init__(
        self, tokens: Callable[[], Mapping[str, User]], attempts: FailedLogins, proxies: Proxies
    ) -> None:
        self._tokens = tokens
        self._attempts = attempts
        self._proxies = proxies

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return the owner of the token.

        Raises:
            HttpRefused: the token is unknown.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        named = self._tokens().get(token_digest(token.strip()))
        if named is None:
            self._log_failure(self._proxies.client_address(request))
            raise HttpRefused(401, "this token is not known", WWW_Authenticate="Bearer")
        return Caller(name=named.name, role=named.role, way="token", session=None)

    def _log_failure(self, address: str) -> None:
        """Log a line, but not one for each attempt of a stranger."""
        if self._attempts.wait_s(address) == 0:
            by = audit.Actor(name="", way="token", address=address)
            audit.write("log-in", audit.ActKind.LOG_IN, by=by, is_success=False)
            self._attempts.failed(address)


def set_up(
    settings: AccessSettings,
    clock: Clock,
    stylesheet: str = "",
    count: CountLogin = lambda _kind, _result: None,
) -> Entrance:
    """Return the authentication methods and their pages; `count` counts log-ins by password.

    Raises:
        ConfigError: a file can't be used, or a library is missing.
    """
    signing = Signing(settings.session_key or secrets.token_bytes(32))
    proxies = Proxies(settings.trusted_proxies)
    roles, has_roles = Roles(settings.operator_groups, settings.viewer_groups), False
    if settings.roles_file is not None:
        named, has_roles = access_file(settings.roles_file, "http.roles_file", parse_roles), True
        roles = Roles(settings.operator_groups, settings.viewer_groups, named)
    ways: list[Way] = []
    if settings.tokens_file is not None:
        tokens = access_file(
            settings.tokens_file, "http.tokens_file", partial(parse_tokens, has_roles=has_roles)
        )
        ways.append(_TokenWay(tokens, FailedLogins(clock), proxies))
    users = None
    if settings.users_file is not None:
        users = access_file(
            settings.users_file, "http.users_file", partial(parse_users, has_roles=has_roles)
        )

    means = AccessMeans(settings, signing, proxies, roles, users)
    sessions, routes = Sessions(means), list[Route]()
    if users is not None or settings.oidc is not None:
        ways.append(sessions)
        routes += LoginPage(means, sessions, clock, stylesheet, count).routes()
    if settings.oidc is not None:
        routes += _oidc_routes(settings.oidc, means, sessions)
    if settings.proxy_user_header:
        ways.append(
            ProxyWay(proxies, roles, settings.proxy_user_header, settings.proxy_groups_header)
        )
    access = Access(
        ways,
        signing,
        settings.public_url,
        has_login=bool(routes),
        address_of=proxies.client_address,
        rights_of=roles.rights_of,
        has_roles=has_roles,
    )
    return Entrance(access, routes)


def _oidc_routes(settings: OidcSettings, means: AccessMeans, sessions: Sessions) -> list[Route]:
    try:
        from amqsidecar.http.authentication.oidc import OidcLogin  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = f'needs the libraries of OpenID: pip install "amqsidecar[oidc]" ({error})'
        raise ConfigError([Problem("http.oidc.issuer", what)]) from error
    return OidcLogin(settings, means, sessions).routes()
