"""Authorization over HTTP, decided in one place before any page or handler.

Open to all are metrics, health, static files and the log-in itself. Everything else needs a
caller: GET and `TRIALS` one with any role, everything else an operator. A change that a browser may
have been tricked into needs a token of the caller's session as well.
"""

import hmac
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from hashlib import sha256
from ipaddress import ip_address
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.requests import HTTPConnection

from amqsidecar.http.rights import EVERYTHING, VIEWING, Rights

CSRF_FIELD: Final = "csrf"
"""Of forms."""

CSRF_HEADER: Final = "X-CSRF-Token"
"""Of scripts."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

TRIALS: Final = frozenset({"/api/v1/policies/effect", "/api/v1/policies/explain"})
"""Paths whose POST changes nothing: it is open to whoever may read."""

RENEWED: Final = "amqsidecar.renewed"
"""Key of a request's scope: the cookie that renews a session in use."""

_CSRF_S: Final = 86_400


class Role(StrEnum):
    """A role that needs no `http.roles_file`."""

    VIEWER = "viewer"
    """Look."""
    OPERATOR = "operator"
    """Change things too."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller.

    Attributes:
        name: as logs and events call them.
        role: its name; of several with `+` between them.
        rights: of the role; `Access` sets them.
        way: authentication method: local, token, password, proxy or oidc.
        session: id to which the tokens of their forms are bound; None = the browser stores no
            credential of the caller, so a foreign site can't make it send one.
    """

    name: str
    role: str
    way: str
    session: str | None
    rights: Rights = VIEWING

    def actor(self, where: str) -> str:
        """Return the name for events, such as `console:anna`."""
        return f"{where}:{self.name}"


class HttpRefused(Exception):
    """A refused request.

    Attributes:
        status: of HTTP.
        headers: more of them.
    """

    def __init__(self, status: int, what: str, **headers: str) -> None:
        self.status = status
        self.what = what
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(what)


class Way(Protocol):
    """An authentication method."""

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return the caller; None = this method was not used.

        Raises:
            HttpRefused: it was taken, and leads nowhere.
        """


ROLES: Final = {Role.VIEWER.value: VIEWING, Role.OPERATOR.value: EVERYTHING}
"""The rights of the roles that need no file."""

RightsOf = Callable[[str], Rights | None]
"""A role to its rights now; None = there is no such role."""


class Signing:
    """Signs cookies."""

    def __init__(self, key: str | bytes) -> None:
        self._key = key

    def digest(self, text: str) -> str:
        """Return a digest of a text that nobody can make without the key."""
        key = self._key.encode() if isinstance(self._key, str) else self._key
        return hmac.new(key, b"digest " + text.encode(errors="replace"), sha256).hexdigest()

    def serializer(self, purpose: str) -> URLSafeTimedSerializer:
        """Return the signing for one purpose; signatures for other purposes are invalid."""
        return URLSafeTimedSerializer(
            self._key, salt=f"amqsidecar.{purpose}", signer_kwargs={"digest_method": sha256}
        )


class Access:
    """Authenticates and authorizes callers.

    Args:
        ways: authentication methods, tried in turn; if empty, every caller is an operator (loopback
            only).
        signing: of tokens of forms.
        public_url: where browsers see us, such as `https://sidecar.example`; "" = as they say.
        has_login: whether there is a page at `/login`.
        address_of: returns the source address of a request.
        rights_of: returns the rights of a role.
        has_roles: whether rights may be limited, so that metrics and health are, too.
    """

    def __init__(
        self,
        ways: Sequence[Way],
        signing: Signing,
        public_url: str = "",
        *,
        has_login: bool = False,
        address_of: Callable[[HTTPConnection], str] = lambda _request: "",
        rights_of: RightsOf = ROLES.get,
        has_roles: bool = False,
    ) -> None:
        self.address_of = address_of
        self.has_login = has_login
        self.has_roles = has_roles
        self._rights_of = rights_of
        self._ways = tuple(ways)
        self._csrf = signing.serializer("csrf")
        parts = urlsplit(public_url)
        self._public_name = _name_of(parts.netloc)
        self._public_origin = f"{parts.scheme}://{parts.netloc}".lower() if public_url else None

    def is_from_outside(self, request: HTTPConnection) -> bool:
        """Whether a request came through the proxy of a public URL with TLS.

        The proxy passes on the client's `Host`, perhaps with a port or a final dot.
        """
        names_us = _name_of(request.headers.get("host", "")) == self._public_name
        return self.is_tls_only and (names_us or "x-forwarded-for" in request.headers)

    @property
    def is_tls_only(self) -> bool:
        """Whether browsers see us by TLS."""
        return (self._public_origin or "").startswith("https:")

    @property
    def is_open(self) -> bool:
        """Whether authentication is off."""
        return not self._ways

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return the caller; None = not authenticated.

        Raises:
            HttpRefused: they showed something that leads nowhere.
        """
        if self.is_open:
            if not _is_local_name(request.headers.get("host", "")):
                # Why: a site that calls itself 127.0.0.1 would be in the browser's eyes at home.
                what = "without a log-in only localhost and IP addresses are answered in `Host`"
                raise HttpRefused(421, what)
            return Caller(
                name="local",
                role=Role.OPERATOR.value,
                way="local",
                session="local",
                rights=EVERYTHING,
            )
        for way in self._ways:
            caller = way.caller(request)
            if caller is not None:
                return self._with_rights(caller)
        return None

    def _with_rights(self, caller: Caller) -> Caller:
        rights = self._rights_of(caller.role)
        if rights is None:
            raise HttpRefused(403, f"http.roles_file has no role {caller.role} now")
        return msgspec.structs.replace(caller, rights=rights)

    def csrf_token(self, caller: Caller) -> str:
        """Return the token that forms and scripts of a caller send with changes; "" = none."""
        if caller.session is None:
            return ""
        token = self._csrf.dumps(caller.session)
        return token if isinstance(token, str) else token.decode()

    def check_role(self, caller: Caller) -> None:
        """Check that a caller may change something.

        Raises:
            HttpRefused: a viewer.
        """
        if not caller.rights.may_change:
            raise HttpRefused(403, f"{caller.name} may read, but not change anything")

    def check_intention(self, request: HTTPConnection, caller: Caller, token: str | None) -> None:
        """Check that a browser was not tricked.

        Raises:
            HttpRefused: another site's page, or a token that is wrong or too old.
        """
        if caller.session is None:
            return
        self.check_site(request)
        try:
            session = self._csrf.loads(token or "", max_age=_CSRF_S)
        except BadSignature:
            session = None
        if not isinstance(session, str) or not hmac.compare_digest(
            session.encode(), caller.session.encode()
        ):
            what = f"the {CSRF_HEADER} token is missing, wrong or expired; reload the page"
            raise HttpRefused(403, what)

    def check_site(self, request: HTTPConnection) -> None:
        """Check that a browser sends this from a page of the console.

        Raises:
            HttpRefused: it is another site's page.
        """
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin", "").lower()
        host = request.headers.get("host", "").lower()
        ours = ("", f"http://{host}", f"https://{host}", self._public_origin)
        if site not in ("same-origin", "none") or origin not in ours:
            raise HttpRefused(403, "a page of another site sent this request")


def _name_of(host: str) -> str:
    """Return the name in a `Host` header, without its port and its final dot."""
    return re.sub(r"\.?(:\d*)?$", "", host.lower())


def _is_local_name(host: str) -> bool:
    """Whether a `Host` header names this machine in a way that no stranger can register."""
    name = _name_of(host).removeprefix("[").removesuffix("]")
    if name == "localhost":
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
