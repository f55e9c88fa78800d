"""Options `http.*`: metrics, health, console and API, and their authentication."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

import regex
from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from amqsidecar.config.option import (
    KeyedProblem,
    OptionalPath,
    Section,
    StrictBool,
    StrictInt,
    Texts,
    as_texts,
    each_text,
    option,
    section,
)
from amqsidecar.config.secrets import Secret, secret_in
from amqsidecar.config.web_url import web_url
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.destination import parse_pattern
from amqsidecar.operations.last_death import PLACEHOLDERS, placeholders


class BodyChoice(StrEnum):
    """The roles that may see the content of messages."""

    OPERATORS = "operators"
    VIEWERS = "viewers"
    NOBODY = "nobody"


def _checked_listen(value: object) -> str:
    if value in (None, ""):
        return ""
    if not isinstance(value, str):
        raise ValueError("expected address:port, such as 127.0.0.1:9464")  # noqa: TRY004 - pydantic wants it
    split_listen(value)
    return value


def split_listen(text: str) -> tuple[str, int]:
    """Return address and port of a text such as `127.0.0.1:9464` or `[::1]:9464`.

    Raises:
        ValueError: it is not such a text.

    Example:
        >>> split_listen("[::1]:9464")
        ('::1', 9464)
    """
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("expected address:port, such as 127.0.0.1:9464")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        ip_address(host)
    except ValueError as error:
        raise ValueError(
            "expected an IP address before the port, such as 127.0.0.1:9464; "
            "0.0.0.0 or [::] listen on all interfaces"
        ) from error
    return host, int(port)


ListenAddress = Annotated[str, BeforeValidator(_checked_listen)]

_WEB_URL = web_url("https://host.example.com")


def _check_regex(text: str) -> None:
    try:
        regex.compile(text)
    except regex.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error


def _as_networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    texts = as_texts(value)
    # Why: a number would be the address with that number.
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ValueError("expected addresses or networks, such as 10.0.0.0/8")
    return tuple(ip_network(text) for text in texts)


Patterns = Annotated[tuple[str, ...], each_text(_check_regex)]
Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    BeforeValidator(_as_networks, json_schema_input_type=str | list[str]),
    PlainSerializer(lambda networks: [str(network) for network in networks], return_type=list[str]),
]


def _as_links(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError("expected a mapping from name to URL, such as logs: https://logs.example")
    for name, template in value.items():
        if urlsplit(template).scheme not in ("http", "https"):
            raise ValueError(f"{name}: expected a URL of http or https")
        unknown = set(placeholders(template)) - {*PLACEHOLDERS}
        if unknown:
            known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise ValueError(f"{name}: expected {known}, found {{{min(unknown)}}}")
    return {str(name): template for name, template in value.items()}


Links = Annotated[
    Mapping[str, str], PlainValidator(_as_links, json_schema_input_type=dict[str, str])
]


def _as_owners(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError("expected a mapping from pattern to team, such as orders.>: team-a")
    for pattern in value:
        parse_pattern(str(pattern))
    return {str(pattern): owner for pattern, owner in value.items()}


Owners = Annotated[
    Mapping[str, str], PlainValidator(_as_owners, json_schema_input_type=dict[str, str])
]


class OidcOptions(Section):
    """Log-in by an OpenID provider."""

    issuer: Annotated[str, BeforeValidator(_WEB_URL)] = option(
        "",
        "Issuer URL of the provider; empty = none. Needs `http.public_url` and `pip install "
        '"amqsidecar[oidc]"`. At the provider, register `/login/oidc/back` below the public URL.',
    )
    client_id: str = option("", "Client id at the provider.")
    client_secret_file: OptionalPath = option(
        None,
        "File that holds the client's secret, read at each log-in; empty = a public client. PKCE "
        "is used either way.",
    )
    scopes: Texts = option(
        ("openid", "profile"),
        "Requested scopes; add the one for which the provider returns groups, such as `groups`.",
    )
    name_claim: str = option(
        "preferred_username", "Claim with the user's name for logs and events; without it, `sub`."
    )
    recheck_minutes: StrictInt = option(
        5,
        "Time after which the next page view goes through the provider again, so that a "
        "withdrawn role ends; users who are still logged in there notice nothing. After twice "
        "this time, requests from an open page are refused.",
        unit="minutes",
        ge=1,
        le=60,
    )
    groups_claim: str = option(
        "groups",
        "Claim with the groups that `http.operator_groups` and `http.viewer_groups` name.",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield a provider without a client, or without TLS."""
        if not self.issuer:
            return
        if not self.client_id:
            yield "client_id", "is not set: it is the client id at the provider"
        parts = urlsplit(self.issuer)
        if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            yield "issuer", "is without TLS, so anyone on the network path could grant access"


