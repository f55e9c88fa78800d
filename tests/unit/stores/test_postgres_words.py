"""Messages of the PostgreSQL store, and its treatment of texts, without a server."""

import psycopg
import pytest

from amqsidecar.errors import StoreUnavailable
from amqsidecar.stores.postgres.database import as_store_fault, pg_text, shown
from amqsidecar.stores.postgres.events import event_key
from amqsidecar.stores.postgres.rows import tally_name


@pytest.mark.parametrize(
    ("dsn", "text"),
    [
        ("postgresql://ann:secret@db:5433/x?sslmode=require", "postgresql://ann@db:5433/x"),
        ("postgresql://ann@db1,db2/x?password=secret", "postgresql://ann@db1,db2/x"),
        ("postgresql://ann@db1:1,db2:2/x", "postgresql://ann@db1:1,db2:2/x"),
        ("postgresql:///x?host=/run/postgresql", "postgresql:///run/postgresql/x"),
        ("host=db port=5433 dbname=x password=secret", "postgresql://db:5433/x"),
    ],
)
def test_a_dsn_is_shown_without_its_password(dsn: str, text: str) -> None:
    assert shown(dsn) == text


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        (psycopg.errors.DiskFull("x"), "the disk of the server is full; make room"),
        (psycopg.errors.LockNotAvailable("x"), "another process is writing for too long"),
        (psycopg.errors.AdminShutdown("x"), "is shutting down or an administrator ended"),
        (psycopg.errors.ReadOnlySqlTransaction("x"), "target_session_attrs=read-write"),
        (psycopg.errors.IoError("x"), "a fault of its system; see its log"),
        (psycopg.errors.TooManyConnections("x"), "raise max_connections"),
        (psycopg.OperationalError("connection refused"), "check that the server runs"),
        (psycopg.OperationalError("the connection is closed"), "the next start shows"),
    ],
)
def test_a_fault_says_what_to_do(fault: psycopg.Error, hint: str) -> None:
    found = as_store_fault(fault, "the store x", "be written")
    assert isinstance(found, StoreUnavailable)
    assert str(found).startswith("the store x could not be written: ")
    assert hint in str(found)


def test_a_mistake_of_ours_is_none_of_the_servers() -> None:
    for fault in (psycopg.errors.UndefinedColumn("x"), psycopg.errors.UniqueViolation("x")):
        assert isinstance(as_store_fault(fault, "the store x", "be read"), AssertionError)


def test_no_text_stops_a_cycle() -> None:
    """PostgreSQL keeps no NUL and no lone surrogate, and its indexes no long text."""
    assert pg_text("caf\u00e9 \0\ud800") == "caf\u00e9 \\x00\\ud800"
    hostile = "\U0001f600" * 70_000
    assert len(tally_name(hostile).encode()) < 2_700
    assert len(event_key(hostile).encode()) < 2_700
