"""An application sends a redelivered message on: the copy arrives, and begins its own life.

Forwarders, retry wrappers and bridges do so: they send the received message itself, or copy its
properties, ours among them, into a new one.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from amqsidecar.brokers.artemis.management import ManagementQuestion
from support.brokers.broker_xml import attempts_without_limit
from support.brokers.purge import manage_artemis
from support.brokers.real import ArtemisBroker, Broker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
# Why: what is tested comes from our policy; so each failed delivery is a death here.
SETTINGS = """
    <address-setting match="#">
      <dead-letter-address>DLQ</dead-letter-address>
      <max-delivery-attempts>1</max-delivery-attempts>
    </address-setting>
""" + attempts_without_limit("DLQ")
WIRES = {
    "artemis over AMQP": ("artemis", "amqp_url"),
    "artemis over Core": ("artemis", "core_url"),
    "artemis over Core and AMQP": ("artemis", "pair_url"),
    "artemis over STOMP": ("artemis", "stomp_url"),
    "classic over OpenWire": ("classic_6", "openwire_url"),
}
# Why not Core over STOMP: numbers among the properties stay behind there.
CLIENTS = [
    *(("artemis over AMQP", client) for client in ("core", "qpid", "openwire")),
    ("classic over OpenWire", "openwire"),
    *(("artemis over Core and AMQP", client) for client in ("core", "qpid", "openwire")),
    *(("artemis over Core", client) for client in ("core", "openwire")),
]
# Why in proof: a pair sends over each of them what came over it.
IN_PROOF = ("artemis over AMQP", "artemis over Core")
# Two of eight ways for each client, in `make test`: together all, and each client each value.
AT_ONCE = {
    ("same", "as-is", "auto"): 0,
    ("other", "copied", "transacted"): 0,
    ("same", "as-is", "transacted"): 1,
    ("other", "copied", "auto"): 1,
    ("same", "copied", "auto"): 2,
    ("other", "as-is", "transacted"): 2,
    ("same", "copied", "transacted"): 3,
    ("other", "as-is", "auto"): 3,
}
"""The client's number in `CLIENTS`, modulo 4, by target, copying and acknowledgement."""
# Why the last two: Artemis keeps them of our SEND, and would take them for orders again.
OF_THE_FRAME = frozenset(
    ("destination", "subscription", "ack", "message-id", "redelivered", "transaction", "receipt")
)


def marks_of(wire: str, *, is_at_once: bool = True) -> list[pytest.MarkDecorator]:
    return [] if is_at_once and wire not in IN_PROOF else [pytest.mark.proof]


def on_wires(*wires: str) -> pytest.MarkDecorator:
    """Attach a sidecar over each of these wires in turn."""
    values = [pytest.param(wire, marks=marks_of(wire)) for wire in wires]
    return pytest.mark.parametrize("attached", values, indirect=True)


class Attached(NamedTuple):
    """A broker with a sidecar that reads its dead letters."""

    broker: Broker
    sidecar: SidecarProcess
    wire: str

    def peer(self, client: str) -> JmsPeer:
        return JmsPeer.of(self.broker, client)

    @property
    def is_artemis(self) -> bool:
        return isinstance(self.broker, ArtemisBroker)

    def history(self, redelivery_id: str) -> list[str]:
        """Return what happened in one life, without when and where."""
        story = self.sidecar.json_command("show", redelivery_id)
        return [event["type"] for event in story["history"]]


@pytest.fixture(scope="module")
def artemis_of_policy() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def attached(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attached]:
    kind, url = WIRES[request.param]
    is_artemis = kind == "artemis"
    broker = request.getfixturevalue("artemis_of_policy" if is_artemis else kind)
    with SidecarProcess(
        tmp_path_factory.mktemp("sidecar"),
        getattr(broker, url),
        policy=POLICIES / ("artemis.yaml" if is_artemis else "redelivery.yaml"),
        sets=["intake.backlog=process"],
    ) as sidecar:
        yield Attached(broker, sidecar.start(), request.param)
        assert sidecar.stop() == 0


