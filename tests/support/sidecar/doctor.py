"""The command `doctor` as operators run it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.sidecar import forked


@dataclass(frozen=True)
class Verdict:
    """The result of one run.

    Attributes:
        code: exit code.
        findings: as in the JSON output.
        errors: text on standard error.
    """

    code: int
    findings: Sequence[dict[str, Any]]
    errors: str

    def of(self, check: str, severity: str | None = None) -> list[dict[str, Any]]:
        """Return the findings of a check, only those of one severity if it is given."""
        return [
            one
            for one in self.findings
            if one["check"] == check and severity in (None, one["severity"])
        ]

    @property
    def problems(self) -> list[dict[str, Any]]:
        """What makes the exit code non-zero."""
        return [one for one in self.findings if one["severity"] == "problem"]


def run_doctors(
    wishes: Mapping[str, tuple[str, Sequence[str]]], folder: Path, policy: Path
) -> dict[str, Verdict]:
    """Run many, one after the other: name to URL and options; return name to verdict."""
    return {
        name: run_doctor(url, folder, *sets, policy=policy) for name, (url, sets) in wishes.items()
    }


def _arguments(url: str, folder: Path, sets: Sequence[str], policy: Path | None) -> list[str]:
    options = [
        f"broker.url={url}",
        f"store.url=sqlite:///{folder / 'schedule.db'}",
        # Why: tests share brokers, and each leaves the token of its own store.
        "store.accept_orphans=true",
        *([f"policy.source={policy}"] if policy is not None else []),
        *sets,
    ]
    return [*(part for one in options for part in ("--set", one)), "--output", "json"]


def _verdict(code: int, output: str, errors: str) -> Verdict:
    return Verdict(code, json.loads(output)["findings"] if output else [], errors)


def run_doctor(url: str, folder: Path, *sets: str, policy: Path | None = None) -> Verdict:
    """Run the command with JSON output; the schedule is in the folder."""
    done = forked.run(["doctor", *_arguments(url, folder, sets, policy)], timeout=120)
    return _verdict(done.returncode, done.stdout, done.stderr)
