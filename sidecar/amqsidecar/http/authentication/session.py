"""Sessions: signed cookies after a log-in, and the checks of their validity."""

import secrets
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from amqsidecar.http.access import RENEWED, SAFE_METHODS, Caller, HttpRefused
from amqsidecar.http.authentication.cookies import AccessMeans, SignedCookie

COOKIE: Final = "amqsidecar_session"
_MAX_ENDED: Final = 10_000
_RENEW_S: Final = 60
"""Age from which a request that shows activity renews the cookie."""


class SessionOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a session.

    Attributes:
        way: how they showed who they are: password or oidc.
        proof: password: fingerprint of the line in the users' file; a changed one ends the session.
        groups: oidc: theirs at the provider. Why no role: each sidecar with the same key gives
            roles by its own options.
    """

    name: str
    way: str
    proof: str = ""
    groups: tuple[str, ...] = ()


class _Kept(msgspec.Struct, frozen=True):
    """The content of the cookie.

    Attributes:
        checked_s: Unix time in seconds of the log-in, or of the last check at the OpenID provider.
    """

    id: str
    owner: SessionOwner
    checked_s: float


def fingerprint(proof: str) -> str:
    """Return a fingerprint of a proof, which reveals nothing about it."""
    return sha256(proof.encode()).hexdigest()[:32]


class Sessions:
    """Begins, reads, renews and ends sessions."""

    def __init__(self, means: AccessMeans) -> None:
        self._means = means
        settings = means.settings
        self._oidc_s = settings.session_s if settings.oidc is None else settings.oidc.recheck_s
        self._max_age_s = settings.session_s
        self._cookie = SignedCookie(COOKIE, means, min(settings.idle_s, settings.session_s))
        self._ended: dict[str, None] = {}

    def begin(
        self,
        request: HTTPConnection,
        response: Response,
        owner: SessionOwner,
        session: str | None = None,
    ) -> None:
        """Set the session cookie of an answer.

        Args:
            request: that is answered.
            owner: the user.
            session: the id of a session that goes on, so that its forms stay good; None = a new
                one.
        """
        session = session or secrets.token_urlsafe(16)
        kept = _Kept(session, owner, datetime.now(UTC).timestamp())
        self._cookie.write(request, response, msgspec.to_builtins(kept))

    def end(self, request: HTTPConnection, response: Response) -> None:
        """End the session, in the browser and here."""
        kept, _ = self._kept(request) or (None, 0.0)
        if kept is not None:
            self._ended[kept.id] = None
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        self._cookie.delete(request, response)

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return the owner of the session, with their present role; renew a session in use.

        Raises:
            HttpRefused: none of their groups has a role here.
        """
        kept, idle_s = self._kept(request) or (None, 0.0)
        if kept is None:
            return None
        owner, is_oidc = kept.owner, kept.owner.way == "oidc"
        if is_oidc and _age_s(kept) > self._oidc_limit_s(request):
            return None
        role = self._role_now(owner)
        if role is None and is_oidc:
            raise HttpRefused(403, f"{owner.name} is in no group that has access")
        if role is None:
            return None
        if idle_s >= _RENEW_S and _shows_activity(request):
            renewed = Response()
            self._cookie.write(request, renewed, msgspec.to_builtins(kept))
            request.scope[RENEWED] = renewed.headers["set-cookie"]
        return Caller(name=owner.name, role=role, way=owner.way, session=kept.id)

    def _role_now(self, owner: SessionOwner) -> str | None:
        if owner.way == "oidc":
            return self._means.roles.of_groups(owner.groups)
        user = self._means.user(owner.name)
        return user.role if user is not None and fingerprint(user.proof) == owner.proof else None

    def lapsed(self, request: HTTPConnection) -> tuple[str, str] | None:
        """Return name and id of a session whose role must be requested again; None = none.

        Only the provider decides whether the session continues; the expired one proves nothing.
        """
        kept, _ = self._kept(request) or (None, 0.0)
        if kept is None or kept.owner.way != "oidc" or _age_s(kept) <= self._oidc_s:
            return None
        return kept.owner.name, kept.id

    def _oidc_limit_s(self, request: HTTPConnection) -> int:
        """Return how old a session by OpenID may be; forms and scripts of an open page get longer.

        Why: only a page that is opened can lead a browser to the provider and back.
        """
        is_page = _is_page(request) and request.scope.get("method") in SAFE_METHODS
        return self._oidc_s if is_page else 2 * self._oidc_s

    def _kept(self, request: HTTPConnection) -> tuple[_Kept, float] | None:
        """Return the content of the cookie, and the seconds since it was renewed."""
        value, idle_s = self._cookie.read(request) or (None, 0.0)
        try:
            kept = msgspec.convert(value, _Kept)
        except msgspec.ValidationError:
            return None
        is_over = kept.id in self._ended or _age_s(kept) > self._max_age_s
        return None if is_over else (kept, idle_s)


def _age_s(kept: _Kept) -> float:
    return datetime.now(UTC).timestamp() - kept.checked_s


def _is_page(request: HTTPConnection) -> bool:
    return request.headers.get("sec-fetch-mode", "navigate") == "navigate"


def _shows_activity(request: HTTPConnection) -> bool:
    return _is_page(request) or request.scope.get("method") not in SAFE_METHODS
