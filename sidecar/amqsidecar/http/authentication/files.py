"""Files of bearer tokens, and of users with passwords; read again when changed.

A line has a name, a role, and a proof: `sha256:` of a token, `scrypt$` of a password.
"""

import hashlib
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hmac import compare_digest
from pathlib import Path
from typing import Final, NamedTuple

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.access import Role
from amqsidecar.renewed_files import RenewedFiles, ValueT

TOKEN_PREFIX: Final = "amqs_"  # noqa: S105 - of all tokens, so that leaked ones are recognised
NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
"""Of users and tokens."""

_TOKEN: Final = re.compile(r"sha256:([0-9a-f]{64})")
_PASSWORD: Final = re.compile(r"scrypt\$([0-9]{1,2})\$([0-9]{1,2})\$([0-9]{1,2})\$(\S+)\$(\S+)")

_COST: Final = (15, 8, 1)
"""32 MiB and about a tenth of a second."""
_MAX_COST: Final = (17, 16, 4)
_MAX_MEMORY_BYTES: Final = 512 * 2**20


class User(NamedTuple):
    """A user or program, with the proof of its password or token."""

    name: str
    role: str
    proof: str


def access_file(
    path: Path, key: str, parse: Callable[[str], Mapping[str, ValueT]]
) -> RenewedFiles[Mapping[str, ValueT]]:
    """Return the content of a file. While it can't be used, it grants no access.

    Args:
        path: the file.
        key: the option that names it.
        parse: raises ValueError with a sentence that names the line.

    Raises:
        ConfigError: it can't be used at first.
    """

    def read() -> Mapping[str, ValueT]:
        try:
            return parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError([Problem(key, f"{path} can't be used: {_reason(error)}")]) from error

    return RenewedFiles(key, read, path, without={})


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def parse_tokens(text: str, *, has_roles: bool = False) -> Mapping[str, User]:
    """Return the owners of tokens, by digest.

    Raises:
        ValueError: names the line that is wrong.
    """
    found = {}
    for number, name, role, proof in _lines(text, has_roles=has_roles):
        match = _TOKEN.fullmatch(proof)
        if match is None:
            raise ValueError(f"line {number}: expected `NAME ROLE sha256:...`")
        found[match[1]] = User(name, role, proof)
    return found


def parse_users(text: str, *, has_roles: bool = False) -> Mapping[str, User]:
    """Return the users by name.

    Raises:
        ValueError: names the line that is wrong.
    """
    found: dict[str, User] = {}
    for number, name, role, proof in _lines(text, has_roles=has_roles):
        if name in found:
            raise ValueError(f"line {number}: {name} appears twice")
        if _scrypt_parts(proof) is None:
            raise ValueError(f"line {number}: expected `NAME ROLE scrypt$...`")
        found[name] = User(name, role, proof)
    return found


def _lines(text: str, *, has_roles: bool) -> list[tuple[int, str, str, str]]:
    """Return number, name, role and proof of each line; with roles the role may be any name."""
    found, known = [], ", ".join(Role)
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.partition("#")[0].split() if line.lstrip().startswith("#") else line.split()
        if not parts:
            continue
        is_role = len(parts) == 3 and (has_roles or parts[1] in list(Role))
        if not is_role or not NAME.fullmatch(parts[0]):
            raise ValueError(f"line {number}: expected a name, a role ({known}), a proof")
        found.append((number, parts[0], parts[1], parts[2]))
    return found


def new_token() -> str:
    """Return a new random token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """Return the digest of a token in the form of its file."""
    return hashlib.sha256(token.encode()).hexdigest()


def password_proof(password: str) -> str:
    """Return the proof of a password in the form of its file."""
    salt = secrets.token_bytes(16)
    cost, block, parallel = _COST
    digest = _scrypt(password, salt, _COST)
    return (
        f"scrypt${cost}${block}${parallel}${b64encode(salt).decode()}${b64encode(digest).decode()}"
    )


def is_password(password: str, proof: str) -> bool:
    """Whether a password is the one of a proof; takes about a tenth of a second."""
    parts = _scrypt_parts(proof)
    if parts is None:
        return False
    cost, salt, digest = parts
    return compare_digest(_scrypt(password, salt, cost), digest)


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=2 ** cost[0],
        r=cost[1],
        p=cost[2],
        maxmem=_MAX_MEMORY_BYTES,
        dklen=32,
    )


def _scrypt_parts(proof: str) -> tuple[tuple[int, int, int], bytes, bytes] | None:
    match = _PASSWORD.fullmatch(proof)
    if match is None:
        return None
    cost = (int(match[1]), int(match[2]), int(match[3]))
    is_fair = all(1 <= given <= most for given, most in zip(cost, _MAX_COST, strict=True))
    try:
        salt, digest = b64decode(match[4], validate=True), b64decode(match[5], validate=True)
    except ValueError:
        return None
    return (cost, salt, digest) if is_fair and len(digest) == 32 else None