class HttpOptions(Section):
    """Metrics, health, console and API."""

    listen: ListenAddress = option(
        "127.0.0.1:9464",
        "Address and port of `/metrics`, `/healthz`, `/readyz`, the console and the API "
        "(`console.md`); port 0 = any free one; empty = off. Beyond loopback it needs an "
        "authentication method, or `console: false`.",
        why="OpenTelemetry's port for Prometheus exporters; loopback is not reachable by accident",
    )
    console: StrictBool = option(
        True,
        "Whether console and API are served; `false` = metrics and health only, which need no "
        "authentication.",
    )
    metrics_destinations: StrictInt = option(
        200,
        "Maximum destinations with their own label in metrics at a time. The others share `other`.",
        why="some thousand time series, which any Prometheus can store; each alert names its "
        "destination",
        unit="destinations",
        ge=1,
        le=100_000,
    )
    metrics_owners: Owners = option(
        {},
        "Teams by pattern of destinations, such as `orders.>: team-a`: alerts of a destination "
        "carry the label `owner`, by which Alertmanager routes them.",
    )
    public_url: Annotated[str, BeforeValidator(_WEB_URL)] = option(
        "",
        "The console's address in browsers, such as `https://sidecar.example.com`. With `https:` "
        "cookies go over TLS only. Empty = the address that the browser sends.",
    )
    tokens_file: OptionalPath = option(
        None,
        "File of bearer tokens for programs, one `NAME ROLE sha256:...` a line; `amqsidecar access "
        "token` makes them. Read again when it changes.",
    )
    users_file: OptionalPath = option(
        None,
        "File of users with passwords, one `NAME ROLE scrypt$...` a line; `amqsidecar access "
        "user` makes them. Read again when it changes.",
    )
    roles_file: OptionalPath = option(
        None,
        "File of roles with rights by destination (`console.md#rights-by-destination`), beside "
        "`viewer` and `operator`. Read again when it changes. With it, `/metrics` needs a role "
        "without limits, and health answers only whether it is good.",
    )
    second_person_above: StrictInt | None = option(
        None,
        "In console and API, a discard, and any other action on more messages than this, is "
        "paused until another person with the right resumes it. Empty = none is.",
        unit="messages",
        ge=0,
        le=1_000_000_000,
    )
    session_key_file: OptionalPath = option(
        None,
        "File with the secret that signs sessions, 32 characters or more. Empty = a new one at "
        "each start, so a restart ends all sessions. Several sidecars behind one address need the "
        "same secret.",
    )
    session_hours: StrictInt = option(
        12, "Lifetime of a session after log-in.", unit="hours", ge=1, le=720
    )
    idle_minutes: StrictInt = option(
        60,
        "Time without a page view or change after which a session ends. A page that refreshes "
        "itself does not count.",
        unit="minutes",
        ge=2,
        le=43_200,
    )
    trusted_proxies: Networks = option(
        (),
        "Addresses or networks of trusted proxies, such as `10.0.0.0/8`. These headers are "
        "accepted from them: `X-Forwarded-For`, `X-Forwarded-Proto`, and the two that follow.",
    )
    proxy_user_header: str = option(
        "",
        "Header in which a trusted proxy names the authenticated user, such as "
        "`X-Forwarded-User`; empty = none. The proxy must remove this header from incoming "
        "requests.",
        pattern=r"^[A-Za-z0-9-]{0,64}$",
    )
    proxy_groups_header: str = option(
        "",
        "Header in which a trusted proxy names the user's groups, separated by commas.",
        pattern=r"^[A-Za-z0-9-]{0,64}$",
    )
    operator_groups: Texts = option(
        (),
        "Groups of a trusted proxy or an OpenID provider whose members are operators; `*` = every "
        "authenticated user.",
    )
    viewer_groups: Texts = option((), "The same for viewers, who cannot change anything.")
    oidc: OidcOptions = section(OidcOptions, "Log-in by an OpenID provider.")
    bodies: BodyChoice = option(
        BodyChoice.OPERATORS,
        "Who may see the content of messages (body, properties and headers): `operators`, "
        "`viewers` (all authenticated users), or `nobody`.",
    )
    masked: Patterns = option(
        (),
        "Regular expressions (Python's `regex`) whose matches in bodies, properties, headers, "
        "causes, notes and reasons are shown as `***`; byte dumps are left out then. Downloads are "
        "not masked.",
    )
    reports: OptionalPath = option(
        None,
        "Folder of reports that pipeline jobs have written, one subfolder each; the console shows "
        "them to all authenticated users. Empty = none.",
    )

    links: Links = option(
        {},
        "Links to log and trace systems by name, shown with groups and messages, such as `logs: "
        "https://logs.example.com/?from={from_ms}&to={to_ms}&q={consumer}%20{trace_id}`. `{from}` "
        "and `{to}` (ISO 8601) or `{from_ms}` and `{to_ms}` are five minutes before and after the "
        "death; `{consumer}` and `{trace_id}` come from its note (`cause-notes.md`), the trace "
        "else from the producer; `{attempts_trace_id}` is that of its attempts (`traces.md`). A "
        "link whose values are not known is left out.",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield authentication methods that can't work."""
        if self.proxy_user_header and not self.trusted_proxies:
            yield (
                "trusted_proxies",
                "is empty, so no proxy may name the user: add the proxy's address",
            )
        if self.proxy_groups_header and not self.proxy_user_header:
            yield "proxy_groups_header", "does nothing without `proxy_user_header`"
        if self.oidc.issuer and not self.public_url:
            yield "public_url", "is not set: the OpenID provider redirects browsers to it"
        by_groups = self.proxy_user_header or self.oidc.issuer
        if by_groups and not (self.operator_groups or self.viewer_groups or self.roles_file):
            what = "is empty, as are `viewer_groups` and `roles_file`: no user could log in"
            yield "operator_groups", what
        for key, problem in self.oidc.problems():
            yield f"oidc.{key}", problem

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return not self.listen or ip_address(split_listen(self.listen)[0]).is_loopback

    @property
    def strangers_problem(self) -> str:
        """Why `run` does not start: strangers could read and act; "" = they can't."""
        ways = (self.tokens_file, self.users_file, self.proxy_user_header, self.oidc.issuer)
        if self.is_loopback or not self.console or any(ways):
            return ""
        return (
            "is beyond loopback, where anyone could read and act: configure an authentication "
            "method (http.tokens_file, http.users_file, http.proxy_user_header or "
            "http.oidc.issuer), switch console and API off (http.console: false), or listen on "
            "127.0.0.1"
        )

    def session_key(self) -> Secret | None:
        """Return the key that signs sessions; None = to be made.

        Raises:
            ConfigError: the file can't be read, or holds too little.
        """
        if self.session_key_file is None:
            return None
        key = secret_in(self.session_key_file, "http.session_key_file")
        if len(key.reveal()) < 32:
            what = f"{self.session_key_file} holds fewer than 32 characters"
            raise ConfigError([Problem("http.session_key_file", what)])
        return key

    def client_secret(self) -> Secret | None:
        """Return the secret for the OpenID provider; None = a public client.

        Raises:
            ConfigError: the file can't be read or is empty.
        """
        path = self.oidc.client_secret_file
        return None if path is None else secret_in(path, "http.oidc.client_secret_file")
