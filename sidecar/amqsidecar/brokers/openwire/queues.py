"""The queues of a Classic broker, known from its advisories over OpenWire.

Source: ActiveMQ Classic, DestinationInfoMarshaller.
"""

from amqsidecar.brokers.classic.queues import (
    ADVISORY_PREFETCH,
    QUEUE_ADVISORIES,
    ClassicQueues,
    is_ours,
    is_wildcard,
    pattern_of,
)
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.consumers import (
    MessageHandle,
    OpenWireConsumer,
    OpenWireConsumers,
    ack_fields,
)
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import read_dead_letter, read_destination_info
from amqsidecar.model.destination import Destination, DestinationKind

__all__ = [
    "OpenWireQueueWatch",
    "is_ours",
    "is_wildcard",
    "pattern_of",
]


class OpenWireQueueWatch(ClassicQueues):
    """Expands wildcards, now and whenever a queue is created or deleted.

    What reading advisories is refused with is the connection's `Refused`.
    """

    def __init__(
        self, connection: OpenWireConnection, consumers: OpenWireConsumers, final_suffix: str
    ) -> None:
        super().__init__(connection.name, final_suffix)
        self._connection = connection
        self._consumers = consumers

    def _listen(self, known: Destination | None) -> None:
        self._consumers.add(
            QUEUE_ADVISORIES, ADVISORY_PREFETCH, take=self._take_in, asynchronous=False
        )
        self._consumers.route()

    def _take_in(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is None:
            return
        message_id = read_dead_letter(message, None, 0)[1]
        handle = MessageHandle(consumer, field, message_id, 0)
        self._connection.send(codec.MESSAGE_ACK, ack_fields(codec.NULL, handle, handle))
        told = read_destination_info(message)
        if told is not None and told[0].kind is DestinationKind.QUEUE:
            self.told(told[0].name, is_removed=told[1])
