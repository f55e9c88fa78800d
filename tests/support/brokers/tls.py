"""Brokers whose connectors speak TLS, ask for a client certificate, or for SCRAM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from support.brokers.broker_xml import ARTEMIS_LOGIN_CONFIG
from support.brokers.real import QUICK_START, ArtemisBroker, ClassicBroker
from support.machine.certificates import PemFiles, Pki
from support.machine.ports import free_port

PLAIN, TLS, MUTUAL, EXPIRED, SCRAM = "plain", "tls", "mutual", "expired", "scram"
"""What a port asks for; on Artemis `MUTUAL` takes our identity from the client certificate."""

_ARTEMIS_LOGIN = f"""\
{ARTEMIS_LOGIN_CONFIG}
certificates {{
  org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule required
    org.apache.activemq.jaas.textfiledn.user="certificate-users.properties"
    org.apache.activemq.jaas.textfiledn.role="artemis-roles.properties";
}};
scram-passwords {{
  org.apache.activemq.artemis.spi.core.security.jaas.SCRAMPropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="artemis-users.properties"
    org.apache.activemq.jaas.properties.role="artemis-roles.properties";
}};
scram {{
  org.apache.activemq.artemis.spi.core.security.jaas.SCRAMLoginModule required;
}};
"""
_CLASSIC_LOGIN = """\
passwords {
  org.apache.activemq.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.group="groups.properties";
};
certificates {
  org.apache.activemq.jaas.TextFileCertificateLoginModule required
    org.apache.activemq.jaas.textfiledn.user="certificate-users.properties"
    org.apache.activemq.jaas.textfiledn.group="groups.properties";
};
"""
_BY_CERTIFICATE = """
<jaasDualAuthenticationPlugin configuration="passwords" sslConfiguration="certificates"/>
"""
_CLASSIC_SCHEMES = {
    "openwire": ("tcp", "ssl"),
    "stomp": ("stomp", "stomp+ssl"),
    "amqp": ("amqp", "amqp+ssl"),
}
_CLIENT_CERTIFICATE = "transport.needClientAuth=true"


@dataclass(frozen=True)
class Way:
    """One wire of one broker."""

    broker: "TlsArtemis | TlsClassic"
    wire: str

    def url(self, what: str, *, tls: bool, login: str = "", host: str = "localhost") -> str:
        """Return the sidecar's URL of a port, with a scheme with or without TLS."""
        with_tls = {"amqp": "amqps"}.get(self.wire, f"{self.wire}+ssl")
        scheme = with_tls if tls else self.wire
        return f"{scheme}://{login}{host}:{self.broker.port(self.wire, what)}"


class TlsArtemis(ArtemisBroker):
    """Artemis with an acceptor for each of the five; its certificate is made for localhost."""

    def __init__(self, pki: Pki, client: PemFiles | None = None) -> None:
        """Prepare it; the client is known by its certificate as `sidecar`."""
        stores = pki.broker_stores(hosts=["localhost"]).acceptor_options
        expired = pki.broker_stores("expired", is_expired=True).acceptor_options
        options = {
            PLAIN: "",
            TLS: stores,
            MUTUAL: f"{stores};needClientAuth=true;securityDomain=certificates;"
            "saslMechanisms=PLAIN,ANONYMOUS,EXTERNAL",
            EXPIRED: expired,
            SCRAM: "securityDomain=scram;saslLoginConfigScope=scram-passwords;"
            "saslMechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
        super().__init__(
            acceptors={
                what: f"tcp://127.0.0.1:@{_mark(what)}@?protocols=CORE,AMQP,STOMP,OPENWIRE;{more}"
                for what, more in options.items()
            }
        )
        self._client = client
        self._ports |= {_mark(what): free_port() for what in options if what != PLAIN}

    def port(self, _wire: str, what: str) -> int:
        """Return the port that asks for this; every acceptor speaks every wire."""
        return self.ports[_mark(what)]

    def set_password(self, password: str) -> None:
        """Give the administrator another password; counts for new connections at once."""
        self.password = password
        path = self.config_path.parent / "artemis-users.properties"
        path.write_text(f"{self.user} = {password}\n", encoding="utf-8")

    def know(self, client: PemFiles) -> None:
        """Know `sidecar` by another certificate from the next start on."""
        path = self.config_path.parent / "certificate-users.properties"
        path.write_text(f"sidecar={client.subject}\n", encoding="utf-8")

    def _prepare(self) -> None:
        super()._prepare()
        etc = self.config_path.parent
        (etc / "login.config").write_text(
            _ARTEMIS_LOGIN.replace("required", "required reload=true"), encoding="utf-8"
        )
        users = "" if self._client is None else f"sidecar={self._client.subject}\n"
        (etc / "certificate-users.properties").write_text(users, encoding="utf-8")
        (etc / "artemis-roles.properties").write_text(f"amq={self.user},sidecar\n")


class TlsClassic(ClassicBroker):
    """Classic with connectors without TLS, with it, and with client certificates."""

    def __init__(self, version: str, pki: Pki, client: PemFiles | None = None) -> None:
        """Prepare it.

        Args:
            version: of the broker.
            pki: whose authority signs the broker and is trusted.
            client: None = nobody is asked who he is; else who connects by TLS is who the
                certificate says, and this one is `sidecar`.
        """
        schemes = {
            (wire, what): scheme
            for wire, (plain, tls) in _CLASSIC_SCHEMES.items()
            for what, scheme in ((PLAIN, plain), (TLS, tls), (MUTUAL, tls))
        }
        self._marks = {
            (wire, what): f"{wire.upper()}_PORT" if what == PLAIN else f"{wire}_{what}".upper()
            for wire, what in schemes
        }
        options: dict[str, Any] = {"plugins": _BY_CERTIFICATE} if client is not None else {}
        stores = pki.broker_stores(hosts=["localhost"])
        super().__init__(
            version,
            jvm_flags=(*QUICK_START, *stores.jvm_flags),
            connectors={
                mark: f"{schemes[key]}://127.0.0.1:@{mark}@?transport.transformer=jms"
                + (f"&amp;{_CLIENT_CERTIFICATE}" if key[1] == MUTUAL else "")
                for key, mark in self._marks.items()
            },
            **options,
        )
        self._client = client
        self._ports |= {mark: free_port() for mark in self._marks.values()}
        if client is not None:
            login = self.folder / "login.config"
            self._jvm_flags = (*self._jvm_flags, f"-Djava.security.auth.login.config={login}")

    def port(self, wire: str, what: str) -> int:
        """Return the port of a wire that asks for this."""
        return self.ports[self._marks[wire, what]]

    def _prepare(self) -> None:
        super()._prepare()
        if self._client is None:
            return
        files: Mapping[str, str] = {
            "login.config": _CLASSIC_LOGIN,
            "users.properties": f"{self.user}={self.password}\n",
            "groups.properties": f"admins={self.user},sidecar\n",
            "certificate-users.properties": f"sidecar={self._client.subject}\n",
        }
        for name, text in files.items():
            (self.folder / name).write_text(text, encoding="utf-8")


def _mark(what: str) -> str:
    return "PORT" if what == PLAIN else f"{what.upper()}_PORT"
