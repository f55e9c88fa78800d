"""The queries of the Grafana dashboard, as its panels put them to Prometheus."""

import json
from pathlib import Path

FILE = Path(__file__).parents[3] / "helm" / "amqsidecar" / "files" / "dashboard.json"


def queries() -> dict[str, list[str]]:
    """Return the expressions of each panel, with all that its variables can stand for."""
    dashboard = json.loads(FILE.read_text(encoding="utf-8"))
    found = dashboard["panels"] + [
        one for row in dashboard["panels"] for one in row.get("panels", ())
    ]
    variables = [one["name"] for one in dashboard["templating"]["list"]]

    def filled(expression: str) -> str:
        for name in variables:
            expression = expression.replace(f"${name}", ".*")
        assert "$" not in expression
        return expression

    return {
        panel["title"]: [filled(target["expr"]) for target in panel.get("targets", ())]
        for panel in found
    }
