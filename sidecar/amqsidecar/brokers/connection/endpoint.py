"""The address of a broker, and our credentials there."""

import ssl
from dataclasses import dataclass, field

from amqsidecar.brokers.connection.credentials import NO_PASSWORD, Credentials


@dataclass(frozen=True)
class Endpoint:
    """One connector of one broker, and our credentials there.

    Attributes:
        host: of the broker; also the name that its certificate has to carry.
        port: of a connector that speaks the wire of the link.
        user: None = anonymous, or named by the client certificate.
        credentials: of the user; sent in clear text where the wire has no other mechanism.
        tls: None = plain TCP.
        mechanisms: of SASL, the preferred first; () = all that fit the credentials. AMQP only.
        connect_timeout_s: for TLS, login, and each attach of AMQP; also for TCP, where it is short.
        idle_timeout_s: a peer that is silent for longer counts as dead; 0 = never.
        others: hosts and ports of brokers that take over: connecting fails once one of them accepts
            and this broker has not.
    """

    host: str
    port: int
    user: str | None = None
    credentials: Credentials = NO_PASSWORD
    tls: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] = ()
    # Why no defaults: those are the options'.
    connect_timeout_s: float = field(kw_only=True)
    idle_timeout_s: float = field(kw_only=True)
    others: tuple[tuple[str, int], ...] = ()

    @property
    def place(self) -> str:
        """The address in words, `host:port`."""
        return f"{self.host}:{self.port}"
