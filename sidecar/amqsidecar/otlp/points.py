"""Converts the metrics library's metrics to the SDK's, under the names of a scrape."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

_S: Final = 1_000_000_000
_SINCE_START: Final = AggregationTemporality.CUMULATIVE


def metrics_of(families: Iterable[Family], start_ns: int, now_ns: int) -> Iterator[Metric]:
    """Yield the metrics that have a value.

    Args:
        start_ns: when this process began to count.
    """
    for family in families:
        names: dict[str, list[Sample]] = defaultdict(list)
        for sample in family.samples:
            name = family.name if family.type == "histogram" else sample.name
            names[name].append(sample)
        for name, samples in names.items():
            data: Histogram | Sum | Gauge
            if family.type == "histogram":
                data = Histogram([_histogram(samples, start_ns, now_ns)], _SINCE_START)
            else:
                points = [
                    NumberDataPoint(one.labels, start_ns, now_ns, one.value) for one in samples
                ]
                is_counter = family.type == "counter"
                data = Sum(points, _SINCE_START, is_monotonic=True) if is_counter else Gauge(points)
            # Why without a unit: the name ends with it, and a receiver would add it once more.
            yield Metric(name, family.documentation, "", data)


def _histogram(samples: Iterable[Sample], start_ns: int, now_ns: int) -> HistogramDataPoint:
    bounds, counts, exemplars, total, before = [], [], [], 0.0, 0.0
    for one in samples:
        if one.name.endswith("_bucket"):
            bounds.append(float(one.labels["le"]))
            counts.append(round(one.value - before))
            before = one.value
            if one.exemplar is not None:
                ids = {name: int(value, 16) for name, value in one.exemplar.labels.items()}
                at_ns = round(float(one.exemplar.timestamp or 0) * _S)
                exemplars.append(Exemplar({}, one.exemplar.value, at_ns, **ids))
        elif one.name.endswith("_sum"):
            total = one.value
    # Least and greatest value are not known, and the protocol needs none.
    unknown: Any = None
    return HistogramDataPoint(
        attributes={},
        start_time_unix_nano=start_ns,
        time_unix_nano=now_ns,
        count=round(before),
        sum=total,
        bucket_counts=counts,
        explicit_bounds=bounds[:-1],
        min=unknown,
        max=unknown,
        exemplars=exemplars,
    )
