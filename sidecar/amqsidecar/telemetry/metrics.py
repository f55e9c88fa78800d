"""The values of the metrics, fed by the events of cycles and a few setters.

They are kept in plain dictionaries under one lock and handed to the metrics library when a client
scrapes: a batch of events costs one pass and one lock, whatever its size.
"""

import platform
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import Final, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as ShownExemplar

from amqsidecar import __version__
from amqsidecar.clock import Clock, SystemClock
from amqsidecar.journal import OutboxLag
from amqsidecar.model.event import (
    AnyEvent,
    CycleInDoubt,
    DeadLettered,
    DestinationBlocked,
    Discarded,
    Exhausted,
    Held,
    Parked,
    Received,
    Resent,
    Scheduled,
)
from amqsidecar.model.foreign_token import orphans
from amqsidecar.model.operation import Action, OutcomeKind
from amqsidecar.model.schedule import ExhaustedTally, GateTally, RowState, Tally
from amqsidecar.telemetry.health import ServiceState, TokenState
from amqsidecar.telemetry.metrics_table import (
    DESTINATION_LIMIT,
    IDLE_S,
    METRICS,
    OTHER,
    MetricKind,
)

_BY_NAME: Final = {spec.name: spec for spec in METRICS}

_OF_DESTINATIONS: Final = tuple(
    spec.name
    for spec in METRICS
    if spec.labels[:1] == ("destination",) and spec.kind is not MetricKind.HISTOGRAM
)
_OWNER: Final = "amqsidecar_destination_owner"
# Why not the owner: each destination with a label keeps it, whatever happens there.
_GAUGES_OF_DESTINATIONS: Final = tuple(
    name for name in _OF_DESTINATIONS if _BY_NAME[name].kind is MetricKind.GAUGE and name != _OWNER
)
_RELEASE_S: Final = 60.0

Labels = tuple[str, ...]


class Exemplar(NamedTuple):
    """A value of a histogram, with the span that it was measured in."""

    trace_id: str
    span_id: str
    value: float
    at_s: float


MetricValues = dict[Labels, float]


class ProcessCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of this process since its start, for people.

    Attributes:
        cycles_in_doubt: whose commit could not be confirmed.
        journal_lag_seconds: age of the oldest event that is not in the journal yet.
        outcomes_are_counted: False = the broker does not count acknowledgements.
        lateness: how many re-sends were at most this many seconds late, and not within the bound
            before; None = beyond the last bound.
    """

    cycles: int
    cycles_in_doubt: int
    journal_lag_seconds: float
    outcomes_are_counted: bool
    lateness: list[tuple[float | None, int]]


class Metrics:
    """The values of the table; every method may be called from any thread."""

    def __init__(
        self,
        destination_limit: int = DESTINATION_LIMIT,
        clock: Clock | None = None,
        read_state: Callable[[], ServiceState] = ServiceState,
        owner_of: Callable[[str], str] = lambda _destination: "",
    ) -> None:
        """Begin with nothing counted; `owner_of` returns a destination's team, "" = unknown."""
        self._lock = Lock()
        self._destination_limit = destination_limit
        self._clock = clock or SystemClock()
        self._read_state = read_state
        self._owner_of = owner_of
        self._used_at_s: dict[str, float] = {}
        self._blocked_until_ms: dict[str, int] = {}
        self._release_at_s = 0.0
        self._exhausted = RowState.EXHAUSTED.value
        self._values: dict[str, MetricValues] = {
            spec.name: {(): 0.0} if spec.is_always_there and not spec.labels else {}
            for spec in METRICS
            if spec.kind is not MetricKind.HISTOGRAM
        }
        self._histograms = {
            spec.name: _Histogram(spec.bounds)
            for spec in METRICS
            if spec.kind is MetricKind.HISTOGRAM
        }
        self._values["amqsidecar_build_info"][__version__, platform.python_version()] = 1.0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_TableCollector(self))
        # Registers itself: memory, processor, descriptors and start of this process.
        ProcessCollector(registry=self._registry)

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Count events that became true; cheap per event."""
        added = count_events(events)
        with self._lock:
            for name, values in added.counts.items():
                bounded = _BY_NAME[name].labels[:1] == ("destination",)
                _sum_up(self._values[name], values.items(), self._bounded if bounded else str)
            # Why the others are kept: where there is no label of its own, another got through.
            for destination in added.sent_to & self._blocked_until_ms.keys() - {OTHER}:
                self._blocked_until_ms[destination] = 0
            for destination, until_ms in added.blocked_until_ms.items():
                label = self._bounded(destination)
                self._blocked_until_ms[label] = max(until_ms, self._blocked_until_ms.get(label, 0))
            if added.lateness_s:
                self._histograms["amqsidecar_lateness_seconds"].add(added.lateness_s)

    def set_value(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge of the table."""
        with self._lock:
            self._values[name][labels] = float(value)

    def add(self, name: str, count: float, *labels: str) -> None:
        """Add to a counter of the table."""
        with self._lock:
            _sum_up(self._values[name], ((labels, count),), str)

    def would_discard(self, found: Mapping[str, int]) -> None:
        """Count messages that the rules would discard, by destination."""
        with self._lock:
            totals = self._values["amqsidecar_would_discard_total"]
            _sum_up(totals, (((name,), count) for name, count in found.items()), self._bounded)

    def outcomes(self, found: Mapping[tuple[str, OutcomeKind], int]) -> None:
        """Count outcomes of re-sends, by destination."""
        counts = (((name, kind.value), count) for (name, kind), count in found.items())
        with self._lock:
            _sum_up(self._values["amqsidecar_outcomes_total"], counts, self._bounded)

    def cycle_finished(self, duration_s: float, message_count: int) -> None:
        """Count one committed cycle."""
        with self._lock:
            self._histograms["amqsidecar_cycle_duration_seconds"].add((duration_s,))
            self._histograms["amqsidecar_cycle_messages"].add((message_count,))

    def set_exemplar(self, name: str, exemplar: Exemplar) -> None:
        """Show an exemplar with the bucket of a histogram that its value is in."""
        with self._lock:
            self._histograms[name].exemplify(exemplar)

    def took_over(self, settled: int, left: int) -> None:
        """Count abandoned instances that this process settled; set how many it could not."""
        self.add("amqsidecar_takeovers_total", settled)
        self.set_value("amqsidecar_abandoned_instances", left)

    def set_webhook(self, subscription: str, pending: int, dropped: int) -> None:
        """Set how many notices wait, and how many were dropped since the outbox began."""
        self.set_value("amqsidecar_webhook_pending", pending, subscription)
        self.set_value("amqsidecar_webhook_dropped", dropped, subscription)

    def set_journal_lag(self, lag: OutboxLag, now_ms: int) -> None:
        """Set the number and age of events that are not in the journal yet."""
        age_ms = 0 if lag.oldest_at_ms is None else max(0, now_ms - lag.oldest_at_ms)
        self.set_value("amqsidecar_journal_lag_seconds", age_ms / 1000)
        self.set_value("amqsidecar_journal_waiting_events", lag.events)

    def operations_changed(self, action: Action, changed: int, came_back: int) -> None:
        """Count messages that operations changed, and that came back."""
        self.add("amqsidecar_operation_messages_total", changed, action.value)
        self.add("amqsidecar_operation_came_back_total", came_back, action.value)

    def set_next_due(self, next_due_ms: int | None, now_ms: int) -> None:
        """Set how long the next due message is overdue; 0 = it is due later."""
        overdue_ms = 0 if next_due_ms is None else max(0, now_ms - next_due_ms)
        self.set_value("amqsidecar_oldest_overdue_seconds", overdue_ms / 1000)

    def set_waiting(self, tallies: Sequence[Tally]) -> None:
        """Set the content of the schedule; series that are not named are removed."""
        most_first = sorted(tallies, key=lambda tally: -tally.count)
        shown = {**{one: one.value for one in RowState}, RowState.EXHAUSTED: self._exhausted}
        counts = (((one.destination, shown[one.state]), one.count) for one in most_first)
        with self._lock:
            self._values["amqsidecar_waiting"] = _sum_up({}, counts, self._bounded)

    def set_mode(self, *, is_manual: bool, redelivers_in_place: bool = False) -> None:
        """Show whether any dead letters are left to a person.

        Args:
            is_manual: any dead letters stay in their queues.
            redelivers_in_place: until the rules redeliver them; only the events tell which of them
                are exhausted, so `set_waiting` counts all of them as in place.
        """
        self._exhausted = "in_place" if redelivers_in_place else RowState.EXHAUSTED.value
        self.set_value("amqsidecar_manual", is_manual and not redelivers_in_place)

    def set_in_place(self, tallies: Sequence[ExhaustedTally]) -> None:
        """Set the number of exhausted messages by the queue that they lie in."""
        counts: MetricValues = {}
        with self._lock:
            for tally in tallies:
                if tally.is_in_queue:
                    key = (self._bounded(tally.queue),)
                    counts[key] = counts.get(key, 0.0) + tally.count
            self._values["amqsidecar_in_place"] = counts

    def set_oldest(self, since_ms: Mapping[RowState, int], now_ms: int) -> None:
        """Set the age of each state's oldest message; states without one are removed."""
        with self._lock:
            self._values["amqsidecar_oldest_seconds"] = {
                (state.value,): max(0.0, (now_ms - at_ms) / 1000)
                for state, at_ms in since_ms.items()
            }

    def set_gate_waiting(self, tallies: Sequence[GateTally]) -> None:
        """Set the numbers of delayed messages by gate; those not named are removed."""
        counts = (((one.destination, one.gate or "event"), one.count) for one in tallies)
        with self._lock:
            self._values["amqsidecar_gate_waiting"] = _sum_up({}, counts, self._bounded)

    def set_new_causes(self, found: Mapping[str, int]) -> None:
        """Set the number of new causes by destination; others have none."""
        counts = (((destination,), count) for destination, count in found.items())
        with self._lock:
            self._values["amqsidecar_new_causes"] = _sum_up({}, counts, self._bounded)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the response to a scrape, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def counts(self) -> ProcessCounts:
        """Return the counts so far."""
        with self._lock:
            return ProcessCounts(
                cycles=self._histograms["amqsidecar_cycle_duration_seconds"].count,
                cycles_in_doubt=self._count("amqsidecar_cycles_in_doubt_total"),
                journal_lag_seconds=self._values["amqsidecar_journal_lag_seconds"].get((), 0.0),
                outcomes_are_counted=not self._count("amqsidecar_outcomes_not_counted"),
                lateness=self._histograms["amqsidecar_lateness_seconds"].buckets(),
            )

    def _count(self, name: str) -> int:
        return round(self._values[name].get((), 0.0))

    def value(self, name: str, *labels: str) -> float:
        """Return a counter's or gauge's value; 0 where nothing has been counted yet."""
        return self.labelled(name).get(labels, 0.0)

    def labelled(self, name: str) -> MetricValues:
        """Return a counter's or gauge's values by labels."""
        with self._lock:
            self._show_state()
            return dict(self._values[name])

    def _show_state(self) -> None:
        state, now_ms = self._read_state(), self._clock.now_ms()
        found = state.readiness
        left_behind = (((str(one.queue), one.reason), one.count) for one in state.left_behind)
        steps = {("ahead",): state.clock_steps_ahead, ("back",): state.clock_steps_back}
        self._values |= {
            "amqsidecar_link_up": {(): float(found.link.up)},
            "amqsidecar_link_reconnects_total": {(): float(state.reconnects)},
            "amqsidecar_token_awaited": {(): float(found.token.state is TokenState.AWAITED)},
            "amqsidecar_taking_stopped": {(): float(not found.taking.ok)},
            "amqsidecar_orphaned_tokens": {(): float(len(orphans(found.other_schedules)))},
            "amqsidecar_clock_behind_seconds": {(): found.clock.behind_s},
            "amqsidecar_clock_steps_total": {key: float(one) for key, one in steps.items() if one},
            "amqsidecar_left_behind": _sum_up({}, left_behind, self._bounded),
            _OWNER: {
                (destination, owner): 1.0
                for destination in self._used_at_s
                if (owner := self._owner_of(destination))
            },
            "amqsidecar_blocked": {
                (destination,): float(now_ms < until_ms)
                for destination, until_ms in self._blocked_until_ms.items()
            },
        }

    def _bounded(self, destination: str) -> str:
        used_at_s, now_s = self._used_at_s, self._clock.monotonic_s()
        if destination not in used_at_s and len(used_at_s) >= self._destination_limit:
            if now_s >= self._release_at_s:
                self._release_idle(now_s)
            if len(used_at_s) >= self._destination_limit:
                return OTHER
        used_at_s[destination] = now_s
        return destination

    def _release_idle(self, now_s: float) -> None:
        """Give back the labels of destinations at which nothing waits and nothing happened lately.

        Not more often than `_RELEASE_S`: to look at all series costs more than to count an event.
        """
        self._release_at_s = now_s + _RELEASE_S
        told_now = {
            labels[0]
            for name in _GAUGES_OF_DESTINATIONS
            for labels, value in self._values[name].items()
            if value
        }
        idle = {
            name
            for name, used_at_s in self._used_at_s.items()
            if name not in told_now and now_s - used_at_s >= IDLE_S
        }
        for name in idle:
            del self._used_at_s[name]
            self._blocked_until_ms.pop(name, None)
        for name in _OF_DESTINATIONS:
            values = self._values[name]
            for labels in [one for one in values if one[0] in idle]:
                del values[labels]

    def collect(self) -> Iterable[Metric]:
        """Return the text of a scrape, with the metrics of the process."""
        return self._registry.collect()

    def families(self) -> Iterator[Metric]:
        """Yield the table with its values, as the metrics library wants it."""
        with self._lock:
            self._show_state()
            values = {name: dict(labelled) for name, labelled in self._values.items()}
            histograms = {name: item.snapshot() for name, item in self._histograms.items()}
        for spec in METRICS:
            if spec.kind is MetricKind.HISTOGRAM:
                buckets, total = histograms[spec.name]
                yield HistogramMetricFamily(spec.name, spec.help, buckets, total)
                continue
            kind = CounterMetricFamily if spec.kind is MetricKind.COUNTER else GaugeMetricFamily
            family = kind(spec.name, spec.help, labels=spec.labels)
            for labels, value in values[spec.name].items():
                family.add_metric(labels, value)
            yield family


