"""Spans, metrics and lines by OTLP, on real brokers, to a real receiver."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from amqsidecar.model.trace_context import own_context
from support.brokers.real import ArtemisBroker, Broker
from support.jms.peer import JmsPeer, PeerProcess, shared_process
from support.jms.process import JVM_FLAGS
from support.machine.ports import free_port
from support.maven import java_agent
from support.otlp_receiver import Behaviour, OtlpReceiver, attributes_of, otlp_receiver
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.web.client import web_client

pytestmark = pytest.mark.broker

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ARTEMIS = """\
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: 3
    redelivery_delay_ms: 100
"""
CLASSIC = """\
plugins:
  - redelivery:
      default_entry:
        maximum_redeliveries: 2
        initial_redelivery_delay_ms: 100
"""
DEATHS = 3

# The broker, and the client library and way to fail of the application.
WIRES = {
    "amqp": ("artemis", "qpid", "reject"),
    "core": ("artemis", "core", "rollback"),
    "openwire": ("classic_6", "openwire", "rollback"),
}


class Site:
    """A queue whose messages die until they are exhausted, and a sidecar that sends spans."""

    def __init__(
        self,
        request: pytest.FixtureRequest,
        folder: Path,
        unique: str,
        receiver: OtlpReceiver,
        process: PeerProcess | None = None,
    ) -> None:
        self.wire = request.param
        name, provider, self.how = WIRES[self.wire]
        broker: Broker = request.getfixturevalue(name)
        is_artemis = isinstance(broker, ArtemisBroker)
        self.queue = f"{unique}.orders"
        self.peer = JmsPeer.of(broker, provider, process=process or shared_process())
        # Why: all spans are counted, and other tests leave dead letters here and in other queues.
        dead_letters = "DLQ" if is_artemis else "ActiveMQ.DLQ"
        self.peer.consume(dead_letters)
        self.receiver = receiver
        self.sidecar = SidecarProcess(
            folder,
            getattr(broker, f"{self.wire}_url"),
            policy=write_policy(folder, ARTEMIS if is_artemis else CLASSIC),
            sets=[
                "intake.backlog=process",
                f"intake.queues=[{dead_letters}]",
                "redelivery.exhausted=keep",
                f"otel.endpoint={receiver.url}",
                "otel.sampling=1",
            ],
        )

    def send(self, count: int = 1, **properties: str) -> None:
        self.peer.produce(
            self.queue, ["Text"], count=count, sample_properties=False, properties=properties
        )

    def exhaust(self, total: int) -> None:
        with self.peer.start_flaky_consumer(self.queue, failures=-1, how=self.how):
            eventually(lambda: self.sidecar.exhausted() == total, what="all are exhausted")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running


@pytest.fixture
def site(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, receiver: OtlpReceiver
) -> Iterator[Site]:
    made = Site(request, tmp_path, unique, receiver)
    with made.sidecar:
        yield made


@pytest.fixture
def agent_site(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, receiver: OtlpReceiver
) -> Iterator[Site]:
    """A site whose application runs under OpenTelemetry's agent."""
    process = PeerProcess(
        (
            *JVM_FLAGS,
            # Why: the agent loads classes that the archive has, too.
            "-Xshare:off",
            f"-javaagent:{java_agent()}",
            "-Dotel.service.name=orders",
            f"-Dotel.exporter.otlp.endpoint={receiver.url}",
            "-Dotel.exporter.otlp.protocol=http/protobuf",
            "-Dotel.metrics.exporter=none",
            "-Dotel.logs.exporter=none",
            "-Dotel.bsp.schedule.delay=200",
        )
    )
    made = Site(request, tmp_path, unique, receiver, process)
    with made.sidecar:
        yield made
    process.close()


