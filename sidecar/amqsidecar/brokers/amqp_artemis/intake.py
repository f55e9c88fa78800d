"""Reading dead-letter queues of Artemis over AMQP: receivers, credit, and what is in hand."""

import math
from collections import Counter
from collections.abc import Sequence

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp.read_ahead import AheadIntake
from amqsidecar.brokers.amqp_artemis.core_messages import (
    CUT,
    NEEDS_NO_CONVERSION,
    Listed,
    left_unlisted,
    list_of_others,
)
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP, left_too_large
from amqsidecar.brokers.selectors import both, quoted
from amqsidecar.errors import QueueRefused
from amqsidecar.formats.amqp_artemis_message import ENCODING, is_cut, read_provenance
from amqsidecar.formats.artemis_properties import OriginReader
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

_LOOK_EVERY_S = 0.3
# Bound: so that the broker spends a fifth of its time on our lists at most.
_REST = 4
_LATE_S = 2.0


class AmqpIntake(AheadIntake):
    """The receivers of a link, one per dead-letter queue."""

    def __init__(
        self,
        connection: AmqpConnection,
        management: ArtemisManagement,
        *,
        is_own_only: bool,
    ) -> None:
        self._is_own_only = is_own_only
        self._management = management
        self._receivers: dict[IntakeQueue, Receiver] = {}
        self._leaving: dict[Receiver, Destination] = {}
        self._listed: dict[IntakeQueue, Listed] = {}
        self._look_at_s = self._rest_until_s = self._list_s = 0.0
        super().__init__(connection)
        self._cut: Counter[Receiver] = Counter()
        self._too_large: Counter[Receiver] = Counter()

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._ahead.sweep()
        wanted = frozenset(queues)
        for queue, receiver in list(self._receivers.items()):
            if queue not in wanted or not receiver.is_open:
                self._retire(queue)
                self._listed.pop(queue, None)
        self._attach_missing(queues)
        self._spread(prefetch, len(queues))

    @property
    def has_lost_queues(self) -> bool:
        """Whether the broker has closed a receiver, as it does when a queue is deleted."""
        return any(not receiver.is_open for receiver in self._receivers.values())

    @property
    def queues(self) -> tuple[Destination, ...]:
        return tuple(queue.destination for queue in self._receivers)

    def _attach_missing(self, queues: Sequence[IntakeQueue]) -> None:
        for queue in queues:
            if queue not in self._receivers:
                if self._management.is_usable and not self._is_own_only:
                    self._listed[queue] = Listed()
                    self._look_at_s = 0.0
                self._receivers[queue] = self._make_receiver(queue)
        waiting = list(self._receivers.values())
        self._connection.run_until(lambda: all(receiver.is_answered for receiver in waiting))
        refused: dict[str, str] = {}
        for queue, receiver in list(self._receivers.items()):
            if not receiver.is_open:
                self._retire(queue)
                self._listed.pop(queue, None)
                words = receiver.refusal or self._connection.no_answer
                refused[queue.destination.name] = f"{queue.destination} can't be read: {words}"
        if refused:
            raise QueueRefused.all_of(refused)

    def _make_receiver(self, queue: IntakeQueue) -> Receiver:
        name, listed = queue.destination.name, self._listed.get(queue)
        if listed is not None:
            readable = listed.selector()
        elif self._is_own_only:
            readable = MADE_BY_AMQP
        else:
            readable = _readable_selector(name.partition("::")[0])
        return Receiver(
            self._connection,
            self._next_name(),
            name,
            # Why: with a plain name the broker makes an anycast queue where there is none.
            # Quirk (Artemis 2.44): without it, a selector on a multicast queue by its fully
            # qualified name, other than the queue's own filter, ends the connection.
            capability="queue",
            selector=both(queue.selector, readable),
            skips_too_large=True,
        )

    # What has to be converted

    def look_in_s(self) -> float:
        """Return in how many seconds `look` has something to do."""
        return self._look_at_s - self._connection.clock.monotonic_s() if self._listed else math.inf

    def look(self) -> None:
        """When due, find convertible messages and ask for them."""
        now_s = self._connection.clock.monotonic_s()
        if now_s < self._look_at_s or not self._listed:
            return
        due = [
            (queue, listed)
            for queue, listed in self._listed.items()
            if (receiver := self._receivers[queue]).is_open
            # Why: a message that is arriving in pieces would begin again.
            and not receiver.is_receiving
            and listed.is_due(now_s, self._list_s, holds_back=self._held_back(receiver) > 0)
        ]
        answers = self._management.ask_all([list_of_others(queue) for queue, _ in due])
        listed_s = self._connection.clock.monotonic_s()
        self._list_s = listed_s - now_s
        self._rest_until_s = listed_s + self._list_s * _REST
        self._look_at_s = max(self._rest_until_s, listed_s + _LOOK_EVERY_S)
        made: list[Receiver] = []
        for (queue, listed), answer in zip(due, answers, strict=True):
            if listed.read(answer, now_s):
                # Why not a second one: a message group would belong to one of the two.
                self._retire(queue)
                self._receivers[queue] = self._make_receiver(queue)
                made.append(self._receivers[queue])
        self._connection.run_until(lambda: all(one.is_answered for one in made))
        self.top_up()

    @property
    def has_arrived(self) -> bool:
        return any(one.arrived and one.is_open for one in self._receivers.values())

    def receive(self, limit: int, read_origin: OriginReader) -> list[Delivery]:
        receivers = list(self._receivers.items())
        deliveries: list[Delivery] = []
        now_s = self._connection.clock.monotonic_s()
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
                if is_cut(message):
                    self._cut[receiver] += 1
                    continue
                self._ahead.hand_over(in_hand)
                provenance = read_provenance(message, queue, read_origin=read_origin)
                deliveries.append(
                    Delivery(in_hand, queue.destination, message, provenance, ENCODING)
                )
                listed = self._listed.get(queue)
                if listed and listed.came(message, provenance.message_id, now_s):
                    self._look_at_s = self._rest_until_s
        # Why: what has arrived and was not taken goes back when its receiver is replaced.
        if len(deliveries) < limit or now_s >= self._look_at_s + _LATE_S:
            self.look()
        return deliveries

    def top_up(self) -> None:
        self._ahead.top_up(
            (receiver, self._held_back(receiver)) for receiver in self._receivers.values()
        )

    def _retire(self, queue: IntakeQueue) -> None:
        receiver = self._receivers.pop(queue)
        self._forget_closed()
        self._leaving[receiver] = queue.destination
        self._ahead.retire(receiver, self._held_back(receiver))
        self._forget_held_back(receiver)

    def held_back(self, queue: Destination) -> int | None:
        receivers = [one for item, one in self._receivers.items() if item.destination == queue]
        if any(one.is_receiving for one in receivers):
            return None
        return sum(map(self._held_back, receivers))

    def is_leaving(self, queue: Destination) -> bool:
        self._forget_closed()
        return queue in self._leaving.values()

    def _forget_closed(self) -> None:
        self._leaving = {one: left for one, left in self._leaving.items() if not one.is_closed}

    def _held_back(self, receiver: Receiver) -> int:
        """Return how many deliveries of a receiver stay in hand until it is closed."""
        return self._cut[receiver] + self._too_large[receiver]

    def _forget_held_back(self, receiver: Receiver) -> None:
        self._cut.pop(receiver, None)
        self._too_large.pop(receiver, None)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the dead letters that the broker can't convert to AMQP, or that are too large."""
        listed = (
            item
            for queue, one in self._listed.items()
            for item in one.left_behind(queue.destination)
        )
        why = "" if self._is_own_only else self._management.why_unusable
        unlisted = (left_unlisted(one, why) for one in self.queues if why)
        return (*self._left_in_hand(), *listed, *unlisted)

    def _left_in_hand(self) -> tuple[LeftBehind, ...]:
        cut = (
            LeftBehind(
                queue.destination,
                "not_convertible",
                self._cut[receiver],
                CUT,
            )
            for queue, receiver in self._receivers.items()
            if self._cut[receiver]
        )
        too_large = (
            left_too_large(queue.destination, self._too_large[receiver])
            for queue, receiver in self._receivers.items()
            if self._too_large[receiver]
        )
        return (*cut, *too_large)

    def close(self) -> None:
        self._ahead.close(self._receivers.values())
        self._receivers.clear()
        self._listed.clear()


def _readable_selector(address: str) -> str:
    """Return the selector to read with where messages can't be listed.

    Quirk (Artemis 2.44): a Core message that can't be converted to AMQP (`core_messages.py`) goes
    to the dead-letter address of the queue at the first try, its origin lost. So what may be of
    that kind is not read, nor what has this address as its origin: it would come back for ever.
    """
    others = f"_AMQ_ORIG_ADDRESS IS NULL OR _AMQ_ORIG_ADDRESS <> {quoted(address)}"
    return f"{MADE_BY_AMQP} OR ({NEEDS_NO_CONVERSION} AND ({others}))"
