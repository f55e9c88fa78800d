"""Every metric: one table, fed by the events of cycles and a few setters.

`python -m amqsidecar.telemetry.metrics` prints the table as Markdown. Values are kept in plain
dictionaries under one lock and handed to the metrics library when somebody scrapes: a batch of
events costs one pass and one lock, whatever its size.
"""

import platform
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from amqsidecar import __version__
from amqsidecar.broker import LeftBehind
from amqsidecar.engine.observation import HOLD, PARK, Observed
from amqsidecar.journal import OutboxLag
from amqsidecar.model.event import (
    AnyEvent,
    CycleInDoubt,
    DestinationBlocked,
    Discarded,
    DuplicateSuppressed,
    Exhausted,
    Held,
    Parked,
    Received,
    Resent,
    Returned,
    Scheduled,
)
from amqsidecar.model.operation import Action, OutcomeKind
from amqsidecar.model.schedule import Tally

DESTINATION_LIMIT: Final = 200
"""So many destinations get a label of their own, first come first served; the others share one."""

OTHER: Final = "other"


class Kind(StrEnum):
    """The kinds of metrics that we have."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSpec(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        name: as Prometheus shows it.
        source: the event or the part of the service that it comes from.
        bounds: histograms only: upper bounds of the buckets, without infinity.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    source: str
    bounds: tuple[float, ...] = ()


_LATENESS_BOUNDS: Final = (
    *(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)
_DURATION_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SIZE_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)

METRICS: Final = (
    MetricSpec(
        "amqsidecar_dead_letters_received_total",
        Kind.COUNTER,
        ("destination",),
        "Dead letters taken from the broker, by original destination; by dead-letter queue where "
        "the message doesn't tell its origin.",
        "received, returned",
    ),
    MetricSpec(
        "amqsidecar_decisions_total",
        Kind.COUNTER,
        ("action", "rule_kind"),
        "Verdicts on dead letters. Action: redeliver, dead_letter, discard, park or hold. Rule "
        "kind: redelivery, dead_letter, discarding, address_settings, sidecar (no rule of the "
        "broker's) or other.",
        "scheduled, exhausted, discarded, parked, held",
    ),
    MetricSpec(
        "amqsidecar_observed_total",
        Kind.COUNTER,
        ("action", "rule_kind"),
        "`run --observe` only: dead letters that were seen, by what would become of them; labels "
        "as those of amqsidecar_decisions_total.",
        "the observer",
    ),
    MetricSpec(
        "amqsidecar_observed_by_destination_total",
        Kind.COUNTER,
        ("destination", "action"),
        "`run --observe` only: the same by where they would go.",
        "the observer",
    ),
    MetricSpec(
        "amqsidecar_scheduled_total",
        Kind.COUNTER,
        (),
        "Messages that the rules redeliver, counted at each death.",
        "scheduled",
    ),
    MetricSpec(
        "amqsidecar_resent_total",
        Kind.COUNTER,
        ("destination",),
        "Messages sent to their original destination again.",
        "resent",
    ),
    MetricSpec(
        "amqsidecar_outcomes_total",
        Kind.COUNTER,
        ("destination", "outcome"),
        "What became of re-sends, once it is known or `outcomes.window_s` has passed twice: "
        "consumed, came back, unknown (`outcomes.md`). Of a shared schedule each sidecar counts "
        "all.",
        "the watcher",
    ),
    MetricSpec(
        "amqsidecar_duplicates_suppressed_total",
        Kind.COUNTER,
        (),
        "Re-sends that the broker had already; they count as sent.",
        "duplicate_suppressed",
    ),
    MetricSpec(
        "amqsidecar_exhausted_total",
        Kind.COUNTER,
        (),
        "Messages that the rules redeliver no further.",
        "exhausted",
    ),
    MetricSpec(
        "amqsidecar_discarded_total",
        Kind.COUNTER,
        (),
        "Messages that the rules drop.",
        "discarded",
    ),
    MetricSpec(
        "amqsidecar_destinations_blocked_total",
        Kind.COUNTER,
        (),
        "How often a destination was found unable to take re-sends; what is due there waits.",
        "destination_blocked",
    ),
    MetricSpec(
        "amqsidecar_waiting",
        Kind.GAUGE,
        ("destination", "state"),
        "Messages in the schedule, by where they will go and state: waiting, held or parked.",
        "the store's tallies",
    ),
    MetricSpec(
        "amqsidecar_left_behind",
        Kind.GAUGE,
        ("destination", "reason"),
        "Dead letters that stay in their queue (the label's destination). Reason, by what the "
        "wire can't carry: body_type, property_types, group, not_carried, not_convertible; can't "
        "accept: not_acknowledgeable; does not show: no_origin, no_name, not_amqp_made; or "
        "not_listed (`run --observe` can't look at them), stuck_in_broker (handed out to nobody), "
        "refused (the queue can't be read; 0 where it can't be counted). At least so many.",
        "the link",
    ),
    MetricSpec(
        "amqsidecar_oldest_overdue_seconds",
        Kind.GAUGE,
        (),
        "How long the most overdue waiting message has been due; 0 = none is.",
        "the store's next due time",
    ),
    MetricSpec(
        "amqsidecar_lateness_seconds",
        Kind.HISTOGRAM,
        (),
        "How long after its due time a message was re-sent.",
        "resent",
        _LATENESS_BOUNDS,
    ),
    MetricSpec(
        "amqsidecar_cycle_duration_seconds",
        Kind.HISTOGRAM,
        (),
        "How long a cycle took, from gathering to the broker's commit.",
        "the engine",
        _DURATION_BOUNDS,
    ),
    MetricSpec(
        "amqsidecar_cycle_messages",
        Kind.HISTOGRAM,
        (),
        "How many messages a cycle took and sent.",
        "the engine",
        _SIZE_BOUNDS,
    ),
    MetricSpec(
        "amqsidecar_cycles_in_doubt_total",
        Kind.COUNTER,
        (),
        "Cycles of which nobody could tell whether the broker committed them; copies are possible.",
        "cycle_in_doubt",
    ),
    MetricSpec(
        "amqsidecar_link_up",
        Kind.GAUGE,
        (),
        "1 = connected to the broker, the token is ours, dead letters are read; 0 = not.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_link_reconnects_total",
        Kind.COUNTER,
        (),
        "How often a link that had been up was lost and came up again.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_takeovers_total",
        Kind.COUNTER,
        (),
        "Sidecars that are gone for good, and whose last cycle this one settled by their token "
        "(`shared-schedule.md`).",
        "the takeover",
    ),
    MetricSpec(
        "amqsidecar_store_size_bytes",
        Kind.GAUGE,
        (),
        "Space that the store takes on its medium.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_journal_lag_seconds",
        Kind.GAUGE,
        (),
        "Age of the oldest event that is not in the journal yet; 0 = all are. Up to "
        "`journal.segment_s` is normal.",
        "the store's outbox",
    ),
    MetricSpec(
        "amqsidecar_journal_waiting_events",
        Kind.GAUGE,
        (),
        "Events that are not in the journal yet; the store keeps them until they are.",
        "the store's outbox",
    ),
    MetricSpec(
        "amqsidecar_journal_segments_total",
        Kind.COUNTER,
        (),
        "Segments that were written into the journal.",
        "the journal's writer",
    ),
    MetricSpec(
        "amqsidecar_journal_written_bytes_total",
        Kind.COUNTER,
        (),
        "Bytes of these segments' files.",
        "the journal's writer",
    ),
    MetricSpec(
        "amqsidecar_journal_failures_total",
        Kind.COUNTER,
        (),
        "Attempts to write the journal that failed; each has a line in the log, and is repeated.",
        "the journal's writer",
    ),
    MetricSpec(
        "amqsidecar_operations_running",
        Kind.GAUGE,
        (),
        "Operations that operators began and that are going on now.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_operation_messages_total",
        Kind.COUNTER,
        ("action",),
        "Messages that operations changed since the service started, whoever carried them out. "
        "Action: retry, redirect, cancel, discard, hold or release.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_operation_came_back_total",
        Kind.COUNTER,
        ("action",),
        "Of these, messages that were sent and died again.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_build_info",
        Kind.GAUGE,
        ("version", "python"),
        "Always 1; the labels tell the versions.",
        "the program",
    ),
)
"""The table. Alerts, dashboard and reference are checked against it."""

_BY_NAME: Final = {spec.name: spec for spec in METRICS}

Labels = tuple[str, ...]
Values = dict[Labels, float]


class Metrics:
    """The values of the table; every method may be called from any thread."""

    def __init__(self, destination_limit: int = DESTINATION_LIMIT) -> None:
        self._lock = Lock()
        self._destination_limit = destination_limit
        self._destinations: set[str] = set()
        self._values: dict[str, Values] = {
            spec.name: {} if spec.labels else {(): 0.0}
            for spec in METRICS
            if spec.kind is not Kind.HISTOGRAM
        }
        self._histograms = {
            spec.name: _Histogram(spec.bounds) for spec in METRICS if spec.kind is Kind.HISTOGRAM
        }
        self._values["amqsidecar_build_info"][__version__, platform.python_version()] = 1.0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_TableCollector(self))

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Count events that became true; cheap per event."""
        added = _count(events)
        with self._lock:
            for name, values in added.counts.items():
                total = self._values[name]
                bounded = _BY_NAME[name].labels[:1] == ("destination",)
                for labels, count in values.items():
                    key = (self._bounded(labels[0]),) if bounded else labels
                    total[key] = total.get(key, 0.0) + count
            if added.lateness_s:
                self._histograms["amqsidecar_lateness_seconds"].add(added.lateness_s)

    def observed(self, items: Sequence[Observed]) -> None:
        """Count dead letters that an observer saw for the first time."""
        totals = self._values["amqsidecar_observed_total"]
        by_destination = self._values["amqsidecar_observed_by_destination_total"]
        with self._lock:
            for item in items:
                is_ours = item.action in (PARK, HOLD)
                key = (item.action, "sidecar" if is_ours else rule_kind(item.rule))
                totals[key] = totals.get(key, 0.0) + 1
                key = (self._bounded(item.destination), item.action)
                by_destination[key] = by_destination.get(key, 0.0) + 1

    def outcomes(self, found: Mapping[tuple[str, OutcomeKind], int]) -> None:
        """Count what became of re-sends, by destination."""
        totals = self._values["amqsidecar_outcomes_total"]
        with self._lock:
            for (destination, kind), count in found.items():
                key = (self._bounded(destination), kind.value)
                totals[key] = totals.get(key, 0.0) + count

    def cycle_finished(self, duration_s: float, message_count: int) -> None:
        """Count one committed cycle."""
        with self._lock:
            self._histograms["amqsidecar_cycle_duration_seconds"].add((duration_s,))
            self._histograms["amqsidecar_cycle_messages"].add((message_count,))

    def reconnected(self) -> None:
        """Count a link that had been up and is up again."""
        with self._lock:
            self._values["amqsidecar_link_reconnects_total"][()] += 1

    def taken_over(self) -> None:
        """Count an instance that this process has taken over and settled."""
        with self._lock:
            self._values["amqsidecar_takeovers_total"][()] += 1

    def set_link_up(self, is_up: bool) -> None:
        """Say whether the link works."""
        self._set("amqsidecar_link_up", float(is_up))

    def set_store_size(self, size_bytes: int) -> None:
        """Say how much space the store takes."""
        self._set("amqsidecar_store_size_bytes", float(size_bytes))

    def set_journal_lag(self, lag: OutboxLag, now_ms: int) -> None:
        """Say what is not in the journal yet."""
        age_ms = 0 if lag.oldest_at_ms is None else max(0, now_ms - lag.oldest_at_ms)
        self._set("amqsidecar_journal_lag_seconds", age_ms / 1000)
        self._set("amqsidecar_journal_waiting_events", float(lag.events))

    def segment_written(self, size_bytes: int) -> None:
        """Count a segment of the journal."""
        with self._lock:
            self._values["amqsidecar_journal_segments_total"][()] += 1
            self._values["amqsidecar_journal_written_bytes_total"][()] += size_bytes

    def journal_failed(self) -> None:
        """Count an attempt to write the journal that failed."""
        with self._lock:
            self._values["amqsidecar_journal_failures_total"][()] += 1

    def set_operations_running(self, count: int) -> None:
        """Say how many operations are going on."""
        self._set("amqsidecar_operations_running", float(count))

    def operations_changed(self, action: Action, changed: int, came_back: int) -> None:
        """Count messages that operations changed, and that came back."""
        added = {
            "amqsidecar_operation_messages_total": changed,
            "amqsidecar_operation_came_back_total": came_back,
        }
        with self._lock:
            for name, count in added.items():
                values = self._values[name]
                values[action.value,] = values.get((action.value,), 0.0) + count

    def set_next_due(self, next_due_ms: int | None, now_ms: int) -> None:
        """Say when the next message is due; what lies in the past is overdue."""
        overdue_ms = 0 if next_due_ms is None else max(0, now_ms - next_due_ms)
        self._set("amqsidecar_oldest_overdue_seconds", overdue_ms / 1000)

    def set_waiting(self, tallies: Sequence[Tally]) -> None:
        """Say what the schedule holds; what is not named is gone."""
        values: Values = {}
        with self._lock:
            for tally in sorted(tallies, key=lambda tally: -tally.count):
                key = (self._bounded(tally.destination), tally.state.value)
                values[key] = values.get(key, 0.0) + tally.count
            self._values["amqsidecar_waiting"] = values

    def set_left_behind(self, items: Sequence[LeftBehind]) -> None:
        """Say what the link does not take; what is not named is gone."""
        values: Values = {}
        with self._lock:
            for item in items:
                key = (self._bounded(str(item.queue)), item.reason)
                values[key] = values.get(key, 0.0) + item.count
            self._values["amqsidecar_left_behind"] = values

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return what a scrape gets, and its content type.

        Args:
            accept: the `Accept` header of the request.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def value(self, name: str, *labels: str) -> float:
        """Return a counter's or gauge's value; 0 where nothing has been counted yet."""
        with self._lock:
            return self._values[name].get(labels, 0.0)

    def labelled(self, name: str) -> Values:
        """Return a counter's or gauge's values by labels."""
        with self._lock:
            return dict(self._values[name])

    def histogram(self, name: str) -> tuple[list[tuple[str, float]], float]:
        """Return a histogram's (upper bound, cumulative count) for each bucket, and its sum."""
        with self._lock:
            return self._histograms[name].snapshot()

    def _set(self, name: str, value: float) -> None:
        with self._lock:
            self._values[name][()] = value

    def _bounded(self, destination: str) -> str:
        if destination in self._destinations:
            return destination
        if len(self._destinations) >= self._destination_limit:
            return OTHER
        self._destinations.add(destination)
        return destination

    def families(self) -> Iterator[Metric]:
        """Yield the table with its values, as the metrics library wants it."""
        with self._lock:
            values = {name: dict(labelled) for name, labelled in self._values.items()}
            histograms = {name: item.snapshot() for name, item in self._histograms.items()}
        for spec in METRICS:
            if spec.kind is Kind.HISTOGRAM:
                buckets, total = histograms[spec.name]
                yield HistogramMetricFamily(spec.name, spec.help, buckets, total)
                continue
            kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(spec.name, spec.help, labels=spec.labels)
            for labels, value in values[spec.name].items():
                family.add_metric(labels, value)
            yield family