@pytest.fixture
def queue(unique: str) -> str:
    return f"e2e.forward.{unique}"


def place(queue: str, target: str) -> str:
    return queue if target == "same" else f"{queue}.to"


def died_once(
    peer: JmsPeer, queue: str, test_id: str, properties: Mapping[str, str] | None = None
) -> JmsMessage:
    """Let one message die once; return it as sent. Its redelivery is on its way."""
    [sent] = peer.produce(
        queue, "Text", test_id=test_id, properties=properties or {}, sample_properties=False
    )
    peer.fail(queue, messages=1, deliveries=1)
    return sent


@pytest.mark.parametrize(
    ("attached", "client", "target", "copying", "acknowledging"),
    [
        pytest.param(
            *wire_and_client,
            *way,
            marks=marks_of(wire_and_client[0], is_at_once=number % 4 == at_once),
        )
        for number, wire_and_client in enumerate(CLIENTS)
        for way, at_once in AT_ONCE.items()
    ],
    indirect=["attached"],
)
def test_what_an_application_sends_on_arrives_and_begins_a_life_of_its_own(
    attached: Attached, client: str, queue: str, target: str, copying: str, acknowledging: str
) -> None:
    """The broker takes the copy of a redelivered message for a new message, and keeps it.

    Its first death counts as the first, and is no return of the message that was redelivered.
    """
    copies, transacted = copying == "copied", acknowledging == "transacted"
    peer, to = attached.peer(client), place(queue, target)
    sent = died_once(peer, queue, queue)
    [onward] = peer.forward(queue, to, copies=copies, transacted=transacted)
    assert int(onward.value("amqsidecarRedeliveryCount")) == 1

    copy, redelivered = peer.fail(to, messages=1, deliveries=2)

    first_life = str(onward.value("amqsidecarRedeliveryId"))
    second_life = str(redelivered.value("amqsidecarRedeliveryId"))
    assert copy.value("amqsidecarRedeliveryId") == first_life != second_life
    assert int(redelivered.value("amqsidecarRedeliveryCount")) == 1
    assert (
        (copy.test_id, copy.body) == (sent.test_id, sent.body) == (copy.test_id, redelivered.body)
    )
    assert attached.history(first_life) == ["received", "scheduled", "resent"]
    # Why wait: the consumer may have it before the store knows that it was sent.
    eventually(
        lambda: attached.history(second_life)[:3] == ["received", "scheduled", "resent"],
        what="its own history begins",
    )
    [last] = peer.consume(to, count=1)
    assert last.value("amqsidecarRedeliveryId") == second_life
    assert peer.consume(to, wait_ms=300) == []


@on_wires("artemis over AMQP", "artemis over Core and AMQP")
@pytest.mark.parametrize("client", ["core", "qpid"])
def test_what_had_a_duplicate_id_of_its_producer_may_be_sent_on(
    attached: Attached, client: str, queue: str
) -> None:
    """The broker knows that id, too, and the redelivery has it under another name."""
    peer = attached.peer(client)
    died_once(peer, queue, queue, {"_AMQ_DUPL_ID": queue})
    [onward] = peer.forward(queue, queue, copies=True)
    assert onward.value("amqsidecarOriginalDuplicateId") == queue
    assert len(peer.consume(queue, count=1)) == 1


