"""The kinds of telemetry that OTLP carries."""

from enum import StrEnum
from typing import Final

DROPPED: Final = "amqsidecar_otlp_dropped_total"
"""Counts, by signal, records that a receiver will never get."""


class OtlpSignal(StrEnum):
    """A kind of telemetry, by its name in paths of OTLP."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"
