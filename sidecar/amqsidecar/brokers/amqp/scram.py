"""The client's side of SCRAM (RFC 5802, RFC 7677): a log-in that never sends the password.

Both sides prove that they know the password, or a key derived from it. Channel binding is not
offered: neither broker has it.
"""

import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from typing import Final

from amqsidecar.errors import BrokerRefused, RemoteProtocolError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""

ITERATIONS_MIN: Final = 4096
"""RFC 7677 section 4; with fewer, a false broker could guess the password from the proof."""

# Bound: some seconds of work; a peer may not keep us busy for ever.
_ITERATIONS_MAX: Final = 5_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class ScramClient:
    """One log-in: `first`, then `final` with the server's answer, then `verify` with its next.

    Args:
        mechanism: one of `HASHES`.
        user: as the broker knows us.
        password: never sent.
        nonce: printable ASCII without a comma; "" = random, as it must be.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "") -> None:
        self._hash = HASHES[mechanism]
        self._password = prepared(password).encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = prepared(user).replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the client's final message, which holds the proof.

        Raises:
            RemoteProtocolError: the server's first message is not one.
            BrokerRefused: it asks for so little work that the password would not be protected.
        """
        fields = _fields(server_first)
        nonce = fields.get("r", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or "m" in fields:
            raise RemoteProtocolError("SCRAM: the broker's first message does not answer ours")
        salt = _decoded(fields.get("s", ""))
        count = fields.get("i", "")
        if not salt or not (count.isascii() and count.isdigit()) or len(count) > 9:
            raise RemoteProtocolError("SCRAM: the broker's first message has no salt or no count")
        iterations = int(count)
        if not ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise BrokerRefused(
                f"SCRAM: the broker asks for {iterations} iterations, which must be "
                f"{ITERATIONS_MIN} to {_ITERATIONS_MAX}: store the user's password there again"
            )
        without_proof = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        message = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check the server's final message.

        Raises:
            BrokerRefused: it refuses us, or does not prove that it knows the password.
            RemoteProtocolError: it is not such a message.
        """
        fields = _fields(server_final)
        if "e" in fields:
            raise BrokerRefused(f"SCRAM: the broker says {fields['e']}")
        signature = _decoded(fields.get("v", ""))
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise BrokerRefused(
                "SCRAM: the host that answers does not know this user's password, so it only "
                "poses as the broker"
            )

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("SCRAM: a message of the broker is not UTF-8") from error
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise RemoteProtocolError("SCRAM: a field of the broker's is not base64") from error


_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def prepared(text: str) -> str:
    """Return a user name or password as both sides compute with it.

    Source: SASLprep (RFC 4013), without its check of right-to-left texts; a text that it
    prohibits stays unchanged, so that the broker judges it.

    Example:
        >>> prepared("I\u00adX \u2168")
        'IX IX'
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in text
        if not stringprep.in_table_b1(char)
    )
    normal = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(table(char) for table in _PROHIBITED for char in normal):
        return text
    return normal
