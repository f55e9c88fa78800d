"""Every option: type, default, unit, help, and why the default is what it is.

Nothing else in the project has a default of its own. `reference.py` prints this tree; `load.py`
fills it. A validator raises ValueError with a sentence that says what is expected; what is wrong
between several options is said by `problems`, which names the option to change.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import regex
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
)

from amqsidecar.broker import FINAL_SUFFIX, PROPERTY_CAUSE, BrokerKind, Loss
from amqsidecar.config.broker_url import BrokerUrl, parse_broker_url
from amqsidecar.config.secrets import Secret
from amqsidecar.config.store_url import BROKER_HELD, checked_store_url, is_postgres
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.destination import Destination, parse_destination

KeyedProblem = tuple[str, str]
"""The dotted key of an option, and what is wrong with it."""


def option(
    default: Any,
    help_text: str,
    *,
    why: str = "",
    unit: str = "",
    **constraints: Any,
) -> Any:
    """Declare an option.

    Args:
        default: what holds when nobody sets it.
        help_text: one or more sentences for operators.
        why: where the default comes from; "" = it speaks for itself.
        unit: of a number.
        constraints: of pydantic's `Field`, such as `ge`.
    """
    extra: dict[str, Any] = {"why": why, "unit": unit}
    return Field(default, description=help_text, json_schema_extra=extra, **constraints)


def section(kind: type["Section"], help_text: str) -> Any:
    """Declare a group of options."""
    return Field(default_factory=kind, description=help_text)


class Section(BaseModel):
    """Base of all groups of options: frozen, unknown keys are errors, numbers are not guessed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        validate_default=False,
        allow_inf_nan=False,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield what is wrong between options that are right each by itself."""
        yield from ()


StrictInt = Annotated[int, Field(strict=True)]
StrictBool = Annotated[bool, Field(strict=True)]


class KindChoice(StrEnum):
    """Which broker product is expected."""

    AUTO = "auto"
    CLASSIC = "classic"
    ARTEMIS = "artemis"


class Backlog(StrEnum):
    """What happens to dead letters that were there before the sidecar."""

    HOLD = "hold"
    PROCESS = "process"


class TopicPolicy(StrEnum):
    """What happens to a dead letter of a plain topic on Classic."""

    PARK = "park"
    REPUBLISH = "republish"


class Producers(StrEnum):
    """Which applications' messages die in the dead-letter queues that are read."""

    ANY = "any"
    AMQP = "amqp"


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


class BodyChoice(StrEnum):
    """Who sees what messages carry."""

    OPERATORS = "operators"
    VIEWERS = "viewers"
    NOBODY = "nobody"


class LogLevel(StrEnum):
    """The least important line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line looks."""

    JSON = "json"
    TEXT = "text"


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


def _as_texts(value: object) -> object:
    if isinstance(value, str):
        return (value,) if value else ()
    return () if value is None else value


def _as_origins(value: object) -> Mapping[str, Destination]:
    what = "expected a mapping from dead-letter queue to origin, such as DLQ.orders: orders"
    if not isinstance(value, Mapping):
        raise ValueError(what)  # noqa: TRY004 - pydantic wants it
    origins = {}
    for name, origin in value.items():
        if isinstance(origin, Destination):
            origins[str(name)] = origin
        elif isinstance(name, str) and name and isinstance(origin, str) and origin:
            origins[name] = parse_destination(origin)
        else:
            raise ValueError(what)
    return origins


def _as_rules(value: object) -> object:
    if value is None or isinstance(value, Mapping):
        return value
    raise ValueError("expected a mapping in the policy format")


def _as_path(value: object) -> object:
    return None if value == "" else value


def _checked_journal_path(value: object) -> str:
    if value in (None, ""):
        return ""
    if not isinstance(value, str):
        raise ValueError("expected a folder or a URL such as s3://bucket/journal")  # noqa: TRY004 - as above
    scheme, separator, rest = value.partition("://")
    if separator and (not scheme or not rest.strip("/")):
        raise ValueError("expected a URL such as s3://bucket/journal")
    if separator and "@" in rest.partition("/")[0]:
        raise ValueError("leave credentials out; they come from the object store's own settings")
    return value


