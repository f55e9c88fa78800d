"""The short form of `make chaos`: two pairs share one fault of each kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.disk import NOT_HERE
from chaos.report import COLUMNS

TESTS = Path(__file__).parents[1]
PAIRS = "artemis-amqp,classic6-shared-openwire"

# Why so long: where many share the cores, starts take several times as long.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


def test_nothing_is_lost_doubled_altered_or_early() -> None:
    """The command says so itself, by its exit code, and every kind of fault was there."""
    done = subprocess.run(
        [sys.executable, "-m", "chaos.chaos", "--short", "--only", PAIRS],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if "|" in line]
    sums = {row[0]: row[-1] for row in rows}
    missing = {kind for kind in COLUMNS.values() if sums[kind] == "**0**"}
    assert missing <= ({COLUMNS["full_disks"]} if NOT_HERE in done.stdout else set())
