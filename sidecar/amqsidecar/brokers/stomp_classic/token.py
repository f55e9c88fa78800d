"""The token of an instance in its private queue on Classic, over STOMP."""

from collections.abc import Sequence

from amqsidecar.brokers.classic.token import PREFETCH, TokenChoice
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats.stomp_classic_message import StompResendEncoder, read_cycle
from amqsidecar.formats.stomp_frame import Frame, Header
from amqsidecar.model.destination import Destination


class StompTokenQueue(TokenChoice[bytes]):
    """Waits for tokens and keeps the one in hand.

    What the selector does not match is left alone: messages that break connections.
    """

    def __init__(
        self,
        destination: Destination,
        connection: StompConnection,
        consumers: StompSubscriptions,
        clock: Clock,
        selector: str = "",
        *,
        rules_digest: str = "",
    ) -> None:
        super().__init__(destination, connection, consumers, clock)
        self._connection = connection
        self._consumers = consumers
        self._selector = selector
        self._rules_digest = rules_digest
        consumers.add(
            destination,
            PREFETCH,
            self._take_in,
            selector=selector,
            options=((b"activemq.exclusive", b"true"),),
        )

    def _take_in(self, frame: Frame) -> None:
        cycle = read_cycle(frame)
        if cycle is not None:
            self._tokens.append((cycle, frame.first(b"ack") or b""))

    def _remove(self, held: bytes) -> None:
        self._connection.call("ACK", [(b"id", held)])

    def _count(self) -> int:
        try:
            frames = self._consumers.browse(self._destination, PREFETCH + 1, self._selector)
        except FrameRefused as cause:
            raise BrokerRefused(f"can't browse {self._destination}: {cause}") from cause
        return sum(1 for frame in frames if read_cycle(frame) is not None)

    def create(self, cycle: int) -> None:
        """Send a token outside of any transaction; durable when this returns.

        Raises:
            FrameRefused: the broker does not take it.
        """
        receipt, header = self._connection.receipt()
        self._connection.put(self._frame(None, cycle, [header]))
        answer = self._connection.answers([receipt])[0]
        if answer.command == "ERROR":
            raise FrameRefused(answer)

    def put_exchange(self, transaction: bytes, held: bytes, cycle: int) -> str:
        """Put the ack of the token in hand and the send of the next one; return its receipt."""
        self._connection.send("ACK", [(b"id", held), (b"transaction", transaction)])
        receipt, header = self._connection.receipt()
        self._connection.put(self._frame(transaction, cycle, [header]))
        return receipt

    def _frame(self, transaction: bytes | None, cycle: int, receipt: Sequence[Header]) -> bytes:
        return StompResendEncoder.token(
            self._destination, cycle, transaction, receipt, self._rules_digest
        )
