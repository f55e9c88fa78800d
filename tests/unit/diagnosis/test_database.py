"""A database is judged by what it does to a schedule."""

import pytest
from msgspec.structs import replace

from amqsidecar.diagnosis.database import DatabaseFacts, database_findings
from amqsidecar.diagnosis.finding import Severity

URL = "postgresql://ann@db/schedule"
FIT = DatabaseFacts(
    version=15, encoding="UTF8", user="ann", database="schedule", may_create=True, may_write=True
)


@pytest.mark.parametrize(
    ("change", "severity", "what", "mend"),
    [
        ({"is_standby": True}, Severity.PROBLEM, "is a standby", "target_session_attrs=read-write"),
        ({"is_torn": True}, Severity.PROBLEM, "loses messages", "fsync = on"),
        ({"encoding": "LATIN1"}, Severity.PROBLEM, "encoding is LATIN1", "ENCODING 'UTF8'"),
        (
            {"may_create": False},
            Severity.PROBLEM,
            "user ann may not create",
            'CREATE SCHEMA share AUTHORIZATION "ann";',
        ),
        ({"may_write": False}, Severity.PROBLEM, "may not read and write", "REASSIGN OWNED"),
        ({"version": 12}, Severity.WARNING, "PostgreSQL 12 is older", ""),
        ({"is_pooled": True}, Severity.WARNING, "pool_mode = session", ""),
        ({"is_open": True}, Severity.WARNING, "not encrypted", "sslmode=verify-full"),
        ({"problem": "connection refused"}, Severity.PROBLEM, "connection refused", ""),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_does_not_fit_is_reported(
    change: dict[str, object], severity: Severity, what: str, mend: str
) -> None:
    [finding] = database_findings(URL, replace(FIT, **change), "share")
    assert finding.severity is severity
    assert what in finding.what
    assert mend in finding.mend
    assert bool(finding.mend) == bool(mend)


@pytest.mark.parametrize("may_create", [True, False])
def test_what_fits_is_not_worth_a_word(may_create: bool) -> None:
    facts = replace(FIT, has_schedule=not may_create, may_create=may_create)
    assert list(database_findings(URL, facts, "share")) == []
