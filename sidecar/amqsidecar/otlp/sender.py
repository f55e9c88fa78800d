"""Sends to a receiver of OTLP, in a thread that no cycle waits for."""

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from threading import Lock
from typing import Final

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from amqsidecar import __version__
from amqsidecar.clock import Clock
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.model.event import AnyEvent, Explained, Received
from amqsidecar.model.trace_context import is_sampled, sampling_limit
from amqsidecar.otlp.attempts import attempts_of, is_attempt
from amqsidecar.otlp.lines import OtlpLines
from amqsidecar.otlp.points import metrics_of
from amqsidecar.otlp.signals import DROPPED, OtlpSignal
from amqsidecar.otlp.spans import Spans
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.schedule import OpenSchedule
from amqsidecar.telemetry.metrics import Exemplar, Metrics

QUEUE_MAX: Final = 20_000
"""Maximum events that wait for the receiver; more are dropped."""

QUEUE_BYTES_MAX: Final = 16 << 20
"""Maximum bytes of them, about: strangers write causes of up to 16 KiB."""

_EVENT_BYTES: Final = 400

BATCH: Final = 1_000
"""Events or lines from which one request is made, about."""

PAUSE_S: Final = 2.0
STOP_S: Final = 2.0
"""Maximum time that a stop waits for the rest to be sent."""

_THREAD: Final = "otlp"


class _Cycle:
    """The traced events of one cycle."""

    __slots__ = ("duration_s", "end_ms", "events", "size_bytes")

    def __init__(self, events: list[AnyEvent], end_ms: int, duration_s: float | None) -> None:
        self.events = events
        self.end_ms = end_ms
        self.duration_s = duration_s
        self.size_bytes = sum(map(_size_of, events))


def _size_of(event: AnyEvent) -> int:
    size = _EVENT_BYTES
    if isinstance(event, Received | Explained):
        size += len(event.cause or "")
    if isinstance(event, Received):
        size += sum(map(len, (event.properties or {}).values()))
    return size


