"""Sends to a receiver of OTLP, in a thread that no cycle waits for."""

import socket
from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from amqsidecar import __version__
from amqsidecar.clock import Clock
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.errors import SidecarError
from amqsidecar.model.event import AnyEvent, Received
from amqsidecar.model.trace_context import (
    TraceContext,
    is_sampled,
    own_context,
    parse_traceparent,
    sampling_limit,
)
from amqsidecar.otlp.attempts import AttemptSpan, attempts_of, is_attempt
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.schedule import OpenSchedule
from amqsidecar.telemetry.metrics import Exemplar, Metrics

QUEUE_MAX: Final = 20_000
"""Maximum events that wait for the receiver; more are dropped."""

BATCH: Final = 1_000
"""Events from which one request is made, about."""

PRODUCERS_MAX: Final = 10_000
"""Messages whose producer is remembered; others are looked up in the history."""

TRACES: Final = "traces"
"""The signal, as the metric names it."""

PAUSE_S: Final = 2.0
STOP_S: Final = 2.0
"""Maximum time a stop waits for what is left to be sent."""

_MS: Final = 1_000_000

log = structlog.get_logger("amqsidecar.otlp")


class _Cycle:
    """The traced events of one cycle."""

    __slots__ = ("duration_s", "end_ms", "events")

    def __init__(self, events: list[AnyEvent], end_ms: int, duration_s: float | None) -> None:
        self.events = events
        self.end_ms = end_ms
        self.duration_s = duration_s


class _WaitingCycles:
    """Cycles that wait for the receiver, up to a number of events; any thread may add and take."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cycles: deque[_Cycle] = deque()
        self._count = 0

    def add(self, cycle: _Cycle) -> bool:
        """Add a cycle; return False where there is no room for it."""
        with self._lock:
            if self._count + len(cycle.events) > QUEUE_MAX:
                return False
            self._count += len(cycle.events)
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
        return taken

    @property
    def has_any(self) -> bool:
        """Whether a cycle waits."""
        return bool(self._cycles)


class OtlpSender:
    """Sends what it hears of, while its worker runs.

    The SDK repeats a request, with growing pauses, for `OTEL_EXPORTER_OTLP_TIMEOUT`; what the
    receiver has not taken by then is dropped and counted, as is what finds the queue full. What
    waits when the process dies is lost.

    Attributes:
        worker: runs the thread while its block runs.
    """

    def __init__(
        self,
        endpoint: str,
        traced_share: float,
        clock: Clock,
        metrics: Metrics,
        open_schedule: OpenSchedule | None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            endpoint: base URL of the receiver.
            traced_share: of messages, from 0 to 1.
            clock: of the events.
            metrics: count what is dropped, and get exemplars.
            open_schedule: has the producers of messages that died before the start; None = there
                is no history.
        """
        self._clock = clock
        self._metrics = metrics
        metrics.dropped_by_otlp(TRACES, 0)
        self._limit = sampling_limit(traced_share)
        self._cycles = _WaitingCycles()
        self._producers: dict[str, str] = {}
        self._schedule = None if open_schedule is None else KeptSchedule(open_schedule)
        self._ids = RandomIdGenerator()
        self._scope = InstrumentationScope("amqsidecar", __version__)
        self._resource = resource()
        base = endpoint.rstrip("/")
        self._spans = OTLPSpanExporter(f"{base}/v1/traces")
        self.worker = Worker("otlp", self._step, first_pause_s=PAUSE_S, release=self._release)
        self.worker.stop_s = STOP_S

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
            self._metrics.dropped_by_otlp(TRACES, sum(map(is_attempt, kept)))

    def _step(self) -> float:
        spans = [span for cycle in self._cycles.take() for span in self._spans_of(cycle)]
        if spans:
            self._send(spans)
        return 0.0 if self._cycles.has_any else PAUSE_S

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        dropped = len(spans)
        try:
            if self._spans.export(spans) is SpanExportResult.SUCCESS:
                dropped = 0
        finally:
            self._metrics.dropped_by_otlp(TRACES, dropped)

    def _release(self) -> None:
        if self._schedule is not None:
            self._schedule.close()
        if self.worker.stop.is_set():
            while self._step() == 0.0:
                pass

    def _spans_of(self, cycle: _Cycle) -> list[ReadableSpan]:
        for event in cycle.events:
            if isinstance(event, Received):
                self._remember(event.redelivery_id, event.traceparent)
        found = []
        for attempt in attempts_of(cycle.events):
            span = self._span(attempt, cycle.end_ms)
            found.append(span)
            for metric, value in (
                ("amqsidecar_lateness_seconds", attempt.lateness_s),
                ("amqsidecar_cycle_duration_seconds", cycle.duration_s),
            ):
                if value is not None:
                    ids = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
                    self._metrics.set_exemplar(metric, Exemplar(*ids, value, cycle.end_ms / 1000))
        return found

    def _span(self, attempt: AttemptSpan, end_ms: int) -> ReadableSpan:
        own = own_context(attempt.redelivery_id)
        first = _span_context(own, is_remote=False)
        at = first
        if not attempt.is_first:
            at = SpanContext(
                first.trace_id, self._ids.generate_span_id(), is_remote=False, trace_flags=_SAMPLED
            )
        producer = parse_traceparent(attempt.producer or self._producer(attempt.redelivery_id))
        return ReadableSpan(
            f"{attempt.operation} {attempt.destination}",
            context=at,
            parent=None if attempt.is_first else first,
            resource=self._resource,
            attributes={
                "messaging.system": "activemq",
                "messaging.operation.name": attempt.operation,
                "messaging.operation.type": attempt.operation,
                "messaging.destination.name": attempt.destination,
                **attempt.attributes,
            },
            links=() if producer is None else (Link(_span_context(producer, is_remote=True)),),
            kind=SpanKind.CLIENT,
            start_time=attempt.start_ms * _MS,
            end_time=max(attempt.start_ms, end_ms) * _MS,
            instrumentation_scope=self._scope,
        )

    def _remember(self, redelivery_id: str, producer: str) -> None:
        producers = self._producers
        if redelivery_id not in producers and len(producers) >= PRODUCERS_MAX:
            del producers[next(iter(producers))]
        producers[redelivery_id] = producer

    def _producer(self, redelivery_id: str) -> str:
        """Return the `traceparent` that the latest death of a message had; "" = none."""
        if redelivery_id not in self._producers and self._schedule is not None:
            try:
                with self._schedule.open() as schedule:
                    history = schedule.history(redelivery_id)
            except SidecarError as failed:
                log.warning("producer_unknown", reason=str(failed))
                return ""
            deaths = [event for event in history if isinstance(event, Received)]
            self._remember(redelivery_id, deaths[-1].traceparent if deaths else "")
        return self._producers.get(redelivery_id, "")


_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


def _span_context(context: TraceContext, *, is_remote: bool) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=is_remote,
        trace_flags=_SAMPLED if context.is_sampled else TraceFlags(TraceFlags.DEFAULT),
    )


def resource() -> Resource:
    """Return what all signals say of this process; the SDK's variables may say otherwise."""
    ours = Resource(
        {
            "service.name": "amqsidecar",
            "service.version": __version__,
            "service.instance.id": socket.gethostname(),
        }
    )
    return ours.merge(OTELResourceDetector().detect())
