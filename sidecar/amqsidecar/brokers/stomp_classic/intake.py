"""Takes dead letters over STOMP: none is damaged, and no origin is believed blindly.

A property can hide the true origin of a dead letter (`original-destination`, which every STOMP
client that forwards all headers sends along), and no selector can name that property. But a
selector on `JMSDestination` knows the truth: a browser is asked which of the arrived messages did
not die where they say.

A message that would lose something by being taken stays unacknowledged in hand. The broker counts
it against the prefetch, so a subscription with many of them is replaced with room for as many more.

A prefetch is fixed when a subscription is made, and it counts messages. It is small until the size
of some is known; then the subscription is replaced as soon as none of its messages is in hand. It
is also replaced when messages that are not chosen (`classic.choice`) have used the prefetch up.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.brokers.classic.choice import MessageChoice
from amqsidecar.brokers.connection.message_sizes import TAKEN_BYTES_MAX, MessageSizes
from amqsidecar.brokers.connection.waiting_messages import WaitingMessages
from amqsidecar.brokers.stomp.connection import FrameRefused
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import Clock
from amqsidecar.errors import CommitRefused, QueueRefused
from amqsidecar.formats.payload import Footprint
from amqsidecar.formats.stomp_classic_message import (
    Shown,
    lost_by_taking,
    provenance,
    shown,
)
from amqsidecar.formats.stomp_frame import ENCODING, Frame, footprint_of, write_head
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.provenance import lying_id

# Why: a selector is a header, of which Classic takes 10 KiB, and each colon of an id is escaped.
IDS_BYTES_MAX = 6000


def next_batch(messages: Iterable[Shown]) -> list[Shown]:
    """Return the first messages, as many as one selector can name."""
    batch: list[Shown] = []
    size = 0
    origins: set[Destination] = set()
    for message in messages:
        size += selector_bytes(message.message_id.decode(errors="replace"))
        if isinstance(message.origin, Destination) and message.origin not in origins:
            origins.add(message.origin)
            size += selector_bytes(str(message.origin)) + 60
        if batch and size > IDS_BYTES_MAX:
            break
        batch.append(message)
    return batch


def selector_bytes(name: str) -> int:
    """Return how much of a header a name takes: in quotes, and its colons escaped."""
    return len(name.encode()) + name.count(":") + 10


def claim(message: Shown) -> tuple[str, str]:
    """Return the id of a message, and where it says that it died."""
    return message.message_id.decode(errors="replace"), str(message.origin)


def claims(batch: Iterable[Shown], honest: Shown) -> dict[str, list[str]]:
    """Return the ids of all but one, by where they say that they died."""
    found: dict[str, list[str]] = defaultdict(list)
    for message in batch:
        if isinstance(message.origin, Destination) and message is not honest:
            name, origin = claim(message)
            found[origin].append(name)
    return found


HELD_MAX = 1000
"""Messages of one origin that are held in hand since they can't be taken."""

LIE = (
    "a property of its own says where it died ({}), which is false and hides the true origin; "
    "look at the message over openwire://"
)
# Bound: bytes that are handed over ahead, over all queues, estimated from mean sizes.
_AHEAD_BYTES_MAX = 64 * 1024 * 1024
# Bound: each takes a few KiB while it waits for us, more than it has bytes (`WaitingMessages`).
_PASSED_MAX = 1 << 14


class IntakeLimits(msgspec.Struct, frozen=True):
    """The messages that may be taken.

    Attributes:
        allowed_losses: losses that the operator accepts.
        unreadable: see `ClassicLinkSettings.unreadable`.
        utf8_is_modified: see `lost_by_taking`.
    """

    allowed_losses: frozenset[Loss]
    unreadable: Mapping[str, str]
    utf8_is_modified: bool

    def unreadable_in(self, destination: Destination) -> list[str]:
        """Return the ids of messages of a queue whose frames broke a connection.

        Raises:
            FrameRefused: a message without a known id broke it, or more than a selector can
                exclude, so the queue can't be read.
        """
        ids = [one for one, name in self.unreadable.items() if name == destination.name]
        if str(destination) in ids:
            raise _unreadable(
                "it holds a message that the broker can't convert for STOMP, which breaks each "
                "connection that reads the queue; take it"
            )
        if sum(map(selector_bytes, ids)) > IDS_BYTES_MAX:
            raise _unreadable(
                f"it holds {len(ids)} messages or more that STOMP can't carry, each of which broke "
                "a connection; take them"
            )
        return ids


