"""The URL of a broker as a value."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from amqsidecar.config.secrets import STARS, Secret

DEFAULT_PORTS: Final = {
    "amqp": 5672,
    "amqps": 5671,
    "artemis": 61616,
    "artemis+ssl": 61617,
    "core": 61616,
    "core+ssl": 61617,
    "openwire": 61616,
    "openwire+ssl": 61617,
    "stomp": 61613,
    "stomp+ssl": 61614,
}
"""Every scheme and the port that the brokers' own configurations give it."""

_OTHER_SCHEMES: Final = {
    "tcp": "openwire",
    "nio": "openwire",
    "ssl": "openwire+ssl",
    "nio+ssl": "openwire+ssl",
    "amqp+ssl": "amqps",
    "amqp+nio": "amqp",
    "stomps": "stomp+ssl",
}


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """Where a broker listens, and the login.

    Attributes:
        scheme: the wire; one of `DEFAULT_PORTS`.
        user: None = anonymous.
        password: None = none, or in `broker.password_file`.
    """

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: Secret | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether the wire is encrypted."""
        return self.scheme in ("amqps", "artemis+ssl", "core+ssl", "openwire+ssl", "stomp+ssl")

    @property
    def is_of_artemis(self) -> bool:
        """Whether only Artemis speaks this wire."""
        return self.scheme.partition("+")[0] in ("artemis", "core")

    @property
    def may_speak_amqp(self) -> bool:
        """Whether AMQP is this wire, or one of its two."""
        return self.scheme.partition("+")[0] in ("amqp", "amqps", "artemis")

    @property
    def is_loopback(self) -> bool:
        """Whether the connection stays on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        login = ""
        if self.user is not None:
            login = f"{self.user}:{STARS}@" if self.password is not None else f"{self.user}@"
        return f"{self.scheme}://{login}{host}:{self.port}"


def parse_broker_url(text: str) -> BrokerUrl:
    """Return the value of a URL such as `artemis://user:password@host:61616`.

    Raises:
        ValueError: it is not such a URL; the message never holds the text, which may have a
            password in it.

    Example:
        >>> print(parse_broker_url("openwire://orders:geheim@broker"))
        openwire://orders:********@broker:61616
    """
    scheme, separator, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if text.strip().startswith("failover:"):
        raise ValueError("write a list of URLs instead of failover:(...)")
    if not separator:
        raise ValueError("expected scheme://host:port, such as artemis://user@broker:61616")
    if scheme in _OTHER_SCHEMES:
        raise ValueError(f"the scheme {scheme}:// is written {_OTHER_SCHEMES[scheme]}:// here")
    if scheme not in DEFAULT_PORTS:
        raise ValueError(f"unknown scheme {scheme}://; known: {', '.join(DEFAULT_PORTS)}")
    parts = urlsplit(f"//{rest}")
    if parts.query or parts.fragment or parts.path not in ("", "/"):
        raise ValueError(
            "nothing may follow host:port; set connection options under `broker`, and in a user "
            "or password the characters / ? # @ : % are written as %2F %3F %23 %40 %3A %25"
        )
    try:
        port = parts.port
    except ValueError as error:
        raise ValueError("the port must be a number from 1 to 65535") from error
    if not parts.hostname or port == 0:
        raise ValueError("expected a host, and a port from 1 to 65535 where it is not the usual")
    if not _is_name(parts.hostname):
        raise ValueError(
            "the host is not a valid name: each label between dots has 1 to 63 characters, as in "
            "broker.example.org"
        )
    if parts.password and not parts.username:
        raise ValueError("a password needs a user")
    return BrokerUrl(
        scheme=scheme,
        host=parts.hostname,
        port=port or DEFAULT_PORTS[scheme],
        user=unquote(parts.username) if parts.username else None,
        password=Secret(unquote(parts.password)) if parts.password else None,
    )


def _is_name(host: str) -> bool:
    """Return whether a host name is valid; Python reports a look-up of others differently."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
