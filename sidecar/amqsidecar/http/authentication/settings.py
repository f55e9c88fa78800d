"""The settings of access."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from amqsidecar.http.authentication.proxy import Network


class Bodies(StrEnum):
    """The roles that may see the content of messages."""

    OPERATORS = "operators"
    VIEWERS = "viewers"
    """Every authenticated user."""
    NOBODY = "nobody"


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The OpenID provider.

    Attributes:
        issuer: its URL, as it calls itself.
        client_secret: returns it as it is now; None = a public client.
        name_claim: claim with the actor's name.
        groups_claim: claim with the groups that map to roles.
        recheck_s: age at which a session is checked at the provider, when its browser opens a page;
            at twice this age it ends.
    """

    issuer: str
    client_id: str
    client_secret: Callable[[], str | None]
    scopes: Sequence[str]
    name_claim: str
    groups_claim: str
    recheck_s: int = 300


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The authentication methods; see the options of the same names in `http`.

    None at all: everybody is operator.

    Attributes:
        session_key: key that signs sessions; None = made at start.
        session_s: maximum time since the log-in.
        idle_s: maximum time since a person last opened a page or changed something. A page that
            refreshes itself shows no person.
        oidc: None = there is no provider.
    """

    public_url: str = ""
    tokens_file: Path | None = None
    users_file: Path | None = None
    roles_file: Path | None = None
    session_key: str | None = None
    session_s: int = 43_200
    idle_s: int = 3_600
    trusted_proxies: Sequence[Network] = ()
    proxy_user_header: str = ""
    proxy_groups_header: str = ""
    operator_groups: Sequence[str] = ()
    viewer_groups: Sequence[str] = ()
    oidc: OidcSettings | None = None
