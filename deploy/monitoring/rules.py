"""Prints the rules as a plain file for Prometheus, each alert with its default thresholds.

`make reference` writes it to `deploy/monitoring/rules.yaml`. The source is the chart's:
`helm/amqsidecar/files/rules.yaml`, which a release fills in by its values.
"""

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "helm" / "amqsidecar" / "files" / "rules.yaml"
HEAD = """\
# Printed by `python deploy/monitoring/rules.py` out of helm/amqsidecar/files/rules.yaml.
"""

_ALERT = "      - alert: "
_THRESHOLDS = re.compile(r"^        thresholds: \{(.*)\}\n", re.MULTILINE)


def plain(source: str) -> str:
    """Return the rules with their default thresholds.

    Raises:
        ValueError: a text names a threshold that its alert has not.
    """
    first, *alerts = source[source.index("groups:\n") :].split(_ALERT)
    return HEAD + _ALERT.join([first, *map(_filled, alerts)])


def _filled(alert: str) -> str:
    found = _THRESHOLDS.search(alert)
    if found is not None:
        for pair in found[1].split(", "):
            name, value = pair.split(": ")
            alert = alert.replace(f"${{{name}}}", value)
        alert = _THRESHOLDS.sub("", alert)
    if "${" in alert:
        raise ValueError(f"a threshold is missing: {alert.splitlines()[0]}")
    return alert


if __name__ == "__main__":
    sys.stdout.write(plain(SOURCE.read_text(encoding="utf-8")))