@pytest.mark.proof  # Why: its agent is fetched for this alone.
@pytest.mark.parametrize("agent_site", ["core", "amqp", "openwire"], indirect=True)
def test_the_attempts_link_to_the_producer_of_an_application_under_the_agent(
    agent_site: Site,
) -> None:
    site, receiver = agent_site, agent_site.receiver
    site.sidecar.start()
    site.send()
    site.exhaust(1)

    def attempts() -> list[Span]:
        return [one for one in receiver.spans if one.kind == Span.SPAN_KIND_CLIENT]

    def produced() -> list[Span]:
        return [one for one in receiver.spans if one.kind == Span.SPAN_KIND_PRODUCER]

    eventually(lambda: len(attempts()) == 2 * DEATHS - 1, what="all attempts are there")
    [sent] = eventually(produced, what="the application's own span is there")
    assert site.queue in sent.name
    links = {(link.trace_id, link.span_id) for one in attempts() for link in one.links}
    assert links == {(sent.trace_id, sent.span_id)}
    assert sent.trace_id not in {one.trace_id for one in attempts()}
    assert len(of(attempts(), "settle")) == DEATHS


def of(spans: list[Span], operation: str) -> list[Span]:
    found = [one for one in spans if one.name.startswith(operation + " ")]
    return sorted(found, key=lambda span: attributes_of(span.attributes)["amqsidecar.attempt"])


@pytest.mark.parametrize("site", sorted(WIRES), indirect=True)
def test_a_message_that_died_three_times_has_three_attempts_and_one_producer(site: Site) -> None:
    site.sidecar.start()
    site.send(traceparent=f"00-{TRACE}-{SPAN}-01")
    site.exhaust(1)
    receiver = site.receiver
    eventually(lambda: len(receiver.spans) == 2 * DEATHS - 1, what="all spans are there")
    deaths, sends = of(receiver.spans, "settle"), of(receiver.spans, "send")
    assert len(deaths) == DEATHS
    assert len(sends) == DEATHS - 1
    links = {
        (link.trace_id.hex(), link.span_id.hex()) for one in receiver.spans for link in one.links
    }
    assert links == {(TRACE, SPAN)}
    assert all(len(one.links) == 1 for one in receiver.spans)
    [own] = {
        own_context(attributes_of(one.attributes)["amqsidecar.redelivery_id"])
        for one in receiver.spans
    }
    # Never the producer's trace; the first death is above the others.
    assert {one.trace_id.hex() for one in receiver.spans} == {own.trace_id}
    assert (deaths[0].span_id.hex(), deaths[0].parent_span_id) == (own.span_id, b"")
    below = [*deaths[1:], *sends]
    assert {one.parent_span_id.hex() for one in below} == {own.span_id}
    assert len({one.span_id for one in receiver.spans}) == 2 * DEATHS - 1
    assert {one.kind for one in receiver.spans} == {Span.SPAN_KIND_CLIENT}
    assert all(one.start_time_unix_nano <= one.end_time_unix_nano for one in receiver.spans)
    told = [attributes_of(one.attributes) for one in deaths]
    assert [one["amqsidecar.attempt"] for one in told] == [1, 2, 3]
    decisions = ["redeliver", "redeliver", "dead_letter"]
    assert [one["amqsidecar.decision"] for one in told] == decisions
    for one in told:
        assert one["amqsidecar.origin"] == site.queue
        assert one["messaging.operation.type"] == "settle"
        assert "policy.yaml:" in one["amqsidecar.rule"]
    for one in sends:
        assert one.name == f"send {site.queue}"
        found = attributes_of(one.attributes)
        assert found["messaging.destination.name"] == site.queue
        assert found["messaging.system"] == "activemq"
    assert [attributes_of(one.attributes)["amqsidecar.attempt"] for one in sends] == [2, 3]
    assert receiver.resource["service.name"] == "amqsidecar"
    assert site.sidecar.metric("amqsidecar_otlp_dropped_total") == 0


@pytest.mark.parametrize("site", ["amqp"], indirect=True)
def test_a_send_after_a_restart_has_the_link_of_the_death_before(site: Site) -> None:
    site.sidecar.options.append("policy.source=" + str(_slow(site.sidecar.folder)))
    site.sidecar.start()
    site.send(b3=f"{TRACE}-{SPAN}-1")
    with site.peer.start_flaky_consumer(site.queue, failures=1, how=site.how) as consumer:
        eventually(lambda: of(site.receiver.spans, "settle"), what="the death is there")
        site.sidecar.kill()
        site.sidecar.start()
        eventually(consumer.succeeded, what="it came back")
    eventually(lambda: of(site.receiver.spans, "send"), what="the send is there")
    [sent] = of(site.receiver.spans, "send")
    assert [(one.trace_id.hex(), one.span_id.hex()) for one in sent.links] == [(TRACE, SPAN)]


