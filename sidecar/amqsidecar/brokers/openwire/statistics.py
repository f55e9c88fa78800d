"""Asks Classic's statistics plugin over OpenWire.

Source: ActiveMQ Classic, StatisticsBroker.send.
"""

from collections.abc import Sequence

from amqsidecar.brokers.classic.statistics import (
    END_PROPERTY,
    FIELDS,
    QUESTION_MS,
    StatisticsQuestions,
)
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.consumers import (
    MessageHandle,
    OpenWireConsumer,
    OpenWireConsumers,
    ack_fields,
)
from amqsidecar.clock import Clock
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import map_content, read_dead_letter
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.formats.openwire_properties import read_properties, string_entry
from amqsidecar.model.destination import Destination, DestinationKind

_PREFETCH = 1_000
_FIELDS = frozenset(field.encode() for field in FIELDS)


class OpenWireStatistics(StatisticsQuestions):
    """Asks over one connection."""

    def __init__(
        self,
        connection: OpenWireConnection,
        consumers: OpenWireConsumers,
        encoder: OpenWireResendEncoder,
        clock: Clock,
    ) -> None:
        super().__init__(connection, consumers, clock)
        self._connection = connection
        self._consumers = consumers
        self._encoder = encoder
        name = f"{connection.connection}:1"
        self._reply_to = Destination(DestinationKind.TEMP_QUEUE, name)

    def _begin(self) -> None:
        connection, name = self._connection, self._connection.connection
        producer = codec.producer_info(codec.producer_id(name, 1, 1))
        made = codec.destination_info(
            codec.connection_id(name), codec.destination_field(self._reply_to), is_removed=False
        )
        connection.call(codec.PRODUCER_INFO, producer)
        connection.call(codec.DESTINATION_INFO, made)
        self._consumers.add(self._reply_to, _PREFETCH, take=self._take)

    def _put(self, questions: Sequence[Destination], *, has_end: bool) -> None:
        now_ms = self._clock.now_ms()
        entries = [string_entry(END_PROPERTY, "true")] if has_end else []
        for question in questions:
            number = self._connection.next_number()
            frame = self._encoder.question(
                question, self._reply_to, entries, now_ms, now_ms + QUESTION_MS, number
            )
            self._connection.write_soon(frame)

    def _take(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is None:
            return
        message_id = read_dead_letter(message, None, 0)[1]
        handle = MessageHandle(consumer, field, message_id, 0)
        self._connection.send(codec.MESSAGE_ACK, ack_fields(codec.NULL, handle, handle))
        try:
            found = read_properties(map_content(message), _FIELDS)
        except UndecodableMessage:
            return
        self._answers.append({name.decode(): value for name, value in found.items()})
