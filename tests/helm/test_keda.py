"""What the README has for consumers that KEDA scales: it renders, and asks what it should."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from helm.cases import MINIMAL
from support.deployment.helm import CHART, only, render
from support.deployment.prometheus import program

pytestmark = [pytest.mark.helm, pytest.mark.prometheus]

SECTION = "\n## Consumers that KEDA scales to zero\n"


@pytest.fixture(scope="module")
def trigger() -> dict[str, Any]:
    """Return the trigger of the README's ScaledObject, as the chart renders it."""
    text = (CHART / "README.md").read_text(encoding="utf-8").partition(SECTION)[2]
    values = YAML(typ="safe").load(text.partition("```yaml\n")[2].partition("```")[0])
    [made] = only(render(MINIMAL | values), "ScaledObject")["spec"]["triggers"]
    assert made["type"] == "prometheus"
    return dict(made["metadata"])


def series(job: str, instance: str, values: str, **labels: str) -> dict[str, str]:
    named = {"namespace": "mq", "job": job, "instance": instance}
    named |= {"destination": "queue://orders", "state": "waiting"} | labels
    shown = ",".join(f'{name}="{value}"' for name, value in named.items())
    return {"series": f"amqsidecar_waiting{{{shown}}}", "values": values}


def test_what_waits_is_counted_once_for_a_schedule(trigger: dict[str, Any], tmp_path: Path) -> None:
    """Three sidecars of one schedule and one of another report it; one is being replaced."""
    case = {
        "interval": "1m",
        "input_series": [
            *(series("shared", name, "120x10") for name in "ab"),
            series("shared", "c", "120x3 stale"),
            series("alone", "d", "0x3 30x7"),
            series("alone", "d", "7x10", state="held"),
            series("alone", "d", "9x10", destination="queue://others"),
            series("alone", "e", "9x10", namespace="elsewhere"),
        ],
        "promql_expr_test": [
            {"expr": trigger["query"], "eval_time": "2m", "exp_samples": [{"value": 120}]},
            {"expr": trigger["query"], "eval_time": "8m", "exp_samples": [{"value": 150}]},
            # Why none: KEDA takes it for 0 (`ignoreNullValues`), and no consumer is needed.
            {"expr": trigger["query"], "eval_time": "20m", "exp_samples": []},
        ],
    }
    file = tmp_path / "keda.yaml"
    file.write_text(json.dumps({"tests": [case]}), encoding="utf-8")
    command = [str(program("promtool")), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
