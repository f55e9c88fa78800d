"""Signed cookies, which browsers send to this host only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from itsdangerous import BadSignature
from starlette.requests import HTTPConnection
from starlette.responses import Response

from amqsidecar.http.access import Signing
from amqsidecar.http.authentication.files import User
from amqsidecar.http.authentication.proxy import Proxies
from amqsidecar.http.authentication.roles import Roles
from amqsidecar.http.authentication.settings import AccessSettings

_HOST_ONLY: Final = "__Host-"
"""Prefix of a name: browsers take such a cookie from this host by TLS only, for all its paths."""


@dataclass(frozen=True)
class AccessMeans:
    """The common part of the authentication methods.

    Attributes:
        users: by name, as they are now; None = there are no passwords.
    """

    settings: AccessSettings
    signing: Signing
    proxies: Proxies
    roles: Roles
    users: Callable[[], Mapping[str, User]] | None = None

    def user(self, name: str) -> User | None:
        """Return the user of this name; None = there is none, or there are no passwords."""
        return None if self.users is None else self.users().get(name)

    def is_https(self, request: HTTPConnection) -> bool:
        """Whether the browser came by TLS."""
        is_public = self.settings.public_url.startswith("https:")
        return is_public or self.proxies.is_https(request)


class SignedCookie:
    """A cookie with a signed value; scripts can't read it.

    Args:
        name: unique among our cookies; signatures of others are invalid.
        means: sign its value, and tell whether the browser came by TLS.
        max_age_s: maximum age of a signature.
        same_site: `lax` = sent by a link of another site, too.
    """

    def __init__(
        self,
        name: str,
        means: AccessMeans,
        max_age_s: int,
        same_site: Literal["strict", "lax"] = "strict",
    ) -> None:
        self._name = name
        self._serializer = means.signing.serializer(name)
        self._is_https = means.is_https
        self._max_age_s = max_age_s
        self._same_site = same_site

    def read(self, request: HTTPConnection) -> tuple[Any, float] | None:
        """Return value and age in seconds; None = there is none, or it is forged or too old."""
        try:
            value, signed_at = self._serializer.loads(
                self.text(request), max_age=self._max_age_s, return_timestamp=True
            )
        except BadSignature:
            return None
        return value, (datetime.now(UTC) - signed_at).total_seconds()

    def text(self, request: HTTPConnection) -> str:
        """Return the cookie as the browser sent it; "" = it sent none."""
        return request.cookies.get(self._name_for(request), "")

    def write(self, request: HTTPConnection, response: Response, value: Any) -> None:
        """Add the cookie to an answer."""
        text = self._serializer.dumps(value)
        response.set_cookie(
            self._name_for(request),
            text if isinstance(text, str) else text.decode(),
            max_age=self._max_age_s,
            secure=self._is_https(request),
            httponly=True,
            samesite=self._same_site,
        )

    def delete(self, request: HTTPConnection, response: Response) -> None:
        """Remove the cookie from the browser."""
        response.delete_cookie(
            self._name_for(request), secure=self._is_https(request), httponly=True
        )

    def _name_for(self, request: HTTPConnection) -> str:
        return f"{_HOST_ONLY if self._is_https(request) else ''}{self._name}"