class _WaitingCycles:
    """Cycles that wait for the receiver, within both bounds; any thread may add and take."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cycles: deque[_Cycle] = deque()
        self._count = self._size_bytes = 0

    def add(self, cycle: _Cycle) -> bool:
        """Add a cycle; return False where there is no room for it."""
        with self._lock:
            count = self._count + len(cycle.events)
            size_bytes = self._size_bytes + cycle.size_bytes
            if count > QUEUE_MAX or (self._cycles and size_bytes > QUEUE_BYTES_MAX):
                return False
            self._count, self._size_bytes = count, size_bytes
            self._cycles.append(cycle)
            return True

    def take(self) -> list[_Cycle]:
        """Return the oldest cycles until they have the events of a batch."""
        taken: list[_Cycle] = []
        count = 0
        with self._lock:
            while self._cycles and count < BATCH:
                taken.append(self._cycles.popleft())
                count += len(taken[-1].events)
            self._count -= count
            self._size_bytes -= sum(one.size_bytes for one in taken)
        return taken

    @property
    def has_any(self) -> bool:
        """Whether a cycle waits."""
        return bool(self._cycles)


class OtlpSender:
    """Sends the signals that it receives, while it runs.

    The SDK repeats a request, with growing pauses, for `OTEL_EXPORTER_OTLP_TIMEOUT`; data not
    accepted by then is dropped and counted, like data that finds the queue full. Data still queued
    when the process dies is lost.

    Attributes:
        worker: runs the thread.

    Args:
        endpoint: base URL of the receiver.
        signals: the signals to send.
        traced_share: of messages, from 0 to 1.
        metrics: are sent, count dropped data, and get exemplars.
        open_schedule: has the producers of messages that died before the start; None = there
            is no history.
    """

    def __init__(
        self,
        endpoint: str,
        signals: Sequence[OtlpSignal],
        traced_share: float,
        clock: Clock,
        metrics: Metrics,
        open_schedule: OpenSchedule | None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._signals = signals
        for signal in signals:
            metrics.add(DROPPED, 0, signal)
        self._limit = sampling_limit(traced_share)
        self._cycles = _WaitingCycles()
        self._schedule = None if open_schedule is None else KeptSchedule(open_schedule)
        self._resource = resource()
        self._scope = InstrumentationScope("amqsidecar", __version__)
        self._spans = Spans(self._resource, self._scope, self._schedule)
        self._lines = OtlpLines(self._resource, metrics, _THREAD)
        base = endpoint.rstrip("/")
        self._traces_to = OTLPSpanExporter(f"{base}/v1/traces")
        self._metrics_to = OTLPMetricExporter(f"{base}/v1/metrics")
        self._logs_to = OTLPLogExporter(f"{base}/v1/logs")
        self._began_ns = time.time_ns()
        self._every_s = int(os.environ.get(OTEL_METRIC_EXPORT_INTERVAL) or 60_000) / 1000
        self._metrics_at_s = clock.monotonic_s() + self._every_s
        self.worker = Worker(_THREAD, self._step, first_pause_s=PAUSE_S, release=self._release)
        self.worker.stop_s = STOP_S

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs, and the rest at its end."""
        with ExitStack() as stack:
            stack.enter_context(self.worker)
            if OtlpSignal.LOGS in self._signals:
                stack.enter_context(self._lines.listening())
            yield

    def observe(self, events: Sequence[AnyEvent], stats: CycleStats | None) -> None:
        """Take note of events that became true; never waits."""
        limit, kept, latest_id, is_kept = self._limit, [], "", False
        for event in events:
            # Why: the events of a death share their id, and this is called for each message.
            if event.redelivery_id is not latest_id:
                latest_id = event.redelivery_id
                is_kept = is_sampled(latest_id, limit)
            if is_kept:
                kept.append(event)
        if not kept:
            return
        cycle = _Cycle(kept, self._clock.now_ms(), None if stats is None else stats.duration_s)
        if not self._cycles.add(cycle):
            self._metrics.add(DROPPED, sum(map(is_attempt, kept)), OtlpSignal.TRACES)

    def _step(self) -> float:
        spans = [span for cycle in self._cycles.take() for span in self._spans_of(cycle)]
        self._send(OtlpSignal.TRACES, len(spans), lambda: self._traces_to.export(spans))
        lines = [self._lines.waiting.popleft() for _ in range(min(BATCH, len(self._lines.waiting)))]
        self._send(OtlpSignal.LOGS, len(lines), lambda: self._logs_to.export(lines))
        now_s = self._clock.monotonic_s()
        if OtlpSignal.METRICS in self._signals and now_s >= self._metrics_at_s:
            self._metrics_at_s = now_s + self._every_s
            self._send_metrics()
        return 0.0 if self._cycles.has_any or self._lines.waiting else PAUSE_S

    def _send_metrics(self) -> None:
        found = [*metrics_of(self._metrics.collect(), self._began_ns, time.time_ns())]
        scoped = ScopeMetrics(self._scope, found, "")
        data = MetricsData([ResourceMetrics(self._resource, [scoped], "")])
        points = sum(len(one.data.data_points) for one in found)
        self._send(OtlpSignal.METRICS, points, lambda: self._metrics_to.export(data))

    def _send(self, signal: OtlpSignal, count: int, export: Callable[[], Enum]) -> None:
        if not count:
            return
        dropped = count
        try:
            if export().name == "SUCCESS":
                dropped = 0
        finally:
            self._metrics.add(DROPPED, dropped, signal)

    def _release(self) -> None:
        if self._schedule is not None:
            self._schedule.close()
        if self.worker.stop.is_set():
            self._metrics_at_s = 0.0
            while self._step() == 0.0:
                pass

    def _spans_of(self, cycle: _Cycle) -> Iterator[ReadableSpan]:
        for event in cycle.events:
            if isinstance(event, Received):
                self._spans.remember(event.redelivery_id, event.traceparent)
        for attempt in attempts_of(cycle.events):
            span = self._spans.make(attempt, cycle.end_ms)
            for metric, value in (
                ("amqsidecar_lateness_seconds", attempt.lateness_s),
                ("amqsidecar_cycle_duration_seconds", cycle.duration_s),
            ):
                if value is not None:
                    ids = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
                    self._metrics.set_exemplar(metric, Exemplar(*ids, value, cycle.end_ms / 1000))
            yield span


def resource() -> Resource:
    """Return the resource of all signals; the SDK's variables may override it."""
    ours = Resource(
        {
            "service.name": "amqsidecar",
            "service.version": __version__,
            "service.instance.id": socket.gethostname(),
        }
    )
    return _Resource(ours.merge(OTELResourceDetector().detect()).attributes)


class _Resource(Resource):
    """The one resource of this process; the SDK's hash writes it as JSON for each span."""

    __hash__ = object.__hash__