def _sum_up(
    totals: MetricValues, counts: Iterable[tuple[Labels, float]], shown: Callable[[str], str]
) -> MetricValues:
    """Add counts to totals, each under its labels, of which the first is `shown` so."""
    for labels, count in counts:
        key = (shown(labels[0]), *labels[1:]) if labels else labels
        totals[key] = totals.get(key, 0.0) + count
    return totals


class _TableCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()


_Bucket = tuple[str, float] | tuple[str, float, ShownExemplar]


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._exemplars: list[ShownExemplar | None] = [None] * len(self._counts)

    def exemplify(self, exemplar: Exemplar) -> None:
        """Replace the exemplar of a bucket."""
        ids = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
        shown = ShownExemplar(ids, exemplar.value, exemplar.at_s)
        self._exemplars[bisect_left(self._bounds, exemplar.value)] = shown

    def add(self, values: Sequence[float]) -> None:
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    @property
    def count(self) -> int:
        """How many values were added."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[float | None, int]]:
        """Return the upper bound of each bucket with its count; None = beyond the last bound."""
        return list(zip((*self._bounds, None), self._counts, strict=True))

    def snapshot(self) -> tuple[list[_Bucket], float]:
        """Return (upper bound, cumulative count, perhaps an exemplar) by bucket, and the sum."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        found: list[_Bucket] = []
        for name, count, exemplar in zip(
            names, accumulate(self._counts), self._exemplars, strict=True
        ):
            found.append((name, count) if exemplar is None else (name, count, exemplar))
        return found, self._sum


