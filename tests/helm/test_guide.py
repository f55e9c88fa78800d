"""The `helm install` lines for operators render, as they stand in guide and README."""

import re
import shlex
from pathlib import Path

import pytest

from support.brokers.broker_xml import artemis_xml, classic_xml
from support.deployment.helm import CHART, helm_program
from support.machine.processes import run_program

ROOT = CHART.parents[1]
PAGES = (ROOT / "deploy" / "guides" / "install.md", CHART / "README.md")
LINES = [
    line.replace("\\\n", " ")
    for page in PAGES
    for line in re.findall(r"^helm install (?:.*\\\n)*.*$", page.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_renders(line: str, tmp_path: Path) -> None:
    (tmp_path / "activemq.xml").write_text(classic_xml(), encoding="utf-8")
    (tmp_path / "broker.xml").write_text(artemis_xml(), encoding="utf-8")
    image = "image: {repository: registry.example.com/amqsidecar}\n"
    (tmp_path / "image.yaml").write_text(image, encoding="utf-8")
    (tmp_path / "helm").symlink_to(CHART.parent)
    arguments = shlex.split(line)[2:]
    command = [str(helm_program()), "template", "--kube-version", "1.33.0", *arguments]
    done = run_program(command, cwd=tmp_path, code=0)
    assert "kind: " in done.stdout
    if "observe=true" in line:
        assert "--observe" in done.stdout


def test_there_are_lines() -> None:
    assert len(LINES) >= 4
