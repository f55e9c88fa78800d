"""A first start whose `intake.queues` names a missing queue does what the second one does."""

from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker, Broker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

LOSSY = "intake.allow_lossy=[body_type,property_types,group]"  # what is lost is not the question
ORIGIN = "orders"
TAKEN = "amqsidecar_dead_letters_received_total"
MISSING = "the broker has no such queue"
ON_ARTEMIS = {"core": "core", "pair": "core", "amqp": "qpid", "stomp": "qpid"}
"""Who speaks so, by wire."""
# Why in proof: `contract/test_link_contract.py` has a missing queue made over each wire.
OFTEN = ("pair", "openwire")
WIRES = [
    pytest.param(broker, wire, marks=[] if wire in OFTEN else pytest.mark.proof)
    for broker, wires in (("artemis", ON_ARTEMIS), ("classic_6", ("openwire", "stomp", "amqp_jms")))
    for wire in wires
]


def sidecar_of(broker: Broker, wire: str, folder: Path, name: str) -> SidecarProcess:
    url = getattr(broker, f"{wire}_url")
    return SidecarProcess(
        folder, url, sets=[f"intake.queues=[{name}]", f"intake.origin={{{name}: {ORIGIN}}}", LOSSY]
    )


@pytest.mark.parametrize(("broker_name", "wire"), WIRES)
def test_each_start_reads_it_where_the_broker_makes_queues(
    broker_name: str, wire: str, request: pytest.FixtureRequest, tmp_path: Path, unique: str
) -> None:
    broker = request.getfixturevalue(broker_name)
    name = f"{unique}.missing"
    with sidecar_of(broker, wire, tmp_path, name) as sidecar:
        said = sidecar.try_command("run", "--check", "--connect").stdout
        # Why not there: over AMQP Classic lists no queues.
        assert (f"queue://{name}: {MISSING}" in said) == (wire != "amqp_jms"), said
        for _ in range(2):
            sidecar.start()
            JmsPeer.of(broker, ON_ARTEMIS.get(wire, "openwire")).produce(name, "Text")
            # Why also what stays: nobody died of it, so not each wire takes it.
            eventually(lambda: sidecar.metric(TAKEN) or sidecar.left_behind(), what="it is seen")
            assert sidecar.stop() == 0
        assert MISSING not in sidecar.try_command("run", "--check", "--connect").stdout


@pytest.mark.parametrize(
    "wire",
    [pytest.param(one, marks=[] if one in OFTEN else pytest.mark.proof) for one in ON_ARTEMIS],
)
def test_each_start_is_refused_where_the_broker_makes_none(
    artemis: ArtemisBroker, wire: str, tmp_path: Path, unique: str
) -> None:
    harness = AmqpArtemisHarness(artemis, unique)
    harness.set_address(f"{unique}.off.#", autoCreateQueues=False, autoCreateAddresses=False)
    name = f"{unique}.off.missing"
    with sidecar_of(artemis, wire, tmp_path, name) as sidecar:
        said = sidecar.try_command("run", "--check", "--connect")
        assert said.returncode == 78
        assert name in said.stdout
        for _ in range(2):
            assert name in sidecar.run_refused(expect=69)
        harness.management.create_queue(name, name, is_anycast=True)
        sidecar.start()
        assert sidecar.stop() == 0
    harness.close()
