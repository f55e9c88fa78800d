"""How dead letters are taken over STOMP, so that none is damaged and no origin is believed blindly.

A property can hide the true origin of a dead letter (`original-destination`, which every STOMP
client that forwards all headers sends along), and no selector can name that property. But a
selector on `JMSDestination` knows the truth. So each origin has a subscription of its own, and one
for the rest finds new origins: what it is handed is not believed, goes back, and comes again over
the subscription of its origin. What comes again over the rest is a lie.

What would lose something by being taken stays unacknowledged in hand. The broker counts it against
the prefetch, so that a subscription with many of them is made anew with room for as many more.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from amqsidecar.broker import Delivery, Loss
from amqsidecar.brokers import stomp_classic_selectors as selectors
from amqsidecar.brokers.stomp_classic_consumers import Consumers
from amqsidecar.brokers.stomp_classic_message import (
    Shown,
    lost_by_taking,
    provenance,
    shown,
)
from amqsidecar.brokers.stomp_connection import Refused
from amqsidecar.brokers.stomp_frame import Frame
from amqsidecar.clock import Clock
from amqsidecar.errors import CommitRefused
from amqsidecar.model.destination import Destination

HELD_MAX = 1000
"""Messages of one origin that are held in hand since they can't be taken."""

ORIGINS_MAX = 500
"""Origins of one dead-letter queue; what died elsewhere is parked."""

LIE = (
    "a property of its own says where it died ({}), which is not true, and hides the truth: STOMP "
    "can't show it; look at it over openwire://"
)
TOO_MANY = f"its dead-letter queue has messages of more than {ORIGINS_MAX} origins"


class Rules(msgspec.Struct, frozen=True):
    """What may be taken.

    Attributes:
        allowed_losses: what the operator lets get lost.
        unreadable: ids of messages whose frames broke a connection, with their queues.
        utf8_is_modified: see `lost_by_taking`.
    """

    allowed_losses: frozenset[Loss]
    unreadable: Mapping[str, str]
    utf8_is_modified: bool


class Subscription:
    """One subscription to a dead-letter queue.

    Attributes:
        origin: where all of it died; None = elsewhere.
        name: its id; None = it is not made.
        in_hand: deliveries that were returned and not accepted.
        spare: the part of the prefetch that is meant for messages that are held.
        held: reasons why messages in hand can't be taken, by message id.
        unproven: messages in hand whose origin is not believed yet.
    """

    def __init__(self, origin: Destination | None) -> None:
        self.origin = origin
        self.name: bytes | None = None
        self.prefetch = 0
        self.spare = 0
        self.selector = ""
        self.in_hand = 0
        self.held: dict[bytes, str] = {}
        self.unproven = 0
        self.arrived: deque[tuple[Shown, Destination | str]] = deque()

    def forget(self) -> None:
        """Note that the broker has everything back."""
        self.name = None
        self.held.clear()
        self.unproven = 0
        self.arrived.clear()


class Handle(msgspec.Struct, frozen=True, gc=False):
    """What an ACK needs."""

    subscription: Subscription
    name: bytes
    ack: bytes


