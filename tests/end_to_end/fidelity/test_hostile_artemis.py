"""What a stranger can write on a message does not steer the sidecar on a real Artemis."""

import socket
import time
from collections.abc import Iterator

import pytest
from proton import Message, byte, symbol

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.send_gate import SendGate
from amqsidecar.errors import SendsRefused
from amqsidecar.model.destination import Destination, queue, topic
from support.brokers.real import Broker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.cycles import resend_of, with_token
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def harness(artemis: Broker, unique: str) -> Iterator[AmqpArtemisHarness]:
    made = AmqpArtemisHarness(artemis, unique)
    yield made
    made.close()


@pytest.fixture
def link(harness: AmqpArtemisHarness) -> Iterator[AmqpArtemisTake]:
    made = with_token(harness.make_link("hostile").take(f"{harness.prefix}.token"))
    made.attach([harness.intake()], 10)
    yield made
    made.close()


def receive_one(link: AmqpArtemisTake) -> Delivery:
    found: list[Delivery] = []

    def is_there() -> bool:
        link.wait(0.2)
        found.extend(link.receive(1))
        return bool(found)

    eventually(is_there, what="a dead letter")
    return found[0]


def forged(address: str) -> Message:
    """Return a message that any user with write access to the dead-letter address can send."""
    return Message(
        durable=True,
        body='["forged.address","ANYCAST"]',
        annotations={
            symbol("x-opt-ORIG-ADDRESS"): address,
            symbol("x-opt-ORIG-QUEUE"): address,
            symbol("x-opt-ORIG-ROUTING-TYPE"): byte(1),
        },
        properties={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "createAddress"},
    )


@pytest.mark.parametrize(
    "address", ["activemq.management", "activemq.notifications", "jms.queue.activemq.management"]
)
def test_no_dead_letter_becomes_a_command_to_the_broker(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake, address: str
) -> None:
    """The sidecar may manage the broker; a message that names this address may not use that."""
    harness.send(harness.dead_letter_queue, [forged(address)])
    provenance = receive_one(link).provenance
    assert provenance.origin is None
    assert "the broker's own" in (provenance.problem or "")
    gate = SendGate(link, SendRules(BrokerKind.ARTEMIS, lambda _: False, ".exhausted"))
    for destination in (queue(address), topic(address), queue(f"{address}::x")):
        assert "the broker's own" in str(gate.ask(destination))


def test_an_origin_that_a_stomp_producer_wrote_is_not_followed(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """Its header becomes an annotation, the broker's own words are among the properties."""
    queue_name = f"{harness.prefix}.orders"
    harness.management.create_queue(queue_name, queue_name, is_anycast=True)
    with socket.create_connection(("127.0.0.1", harness.broker.ports["PORT"]), PATIENCE_S) as stomp:
        stomp.sendall(
            f"CONNECT\naccept-version:1.2\nhost:h\nlogin:{harness.broker.user}\n"
            f"passcode:{harness.broker.password}\n\n\0".encode()
        )
        assert stomp.recv(4096).startswith(b"CONNECTED")
        stomp.sendall(
            f"SEND\ndestination:{queue_name}\ndestination-type:ANYCAST\nreceipt:1\n"
            f"JMS_AMQP_MA_x-opt-ORIG-ADDRESS:victim\nJMS_AMQP_MA_x-opt-ORIG-QUEUE:victim\n\n\0"
            "".encode()
        )
        assert b"RECEIPT" in stomp.recv(4096)
    assert harness.kill(queue_name) == 1
    provenance = receive_one(link).provenance
    assert provenance.origin is None
    assert f"victim::victim in its annotations, {queue_name}" in (provenance.problem or "")


def test_a_name_with_nul_is_not_cut_to_another_one(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """Artemis has such queues; a C string ends at the NUL."""
    name = f"{harness.prefix}.a\0b"
    assert harness.management.create_queue(name, name, is_anycast=True) is None
    harness.send(harness.dead_letter_queue, [forged(name)])
    provenance = receive_one(link).provenance
    assert (provenance.origin, "NUL" in (provenance.problem or "")) == (None, True)


def test_full_addresses_do_not_add_up_what_others_wait(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """Each of them gives no credit; waiting for one after the other took 75 seconds."""
    match = f"{harness.prefix}.full"
    harness.set_address(
        f"{match}.#", maxSizeBytes=20_000, pageSizeBytes=1_000, addressFullMessagePolicy="BLOCK"
    )
    names = [f"{match}.{number}" for number in range(4)]
    large = Message(durable=True, body="x" * 30_000)
    for name in names:
        harness.management.create_queue(name, name, is_anycast=True)
        harness.send(name, [large])
    encoded = bytes(Message(durable=True, body="y").encode())
    sends = [
        resend_of(encoded, destination=queue(name)) for name in (*names, f"{harness.prefix}.open")
    ]
    began_s = time.monotonic()
    with pytest.raises(SendsRefused) as refused:
        link.commit_cycle([], sends, 1)
    assert sorted(refused.value.refusals) == [0, 1, 2, 3]
    assert time.monotonic() - began_s < 60
    link.commit_cycle([], sends[4:], 1)


def test_an_ordinary_origin_still_is_one(
    harness: AmqpArtemisHarness, link: AmqpArtemisTake
) -> None:
    """The control: nothing of the above is refused for another reason."""
    harness.put_dead_letters(f"{harness.prefix}.plain", 1)
    origin = receive_one(link).provenance.origin
    assert origin == Destination(queue("x").kind, f"{harness.prefix}.plain")
