"""The rules are what Prometheus takes, and each alert fires when it should and only then."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.deployment.prometheus import program, promtool_3

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "monitoring" / "rules.yaml"
COMPOSE = ROOT / "deploy" / "compose" / "prometheus.yml"
CASES = ("alerts.yaml", "day.yaml", "week.yaml")


def promtool(*arguments: str, of_3: bool = False) -> str:
    """Return what it says, that of Prometheus 2 or of 3; fail if it is not content."""
    done = subprocess.run(
        [str(promtool_3() if of_3 else program("promtool")), *arguments],
        # Why: it collects garbage for a fifth of its time, and ends soon.
        env={**os.environ, "GOGC": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules() -> None:
    promtool("check", "rules", "--lint-fatal", str(RULES))


def test_prometheus_takes_the_configuration_of_the_compose_file(tmp_path: Path) -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    mounted = "/etc/prometheus/amqsidecar/rules.yaml"
    assert mounted in text
    (tmp_path / "prometheus.yml").write_text(text.replace(mounted, str(RULES)), encoding="utf-8")
    promtool("check", "config", "--lint-fatal", str(tmp_path / "prometheus.yml"))


def test_no_rule_reads_more_than_a_day() -> None:
    """A longer range is in dozens of blocks, each of which costs time for each series."""
    ranges = re.findall(r"\[(\d+)([smhdwy])\]", RULES.read_text(encoding="utf-8"))
    assert ranges
    assert all(unit in "smh" or (count, unit) == ("1", "d") for count, unit in ranges)


@pytest.mark.parametrize(
    "of_3",
    [
        pytest.param(False, id="2"),
        pytest.param(
            True,
            # Why an hour: the first one on a machine builds promtool.
            marks=[pytest.mark.proof, pytest.mark.helm, pytest.mark.timeout(3600)],
            id="3",
        ),
    ],
)
@pytest.mark.parametrize("cases", CASES)
def test_alerts_fire_when_they_should_and_only_then(
    cases: str, tmp_path: Path, *, of_3: bool
) -> None:
    whole = msgspec.yaml.decode((Path(__file__).parent / cases).read_bytes())
    for number, case in enumerate(whole["tests"]):
        for series in case["input_series"]:
            assert isinstance(series["values"], str), f"{case['name']}: quote {series['values']}"
        rules, file = tmp_path / f"{number}.rules.yaml", tmp_path / f"{number}.yaml"
        expressions = [asked["expr"] for asked in case["promql_expr_test"]]
        # JSON is YAML.
        rules.write_text(json.dumps({"groups": groups_for(expressions)}), encoding="utf-8")
        alone = {**whole, "rule_files": [rules.name], "tests": [case]}
        file.write_text(json.dumps(alone), encoding="utf-8")
    files = (str(tmp_path / f"{number}.yaml") for number in range(len(whole["tests"])))
    promtool("test", "rules", *files, of_3=of_3)


def groups_for(expressions: list[str]) -> list[dict[str, Any]]:
    """Return the rules that expressions read, alone: promtool evaluates all of them each minute."""
    groups = msgspec.yaml.decode(RULES.read_bytes())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    names, found = words(expressions), 0
    while found < len(names):
        found = len(names)
        names |= words(rule["expr"] for rule in rules if name_of(rule) in names)
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if name_of(rule) in names]
    return [group for group in groups if group["rules"]]


def words(expressions: Iterable[str]) -> set[str]:
    return {word for one in expressions for word in re.findall(r"[\w:]+", one)}


def name_of(rule: Mapping[str, str]) -> str:
    return rule.get("alert") or rule["record"]
