"""Tests that lack a program are skipped with one line each, and fail where all must run."""

import os
import sys
from pathlib import Path

import pytest

from support.machine.processes import run_program
from support.needs import MUST_RUN, NEEDS, Need, missing, summary

BROWSER_TESTS = "tests/end_to_end/operators/test_console_browser.py"
ROOT = Path(__file__).parents[3]


def test_what_is_missing_is_reported_by_mark() -> None:
    needs = {"a": Need("A", lambda: True), "b": Need("B", lambda: False)}
    assert missing(needs) == {"b": "needs B"}


def test_there_is_one_line_for_each_program_and_none_for_other_skips() -> None:
    reasons = ["Skipped: needs Chromium", "Skipped: not now", "Skipped: needs Chromium"]
    line = "skipped: 2 tests need Chromium; deploy/prepare-machine installs it"
    assert summary(reasons) == [line]


def test_each_mark_that_needs_a_program_is_known(pytestconfig: pytest.Config) -> None:
    known = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert set(NEEDS) <= known


@pytest.mark.parametrize(("must_run", "code"), [("", 0), ("1", 1)])
def test_a_machine_without_chromium_skips_and_ci_fails(must_run: str, code: int) -> None:
    programs = str(Path(sys.executable).parent)
    done = run_program(
        [sys.executable, "-m", "pytest", "-q", "-x", BROWSER_TESTS],
        cwd=ROOT,
        env={**os.environ, "PATH": programs, MUST_RUN: must_run},
    )
    assert done.returncode == code, done.stdout
    assert ("tests need Chromium" in done.stdout) == (not must_run)
