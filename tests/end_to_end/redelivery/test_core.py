"""Artemis over Core: what Core applications get back, and what AMQP applications leave."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, attempts_without_limit
from support.brokers.core_acceptor import CoreAcceptorArtemis
from support.brokers.real import ArtemisBroker
from support.jms.ledger import ADDED_PROPERTIES
from support.jms.peer import ALL_TYPES, JmsPeer
from support.sidecar.doctor import run_doctor
from support.sidecar.policy import FOUR_ATTEMPTS, write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

TYPES = (*ALL_TYPES, "NullObject")
# Why one attempt: then each failed delivery is a death. DLQ to DLQ is what the stock settings say.
SETTINGS = STOCK_ADDRESS_SETTINGS.replace(
    "<redelivery-delay>0</redelivery-delay>",
    "<redelivery-delay>0</redelivery-delay><max-delivery-attempts>1</max-delivery-attempts>",
) + attempts_without_limit("DLQ")


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=SETTINGS) as started:
        yield started


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path, FOUR_ATTEMPTS)


@pytest.fixture(params=["core", "pair"])
def wire(request: pytest.FixtureRequest) -> str:
    """Core alone, or beside AMQP."""
    return str(request.param)


@pytest.fixture
def sidecar(
    broker: ArtemisBroker, wire: str, policy: Path, tmp_path: Path
) -> Iterator[SidecarProcess]:
    url = getattr(broker, f"{wire}_url")
    with SidecarProcess(tmp_path, url, policy=policy, sets=["intake.backlog=process"]) as made:
        yield made


@pytest.mark.parametrize("wire", ["core"], indirect=True)
def test_what_amqp_clients_have_made_stays_and_is_reported(
    broker: ArtemisBroker, sidecar: SidecarProcess, policy: Path, unique: str, tmp_path: Path
) -> None:
    """Two in one queue: one comes back, the other stays whole, counted with its reason."""
    core, amqp = JmsPeer.of(broker, "core"), JmsPeer.of(broker, "qpid")
    core.produce(unique, "Text")
    core.fail(unique, "rollback", messages=1)
    [left] = amqp.produce(unique, "Text")
    amqp.fail(unique, "reject", messages=1)
    doctor = run_doctor(broker.core_url, tmp_path, policy=policy)
    assert doctor.problems == []
    assert any("AMQP clients have made them" in one["what"] for one in doctor.findings)
    with sidecar.running():
        [found] = core.consume(unique, 1, wait_ms=60_000)
        assert found.value("amqsidecarRedeliveryCount") == 1
        eventually(
            lambda: 'reason="made_by_amqp"' in sidecar.get("/metrics")[1], what="it is reported"
        )
    [still] = amqp.consume("DLQ", 1)
    assert still.test_id == left.test_id


def test_an_acceptor_without_amqp_is_served_over_core_and_reported(
    policy: Path, unique: str, tmp_path: Path
) -> None:
    """`doctor` and `run` name the acceptor; the Core message comes back, the other one stays."""
    with CoreAcceptorArtemis(address_settings=SETTINGS) as broker:
        core, amqp = JmsPeer.of(broker, "core"), JmsPeer.of(broker, "qpid")
        core.produce(unique, "Text")
        core.fail(unique, "rollback", messages=1)
        [left] = amqp.produce(unique, "Text")
        amqp.fail(unique, "reject", messages=1)
        doctor = run_doctor(broker.pair_url, tmp_path, policy=policy)
        assert doctor.problems == []
        mends = [one["mend"] for one in doctor.findings if "uses only Core here" in one["what"]]
        assert mends == ["acceptor: protocols=CORE,AMQP"]
        missing = "add AMQP to the protocols of the acceptor"
        assert any(missing in one["what"] for one in doctor.of("fidelity", "warning"))
        with SidecarProcess(tmp_path, broker.pair_url, policy=policy).running() as sidecar:
            [found] = core.consume(unique, 1, wait_ms=60_000)
            assert found.value("amqsidecarRedeliveryCount") == 1
            eventually(
                lambda: 'reason="made_by_amqp"' in sidecar.get("/metrics")[1], what="it is reported"
            )
            eventually(lambda: missing in sidecar.log(), what="the log says what to do")
        [still] = amqp.consume("DLQ", 1)
        assert still.test_id == left.test_id


HELD = """
  - match: "soon.#"
    redelivery_delay_ms: 2500
"""


@pytest.fixture
def held(
    broker: ArtemisBroker, wire: str, policy: Path, tmp_path: Path
) -> Iterator[SidecarProcess]:
    """A sidecar without a store: what waits lies in the broker."""
    policy.write_text(FOUR_ATTEMPTS + HELD, encoding="utf-8")
    sets = ["store.url=broker:", "intake.backlog=process"]
    url = getattr(broker, f"{wire}_url")
    with SidecarProcess(tmp_path, url, policy=policy, sets=sets) as made:
        yield made


def test_the_broker_delivers_what_waits_when_it_is_due(
    broker: ArtemisBroker, held: SidecarProcess, unique: str
) -> None:
    """All types, and a large message; no sidecar runs any more when they are due."""
    peer, queue = JmsPeer.of(broker, "core"), f"soon.{unique}"
    sent = peer.produce(queue, TYPES)
    sent += peer.produce(queue, "Bytes", body_size=300_000)
    held.start()
    began_s = time.monotonic()
    peer.fail(queue, "rollback", messages=len(sent))
    eventually(lambda: held.metric("amqsidecar_scheduled_total") == len(sent), what="all wait")
    held.kill()
    found = {one.test_id: one for one in peer.consume(queue, len(sent), wait_ms=60_000)}
    assert time.monotonic() - began_s >= 2.5
    assert found.keys() == {one.test_id for one in sent}
    for before in sent:
        after = found[before.test_id]
        assert not before.differences(
            after,
            without_headers=("JMSDestination", "JMSRedelivered", "JMSDeliveryTime"),
            without_properties=(*ADDED_PROPERTIES, "_AMQ_SCHED_DELIVERY", "_AMQ_LARGE_SIZE"),
        )
        assert after.value("amqsidecarRedeliveryCount") == 1
    assert peer.browse("DLQ") == []