@on_wires("artemis over AMQP", "artemis over Core and AMQP")
def test_what_the_broker_moves_back_out_of_a_final_queue_begins_a_new_life(
    attached: Attached, queue: str
) -> None:
    """Else its next failure would exhaust it at once."""
    broker = attached.broker
    assert isinstance(broker, ArtemisBroker)
    peer = attached.peer("qpid")
    # Why: the broker deletes a queue that it has made itself once it is empty and not used.
    lasting = {"name": queue, "address": queue, "routing-type": "ANYCAST", "auto-delete": False}
    manage_artemis(broker, ManagementQuestion("broker", "createQueue", (json.dumps(lasting),)))
    died_once(peer, queue, queue)
    *_, last = peer.fail(queue, messages=1, deliveries=2)
    first_life = str(last.value("amqsidecarRedeliveryId"))
    assert int(last.value("amqsidecarRedeliveryCount")) == 2
    eventually(lambda: first_life in in_final_queue(peer), what="it is in its final queue")
    move = ("moveMessages", (f"amqsidecarRedeliveryId = '{first_life}'", queue))
    question = ManagementQuestion("queue.DLQ.exhausted", *move)
    eventually(lambda: manage_artemis(broker, question) == 1, what="it is moved back")

    _, redelivered = peer.fail(queue, messages=1, deliveries=2)

    assert redelivered.value("amqsidecarRedeliveryId") != first_life
    assert int(redelivered.value("amqsidecarRedeliveryCount")) == 1
    assert attached.history(first_life).count("returned") == 2


def in_final_queue(peer: JmsPeer) -> set[object]:
    """Return the redelivery ids of what lies in the final queue."""
    return {one.value("amqsidecarRedeliveryId") for one in peer.browse("DLQ.exhausted")}


@on_wires(*WIRES)
@pytest.mark.parametrize("target", ["same", "other"])
def test_what_a_stomp_application_sends_on_arrives_and_begins_a_life_of_its_own(
    attached: Attached, queue: str, target: str
) -> None:
    """With all headers that it was shown, but those that say something about a frame."""
    peer, to = reader(attached), place(queue, target)
    first_life = forward_over_stomp(attached, queue, target)
    if (attached.wire, target) == ("artemis over STOMP", "same"):
        # Why no death: there the copy of a STOMP client has nothing in which it differs.
        [found] = peer.consume(to, count=1)
        assert found.value("testId") == queue
    else:
        copy, redelivered = peer.fail(to, messages=1, deliveries=2)
        assert copy.value("testId") == queue
        assert copy.value("amqsidecarRedeliveryId") == first_life
        assert redelivered.value("amqsidecarRedeliveryId") != first_life
        assert int(redelivered.value("amqsidecarRedeliveryCount")) == 1
        assert attached.history(first_life) == ["received", "scheduled", "resent"]
        assert len(peer.consume(to, count=1)) == 1
    assert peer.consume(to, wait_ms=300) == []


def reader(attached: Attached) -> JmsPeer:
    """Return a consumer that sees what STOMP clients have sent."""
    return attached.peer("core" if attached.is_artemis else "openwire")


def forward_over_stomp(attached: Attached, queue: str, target: str) -> str:
    """Let a STOMP client send a redelivered message on; return the id of its redelivery."""
    peer = reader(attached)
    port = attached.broker.ports["PORT" if attached.is_artemis else "STOMP_PORT"]
    prefix = "" if attached.is_artemis else "/queue/"
    kind = {"destination-type": "ANYCAST"} if attached.is_artemis else {}
    reading = {"subscription-type": "ANYCAST"} if attached.is_artemis else {}
    with StompPeer(port) as stomp:
        stomp.send(prefix + queue, {**kind, "testId": queue}, b"body")
        peer.fail(queue, messages=1, deliveries=1)
        stomp.subscribe(prefix + queue, headers=reading)
        redelivered = stomp.receive()
        assert redelivered.headers["amqsidecarRedeliveryCount"] == "1"
        copied = {
            name: value for name, value in redelivered.headers.items() if name not in OF_THE_FRAME
        }
        stomp.ack(redelivered)
        # Why: the broker may notice the closed connection late, and fail the copy there.
        stomp.unsubscribe()
    with StompPeer(port) as stomp:
        stomp.send(prefix + place(queue, target), {**copied, **kind}, redelivered.body)
    return copied["amqsidecarRedeliveryId"]
