"""The URL of a store, with all checks that need no store."""

from typing import Final
from urllib.parse import parse_qsl, urlsplit

POSTGRES_SCHEMES: Final = ("postgresql", "postgres")
"""As libpq knows them."""

BROKER_HELD: Final = "broker:"
"""No store: the broker keeps waiting messages."""

_EXPECTED: Final = "expected sqlite:///path/of/file.db, postgresql://user@host/database, or broker:"


def checked_store_url(value: object) -> str:
    """Return the URL; it holds no password, so that it can be shown anywhere.

    Raises:
        ValueError: it names no store; the message never holds the text, which may have a password
            in it.
    """
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004 - pydantic wants it
            "expected a text such as sqlite:///var/lib/amqsidecar/schedule.db"
        )
    scheme, _, rest = value.partition(":")
    if scheme in POSTGRES_SCHEMES:
        _check_postgres(rest)
    elif scheme == "sqlite" and rest:
        _check_sqlite(rest)
    elif value != BROKER_HELD:
        raise ValueError(_EXPECTED)
    return value


def is_postgres(url: str) -> bool:
    """Return whether a checked URL names a PostgreSQL database."""
    return url.partition(":")[0] in POSTGRES_SCHEMES


def _check_sqlite(path: str) -> None:
    if path.startswith("//") and not path.startswith("///"):
        raise ValueError("write sqlite:/// with three slashes, then the path of the file")
    if path.strip("/") in ("", ":memory:") or path.endswith("/"):
        raise ValueError("expected the path of a file behind sqlite:///; a schedule must persist")


def _check_postgres(rest: str) -> None:
    # Why not the port: there may be several hosts, each with one.
    parts = urlsplit(rest)
    if not rest.startswith("//") or not parts.path.strip("/") or parts.fragment:
        raise ValueError("expected postgresql://user@host:5432/database")
    login, _, _ = parts.netloc.rpartition("@")
    secret = {"password", "sslpassword"} & {key for key, _ in parse_qsl(parts.query)}
    if ":" in login or secret:
        raise ValueError(
            "leave the password out, and name a file that holds it in `store.password_file`; "
            "PGPASSWORD and PGPASSFILE count, too"
        )
