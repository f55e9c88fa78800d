"""Options `http.*`: metrics, health, console and API, and who may come in."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

import regex
from pydantic import BeforeValidator, PlainSerializer

from amqsidecar.config.option import (
    KeyedProblem,
    OptionalPath,
    Section,
    StrictBool,
    StrictInt,
    Texts,
    as_texts,
    option,
    section,
)
from amqsidecar.config.secrets import Secret, secret_in
from amqsidecar.errors import ConfigError, Problem


class BodyChoice(StrEnum):
    """Who sees what messages carry."""

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


def _checked_web_url(value: object) -> str:
    if value in (None, ""):
        return ""
    parts = urlsplit(value) if isinstance(value, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a URL such as https://host.example.com")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("expected a URL without user, `?` and `#`")
    return str(value)


def _as_patterns(value: object) -> object:
    texts = as_texts(value)
    for text in texts if isinstance(texts, Sequence) else ():
        try:
            regex.compile(text)
        except (regex.error, TypeError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return texts


def _as_networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    texts = as_texts(value)
    # Why: a number would be the address with that number.
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ValueError("expected addresses or networks, such as 10.0.0.0/8")
    return tuple(ip_network(text) for text in texts)


Patterns = Annotated[
    tuple[str, ...], BeforeValidator(_as_patterns, json_schema_input_type=str | list[str])
]
Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    BeforeValidator(_as_networks, json_schema_input_type=str | list[str]),
    PlainSerializer(lambda networks: [str(network) for network in networks], return_type=list[str]),
]


class OidcOptions(Section):
    """Log-in by an OpenID provider."""

    issuer: Annotated[str, BeforeValidator(_checked_web_url)] = option(
        "",
        "URL of the provider, as it calls itself; empty = none. Needs `http.public_url` and "
        '`pip install "amqsidecar[oidc]"`. At the provider, register `/login/oidc/back` below the '
        "public URL.",
    )
    client_id: str = option("", "What the provider calls us.")
    client_secret_file: OptionalPath = option(
        None,
        "File that holds the client's secret, read at each log-in; empty = a public client. PKCE "
        "is used either way.",
    )
    scopes: Texts = option(
        ("openid", "profile"),
        "What is asked for; add what the provider gives groups for, such as `groups`.",
    )
    name_claim: str = option(
        "preferred_username", "Claim that people are called by in logs and events; else `sub`."
    )
    recheck_minutes: StrictInt = option(
        5,
        "A page that is opened later than that after the log-in leads through the provider once "
        "more, which nobody notices who is still logged in there; after twice as long also what an "
        "open page sends is refused. So a role that was withdrawn ends.",
        why="who leaves should be out within minutes",
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
            yield "client_id", "is not set: say what the provider calls us"
        parts = urlsplit(self.issuer)
        if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            yield "issuer", "is without TLS, so that anybody in between says who may come in"


class HttpOptions(Section):
    """Metrics, health, console and API."""

    listen: Annotated[str, BeforeValidator(_checked_listen)] = option(
        "127.0.0.1:9464",
        "Address and port of `/metrics`, `/healthz`, `/readyz`, the console and the API "
        "(`console.md`); port 0 = any free one; empty = off. Beyond loopback it needs a way to "
        "show who one is (`tokens_file`, `users_file`, `proxy_user_header` or `oidc`), or "
        "`console: false`. Metrics and health are open to all who reach it.",
        why=(
            "the port that OpenTelemetry gave to Prometheus exporters; loopback can't be open by "
            "accident"
        ),
    )
    console: StrictBool = option(
        True,
        "Whether console and API are served; `false` = metrics and health only, which need no way "
        "to show who one is.",
    )
    metrics_destinations: StrictInt = option(
        200,
        "Maximum destinations with their own label in metrics at a time; the others share "
        "`other`, until one at which nothing waits has been quiet for an hour.",
        why="some thousand series, which any Prometheus bears; each alert names its destination",
        unit="destinations",
        ge=1,
        le=100_000,
    )
    public_url: Annotated[str, BeforeValidator(_checked_web_url)] = option(
        "",
        "Where browsers see the console, such as `https://sidecar.example.com`. With `https:` "
        "cookies go over TLS only. Empty = as the browser says.",
    )
    tokens_file: OptionalPath = option(
        None,
        "File of bearer tokens for programs, one `NAME ROLE sha256:...` a line; `amqsidecar access "
        "token` makes them. Read anew when it changes.",
    )
    users_file: OptionalPath = option(
        None,
        "File of people with passwords, one `NAME ROLE scrypt$...` a line; `amqsidecar access "
        "user` makes them. Read anew when it changes.",
    )
    session_key_file: OptionalPath = option(
        None,
        "File with what sessions are signed with, 32 characters or more. Empty = made at each "
        "start, so that a restart ends all sessions; several sidecars behind one address need the "
        "same.",
    )
    session_hours: StrictInt = option(
        12, "A log-in counts for so long.", why="a shift", unit="hours", ge=1, le=720
    )
    trusted_proxies: Networks = option(
        (),
        "Addresses or networks of proxies in front, such as `10.0.0.0/8`, whose headers are "
        "believed: `X-Forwarded-For`, `X-Forwarded-Proto`, and the two that follow.",
        why="a header is only as true as who sends it",
    )
    proxy_user_header: str = option(
        "",
        "Header in which a trusted proxy says who asks, such as `X-Forwarded-User`; empty = it "
        "doesn't. The proxy must remove it from what strangers send.",
        pattern=r"^[A-Za-z0-9-]{0,64}$",
    )
    proxy_groups_header: str = option(
        "",
        "Header in which a trusted proxy says their groups, separated by commas.",
        pattern=r"^[A-Za-z0-9-]{0,64}$",
    )
    operator_groups: Texts = option(
        (),
        "Groups, of a trusted proxy or an OpenID provider, whose members may look and act; `*` = "
        "all who come that way.",
        why="nobody acts by accident",
    )
    viewer_groups: Texts = option((), "The same of those who may look.")
    oidc: OidcOptions = section(OidcOptions, "Log-in by an OpenID provider.")
    bodies: BodyChoice = option(
        BodyChoice.OPERATORS,
        "Who sees what messages carry, body, properties and headers: `operators`, `viewers` (all "
        "who come in), or `nobody`.",
        why="messages may hold personal data, and counting them needs none of it",
    )
    masked: Patterns = option(
        (),
        "Regular expressions (Python's `regex`); what they match in bodies, properties, headers "
        "and causes is shown as `***` on screens and by the API; dumps of bytes are left out then. "
        "Who may download a message still gets it whole.",
    )
    reports: OptionalPath = option(
        None,
        "Folder of reports that jobs of the pipeline have written, one subfolder each; the console "
        "shows them to all who come in. Empty = there are none.",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield ways in that can't work."""
        if self.proxy_user_header and not self.trusted_proxies:
            yield (
                "trusted_proxies",
                "is empty, so nobody may say who asks: name the proxy's address",
            )
        if self.proxy_groups_header and not self.proxy_user_header:
            yield "proxy_groups_header", "does nothing without `proxy_user_header`"
        if self.oidc.issuer and not self.public_url:
            yield "public_url", "is not set: the OpenID provider has to lead browsers back to it"
        by_groups = self.proxy_user_header or self.oidc.issuer
        if by_groups and not (self.operator_groups or self.viewer_groups):
            yield "operator_groups", "is empty, and `viewer_groups`, too: nobody could come in"
        for key, problem in self.oidc.problems():
            yield f"oidc.{key}", problem

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return not self.listen or ip_address(split_listen(self.listen)[0]).is_loopback

    @property
    def strangers_problem(self) -> str:
        """Why `run` does not start: strangers could look and act; "" = they can't."""
        ways = (self.tokens_file, self.users_file, self.proxy_user_header, self.oidc.issuer)
        if self.is_loopback or not self.console or any(ways):
            return ""
        return (
            "is beyond loopback, where strangers could look and act: name a way to show who one "
            "is (http.tokens_file, http.users_file, http.proxy_user_header or http.oidc.issuer), "
            "leave console and API out (http.console: false), or listen on 127.0.0.1"
        )

    def session_key(self) -> Secret | None:
        """Return what sessions are signed with; None = to be made.

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
