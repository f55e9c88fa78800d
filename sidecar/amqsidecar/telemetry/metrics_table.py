"""Every metric: the table `metrics.toml`, which is served, documented and checked by alerts.

`python -m amqsidecar.telemetry.metrics_table` prints it as Markdown.
"""

import sys
from enum import StrEnum
from importlib.resources import files
from typing import Final

import msgspec

DESTINATION_LIMIT: Final = 200
"""Maximum destinations with their own label at a time; the others share one."""

OTHER: Final = "other"

IDLE_S: Final = 3600.0
"""Time without events and waiting messages after which a destination loses its label."""


class MetricKind(StrEnum):
    """The kinds of metrics that we have."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row of the table.

    Attributes:
        name: as Prometheus shows it.
        source: the event or the part of the service that it comes from.
        bounds: histograms only: upper bounds of the buckets, without infinity.
        is_always_there: False = it has no value until one is set.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...] = ()
    help: str
    source: str
    bounds: tuple[float, ...] = ()
    is_always_there: bool = True


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    service: tuple[MetricSpec, ...]
    listener: tuple[MetricSpec, ...]


_TABLES: Final = msgspec.toml.decode(
    files("amqsidecar.telemetry").joinpath("metrics.toml").read_bytes(), type=_Tables
)
METRICS: Final = _TABLES.service
"""The table. Alerts, dashboard and reference are checked against it."""

LISTENER_METRICS: Final = _TABLES.listener
"""Metrics of the process `amqsidecar listen`."""


def metrics_markdown() -> str:
    """Return the table as a page."""
    lines = [
        "# Metrics",
        "",
        "`python -m amqsidecar.telemetry.metrics_table` prints this page.",
        "",
        f"The label `destination` has at most {DESTINATION_LIMIT} values at a time "
        f"(`http.metrics_destinations`); further destinations share `{OTHER}`, and `amqsidecar "
        "status` names them. A destination at which nothing waits, and nothing happened for an "
        "hour, gives its value to one that needs it, and begins again at 0. On Linux `process_*` "
        "describe the process.",
        "",
        "| metric | kind | labels | meaning | from |",
        "|---|---|---|---|---|",
    ]
    for spec in (*METRICS, *LISTENER_METRICS):
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        lines.append(f"| `{spec.name}` | {spec.kind} | {labels} | {spec.help} | {spec.source} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(metrics_markdown())