class _TableCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, values: Sequence[float]) -> None:
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    def snapshot(self) -> tuple[list[tuple[str, float]], float]:
        """Return (upper bound, cumulative count) for each bucket, and the sum."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True)), self._sum


class _Added(msgspec.Struct):
    counts: Mapping[str, Mapping[Labels, int]]
    lateness_s: list[float]


def _count(events: Sequence[AnyEvent]) -> _Added:
    """Return how much a batch adds to each counter."""
    counts: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
    received = counts["amqsidecar_dead_letters_received_total"]
    decisions = counts["amqsidecar_decisions_total"]
    resent = counts["amqsidecar_resent_total"]
    lateness_s = []
    for event in events:
        match event:
            case Received() | Returned():
                received[(event.origin or event.source,)] += 1
            case Scheduled():
                decisions["redeliver", rule_kind(event.rule)] += 1
                counts["amqsidecar_scheduled_total"][()] += 1
            case Resent():
                resent[(event.destination,)] += 1
                lateness_s.append(event.lateness_ms / 1000)
            case Exhausted():
                decisions["dead_letter", rule_kind(event.rule)] += 1
                counts["amqsidecar_exhausted_total"][()] += 1
            case Discarded():
                decisions["discard", rule_kind(event.rule)] += 1
                counts["amqsidecar_discarded_total"][()] += 1
            case Parked():
                decisions["park", "sidecar"] += 1
            case Held() if event.actor is None:
                decisions["hold", "sidecar"] += 1
            case DuplicateSuppressed():
                counts["amqsidecar_duplicates_suppressed_total"][()] += 1
            case DestinationBlocked():
                counts["amqsidecar_destinations_blocked_total"][()] += 1
            case CycleInDoubt():
                counts["amqsidecar_cycles_in_doubt_total"][()] += 1
            case _:
                pass
    return _Added(counts, lateness_s)


@lru_cache(maxsize=4096)
def rule_kind(rule: str) -> str:
    """Return which family of rules decided.

    Args:
        rule: as decisions carry it; after rules that passed it on (`a -> b`), the last decided.

    Example:
        >>> rule_kind('redeliveryPolicy queue="A" -> sharedDeadLetterStrategy (activemq.xml:9)')
        'dead_letter'
    """
    word = rule.rsplit(" -> ", 1)[-1].split(" ", 1)[0]
    if word.startswith("redelivery"):
        return "redelivery"
    if word.startswith("discardingDLQ"):
        return "discarding"
    if word.endswith("DeadLetterStrategy") or word == "discarding":
        return "dead_letter"
    if word in ("address-setting", "broker", "no"):
        return "address_settings"
    return "other"


def metrics_markdown() -> str:
    """Return the table as a page."""
    lines = [
        "# Metrics",
        "",
        "Printed by `python -m amqsidecar.telemetry.metrics`; change its table, not this page.",
        f"The label `destination` has at most {DESTINATION_LIMIT} values, first come first served; "
        f"the rest share `{OTHER}`.",
        "",
        "| metric | kind | labels | meaning | from |",
        "|---|---|---|---|---|",
    ]
    for spec in METRICS:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        lines.append(f"| `{spec.name}` | {spec.kind} | {labels} | {spec.help} | {spec.source} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(metrics_markdown())
