"""Looks at the PostgreSQL that the service would keep its schedule in."""

from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec

from amqsidecar.diagnosis.finding import Check, Finding, Severity, new_finding

_finding = partial(Finding, Check.SCHEDULE)

if TYPE_CHECKING:
    import psycopg

OLDEST_VERSION = 13
"""The oldest that has all that the store's statements use."""


class DatabaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a database and about our permissions.

    Attributes:
        problem: why it can't be reached; the others count only where this is "".
        is_standby: it only follows another server.
        is_torn: a crash of the machine can tear its writes.
        may_write: whether we may read and write existing tables.
        is_pooled: a pooler stands between us and the server, and shares its sessions.
        is_open: the connection is unencrypted and leaves the machine.
    """

    problem: str = ""
    version: int = 0
    is_standby: bool = False
    is_torn: bool = False
    encoding: str = ""
    user: str = ""
    database: str = ""
    has_schedule: bool = False
    may_create: bool = False
    may_write: bool = False
    is_pooled: bool = False
    is_open: bool = False


def look_at_database(url: str, password: str | None, schema: str) -> DatabaseFacts:
    """Return the facts about a database; changes nothing in it.

    Args:
        password: None = by libpq's own ways.
        schema: where the schedule is, or will be.
    """
    import psycopg  # noqa: PLC0415 - an extra, which only a schedule in PostgreSQL needs
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - as above
    from psycopg.rows import dict_row  # noqa: PLC0415 - as above

    look = files("amqsidecar.diagnosis").joinpath("database.sql").read_bytes()
    try:
        conninfo = make_conninfo(url, **({} if password is None else {"password": password}))
        with psycopg.connect(conninfo, row_factory=dict_row, connect_timeout=10) as connection:
            said = connection.execute(look, {"schema": schema}).fetchone()
            assert said is not None  # noqa: S101 - the statement has no condition
            return _facts(connection, said)
    except psycopg.Error as error:
        return DatabaseFacts(problem=" ".join(str(error).split()))


def _facts(connection: "psycopg.Connection[Any]", said: dict[str, Any]) -> DatabaseFacts:
    info = connection.info
    # Why: a pooler reports a number of its own when the connection is made.
    is_pooled = info.backend_pid != said.pop("pid")
    is_open = not (connection.pgconn.ssl_in_use or _is_near(info.host))
    return DatabaseFacts(**said, is_pooled=is_pooled, is_open=is_open)


def _is_near(host: str) -> bool:
    """Return whether a connection to a host stays on this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return not host or host.startswith("/") or host == "localhost"


def database_findings(url: str, facts: DatabaseFacts, schema: str) -> Iterator[Finding]:
    """Yield findings about a database."""
    if facts.problem:
        yield _finding(Severity.PROBLEM, url, facts.problem)
        return
    yield from _unfit(url, facts)
    if not (facts.has_schedule or facts.may_create):
        yield new_finding("database_create_refused", url, user=facts.user, schema=schema)
    if not facts.may_write:
        yield new_finding("database_write_refused", url, user=facts.user, schema=schema)
    if facts.version < OLDEST_VERSION:
        yield new_finding(
            "database_too_old", url, version=facts.version, oldest_version=OLDEST_VERSION
        )
    if facts.is_pooled:
        yield new_finding("database_pooled", url)
    if facts.is_open:
        yield new_finding("database_unencrypted", url)


def _unfit(url: str, facts: DatabaseFacts) -> Iterator[Finding]:
    if facts.is_standby:
        yield new_finding("database_standby", url)
    if facts.is_torn:
        yield new_finding("database_not_durable", url)
    if facts.encoding != "UTF8":
        yield new_finding(
            "database_encoding", url, encoding=facts.encoding, database=facts.database
        )
