"""Hearing of each death on Classic: the broker's MessageDLQd advisories.

Source: ActiveMQ Classic, AdvisoryBroker.sendToDeadLetterQueue: after the dead letter is stored, a
copy of the message as it was, without its body, is published on a topic of its destination.
"""

from collections import deque

from amqsidecar.broker import Delivery
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.consumers import (
    MessageHandle,
    OpenWireConsumer,
    OpenWireConsumers,
    ack_fields,
)
from amqsidecar.clock import Clock
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import read_death
from amqsidecar.model.destination import topic

_ADVISORIES = "ActiveMQ.Advisory.MessageDLQd"
_PREFETCH = 1000
# Bound: what comes faster than anyone asks is lost, unless a browse finds it.
_HEARD_MAX = 10_000


class Deaths:
    """The deaths since the last call."""

    def __init__(
        self, connection: OpenWireConnection, consumers: OpenWireConsumers, clock: Clock
    ) -> None:
        """Begin to listen.

        Raises:
            CommandRefused: the broker does not allow it.
        """
        self._connection = connection
        self._consumers = consumers
        self._clock = clock
        self._heard: deque[Delivery] = deque(maxlen=_HEARD_MAX)
        consumers.add(topic(f"{_ADVISORIES}.>"), _PREFETCH, take=self._take_in)

    def heard(self) -> list[Delivery]:
        """Return the deaths since the last call, in order; never blocks.

        Raises:
            LinkLost: the connection is gone.
        """
        self._connection.poll()
        self._consumers.route()
        found = list(self._heard)
        self._heard.clear()
        return found

    def _take_in(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is None:
            return
        provenance, message_id = read_death(message, self._clock.now_ms())
        handle = MessageHandle(consumer, field, message_id, 0)
        self._connection.send(codec.MESSAGE_ACK, ack_fields(codec.NULL, handle, handle))
        origin = None if provenance is None else provenance.origin
        if provenance is None or origin is None:
            return
        # Why: a copy of a virtual topic names the topic; its dead-letter queue follows the queue.
        kind = "Queue" if origin.is_queue else "Topic"
        if codec.read_destination(field) == topic(f"{_ADVISORIES}.{kind}.{origin.name}"):
            self._heard.append(Delivery(None, origin, b"", provenance, codec.ENCODING))
