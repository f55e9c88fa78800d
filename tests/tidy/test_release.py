"""Versions agree wherever they are written, and those that are supported are those in code."""

import re
import tomllib
from pathlib import Path

from ruamel.yaml import YAML

from amqsidecar import __version__
from amqsidecar.broker import BrokerKind
from amqsidecar.diagnosis.database import OLDEST_VERSION
from amqsidecar.diagnosis.releases import TESTED
from support import versions

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHART = YAML(typ="safe").load(ROOT / "helm" / "amqsidecar" / "Chart.yaml")
PAGE = (ROOT / "deploy" / "guides" / "release.md").read_text(encoding="utf-8")


def row(name: str) -> str:
    """Return a row of the table of supported versions."""
    found = re.search(rf"^\| {re.escape(name)} \|.*$", PAGE, re.MULTILINE)
    assert found is not None
    return found[0]


def test_program_package_and_chart_have_one_version() -> None:
    assert PROJECT["version"] == __version__
    assert CHART["version"] == CHART["appVersion"] == __version__


def test_supported_versions_are_those_that_are_required() -> None:
    assert PROJECT["requires-python"].lstrip(">=") in row("Python")
    assert f"{OLDEST_VERSION} or later" in row("PostgreSQL")
    assert CHART["kubeVersion"].removeprefix(">=").removesuffix(".0-0") in row("Kubernetes")


def test_the_tested_versions_are_those_of_the_tests() -> None:
    for kind, name in (
        (BrokerKind.CLASSIC, "ActiveMQ Classic"),
        (BrokerKind.ARTEMIS, "Apache Artemis"),
    ):
        known = [one.version for one in versions.RELEASES if one.family.startswith(kind.value)]
        assert sorted(re.findall(r"\d+\.\d+\.\d+", row(name))) == sorted(known)
        assert list(TESTED[kind]) == sorted(known)
