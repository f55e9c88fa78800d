"""The unit for systemd has no fault that systemd's own check finds; nothing is started."""

import re
import shutil
from pathlib import Path

import pytest

from support.machine.processes import run_program

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "amqsidecar.service"


def problems(text: str, folder: Path) -> str:
    """Return what systemd says about a unit, whose program and user need not be here."""
    path = folder / UNIT.name
    text = re.sub("^ExecStart=.*", "ExecStart=/bin/true", text, flags=re.MULTILINE)
    path.write_text(text.replace("User=amqsidecar", "User=root"), encoding="utf-8")
    done = run_program(["systemd-analyze", "verify", str(path)])
    said = done.stdout + done.stderr
    return "\n".join(line for line in said.splitlines() if UNIT.name in line or done.returncode)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    """It names what it does not know, such as a misspelt setting."""
    text = UNIT.read_text(encoding="utf-8")
    assert problems(text, tmp_path) == ""
    assert "RestartSecs" in problems(text.replace("RestartSec=", "RestartSecs="), tmp_path)
