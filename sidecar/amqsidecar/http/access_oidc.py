"""Log-in by an OpenID provider: code flow with PKCE, the ID token checked by Authlib."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import httpx2
import structlog
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from itsdangerous import BadSignature
from joserfc.errors import JoseError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from amqsidecar.http.access import Refused, Signing
from amqsidecar.http.access_proxy import Roles, clean_name
from amqsidecar.http.access_session import Sessions
from amqsidecar.http.access_settings import OidcSettings
from amqsidecar.http.answers import lead_on, own_path

audit = structlog.get_logger("amqsidecar.audit")
log = structlog.get_logger("amqsidecar.http")

START: Final = "/login/oidc"
BACK: Final = "/login/oidc/back"
"""Where the provider sends browsers back to, below `http.public_url`."""

_COOKIE: Final = "amqsidecar_login"
_COOKIE_S: Final = 600
_TIMEOUT_S: Final = 10
_LEEWAY_S: Final = 60


class OidcLogin:
    """Sends browsers to the provider and begins sessions when they come back."""

    def __init__(
        self,
        settings: OidcSettings,
        *,
        public_url: str,
        sessions: Sessions,
        roles: Roles,
        signing: Signing,
        address_of: Callable[[Request], str],
    ) -> None:
        self._settings = settings
        self._back_url = public_url.rstrip("/") + BACK
        self._is_https = public_url.startswith("https:")
        self._sessions = sessions
        self._roles = roles
        self._serializer = signing.serializer("oidc")
        self._address_of = address_of

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(START, self._start), Route(BACK, self._back)]

    def _client(self) -> Any:
        """Return a client that knows the provider and the secret as they are now."""
        settings = self._settings
        return OAuth().register(
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

    async def _start(self, request: Request) -> Response:
        session: dict[str, Any] = {}
        request.scope["session"] = session
        try:
            answer = await self._client().authorize_redirect(request, self._back_url)
        except (httpx2.HTTPError, ValueError, RuntimeError) as error:
            log.warning("oidc_unreachable", reason=str(error))
            raise Refused(503, "the OpenID provider can't be reached") from error
        to = own_path(request.query_params.get("next", "/"))
        text = self._serializer.dumps({"session": session, "to": to})
        assert isinstance(answer, Response)  # noqa: S101 - the library has no types
        answer.set_cookie(
            _COOKIE,
            text if isinstance(text, str) else text.decode(),
            max_age=_COOKIE_S,
            path=START,
            secure=self._is_https,
            httponly=True,
            # Why not strict: the provider's page leads back here.
            samesite="lax",
        )
        return answer

    async def _back(self, request: Request) -> Response:
        try:
            kept = self._serializer.loads(request.cookies.get(_COOKIE, ""), max_age=_COOKIE_S)
        except BadSignature:
            raise Refused(403, "this log-in was not begun here, or too long ago") from None
        request.scope["session"] = kept["session"]
        claims = await self._claims(request)
        name = clean_name(str(claims.get(self._settings.name_claim) or claims["sub"]))
        role = self._roles.role(_texts(claims.get(self._settings.groups_claim)))
        where = self._address_of(request)
        if role is None or not name:
            audit.warning("login_failed", actor=name, way="oidc", address=where, reason="no role")
            raise Refused(403, f"{name} is in no group that may come in")
        audit.info("login", actor=name, way="oidc", role=role.value, address=where)
        answer = lead_on(own_path(kept["to"]))
        self._sessions.begin(request, answer, name, "oidc", role)
        answer.delete_cookie(_COOKIE, path=START)
        return answer

    async def _claims(self, request: Request) -> Mapping[str, Any]:
        """Return what the checked ID token says."""
        options = {
            "iss": {"essential": True, "value": self._settings.issuer},
            "aud": {"essential": True, "value": self._settings.client_id},
            "sub": {"essential": True},
            "exp": {"essential": True},
        }
        try:
            token = await self._client().authorize_access_token(
                request, claims_options=options, leeway=_LEEWAY_S
            )
        except (AuthlibBaseError, JoseError, httpx2.HTTPError, ValueError, TypeError) as error:
            where = self._address_of(request)
            audit.warning(
                "login_failed", actor="", way="oidc", address=where, reason=type(error).__name__
            )
            log.warning("oidc_refused", reason=str(error))
            raise Refused(403, "the OpenID provider's answer does not let you in") from error
        claims = token.get("userinfo")
        if not isinstance(claims, Mapping):
            raise Refused(403, "the OpenID provider gave no ID token")
        return claims


def _texts(claim: object) -> Sequence[str]:
    if isinstance(claim, str):
        return [claim]
    return [item for item in claim if isinstance(item, str)] if isinstance(claim, list) else []
