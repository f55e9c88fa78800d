"""Reading dead-letter queues of Artemis over AMQP: receivers, credit, and what is in hand."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from amqsidecar.broker import Delivery, IntakeQueue, LeftBehind
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import AmqpDelivery, Receiver
from amqsidecar.brokers.amqp.read_ahead import ReadAhead
from amqsidecar.brokers.amqp_artemis.core_messages import AmqpCoreFetcher, quoted, selected
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.artemis.amqp_made import MADE_BY_AMQP
from amqsidecar.brokers.artemis.management import ManagementAnswer, ManagementQuestion
from amqsidecar.brokers.artemis.too_large import left_too_large
from amqsidecar.clock import Clock
from amqsidecar.errors import QueueRefused
from amqsidecar.formats.amqp_artemis_message import ENCODING, is_cut, read_provenance
from amqsidecar.formats.artemis_properties import OriginReader
from amqsidecar.model.destination import Destination

_LOOK_EVERY_S = 30.0
_FETCH_EVERY_S = 0.5
# Bound: after this many looks, messages that did not come were taken by others.
_FETCH_LOOKS_MAX = 6

_log = logging.getLogger(__name__)


@dataclass
class Fetch:
    """Messages that need converting, which the receiver of a queue was asked to read.

    Attributes:
        awaited: how many messages have not come yet.
        looks: for how many looks nothing came.
    """

    awaited: int = 0
    looks: int = 0


class AmqpIntake:
    """The receivers of a link, one per dead-letter queue."""

    def __init__(
        self,
        connection: AmqpConnection,
        management: ArtemisManagement,
        clock: Clock,
        timeout_s: float,
        *,
        is_own_only: bool,
    ) -> None:
        self._connection = connection
        self._is_own_only = is_own_only
        self._management = management
        self._clock = clock
        self._timeout_s = timeout_s
        self._receivers: dict[IntakeQueue, Receiver] = {}
        self._fetcher = AmqpCoreFetcher(management)
        self._fetches: dict[IntakeQueue, Fetch] = {}
        self._fetch_at_s = 0.0
        self._ahead = ReadAhead()
        self._numbers = count(1)
        self._turn = 0
        self._killed_counts: dict[IntakeQueue, int] = {}
        self._cut: Counter[Receiver] = Counter()
        self._too_large: Counter[Receiver] = Counter()
        self._look_at_s = 0.0

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these.

        Raises:
            QueueRefused: one can't be read; the message names it.
            LinkLost: the connection is gone.
        """
        self._ahead.sweep()
        if self._is_own_only:
            # Why without those: the broker takes no selector with a fully qualified name.
            queues = [one for one in queues if "::" not in one.destination.name]
        wanted = frozenset(queues)
        for queue, receiver in list(self._receivers.items()):
            if queue not in wanted or not receiver.is_open:
                self._retire(self._receivers.pop(queue))
                self._fetches.pop(queue, None)
        self._attach_missing(queues)
        self._ahead.spread(prefetch, len(queues))
        self._note_killed()
        self.top_up()
        self._connection.pump(0)

    def detach(self) -> None:
        """Read nothing any more; what was not received has gone back when this returns.

        Raises:
            LinkLost: the connection is gone.
        """
        for receiver in self._receivers.values():
            self._retire(receiver)
        self._receivers.clear()
        self._fetches.clear()
        self._connection.run_until(lambda: self._ahead.is_closed, self._timeout_s)
        self._ahead.sweep()

    def leave(self, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries; they go back when their receiver is closed."""
        self._ahead.leave(self._ahead.in_hand(deliveries))

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
                if not (queue.selector or self._is_own_only) and self._fetcher.is_needed(queue):
                    self._fetches[queue] = Fetch()
                self._receivers[queue] = self._make_receiver(queue)
        waiting = list(self._receivers.values())
        self._connection.run_until(
            lambda: all(receiver.is_answered for receiver in waiting), self._timeout_s
        )
        refused: dict[str, str] = {}
        for queue, receiver in list(self._receivers.items()):
            if not receiver.is_open:
                self._retire(self._receivers.pop(queue))
                self._fetches.pop(queue, None)
                words = receiver.refusal or f"no answer in {self._timeout_s:g} s"
                refused[queue.destination.name] = f"{queue.destination} can't be read: {words}"
        if refused:
            raise QueueRefused.all_of(refused)

    def _make_receiver(self, queue: IntakeQueue, numbers: Sequence[int] = ()) -> Receiver:
        name = queue.destination.name
        is_plain = "::" not in name
        if self._is_own_only:
            readable = f"({queue.selector}) AND {MADE_BY_AMQP}" if queue.selector else MADE_BY_AMQP
        elif queue in self._fetches:
            readable = queue.selector or selected(numbers)
        else:
            readable = queue.selector or readable_selector(name)
        return Receiver(
            self._connection,
            f"amqsidecar-intake-{next(self._numbers)}",
            name,
            # Why: with a plain name the broker makes an anycast queue where there is none; a fully
            # qualified one names a queue that exists, of either type.
            capability="queue" if is_plain else None,
            # Quirk (Artemis): a selector on a multicast queue by its fully qualified name, other
            # than the queue's own filter, ends the connection.
            selector=readable if is_plain else "",
            skips_too_large=True,
        )

    # What has to be converted, and would be dropped where it can't be

    def _fetch(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._fetch_at_s:
            return
        for queue, fetch in self._fetches.items():
            fetch.looks += 1
            if fetch.awaited > 0 and fetch.looks <= _FETCH_LOOKS_MAX:
                continue
            numbers = self._fetcher.convertible(queue)
            if numbers:
                # Why not a second one: a message group would belong to one of the two.
                self._retire(self._receivers.pop(queue))
                receiver = self._receivers[queue] = self._make_receiver(queue, numbers)
                self._connection.run_until(partial(_is_answered, receiver), self._timeout_s)
                fetch.awaited, fetch.looks = len(numbers), 0
        self.top_up()
        # Why: the broker scans whole queues for it.
        ended_s = self._clock.monotonic_s()
        self._fetch_at_s = ended_s + max(_FETCH_EVERY_S, (ended_s - now_s) * 4)

    @property
    def has_arrived(self) -> bool:
        """Whether something waits to be received."""
        return any(one.arrived and one.is_open for one in self._receivers.values())

    def receive(self, limit: int, read_origin: OriginReader) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order, queues in turn."""
        if self._fetches:
            self._fetch()
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
                if is_cut(message):
                    self._cut[receiver] += 1
                    continue
                self._ahead.hand_over(in_hand)
                provenance = read_provenance(message, queue, read_origin=read_origin)
                deliveries.append(
                    Delivery(in_hand, queue.destination, message, provenance, ENCODING)
                )
                fetch = self._fetches.get(queue)
                if fetch is not None:
                    fetch.awaited -= 1
                    fetch.looks = 0
        return deliveries

    def in_hand(self, deliveries: Sequence[Delivery]) -> list[AmqpDelivery]:
        """Return the handles of deliveries.

        Raises:
            LinkLost: the broker has taken one back, because its queue or link is gone.
        """
        return self._ahead.in_hand(deliveries)

    def settle(self, held: list[AmqpDelivery]) -> None:
        """Finish what a committed transaction has accepted, and make room for more."""
        self._ahead.settle(held)
        self.top_up()

    def top_up(self) -> None:
        """Grant as much credit as prefetch, window and held bytes allow."""
        self._ahead.top_up(
            (receiver, self._held_back(receiver)) for receiver in self._receivers.values()
        )

    def _retire(self, receiver: Receiver) -> None:
        self._ahead.retire(receiver, self._held_back(receiver))
        self._forget_held_back(receiver)

    def held_back(self, queue: Destination) -> int | None:
        """Return how many messages of a queue are in hand and never received.

        None = one is still arriving in pieces.
        """
        receivers = [one for item, one in self._receivers.items() if item.destination == queue]
        if any(one.is_receiving for one in receivers):
            return None
        return sum(map(self._held_back, receivers))

    def _held_back(self, receiver: Receiver) -> int:
        """Return how many deliveries of a receiver stay in hand until it is closed."""
        return self._cut[receiver] + self._too_large[receiver]

    def _forget_held_back(self, receiver: Receiver) -> None:
        self._cut.pop(receiver, None)
        self._too_large.pop(receiver, None)

    # Credit that the broker lost

    def look(self) -> None:
        """Reattach where the broker gave up on messages that it could not hand over.

        Each such message has silently used up a credit (see `readable_selector`). Call when
        nothing arrives; asks the broker at intervals.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._look_at_s or self._management.missing is not None:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        known = dict(self._killed_counts)
        self._note_killed()
        for queue, receiver in list(self._receivers.items()):
            lost = self._killed_counts.get(queue, 0) - known.get(queue, 0)
            if (
                lost > 0
                and receiver.in_hand_count == self._held_back(receiver)
                and receiver.is_open
            ):
                _log.warning(
                    "%d dead letters of %s can't be handed over by AMQP; they stay in the broker",
                    lost,
                    queue.destination,
                )
                self._forget_held_back(receiver)
                self._ahead.close_receiver(self._receivers.pop(queue))
                self._attach_missing([*self._receivers, queue])
            elif lost > 0:
                self._killed_counts[queue] = known.get(queue, 0)
        self.top_up()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the dead letters that the broker can't convert to AMQP (see `readable_selector`).

        Asks the broker only where one was seen, since counting scans the whole queue.
        """
        if self._management.missing is not None or self._is_own_only:
            return self._left_in_hand()
        self._note_killed()
        queues = [
            queue
            for queue in self._receivers
            if self._killed_counts.get(queue)
            and "::" not in queue.destination.name
            and queue not in self._fetches
        ]
        questions = [
            ManagementQuestion(
                f"queue.{queue.destination.name}",
                "countMessages",
                (f"NOT ({readable_selector(queue.destination.name)})",),
            )
            for queue in queues
        ]
        streams = [one for queue in self._fetches for one in self._fetcher.left_behind(queue)]
        killed = self._killed(queues, self._management.ask_all(questions))
        return (*self._left_in_hand(), *streams, *killed)

    def _left_in_hand(self) -> tuple[LeftBehind, ...]:
        cut = (
            LeftBehind(
                queue.destination,
                "not_convertible",
                self._cut[receiver],
                "BytesMessages that a Core client has compressed: the broker cuts them when it "
                "converts them to AMQP; use artemis://",
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

    @staticmethod
    def _killed(
        queues: Sequence[IntakeQueue], answers: Sequence[ManagementAnswer]
    ) -> Iterator[LeftBehind]:
        yield from (
            LeftBehind(
                queue.destination,
                "not_convertible",
                int(answer.value),
                "the broker can't convert them to AMQP (an ObjectMessage without an object, a "
                "StreamMessage with bytes in it, or properties that begin with JMS_AMQP_ENCODED_), "
                "and has overwritten their origin: use artemis:// before more come, and send these "
                "on with a Core client",
                at_least=True,
            )
            for queue, answer in zip(queues, answers, strict=True)
            if answer.is_ok and int(answer.value)
        )

    def _note_killed(self) -> None:
        if self._management.missing is not None:
            return
        queues = list(self._receivers)
        questions = [
            ManagementQuestion(
                f"queue.{queue.destination.name.rpartition('::')[2]}", attribute=_KILLED
            )
            for queue in queues
        ]
        for queue, answer in zip(queues, self._management.ask_all(questions), strict=True):
            if answer.is_ok:
                self._killed_counts[queue] = int(answer.value)
        self._look_at_s = self._clock.monotonic_s() + _LOOK_EVERY_S

    def close(self) -> None:
        """Begin to close all links; what is in hand goes back."""
        self._ahead.close(self._receivers.values())
        self._receivers.clear()
        self._fetches.clear()

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed all links."""
        return self._ahead.is_closed


def _is_answered(receiver: Receiver) -> bool:
    return receiver.is_answered


_KILLED = "MessagesKilled"


def readable_selector(address: str) -> str:
    """Return the selector of the dead letters that the broker can hand us over AMQP.

    Quirk (Artemis 2.44): a Core message that can't be converted to AMQP (`core_messages.py`) goes
    to the dead-letter address of the queue at the first try and uses up a credit. With the stock
    settings it lands in the same queue, its origin lost, in line for the next credit: for ever. So
    a message with this address as its origin is not read. Messages of AMQP clients need no
    conversion; they are read whatever their origin is.
    """
    return f"{MADE_BY_AMQP} OR _AMQ_ORIG_ADDRESS IS NULL OR _AMQ_ORIG_ADDRESS <> {quoted(address)}"
