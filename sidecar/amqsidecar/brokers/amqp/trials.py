"""Tries the rights of the sidecar's user over AMQP: both brokers answer when a link attaches."""

from collections.abc import Callable
from itertools import count

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender

# Bound: only the doctor's own queues are emptied.
_OWN_MAX = 100


class AmqpTrials:
    """Trials over one connection; the caller gives the broker's addresses and capabilities."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._numbers = count(1)

    def _name(self) -> str:
        return f"amqsidecar-trial-{id(self)}-{next(self._numbers)}"

    def read(self, address: str, capability: str | None) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The link gives no credit. The broker makes a queue that is missing where it may.
        """
        receiver = Receiver(self._connection, self._name(), address, capability=capability)
        return self._answer(receiver, lambda: receiver.is_open)

    def write(self, address: str, capability: str) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        Nothing is sent. The broker makes a queue that is missing where it may.
        """
        sender = Sender(self._connection, self._name(), address, capability=capability)
        return self._answer(sender, lambda: sender.credit > 0)

    def empty(self, address: str, capability: str | None) -> str | None:
        """Empty a queue of ours; return the broker's reason if that fails."""
        receiver = Receiver(self._connection, self._name(), address, capability=capability)
        receiver.drain(_OWN_MAX)
        return self._answer(receiver, lambda: receiver.is_open and receiver.is_drained)

    def _answer(self, link: Receiver | Sender, is_agreed: Callable[[], bool]) -> str | None:
        self._connection.run_until(lambda: is_agreed() or link.refusal is not None)
        words = link.refusal
        if words is None and not is_agreed():
            words = self._connection.no_answer
        if isinstance(link, Receiver):
            for in_hand, _ in link.take_arrived(_OWN_MAX):
                link.accept(in_hand)
        link.end()
        return words
