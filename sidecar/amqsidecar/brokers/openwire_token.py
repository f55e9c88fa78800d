"""The token of an instance in its private queue on Classic."""

from contextlib import suppress

from amqsidecar.brokers import openwire_codec as codec
from amqsidecar.brokers.openwire_connection import OpenWireConnection, Refused
from amqsidecar.brokers.openwire_consumers import Consumer, Consumers, Handle, ack_fields
from amqsidecar.brokers.openwire_dead_letter import read_cycle, read_dead_letter
from amqsidecar.brokers.openwire_message import ResendEncoder
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.destination import Destination

_PREFETCH = 10


class TokenQueue:
    """Waits for tokens and knows the one in hand."""

    def __init__(
        self,
        destination: Destination,
        connection: OpenWireConnection,
        consumers: Consumers,
        encoder: ResendEncoder,
        clock: Clock,
    ) -> None:
        self._destination = destination
        self._connection = connection
        self._consumers = consumers
        self._encoder = encoder
        self._clock = clock
        self._tokens: list[tuple[int, Handle]] = []
        self._is_only_one = False
        consumers.add(destination, _PREFETCH, take=self._take_in, exclusive=True)

    def _take_in(self, consumer: Consumer, field: bytes, message: bytes | None) -> None:
        cycle = None if message is None else read_cycle(message)
        if message is not None and cycle is not None:
            message_id = read_dead_letter(message, 0)[1]
            self._tokens.append((cycle, Handle(consumer, field, message_id, 0)))

    def take(self, timeout_s: float) -> tuple[int, Handle] | None:
        """Return the token once the broker hands it over; None = not in time.

        Of several the highest counts. The others are removed one by one, so that the highest stays
        if the process dies inside.

        Raises:
            LinkLost: another one came later, which nobody but us may send.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        if not self._await(1, deadline_s):
            return None
        while not self._is_only_one:
            waiting = self._count()
            if not self._await(min(waiting, _PREFETCH), deadline_s):
                return None
            self._tokens.sort(key=lambda token: token[0])
            for _, handle in self._tokens[:-1]:
                with suppress(Refused):
                    self._connection.call(codec.MESSAGE_ACK, ack_fields(codec.NULL, handle, handle))
            del self._tokens[:-1]
            self._is_only_one = waiting <= _PREFETCH
        if len(self._tokens) > 1:
            # Why: which one is ours to take is settled when all of them are handed out anew.
            numbers = ", ".join(str(number) for number, _ in self._tokens)
            raise LinkLost(f"{self._destination} holds several tokens: {numbers}")
        return self._tokens[-1]

    def _await(self, count: int, deadline_s: float) -> bool:
        while True:
            self._connection.poll()
            self._consumers.route()
            if len(self._tokens) >= count:
                return True
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            self._connection.wait(left_s)

    def _count(self) -> int:
        try:
            messages = self._consumers.browse(self._destination, _PREFETCH + 1)
        except Refused as cause:
            raise BrokerRefused(f"can't browse {self._destination}: {cause}") from cause
        return sum(1 for message in messages if read_cycle(message) is not None)

    def exists(self) -> bool:
        """Tell whether the queue holds a token, handed out or not."""
        return bool(self._tokens) or self._count() > 0

    def create(self, cycle: int) -> None:
        """Send a token outside of any transaction; durable when this returns.

        Raises:
            Refused: the broker does not take it.
        """
        number = self._connection.next_number()
        self._connection.expect(number)
        self._connection.put(self._frame(codec.NULL, cycle, number, answer=True))
        reason = self._connection.answers([number])[0]
        if reason is not None:
            raise Refused(reason)

    def put_exchange(self, transaction: bytes, held: Handle, cycle: int) -> None:
        """Put the ack of the token in hand and the send of the next one."""
        self._connection.send(codec.MESSAGE_ACK, ack_fields(transaction, held, held))
        number = self._connection.next_number()
        self._connection.put(self._frame(transaction, cycle, number, answer=False))

    def _frame(self, transaction: bytes, cycle: int, number: int, *, answer: bool) -> bytes:
        now_ms = self._clock.now_ms()
        return self._encoder.token(
            self._destination, cycle, transaction, now_ms, number, answer=answer
        )

    def exchanged(self) -> None:
        """Note that the token in hand is gone, because its transaction was committed."""
        del self._tokens[0]
