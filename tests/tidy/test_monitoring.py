"""Rules, dashboard, runbooks and the promtool cases say the same as the table of metrics."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from amqsidecar.cli.main import COMMANDS
from amqsidecar.config.schema import known_options
from amqsidecar.telemetry.metrics_table import LISTENER_METRICS, METRICS, MetricKind

ROOT = Path(__file__).parents[2]
FILES = ROOT / "helm" / "amqsidecar" / "files"
MONITORING = ROOT / "deploy" / "monitoring"
RUNBOOKS = ROOT / "deploy" / "reference" / "runbooks.md"

TABLE = {spec.name: spec for spec in (*METRICS, *LISTENER_METRICS)}
FOREIGN = {"artemis_messages_killed": {"address", "broker", "queue"}}
"""Of Artemis's metrics plugin; a gauge there, although it only grows."""
OF_PROCESSES = "process_"
"""How metrics begin that the client's library makes, of each process."""
OF_TARGETS = {"namespace", "job", "instance", "pod"}
OF_PROMETHEUS = {"alertname", "alertstate", "severity"}

METRIC = re.compile(r"(?<![\w:])((?:amqsidecar|artemis)_\w+)(?!\w*:)")
RECORDED = re.compile(r"\b\w+:\w+:\w+\b")
SELECTED = re.compile(r"(?<![\w:])((?:amqsidecar|artemis)_\w+)\{([^}]*)\}")
GROUPED = re.compile(r"\b(?:by|without|on|group_left)\s*\(([^)]*)\)")
GROWTH = re.compile(r"\b(?:rate|increase)\(\s*([\w:]+)")
LEVEL = re.compile(r"\b(?:predict_linear|delta|deriv)\(\s*([\w:]+)")


@cache
def yaml(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml(MONITORING / "rules.yaml")["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDS = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
LABELS = {rule["record"]: set(rule.get("labels", ())) for rule in rules() if "record" in rule}


def panels() -> Iterator[dict[str, Any]]:
    for panel in json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))["panels"]:
        yield panel
        yield from panel.get("panels", ())