def _slow(folder: Path) -> Path:
    path = folder / "slow"
    path.mkdir()
    return write_policy(path, ARTEMIS.replace("delay_ms: 100", "delay_ms: 20000"))


@pytest.mark.parametrize("behaviour", [Behaviour.HANG, Behaviour.UNAVAILABLE, Behaviour.REFUSE])
@pytest.mark.parametrize("site", ["core"], indirect=True)
def test_a_receiver_that_takes_nothing_stops_nothing(site: Site, behaviour: Behaviour) -> None:
    site.receiver.behaviour = behaviour
    site.sidecar.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "2"
    site.sidecar.start()
    site.send(20)
    site.exhaust(20)
    dropped = 'amqsidecar_otlp_dropped_total{signal="traces"}'
    all_spans = 20 * (2 * DEATHS - 1)
    eventually(lambda: site.sidecar.metric(dropped) == all_spans, what="all are counted")
    assert not site.receiver.spans
    site.receiver.behaviour = Behaviour.TAKE
    site.receiver.released.set()
    site.send()
    site.exhaust(21)
    eventually(lambda: len(site.receiver.spans) >= 2 * DEATHS - 1, what="later ones are there")
    assert site.sidecar.metric(dropped) == all_spans


@pytest.mark.parametrize("site", ["core"], indirect=True)
def test_a_receiver_that_goes_and_comes_back_slow_gets_nothing_twice(site: Site) -> None:
    port, dropped = free_port(), 'amqsidecar_otlp_dropped_total{signal="traces"}'
    site.sidecar.options.append(f"otel.endpoint=http://127.0.0.1:{port}")
    site.sidecar.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "2"
    site.sidecar.environ["OTEL_METRIC_EXPORT_INTERVAL"] = "500"
    all_spans = 60 * (2 * DEATHS - 1)
    site.sidecar.start()
    site.send(20)
    site.exhaust(20)
    eventually(lambda: site.sidecar.metric(dropped), what="nobody is there, and that is counted")
    with otlp_receiver(port) as receiver:
        receiver.pause_s = 0.5
        for total in (40, 60):
            site.send(20)
            site.exhaust(total)
        eventually(lambda: len(receiver.spans) + site.sidecar.metric(dropped) == all_spans)
        eventually(lambda: value_of(receiver, "amqsidecar_exhausted_total") == 60)
    assert len({one.span_id for one in receiver.spans}) == len(receiver.spans)


@pytest.mark.parametrize("site", ["core"], indirect=True)
def test_metrics_log_and_audit_come_without_a_scrape(site: Site) -> None:
    site.sidecar.environ["OTEL_METRIC_EXPORT_INTERVAL"] = "500"
    site.sidecar.start()
    receiver = site.receiver
    site.send(2, secret="geheim-4711")
    site.exhaust(2)
    eventually(lambda: value_of(receiver, "amqsidecar_exhausted_total") == 2)
    eventually(lambda: "started" in bodies(receiver), what="the first line is there")
    with web_client(f"http://{site.sidecar._http}") as client:
        csrf = client.get("/api/v1/session").json()["csrf"]
        marker = {"text": "orders 4.2", "destination": site.queue}
        answer = client.post("/api/v1/markers", json=marker, headers={"X-CSRF-Token": csrf})
        assert answer.is_success, answer.text
    eventually(lambda: audited(receiver, "mark"), what="the line of the audit is there")
    [line] = audited(receiver, "mark")
    assert line["event.dataset"] == "amqsidecar.audit"
    assert "geheim" not in str(receiver.logs) + str(receiver.metrics)
    site.sidecar.stop()
    # What is left at the end comes, too.
    assert value_of(receiver, "amqsidecar_resent_total") == 4


def bodies(receiver: OtlpReceiver) -> list[str]:
    return [one.body.string_value for one in receiver.logs]


def audited(receiver: OtlpReceiver, action: str) -> list[dict[str, Any]]:
    found = [attributes_of(one.attributes) for one in receiver.logs]
    return [one for one in found if one.get("event.action") == action]


def value_of(receiver: OtlpReceiver, name: str) -> float:
    """Return the latest value of a counter, over all labels."""
    found = [one for one in receiver.metrics if one.name == name]
    return sum(point.as_double for point in found[-1].sum.data_points) if found else 0.0
