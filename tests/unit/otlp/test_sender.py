"""The sender never waits, counts what it drops, and shows nothing that acts on a screen."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
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
from amqsidecar.otlp import sender as module
from amqsidecar.otlp.attempts import attempts_of
from amqsidecar.otlp.sender import OtlpSender
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
    def __init__(self, receiver: OtlpReceiver, share: float = 1.0) -> None:
        self.metrics = Metrics()
        self.sender = OtlpSender(receiver.url, share, VirtualClock(), self.metrics, self._open)
        self.asked = 0

    def _open(self) -> Any:
        self.asked += 1
        raise StoreUnavailable("the disk is away")

    def observe(self, *events: AnyEvent) -> None:
        self.sender.observe(events, CycleStats(1, 1, 0.25))

    def dropped(self) -> float:
        return self.metrics.value("amqsidecar_otlp_dropped_total", "traces")


def test_a_hanging_receiver_holds_up_no_caller_and_each_span_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "QUEUE_MAX", 50)
    with otlp_receiver() as receiver:
        receiver.behaviour = Behaviour.HANG
        site = Site(receiver)
        with site.sender.worker:
            site.observe(died(1))
            eventually(lambda: receiver.requests, what="a request hangs")
            # The caller is this thread: that it goes on is the proof.
            for number in range(2, 102):
                site.observe(died(number))
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
            patched.setattr(site.sender._spans, "export", export)
            site.observe(died(1))
            eventually(broken.is_set, what="it failed")
            patched.undo()
            site.observe(died(2))
            eventually(lambda: receiver.spans, what="the next one is sent")
        assert (len(receiver.spans), site.dropped()) == (1, 1)
