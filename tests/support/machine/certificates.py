"""Authorities and certificates for TLS between real brokers and us, new for each use.

pki = Pki(folder)
broker = pki.broker_stores()          # what a Java broker takes
us = pki.client("sidecar")            # PEM files for `broker.tls`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)

STORE_PASSWORD = "changeit"
ORGANIZATION = "amqsidecar"
UNIT = "tests"


@dataclass(frozen=True)
class PemFiles:
    """A certificate and its key.

    Attributes:
        subject: as a Java broker prints it.
    """

    certificate: Path
    key: Path
    subject: str


@dataclass(frozen=True)
class Stores:
    """What a Java broker is configured with; both are PKCS12 with `STORE_PASSWORD`."""

    key_store: Path
    trust_store: Path

    @property
    def jvm_flags(self) -> tuple[str, ...]:
        """System properties that give every TLS connector of a Classic broker these stores."""
        return tuple(
            f"-Djavax.net.ssl.{name}={value}"
            for name, value in {
                "keyStore": self.key_store,
                "keyStorePassword": STORE_PASSWORD,
                "keyStoreType": "PKCS12",
                "trustStore": self.trust_store,
                "trustStorePassword": STORE_PASSWORD,
                "trustStoreType": "PKCS12",
            }.items()
        )

    @property
    def acceptor_options(self) -> str:
        """Options of an Artemis acceptor, as XML text."""
        return (
            f"sslEnabled=true;keyStorePath={self.key_store};keyStorePassword={STORE_PASSWORD};"
            f"keyStoreType=PKCS12;trustStorePath={self.trust_store};"
            f"trustStorePassword={STORE_PASSWORD};trustStoreType=PKCS12"
        )


class Pki:
    """One authority and its certificates, in a folder."""

    def __init__(self, folder: Path) -> None:
        """Make the authority."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = trustme.CA(
            organization_name=ORGANIZATION, organization_unit_name=f"{UNIT} {folder.name}"
        )
        self.ca_file = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca_file))

    def client(self, name: str, *, hosts: Sequence[str] = (), is_expired: bool = False) -> PemFiles:
        """Issue a certificate for a client, in files named like it; a second one replaces it.

        Args:
            hosts: as which it may serve, too.
        """
        issued = self._issue(name, [f"{name}@example.org", *hosts], is_expired=is_expired)
        files = PemFiles(
            self.folder / f"{name}.pem",
            self.folder / f"{name}.key",
            f"CN={name}, OU={UNIT}, O={ORGANIZATION}",
        )
        files.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(files.key))
        return files

    def broker_stores(
        self,
        name: str = "broker",
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        *,
        is_expired: bool = False,
    ) -> Stores:
        """Issue a certificate for a broker that trusts what this authority signs."""
        issued = self._issue(name, hosts, is_expired=is_expired)
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        certificate, *chain = (
            x509.load_pem_x509_certificate(pem.bytes()) for pem in issued.cert_chain_pems
        )
        stores = Stores(self.folder / f"{name}.p12", self.folder / f"{name}-trust.p12")
        stores.key_store.write_bytes(
            serialize_key_and_certificates(name.encode(), key, certificate, chain, encryption)
        )
        trusted = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        stores.trust_store.write_bytes(
            serialize_java_truststore([PKCS12Certificate(trusted, b"ca")], encryption)
        )
        return stores

    def _issue(self, name: str, identities: Sequence[str], *, is_expired: bool) -> trustme.LeafCert:
        return self.authority.issue_cert(
            *identities,
            common_name=name,
            organization_name=ORGANIZATION,
            organization_unit_name=UNIT,
            not_before=datetime.now(UTC) - timedelta(days=2),
            not_after=datetime.now(UTC) + timedelta(days=-1 if is_expired else 1),
        )


def encrypt_key(source: Path, target: Path) -> None:
    """Write a key with a passphrase."""
    key = load_pem_private_key(source.read_bytes(), None)
    encryption = BestAvailableEncryption(b"passphrase")
    target.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
