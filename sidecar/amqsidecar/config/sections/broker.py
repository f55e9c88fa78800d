"""Options `broker.*`: the broker and how to reach it."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from ipaddress import ip_address
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
    PLAIN = "PLAIN"
    EXTERNAL = "EXTERNAL"
    ANONYMOUS = "ANONYMOUS"

    @property
    def needs_user(self) -> bool:
        """Whether it goes with a user and a password, and not without."""
        return self in (self.SCRAM_SHA_512, self.SCRAM_SHA_256, self.PLAIN)


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
            yield "verify", "is false, so `ca_file` would do nothing; remove one of them"


class BrokerOptions(Section):
    """The broker and how to reach it."""

    url: BrokerUrls = option(
        (),
        "Where the broker listens: `artemis://user@host:61616`; the password belongs into "
        "`password_file`, though `user:password@` is taken, too. Schemes: `artemis`, `artemis+ssl` "
        "(recommended for Artemis: Core and AMQP at once), `core`, `core+ssl` (for Artemis only), "
        "`openwire`, `openwire+ssl` (recommended for Classic, and for Classic only), `amqp`, "
        "`amqps`, `stomp`, `stomp+ssl`. "
        "May be a list of brokers that take over from each other, tried in turn, each with its own "
        "user and password. Special characters in user and password are percent-encoded. `run` "
        "needs it.",
        why="which broker can't be guessed",
    )
    kind: KindChoice = option(
        KindChoice.AUTO,
        "The broker product. `auto` asks the broker.",
        why="the broker reports it reliably",
    )
    password_file: OptionalPath = option(
        None,
        "File that holds the password of the user in `url`, such as a mounted secret. Read at "
        "each connect, so a changed secret applies from the next one; a trailing line end is "
        "ignored.",
    )
    jolokia_url: Annotated[str, BeforeValidator(_JOLOKIA_URL)] = option(
        "",
        "Classic: where its web console answers by Jolokia, such as "
        "`http://admin@localhost:8161/api/jolokia`. The sidecar then reads the counters of queues "
        "there, which prove what was consumed without the statistics plugin (`outcomes.md`). The "
        "options `tls` count for `https`, too. Empty = not asked.",
        why="not every broker has a web console, and its user is another one",
    )
    jolokia_password_file: OptionalPath = option(
        None, "File that holds the password of the user in `jolokia_url`, read at each request."
    )
    sasl_mechanisms: SaslMechanisms = option(
        (),
        "`amqp` and `amqps`: permitted SASL mechanisms. Empty = with a user, the strongest of "
        "`SCRAM-SHA-512`, `SCRAM-SHA-256` and `PLAIN` that the broker offers; without, `EXTERNAL` "
        "where there is a `tls.cert_file` and the broker offers it, else `ANONYMOUS`. Name only "
        "`SCRAM-...` to keep the password from an impostor of the broker.",
    )
    allow_plain_password: StrictBool = option(
        False,
        "Whether a password may be sent to another machine without TLS, where an eavesdropper can "
        "read it.",
        why="a password must not cross the network in clear text unnoticed",
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
        if self.password_file is not None:
            if any(url.password is not None for url in self.url):
                yield "password_file", "there is a password in `url` too; remove one of them"
            if any(url.user is None for url in self.url):
                yield "password_file", "needs the user in `url`, such as artemis://user@host:61616"
        yield from self._jolokia_problems()
        yield from self._identity_problems()
        yield from self._idle_tls_problems()
        for key, problem in self.tls.problems():
            yield f"tls.{key}", problem

    def _idle_tls_problems(self) -> Iterator[KeyedProblem]:
        """Yield TLS files that are unused, because the operator may rely on them."""
        uses_tls = any(url.uses_tls for url in self.url) or self.jolokia_url.startswith("https:")
        if not self.url or uses_tls:
            return
        for key in ("ca_file", "cert_file"):
            if getattr(self.tls, key) is not None:
                scheme = _WITH_TLS[self.url[0].scheme]
                yield f"tls.{key}", f"does nothing, since `url` is without TLS; use {scheme}://"

    def _jolokia_problems(self) -> Iterator[KeyedProblem]:
        parts = urlsplit(self.jolokia_url)
        if not self.jolokia_url:
            if self.jolokia_password_file is not None:
                yield "jolokia_password_file", "needs `jolokia_url`, with the user"
            return
        if any(url.is_of_artemis for url in self.url) or self.kind is KindChoice.ARTEMIS:
            yield "jolokia_url", "is for Classic; Artemis reports its counters by itself; remove it"
        if len(self.url) > 1:
            yield "jolokia_url", "needs one broker in `url`, whose counters it shows"
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
                "https://, or set `broker.allow_plain_password: true` if nobody can eavesdrop",
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
        # Why not artemis: Core sends the password itself.
        is_hidden = (
            bool(mechanisms)
            and SaslMechanism.PLAIN not in mechanisms
            and all(url.scheme in ("amqp", "amqps") for url in self.url)
        )
        if self.allow_plain_password or is_hidden:
            return
        for url in self.url:
            has_password = url.password is not None or self.password_file is not None
            if has_password and url.user is not None and not (url.uses_tls or url.is_loopback):
                yield (
                    "url",
                    f"the password for {url.host} would cross the network unencrypted; use "
                    f"{_WITH_TLS[url.scheme]}:// with the broker's connector for TLS, or set "
                    "`broker.allow_plain_password: true` if nobody can eavesdrop",
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