def _unreadable(why: str) -> FrameRefused:
    words = f"{why} over openwire://, then start again"
    return FrameRefused(Frame("ERROR", write_head([(b"message", words.encode())]), b""))


class Subscription:
    """An open subscription to a dead-letter queue.

    Attributes:
        name: its id.
        prefetch: messages that the broker hands over ahead of their acks.
        is_ended: the broker has all its messages back.
        spare: the part of the prefetch for messages that are held or pass.
        choice: all but the chosen messages stay in hand.
        in_hand: deliveries that were returned and not accepted.
        held: reasons why messages in hand can't be taken, by message id.
        unproven: messages that can be taken and whose origin was not checked yet.
        proven: messages that can be returned, each with its origin, or why that is unknown.
    """

    def __init__(
        self,
        prefetch: int,
        spare: int,
        choice: MessageChoice,
        subscribe: Callable[["Subscription"], bytes],
    ) -> None:
        self.prefetch = prefetch
        self.spare = spare
        self.choice = choice
        self.is_ended = False
        self.in_hand = 0
        self.held: dict[bytes, str] = {}
        self.unproven: deque[Shown] = deque()
        self.proven: deque[tuple[Shown, Destination | str]] = deque()
        self.name = subscribe(self)

    def forget(self, waiting: WaitingMessages) -> None:
        """Note that the broker has everything back."""
        for message in (*self.unproven, *(message for message, _ in self.proven)):
            waiting.take(message.footprint)
        for message_id in self.held:
            waiting.take(_footprint_of_id(message_id))
        self.is_ended = True
        self.held.clear()
        self.unproven.clear()
        self.proven.clear()


def _footprint_of_id(message_id: bytes) -> Footprint:
    return footprint_of([(message_id, b"")], b"")


class AckHandle(msgspec.Struct, frozen=True, gc=False):
    """The fields of an ACK."""

    subscription: Subscription
    ack: bytes


