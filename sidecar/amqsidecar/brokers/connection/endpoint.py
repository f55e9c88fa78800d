"""Where a broker is reached, and as whom."""

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoint:
    """One connector of one broker, and who we are there.

    Attributes:
        host: of the broker; also the name that its certificate has to carry.
        port: of a connector that speaks the wire of the link.
        user: None = anonymous, or the client certificate tells.
        password: of the user; sent as it is where the wire knows nothing better.
        tls: None = plain TCP.
        mechanisms: of SASL, the preferred first; () = those that fit. AMQP only.
        connect_timeout_s: for TCP, login, and each attach of AMQP.
        idle_timeout_s: a peer that is silent for so long is taken for dead; 0 = never.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] = ()
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 30.0

    @property
    def place(self) -> str:
        """The address in words, `host:port`."""
        return f"{self.host}:{self.port}"
