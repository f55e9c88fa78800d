"""Determines how Classic's AMQP connector converts messages, before one is taken.

A message is sent to a temporary queue and read back. With `transport.transformer=jms` the broker
has made a JMS message of it, and encodes that again; with the others the same bytes come back, and
with `raw` the broker has not even read its properties. The queue is gone with its link.
"""

from enum import StrEnum

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender, forget, is_answered, refusal_words
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats import amqp_sections as amqp

_PROPERTY = "amqsidecarProbe"
_MESSAGE = (
    amqp.make_map(amqp.APPLICATION_PROPERTIES, [amqp.string(_PROPERTY), amqp.string("probe")])
    + b"\x00\x53\x77"
    + amqp.string("probe")
)


class Transformer(StrEnum):
    """The conversion of AMQP messages by a connector, as the broker names it."""

    JMS = "jms"
    NATIVE = "native"
    RAW = "raw"


def find_transformer(connection: AmqpConnection) -> Transformer:
    """Return the connector's conversion of messages; the probe leaves nothing behind.

    Raises:
        BrokerRefused: the user may not make, write or read a temporary queue.
        LinkLost: the connection is gone, or the broker does not answer.
    """
    owner = Receiver(connection, "amqsidecar-probe", None)
    _answered(connection, owner)
    sender = Sender(connection, "amqsidecar-probe-sender", owner.address)
    reader = Receiver(
        connection, "amqsidecar-probe-reader", owner.address, selector=f"{_PROPERTY} = 'probe'"
    )
    ends = (reader, sender, owner)
    try:
        for end in (sender, reader):
            _answered(connection, end)
        return _try(connection, sender, reader)
    finally:
        for end in ends:
            end.close()
        if connection.run_until(lambda: all(end.is_closed for end in ends)):
            for end in ends:
                end.forget()


def _try(connection: AmqpConnection, sender: Sender, reader: Receiver) -> Transformer:
    connection.run_until(lambda: sender.credit > 0 or sender.refusal)
    if sender.credit <= 0:
        raise _refused(sender.refusal or "it gives no credit")
    delivery = sender.send(_MESSAGE)
    if not connection.run_until(lambda: is_answered(delivery)):
        raise LinkLost(f"{connection.place} does not answer to a probe message")
    words = refusal_words(delivery)
    forget(delivery)
    if words is not None:
        raise _refused(words)
    reader.drain(1)
    connection.run_until(lambda: reader.is_drained or reader.refusal)
    if reader.refusal is not None:
        raise _refused(reader.refusal)
    arrived = reader.take_arrived(1)
    if not arrived:
        return Transformer.RAW
    in_hand, message = arrived[0]
    reader.accept(in_hand)
    return Transformer.NATIVE if message == _MESSAGE else Transformer.JMS


def _answered(connection: AmqpConnection, end: Receiver | Sender) -> None:
    if not connection.run_until(lambda: end.is_answered):
        raise LinkLost(f"{connection.place} does not answer to a probe")
    if end.refusal is not None:
        raise _refused(end.refusal)


def _refused(words: str) -> BrokerRefused:
    return BrokerRefused(
        "what the AMQP connector makes of messages can't be tried with a temporary queue, so "
        f"nothing is taken: {words}; give the sidecar's user read, write and admin in "
        "<tempDestinationAuthorizationEntry> of activemq.xml, and admin on ActiveMQ.Advisory.>"
    )
