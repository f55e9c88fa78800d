"""The SASL exchange before AMQP, as bytes in and bytes out (AMQP 1.0 part 5.3).

Ours and not Proton's, for an installed Proton seldom has SCRAM: it needs Cyrus SASL when it is
compiled, and Cyrus's plug-ins when it runs.
"""

import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from amqsidecar.brokers.amqp.scram import HASHES, ScramClient
from amqsidecar.brokers.connection.broker_socket import handshake_failure, is_tls_record, speaks_tls
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import Clock
from amqsidecar.errors import (
    BrokerError,
    BrokerRefused,
    LinkLost,
    RemoteProtocolError,
    UndecodableMessage,
)
from amqsidecar.formats import amqp_sections as sections

HEADER: Final = b"AMQP\x03\x01\x00\x00"

MECHANISMS_WITH_USER: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The strongest first."""

MECHANISMS_WITH_TOKEN: Final = ("OAUTHBEARER", "XOAUTH2", "PLAIN")
"""RFC 7628; Google's, which came before it; the token as the password."""

MECHANISMS_WITHOUT_USER: Final = ("EXTERNAL", "ANONYMOUS")
"""EXTERNAL: we are who our TLS certificate says."""

_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44
_TYPE_SASL = 1
_FRAME_HEAD = struct.Struct(">IBBH")
# Why: Artemis 2.56.0 and later reads no longer frame of a log-in by default (ARTEMIS-6176).
_FRAME_BYTES_USUAL = 4096
# Bound: the standard's own for a frame before its peer's limit is known.
_FRAME_BYTES_MAX = 512 * 1024
_READ_BYTES = 64 * 1024
_OK, _WRONG_CREDENTIALS, _PERMANENT = 0, 1, 3
_REFUSAL_ANSWERS: Final = {"OAUTHBEARER": b"\1", "XOAUTH2": b""}


