"""The kinds of telemetry that OTLP carries."""

from enum import StrEnum


class OtlpSignal(StrEnum):
    """A kind of telemetry, by its name in paths of OTLP."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"
