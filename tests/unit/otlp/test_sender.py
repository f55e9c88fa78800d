"""The sender never waits, counts what it drops, and shows nothing that acts on a screen."""

import io
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import structlog
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from opentelemetry.sdk.trace.export import SpanExportResult

from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.errors import StoreUnavailable
from amqsidecar.model.event import (
    AnyEvent,
    DeadLettered,
    Held,
    Parked,
    Received,
    Resent,
    Returned,
    Scheduled,
)
from amqsidecar.otlp import lines as lines_module
from amqsidecar.otlp import sender as module
from amqsidecar.otlp.attempts import attempts_of
from amqsidecar.otlp.sender import OtlpSender
from amqsidecar.otlp.signals import OtlpSignal
from amqsidecar.telemetry import audit
from amqsidecar.telemetry.logs import configure_logs
from amqsidecar.telemetry.metrics import Metrics
from support.otlp_receiver import Behaviour, OtlpReceiver, attributes_of, otlp_receiver
from support.virtual_clock import VirtualClock
from support.waiting import eventually

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def died(number: int, kind: type[Received] = Received, **fields: Any) -> Received:
    return kind(
        at_ms=1_000,
        id=number,
        redelivery_id=f"r-{number}",
        source="queue://DLQ",
        origin="queue://orders",
        **fields,
    )


def resent(number: int, redelivery_id: str = "") -> Resent:
    return Resent(
        at_ms=2_000,
        id=number,
        redelivery_id=redelivery_id or f"r-{number}",
        destination="queue://orders",
        redelivery_count=1,
        lateness_ms=30,
    )


class Site:
    def __init__(self, receiver: OtlpReceiver, share: float = 1.0, *signals: OtlpSignal) -> None:
        self.metrics = Metrics()
        self.clock = VirtualClock()
        self.sender = OtlpSender(
            receiver.url,
            signals or (OtlpSignal.TRACES,),
            share,
            self.clock,
            self.metrics,
            self._open,
        )
        self.asked = 0

    def _open(self) -> Any:
        self.asked += 1
        raise StoreUnavailable("the disk is away")

    def observe(self, *events: AnyEvent) -> None:
        self.sender.observe(events, CycleStats(1, 1, 0.25))

    def dropped(self, signal: str = "traces") -> float:
        return self.metrics.value("amqsidecar_otlp_dropped_total", signal)


@pytest.mark.parametrize(
    ("bound", "most", "cause"),
    [("QUEUE_MAX", 50, ""), ("QUEUE_BYTES_MAX", 50 * 10_400, 10_000 * "x")],
    ids=["events", "bytes"],
)
def test_a_hanging_receiver_holds_up_no_caller_and_each_span_is_counted(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int, cause: str
) -> None:
    monkeypatch.setattr(module, bound, most)
    with otlp_receiver() as receiver:
        receiver.behaviour = Behaviour.HANG
        site = Site(receiver)
        with site.sender.worker:
            site.observe(died(1, cause=cause))
            eventually(lambda: receiver.requests, what="a request hangs")
            # The caller is this thread: that it goes on is the proof.
            for number in range(2, 102):
                site.observe(died(number, cause=cause))
            assert site.dropped() == 50
            assert not receiver.spans
            receiver.behaviour = Behaviour.TAKE
            receiver.released.set()
            eventually(lambda: len(receiver.spans) + site.dropped() == 101, what="all are counted")


def test_what_waits_at_the_end_is_sent() -> None:
    with otlp_receiver() as receiver:
        site = Site(receiver)
        with site.sender.worker:
            site.observe(died(1), resent(1))
        assert sorted(one.name for one in receiver.spans) == ["send orders", "settle DLQ"]
        assert site.dropped() == 0


def test_only_the_share_is_sent() -> None:
    with otlp_receiver() as receiver:
        site = Site(receiver, share=0.1)
        with site.sender.worker:
            site.observe(*map(died, range(1_000)))
        assert 60 < len(receiver.spans) < 140


def test_a_span_goes_without_its_link_where_the_history_can_not_be_read() -> None:
    with otlp_receiver() as receiver:
        site = Site(receiver)
        with site.sender.worker:
            site.observe(resent(7))
        assert site.asked == 1
        [span] = receiver.spans
        assert not span.links


