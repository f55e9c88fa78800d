"""Tries the rights of the sidecar's user on Classic, without taking or leaving messages."""

from struct import Struct

from typing_extensions import override

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.classic.queues import ClassicQueues
from amqsidecar.brokers.classic.trials import ListingTrials
from amqsidecar.brokers.connection.refusal import refusal_of
from amqsidecar.brokers.openwire.consumers import OpenWireConsumer, OpenWireConsumers
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import take_apart
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

_LONG = Struct(">q")
# Why: the time at which the broker took a message in comes before the time at which it handed it
# out and one flag (`openwire_codec.read_dispatch`).
_BROKER_IN_TIME = slice(-17, -9)


class OpenWireTrials(ListingTrials):
    """Trials over one connection.

    Attributes:
        can_remove: whether queues can be removed.
    """

    can_remove = True

    def __init__(
        self,
        consumers: OpenWireConsumers,
        encoder: OpenWireResendEncoder,
        queues: ClassicQueues,
        token_queue: Destination | None,
    ) -> None:
        super().__init__(queues, token_queue)
        self._consumers = consumers
        self._encoder = encoder
        self._number = 0

    @override
    def _consume_nothing(self, destination: Destination) -> None:
        self._consumers.remove(self._consumers.add(destination, 0, take=_ignore))

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        The trial send is rolled back. The broker creates a missing destination.
        """
        connection = self._consumers.connection
        name = connection.connection
        owner = codec.connection_id(name)
        if not self._number:
            # Why: a read-only link has no producer; the broker takes a second producer for the
            # first.
            connection.call(codec.PRODUCER_INFO, codec.producer_info(codec.producer_id(name, 1, 1)))
        self._number += 1
        # Why negative: the link counts its own transactions upwards.
        transaction = codec.transaction_id(name, -self._number)
        connection.send(
            codec.TRANSACTION_INFO, codec.transaction_info(owner, transaction, codec.BEGIN)
        )
        number = connection.next_number()
        connection.expect(number)
        now_ms = self._consumers.clock.now_ms()
        connection.write_soon(
            self._encoder.token(destination, 0, transaction, now_ms, number, answer=True)
        )
        answer = connection.answers([number])[0]
        info = codec.transaction_info(owner, transaction, codec.ROLLBACK)
        connection.answers([connection.ask(codec.TRANSACTION_INFO, info)])
        return None if answer is None else str(answer)

    def remove(self, destination: Destination) -> str | None:
        """Remove a queue with all that is in it; return the broker's words why it can't be."""
        connection = self._consumers.connection
        owner = codec.connection_id(connection.connection)
        info = codec.destination_info(owner, codec.destination_field(destination))
        return refusal_of(lambda: connection.call(codec.DESTINATION_INFO, info))

    @override
    def _times_of_token(self, token_queue: Destination) -> tuple[int, int] | None:
        found = list(self._consumers.browse(token_queue, 1))
        if not found:
            return None
        _, message = found[0]
        parts = take_apart(message)
        # Why there: the expiration comes between the delivery mode and these.
        end = message.index(parts.priority + _LONG.pack(parts.timestamp_ms), parts.producer_at)
        [stored_ms], [expires_ms] = map(
            _LONG.unpack, (message[_BROKER_IN_TIME], message[end - 8 : end])
        )
        return stored_ms, expires_ms

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return nothing: OpenWire carries every message whole."""
        del queue
        return ()


def _ignore(_consumer: OpenWireConsumer, _field: bytes, _message: bytes | None) -> None:
    """Consume without taking: the consumer asks for no message."""
