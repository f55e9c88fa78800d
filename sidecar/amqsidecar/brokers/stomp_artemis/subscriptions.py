"""Subscriptions of dead-letter queues over STOMP on Artemis, one per queue, and their deliveries.

Artemis gives a message group to one consumer of a queue, whatever that one's selector wants, until
it is gone. Two subscriptions of a queue would therefore keep messages from each other. So a queue
has one; where something else is to be read, it is exchanged: nothing more of it is returned, and
once nothing of it is in hand, it ends and the next one begins. UNSUBSCRIBE gives back what has
arrived without counting a failed delivery, at its old place.
"""

from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.selectors import both
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_artemis.selection import ListedMessage, readable
from amqsidecar.errors import QueueRefused
from amqsidecar.formats.payload import Footprint
from amqsidecar.formats.stomp_artemis_message import Arrived
from amqsidecar.formats.stomp_frame import Frame, Header
from amqsidecar.model.destination import Destination

_BYTES_EACH = 1024
_WINDOW_BYTES_MIN = 4 << 10
_WINDOW_BYTES_MAX = 4 << 20
_NAME = "in-"
_ANYCAST: Header = (b"subscription-type", b"ANYCAST")
_MULTICAST: Header = (b"subscription-type", b"MULTICAST")
_ONLY_MULTICAST = frozenset(("MULTICAST",))


class StompDelivery:
    """A dead letter that was handed to us; `listed`: how, if STOMP did not make it."""

    __slots__ = ("arrived", "listed", "subscription")

    def __init__(
        self, arrived: Arrived, subscription: "ArtemisSubscription", listed: ListedMessage | None
    ) -> None:
        self.arrived = arrived
        self.subscription = subscription
        self.listed = listed

    @property
    def footprint(self) -> Footprint:
        return self.arrived.footprint


class Stays(NamedTuple):
    """A subscription goes on."""


class Replaced(NamedTuple):
    """The next one reads these, by number, of what STOMP did not make."""

    wanted: dict[int, ListedMessage]


class Ends(NamedTuple):
    """There is no next one."""


def subscription_type(management: ArtemisQuestions, destination: Destination) -> Header:
    """Return the header with the type of a queue; the broker adds another one to its address.

    Raises:
        QueueRefused: the name is qualified, and the type can't be asked.
    """
    name = destination.name
    address, _, own = name.partition("::")
    if not own:
        return _ANYCAST
    if not management.is_usable:
        raise QueueRefused(
            name,
            f"queue {name} can't be read over STOMP: without its type the broker would add one to "
            f"its address, and it can't be asked: {management.why_unusable}",
        )
    row = next((row for row in management.queues(address=address) if row.name == own), None)
    if row is not None:
        return _ANYCAST if row.is_anycast else _MULTICAST
    # Why: the broker may make a queue that is missing.
    return _MULTICAST if management.routing_types(address) == _ONLY_MULTICAST else _ANYCAST


class ArtemisSubscription:
    """The reading of one queue.

    Attributes:
        type: see `subscription_type`.
        wanted: what it reads of what STOMP did not make, by the broker's numbers.
        excluded: originals that only seem to be made by STOMP.
        in_hand: how many were returned and are not accepted yet.
        looks: how many looks ago something that is wanted came.
        has_strays: whether it was handed what must not be returned, and the next one leaves out.
        kept: how many it was handed that must not be returned, and that no next one can leave out.
        fate: what becomes of it once none of its messages is in hand.
    """

    def __init__(self, queue: IntakeQueue, type_: Header) -> None:
        self.queue = queue
        self.type = type_
        self.id = ""
        self.wanted: dict[int, ListedMessage] = {}
        self.excluded: list[int] = []
        self.in_hand = 0
        self.looks = 0
        self.has_strays = False
        self.kept = 0
        self.fate: Stays | Replaced | Ends = Stays()

    @property
    def name(self) -> str:
        return self.queue.destination.name

    @property
    def selector(self) -> str:
        return both(readable(self.excluded, self.wanted.values()), self.queue.selector)


class ArtemisSubscriptions:
    """All of one connection.

    Attributes:
        share: how many dead letters of each queue may be here.
        buffer: what has arrived and was not returned, in order.
        returned: what was returned and is not accepted.
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
        is_read = subscription is not None and isinstance(subscription.fate, Stays)
        return subscription if is_read else None

    @property
    def attached(self) -> list[ArtemisSubscription]:
        """Those that go on."""
        return [one for one in self._subscriptions.values() if not isinstance(one.fate, Ends)]

    def held(self, subscription: ArtemisSubscription) -> list[StompDelivery]:
        """Return all that is here of a queue, returned or not."""
        return [one for one in (*self.returned, *self.buffer) if one.subscription is subscription]

    def attach(self, queue: IntakeQueue) -> None:
        """Read a queue from now on.

        Raises:
            QueueRefused: see `subscription_type`.
        """
        subscription = self._subscriptions.get(queue)
        if subscription is not None:
            if isinstance(subscription.fate, Ends):
                subscription.fate = Replaced({})
            return
        type_ = subscription_type(self._management, queue.destination)
        subscription = self._subscriptions[queue] = ArtemisSubscription(queue, type_)
        self._subscribe(subscription)

    def detach(self, subscription: ArtemisSubscription) -> None:
        """End a subscription once none of its messages is in hand."""
        self._begin_to_end(subscription, Ends())

    def exchange(self, subscription: ArtemisSubscription, wanted: dict[int, ListedMessage]) -> None:
        """Replace a subscription once none of its messages is in hand.

        Args:
            wanted: what the next one reads of what STOMP did not make.
        """
        self._begin_to_end(subscription, Replaced(wanted))

    def _begin_to_end(self, subscription: ArtemisSubscription, fate: Replaced | Ends) -> None:
        subscription.fate = fate
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
            one.subscription.wanted.pop(one.arrived.number, None)
            self._advance(one.subscription)

    def _advance(self, subscription: ArtemisSubscription) -> None:
        fate = subscription.fate
        if isinstance(fate, Stays) or subscription.in_hand:
            return
        self._unsubscribe(subscription)
        if isinstance(fate, Ends):
            del self._subscriptions[subscription.queue]
            return
        subscription.wanted, subscription.fate = fate.wanted, Stays()
        subscription.looks, subscription.has_strays, subscription.kept = 0, False, 0
        self._subscribe(subscription)

    def _subscribe(self, subscription: ArtemisSubscription) -> None:
        subscription.id = f"{_NAME}{next(self._numbers)}"
        self._by_id[subscription.id] = subscription
        self._connection.send(
            "SUBSCRIBE",
            self._headers(
                subscription.queue, subscription.type, subscription.id, subscription.selector
            ),
        )

    def _unsubscribe(self, subscription: ArtemisSubscription) -> None:
        del self._by_id[subscription.id]
        self._connection.send("UNSUBSCRIBE", [(b"id", subscription.id.encode())])

    def trial(self, queue: IntakeQueue) -> list[Header]:
        """Return the headers of a SUBSCRIBE that reads nothing.

        Raises:
            QueueRefused: see `subscription_type`.
        """
        type_ = subscription_type(self._management, queue.destination)
        return self._headers(queue, type_, "trial", "1 = 0")

    def _headers(self, queue: IntakeQueue, type_: Header, name: str, selector: str) -> list[Header]:
        window = min(max(self.share * _BYTES_EACH, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX)
        return [
            (b"destination", queue.destination.name.encode()),
            type_,
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
