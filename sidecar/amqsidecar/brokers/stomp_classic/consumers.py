"""The subscriptions of one STOMP connection to Classic, their messages, and browsing."""

import secrets
from collections.abc import Callable

from typing_extensions import override

from amqsidecar.brokers.classic.consumers import ClassicConsumers
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection
from amqsidecar.clock import Clock
from amqsidecar.errors import LinkLost
from amqsidecar.formats.stomp_classic_message import destination_header
from amqsidecar.formats.stomp_frame import Frame, Header
from amqsidecar.model.destination import Destination, DestinationKind

_BROWSE_TIMEOUT_S = 10.0
_BROWSE_BYTES_MAX = 64 * 1024 * 1024

FrameTaker = Callable[[Frame], None]


class StompSubscriptions(ClassicConsumers):
    """All subscriptions of a connection, by their ids."""

    connection: StompConnection

    def __init__(self, connection: StompConnection, clock: Clock) -> None:
        super().__init__(connection, clock)
        # Why: a body that ends early must not be able to forge a message.
        self._prefix = secrets.token_hex(6).encode() + b"-"
        self._count = 0
        self._takers: dict[bytes, FrameTaker] = {}
        self._destinations: dict[bytes, Destination] = {}
        # Why also of ended subscriptions: their messages may come late.
        connection.is_ours = lambda frame: (frame.first(b"subscription") or b"").startswith(
            self._prefix
        )

    @property
    def queues(self) -> frozenset[Destination]:
        """The queues that are consumed or browsed now, or were when the connection was lost."""
        found = self._destinations.values()
        return frozenset(one for one in found if one.kind is DestinationKind.QUEUE)

    def add(
        self,
        destination: Destination,
        prefetch: int,
        take: FrameTaker,
        *,
        selector: str = "",
        acks: bool = True,
        options: tuple[Header, ...] = (),
        address: bytes | None = None,
    ) -> bytes:
        """Begin to consume and return the subscription's id.

        Args:
            destination: a queue or topic.
            prefetch: messages that the broker hands over ahead of their acks.
            take: who gets them.
            selector: "" = all.
            acks: whether each is acknowledged by itself; False = not at all.
            options: further headers.
            address: name of our temporary queue; None = the destination's name.

        Raises:
            FrameRefused: the broker does not allow it.
        """
        self._count += 1
        name = self._prefix + b"%d" % self._count
        self._takers[name] = take
        self._destinations[name] = destination
        headers = [
            destination_header(destination) if address is None else (b"destination", address),
            (b"id", name),
            (b"ack", b"client-individual" if acks else b"auto"),
            (b"activemq.prefetchSize", b"%d" % prefetch),
            *options,
        ]
        if selector:
            headers.append((b"selector", selector.encode()))
        try:
            self.connection.call("SUBSCRIBE", headers)
        except FrameRefused:
            del self._takers[name], self._destinations[name]
            raise
        return name

    def remove(self, name: bytes) -> None:
        """End a subscription; its messages go back to the queue.

        Quirk (Classic): its redelivery counter grows, which no limit of the broker looks at.
        """
        self._takers[name] = _drop
        self.connection.call("UNSUBSCRIBE", [(b"id", name)], meanwhile=self.route)
        self.route()
        del self._takers[name], self._destinations[name]

    @override
    def route(self) -> None:
        while self.connection.messages:
            frame = self.connection.next_message()
            take = self._takers.get(frame.first(b"subscription") or b"")
            if take is not None:
                take(frame)

    def browse(self, destination: Destination, at_most: int, selector: str = "") -> list[Frame]:
        """Return up to a number of a queue's messages, including messages handed out.

        It ends early with the message that makes them exceed `_BROWSE_BYTES_MAX` in total.

        Raises:
            FrameRefused: the broker does not allow it.
            LinkLost: the browser did not end.
        """
        found: list[Frame] = []
        held_bytes = 0
        has_ended = False

        def take(frame: Frame) -> None:
            nonlocal held_bytes, has_ended
            if _ends_browsing(frame):
                has_ended = True
            elif held_bytes <= _BROWSE_BYTES_MAX and len(found) < at_most:
                found.append(frame)
                held_bytes += len(frame.payload) + len(frame.head)

        name = self.add(
            destination,
            at_most,
            take,
            selector=selector,
            options=((b"browser", b"true"),),
        )
        is_done = self.run_until(
            lambda: has_ended or len(found) >= at_most or held_bytes > _BROWSE_BYTES_MAX,
            _BROWSE_TIMEOUT_S,
        )
        if not is_done:
            raise LinkLost(f"browsing {destination} did not end")
        self.remove(name)
        return found


def _ends_browsing(frame: Frame) -> bool:
    """Tell the end of a browse from a message with a property `browser`.

    Source: ActiveMQ Classic, StompQueueBrowserSubscription: it has four headers; each message has a
    timestamp, and no property takes a header away.
    """
    return frame.first(b"browser") == b"end" and frame.first(b"timestamp") is None


def _drop(_frame: Frame) -> None:
    """Receive messages that were on their way to an ending subscription."""