class EventCounts(msgspec.Struct):
    """How much a batch of events adds.

    Attributes:
        sent_to: destinations that took something.
        blocked_until_ms: when destinations that refused something may count as open again.
    """

    counts: Mapping[str, Mapping[Labels, int]]
    lateness_s: list[float]
    sent_to: set[str]
    blocked_until_ms: Mapping[str, int]


def count_events(events: Sequence[AnyEvent]) -> EventCounts:
    """Return how much a batch adds; cheap per event."""
    counts: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
    received = counts["amqsidecar_dead_letters_received_total"]
    decisions = counts["amqsidecar_decisions_total"]
    resent = counts["amqsidecar_resent_total"]
    lateness_s = []
    died_at: dict[int, str] = {}
    blocked_until_ms: dict[str, int] = {}
    sent_to: set[str] = set()
    for event in events:
        match event:
            case Received():
                died_at[event.id] = event.origin or event.source
                received[(died_at[event.id],)] += 1
            case Scheduled():
                decisions["redeliver", rule_kind(event.rule)] += 1
                counts["amqsidecar_scheduled_total"][()] += 1
            case Resent():
                resent[(event.destination,)] += 1
                lateness_s.append(event.lateness_ms / 1000)
            case Exhausted():
                decisions["dead_letter", rule_kind(event.rule)] += 1
                # Why the other: a message that a person gives up was received long ago.
                place = died_at.get(event.id, event.destination)
                counts["amqsidecar_exhausted_total"][(place,)] += 1
            case Discarded():
                decisions["discard", rule_kind(event.rule)] += 1
                counts["amqsidecar_discarded_total"][(event.destination,)] += 1
            case Parked():
                decisions["park", "sidecar"] += 1
            case Held() if event.actor is None:
                decisions["hold", "sidecar"] += 1
            case DestinationBlocked(gate=""):
                # Why longer than until the next try: another sidecar of the schedule may make it,
                # and the time between two tries is no time in which it is open.
                wait_ms = event.retry_at_ms - event.at_ms
                blocked_until_ms[event.destination] = event.retry_at_ms + wait_ms * 3 // 2
            case DeadLettered():
                sent_to.add(event.destination)
            case CycleInDoubt():
                what = "tokens_missing" if event.doubts_nothing else "cycles_in_doubt"
                counts[f"amqsidecar_{what}_total"][()] += 1
            case _:
                pass
    sent_to.update(destination for (destination,) in resent)
    return EventCounts(counts, lateness_s, sent_to, blocked_until_ms)


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
    if word == "rule":
        return "rules"
    if word.startswith("redelivery"):
        return "redelivery"
    if word.startswith("discardingDLQ"):
        return "discarding"
    if word.endswith("DeadLetterStrategy") or word == "discarding":
        return "dead_letter"
    if word in ("address-setting", "broker", "no"):
        return "address_settings"
    return "other"
