"""Messages of applications that the broker counts as handed out, and that no consumer has."""

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from proton import Message

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp.links import AmqpDelivery
from amqsidecar.model.destination import queue
from support.brokers.real import ArtemisBroker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.doctor import run_doctor
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

POLICY = 'address_settings:\n  - {match: "#", dead_letter_address: DLQ}\n'
URLS = [
    "pair_url",
    pytest.param("amqp_url", marks=pytest.mark.proof),
    pytest.param("stomp_url", marks=pytest.mark.proof),
]


@contextmanager
def handed_out_to_nobody(broker: ArtemisBroker, name: str) -> Iterator[None]:
    """Have a consumer accept two of three messages of a queue, and leave before it commits."""
    with closing(AmqpArtemisHarness(broker, name)) as harness:
        other = harness.make_link("other").take(f"{name}.token")
        harness.send(name, [Message(durable=True, body=str(number)) for number in range(3)])
        other.attach([IntakeQueue(queue(name))], 10)

        deliveries: list[Delivery] = []

        def received() -> int:
            deliveries.extend(other.receive(3))
            return len(deliveries)

        eventually(lambda: received() == 3, what="all have come")
        transaction = other._cycle._tools.coordinator.begin()
        for delivery in deliveries[:2]:
            assert isinstance(delivery.handle, AmqpDelivery)
            transaction.accept(delivery.handle)
        other._connection.pump(0)
        other.intake.close()
        other._connection.run_until(lambda: other.intake.is_closed, PATIENCE_S)
        yield
        other.close()


@pytest.mark.parametrize("url", URLS)
def test_doctor_and_metric_name_them_until_a_consumer_can_have_them(
    artemis: ArtemisBroker, tmp_path: Path, url: str
) -> None:
    name = f"stuck.{uuid.uuid4().hex[:8]}"
    place = getattr(artemis, url)
    metric = f'amqsidecar_left_behind{{destination="queue://{name}",reason="stuck_in_broker"}}'
    sidecar = SidecarProcess(
        tmp_path,
        place,
        policy=write_policy(tmp_path, POLICY),
        sets=["discovery.interval_s=1"],
    )

    def findings() -> list[str]:
        (tmp_path / "doctor").mkdir(exist_ok=True)
        found = run_doctor(place, tmp_path / "doctor", policy=tmp_path / "policy.yaml").findings
        return [one["what"] for one in found if one["subject"] == f"queue://{name}"]

    with sidecar.start():
        with handed_out_to_nobody(artemis, name):
            eventually(lambda: sidecar.metric(metric) == 2, what="the metric counts them")
            assert [one.partition(":")[0] for one in findings()] == [
                "2 messages stay there (stuck_in_broker)"
            ]
        eventually(lambda: not sidecar.metric(metric), what="the metric counts none")
        assert findings() == []
