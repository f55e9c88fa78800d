"""Subscriptions of dead-letter queues over STOMP on Artemis, one per queue, and their deliveries.

Artemis gives a message group to one consumer of a queue, despite that consumer's selector, until
the consumer is gone. Two subscriptions of a queue would therefore keep messages from each other.
So a queue has one subscription. It ends once none of its messages is in hand; only then can the
queue get the next subscription. UNSUBSCRIBE gives back arrived messages to their old place, without
counting a failed delivery.
"""

from collections import deque
from collections.abc import Iterable
from itertools import count

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.selectors import both
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_artemis.selection import MADE_BY_STOMP
from amqsidecar.formats.payload import Footprint
from amqsidecar.formats.stomp_artemis_message import Arrived
from amqsidecar.formats.stomp_frame import Frame, Header

_BYTES_EACH = 1024
_WINDOW_BYTES_MIN = 4 << 10
_WINDOW_BYTES_MAX = 4 << 20
_NAME = "in-"


class StompDelivery:
    """A dead letter that was handed to us."""

    __slots__ = ("arrived", "subscription")

    def __init__(self, arrived: Arrived, subscription: "ArtemisSubscription") -> None:
        self.arrived = arrived
        self.subscription = subscription

    @property
    def footprint(self) -> Footprint:
        """Its footprint."""
        return self.arrived.footprint


class ArtemisSubscription:
    """The reading of one queue.

    Attributes:
        in_hand: how many were returned and are not accepted yet.
        kept: how many it was handed that must not be returned; they stay in hand until it ends.
        is_ending: it ends once none of its messages is in hand.
        has_next: another one begins then.
    """

    def __init__(self, queue: IntakeQueue) -> None:
        self.queue = queue
        self.id = ""
        self.in_hand = 0
        self.kept = 0
        self.is_ending = False
        self.has_next = False

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self.queue.destination.name

    @property
    def selector(self) -> str:
        """Selector of messages to read."""
        return both(MADE_BY_STOMP, self.queue.selector)


class ArtemisSubscriptions:
    """All subscriptions of one connection.

    Attributes:
        share: maximum dead letters held per queue.
        buffer: deliveries that arrived and were not returned, in order.
        returned: deliveries that were returned and are not accepted.
    """

    def __init__(self, connection: StompConnection, management: ArtemisQuestions) -> None:
        self.share = 0
        self.buffer: deque[StompDelivery] = deque()
        self.returned: set[StompDelivery] = set()
        self._connection = connection
        self._management = management
        self._numbers = count(1)
        self._subscriptions: dict[IntakeQueue, ArtemisSubscription] = {}
        self._by_id: dict[str, ArtemisSubscription] = {}

    @staticmethod
    def is_ours(frame: Frame) -> bool:
        """Return whether a message arrived on one of these subscriptions, or on an ended one."""
        return frame.text(b"subscription").startswith(_NAME)

    def find(self, name: str) -> ArtemisSubscription | None:
        """Return a subscription by its id; None = its messages are with the broker."""
        subscription = self._by_id.get(name)
        return None if subscription is None or subscription.is_ending else subscription

    @property
    def attached(self) -> list[ArtemisSubscription]:
        """Subscriptions that go on, or have a successor."""
        return [one for one in self._subscriptions.values() if one.has_next or not one.is_ending]

    def held(self, subscription: ArtemisSubscription) -> list[StompDelivery]:
        """Return all deliveries held of a queue, returned or not."""
        return [one for one in (*self.returned, *self.buffer) if one.subscription is subscription]

    def attach(self, queue: IntakeQueue) -> None:
        """Read a queue from now on."""
        subscription = self._subscriptions.setdefault(queue, ArtemisSubscription(queue))
        if subscription.is_ending:
            subscription.has_next = True
        elif not subscription.id:
            self._subscribe(subscription)

    def detach(self, subscription: ArtemisSubscription) -> None:
        """End a subscription once none of its messages is in hand."""
        subscription.is_ending, subscription.has_next = True, False
        self._drop(one for one in self.buffer if one.subscription is subscription)
        self._advance(subscription)

    def keep(self, arrived: StompDelivery) -> None:
        """Put a dead letter into the buffer."""
        self.buffer.append(arrived)
        self._connection.waiting.keep(arrived.footprint)

    def take(self) -> StompDelivery:
        """Return the first of the buffer, which is in hand from now on."""
        taken = self.buffer.popleft()
        self._connection.waiting.take(taken.footprint)
        self.returned.add(taken)
        taken.subscription.in_hand += 1
        return taken

    def _drop(self, unwanted: Iterable[StompDelivery]) -> None:
        dropped = set(unwanted)
        self.buffer = deque(one for one in self.buffer if one not in dropped)
        for one in dropped:
            self._connection.waiting.take(one.footprint)

    def accepted(self, held: Iterable[StompDelivery]) -> None:
        """Forget deliveries whose removal the broker has been sent."""
        for one in held:
            self.returned.discard(one)
            one.subscription.in_hand -= 1
            self._advance(one.subscription)

    def _advance(self, subscription: ArtemisSubscription) -> None:
        if not subscription.is_ending or subscription.in_hand:
            return
        self._unsubscribe(subscription)
        del self._subscriptions[subscription.queue]
        if subscription.has_next:
            self.attach(subscription.queue)

    def _subscribe(self, subscription: ArtemisSubscription) -> None:
        subscription.id = f"{_NAME}{next(self._numbers)}"
        self._by_id[subscription.id] = subscription
        self._connection.send(
            "SUBSCRIBE",
            self.headers(subscription.queue, subscription.id, subscription.selector),
        )

    def _unsubscribe(self, subscription: ArtemisSubscription) -> None:
        del self._by_id[subscription.id]
        self._connection.send("UNSUBSCRIBE", [(b"id", subscription.id.encode())])

    def headers(self, queue: IntakeQueue, name: str, selector: str) -> list[Header]:
        """Return the headers of a SUBSCRIBE."""
        window = min(max(self.share * _BYTES_EACH, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX)
        kind: list[Header] = [(b"subscription-type", b"ANYCAST")]
        if "::" in queue.destination.name:
            # Why: another type than that of the queue would be added to its address.
            address, _, own = queue.destination.name.partition("::")
            rows = [row for row in self._management.queues(address=address) if row.name == own]
            is_anycast = any(row.is_anycast for row in rows)
            kind = kind if is_anycast else [(b"subscription-type", b"MULTICAST")]
        return [
            (b"destination", queue.destination.name.encode()),
            *kind,
            (b"id", name.encode()),
            (b"ack", b"client-individual"),
            (b"selector", selector.encode()),
            (b"consumer-window-size", b"%d" % window),
        ]

    def close(self) -> None:
        """Give all back.

        Raises:
            LinkLost: the connection is gone, which gives it back as well.
        """
        self._drop(self.buffer)
        for subscription in list(self._by_id.values()):
            self._unsubscribe(subscription)
        self._subscriptions.clear()
