"""Options `broker.*`: the broker and how to reach it."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, PlainSerializer

from amqsidecar.broker import BrokerKind
from amqsidecar.config.broker_url import BrokerUrl, parse_broker_url
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
from amqsidecar.config.web_url import web_url


class KindChoice(StrEnum):
    """Which broker product is expected."""

    AUTO = "auto"
    CLASSIC = "classic"
    ARTEMIS = "artemis"


class SaslMechanism(StrEnum):
    """A way to log in over AMQP."""

    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    OAUTHBEARER = "OAUTHBEARER"
    XOAUTH2 = "XOAUTH2"
    PLAIN = "PLAIN"
    EXTERNAL = "EXTERNAL"
    ANONYMOUS = "ANONYMOUS"

    @property
    def needs_user(self) -> bool:
        """Whether it goes with a user in the URL, and not without."""
        return self not in (self.EXTERNAL, self.ANONYMOUS)

    @property
    def takes_password(self) -> bool:
        """Whether it goes with a password."""
        return self in (self.SCRAM_SHA_512, self.SCRAM_SHA_256, self.PLAIN)

    @property
    def takes_token(self) -> bool:
        """Whether it goes with a bearer token."""
        return self in (self.OAUTHBEARER, self.XOAUTH2, self.PLAIN)


def _as_urls(value: object) -> tuple[BrokerUrl, ...]:
    if isinstance(value, tuple) and all(isinstance(item, BrokerUrl) for item in value):
        return value
    if value is None or value == "":
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not all(isinstance(item, str) for item in items):
        raise ValueError("expected a URL or a list of URLs")
    urls = []
    for number, item in enumerate(items, start=1):
        try:
            urls.append(parse_broker_url(item))
        except ValueError as error:
            if len(items) == 1:
                raise
            raise ValueError(f"entry {number}: {error}") from error
    return tuple(urls)


_JOLOKIA_URL = web_url("http://admin@localhost:8161/api/jolokia", may_name_user=True)

BrokerUrls = Annotated[
    tuple[BrokerUrl, ...],
    BeforeValidator(_as_urls, json_schema_input_type=str | list[str]),
    PlainSerializer(lambda urls: [str(url) for url in urls], return_type=list[str]),
]
SaslMechanisms = Annotated[
    tuple[SaslMechanism, ...],
    BeforeValidator(as_texts, json_schema_input_type=list[SaslMechanism]),
]


_WITH_TLS: Final = {
    "amqp": "amqps",
    "artemis": "artemis+ssl",
    "core": "core+ssl",
    "openwire": "openwire+ssl",
    "stomp": "stomp+ssl",
}


class TlsOptions(Section):
    """Verification of the broker, and the sidecar's certificate."""

    ca_file: OptionalPath = option(
        None,
        "PEM file of the authorities trusted to sign the broker's certificate; empty = the "
        "system's.",
    )
    cert_file: OptionalPath = option(
        None, "PEM file of the sidecar's certificate, for brokers that require one (mTLS)."
    )
    key_file: OptionalPath = option(
        None, "PEM file of the key of `cert_file`; empty = it is in `cert_file`."
    )
    verify: StrictBool = option(
        True,
        "Whether the broker's certificate and host name are checked. With `false`, anyone on the "
        "network path can read and change messages.",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield a key without its certificate."""
        if self.key_file is not None and self.cert_file is None:
            yield "key_file", "needs `cert_file`, the certificate that belongs to the key"
        if self.ca_file is not None and not self.verify:
            yield "verify", "is false, so `ca_file` has no effect; remove one of them"


class BrokerOidcOptions(Section):
    """Tokens of an OpenID provider to log in at the broker with."""

    issuer: Annotated[str, BeforeValidator(web_url("https://login.example.com"))] = option(
        "",
        "Issuer URL of the provider whose tokens log the user in `url` in at the broker (flow "
        'of client credentials); empty = none. Needs `pip install "amqsidecar[oidc]"`.',
    )
    client_id: str = option("", "Client id at the provider.")
    client_secret_file: OptionalPath = option(
        None, "File that holds the client's secret, read for each token."
    )
    client_key_file: OptionalPath = option(
        None,
        "In place of a secret: PEM file of the client's private RSA key, read for each token, for "
        "providers that know its public key (`private_key_jwt`, signed with RS256).",
    )
    scopes: Texts = option((), "Requested scopes; empty = the provider's default.")
    audience: str = option(
        "",
        "Parameter `audience` of the request, for providers that give tokens for one broker only "
        "when asked so; empty = it is not sent.",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield a provider without a client, or without TLS."""
        if not self.issuer:
            return
        if not self.client_id:
            yield "client_id", "is not set: it is the client id at the provider"
        if self.client_secret_file is None and self.client_key_file is None:
            yield "client_secret_file", "is not set: a client gets tokens by its secret or its key"
        if self.client_secret_file is not None and self.client_key_file is not None:
            yield "client_key_file", "excludes `client_secret_file`; remove one of them"
        parts = urlsplit(self.issuer)
        if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
            yield "issuer", "is without TLS, so the client's secret could be read on the way"


class BrokerOptions(Section):
    """The broker's address and log-in."""

    url: BrokerUrls = option(
        (),
        "Where the broker listens, such as `artemis://user@host:61616`; the password belongs "
        "into `password_file` (`user:password@` works, too). Artemis: `artemis` (recommended, "
        "Core and AMQP at once), `core`. Classic: `openwire` (recommended). Either: `amqp`, "
        "`stomp`. With TLS: `artemis+ssl`, `core+ssl`, `openwire+ssl`, `amqps`, `stomp+ssl`. "
        "May be a list of brokers that take over from each other. Required by `run`; more in "
        "[connecting.md](connecting.md).",
    )
    kind: KindChoice = option(
        KindChoice.AUTO,
        "The broker product. `auto` asks the broker.",
    )
    password_file: OptionalPath = option(
        None,
        "File with the password of the user in `url`, such as a mounted secret. Read at each "
        "connect; a trailing line end is ignored.",
    )
    token_file: OptionalPath = option(
        None,
        "File with a bearer token for the user in `url`, such as a projected Kubernetes token "
        "([connecting.md](connecting.md#tokens)). Read at each log-in; the sidecar logs in "
        "again before the token expires.",
    )
    oidc: BrokerOidcOptions = section(
        BrokerOidcOptions, "Tokens of an OpenID provider to log in at the broker with."
    )
    jolokia_url: Annotated[str, BeforeValidator(_JOLOKIA_URL)] = option(
        "",
        "Classic: Jolokia of its web console, such as "
        "`http://admin@localhost:8161/api/jolokia`, whose counters prove what was consumed "
        "without the statistics plugin (`operations.md`). `tls` applies to `https`, too. Empty = "
        "not asked.",
    )
    jolokia_password_file: OptionalPath = option(
        None, "File with the password of the user in `jolokia_url`, read at each request."
    )
    sasl_mechanisms: SaslMechanisms = option(
        (),
        "AMQP: permitted SASL mechanisms. Empty = the best that the broker offers "
        "([connecting.md](connecting.md#logging-in-over-amqp-sasl)). Name only `SCRAM-...` to "
        "keep the password from an impostor of the broker.",
    )
    allow_plain_password: StrictBool = option(
        False,
        "Whether a password may be sent to another machine without TLS, where an eavesdropper can "
        "read it.",
    )
    tls: TlsOptions = section(
        TlsOptions,
        "TLS; counts for `amqps`, `artemis+ssl`, `core+ssl`, `openwire+ssl` and `stomp+ssl`.",
    )
    connect_timeout_s: StrictInt = option(
        10,
        "Time limit for connecting and logging in; then it is tried again.",
        why="longer than a slow name look-up, shorter than a probe's time-out",
        unit="seconds",
        ge=1,
        le=600,
    )
    idle_timeout_s: StrictInt = option(
        30,
        "Time without input after which a connection is given up. The sidecar writes often enough "
        "for the broker's corresponding limit.",
        why="Classic's own maxInactivityDuration",
        unit="seconds",
        ge=2,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield options that do not fit the URL."""
        if len({url.scheme for url in self.url}) > 1:
            yield "url", "all entries of a list need the same scheme"
        if self.kind is KindChoice.ARTEMIS and any("openwire" in url.scheme for url in self.url):
            yield "url", "openwire:// is for Classic; attach to Artemis by artemis://"
        if self.kind is KindChoice.CLASSIC and any(url.is_of_artemis for url in self.url):
            yield "url", "artemis:// and core:// are for Artemis; attach to Classic by openwire://"
        yield from self._token_problems()
        if self.password_file is not None:
            if any(url.password is not None for url in self.url):
                yield "password_file", "`url` also has a password; remove one of them"
            if any(url.user is None for url in self.url):
                yield "password_file", "needs the user in `url`, such as artemis://user@host:61616"
        yield from self._jolokia_problems()
        yield from self._identity_problems()
        yield from self._idle_tls_problems()
        for key, problem in self.tls.problems():
            yield f"tls.{key}", problem
        for key, problem in self.oidc.problems():
            yield f"oidc.{key}", problem

    @property
    def has_token(self) -> bool:
        """Whether the user logs in with a bearer token."""
        return self.token_file is not None or bool(self.oidc.issuer)

    def _token_problems(self) -> Iterator[KeyedProblem]:
        if not self.has_token:
            return
        key = "token_file" if self.token_file is not None else "oidc.issuer"
        if self.token_file is not None and self.oidc.issuer:
            yield key, "`oidc` also names a provider; remove one of them"
        if self.password_file is not None or any(url.password is not None for url in self.url):
            yield key, "a password is also set; remove one of them"
        if any(url.user is None for url in self.url):
            yield key, "needs the user in `url`, such as artemis://user@host:61616"

    def _idle_tls_problems(self) -> Iterator[KeyedProblem]:
        """Yield TLS files that are unused, because the operator may rely on them."""
        uses_tls = any(url.uses_tls for url in self.url) or self.jolokia_url.startswith("https:")
        if not self.url or uses_tls:
            return
        for key in ("ca_file", "cert_file"):
            if getattr(self.tls, key) is not None:
                scheme = _WITH_TLS[self.url[0].scheme]
                yield f"tls.{key}", f"has no effect because `url` has no TLS; use {scheme}://"

    def _jolokia_problems(self) -> Iterator[KeyedProblem]:
        parts = urlsplit(self.jolokia_url)
        if not self.jolokia_url:
            if self.jolokia_password_file is not None:
                yield "jolokia_password_file", "needs `jolokia_url`, with the user"
            return
        if any(url.is_of_artemis for url in self.url) or self.kind is KindChoice.ARTEMIS:
            yield (
                "jolokia_url",
                "is for Classic only; Artemis reports its counters itself; remove it",
            )
        if len(self.url) > 1:
            yield (
                "jolokia_url",
                "needs exactly one broker in `url`, the one whose counters it reads",
            )
        if (parts.username is None) != (self.jolokia_password_file is None):
            yield (
                "jolokia_password_file",
                "and a user in `jolokia_url` go together, as in http://admin@localhost:8161/...",
            )
        is_open = parts.scheme == "http" and not _is_loopback(parts.hostname or "")
        if parts.username is not None and is_open and not self.allow_plain_password:
            yield (
                "jolokia_url",
                f"the password for {parts.hostname} would cross the network unencrypted; use "
                "https://, or set `broker.allow_plain_password: true` if eavesdropping is "
                "impossible",
            )

    def _identity_problems(self) -> Iterator[KeyedProblem]:
        mechanisms = self.sasl_mechanisms
        if mechanisms and any(not url.may_speak_amqp for url in self.url):
            yield "sasl_mechanisms", "counts for amqp:// and artemis:// only; remove it"
            return
        needs_user = [one.needs_user for one in mechanisms]
        if mechanisms and not any(needs_user) and any(url.user is not None for url in self.url):
            yield "sasl_mechanisms", "has none for a user with a password, but `url` has a user"
        if mechanisms and all(needs_user) and any(url.user is None for url in self.url):
            yield "sasl_mechanisms", "needs a user in `url`, such as amqp://user@host:5672"
        if mechanisms and self.has_token and not any(one.takes_token for one in mechanisms):
            yield "sasl_mechanisms", "has none for a token: add OAUTHBEARER, XOAUTH2 or PLAIN"
        has_password_only = not self.has_token and any(url.user is not None for url in self.url)
        if has_password_only and any(needs_user) and not any(m.takes_password for m in mechanisms):
            yield "sasl_mechanisms", "has only mechanisms for tokens; set `token_file` or `oidc`"
        # Why not artemis: Core sends the password itself.
        is_hidden = (
            bool(mechanisms)
            and not self.has_token
            and SaslMechanism.PLAIN not in mechanisms
            and all(url.scheme in ("amqp", "amqps") for url in self.url)
        )
        if self.allow_plain_password or is_hidden:
            return
        for url in self.url:
            has_secret = (
                url.password is not None or self.password_file is not None or self.has_token
            )
            if has_secret and url.user is not None and not (url.uses_tls or url.is_loopback):
                yield (
                    "url",
                    f"the {'token' if self.has_token else 'password'} for {url.host} would cross "
                    f"the network unencrypted; use {_WITH_TLS[url.scheme]}:// with the broker's "
                    "connector for TLS, or set `broker.allow_plain_password: true` if "
                    "eavesdropping is impossible",
                )
                return

    @property
    def expected_kind(self) -> BrokerKind | None:
        """The product that the operator named; None = whichever it is."""
        return None if self.kind is KindChoice.AUTO else BrokerKind(self.kind.value)

    def password(self, url: BrokerUrl | None = None) -> Secret | None:
        """Return the password for a URL, None = the first, read from `password_file` where set.

        Raises:
            ConfigError: the file can't be read or is empty.
        """
        if self.password_file is not None:
            return secret_in(self.password_file, "broker.password_file")
        url = url or next(iter(self.url), None)
        return None if url is None else url.password

    def token_files(self) -> Iterator[tuple[str, Path]]:
        """Yield each option that names the file of a token, or of credentials to request one."""
        if self.token_file is not None:
            yield "broker.token_file", self.token_file
        for name in ("client_secret_file", "client_key_file"):
            if (path := getattr(self.oidc, name)) is not None:
                yield f"broker.oidc.{name}", path

    def jolokia_password(self) -> Secret | None:
        """Return the password for Jolokia, read from its file; None = it has none.

        Raises:
            ConfigError: the file can't be read or is empty.
        """
        path = self.jolokia_password_file
        return None if path is None else secret_in(path, "broker.jolokia_password_file")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