def test_latencies_have_exemplars() -> None:
    with otlp_receiver() as receiver:
        site = Site(receiver)
        with site.sender.worker:
            site.observe(died(1), resent(1))
        sent = next(one for one in receiver.spans if one.name == "send orders")
    text = site.metrics.render(OPENMETRICS)[0].decode()
    ids = f'# {{span_id="{sent.span_id.hex()}",trace_id="{sent.trace_id.hex()}"}}'
    for start, value in (
        ('amqsidecar_lateness_seconds_bucket{le="0.05"}', "0.03"),
        ('amqsidecar_cycle_duration_seconds_bucket{le="0.25"}', "0.25"),
    ):
        [line] = [one for one in text.splitlines() if one.startswith(start)]
        assert f"{ids} {value} " in line
    assert "trace_id" not in site.metrics.render("text/plain")[0].decode()


def test_texts_of_strangers_are_harmless_and_short() -> None:
    hostile = "\ud800\u202e\x1b[31m" + "x" * 5_000
    events: list[AnyEvent] = [
        died(1, message_id=hostile, cause="a.b.BrokenException: \x1b secret 4711"),
        Scheduled(
            at_ms=1,
            id=1,
            redelivery_id="r-1",
            destination="queue://a",
            delay_ms=5,
            due_at_ms=6,
            redelivery_count=1,
            rule=hostile,
        ),
    ]
    with otlp_receiver() as receiver:
        site = Site(receiver)
        with site.sender.worker:
            site.observe(*events)
        [span] = receiver.spans
    found = attributes_of(span.attributes)
    assert found["amqsidecar.cause_type"] == "a.b.BrokenException"
    for name in ("amqsidecar.rule", "messaging.message.id"):
        assert found[name].startswith("‹U+D800›‹U+202E›‹U+001B›")
        assert len(found[name]) == 1_000
    assert "4711" not in str(span)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [
                died(1, Returned, redelivery_count=2),
                Held(at_ms=1, id=1, destination="queue://a", reason="backlog"),
                Parked(at_ms=1, id=9, destination="queue://a", reason="of another cycle"),
            ],
            [("settle", False, {"amqsidecar.attempt": 3, "amqsidecar.decision": "hold"})],
        ),
        (
            [DeadLettered(at_ms=1, id=1, destination="queue://DLQ.x", redelivery_count=2)],
            [("send", False, {"amqsidecar.attempt": 3, "amqsidecar.final": True})],
        ),
    ],
)
def test_attempts_of_events(
    events: Sequence[AnyEvent], expected: list[tuple[str, bool, dict[str, Any]]]
) -> None:
    found = list(attempts_of(events))
    assert [(one.operation, one.is_first) for one in found] == [one[:2] for one in expected]
    for attempt, (_, _, attributes) in zip(found, expected, strict=True):
        assert attributes.items() <= attempt.attributes.items()


def test_a_fault_of_ours_is_counted_and_the_next_batch_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with otlp_receiver() as receiver:
        site = Site(receiver)
        site.sender.worker.retry_s = (0.01,)
        broken = threading.Event()

        def export(_spans: object) -> SpanExportResult:
            broken.set()
            raise ValueError("a fault")

        with monkeypatch.context() as patched, site.sender.worker:
            patched.setattr(site.sender._traces_to, "export", export)
            site.observe(died(1))
            eventually(broken.is_set, what="it failed")
            patched.undo()
            site.observe(died(2))
            eventually(lambda: receiver.spans, what="the next one is sent")
        assert (len(receiver.spans), site.dropped()) == (1, 1)


