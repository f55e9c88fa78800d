"""The rules are what Prometheus takes, and each alert fires when it should and only then."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.deployment.prometheus import program

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "monitoring" / "rules.yaml"
COMPOSE = ROOT / "deploy" / "compose" / "prometheus.yml"
CASES = ("alerts.yaml", "day.yaml", "week.yaml")


def promtool(*arguments: str) -> str:
    """Return what it says; fail if it is not content."""
    done = subprocess.run(
        [str(program("promtool")), *arguments],
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


@pytest.mark.parametrize("cases", CASES)
def test_alerts_fire_when_they_should_and_only_then(cases: str) -> None:
    promtool("test", "rules", str(Path(__file__).parent / cases))
