"""The short form of `make chaos`: two pairs share one fault of each kind."""

import os
import sys
from pathlib import Path

import pytest

from chaos.disk import NOT_HERE
from chaos.report import COLUMNS
from support.machine.processes import run_program

TESTS = Path(__file__).parents[1]
PAIRS = "artemis-amqp,classic6-shared-openwire"

# Why so long: where many share the cores, starts take several times as long.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


def test_nothing_is_lost_doubled_altered_or_early() -> None:
    """The command says so itself, by its exit code, and every kind of fault was there."""
    done = run_program(
        [sys.executable, "-m", "chaos.chaos", "--short", "--only", PAIRS],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        timeout=580,
        code=0,
    )
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "|" in line]
    sums = {row[0]: row[-1] for row in rows}
    missing = {kind for kind in COLUMNS.values() if sums[kind] == "**0**"}
    assert missing <= ({COLUMNS["full_disks"]} if NOT_HERE in done.stdout else set())
