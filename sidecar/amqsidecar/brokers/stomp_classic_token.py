"""The token of an instance in its private queue on Classic, over STOMP."""

from collections.abc import Sequence

from amqsidecar.brokers.stomp_classic_consumers import Consumers
from amqsidecar.brokers.stomp_classic_message import ResendEncoder, read_cycle
from amqsidecar.brokers.stomp_connection import Refused, StompConnection
from amqsidecar.brokers.stomp_frame import Frame, Header
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.destination import Destination

_PREFETCH = 10


class TokenQueue:
    """Waits for tokens and knows the one in hand."""

    def __init__(
        self,
        destination: Destination,
        connection: StompConnection,
        consumers: Consumers,
        clock: Clock,
    ) -> None:
        self._destination = destination
        self._connection = connection
        self._consumers = consumers
        self._clock = clock
        self._tokens: list[tuple[int, bytes]] = []
        self._is_only_one = False
        consumers.add(
            destination, _PREFETCH, self._take_in, options=((b"activemq.exclusive", b"true"),)
        )

    def _take_in(self, frame: Frame) -> None:
        cycle = read_cycle(frame)
        if cycle is not None:
            self._tokens.append((cycle, frame.first(b"ack") or b""))

    def take(self, timeout_s: float) -> tuple[int, bytes] | None:
        """Return the token and its ack id once the broker hands it over; None = not in time.

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
            for _, ack in self._tokens[:-1]:
                self._connection.call("ACK", [(b"id", ack)])
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
            frames = self._consumers.browse(self._destination, _PREFETCH + 1)
        except Refused as cause:
            raise BrokerRefused(f"can't browse {self._destination}: {cause}") from cause
        return sum(1 for frame in frames if read_cycle(frame) is not None)

    def exists(self) -> bool:
        """Tell whether the queue holds a token, handed out or not."""
        return bool(self._tokens) or self._count() > 0

    def create(self, cycle: int) -> None:
        """Send a token outside of any transaction; durable when this returns.

        Raises:
            Refused: the broker does not take it.
        """
        receipt, header = self._connection.receipt()
        self._connection.put(self._frame(None, cycle, [header]))
        answer = self._connection.answers([receipt])[0]
        if answer.command == "ERROR":
            raise Refused(answer)

    def put_exchange(self, transaction: bytes, held: bytes, cycle: int) -> str:
        """Put the ack of the token in hand and the send of the next one; return its receipt."""
        self._connection.send("ACK", [(b"id", held), (b"transaction", transaction)])
        receipt, header = self._connection.receipt()
        self._connection.put(self._frame(transaction, cycle, [header]))
        return receipt

    def _frame(self, transaction: bytes | None, cycle: int, receipt: Sequence[Header]) -> bytes:
        return ResendEncoder.token(self._destination, cycle, transaction, receipt)

    def exchanged(self) -> None:
        """Note that the token in hand is gone, because its transaction was committed."""
        del self._tokens[0]
