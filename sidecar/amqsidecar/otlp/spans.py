"""Attempts to spans of the SDK, each linked to its message's producer."""

from typing import Final, NamedTuple

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from amqsidecar.errors import SidecarError
from amqsidecar.model.event import Received
from amqsidecar.model.trace_context import TraceContext, own_context, parse_traceparent
from amqsidecar.otlp.attempts import AttemptSpan
from amqsidecar.runtime.worker import KeptSchedule

TRACES_MAX: Final = 10_000
"""Maximum messages whose producer is remembered; other producers are read from the history."""

_MS: Final = 1_000_000
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

log = structlog.get_logger("amqsidecar.otlp")


class _Trace(NamedTuple):
    """The first attempt of a message, and the link to its producer."""

    first: SpanContext
    links: tuple[Link, ...]


class Spans:
    """Makes spans; only one thread calls.

    Args:
        resource: this process.
        scope: this program.
        schedule: has the producers of messages that died before the start; None = there is no
            history.
    """

    def __init__(
        self, resource: Resource, scope: InstrumentationScope, schedule: KeptSchedule | None
    ) -> None:
        self._resource = resource
        self._scope = scope
        self._schedule = schedule
        self._traces: dict[str, _Trace] = {}
        self._ids = RandomIdGenerator()

    def remember(self, redelivery_id: str, producer: str) -> None:
        """Keep the producer of a message: its `traceparent`, "" = none."""
        traces = self._traces
        if redelivery_id not in traces and len(traces) >= TRACES_MAX:
            del traces[next(iter(traces))]
        context = parse_traceparent(producer)
        links = () if context is None else (Link(_span_context(context, is_remote=True)),)
        first = _span_context(own_context(redelivery_id), is_remote=False)
        traces[redelivery_id] = _Trace(first, links)

    def make(self, attempt: AttemptSpan, end_ms: int) -> ReadableSpan:
        """Return the span of an attempt that ended then."""
        first, links = self._trace(attempt.redelivery_id)
        at = first
        if not attempt.is_first:
            span_id = self._ids.generate_span_id()
            at = SpanContext(first.trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)
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
            links=links,
            kind=SpanKind.CLIENT,
            start_time=attempt.start_ms * _MS,
            end_time=max(attempt.start_ms, end_ms) * _MS,
            instrumentation_scope=self._scope,
        )

    def _trace(self, redelivery_id: str) -> _Trace:
        if redelivery_id not in self._traces:
            self.remember(redelivery_id, self._latest_producer(redelivery_id))
        return self._traces[redelivery_id]

    def _latest_producer(self, redelivery_id: str) -> str:
        if self._schedule is None:
            return ""
        try:
            with self._schedule.open() as schedule:
                history = schedule.history(redelivery_id)
        except SidecarError as failed:
            log.warning("producer_unknown", reason=str(failed))
            return ""
        deaths = [event for event in history if isinstance(event, Received)]
        return deaths[-1].traceparent if deaths else ""


def _span_context(context: TraceContext, *, is_remote: bool) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=is_remote,
        trace_flags=_SAMPLED if context.is_sampled else TraceFlags(TraceFlags.DEFAULT),
    )