def expressions() -> Iterator[tuple[str, str]]:
    """Yield (where, expression) of all rules, their labels and texts, panels and variables."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
        texts = {**rule.get("labels", {}), **rule.get("annotations", {})}
        for label, text in texts.items():
            for asked in re.findall('printf "(.*?)"', text):
                yield f"{label} of {rule['alert']}", asked.replace("%q", '""')
    for panel in panels():
        for target in panel.get("targets", ()):
            yield f"{panel['title']} {target['refId']}", target["expr"]
    dashboard = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
    for drawn in dashboard["annotations"]["list"]:
        yield drawn["name"], drawn["expr"]
    for variable in dashboard["templating"]["list"]:
        yield variable["name"], variable.get("definition", "")


QUERIES = [pytest.param(expression, id=where) for where, expression in expressions()]


def base(name: str) -> str:
    """Return the name in the table of a series of it."""
    found = re.sub(r"_(bucket|sum|count)$", "", name)
    return found if found in TABLE and TABLE[found].kind is MetricKind.HISTOGRAM else name


def labels_of(name: str) -> set[str]:
    """Return the labels of a metric, or of all metrics that a recorded one is made of."""
    if name in RECORDS:
        return LABELS[name].union(*(labels_of(one) for one in METRIC.findall(RECORDS[name])))
    if name in FOREIGN:
        return FOREIGN[name]
    spec = TABLE[base(name)]
    return {*spec.labels, "le"} if spec.kind is MetricKind.HISTOGRAM else set(spec.labels)


@pytest.mark.parametrize("expression", QUERIES)
def test_a_query_is_about_what_there_is(expression: str) -> None:
    names = set(METRIC.findall(expression))
    recorded = set(RECORDED.findall(expression))
    unknown = {name for name in names if base(name) not in TABLE and name not in FOREIGN}
    assert not unknown
    assert recorded <= set(RECORDS)
    for name, matchers in SELECTED.findall(expression):
        wanted = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert wanted <= labels_of(name) | OF_TARGETS, f"{name} has no such label"
    known = OF_TARGETS.union(*(labels_of(name) for name in names | recorded))
    if "ALERTS{" in expression:
        known |= OF_PROMETHEUS | set().union(*(spec.labels for spec in METRICS))
    for group in GROUPED.findall(expression):
        assert set(re.findall(r"\w+", group)) <= known, group


@pytest.mark.parametrize("expression", QUERIES)
def test_only_what_counts_is_asked_for_its_growth(expression: str) -> None:
    for name in GROWTH.findall(expression):
        if name not in FOREIGN and not name.startswith(OF_PROCESSES):
            is_bucket = TABLE[base(name)].kind is MetricKind.HISTOGRAM and base(name) != name
            assert is_bucket or TABLE[name].kind is MetricKind.COUNTER, name
    for name in LEVEL.findall(expression):
        assert TABLE[name].kind is MetricKind.GAUGE, name


@pytest.mark.parametrize("name", TABLE)
def test_a_metric_is_shown_or_watched(name: str) -> None:
    used = {base(one) for _, expression in expressions() for one in METRIC.findall(expression)}
    assert name in used


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_its_meaning_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert re.fullmatch(r"Amqsidecar[A-Z]\w+", name)
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    notes = alert["annotations"]
    assert set(notes) - {"console_url"} == {"summary", "description", "runbook_url"}
    assert not notes["summary"].endswith(".")
    assert notes["description"].endswith(".")
    assert notes["runbook_url"].endswith(f"/runbooks.md#{name.lower()}")


def test_each_alert_has_its_runbook_and_there_is_none_without_an_alert() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(ALERTS)
    for name, section in sections.items():
        parts = re.findall(r"^\*\*(.+?)\*\*", section, re.MULTILINE)
        assert parts == ["Means", "Look", "Do", "Over when"], name


def test_what_runbooks_name_is_there() -> None:
    text = RUNBOOKS.read_text(encoding="utf-8")
    commands = set(re.findall(r"`amqsidecar\s([a-z-]+)", text))
    assert commands <= set(COMMANDS)
    assert {base(name) for name in METRIC.findall(text)} <= set(TABLE) | set(FOREIGN) | {
        "artemis_message_count"
    }
    options = set(re.findall(r"`([a-z]+\.[a-z_]+)`", text))
    assert options <= set(known_options()) | {
        "amqsidecar.intercepted",
        "clock.behind_s",
        "intake.refused",
        "link.reason",
        "store.reason",
    }


def cases_of_alerts() -> list[Any]:
    """Return the promtool cases that belong to one alert each."""
    folder = ROOT / "tests" / "monitoring"
    return [one for name in ("alerts", "day") for one in yaml(folder / f"{name}.yaml")["tests"]]


def fired(name: str) -> list[dict[str, str]]:
    """Return the labels of each time that the alert fires in the promtool cases; {} = it is not to.

    They are given in the notation of a series.
    """
    found = []
    for case in cases_of_alerts():
        for look in case["promql_expr_test"]:
            if f'alertname="{name}"' in look["expr"]:
                samples = [sample["labels"] for sample in look["exp_samples"]]
                found += [dict(re.findall(r'(\w+)="([^"]*)"', one)) for one in samples or [""]]
    return found


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_case_in_which_it_fires_and_a_healthy_one(name: str) -> None:
    cases = fired(name)
    assert {} in cases, "no healthy case"
    firing = [labels for labels in cases if labels]
    assert firing, "no case in which it fires"
    told = set(re.findall(r"\$labels\.(\w+)", json.dumps(ALERTS[name]["annotations"])))
    for labels in firing:
        assert labels["severity"] == ALERTS[name]["labels"]["severity"]
        assert told <= {"namespace", *labels}, "its texts name a label that it has not"


def test_an_alert_has_a_case_with_a_restart() -> None:
    names = re.findall(
        r"a restart, and it goes on \((\w+)\)", str([one["name"] for one in cases_of_alerts()])
    )
    assert set(names) == set(ALERTS)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("monitoring/dashboard.py", "helm/amqsidecar/files/dashboard.json"),
        ("monitoring/rules.py", "deploy/monitoring/rules.yaml"),
        ("runbooks_page.py", "sidecar/amqsidecar/http/console/static/runbooks.html"),
    ],
)
def test_what_is_printed_is_fresh(program: str, name: str) -> None:
    printed = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / program)], capture_output=True, check=True
    ).stdout.decode()
    written = (ROOT / name).read_text(encoding="utf-8")
    assert printed == written, f"print it again: python deploy/{program} > {name}"


def test_each_alert_has_a_place_in_the_runbooks_of_the_console() -> None:
    page = ROOT / "sidecar/amqsidecar/http/console/static/runbooks.html"
    places = re.findall(r'<h2 id="([^"]+)">', page.read_text(encoding="utf-8"))
    assert {name.lower() for name in ALERTS} <= set(places)


def test_the_dashboard_asks_the_data_source_that_is_chosen() -> None:
    numbers = [panel["id"] for panel in panels()]
    assert len(set(numbers)) == len(numbers)
    for panel in panels():
        if panel["type"] != "row":
            assert panel["description"]
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
