"""Looking into queues over AMQP without taking anything, within bounded memory."""

from collections.abc import Iterator

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.errors import BrokerRefused, LinkLost

_PAGE_BYTES_MAX = 16 * 1024 * 1024
_FIRST_ASKED = 10
_ASKED_MAX = 200
_NUDGE_AFTER_S = 0.2


class Browser:
    """Looks over one connection."""

    def __init__(self, connection: AmqpConnection, *, is_classic: bool) -> None:
        self.connection = connection
        self._is_classic = is_classic
        self._number = 0

    def look(
        self, address: str, at_most: int, selector: str = "", capability: str | None = None
    ) -> Iterator[bytes]:
        """Return the messages of a queue, or of all queues of a wildcard, from the head of each.

        Args:
            address: of the queue; on Classic one that does not exist is made, a wildcard makes
                none.
            selector: which messages; "" = all.

        Raises:
            BrokerRefused: the user may not browse it.
            LinkLost: the connection is gone, or the broker does not answer.
        """
        self._number += 1
        receiver = Receiver(
            self.connection,
            f"amqsidecar-browse-{self._number}",
            address,
            capability=capability,
            is_browsing=True,
            selector=selector,
        )
        left = at_most
        asked = _FIRST_ASKED
        largest_bytes = 1
        try:
            while left > 0:
                asked = min(asked, left)
                arrived = self._next(receiver, asked)
                yield from arrived[:left]
                left -= len(arrived)
                if len(arrived) < asked:
                    break
                largest_bytes = max(largest_bytes, *map(len, arrived))
                asked = max(1, min(_ASKED_MAX, _PAGE_BYTES_MAX // largest_bytes))
        finally:
            receiver.end()

    def count(self, address: str, at_most: int, selector: str = "") -> int:
        """Return how many messages a browse finds.

        Raises:
            As `look`.
        """
        return sum(1 for _ in self.look(address, at_most, selector))

    def _next(self, receiver: Receiver, asked: int) -> list[bytes]:
        timeout_s = self.connection.timeout_s
        waits = max(1, int(timeout_s / _NUDGE_AFTER_S)) if self._is_classic else 1
        is_done, credit = False, asked
        for _ in range(waits):
            # Quirk (Classic): a message that can't be encoded, such as a StreamMessage with bytes
            # in it, stops the broker until the next word about credit.
            receiver.drain(credit)
            is_done = self.connection.run_until(
                lambda: receiver.refusal or (receiver.is_answered and receiver.is_drained),
                timeout_s / waits,
            )
            if is_done:
                break
            credit = 1
        if receiver.refusal is not None:
            raise BrokerRefused(
                f"can't browse {receiver.address}: {receiver.refusal}; allow the user to "
                f"{'read' if self._is_classic else 'browse'} it"
            )
        if not is_done:
            raise LinkLost(f"browsing {receiver.address} did not end in {timeout_s:g} s")
        arrived = receiver.take_arrived(len(receiver.arrived))
        for in_hand, _ in arrived:
            receiver.accept(in_hand)
        return [message for _, message in arrived]
