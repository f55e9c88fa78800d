"""Sessions: what a browser keeps after a log-in, signed, and what of it still counts."""

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import msgspec
from itsdangerous import BadSignature
from starlette.requests import HTTPConnection
from starlette.responses import Response

from amqsidecar.http.access import Caller, Role, Signing

COOKIE: Final = "amqsidecar_session"
_MAX_ENDED: Final = 10_000


class _Kept(msgspec.Struct, frozen=True):
    """What the cookie holds.

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
    """Return what tells whether a proof is still the same, and tells nothing else."""
    return sha256(proof.encode()).hexdigest()[:32]


class Sessions:
    """Begins, reads and ends sessions."""

    def __init__(
        self,
        signing: Signing,
        max_age_s: int,
        is_https: Callable[[HTTPConnection], bool],
        role_now: RoleNow | None,
    ) -> None:
        """Begin with none.

        Args:
            signing: of the cookie.
            max_age_s: a session ends after so long, whatever is done in it.
            is_https: whether the browser came by TLS.
            role_now: of users with passwords; None = there are none.
        """
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
    ) -> None:
        """Let the answer tell the browser who it is from now on."""
        kept = _Kept(secrets.token_urlsafe(16), name, way, role, proof)
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
        kept = self._kept(request)
        if kept is not None:
            self._ended[kept.id] = None
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        response.delete_cookie(
            COOKIE, path="/", secure=self._is_https(request), httponly=True, samesite="strict"
        )

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return whose session it is, with the role that they have now."""
        kept = self._kept(request)
        if kept is None:
            return None
        role: Role | None = kept.role
        if kept.way == "password":
            role = None if self._role_now is None else self._role_now(kept.name, kept.proof)
        if role is None:
            return None
        return Caller(name=kept.name, role=role, way=kept.way, session=kept.id)

    def _kept(self, request: HTTPConnection) -> _Kept | None:
        text = request.cookies.get(COOKIE)
        if not text:
            return None
        try:
            kept = msgspec.convert(self._serializer.loads(text, max_age=self._max_age_s), _Kept)
        except (BadSignature, msgspec.ValidationError):
            return None
        return None if kept.id in self._ended else kept
