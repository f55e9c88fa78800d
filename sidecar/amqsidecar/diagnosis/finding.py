"""One result of a check."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec


class Severity(StrEnum):
    """How bad a finding is.

    Attributes:
        OK: checked, and right.
        NOTE: worth knowing.
        WARNING: nothing is lost, but the sidecar will not act as expected.
        PROBLEM: a run would lose, double or alter messages, or could not do its work.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(StrEnum):
    """The checks, in the order of the report."""

    BROKER = "broker"
    PERMISSIONS = "permissions"
    TRANSACTIONS = "transactions"
    TOKEN_QUEUE = "token queue"  # noqa: S105 - no password
    DEAD_LETTERS = "dead letters"
    LOOPS = "loops"
    ORIGINS = "origins"
    CAUSE_NOTES = "cause notes"
    FINAL_QUEUES = "final queues"
    BACKLOG = "backlog"
    EXHAUSTED = "exhausted"
    SCHEDULE = "schedule"
    POLICY = "policy"
    OUTCOMES = "outcomes"
    FIDELITY = "fidelity"
    CLOCK = "clock"


class Finding(msgspec.Struct, frozen=True):
    """A result of an examination.

    Attributes:
        subject: such as a destination, a file, the user.
        what: one sentence.
        mend: the line of configuration that fixes it, to be copied; "" = nothing to fix, or not by
            a single line.
    """

    check: Check
    severity: Severity
    subject: str
    what: str
    mend: str = ""


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of `findings.toml`."""

    check: str
    what: str
    severity: str = ""
    mend: str = ""


@cache
def kinds() -> Mapping[str, _Kind]:
    """Return the table of findings by their ids."""
    table = files("amqsidecar.diagnosis").joinpath("findings.toml").read_bytes()
    return msgspec.toml.decode(table, type=dict[str, _Kind])


def new_finding(
    kind: str,
    subject: object,
    /,
    *,
    severity: Severity | None = None,
    mend: str | None = None,
    **values: object,
) -> Finding:
    """Return a finding of `findings.toml`.

    Args:
        kind: its id there.
        subject: see `Finding`.
        severity: None = that of the table.
        mend: None = that of the table.
        values: fill in the sentence and the line.
    """
    row = kinds()[kind]
    return Finding(
        Check[row.check],
        severity or Severity[row.severity],
        str(subject),
        row.what.format(**values),
        row.mend.format(**values) if mend is None else mend,
    )


class Findings(list[Finding]):
    """Results, in the order of the examination."""

    def report(self, kind: str, subject: object, /, **values: Any) -> None:
        """Add a finding of `findings.toml`; arguments as `new_finding`."""
        self.append(new_finding(kind, subject, **values))

    def add(
        self, check: Check, severity: Severity, subject: object, what: str, mend: str = ""
    ) -> None:
        """Add a finding whose sentence is not in the table."""
        self.append(Finding(check, severity, str(subject), what, mend))


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each finding once, by check, the worst of a check first."""
    checks, severities = list(Check), list(reversed(Severity))
    return tuple(
        sorted(
            dict.fromkeys(findings),
            key=lambda one: (checks.index(one.check), severities.index(one.severity)),
        )
    )


def has_problem(findings: Iterable[Finding]) -> bool:
    """Return whether a run would do harm, or could not do its work."""
    return any(one.severity is Severity.PROBLEM for one in findings)
