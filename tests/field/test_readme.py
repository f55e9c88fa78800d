"""The README's own way works: each command as it is printed, on a stock broker of each kind."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from field.readme import ROOT, blocks
from support.plain_install import amqp_wheels, plain_wheels

WORDS_MAX = 900


@pytest.mark.broker
@pytest.mark.timeout(900)  # with the demo in its full length
@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_a_newcomer_gets_to_a_first_redelivery(kind: str, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    shutil.copytree(plain_wheels(), wheels)
    if kind == "artemis":
        shutil.copytree(amqp_wheels(), wheels, dirs_exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "support.sealed", "env", *way(kind, tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0
    assert "the first redelivery has come to the consumer" in done.stdout


def way(kind: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "field.readme", kind, str(folder)]


def test_the_readme_is_short_and_teaches_no_password_on_a_command_line() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= WORDS_MAX
    assert not re.search(r"://[^\s/@]+:[^\s/@]+@", text)
    assert "--set" not in " ".join(command for _, block in blocks() for command in block)
