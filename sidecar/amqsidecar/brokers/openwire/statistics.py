"""Asks Classic's statistics plugin over OpenWire.

Source: ActiveMQ Classic, StatisticsBroker.send.
"""

from collections.abc import Sequence

from amqsidecar.brokers.classic.statistics import (
    ANSWER_S,
    BROKER_QUESTION,
    END_PROPERTY,
    FIELDS,
    QUESTION_MS,
    StatisticsReply,
)
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
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


class OpenWireStatistics:
    """Questions and answers over one connection, with a temporary queue for the answers."""

    def __init__(
        self,
        connection: OpenWireConnection,
        consumers: OpenWireConsumers,
        encoder: OpenWireResendEncoder,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._consumers = consumers
        self._encoder = encoder
        self._clock = clock
        name = f"{connection.connection}:1"
        self._reply_to = Destination(DestinationKind.TEMP_QUEUE, name)
        self._is_begun = False
        self._answers: list[StatisticsReply] = []

    def ask(self, questions: Sequence[Destination]) -> list[StatisticsReply] | None:
        """Send questions to these destinations; None = there is no answer.

        Raises:
            LinkLost: the connection is gone.
        """
        try:
            if not self._is_begun:
                self._begin()
                if not self._answered([BROKER_QUESTION]):
                    return None
        except CommandRefused:
            return None
        self._is_begun = True
        return [told for told in self._answered(questions, has_end=True) if told]

    def _begin(self) -> None:
        connection, name = self._connection, self._connection.connection
        producer = codec.producer_info(codec.producer_id(name, 1, 1))
        made = codec.destination_info(
            codec.connection_id(name), codec.destination_field(self._reply_to), is_removed=False
        )
        connection.call(codec.PRODUCER_INFO, producer)
        connection.call(codec.DESTINATION_INFO, made)
        self._consumers.add(self._reply_to, _PREFETCH, take=self._take)

    def _answered(
        self, questions: Sequence[Destination], *, has_end: bool = False
    ) -> list[StatisticsReply]:
        """Return the answers until each question had its last one, or the time is over."""
        self._answers.clear()
        now_ms = self._clock.now_ms()
        entries = [string_entry(END_PROPERTY, "true")] if has_end else []
        for question in questions:
            number = self._connection.next_number()
            frame = self._encoder.question(
                question, self._reply_to, entries, now_ms, now_ms + QUESTION_MS, number
            )
            self._connection.write_soon(frame)
        ends_s = self._clock.monotonic_s() + ANSWER_S
        while self._count_ends(has_end=has_end) < len(questions):
            left_s = ends_s - self._clock.monotonic_s()
            if left_s <= 0:
                break
            self._connection.wait(left_s)
            self._consumers.route()
        return list(self._answers)

    def _count_ends(self, *, has_end: bool) -> int:
        return sum(not told for told in self._answers) if has_end else len(self._answers)

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