def mechanisms_for(
    *,
    has_user: bool,
    has_certificate: bool,
    has_token: bool = False,
    allowed: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the SASL mechanisms to try, the preferred first.

    Args:
        has_user: there is a user with a password.
        has_certificate: TLS shows a certificate of ours.
        has_token: the user has a bearer token.
        allowed: mechanisms that the operator allows; () = all.

    Example:
        >>> mechanisms_for(has_user=False, has_certificate=False)
        ('ANONYMOUS',)
    """
    fitting = _fitting(has_user=has_user, has_token=has_token)
    if allowed:
        return tuple(one for one in fitting if one in allowed)
    # Why: a broker may offer EXTERNAL to a client without a certificate, and refuse it then.
    return tuple(one for one in fitting if one != "EXTERNAL" or has_certificate)


def _fitting(*, has_user: bool, has_token: bool) -> tuple[str, ...]:
    if has_token:
        return MECHANISMS_WITH_TOKEN
    return MECHANISMS_WITH_USER if has_user else MECHANISMS_WITHOUT_USER


class _NoHash(NamedTuple):
    """No mechanism was chosen, or one in which the broker proves nothing."""


class _FirstSent(NamedTuple):
    """The broker was sent our name."""

    client: ScramClient


class _ProofSent(NamedTuple):
    """The broker was sent our proof, and owes us its own."""

    client: ScramClient


class _Proven(NamedTuple):
    """The broker has proven that it knows the password."""

    client: ScramClient


class SaslExchange:
    """One log-in: send `greeting`, then the output of `feed`, until it `is_done`.

    Attributes:
        place: host and port, for messages.
        mechanism: the chosen mechanism; "" = not chosen yet.
        rest: the peer's bytes after the exchange; AMQP already.
    """

    greeting = HEADER

    def __init__(self, endpoint: Endpoint) -> None:
        self.mechanism = ""
        self.is_done = False
        self.rest = b""
        self.place = endpoint.place
        self._host = endpoint.host
        self._port = endpoint.port
        self._user = endpoint.user or ""
        self._has_token = endpoint.credentials.is_token
        self._password = endpoint.credentials.secret() or ""
        self._mechanisms = endpoint.mechanisms or _fitting(
            has_user=bool(endpoint.user), has_token=self._has_token
        )
        self._has_header = False
        self._hash: _NoHash | _FirstSent | _ProofSent | _Proven = _NoHash()

    @property
    def is_long(self) -> bool:
        """Whether our first answer is longer than brokers accept by default."""
        return self._has_token and len(self._password) > _FRAME_BYTES_USUAL - _FRAME_HEAD.size

    def feed(self, data: bytes) -> bytes:
        """Process the bytes that arrived; return the bytes to send.

        Raises:
            BrokerRefused: the credentials are wrong, no mechanism fits, or it isn't AMQP.
            LinkLost: the broker can't decide now.
        """
        self.rest += data
        try:
            if not self._has_header and not self._take_header():
                return b""
            answer = b""
            while not self.is_done and (frame := self._take_frame()) is not None:
                answer += self._handle(*frame)
        except (RemoteProtocolError, UndecodableMessage) as error:
            raise BrokerRefused(f"{self.place} does not log in as AMQP does: {error}") from error
        return answer

    def _take_header(self) -> bool:
        if is_tls_record(self.rest):
            raise speaks_tls(self.place)
        if not self.rest.startswith(HEADER[: len(self.rest)]):
            raise BrokerRefused(
                f"{self.place} does not answer as AMQP with log-in does (its first bytes are "
                f"{self.rest[:8]!r}): is it the port of a connector for AMQP?"
            )
        if len(self.rest) < len(HEADER):
            return False
        self.rest = self.rest[len(HEADER) :]
        self._has_header = True
        return True

    def _take_frame(self) -> tuple[int, list[bytes]] | None:
        """Return code and fields of the next frame; None = it is not whole yet."""
        if len(self.rest) < _FRAME_HEAD.size:
            return None
        size, offset, kind, _ = _FRAME_HEAD.unpack_from(self.rest)
        if kind != _TYPE_SASL or not 8 <= offset * 4 <= size <= _FRAME_BYTES_MAX:
            raise RemoteProtocolError(f"a frame of type {kind} with {size} bytes")
        if len(self.rest) < size:
            return None
        body, self.rest = self.rest[offset * 4 : size], self.rest[size:]
        if body[:1] != b"\0":
            raise RemoteProtocolError("a frame without a descriptor")
        try:
            value_at = sections.skip(body, 1)
        except (IndexError, struct.error):
            raise RemoteProtocolError("a frame that is cut off") from None
        code = sections.scalar(body[1:value_at])
        if not isinstance(code, int):
            raise RemoteProtocolError("a frame with an unknown descriptor")
        return code, sections.items(body[value_at:])

    def _handle(self, code: int, fields: list[bytes]) -> bytes:
        first = fields[0] if fields else sections.NULL
        if code == _MECHANISMS and not self.mechanism:
            return self._init(_symbols(first))
        if code == _CHALLENGE and not isinstance(self._hash, _NoHash):
            client, challenge = self._hash.client, _binary(first)
            if isinstance(self._hash, _FirstSent):
                self._hash = _ProofSent(client)
                return _frame(_RESPONSE, [_encoded(client.final(challenge))])
            client.verify(challenge)
            self._hash = _Proven(client)
            return _frame(_RESPONSE, [_encoded(b"")])
        if code == _CHALLENGE and self.mechanism in _REFUSAL_ANSWERS:
            # Why: a broker refuses a token by a challenge, and the outcome follows our answer.
            return _frame(_RESPONSE, [_encoded(_REFUSAL_ANSWERS[self.mechanism])])
        if code == _OUTCOME and self.mechanism:
            self._end(sections.scalar(first), fields[1] if len(fields) > 1 else sections.NULL)
            return b""
        raise RemoteProtocolError(f"frame {code:#x} out of turn")

    def _init(self, offered: Sequence[str]) -> bytes:
        self.mechanism = next((one for one in self._mechanisms if one in offered), "")
        if not self.mechanism:
            raise BrokerRefused(
                f"{self.place} offers the SASL mechanisms {', '.join(offered) or 'none'}; we may "
                f"use {', '.join(self._mechanisms)}. {_mend(offered, self._user)}"
            )
        initial = self._initial_response()
        fields = [sections.symbol(self.mechanism), _encoded(initial), sections.string(self._host)]
        return _frame(_INIT, fields)

    def _initial_response(self) -> bytes:
        if self.mechanism in HASHES:
            client = ScramClient(self.mechanism, self._user, self._password)
            self._hash = _FirstSent(client)
            return client.first()
        if self.mechanism == "OAUTHBEARER":
            # RFC 7628 section 3.1; names are quoted as in RFC 5801 section 4.
            name = self._user.replace("=", "=3D").replace(",", "=2C")
            head = f"n,a={name},\1host={self._host}\1port={self._port}"
            return f"{head}\1auth=Bearer {self._password}\1\1".encode()
        if self.mechanism == "XOAUTH2":
            return f"user={self._user}\1auth=Bearer {self._password}\1\1".encode()
        if self.mechanism == "PLAIN":
            return b"\0".join((b"", self._user.encode(), self._password.encode()))
        return b"anonymous" if self.mechanism == "ANONYMOUS" else b""

    def _end(self, code: sections.Scalar, additional: bytes) -> None:
        if code == _OK:
            # Why: a broker may prove itself in a challenge or here, but it has to.
            if isinstance(self._hash, _FirstSent | _ProofSent):
                self._hash.client.verify(_binary(additional))
            self.is_done = True
            return
        nobody = "the certificate" if self.mechanism == "EXTERNAL" else "us without a user"
        who = f"user {self._user}" if self._user else nobody
        if code == _WRONG_CREDENTIALS and self._has_token:
            raise BrokerRefused(
                f"{self.place} does not accept the token of {who} (SASL {self.mechanism}): has it "
                "expired, or does the broker trust another issuer or audience (broker.token_file, "
                "broker.oidc)?"
            )
        if code == _WRONG_CREDENTIALS:
            mend = (
                "check the user in broker.url, and the password there or in broker.password_file"
                if self._user
                else "name a user in broker.url, or check whose certificates the broker knows"
            )
            raise BrokerRefused(
                f"{self.place} does not accept {who} (SASL {self.mechanism}): {mend}"
            )
        words = f"{self.place} failed to log us in (SASL {self.mechanism}, code {code!r})"
        raise BrokerRefused(words) if code == _PERMANENT else LinkLost(words)


def log_in(
    connected: socket.socket | ssl.SSLSocket, exchange: SaslExchange, clock: Clock, timeout_s: float
) -> None:
    """Perform an exchange on a connected socket, within a time limit.

    Raises:
        BrokerRefused: as `SaslExchange.feed`, or the broker wants another TLS certificate.
        LinkLost: the connection ended, or there was no answer in time.
    """
    deadline_s = clock.monotonic_s() + timeout_s
    try:
        connected.sendall(exchange.greeting)
        while not exchange.is_done:
            connected.settimeout(max(0.001, deadline_s - clock.monotonic_s()))
            data = connected.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("it closed the connection while we logged in")
            answer = exchange.feed(data)
            if answer:
                connected.sendall(answer)
    except OSError as error:
        if exchange.is_long and isinstance(error, ConnectionError):
            raise LinkLost(
                f"{exchange.place} ended the log-in by a long token: set its acceptor to take one, "
                "by initialRemoteMaxFrameSize=65536"
            ) from error
        has_tls = isinstance(connected, ssl.SSLSocket)
        raise _failure(error, exchange.place, timeout_s, has_tls=has_tls) from error


def _failure(error: OSError, place: str, timeout_s: float, *, has_tls: bool) -> BrokerError:
    if isinstance(error, ssl.SSLError):
        return handshake_failure(error, place)
    what = f"the connection to {place} broke: {error}"
    if isinstance(error, TimeoutError):
        what = f"{place} did not answer in {timeout_s:g} s"
    hint = (
        "does the broker want a client certificate (broker.tls.cert_file)?"
        if has_tls
        else "is it the port of a connector for AMQP, and without TLS (else: amqps)?"
    )
    return LinkLost(f"{what}; {hint}")


def _mend(offered: Sequence[str], user: str) -> str:
    if user:
        return (
            "Allow one of those in broker.sasl_mechanisms, or one of ours in the broker's "
            "saslMechanisms"
        )
    if set(offered) & set(MECHANISMS_WITH_USER):
        return "Name a user in broker.url"
    return "For EXTERNAL, set broker.tls.cert_file"


def _frame(code: int, fields: list[bytes]) -> bytes:
    body = sections.make_list(code, fields)
    return _FRAME_HEAD.pack(len(body) + _FRAME_HEAD.size, 2, _TYPE_SASL, 0) + body


def _encoded(data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((0xA0, len(data))) + data
    return struct.pack(">BI", 0xB0, len(data)) + data


def _binary(element: bytes) -> bytes:
    value = sections.scalar(element)
    if value is None:
        return b""
    if not isinstance(value, bytes):
        raise RemoteProtocolError("a field that is no binary")
    return value


def _symbols(element: bytes) -> list[str]:
    """Return the symbols of a field that holds one or several."""
    if element[:1] in (b"\xe0", b"\xf0"):
        wide = element[0] == 0xF0
        count = int.from_bytes(element[5:9] if wide else element[2:3])
        head = 9 if wide else 3
        return list(_array(element[head:], count))
    value = sections.scalar(element)
    return [] if value is None else [str(value)]


def _array(encoded: bytes, count: int) -> list[str]:
    if encoded[:1] not in (b"\xa3", b"\xb3"):
        raise RemoteProtocolError("an array of something else than symbols")
    width = 1 if encoded[0] == 0xA3 else 4
    found = []
    at = 1
    for _ in range(count):
        length = int.from_bytes(encoded[at : at + width])
        at += width + length
        if at > len(encoded):
            raise RemoteProtocolError("an array that is cut off")
        found.append(encoded[at - length : at].decode("ascii", "replace"))
    return found
