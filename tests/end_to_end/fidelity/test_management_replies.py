"""An answer of the broker to a killed sidecar becomes no message of a consumer."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from proton import Message

from amqsidecar.broker import TakeSession
from amqsidecar.brokers.amqp_artemis import management as amqp_artemis_management
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from amqsidecar.brokers.stomp_artemis.management import _body
from amqsidecar.brokers.stomp_artemis.take import StompArtemisTake
from amqsidecar.errors import LinkLost
from amqsidecar.formats.artemis_properties import BROKER_MADE
from support.brokers.real import ArtemisBroker, Broker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.artemis import ArtemisHarness
from support.links.core_artemis import CoreArtemisHarness, text_message
from support.links.stomp_artemis import StompArtemisHarness
from support.tier import at_length
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

# As where every failed delivery is to be a death.
SETTINGS = """
<address-setting match="#">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>1</max-delivery-attempts>
</address-setting>
"""
# Why this number: the broker counts only some of the replies as failed deliveries.
KILLS = at_length(15, otherwise=2)
ASKED = ManagementQuestion("broker", "getAddressNames")
WIRES = pytest.mark.parametrize(
    "wire",
    [AmqpArtemisHarness, CoreArtemisHarness, StompArtemisHarness],
    ids=lambda one: one.name,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker(address_settings=SETTINGS) as running:
        yield running


def reply_address(link: TakeSession) -> str:
    """Return where the answers to a link go."""
    if isinstance(link, AmqpArtemisTake):
        return link._management._receiver.address
    if isinstance(link, CoreArtemisTake):
        return link._management._replies
    assert isinstance(link, StompArtemisTake)
    return link._management._reply_to.decode()


def ask_without_reading(link: TakeSession) -> None:
    """Ask the broker something over a link."""
    if isinstance(link, AmqpArtemisTake):
        question = amqp_artemis_management._encode(ASKED, reply_address(link), 1_000_000)
        link._management._sender.send(question)
        link._connection.pump(0)
        return
    if isinstance(link, CoreArtemisTake):
        link._management._session.ask_send(link._management._encode(ASKED, 1_000_000))
        link._connection.flush()
        return
    assert isinstance(link, StompArtemisTake)
    management = link._management
    management._connection.send("SEND", management._headers(ASKED, 1_000_000), _body(ASKED))
    management._connection.flush()


def reset(link: TakeSession) -> None:
    """End the connections of a link as the kernel does when a process is killed that has not read.

    It answers what arrives with a reset, which the broker takes for a failure of the connection.
    """
    if isinstance(link, AmqpArtemisTake | CoreArtemisTake):
        sockets = [link._connection._socket]
    else:
        assert isinstance(link, StompArtemisTake)
        sockets = [link._management._connection._transport.socket]
    for one in sockets:
        assert one is not None
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()


@WIRES
def test_an_unread_answer_is_no_dead_letter(
    broker: ArtemisBroker, unique: str, wire: type[ArtemisHarness]
) -> None:
    """Sidecars are killed when the broker has sent an answer that they have not read."""
    harness = wire(broker, unique)

    def added(address: str) -> int:
        [row] = harness.management.queues(address=address)
        answer = harness.management.ask(
            ManagementQuestion(f"queue.{row.name}", attribute="MessagesAdded")
        )
        return int(answer.value)

    def is_gone(address: str) -> bool:
        return not harness.management.queues(address=address)

    try:
        for number in range(KILLS):
            link = harness.make_link(f"killed-{number}").take(f"{unique}.token.{number}")
            address = reply_address(link)
            before = added(address)
            ask_without_reading(link)
            eventually(partial(_is_more, added, address, before), what="the broker has answered")
            reset(link)
            eventually(partial(is_gone, address), what="the queue of the answers is gone")
            with suppress(LinkLost, OSError, ValueError):
                link.close()
        assert harness.depth("DLQ") == 0
    finally:
        harness.ask("queue.DLQ", "removeMessages", "")
        harness.close()


def _is_more(count: Callable[[str], int], address: str, before: int) -> bool:
    return count(address) > before


@WIRES
def test_an_answer_in_a_dead_letter_queue_is_no_dead_letter(
    artemis: Broker, unique: str, wire: type[ArtemisHarness]
) -> None:
    """Of a client that read answers otherwise, or by `send-to-dla-on-no-route`: it is parked."""
    harness = wire(artemis, unique)
    origin = f"{unique}.answers"
    if isinstance(harness, StompArtemisHarness):
        harness.put(origin, b"[]", _AMQ_OperationSucceeded="true")
    elif isinstance(harness, CoreArtemisHarness):
        harness.put([text_message(origin, "[]", _AMQ_OperationSucceeded="true")])
    else:
        assert isinstance(harness, AmqpArtemisHarness)
        harness.send(
            origin, [Message(durable=True, body="[]", properties={"_AMQ_OperationSucceeded": True})]
        )
    harness.kill(origin)
    link = harness.make_link("e2e").take(f"{unique}.token")
    try:
        link.token.create(0)
        assert link.token.take(PATIENCE_S) == 0
        link.attach([harness.intake()], 10)

        def received() -> list[str | None]:
            link.wait(0.2)
            return [one.provenance.problem for one in link.receive(10)]

        assert eventually(received) == [BROKER_MADE]
    finally:
        link.close()
        harness.close()
