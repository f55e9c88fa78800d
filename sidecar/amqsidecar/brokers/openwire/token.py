"""The token of an instance in its private queue on Classic."""

from contextlib import suppress

from amqsidecar.brokers.classic.token import PREFETCH, TokenChoice
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.brokers.openwire.consumers import (
    MessageHandle,
    OpenWireConsumer,
    OpenWireConsumers,
    ack_fields,
)
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import read_cycle, read_dead_letter
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination


class OpenWireTokenQueue(TokenChoice[MessageHandle]):
    """Waits for tokens and keeps the one in hand."""

    def __init__(
        self,
        destination: Destination,
        connection: OpenWireConnection,
        consumers: OpenWireConsumers,
        encoder: OpenWireResendEncoder,
        clock: Clock,
        rules_digest: str,
    ) -> None:
        super().__init__(destination, connection, consumers, clock)
        self._connection = connection
        self._consumers = consumers
        self._encoder = encoder
        self._rules_digest = rules_digest
        consumers.add(destination, PREFETCH, take=self._take_in, exclusive=True)

    def _take_in(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        cycle = None if message is None else read_cycle(message)
        if message is not None and cycle is not None:
            message_id = read_dead_letter(message, None, 0)[1]
            self._tokens.append((cycle, MessageHandle(consumer, field, message_id, 0)))

    def _remove(self, held: MessageHandle) -> None:
        with suppress(CommandRefused):
            self._connection.call(codec.MESSAGE_ACK, ack_fields(codec.NULL, held, held))

    def _count(self) -> int:
        try:
            messages = self._consumers.browse(self._destination, PREFETCH + 1)
        except CommandRefused as cause:
            raise BrokerRefused(f"can't browse {self._destination}: {cause}") from cause
        return sum(1 for message in messages if read_cycle(message) is not None)

    def create(self, cycle: int) -> None:
        """Send a token outside of any transaction; durable when this returns.

        Raises:
            CommandRefused: the broker does not take it.
        """
        number = self._connection.next_number()
        self._connection.expect(number)
        self._connection.write_soon(self._frame(codec.NULL, cycle, number, answer=True))
        reason = self._connection.answers([number])[0]
        if reason is not None:
            raise CommandRefused(reason)

    def put_exchange(self, transaction: bytes, held: MessageHandle, cycle: int) -> None:
        """Put the ack of the token in hand and the send of the next one."""
        self._connection.send(codec.MESSAGE_ACK, ack_fields(transaction, held, held))
        number = self._connection.next_number()
        self._connection.write_soon(self._frame(transaction, cycle, number, answer=False))

    def _frame(self, transaction: bytes, cycle: int, number: int, *, answer: bool) -> bytes:
        now_ms = self._clock.now_ms()
        return self._encoder.token(
            self._destination,
            cycle,
            transaction,
            now_ms,
            number,
            rules_digest=self._rules_digest,
            answer=answer,
        )