def _checked_listen(value: object) -> str:
    if value in (None, ""):
        return ""
    if not isinstance(value, str):
        raise ValueError("expected address:port, such as 127.0.0.1:9464")  # noqa: TRY004 - as above
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
    texts = _as_texts(value)
    for text in texts if isinstance(texts, Sequence) else ():
        try:
            regex.compile(text)
        except (regex.error, TypeError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return texts


def _as_networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    texts = _as_texts(value)
    if not isinstance(texts, Sequence):
        raise ValueError("expected addresses or networks, such as 10.0.0.0/8")  # noqa: TRY004
    return tuple(ip_network(text) for text in texts)


BrokerUrls = Annotated[
    tuple[BrokerUrl, ...],
    BeforeValidator(_as_urls, json_schema_input_type=str | list[str]),
    PlainSerializer(lambda urls: [str(url) for url in urls], return_type=list[str]),
]
Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_as_texts, json_schema_input_type=str | list[str]),
]
Patterns = Annotated[
    tuple[str, ...], BeforeValidator(_as_patterns, json_schema_input_type=str | list[str])
]
Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    BeforeValidator(_as_networks, json_schema_input_type=str | list[str]),
    PlainSerializer(lambda networks: [str(network) for network in networks], return_type=list[str]),
]
# Why: the YAML reader's mappings know their lines; a validated copy wouldn't.
Rules = Annotated[
    Mapping[str, object] | None, PlainValidator(_as_rules, json_schema_input_type=dict[str, Any])
]
Origins = Annotated[
    Mapping[str, Destination],
    PlainValidator(_as_origins, json_schema_input_type=dict[str, str]),
    PlainSerializer(
        lambda origins: {name: str(origin) for name, origin in origins.items()},
        return_type=dict[str, str],
    ),
]
Losses = Annotated[tuple[Loss, ...], BeforeValidator(_as_texts, json_schema_input_type=list[Loss])]
SaslMechanisms = Annotated[
    tuple[SaslMechanism, ...],
    BeforeValidator(_as_texts, json_schema_input_type=list[SaslMechanism]),
]
OptionalPath = Annotated[Path | None, BeforeValidator(_as_path, json_schema_input_type=str | None)]


_WITH_TLS: Final = {"amqp": "amqps", "openwire": "openwire+ssl", "stomp": "stomp+ssl"}


