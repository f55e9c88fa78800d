"""Tries the rights of the sidecar's user on Classic, without taking or leaving messages."""

from collections.abc import Sequence
from struct import Struct

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.brokers.openwire.consumers import OpenWireConsumer, OpenWireConsumers
from amqsidecar.brokers.openwire.queues import OpenWireQueueWatch
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import take_apart
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.trials import TrialFeatures

_LONG = Struct(">q")
# Why: the time at which the broker took a message in comes before the time at which it handed it
# out and one flag (`openwire_codec.read_dispatch`).
_BROKER_IN_TIME = slice(-17, -9)


class OpenWireTrials:
    """Trials over one connection.

    Attributes:
        can_remove: whether queues can be removed.
    """

    can_remove = True

    def __init__(
        self,
        connection: OpenWireConnection,
        consumers: OpenWireConsumers,
        encoder: OpenWireResendEncoder,
        queues: OpenWireQueueWatch,
        clock: Clock,
        token_queue: Destination | None,
    ) -> None:
        self._connection = connection
        self._consumers = consumers
        self._encoder = encoder
        self._queues = queues
        self._token_queue = token_queue
        self._clock = clock
        self._number = 0

    @property
    def features(self) -> TrialFeatures:
        """The optional parts of these trials."""
        return TrialFeatures(expiration=self)

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The consumer asks for no message. The broker makes the destination where it is missing.
        """
        try:
            consumer = self._consumers.add(destination, 0, take=_ignore)
        except CommandRefused as cause:
            return str(cause)
        self._consumers.remove(consumer)
        return None

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        What is sent for it is rolled back. The broker makes the destination where it is missing.
        """
        connection = self._connection
        name = connection.connection
        owner = codec.connection_id(name)
        if not self._number:
            # Why: a link that only looks has no producer; the broker takes a second one for the
            # same.
            connection.call(codec.PRODUCER_INFO, codec.producer_info(codec.producer_id(name, 1, 1)))
        self._number += 1
        # Why negative: the link counts its own transactions upwards.
        transaction = codec.transaction_id(name, -self._number)
        connection.send(
            codec.TRANSACTION_INFO, codec.transaction_info(owner, transaction, codec.BEGIN)
        )
        number = connection.next_number()
        connection.expect(number)
        now_ms = self._clock.now_ms()
        connection.write_soon(
            self._encoder.token(destination, 0, transaction, now_ms, number, answer=True)
        )
        answer = connection.answers([number])[0]
        info = codec.transaction_info(owner, transaction, codec.ROLLBACK)
        connection.answers([connection.ask(codec.TRANSACTION_INFO, info)])
        return None if answer is None else str(answer)

    def remove(self, destination: Destination) -> str | None:
        """Remove a queue with all that is in it; return the broker's words why it can't be."""
        owner = codec.connection_id(self._connection.connection)
        info = codec.destination_info(owner, codec.destination_field(destination))
        try:
            self._connection.call(codec.DESTINATION_INFO, info)
        except CommandRefused as cause:
            return str(cause)
        return None

    def broker_ms(self) -> int | None:
        """Return the broker's clock when it stored our token; None = no token.

        Raises:
            BrokerRefused: the token queue can't be browsed.
        """
        message = self._token_message()
        if message is None:
            return None
        arrival_ms: int = _LONG.unpack(message[_BROKER_IN_TIME])[0]
        return arrival_ms or None

    def token_expiration_ms(self) -> int | None:
        """Return when our token will expire; 0 = never, None = no token.

        It was sent without an expiration, so that the broker must have given it one.

        Raises:
            BrokerRefused: the token queue can't be browsed.
        """
        message = self._token_message()
        if message is None:
            return None
        parts = take_apart(message)
        # Why there: the expiration comes between the delivery mode and these.
        end = message.index(parts.priority + _LONG.pack(parts.timestamp_ms), parts.producer_at)
        return int(_LONG.unpack(message[end - 8 : end])[0])

    def _token_message(self) -> bytes | None:
        if self._token_queue is None:
            return None
        try:
            return next(iter(self._consumers.browse(self._token_queue, 1)), None)
        except CommandRefused as cause:
            raise BrokerRefused(str(cause)) from cause

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return nothing: OpenWire carries every message whole."""
        del queue
        return ()

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the queues that these names and wildcards stand for now.

        Raises:
            BrokerRefused: a name can't be read, or the broker does not report which queues it has.
        """
        try:
            return tuple(self._queues.expand(queues, self._token_queue))
        except CommandRefused as cause:
            raise BrokerRefused(str(cause)) from cause


def _ignore(_consumer: OpenWireConsumer, _field: bytes, _message: bytes | None) -> None:
    """Consume without taking: the consumer asks for no message."""
