"""An application sends a redelivered message on: the copy arrives, and begins its own life.

Forwarders, retry wrappers and bridges do so: they send the received message itself, or copy its
properties, ours among them, into a new one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers import ArtemisBroker
from support.jms_message import JmsMessage
from support.jms_peer import JmsPeer
from support.sidecar_logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar_process import SidecarProcess

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parent / "policies"
# Why: what is tested comes from our policy; so each failed delivery is a death here.
SETTINGS = """
    <address-setting match="#">
      <dead-letter-address>DLQ</dead-letter-address>
      <max-delivery-attempts>1</max-delivery-attempts>
    </address-setting>
    <address-setting match="DLQ">
      <max-delivery-attempts>-1</max-delivery-attempts>
    </address-setting>
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def sidecar(
    broker: ArtemisBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SidecarProcess]:
    with SidecarProcess(
        tmp_path_factory.mktemp("sidecar"),
        broker.amqp_url,
        policy=POLICIES / "artemis.yaml",
        sets=["intake.backlog=process"],
    ) as started:
        yield started.start()
        assert started.stop() == 0


@pytest.fixture(params=["core", "qpid"])
def peer(request: pytest.FixtureRequest, broker: ArtemisBroker, sidecar: SidecarProcess) -> JmsPeer:
    """Each JMS client in turn, on a broker with a sidecar."""
    return JmsPeer.of(broker, request.param)


def redelivered(peer: JmsPeer, queue: str, test_id: str) -> JmsMessage:
    """Let one message die once; return it as sent. Its redelivery is on its way."""
    [sent] = peer.produce(queue, "Text", test_id=test_id, sample_properties=False)
    peer.fail(queue, messages=1, deliveries=1)
    return sent


@pytest.mark.parametrize("transacted", [False, True], ids=["auto", "transacted"])
@pytest.mark.parametrize("copies", [False, True], ids=["as-is", "copied"])
@pytest.mark.parametrize("target", ["same", "other"])
def test_what_an_application_sends_on_arrives(
    peer: JmsPeer, unique: str, target: str, copies: bool, transacted: bool
) -> None:
    """The broker takes the copy of a redelivered message for a new message, and keeps it."""
    queue = f"e2e.forward.{unique}"
    to = queue if target == "same" else f"{queue}.to"
    sent = redelivered(peer, queue, unique)

    [onward] = peer.forward(queue, to, copies=copies, transacted=transacted)

    assert onward.value("amqsidecarRedeliveryCount") == 1
    [found] = peer.consume(to, count=1)
    assert (found.test_id, found.body) == (sent.test_id, sent.body)
    assert peer.consume(to, wait_ms=300) == []
