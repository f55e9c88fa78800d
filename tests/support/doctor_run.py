"""The command `doctor` as operators run it."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.sidecar_process import COMMAND


@dataclass(frozen=True)
class Verdict:
    """What one run has said.

    Attributes:
        code: exit code.
        findings: as in the JSON output.
        errors: what stood on standard error.
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


# Several in one process, since its start takes longer than a doctor.
_MANY = """
import contextlib, io, json, sys
from amqsidecar.cli.main import run_command_line
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command_line(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def run_doctors(
    wishes: Mapping[str, tuple[str, Sequence[str]]], folder: Path, policy: Path
) -> dict[str, Verdict]:
    """Run many, one after the other: name to URL and options; return name to verdict."""
    lines = [
        json.dumps(["doctor", *_arguments(url, folder, sets, policy)])
        for url, sets in wishes.values()
    ]
    done = subprocess.run(
        [sys.executable, "-c", _MANY],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: _verdict(*answer) for name, answer in zip(wishes, answers, strict=True)}


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
    done = subprocess.run(
        [*COMMAND, "doctor", *_arguments(url, folder, sets, policy)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return _verdict(done.returncode, done.stdout, done.stderr)
