"""The socket to a broker, with or without TLS, and its failures in words."""

import socket
import ssl
from typing import Final

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.racing import open_socket
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost

# Source: OpenSSL's x509_vfy.h.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNKNOWN_AUTHORITY: Final = frozenset((2, 18, 19, 20, 21))
_OTHER_NAME: Final = frozenset((62, 64))

_NO_TLS: Final = frozenset(
    ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
)
# Alerts of Java brokers about a client certificate that is missing or not trusted.
_CERTIFICATE_ALERTS: Final = frozenset(
    (
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    )
)

_TCP_TIMEOUT_S: Final = 3.5
"""Maximum wait for each address to accept the connection.

Why: a first packet that is lost is sent again after 1 and 3 s. A broker that works accepts at once,
as its kernel does it; the host of one that moved does not answer, and the next one is waiting.
"""


def connect(endpoint: Endpoint) -> socket.socket | ssl.SSLSocket:
    """Return a connected socket with a time-out, its TLS handshake done.

    Raises:
        LinkLost: the broker can't be reached, or ended the handshake without a reason; or another
            broker accepts a connection first.
        BrokerRefused: TLS does not fit the configuration; trying again would not help.
    """
    place, tls = endpoint.place, endpoint.tls
    try:
        timeout_s = min(endpoint.connect_timeout_s, _TCP_TIMEOUT_S)
        plain = open_socket((endpoint.host, endpoint.port), endpoint.others, timeout_s)
    except OSError as error:
        raise LinkLost(f"{place} can't be reached: {error}") from error
    try:
        plain.settimeout(endpoint.connect_timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return plain if tls is None else tls.wrap_socket(plain, server_hostname=endpoint.host)
    except OSError as error:
        plain.close()
        if tls is None:
            raise LinkLost(f"{place} can't be reached: {error}") from error
        raise handshake_failure(error, place) from error


def handshake_failure(error: OSError, place: str) -> BrokerError:
    """Return the meaning of a failed TLS handshake, or of the first read after it.

    Why also a read: with TLS 1.3 a broker judges our certificate after our handshake has ended.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(error, place)
    reason = (getattr(error, "reason", None) or "") if isinstance(error, ssl.SSLError) else ""
    if reason in _CERTIFICATE_ALERTS:
        return BrokerRefused(
            f"{place} wants a client certificate that it trusts, and says {reason}: set "
            "broker.tls.cert_file (and key_file) to one that is signed by an authority in the "
            "broker's trust store and is not expired"
        )
    if reason in _NO_TLS:
        return BrokerRefused(
            f"{place} does not speak TLS on this port: name the port of a connector with TLS in "
            "broker.url, or a scheme without TLS (amqp, openwire, stomp)"
        )
    if reason and reason != "UNEXPECTED_EOF_WHILE_READING":
        return BrokerRefused(f"no TLS with {place}: {reason}")
    ended = "did not answer" if isinstance(error, TimeoutError) else "ended the connection"
    return LinkLost(
        f"{place} {ended} during the TLS handshake ({error}): is it the port of a connector with "
        "TLS, and does it want a client certificate (broker.tls.cert_file)?"
    )


def _untrusted(error: ssl.SSLCertVerificationError, place: str) -> BrokerRefused:
    code = error.verify_code
    if code in (_EXPIRED, _NOT_YET_VALID):
        when = "has expired" if code == _EXPIRED else "is not valid yet"
        mend = f"it, or one that it is signed by, {when}: renew it at the broker; check both clocks"
    elif code in _UNKNOWN_AUTHORITY:
        mend = (
            "it is signed by an authority that is not known here: set broker.tls.ca_file to the "
            "PEM file of the authority that signs the broker's certificates"
        )
    elif code in _OTHER_NAME:
        mend = (
            "it is made for another host name: name the broker in broker.url as its certificate "
            "does, or give it a certificate with this name as subjectAltName"
        )
    else:
        mend = "see broker.tls in the options"
    return BrokerRefused(
        f"the certificate of {place} is not trusted ({error.verify_message.rstrip('.')}): {mend}"
    )


def is_tls_record(data: bytes) -> bool:
    """Return whether a peer's first bytes are TLS: an alert or a handshake."""
    return len(data) >= 2 and data[0] in (0x15, 0x16) and data[1] == 0x03


def speaks_tls(place: str) -> BrokerRefused:
    """Return the error for a peer that answers with TLS although we don't speak it."""
    return BrokerRefused(
        f"{place} speaks TLS on this port: use amqps://, openwire+ssl:// or stomp+ssl:// in "
        "broker.url, or the port of a connector without TLS"
    )
