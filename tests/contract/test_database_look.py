"""What the doctor says of a real PostgreSQL."""

import uuid
from collections.abc import Iterator

import pytest
from psycopg import sql

from amqsidecar.diagnosis.database import database_findings, look_at_database
from support.stores.postgres_server import PostgresServer

SCHEMA = "share"
PASSWORD = "geheim"


@pytest.fixture
def user(postgres: PostgresServer) -> Iterator[str]:
    """A user with a password and no rights but to log in."""
    name = f"user_{uuid.uuid4().hex[:8]}"
    role = sql.Identifier(name)
    postgres.execute(sql.SQL("create role {} login password {}").format(role, PASSWORD))
    yield name
    postgres.execute(sql.SQL("drop role {}").format(role))


@pytest.fixture
def database(postgres: PostgresServer, user: str) -> Iterator[str]:
    name = postgres.make_database()
    yield name
    postgres.drop_database(name)


def findings(url: str, password: str | None = PASSWORD) -> list[str]:
    facts = look_at_database(url, password, SCHEMA)
    found = [one.what for one in database_findings(url, facts, SCHEMA)]
    # Why without: our test server writes like that to be faster.
    return [what for what in found if "fsync" not in what]


def test_the_rights_that_are_missing_are_reported(
    postgres: PostgresServer, user: str, database: str
) -> None:
    url = postgres.url(database, user)
    [what] = findings(url)
    assert "may not create the schedule's schema share" in what
    postgres.execute(sql.SQL("create schema share"), database)
    assert findings(url) == ["permission denied for schema share"]
    make = "grant all on schema share to {}; create table share.schema_version ()"
    postgres.execute(sql.SQL(make).format(sql.Identifier(user)), database)
    [what] = findings(url)
    assert "may not read and write all tables" in what
    grant = sql.SQL("grant all on share.schema_version to {}").format(sql.Identifier(user))
    postgres.execute(grant, database)
    assert findings(url) == []


def test_an_owner_can_begin(postgres: PostgresServer, user: str, database: str) -> None:
    make = sql.SQL("create schema share authorization {}").format(sql.Identifier(user))
    postgres.execute(make, database)
    assert findings(postgres.url(database, user)) == []


def test_an_encoding_that_can_not_hold_each_text_is_reported(postgres: PostgresServer) -> None:
    make = "create database latin encoding 'LATIN1' template template0"
    postgres.execute(sql.SQL(make))
    try:
        [what] = findings(postgres.url("latin"), None)
        assert "encoding is LATIN1" in what
    finally:
        postgres.drop_database("latin")


def test_a_wrong_password_is_reported_and_not_shown(
    postgres: PostgresServer, user: str, database: str
) -> None:
    [what] = findings(postgres.url(database, user), "falsch")
    assert "password authentication failed" in what
    assert "falsch" not in what
    [what] = findings(postgres.url(database, user).replace(str(postgres.port), "1"))
    assert "Connection refused" in what


def test_a_server_that_loses_what_it_wrote_is_reported(postgres_url: str) -> None:
    facts = look_at_database(postgres_url, None, SCHEMA)
    assert facts.is_torn
    assert not facts.is_pooled
    assert not facts.is_open
