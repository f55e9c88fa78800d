"""Reading dead-letter queues of Artemis over AMQP: receivers, credit, and messages in hand."""

from collections import Counter
from collections.abc import Sequence

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.read_ahead import AheadIntake
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP, left_too_large
from amqsidecar.brokers.selectors import both
from amqsidecar.errors import QueueRefused
from amqsidecar.formats.amqp_artemis_message import ENCODING, read_provenance
from amqsidecar.formats.artemis_properties import OriginReader
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class AmqpIntake(AheadIntake):
    """The receivers of a link, one per dead-letter queue.

    They select messages of AMQP clients. Quirk (Artemis 2.44): some messages of Core and OpenWire
    clients can't be converted to AMQP. At the first try to hand such a message over, the broker
    moves it to the dead-letter address of its queue, its origin lost, and drops it if there is no
    such address. No selector matches these messages.
    """

    def __init__(self, connection: AmqpConnection) -> None:
        self._receivers: dict[IntakeQueue, Receiver] = {}
        self._leaving: dict[Receiver, Destination] = {}
        super().__init__(connection)
        self._too_large: Counter[Receiver] = Counter()

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._ahead.sweep()
        wanted = frozenset(queues)
        for queue, receiver in list(self._receivers.items()):
            if queue not in wanted or not receiver.is_open:
                self._retire(queue)
        self._attach_missing(queues)
        self._spread(prefetch, len(queues))

    @property
    def has_lost_queues(self) -> bool:
        """Whether the broker has closed a receiver, as it does when a queue is deleted."""
        return any(not receiver.is_open for receiver in self._receivers.values())

    @property
    def queues(self) -> tuple[Destination, ...]:
        """The queues that are read."""
        return tuple(queue.destination for queue in self._receivers)

    def _attach_missing(self, queues: Sequence[IntakeQueue]) -> None:
        for queue in queues:
            if queue not in self._receivers:
                self._receivers[queue] = self._make_receiver(queue)
        waiting = list(self._receivers.values())
        self._connection.run_until(lambda: all(receiver.is_answered for receiver in waiting))
        refused: dict[str, str] = {}
        for queue, receiver in list(self._receivers.items()):
            if not receiver.is_open:
                self._retire(queue)
                words = receiver.refusal or self._connection.no_answer
                refused[queue.destination.name] = f"{queue.destination} can't be read: {words}"
        if refused:
            raise QueueRefused.all_of(refused)

    def _make_receiver(self, queue: IntakeQueue) -> Receiver:
        return Receiver(
            self._connection,
            self._next_name(),
            queue.destination.name,
            # Why: with a plain name the broker makes an anycast queue where there is none.
            # Quirk (Artemis 2.44): without it, a selector on a multicast queue by its fully
            # qualified name, other than the queue's own filter, ends the connection.
            capability="queue",
            selector=both(queue.selector, MADE_BY_AMQP),
            skips_too_large=True,
        )

    @property
    def has_arrived(self) -> bool:
        """Whether something waits to be received."""
        return any(one.arrived and one.is_open for one in self._receivers.values())

    def receive(self, limit: int, read_origin: OriginReader) -> list[Delivery]:
        receivers = list(self._receivers.items())
        deliveries: list[Delivery] = []
        self._turn += 1
        for at in range(len(receivers)):
            queue, receiver = receivers[(self._turn + at) % len(receivers)]
            if not receiver.is_open:
                continue
            for in_hand, message in receiver.take_arrived(limit - len(deliveries)):
                # Why keep it in hand: the broker would redeliver it at once.
                if in_hand.is_too_large:
                    self._too_large[receiver] += 1
                    continue
                self._ahead.note_size(in_hand.size_bytes)
                self._ahead.hand_over(in_hand)
                provenance = read_provenance(message, queue, read_origin=read_origin)
                deliveries.append(
                    Delivery(in_hand, queue.destination, message, provenance, ENCODING)
                )
        return deliveries

    def top_up(self) -> None:
        """Grant as much credit as prefetch, window and held bytes allow."""
        self._ahead.top_up(
            (receiver, self._too_large[receiver]) for receiver in self._receivers.values()
        )

    def _retire(self, queue: IntakeQueue) -> None:
        receiver = self._receivers.pop(queue)
        self._forget_closed()
        self._leaving[receiver] = queue.destination
        self._ahead.retire(receiver, self._too_large.pop(receiver, 0))

    def held_back(self, queue: Destination) -> int | None:
        """Return how many messages of a queue are in hand and never received.

        None = one is still arriving in pieces.
        """
        receivers = [one for item, one in self._receivers.items() if item.destination == queue]
        if any(one.is_receiving for one in receivers):
            return None
        return sum(self._too_large[one] for one in receivers)

    def is_leaving(self, queue: Destination) -> bool:
        self._forget_closed()
        return queue in self._leaving.values()

    def _forget_closed(self) -> None:
        self._leaving = {one: left for one, left in self._leaving.items() if not one.is_closed}

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the dead letters that are too large."""
        return tuple(
            left_too_large(queue.destination, self._too_large[receiver])
            for queue, receiver in self._receivers.items()
            if self._too_large[receiver]
        )

    def close(self) -> None:
        self._ahead.close(self._receivers.values())
        self._receivers.clear()