class QueueReader:
    """Reads one dead-letter queue."""

    def __init__(
        self,
        destination: Destination,
        consumers: StompSubscriptions,
        clock: Clock,
        rules: IntakeLimits,
    ) -> None:
        self.destination = destination
        self.is_leaving = False
        self._consumers = consumers
        self._clock = clock
        self._rules = rules
        self._selector = ""
        self._sizes = MessageSizes(_AHEAD_BYTES_MAX)
        self._prefetch = 1
        self._queue_count = 1
        self._share = 0
        self._chosen: frozenset[str] = frozenset()
        # At most one, which is read; retired subscriptions only acknowledge messages in hand.
        self._current: list[Subscription] = []
        self._retired: list[Subscription] = []

    @property
    def in_hand(self) -> int:
        """Deliveries that were returned and not accepted."""
        return sum(one.in_hand for one in (*self._current, *self._retired))

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` has something to return."""
        return not self.is_leaving and any(one.proven or one.unproven for one in self._current)

    def held(self) -> Counter[str]:
        """Return how many messages are held in hand, by reason."""
        return Counter(reason for one in self._current for reason in one.held.values())

    @property
    def is_full(self) -> bool:
        """Whether as many messages are held as the broker hands over."""
        return any(len(one.held) >= one.prefetch for one in self._current)

    def reading(self) -> tuple[MessageChoice, int] | None:
        """Return the choice and how many in hand did not pass; None = the queue is not read."""
        for one in self._current:
            unread = len(one.held) + len(one.unproven) + len(one.proven)
            return one.choice, self.in_hand + unread
        return None

    def read(self, prefetch: int, queue_count: int, chosen: frozenset[str]) -> None:
        """Read with this queue's share of the prefetch over all queues, less for large messages.

        Args:
            chosen: redelivery ids of the messages that are read; empty = all.

        Raises:
            FrameRefused: the broker does not allow it.
        """
        self.is_leaving = False
        unreadable = self._rules.unreadable_in(self.destination)
        self._selector = selectors.takes(self._rules.allowed_losses, unreadable)
        is_more = prefetch // queue_count > self._prefetch // self._queue_count
        self._prefetch, self._queue_count = prefetch, queue_count
        is_other, self._chosen = chosen != self._chosen, chosen
        self._adapt()
        if is_other or (
            is_more and any(one.in_hand and not self._is_right(one) for one in self._current)
        ):
            self._retired += self._current
            self._current = []
        self.mend()

    def mend(self) -> None:
        """Replace an outdated subscription once none of its messages is in hand.

        Raises:
            FrameRefused: the broker does not allow it.
        """
        self._retired = [one for one in self._retired if not self._end(one)]
        if any(one.in_hand for one in self._current):
            return
        self._adapt()
        if self.is_leaving:
            self._current = [one for one in self._current if not self._end(one)]
        elif not any(map(self._is_right, self._current)):
            # Why four times: then few subscriptions reach far, and none further than it must.
            kept = sum(len(one.held) + 4 * one.choice.passed for one in self._current)
            spare = min(kept, self._spare_max)
            self._current = [one for one in self._current if not self._end(one)]
            self._current.append(self._begin(spare))

    def drop(self) -> None:
        """End all subscriptions, even with messages in hand."""
        for one in (*self._current, *self._retired):
            with suppress(FrameRefused):
                self._consumers.remove(one.name)
            one.forget(self._consumers.connection.waiting)
        self._current, self._retired = [], []

    def _is_right(self, one: Subscription) -> bool:
        room = one.prefetch - len(one.held) - one.choice.passed
        is_roomy = room >= self._share / 2 or one.spare >= self._spare_max
        return is_roomy and one.prefetch - one.spare == self._share

    @property
    def _spare_max(self) -> int:
        return self._sizes.ahead(_PASSED_MAX) if self._chosen else HELD_MAX

    def _adapt(self) -> None:
        """Adapt the number of deliveries ahead to the sizes of messages."""
        most = max(1, self._prefetch // self._queue_count)
        share = max(1, self._sizes.ahead(self._prefetch) // self._queue_count)
        # Why not at each decrease: waiting messages would be handed over once more.
        if not share <= self._share <= min(2 * share, most):
            self._share = share

    def _end(self, one: Subscription) -> bool:
        """End a subscription unless some of its messages are in hand; return whether it ended."""
        if not one.in_hand:
            self._consumers.remove(one.name)
            one.forget(self._consumers.connection.waiting)
        return one.is_ended

    def _begin(self, spare: int) -> Subscription:
        return Subscription(
            self._share + spare,
            spare,
            MessageChoice(self._chosen),
            lambda one: self._consumers.add(
                self.destination, one.prefetch, partial(self._take, one), selector=self._selector
            ),
        )

    def _take(self, one: Subscription, frame: Frame) -> None:
        self._sizes.note(len(frame.payload))
        message = shown(frame)
        if one.choice.ids:
            told = provenance(message, self.destination, message.origin, self._clock.now_ms())
            if not one.choice.takes(lying_id(told), len(frame.payload)):
                return
        reason = lost_by_taking(message, utf8_is_modified=self._rules.utf8_is_modified)
        if reason is None or reason in self._rules.allowed_losses:
            one.unproven.append(message)
            self._consumers.connection.waiting.keep(message.footprint)
            return
        if message.message_id not in one.held:
            self._consumers.connection.waiting.keep(_footprint_of_id(message.message_id))
        one.held[message.message_id] = reason

    def receive(self, limit: int, bytes_max: int) -> list[Delivery]:
        """Return new deliveries in order; the last one may go beyond `bytes_max`.

        Raises:
            FrameRefused: no permission to browse.
        """
        deliveries: list[Delivery] = []
        for one in () if self.is_leaving else self._current:
            while len(one.proven) < limit and one.unproven:
                self._prove(one)
            now_ms = self._clock.now_ms()
            left_bytes = bytes_max
            while one.proven and len(deliveries) < limit and left_bytes > 0:
                message, origin = one.proven.popleft()
                self._consumers.connection.waiting.take(message.footprint)
                one.in_hand += 1
                told = provenance(message, self.destination, origin, now_ms)
                handle = AckHandle(one, message.ack)
                left_bytes -= len(message.payload)
                deliveries.append(Delivery(handle, self.destination, message.kept, told, ENCODING))
        return deliveries

    def _prove(self, one: Subscription) -> None:
        """Ask the broker which of the next messages did not die where they say."""
        batch = next_batch(one.unproven)
        # Why one with an origin: if that is true, its being found proves that the broker searched.
        honest = min(
            (message for message in batch if isinstance(message.origin, Destination)),
            key=lambda message: len(message.payload),
            default=None,
        )
        liars: set[bytes] = set()
        if honest is not None:
            selector = selectors.liars(claims(batch, honest), *claim(honest))
            frames = self._consumers.browse(self.destination, len(batch), selector)
            liars = {shown(frame).message_id for frame in frames}
            if honest.message_id in liars:
                liars.remove(honest.message_id)
            else:
                one.unproven.remove(honest)
                one.proven.append((honest, LIE.format(honest.origin)))
                return
        for message in batch:
            is_lie = message.message_id in liars
            origin = LIE.format(message.origin) if is_lie else message.origin
            one.unproven.popleft()
            one.proven.append((message, origin))


def in_hand(deliveries: Sequence[Delivery]) -> list[AckHandle]:
    """Return the handles of deliveries that can be accepted.

    Raises:
        CommitRefused: one can't.
    """
    handles = []
    for delivery in deliveries:
        handle = delivery.handle
        if not isinstance(handle, AckHandle) or handle.subscription.is_ended:
            raise CommitRefused("a delivery is not in hand any more: it was given back")
        handles.append(handle)
    return handles


class StompClassicIntake:
    """All dead-letter queues that are read.

    Attributes:
        chosen: redelivery ids of messages, by the queues of which these alone are read.
    """

    def __init__(
        self, make_reader: Callable[[Destination], QueueReader], waiting: WaitingMessages
    ) -> None:
        self._make_reader = make_reader
        self._waiting = waiting
        self._readers: dict[Destination, QueueReader] = {}
        self.chosen: Mapping[Destination, frozenset[str]] = {}

    def read_from(
        self, destinations: Iterable[Destination], prefetch: int
    ) -> dict[Destination, str]:
        """Make these queues the intake; `prefetch` deliveries are ahead over all of them.

        Returns:
            The queues that can't be read, with the broker's words; the others are read.

        Raises:
            QueueRefused: a queue can't be read any more.
        """
        refused: dict[Destination, str] = {}
        wanted = dict.fromkeys(destinations)
        self._waiting.expect(len(wanted), prefetch)
        for destination, reader in self._readers.items():
            reader.is_leaving = destination not in wanted
        for destination in wanted:
            reader = self._readers.get(destination) or self._make_reader(destination)
            self._readers[destination] = reader
            try:
                reader.read(prefetch, len(wanted), self.chosen.get(destination, frozenset()))
            except FrameRefused as cause:
                refused[destination] = str(cause)
                self.drop(destination)
        self.mend()
        return refused

    def drop(self, destination: Destination) -> None:
        """Stop reading a deleted queue; its messages in hand can no longer be accepted."""
        reader = self._readers.pop(destination, None)
        if reader is not None:
            reader.drop()

    def mend(self) -> None:
        """Renew the subscriptions of each reader that needs it.

        Raises:
            QueueRefused: the broker does not allow it any more.
        """
        for destination, reader in list(self._readers.items()):
            try:
                reader.mend()
            except FrameRefused as cause:
                raise _refused(destination, cause) from cause
            if reader.is_leaving and not reader.in_hand:
                del self._readers[destination]

    def reading(self, queue: Destination) -> tuple[MessageChoice, int] | None:
        """Return the choice in a queue and how many in hand did not pass; None = it is not read."""
        found = (one.reading() for one in self.readers if one.destination == queue)
        return next(found, None)

    @property
    def readers(self) -> tuple[QueueReader, ...]:
        """The readers of queues that are read now."""
        return tuple(one for one in self._readers.values() if not one.is_leaving)

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` has something to return."""
        return any(reader.has_arrived for reader in self._readers.values())

    def receive(self, limit: int) -> list[Delivery]:
        """Return new deliveries, in order for each queue, up to about `TAKEN_BYTES_MAX`.

        Raises:
            QueueRefused: one can't be browsed any more.
        """
        deliveries: list[Delivery] = []
        left_bytes = TAKEN_BYTES_MAX
        for destination, reader in list(self._readers.items()):
            try:
                found = reader.receive(limit - len(deliveries), left_bytes)
            except FrameRefused as cause:
                raise _refused(destination, cause) from cause
            deliveries += found
            left_bytes -= sum(len(one.message) for one in found)
            if left_bytes <= 0:
                # Why: else large messages of one queue would keep other queues waiting.
                self._readers[destination] = self._readers.pop(destination)
                break
        return deliveries


def _refused(destination: Destination, cause: FrameRefused) -> QueueRefused:
    return QueueRefused(destination.name, f"can't read {destination}: {cause}")
