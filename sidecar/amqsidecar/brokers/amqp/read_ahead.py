"""Prefetch over AMQP, and the receivers that are closing."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import count

from amqsidecar.broker import Delivery
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import AmqpDelivery, Receiver
from amqsidecar.errors import LinkLost

# Why: few at first, so that a link that breaks again and again counts few failed deliveries, and
# that large messages are known before many of them are asked for.
_WINDOW_START = 32
_WINDOW_MAX = 1 << 20
# Bound: maximum bytes prefetched from the broker, estimated by credit.
_HELD_BYTES_MAX = 128 * 1024 * 1024
# Why two: overestimating the size costs time, underestimating it costs memory.
_GROWS_BY, _SHRINKS_BY = 1 / 8, 1 / 64


class ReadAhead:
    """Credit of all receivers of a link together.

    Attributes:
        share: deliveries ahead of each receiver at most.
    """

    def __init__(self) -> None:
        self.share = 0
        self._window = _WINDOW_START
        self._held_bytes = 0
        self._mean_bytes = 1024.0
        self._retired: dict[Receiver, int] = {}
        self._closing: list[Receiver] = []

    def spread(self, prefetch: int, queue_count: int) -> None:
        """Divide the prefetch among the queues."""
        self.share = max(1, prefetch // queue_count) if queue_count else 0

    def note_size(self, size_bytes: int) -> None:
        """Note the size of a message that arrived."""
        difference = size_bytes - self._mean_bytes
        self._mean_bytes += difference * (_GROWS_BY if difference > 0 else _SHRINKS_BY)

    def hand_over(self, in_hand: AmqpDelivery) -> None:
        """Note that the engine has a delivery now."""
        self._held_bytes += in_hand.size_bytes

    def settle(self, held: Sequence[AmqpDelivery]) -> None:
        """Finish the messages that a committed transaction has accepted."""
        for in_hand in held:
            self._held_bytes -= in_hand.size_bytes
            in_hand.receiver.settle(in_hand)
        if held:
            self._window = min(self._window * 2, _WINDOW_MAX)
        self.sweep()

    def top_up(self, receivers: Iterable[tuple[Receiver, int]]) -> None:
        """Grant as much credit as share, window and held bytes allow.

        Args:
            receivers: each with how many of its deliveries are held back for good.
        """
        share = min(self.share, self._window)
        room = int((_HELD_BYTES_MAX - self._held_bytes) / max(self._mean_bytes, 1.0))
        for receiver, held_back in receivers:
            if not receiver.is_open:
                continue
            in_hand = receiver.in_hand_count - held_back
            wanted = share - receiver.credit - in_hand
            is_idle = in_hand <= 0
            if wanted > 0 and (wanted * 4 >= share or is_idle):
                credit = min(wanted, max(room, 1 if is_idle else 0))
                if credit > 0:
                    receiver.flow(credit)
                    room -= credit

    # Receivers that are closing

    def retire(self, receiver: Receiver, held_back: int = 0) -> None:
        """Stop reading; messages that the engine has can still be accepted, all others go back."""
        self._retired[receiver] = held_back
        self.sweep()

    def close_receiver(self, receiver: Receiver) -> None:
        """Begin to close a receiver; its unsettled messages go back."""
        receiver.close()
        self._closing.append(receiver)

    def sweep(self) -> None:
        """Close the retired receivers without deliveries; free those closed on both sides."""
        for receiver, held_back in list(self._retired.items()):
            # Why: messages that arrive late, by earlier credit, belong to no receiver.
            handed_over = receiver.in_hand_count - len(receiver.arrived) - held_back
            if handed_over <= 0 or not receiver.is_open:
                del self._retired[receiver]
                self.close_receiver(receiver)
        for receiver in [one for one in self._closing if one.is_closed]:
            self._closing.remove(receiver)
            receiver.forget()

    def close(self, receivers: Iterable[Receiver]) -> None:
        """Begin to close these and all other links; messages in hand go back."""
        for receiver in (*receivers, *self._retired):
            self.close_receiver(receiver)
        self._retired.clear()

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed all links."""
        return all(receiver.is_closed for receiver in self._closing)


class AheadIntake(ABC):
    """The part of an intake that its prefetch answers."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._ahead = ReadAhead()
        self._numbers = count(1)
        self._turn = 0
        connection.parts.append(self)

    def _next_name(self) -> str:
        """Return the name of one more receiver."""
        return f"amqsidecar-intake-{next(self._numbers)}"

    def _spread(self, prefetch: int, queue_count: int) -> None:
        """Divide the prefetch among the queues, and ask for as much."""
        self._ahead.spread(prefetch, queue_count)
        self.top_up()
        self._connection.pump(0)

    @property
    def is_closed(self) -> bool:
        return self._ahead.is_closed

    @abstractmethod
    def close(self) -> None:
        """Begin to close all links; messages in hand go back."""

    @abstractmethod
    def top_up(self) -> None:
        """Grant the broker as many messages as prefetch and held bytes allow."""

    def in_hand(self, deliveries: Sequence[Delivery]) -> list[AmqpDelivery]:
        """Return the handles of deliveries.

        Raises:
            LinkLost: the broker has taken one back, because its queue or link is gone.
        """
        held: list[AmqpDelivery] = []
        for delivery in deliveries:
            in_hand = delivery.handle
            if not isinstance(in_hand, AmqpDelivery) or not in_hand.is_valid:
                raise LinkLost(f"a delivery of {delivery.source} is not in hand any more")
            held.append(in_hand)
        return held

    def settle(self, held: list[AmqpDelivery]) -> None:
        """Settle the messages of a committed transaction, and ask for more."""
        self._ahead.settle(held)
        self.top_up()
