"""The workflows are valid, name every action by its commit, and a push of the chart works."""

import os
import re
import shutil
from pathlib import Path

import pytest

from amqsidecar import __version__
from support.deployment.helm import actionlint, helm_program
from support.deployment.registry import running_registry
from support.machine.processes import run_program

pytestmark = pytest.mark.helm

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())


def test_the_workflows_are_valid() -> None:
    run_program([str(actionlint()), "-shellcheck=", *map(str, WORKFLOWS)], code=0)


def test_an_action_is_named_by_its_commit() -> None:
    for workflow in WORKFLOWS:
        for used in re.findall(r"uses: (.*)", workflow.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used


def test_the_chart_is_pushed_and_its_digest_is_known(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in ("sidecar", "plugins"):
        (tmp_path / folder).mkdir()
    shutil.copytree(ROOT / "helm", tmp_path / "helm")
    path = os.pathsep.join([str(helm_program().parent), os.environ["PATH"]])
    with running_registry() as registry:
        place = f"{registry.address}/team"
        run_program(
            ["make", "chart", f"REGISTRY={place}", "PUSH_OPTIONS=--plain-http"],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            code=0,
        )
        digest = registry.manifests[f"team/charts/amqsidecar:{__version__}"]
    said = (tmp_path / "dist" / "chart.txt").read_text(encoding="utf-8")
    assert re.findall(r"^Digest: (.*)$", said, re.MULTILINE) == [digest]
