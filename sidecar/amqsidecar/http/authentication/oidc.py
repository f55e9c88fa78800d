"""Log-in by an OpenID provider: code flow with PKCE, the ID token checked by Authlib."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import httpx2
import structlog
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from joserfc.errors import JoseError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.answers import lead_on, own_path
from amqsidecar.http.authentication.cookies import AccessMeans, SignedCookie
from amqsidecar.http.authentication.proxy import clean_name
from amqsidecar.http.authentication.session import SessionOwner, Sessions
from amqsidecar.http.authentication.settings import OidcSettings
from amqsidecar.telemetry import audit

log = structlog.get_logger("amqsidecar.http")

START: Final = "/login/oidc"
BACK: Final = "/login/oidc/back"
"""Where the provider sends browsers back to, below `http.public_url`."""

_COOKIE_S: Final = 600
_TIMEOUT_S: Final = 10
_LEEWAY_S: Final = 60
_USED_MAX: Final = 10_000

ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""Of signatures that only the provider can make: neither `none`, nor one by the client's secret."""


class WrongProvider(Exception):
    """The metadata of a provider is unusable."""


class OidcLogin:
    """Sends browsers to the provider and begins sessions when they come back."""

    def __init__(self, settings: OidcSettings, means: AccessMeans, sessions: Sessions) -> None:
        self._settings = settings
        self._back_url = means.settings.public_url.rstrip("/") + BACK
        self._used: dict[str, None] = {}
        self._sessions = sessions
        self._roles = means.roles
        # Why not strict: the provider's page leads back here.
        self._cookie = SignedCookie("amqsidecar_login", means, _COOKIE_S, "lax")
        self._address_of = means.proxies.client_address

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(START, self._start), Route(BACK, self._back)]

    async def _client(self) -> Any:
        """Return a client that knows the provider and the secret as they are now.

        Raises:
            WrongProvider: its issuer differs, or it signs with no accepted algorithm.
        """
        settings = self._settings
        client = OAuth().register(
            name="oidc",
            client_id=settings.client_id,
            client_secret=settings.client_secret(),
            server_metadata_url=f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(settings.scopes),
                "code_challenge_method": "S256",
                "timeout": _TIMEOUT_S,
            },
        )
        metadata = await client.load_server_metadata()
        if metadata.get("issuer") != settings.issuer:
            raise WrongProvider(f"it calls itself {metadata.get('issuer')!r:.200}")
        named = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        taken = [name for name in named if name in ALGORITHMS]
        if not taken:
            raise WrongProvider("it signs with no asymmetric algorithm")
        metadata["id_token_signing_alg_values_supported"] = taken
        return client

    async def _start(self, request: Request) -> Response:
        session: dict[str, Any] = {}
        request.scope["session"] = session
        try:
            client = await self._client()
            answer = await client.authorize_redirect(request, self._back_url)
        except WrongProvider as error:
            log.warning("oidc_refused", reason=str(error))
            raise HttpRefused(
                503, "the OpenID provider is not the one that is configured"
            ) from error
        except (httpx2.HTTPError, ValueError, RuntimeError) as error:
            log.warning("oidc_unreachable", reason=str(error))
            raise HttpRefused(503, "the OpenID provider can't be reached") from error
        to = own_path(request.query_params.get("next", "/"))
        begun = {"session": session, "to": to, "lapsed": self._sessions.lapsed(request)}
        assert isinstance(answer, Response)  # noqa: S101 - the library has no types
        self._cookie.write(request, answer, begun)
        return answer

    async def _back(self, request: Request) -> Response:
        kept, _ = self._cookie.read(request) or (None, 0.0)
        if kept is None:
            raise HttpRefused(403, "this log-in began elsewhere, or too long ago")
        self._use(self._cookie.text(request))
        request.scope["session"] = kept["session"]
        claims = await self._claims(request)
        name = clean_name(str(claims.get(self._settings.name_claim) or claims["sub"]))
        groups = self._roles.kept(_texts(claims.get(self._settings.groups_claim)))
        role = self._roles.of_groups(groups)
        if role is None or not name:
            self._refuse(request, name, "no role")
            raise HttpRefused(403, f"{name} is in no group that has access")
        by = self._actor(request, name)
        audit.write("log-in", audit.ActKind.LOG_IN, by=by, role=role)
        answer = lead_on(own_path(kept["to"]))
        before, session = kept["lapsed"] or ("", None)
        session = session if before == name else None
        owner = SessionOwner(name=name, way="oidc", groups=groups)
        self._sessions.begin(request, answer, owner, session)
        self._cookie.delete(request, answer)
        return answer

    def _actor(self, request: Request, name: str) -> audit.Actor:
        return audit.Actor(name=name, way="oidc", address=self._address_of(request))

    def _refuse(self, request: Request, name: str, reason: str) -> None:
        by = self._actor(request, name)
        audit.write("log-in", audit.ActKind.LOG_IN, by=by, is_success=False, reason=reason)

    def _use(self, begun: str) -> None:
        """Use up a log-in that was begun; a second answer to it is refused.

        Raises:
            HttpRefused: it was used before.
        """
        key = sha256(begun.encode()).hexdigest()
        if key in self._used:
            raise HttpRefused(403, "this log-in is already finished; start again")
        self._used[key] = None
        if len(self._used) > _USED_MAX:
            del self._used[next(iter(self._used))]

    async def _claims(self, request: Request) -> Mapping[str, Any]:
        """Return the claims of the checked ID token."""
        options = {
            "iss": {"essential": True, "value": self._settings.issuer},
            "aud": {"essential": True, "value": self._settings.client_id},
            "sub": {"essential": True},
            "exp": {"essential": True},
        }
        try:
            client = await self._client()
            self._check_issuer(request, await client.load_server_metadata())
            token = await client.authorize_access_token(
                request, claims_options=options, leeway=_LEEWAY_S
            )
        except _REFUSALS as error:
            self._refuse(request, "", type(error).__name__)
            log.warning("oidc_refused", reason=str(error))
            raise HttpRefused(403, "the OpenID provider's answer does not grant access") from error
        claims = token.get("userinfo")
        if not isinstance(claims, Mapping):
            raise HttpRefused(403, "the OpenID provider gave no ID token")
        return claims

    def _check_issuer(self, request: Request, metadata: Mapping[str, Any]) -> None:
        """Check that this provider sent the browser back (RFC 9207), not one that it confuses.

        Raises:
            WrongProvider: the answer names another issuer, or none where the provider names itself.
        """
        named = request.query_params.getlist("iss")
        is_named = metadata.get("authorization_response_iss_parameter_supported") is True
        if named != [self._settings.issuer] and (named or is_named):
            raise WrongProvider(f"the answer comes from {named!r:.200}")


_REFUSALS: Final = (
    *(AuthlibBaseError, JoseError, httpx2.HTTPError, WrongProvider),
    *(ValueError, TypeError, RuntimeError),
)


def _texts(claim: object) -> Sequence[str]:
    if isinstance(claim, str):
        return [claim]
    return [item for item in claim if isinstance(item, str)] if isinstance(claim, list) else []
