"""Sessions: signed cookies after a log-in, and the checks of their validity."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import msgspec
from itsdangerous import BadSignature
from starlette.requests import HTTPConnection
from starlette.responses import Response

from amqsidecar.http.access import SAFE_METHODS, Caller, Role, Signing

COOKIE: Final = "amqsidecar_session"
_MAX_ENDED: Final = 10_000


class _Kept(msgspec.Struct, frozen=True):
    """The content of the cookie.

    Attributes:
        id: of the session.
        proof: PASSWORD: fingerprint of the line in the users' file; a changed one ends the session.
    """

    id: str
    name: str
    way: str
    role: Role
    proof: str = ""


RoleNow = Callable[[str, str], Role | None]
"""The name of a user and the fingerprint of their proof to their role now; None = none any more."""


def fingerprint(proof: str) -> str:
    """Return a fingerprint of a proof, which reveals nothing about it."""
    return sha256(proof.encode()).hexdigest()[:32]


class Sessions:
    """Begins, reads and ends sessions."""

    def __init__(
        self,
        signing: Signing,
        max_age_s: int,
        is_https: Callable[[HTTPConnection], bool],
        role_now: RoleNow | None,
        oidc_s: int = 300,
    ) -> None:
        """Begin with none.

        Args:
            signing: of the cookie.
            max_age_s: maximum lifetime of a session.
            is_https: whether the browser came by TLS.
            role_now: of users with passwords; None = there are none.
            oidc_s: age at which a session by OpenID is checked at the provider, when its browser
                opens a page; at twice this age it ends.
        """
        self._oidc_s = oidc_s
        self._serializer = signing.serializer("session")
        self._max_age_s = max_age_s
        self._is_https = is_https
        self._role_now = role_now
        self._ended: dict[str, None] = {}

    def begin(
        self,
        request: HTTPConnection,
        response: Response,
        name: str,
        way: str,
        role: Role,
        proof: str = "",
        session: str | None = None,
    ) -> None:
        """Set the session cookie of an answer.

        Args:
            request: that is answered.
            response: its answer.
            name: the user's name.
            way: how they showed it.
            role: theirs.
            proof: see `_Kept`.
            session: the id of a session that goes on, so that its forms stay good; None = a new
                one.
        """
        kept = _Kept(session or secrets.token_urlsafe(16), name, way, role, proof)
        text = self._serializer.dumps(msgspec.to_builtins(kept))
        response.set_cookie(
            COOKIE,
            text if isinstance(text, str) else text.decode(),
            max_age=self._max_age_s,
            path="/",
            secure=self._is_https(request),
            httponly=True,
            samesite="strict",
        )

    def end(self, request: HTTPConnection, response: Response) -> None:
        """End the session, in the browser and here."""
        kept, _ = self._kept(request) or (None, 0.0)
        if kept is not None:
            self._ended[kept.id] = None
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        response.delete_cookie(
            COOKIE, path="/", secure=self._is_https(request), httponly=True, samesite="strict"
        )

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return the owner of the session, with their present role."""
        kept, age_s = self._kept(request) or (None, 0.0)
        if kept is None or (kept.way == "oidc" and age_s > self._oidc_limit_s(request)):
            return None
        role: Role | None = kept.role
        if kept.way == "password":
            role = None if self._role_now is None else self._role_now(kept.name, kept.proof)
        if role is None:
            return None
        return Caller(name=kept.name, role=role, way=kept.way, session=kept.id)

    def lapsed(self, request: HTTPConnection) -> tuple[str, str] | None:
        """Return name and id of a session whose role must be requested again; None = none.

        Only the provider decides whether the session continues; the expired one proves nothing.
        """
        kept, age_s = self._kept(request) or (None, 0.0)
        if kept is None or kept.way != "oidc" or age_s <= self._oidc_s:
            return None
        return kept.name, kept.id

    def _oidc_limit_s(self, request: HTTPConnection) -> int:
        """Return how old a session by OpenID may be; forms and scripts of an open page get longer.

        Why: only a page that is opened can lead a browser to the provider and back.
        """
        is_page = request.headers.get("sec-fetch-mode", "navigate") == "navigate"
        is_page &= request.scope.get("method") in SAFE_METHODS
        return self._oidc_s if is_page else 2 * self._oidc_s

    def _kept(self, request: HTTPConnection) -> tuple[_Kept, float] | None:
        """Return the content of the cookie and its age in seconds."""
        text = request.cookies.get(COOKIE)
        if not text:
            return None
        try:
            value, signed_at = self._serializer.loads(
                text, max_age=self._max_age_s, return_timestamp=True
            )
            kept = msgspec.convert(value, _Kept)
        except (BadSignature, msgspec.ValidationError):
            return None
        age_s = (datetime.now(UTC) - signed_at).total_seconds()
        return None if kept.id in self._ended else (kept, age_s)
