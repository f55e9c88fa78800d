"""A hostile peer over AMQP ends its connection, whatever it sends."""

from contextlib import closing

import pytest

from amqsidecar.brokers.amqp.connection import BEGUN_BYTES_MAX, AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import SystemClock
from amqsidecar.errors import BrokerRefused, LinkLost
from support.brokers.loopback import at_loopback
from support.wires.hostile_amqp import ATTACKS, whole_messages
from support.wires.hostile_broker import hostile_broker

WAITING_BYTES_MAX = 64 * 2**20
WORDS = {
    "SASL frame of 2 GiB": "a frame of type 1 with 2147483647 bytes",
    "SASL frame, nested": "does not log in as AMQP does",
    "frame of 2 GiB": "framing-error",
    "open, nested": "framing-error|ended the connection",
    "endless message": "messages that are not whole have more than 268435456 bytes",
    "unasked messages": "handed over more messages than it was asked for",
    "large answers": f"handed over more than {WAITING_BYTES_MAX} bytes",
    "unasked links": "attached a link that was not requested",
    "outcome, nested": "framing-error|closed the connection",
    "close, nested": "amqp:x: x",
}


@pytest.mark.parametrize("attack", WORDS)
def test_the_connection_ends(attack: str) -> None:
    with hostile_broker([ATTACKS[attack]]) as broker:
        endpoint = at_loopback(broker.port)
        with pytest.raises((LinkLost, BrokerRefused), match=WORDS[attack]):
            talk(endpoint)


def talk(endpoint: Endpoint) -> None:
    with closing(AmqpConnection(endpoint, SystemClock(), "sidecar")) as connection:
        receiver = Receiver(connection, "receiver", "queue", waiting_bytes_max=WAITING_BYTES_MAX)
        receiver.flow(100)
        while True:
            connection.pump(60)


def test_messages_that_came_whole_make_no_room_for_those_that_did_not() -> None:
    with hostile_broker([whole_messages(3, 500_000)]) as broker:
        connection = AmqpConnection(at_loopback(broker.port), SystemClock(), "sidecar")
        try:
            receiver = Receiver(connection, "receiver", "queue")
            receiver.flow(3)
            assert connection.run_until(lambda: len(receiver.arrived) == 3, 60)
            assert [len(message) for _, message in receiver.arrived] == [500_000] * 3
            assert connection.has_room_for(BEGUN_BYTES_MAX)
            assert not connection.has_room_for(BEGUN_BYTES_MAX + 1)
        finally:
            connection.close()