class QueueReader:
    """Reads one dead-letter queue."""

    def __init__(
        self, destination: Destination, consumers: Consumers, clock: Clock, rules: Rules
    ) -> None:
        self.destination = destination
        self.is_leaving = False
        self._consumers = consumers
        self._clock = clock
        self._rules = rules
        self._base = selectors.takes(rules.allowed_losses, rules.unreadable)
        self._share = 1
        self._rest = Subscription(None)
        self._by_origin: dict[Destination, Subscription] = {}
        self._retired: list[Subscription] = []

    @property
    def _all(self) -> Iterable[Subscription]:
        return (*self._by_origin.values(), self._rest)

    @property
    def in_hand(self) -> int:
        """Deliveries that were returned and not accepted."""
        return sum(one.in_hand for one in (*self._all, *self._retired))

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` has something to return."""
        return not self.is_leaving and any(one.arrived for one in self._all)

    def held(self) -> Counter[str]:
        """Return how many messages are held in hand, by reason."""
        return Counter(reason for one in self._all for reason in one.held.values())

    @property
    def is_full(self) -> bool:
        """Whether so many are held that nothing more is handed over."""
        return any(len(one.held) >= one.prefetch > 0 for one in self._all)

    def read(self, share: int) -> None:
        """Read with so many deliveries ahead.

        Raises:
            Refused: the broker does not allow it.
        """
        is_more, self._share = share > self._share, share
        self.is_leaving = False
        if is_more:
            self._retire()
        self.mend()

    def _retire(self) -> None:
        """Put others beside subscriptions that are too small and have something in hand."""
        for one in tuple(self._all):
            if one.name is None or not one.in_hand or self._is_right(one):
                continue
            self._retired.append(one)
            if one.origin is None:
                self._rest = Subscription(None)
            else:
                self._by_origin[one.origin] = Subscription(one.origin)

    def mend(self) -> None:
        """Make subscriptions anew that have to be other than they are, if nothing is in hand.

        Raises:
            Refused: the broker does not allow it.
        """
        for one in tuple(self._retired):
            self._end(one)
            if one.name is None:
                self._retired.remove(one)
        if self.is_leaving:
            for one in self._all:
                self._end(one)
            return
        anew = [
            (one, min(len(one.held), HELD_MAX))
            for one in self._all
            if not self._is_right(one) and not one.in_hand
        ]
        # Why all before any begins: what goes back is older than what would be handed over now.
        for one, _ in anew:
            self._end(one)
        for one, held in anew:
            self._begin(one, held)

    def drop(self) -> None:
        """End all subscriptions, whatever is in hand."""
        for one in (*self._all, *self._retired):
            if one.name is not None:
                with suppress(Refused):
                    self._consumers.remove(one.name)
                one.forget()

    def _is_right(self, one: Subscription) -> bool:
        if one.name is None:
            return False
        is_roomy = one.prefetch - len(one.held) >= self._room / 2 or one.spare >= HELD_MAX
        is_bounded = one.prefetch - one.spare <= 2 * self._room
        is_known = not one.unproven and one.selector == self._selector(one)
        return is_roomy and is_bounded and is_known

    @property
    def _room(self) -> int:
        return max(1, self._share // max(1, len(self._by_origin)))

    def _selector(self, one: Subscription) -> str:
        if one.origin is not None:
            return f"{self._base} AND {selectors.died_in(one.origin)}"
        elsewhere = selectors.died_elsewhere(self._by_origin)
        return f"{self._base} AND {elsewhere}" if elsewhere else self._base

    def _end(self, one: Subscription) -> None:
        if one.name is not None and not one.in_hand:
            self._consumers.remove(one.name)
            one.forget()

    def _begin(self, one: Subscription, held: int) -> None:
        one.selector = self._selector(one)
        one.spare = held
        one.prefetch = self._room + held
        one.name = self._consumers.add(
            self.destination,
            one.prefetch,
            lambda frame: self._take(one, frame),
            selector=one.selector,
        )

    def _take(self, one: Subscription, frame: Frame) -> None:
        message = shown(frame)
        origin = one.origin or self._prove(message)
        if origin is None:
            one.unproven += 1
            return
        reason = lost_by_taking(message, utf8_is_modified=self._rules.utf8_is_modified)
        if reason is not None and reason not in self._rules.allowed_losses:
            one.held[message.message_id] = reason
            return
        one.arrived.append((message, origin))

    def _prove(self, message: Shown) -> Destination | str | None:
        """Return the origin of what the rest was handed; None = not believed yet."""
        claim = message.origin
        if isinstance(claim, str):
            return claim
        if claim in self._by_origin:
            # Why: of an origin that came up a moment ago the rest may still hand out messages.
            is_proven = selectors.died_elsewhere(self._by_origin) in self._rest.selector
            return LIE.format(claim) if is_proven else None
        if len(self._by_origin) >= ORIGINS_MAX:
            return TOO_MANY
        self._by_origin[claim] = Subscription(claim)
        return None

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before."""
        deliveries: list[Delivery] = []
        if self.is_leaving:
            return deliveries
        now_ms = self._clock.now_ms()
        for one in self._all:
            while one.arrived and len(deliveries) < limit and one.name is not None:
                message, origin = one.arrived.popleft()
                one.in_hand += 1
                told = provenance(message, origin, now_ms)
                handle = Handle(one, one.name, message.ack)
                deliveries.append(Delivery(handle, self.destination, message.kept, told))
        return deliveries


def in_hand(deliveries: Sequence[Delivery]) -> list[Handle]:
    """Return the handles of deliveries that can be accepted.

    Raises:
        CommitRefused: one can't.
    """
    handles = []
    for delivery in deliveries:
        handle = delivery.handle
        if not isinstance(handle, Handle) or handle.subscription.name != handle.name:
            raise CommitRefused("a delivery is not in hand any more: it was given back")
        handles.append(handle)
    return handles


class Intake:
    """All dead-letter queues that are read."""

    def __init__(self, make_reader: Callable[[Destination], QueueReader]) -> None:
        self._make_reader = make_reader
        self._readers: dict[Destination, QueueReader] = {}

    def read_from(
        self, destinations: Iterable[Destination], prefetch: int
    ) -> dict[Destination, str]:
        """Make these queues the intake, with so many deliveries ahead over all of them.

        Returns:
            Those that can't be read, with the broker's words; the others are read.

        Raises:
            RefusedQueue: one can't be read any more.
        """
        refused: dict[Destination, str] = {}
        wanted = dict.fromkeys(destinations)
        for destination, reader in self._readers.items():
            reader.is_leaving = destination not in wanted
        share = max(1, prefetch // max(1, len(wanted)))
        for destination in wanted:
            reader = self._readers.get(destination) or self._make_reader(destination)
            self._readers[destination] = reader
            try:
                reader.read(share)
            except Refused as cause:
                refused[destination] = str(cause)
                self.drop(destination)
        self.mend()
        return refused

    def drop(self, destination: Destination) -> None:
        """Stop reading a queue that is gone; what is in hand of it can't be accepted any more."""
        reader = self._readers.pop(destination, None)
        if reader is not None:
            reader.drop()

    def mend(self) -> None:
        """Let each reader make its subscriptions anew where it has to.

        Raises:
            RefusedQueue: the broker does not allow it any more.
        """
        for destination, reader in list(self._readers.items()):
            try:
                reader.mend()
            except Refused as cause:
                raise RefusedQueue(destination, cause) from cause
            if reader.is_leaving and not reader.in_hand:
                del self._readers[destination]

    @property
    def readers(self) -> tuple[QueueReader, ...]:
        """The readers of queues that are read now."""
        return tuple(one for one in self._readers.values() if not one.is_leaving)

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` has something to return."""
        return any(reader.has_arrived for reader in self._readers.values())

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before; in order for each origin."""
        deliveries: list[Delivery] = []
        for reader in self._readers.values():
            deliveries += reader.receive(limit - len(deliveries))
        return deliveries


class RefusedQueue(Exception):
    """The broker does not let us read a queue; never leaves `brokers/`."""

    def __init__(self, destination: Destination, cause: Refused) -> None:
        self.name = destination.name
        super().__init__(f"can't read {destination}: {cause}")
