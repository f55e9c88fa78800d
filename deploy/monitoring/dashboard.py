"""Prints the Grafana dashboard as JSON.

`make reference` writes it into the chart: `helm/amqsidecar/files/dashboard.json` is the file to
import. What it shows stands in `panels.py`.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from panels import DASHBOARD, OF_JOBS, PICKED, Panel

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CONSOLE = "https://console.example"
"""The chart replaces it by its `monitoring.consoleUrl`, or leaves its links out."""
WIDTH = 24


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana reads it."""
    return {
        "title": "amqsidecar",
        "uid": "amqsidecar",
        "description": "Redelivery of dead letters. What to do about alerts: runbooks.md.",
        "tags": ["activemq", "artemis", "dead letters"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": list(_annotations())},
        "links": [
            _link("Alerts", "/alerting/list?search=Amqsidecar"),
            _link("Console", CONSOLE),
            _link("Runbooks", f"{CONSOLE}/static/runbooks.html"),
        ],
        "panels": list(_placed()),
    }


def _link(title: str, url: str) -> dict[str, Any]:
    return {"title": title, "type": "link", "url": url, "targetBlank": True}


def _annotations() -> Iterator[dict[str, Any]]:
    """Yield what is drawn as lines in each graph."""
    versions = f"count by (namespace, job, version) (amqsidecar_build_info{{{PICKED}}}"
    for name, color, expression, text in (
        (
            *("start", "purple"),
            f"changes(process_start_time_seconds{{{PICKED}}}[$__interval]) > 0",
            "{{job}} {{instance}}",
        ),
        ("version", "blue", f"{versions}) unless {versions} offset 5m)", "{{job}} {{version}}"),
        (
            *("operation", "orange"),
            f"max by (namespace, job) (amqsidecar_operations_running{{{PICKED}}}) > 0",
            "{{job}}",
        ),
    ):
        yield {
            "name": f"{name}s",
            "datasource": SOURCE,
            "enable": True,
            "iconColor": color,
            "expr": expression,
            "titleFormat": name,
            "textFormat": text,
            "step": "60s",
        }


def _variables() -> list[dict[str, Any]]:
    def values_of(name: str, metric: str, label: str) -> dict[str, Any]:
        query = f"label_values({metric}, {label})"
        return {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        }

    received = f"amqsidecar_dead_letters_received_total{{{PICKED}}}"
    return [
        {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"},
        values_of("namespace", "amqsidecar_build_info", "namespace"),
        values_of("job", 'amqsidecar_build_info{namespace=~"$namespace"}', "job"),
        values_of("instance", f"amqsidecar_build_info{{{OF_JOBS}}}", "instance"),
        values_of("destination", received, "destination"),
    ]


def _placed() -> Iterator[dict[str, Any]]:
    """Yield rows and panels with their places, from left to right and down."""
    number, top = 0, 0
    for row in DASHBOARD:
        number += 1
        header = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.is_closed,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        top += 1
        left, panels = 0, []
        for panel in row.panels:
            number += 1
            if left + panel.width > WIDTH:
                left, top = 0, top + panel.height
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append({"id": number, "gridPos": place, **_drawn(panel)})
            left += panel.width
        top += row.panels[-1].height
        if row.is_closed:
            yield {**header, "panels": panels}
        else:
            yield header
            yield from panels


def _drawn(panel: Panel) -> dict[str, Any]:
    is_now = panel.kind in ("stat", "table")
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend or "__auto",
            "instant": is_now,
            "range": not is_now,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for number, (legend, expression) in enumerate(panel.queries)
    ]
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bounds:
        steps += [
            {"color": color, "value": bound}
            for color, bound in zip(("yellow", "red"), panel.bounds, strict=True)
        ]
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        custom = {"fillOpacity": 20 if panel.is_stacked else 0, "showPoints": "never"}
        if panel.is_stacked:
            custom["stacking"] = {"mode": "normal", "group": "A"}
    if panel.kind == "table" and panel.bounds:
        custom = {"cellOptions": {"type": "color-text"}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "noValue": "none",
                "custom": custom,
                "thresholds": {"mode": "absolute", "steps": steps},
                "mappings": [_UP_OR_DOWN] if panel.kind == "state-timeline" else [],
            },
            "overrides": [],
        },
        "options": _options(panel),
        **({"transformations": [_WITHOUT_TIME]} if panel.kind == "table" else {}),
    }


_UP_OR_DOWN = {
    "type": "value",
    "options": {"0": {"text": "down", "color": "red"}, "1": {"text": "up", "color": "green"}},
}
_WITHOUT_TIME = {"id": "organize", "options": {"excludeByName": {"Time": True}}}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"displayMode": "list"}}
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    return {}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=2) + "\n")