class TlsOptions(Section):
    """How the broker is verified, and how we show who we are."""

    ca_file: OptionalPath = option(
        None,
        "PEM file of the authorities that may sign the broker's certificate; empty = those of the "
        "system.",
    )
    cert_file: OptionalPath = option(
        None, "PEM file of our own certificate, where the broker asks for one (mTLS)."
    )
    key_file: OptionalPath = option(
        None, "PEM file of the key of `cert_file`; empty = it is in `cert_file`."
    )
    verify: StrictBool = option(
        True,
        "Whether the broker's certificate and host name are checked. `false` lets anyone in "
        "between read and change messages.",
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
        "Where the broker listens: `amqp://user:password@host:5672`. Schemes: `amqp`, `amqps` "
        "(recommended for Artemis), `openwire`, `openwire+ssl` (recommended for Classic, and for "
        "Classic only), `stomp`, `stomp+ssl`. May be a list of brokers that take over from each "
        "other, tried in turn, each with its own user and password. Special characters in user "
        "and password are percent-encoded. `run` needs it.",
        why="which broker can't be guessed",
    )
    kind: KindChoice = option(
        KindChoice.AUTO,
        "The broker product. `auto` asks the broker.",
        why="the broker tells it reliably",
    )
    password_file: OptionalPath = option(
        None,
        "File that holds the password of the user in `url`, such as a mounted secret. It is read "
        "at each connect, so a changed secret counts from then on; a line end at its end is "
        "ignored.",
    )
    sasl_mechanisms: SaslMechanisms = option(
        (),
        "`amqp` and `amqps`: how we may log in. Empty = with a user, the strongest of "
        "`SCRAM-SHA-512`, `SCRAM-SHA-256` and `PLAIN` that the broker offers; without, `EXTERNAL` "
        "where there is a `tls.cert_file` and the broker offers it, else `ANONYMOUS`. Name only "
        "`SCRAM-...` where whoever poses as the broker must not get the password.",
    )
    allow_plain_password: StrictBool = option(
        False,
        "Whether a password may be sent to another machine without TLS, where who listens in can "
        "read it.",
        why="nobody should find out later that a password went over the net",
    )
    tls: TlsOptions = section(
        TlsOptions, "TLS; counts for `amqps`, `openwire+ssl` and `stomp+ssl`."
    )
    connect_timeout_s: StrictInt = option(
        10,
        "How long a connect with log-in may take before it is tried again.",
        why="longer than a slow name look-up, shorter than a probe's patience",
        unit="seconds",
        ge=1,
        le=600,
    )
    idle_timeout_s: StrictInt = option(
        30,
        "A connection on which nothing arrives for so long is given up; we write in time for the "
        "broker's limit of the same kind.",
        why="Classic's own maxInactivityDuration",
        unit="seconds",
        ge=2,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield what doesn't fit the URL."""
        if len({url.scheme for url in self.url}) > 1:
            yield "url", "all entries of a list need the same scheme"
        if self.kind is KindChoice.ARTEMIS and any("openwire" in url.scheme for url in self.url):
            yield "url", "openwire:// is for Classic; attach to Artemis by amqp:// or amqps://"
        if self.password_file is not None:
            if any(url.password is not None for url in self.url):
                yield "password_file", "there is a password in `url` too; remove one of them"
            if any(url.user is None for url in self.url):
                yield "password_file", "needs the user in `url`, such as amqp://user@host:5672"
        yield from self._identity_problems()
        yield from self._idle_tls_problems()
        for key, problem in self.tls.problems():
            yield f"tls.{key}", problem

    def _idle_tls_problems(self) -> Iterator[KeyedProblem]:
        """Yield files that nobody looks at, since the operator believes that they protect."""
        if not self.url or any(url.uses_tls for url in self.url):
            return
        for key in ("ca_file", "cert_file"):
            if getattr(self.tls, key) is not None:
                scheme = _WITH_TLS[self.url[0].scheme]
                yield f"tls.{key}", f"does nothing, since `url` is without TLS; use {scheme}://"

    def _identity_problems(self) -> Iterator[KeyedProblem]:
        mechanisms = self.sasl_mechanisms
        if mechanisms and any(not url.scheme.startswith("amqp") for url in self.url):
            yield "sasl_mechanisms", "counts for amqp:// and amqps:// only; remove it"
            return
        needs_user = [one.needs_user for one in mechanisms]
        if mechanisms and not any(needs_user) and any(url.user is not None for url in self.url):
            yield "sasl_mechanisms", "has none for a user with a password, but `url` has a user"
        if mechanisms and all(needs_user) and any(url.user is None for url in self.url):
            yield "sasl_mechanisms", "needs a user in `url`, such as amqp://user@host:5672"
        is_hidden = bool(mechanisms) and SaslMechanism.PLAIN not in mechanisms
        if self.allow_plain_password or is_hidden:
            return
        for url in self.url:
            has_password = url.password is not None or self.password_file is not None
            if has_password and url.user is not None and not (url.uses_tls or url.is_loopback):
                yield (
                    "url",
                    f"the password for {url.host} would go over the net unencrypted; use "
                    f"{_WITH_TLS[url.scheme]}:// with the broker's connector for TLS, or set "
                    "`broker.allow_plain_password: true` where nobody can listen in",
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
            return _password_in(self.password_file, "broker.password_file")
        url = url or next(iter(self.url), None)
        return None if url is None else url.password


class IntakeOptions(Section):
    """What is read."""

    queues: Texts = option(
        (),
        "Dead-letter queues to read from; on Classic with the broker's wildcards, such as "
        "`DLQ.>`. Empty = find them from the live broker.",
        why="the broker knows its dead-letter queues",
    )
    backlog: Backlog = option(
        Backlog.HOLD,
        "What happens to dead letters that a queue already holds when the sidecar reads it for "
        "the first time: `hold` = kept until a person releases them, where they are more than "
        "`backlog_threshold`; `process` = decided like any other.",
        why="a year of old failures must not be re-sent by starting a tool",
    )
    backlog_threshold: StrictInt = option(
        100,
        "Up to so many old dead letters of a queue are processed even with `backlog: hold`.",
        why="a handful of them is today's trouble, not a backlog",
        unit="messages",
        ge=0,
    )
    origin: Origins = option(
        {},
        "Classic over AMQP, where messages don't tell their origin: the queue that the messages of "
        "a dead-letter queue died in, by the name of the dead-letter queue. Needed for shared "
        "dead-letter queues only; the origin of individual ones follows from `policy`.",
    )
    producers: Producers = option(
        Producers.ANY,
        "Classic over AMQP on a connector without `transport.transformer=jms`: `amqp` = read only "
        "the dead letters that AMQP applications have made, which that connector carries whole.",
        why="a message of another application would arrive as a BytesMessage",
    )
    allow_lossy: Losses = option(
        (),
        "STOMP, which can't carry everything: what messages may lose. `body_type` = Map, Object "
        "and Stream bodies, and whether it was Text or Bytes; `property_types` = numbers and "
        "booleans among the application properties become strings; `group` = `JMSXGroupID` and "
        "`JMSXGroupSeq`. What would lose anything else is not taken. Classic over AMQP: "
        "`body_type` = what deploy/reference/amqp-on-classic.md names.",
        why="nothing is altered without a word",
    )
    cause_properties: Texts = option(
        (PROPERTY_CAUSE,),
        "Application properties in which consumers say why they gave up a message; the first that "
        "it has counts, before what the broker says (`causes.md`). A property of your own such as "
        "`x-exception-message` stays on the message that is re-sent; ours is taken off.",
        why="Artemis says nothing, and Classic only of what its own clients roll back",
    )
    prefetch: StrictInt = option(
        0,
        "How many dead letters the broker may hand over ahead of their cycle, over all queues; 0 "
        "= what suits the broker.",
        why="Artemis counts those in hand as failed when the link breaks, Classic doesn't",
        unit="messages",
        ge=0,
        le=100_000,
    )


class PolicyOptions(Section):
    """The rules."""

    source: OptionalPath = option(
        None,
        "File with the rules: the broker's own `activemq.xml` or `broker.xml`, or a `.yaml` in "
        "our policy format. A relative path in a configuration file starts at that file's folder.",
    )
    rules: Rules = option(
        None,
        "Rules written here, in the policy format of `.yaml` sources; instead of `source`.",
    )
    topics: TopicPolicy = option(
        TopicPolicy.PARK,
        "Classic: what happens to a dead letter of a plain topic: `park` = kept for a person; "
        "`republish` = sent to the topic again, so that all its subscribers get it again.",
        why="one subscriber's failure is not the others' message",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield two sets of rules."""
        if self.source is not None and self.rules is not None:
            yield "rules", "`source` is set too; remove one of them"


class RedeliveryOptions(Section):
    """What redeliveries look like."""

    final_suffix: str = option(
        FINAL_SUFFIX,
        "Where the rules' dead-letter queue is one that the sidecar reads, messages that are "
        "given up go to the queue of that name plus this suffix, so that none circles.",
        why="sorts beside its queue",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
    )


class CycleOptions(Section):
    """How much is done in one exactly-once unit of work."""

    max_messages: StrictInt = option(
        0,
        "How many messages one cycle takes and sends at most; 0 = what suits the broker.",
        why="measured: it differs between brokers",
        unit="messages",
        ge=0,
        le=100_000,
    )
    max_wait_ms: StrictInt = option(
        500,
        "How long the service sleeps at most while nothing arrives and nothing is due; so late it "
        "sees what `retry` and the like changed in the store.",
        why="a person hardly notices it, and two wake-ups a second cost nothing",
        unit="milliseconds",
        ge=1,
        le=60_000,
    )


class StoreOptions(Section):
    """The persistent schedule."""

    url: Annotated[str, BeforeValidator(checked_store_url)] = option(
        "sqlite:///var/lib/amqsidecar/schedule.db",
        "Where waiting messages are kept: `sqlite:///path/of/file.db` (always an absolute path), "
        "or `sqlite:file.db` in the working directory; or `postgresql://user@host:5432/database`, "
        "which several sidecars may share (`shared-schedule.md`), with libpq's parameters such as "
        "`?sslmode=verify-full`; or `broker:`, where Artemis itself keeps what waits "
        "(`broker-held-schedule.md`).",
        why="one file on a volume, nothing else to run",
    )
    instance: str = option(
        "",
        "Name of this sidecar's share of the schedule; the private queue in the broker is named "
        "after it. Empty = made once by the store; in PostgreSQL any free one, else a new one, so "
        "that all sidecars can have the same configuration.",
        why="with one file for one sidecar there is nothing to tell apart",
        pattern=r"^[A-Za-z0-9_-]{0,64}$",
    )
    password_file: OptionalPath = option(
        None,
        "`postgresql` only: file that holds the password of the user in `url`, such as a mounted "
        "secret. It is read at each connect; a line end at its end is ignored.",
    )
    lease_s: StrictInt = option(
        30,
        "`postgresql` only: after so long without a sign of life the share of a sidecar may be "
        "taken over by the others.",
        why="longer than a restart of the server, shorter than anyone's patience",
        unit="seconds",
        ge=2,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield what doesn't fit the URL."""
        if self.password_file is not None and not self.is_shared:
            yield "password_file", "counts for postgresql:// only; remove it"
        if self.instance and self.url == BROKER_HELD:
            yield "instance", "counts for stores only, the broker keeps one schedule; remove it"

    @property
    def is_shared(self) -> bool:
        """Whether several sidecars may share the store."""
        return is_postgres(self.url)

    def password(self) -> Secret | None:
        """Return the password for PostgreSQL, read from `password_file`; None = libpq's own ways.

        Raises:
            ConfigError: the file can't be read or is empty.
        """
        if self.password_file is None:
            return None
        return _password_in(self.password_file, "store.password_file")


class JournalOptions(Section):
    """The history as files for analysis."""

    path: Annotated[str, BeforeValidator(_checked_journal_path)] = option(
        "",
        "Folder of the journal (`journal.md`), or a URL of an object store such as "
        "`s3://bucket/journal`, which needs the package of fsspec for it, such as `s3fs`; empty = "
        'no journal. Needs `pip install "amqsidecar[journal]"`. A relative path in a '
        "configuration file starts at that file's folder. Sidecars may share a journal; those that "
        "share a store need the same journal.",
        why="needs an operator's decision on space",
    )
    name: str = option(
        "",
        "What the column `sidecar` says; empty = the store's instance.",
        pattern=r"^[A-Za-z0-9_.-]{0,64}$",
    )
    cause_text: StrictBool = option(
        False,
        "Whether the journal holds what the broker says of a death word by word, in the column "
        "`cause`. Without it there are only groups of causes, without numbers, ids and names.",
        why="exception texts quote customers' data",
    )
    properties: Texts = option(
        (),
        "Application properties that history and journal hold of each dead letter, as text of at "
        "most 1,000 characters; exact names. No others are, and bodies never are.",
        why="properties may be personal data",
    )
    segment_events: StrictInt = option(
        50_000,
        "A segment is written when so many events wait for it.",
        why="some megabytes, which is little memory and no tiny file",
        unit="events",
        ge=1,
        le=1_000_000,
    )
    segment_s: StrictInt = option(
        300,
        "A segment is written when its oldest event is so old, however few there are.",
        why="fresh enough for reports, and less than 300 files a day",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    keep_days: StrictInt = option(
        0,
        "Files of the journal whose events are all older are removed; 0 = none ever is.",
        why="nobody should lose a history without having said so",
        unit="days",
        ge=0,
        le=36_500,
    )


class HistoryOptions(Section):
    """How long `show` can tell what happened."""

    keep_days: StrictInt = option(
        30,
        "Events older than this are removed from the store.",
        why="a month covers the usual post-mortem",
        unit="days",
        ge=1,
        le=36_500,
    )
    max_events: StrictInt = option(
        1_000_000,
        "The oldest events beyond so many are removed earlier.",
        why="some hundred megabytes",
        unit="events",
        ge=1000,
    )


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
        key = _password_in(self.session_key_file, "http.session_key_file")
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
        return None if path is None else _password_in(path, "http.oidc.client_secret_file")


class LogOptions(Section):
    """The log on standard error."""

    level: LogLevel = option(LogLevel.INFO, "The least important lines that are written.")
    format: LogFormat = option(
        LogFormat.JSON,
        "`json` for collectors, `text` for people.",
        why="containers' logs are collected",
    )


class DiscoveryOptions(Section):
    """Finding dead-letter queues."""

    interval_s: StrictInt = option(
        60,
        "How often the broker is asked for new dead-letter queues and changed settings.",
        why="new queues are rare, the question is cheap",
        unit="seconds",
        ge=1,
        le=86_400,
    )


class ObserveOptions(Section):
    """`run --observe`: looking without touching anything."""

    interval_s: StrictInt = option(
        10,
        "How often `run --observe` looks into the dead-letter queues.",
        why="a look reads each queue from its head; people don't need it faster",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    max_messages: StrictInt = option(
        10_000,
        "How many messages of each dead-letter queue a look goes through. Classic itself shows no "
        "more than 400 (`maxBrowsePageSize`) of a queue on which a policyEntry acts.",
        why="a look costs the broker some work per message",
        unit="messages",
        ge=1,
        le=1_000_000,
    )
    max_log_lines: StrictInt = option(
        20,
        "How many dead letters get a log line of their own in a second; summaries and metrics "
        "count all.",
        why="enough to read along, too few to fill a disk",
        unit="lines per second",
        ge=0,
        le=100_000,
    )


class OutcomesOptions(Section):
    """What became of re-sends."""

    watch: StrictBool = option(
        True,
        "Whether the sidecar looks at the queues that it re-sends to, over a connection of its own "
        "that only looks. Without it no re-send is called consumed (`outcomes.md`).",
        why="some questions to the broker every few seconds, and none when nothing waits",
    )
    window_s: StrictInt = option(
        60,
        "So long after its re-send a message may come back; only then it may be called consumed.",
        why="longer than most consumers work at a message; one that fails later still comes back",
        unit="seconds",
        ge=2,
        le=86_400,
    )
    interval_s: StrictInt = option(
        5,
        "How often a queue is looked at while its re-sends may still come back.",
        why="a short moment in which a queue is empty should not be missed for long",
        unit="seconds",
        ge=1,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield a window that is over before anybody has looked."""
        if self.window_s < 2 * self.interval_s:
            yield "window_s", "has to be at least twice `interval_s`"


class Config(Section):
    """All options; what `load_config` returns."""

    broker: BrokerOptions = section(BrokerOptions, "The broker and how to reach it.")
    intake: IntakeOptions = section(IntakeOptions, "What is read.")
    policy: PolicyOptions = section(PolicyOptions, "The rules.")
    redelivery: RedeliveryOptions = section(RedeliveryOptions, "What redeliveries look like.")
    cycle: CycleOptions = section(CycleOptions, "How much one exactly-once unit of work does.")
    store: StoreOptions = section(StoreOptions, "The persistent schedule.")
    journal: JournalOptions = section(JournalOptions, "The history as files for analysis.")
    history: HistoryOptions = section(HistoryOptions, "How long `show` can tell what happened.")
    http: HttpOptions = section(HttpOptions, "Metrics, health, console and API.")
    log: LogOptions = section(LogOptions, "The log on standard error.")
    discovery: DiscoveryOptions = section(DiscoveryOptions, "Finding dead-letter queues.")
    observe: ObserveOptions = section(ObserveOptions, "Looking only, with `run --observe`.")
    outcomes: OutcomesOptions = section(OutcomesOptions, "What became of re-sends.")

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield what a schedule in the broker can't do."""
        if self.store.url == BROKER_HELD and self.journal.path:
            yield (
                "journal.path",
                "needs a store that keeps events until they are written, and store.url is "
                "broker:, where there is none: leave this empty, or use another store",
            )
        if self.store.url == BROKER_HELD and self.intake.backlog is Backlog.HOLD:
            yield (
                "intake.backlog",
                "is `hold`, but where store.url is broker: there is no place to hold what was "
                "there before: set `process`, or use another store",
            )

    def origin(self, key: str) -> str:
        """Return where an option was set, such as `sidecar.yaml:12`; the key itself if nowhere."""
        return self._origins.get(key, key)

    def with_origins(self, origins: Mapping[str, str]) -> "Config":
        """Return the same options, with the places where they were set."""
        copy = self.model_copy()
        copy._origins = dict(origins)  # noqa: SLF001 - a copy of ourselves
        return copy


@lru_cache(maxsize=1)
def known_options() -> Mapping[str, Any]:
    """Return each option's dotted key with its pydantic field, in the order of the schema."""

    def walk(kind: type[Section], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, field in kind.model_fields.items():
            nested = field.annotation
            if isinstance(nested, type) and issubclass(nested, Section):
                yield from walk(nested, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", field

    return dict(walk(Config, ""))


def _password_in(path: Path, key: str) -> Secret:
    """Return what a file holds, without the line end.

    Raises:
        ConfigError: it can't be read or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(key, f"{path} can't be read: {_reason(error)}")]) from error
    if not text:
        raise ConfigError([Problem(key, f"{path} is empty")])
    return Secret(text)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