def test_metrics_are_those_of_a_scrape_by_their_names() -> None:
    with otlp_receiver() as receiver:
        site = Site(receiver, 1.0, OtlpSignal.METRICS, OtlpSignal.TRACES)
        with site.sender.running():
            events: list[AnyEvent] = [died(1), resent(1)]
            site.metrics.observe(events)
            site.metrics.cycle_finished(0.25, 2)
            site.observe(*events)
            eventually(lambda: receiver.spans, what="the exemplars are set")
        scraped = site.metrics.render(OPENMETRICS)[0].decode()
    found: dict[str, Metric] = {one.name: one for one in receiver.metrics}
    for name, metric in found.items():
        assert f"\n{name}" in scraped, name
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            labels = ",".join(
                f'{key}="{value}"' for key, value in sorted(attributes_of(point.attributes).items())
            )
            series = f"\n{name}{{{labels}}} " if labels else f"\n{name} "
            assert series in scraped, series
    received = found["amqsidecar_dead_letters_received_total"].sum
    assert received.is_monotonic
    assert received.aggregation_temporality == (
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    [point] = received.data_points
    assert (point.as_double, attributes_of(point.attributes)) == (
        1.0,
        {"destination": "queue://orders"},
    )
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    assert found["process_resident_memory_bytes"].gauge.data_points[0].as_double > 0
    [late] = found["amqsidecar_lateness_seconds"].histogram.data_points
    assert (late.count, late.sum) == (1, 0.03)
    assert len(late.bucket_counts) == len(late.explicit_bounds) + 1
    bucket = [*late.bucket_counts].index(1)
    assert late.explicit_bounds[bucket - 1] < 0.03 <= late.explicit_bounds[bucket]
    assert not late.HasField("min")
    [exemplar] = late.exemplars
    sent = next(one for one in receiver.spans if one.name == "send orders")
    assert (exemplar.trace_id, exemplar.span_id) == (sent.trace_id, sent.span_id)


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    before = logging.getLogger().handlers[:]
    configure_logs("info", "console", stream)
    yield stream
    logging.getLogger().handlers[:] = before


def by_body(records: Sequence[LogRecord]) -> dict[str, LogRecord]:
    return {one.body.string_value: one for one in records}


def test_lines_of_log_and_audit_are_records_without_log_ins(logs: io.StringIO) -> None:
    log = structlog.get_logger("amqsidecar.some")
    with otlp_receiver() as receiver:
        site = Site(receiver, 1.0, OtlpSignal.LOGS)
        with site.sender.running():
            log.warning("link_lost", url="amqp://ann:geheim@host:1", retry_in_s=4, why="\x1b[31m")
            log.debug("below the level")
            logging.getLogger("a.library").error("it broke: %s", "http://bob:geheim@host")
            actor = audit.Actor(name="ann", way="token", address="10.1.2.3")
            audit.write("retry", by=actor, reason="\u202eagain", selection={"a": ["\ud800"]})
            audit.write("log-in", audit.ActKind.LOG_IN, by=actor, is_success=False)
        log.warning("after the end")
    found = by_body(receiver.logs)
    assert [*found] == [
        "link_lost",
        "it broke: http://host",
        "ann (token): retry",
        "ann (token): log-in",
    ]
    lost = found["link_lost"]
    assert (lost.severity_text, lost.severity_number) == (
        "warning",
        SeverityNumber.SEVERITY_NUMBER_WARN,
    )
    assert attributes_of(lost.attributes) == {
        "url": "amqp://host:1",
        "retry_in_s": 4,
        "why": "‹U+001B›[31m",
    }
    assert receiver.scopes["link_lost"] == "amqsidecar.some"
    retried = attributes_of(found["ann (token): retry"].attributes)
    assert retried["event.dataset"] == "amqsidecar.audit"
    assert (retried["user.name"], retried["source.ip"]) == ("ann", "10.1.2.3")
    assert retried["event.reason"] == "‹U+202E›again"
    assert "‹U+D800›" in str(found["ann (token): retry"])
    assert found["ann (token): log-in"].severity_number == SeverityNumber.SEVERITY_NUMBER_WARN
    assert "geheim" not in str(receiver.logs)
    assert site.dropped("logs") == 0


def test_too_many_lines_are_counted_and_hold_nobody_up(
    logs: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "LINES_MAX", 5)
    log = structlog.get_logger("amqsidecar.some")
    with otlp_receiver() as receiver:
        receiver.behaviour = Behaviour.HANG
        site = Site(receiver, 1.0, OtlpSignal.LOGS)
        with site.sender.running():
            log.info("first")
            eventually(lambda: receiver.requests, what="a request hangs")
            for number in range(12):
                log.info("one_more", number=number)
            assert site.dropped("logs") == 7
            receiver.behaviour = Behaviour.TAKE
            receiver.released.set()
            eventually(lambda: len(receiver.logs) + site.dropped("logs") == 13, what="all counted")
    assert logs.getvalue().count("one_more") == 12


def test_its_own_lines_about_a_receiver_that_refuses_are_not_sent(logs: io.StringIO) -> None:
    with otlp_receiver() as receiver:
        receiver.behaviour = Behaviour.REFUSE
        site = Site(receiver, 1.0, OtlpSignal.LOGS)
        with site.sender.running():
            structlog.get_logger("amqsidecar.some").info("one")
            eventually(lambda: site.dropped("logs") == 1, what="it is refused")
            assert not site.sender._lines.waiting
        assert receiver.requests == 1
    assert "otlp" in logs.getvalue()
