"""The consumers of one OpenWire connection, and their messages."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from typing_extensions import override

from amqsidecar.broker import Delivery
from amqsidecar.brokers.classic.choice import MessageChoice
from amqsidecar.brokers.classic.consumers import ClassicConsumers
from amqsidecar.brokers.connection.message_sizes import TAKEN_BYTES_MAX, MessageSizes
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.clock import Clock
from amqsidecar.errors import CommitRefused, LinkLost
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import read_dead_letter
from amqsidecar.model.destination import Destination
from amqsidecar.model.provenance import lying_id

_BROWSE_TIMEOUT_S = 10.0
_BROWSED_AHEAD = 1_024
# Bound: bytes that the broker may have handed over ahead, estimated from mean sizes.
_HELD_BYTES_MAX = 64 * 1024 * 1024

MessageTaker = Callable[["OpenWireConsumer", bytes, bytes | None], None]
"""Takes a message of a consumer, with its nested destination; None = end of a browser."""


class OpenWireConsumer:
    """One consumer of this connection.

    Attributes:
        take: gets its messages; None = it is an intake queue.
        choice: of an intake queue; all but the chosen messages stay in hand.
        place: how many messages were handed to it.
        in_hand: deliveries that were returned and not accepted.
        is_leaving: it is removed once none of its messages is in hand.
    """

    __slots__ = (
        "choice",
        "destination",
        "field",
        "in_hand",
        "is_leaving",
        "nested_id",
        "place",
        "prefetch",
        "take",
        "value",
    )

    def __init__(
        self,
        value: int,
        nested_id: bytes,
        destination: Destination,
        prefetch: int,
        take: MessageTaker | None,
        choice: MessageChoice,
    ) -> None:
        self.value = value
        self.nested_id = nested_id
        self.destination = destination
        self.field = codec.destination_field(destination)
        self.prefetch = prefetch
        self.take = take
        self.choice = choice
        self.place = 0
        self.in_hand = 0
        self.is_leaving = False


class MessageHandle:
    """A message's place in the sequence handed to its consumer."""

    __slots__ = ("consumer", "field", "message_id", "place")

    def __init__(
        self, consumer: OpenWireConsumer, field: bytes, message_id: bytes | None, place: int
    ) -> None:
        self.consumer = consumer
        self.field = field
        self.message_id = message_id
        self.place = place


def ack_fields(transaction: bytes, first: MessageHandle, last: MessageHandle) -> bytes:
    """Return the fields of an ack of a consumer's messages from first to last."""
    return codec.message_ack(
        last.field,
        transaction,
        last.consumer.nested_id,
        first.message_id or codec.NULL,
        last.message_id or codec.NULL,
        last.place - first.place + 1,
    )


def runs(handles: Iterable[MessageHandle]) -> list[tuple[MessageHandle, MessageHandle]]:
    """Return first and last of each run that a consumer was handed without a gap.

    Within a run nothing is in hand that is not among the handles, so one ranged ack does for it.
    """
    by_consumer: dict[int, list[MessageHandle]] = {}
    for handle in handles:
        by_consumer.setdefault(handle.consumer.value, []).append(handle)
    found = []
    for own in by_consumer.values():
        own.sort(key=lambda handle: handle.place)
        first = last = own[0]
        for handle in own[1:]:
            if handle.place != last.place + 1 or handle.field != last.field:
                found.append((first, last))
                first = handle
            last = handle
        found.append((first, last))
    return found


@lru_cache(maxsize=4096)
def _source(field: bytes) -> Destination:
    source = codec.read_destination(field)
    if source is None:
        raise LinkLost("the broker handed out a message without telling its queue")
    return source


class OpenWireConsumers(ClassicConsumers):
    """All consumers of a connection.

    Attributes:
        chosen: redelivery ids of messages, by the intake queues of which these alone are read.
    """

    connection: OpenWireConnection

    def __init__(self, connection: OpenWireConnection, clock: Clock) -> None:
        super().__init__(connection, clock)
        self._count = 0
        self._by_value: dict[int, OpenWireConsumer] = {}
        self._sizes = MessageSizes(_HELD_BYTES_MAX)
        self._prefetch_max = 1
        self.chosen: Mapping[Destination, frozenset[str]] = {}
        self._arrived: deque[tuple[OpenWireConsumer, codec.MessageDispatch, int]] = deque()

    def add(
        self,
        destination: Destination,
        prefetch: int,
        *,
        take: MessageTaker | None = None,
        browser: bool = False,
        exclusive: bool = False,
        asynchronous: bool = True,
        selector: str = "",
        chosen: Collection[str] = (),
    ) -> OpenWireConsumer:
        """Begin to consume.

        Args:
            destination: a queue or topic.
            prefetch: messages that the broker hands over ahead of their acks.
            take: gets them; None = `receive` returns them.
            browser: only browse the queue.
            exclusive: while this consumer exists, no other gets messages of the queue.
            asynchronous: False = existing messages arrive before this returns (topics).
            selector: of messages; "" = all.
            chosen: redelivery ids of the messages that `receive` returns; empty = all.

        Raises:
            CommandRefused: the broker does not allow it.
        """
        self._count += 1
        nested_id = codec.consumer_id(self.connection.connection, 1, self._count)
        consumer = OpenWireConsumer(
            self._count, nested_id, destination, prefetch, take, MessageChoice(chosen)
        )
        self._by_value[consumer.value] = consumer
        info = codec.consumer_info(
            nested_id,
            consumer.field,
            prefetch=prefetch,
            browser=browser,
            exclusive=exclusive,
            asynchronous=asynchronous,
            selector=selector or None,
        )
        try:
            self.connection.call(codec.CONSUMER_INFO, info)
        except CommandRefused:
            del self._by_value[consumer.value]
            raise
        return consumer

    def acknowledge(self, consumer: OpenWireConsumer, field: bytes, message: bytes) -> None:
        """Take a message that a consumer was handed, outside of a transaction."""
        handle = MessageHandle(consumer, field, read_dead_letter(message, None, 0)[1], 0)
        self.connection.send(codec.MESSAGE_ACK, ack_fields(codec.NULL, handle, handle))

    def remove(self, consumer: OpenWireConsumer) -> None:
        """End a consumer; its messages go back to the queue, without counting as failed."""
        self._by_value.pop(consumer.value, None)
        with suppress(CommandRefused):
            self.connection.call(codec.REMOVE_INFO, codec.remove_info(consumer.nested_id))

    def read_from(
        self, destinations: Iterable[Destination], prefetch: int
    ) -> dict[Destination, str]:
        """Make these queues the intake; `prefetch` deliveries are ahead over all of them.

        They are fewer where messages are large, and while their size is unknown.

        Returns:
            The queues that can't be read, with the broker's words; the others are read.
        """
        wanted = dict.fromkeys(destinations)
        present = {}
        for consumer in self._intake():
            chosen = self.chosen.get(consumer.destination, frozenset())
            if consumer.destination not in wanted or consumer.choice.ids != chosen:
                self._leave(consumer)
            elif not consumer.is_leaving:
                present[consumer.destination] = consumer
        self._prefetch_max = prefetch
        self.connection.waiting.expect(len(wanted), prefetch)
        share = self._share(len(wanted))
        refused = {}
        for destination in wanted:
            known = present.get(destination)
            try:
                if known is None:
                    self.add(destination, share, chosen=self.chosen.get(destination, ()))
                else:
                    self._change(known, share)
            except CommandRefused as cause:
                refused[destination] = str(cause)
        return refused

    def _share(self, consumer_count: int) -> int:
        """Return how many deliveries each consumer has ahead."""
        ahead = self._sizes.ahead(self._prefetch_max)
        return max(1, ahead // max(1, consumer_count))

    def _change(self, consumer: OpenWireConsumer, share: int) -> None:
        prefetch = consumer.choice.prefetch(share)
        if consumer.prefetch != prefetch:
            change = codec.consumer_control(consumer.nested_id, consumer.field, prefetch)
            # Why no answer: Classic never refuses it, and one would come behind large messages.
            self.connection.send(codec.CONSUMER_CONTROL, change)
            consumer.prefetch = prefetch

    def drop(self, destination: Destination) -> None:
        """Stop reading a deleted queue; its messages in hand can no longer be accepted."""
        for consumer in self._intake():
            if consumer.destination == destination:
                consumer.is_leaving = True
                self.remove(consumer)

    @property
    def read(self) -> tuple[Destination, ...]:
        return tuple(one.destination for one in self._reading())

    def reading(self, queue: Destination) -> tuple[MessageChoice, int] | None:
        """Return the choice in a queue and how many in hand did not pass; None = it is not read."""
        found = ((one.choice, one.in_hand) for one in self._reading() if one.destination == queue)
        return next(found, None)

    def _reading(self) -> list[OpenWireConsumer]:
        return [one for one in self._intake() if not one.is_leaving]

    def _intake(self) -> list[OpenWireConsumer]:
        return [one for one in self._by_value.values() if one.take is None]

    def _leave(self, consumer: OpenWireConsumer) -> None:
        """Remove a consumer, at once or when none of its messages is in hand."""
        consumer.is_leaving = True
        if not consumer.in_hand:
            self.remove(consumer)

    @override
    def route(self) -> None:
        connection = self.connection
        by_value = self._by_value
        while connection.dispatches:
            dispatch = connection.dispatches.popleft()
            consumer = by_value.get(dispatch.consumer)
            if consumer is not None and consumer.take is None and dispatch.message is not None:
                # It goes on waiting, until it is received.
                place = consumer.place = consumer.place + 1
                self._arrived.append((consumer, dispatch, place))
                continue
            connection.waiting.take(dispatch.footprint)
            if consumer is not None and consumer.take is not None:
                message = dispatch.message
                whole = None if message is None else bytes(message)
                consumer.take(consumer, dispatch.destination, whole)

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` has something to return."""
        return bool(self._arrived)

    def receive(self, limit: int) -> list[Delivery]:
        """Return new messages of the intake in order, up to about `TAKEN_BYTES_MAX`."""
        deliveries: list[Delivery] = []
        arrived = self._arrived
        if not arrived:
            return deliveries
        now_ms = self.clock.now_ms()
        left_bytes = TAKEN_BYTES_MAX
        while arrived and len(deliveries) < limit and left_bytes > 0:
            consumer, dispatch, place = arrived.popleft()
            _, field, payload, footprint = dispatch
            self.connection.waiting.take(footprint)
            if consumer.is_leaving or payload is None:
                continue
            message = bytes(payload)
            left_bytes -= len(message)
            source = _source(field)
            provenance, message_id = read_dead_letter(message, source, now_ms)
            handle = MessageHandle(consumer, field, message_id, place)
            delivery = Delivery(handle, source, message, provenance, codec.ENCODING)
            self._sizes.note(len(message))
            if consumer.choice.takes(lying_id(provenance), len(message)):
                consumer.in_hand += 1
                deliveries.append(delivery)
        self._adapt()
        return deliveries

    def _adapt(self) -> None:
        """Adapt the number of deliveries ahead to the sizes of messages."""
        read = self._reading()
        share = self._share(len(read))
        for consumer in read:
            self._change(consumer, share)

    def in_hand(self, deliveries: Sequence[Delivery]) -> list[MessageHandle]:
        """Return the handles of deliveries that can be accepted.

        Raises:
            CommitRefused: one can't.
            LinkLost: one is not in hand any more, because its queue was deleted.
        """
        handles = []
        for delivery in deliveries:
            handle = delivery.handle
            if not isinstance(handle, MessageHandle) or handle.consumer.value not in self._by_value:
                raise LinkLost(f"a delivery of {delivery.source} is not in hand any more")
            if handle.message_id is None:
                raise CommitRefused("a delivery has no readable message id, so no ack can name it")
            handles.append(handle)
        return handles

    def settled(self, handles: Sequence[MessageHandle]) -> None:
        """Note that a committed transaction has accepted these."""
        for handle in handles:
            handle.consumer.in_hand -= 1
        for consumer in {handle.consumer for handle in handles}:
            if consumer.is_leaving:
                self._leave(consumer)

    def browse(
        self, destination: Destination, at_most: int, selector: str = ""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return up to a number of a queue's messages, including messages handed out.

        Each comes with the field of its queue.

        Args:
            destination: a queue or a wildcard.
            selector: of messages; "" = all.

        Raises:
            CommandRefused: the broker does not allow it.
            LinkLost: the browser did not end.
        """
        arrived: deque[tuple[bytes, bytes | None]] = deque()
        sizes, ahead_max = MessageSizes(_HELD_BYTES_MAX), min(at_most, _BROWSED_AHEAD)
        browser = self.add(
            destination,
            sizes.ahead(ahead_max),
            browser=True,
            take=lambda _consumer, field, message: arrived.append((field, message)),
            selector=selector,
        )
        unacked = 0
        try:
            for _ in range(at_most):
                if not self.run_until(lambda: bool(arrived), _BROWSE_TIMEOUT_S):
                    raise LinkLost(f"browsing {destination} did not end")
                field, message = arrived.popleft()
                if message is None:
                    return
                sizes.note(len(message))
                unacked += 1
                handle = MessageHandle(browser, field, None, unacked)
                if unacked >= browser.prefetch / 2:
                    handle.message_id = read_dead_letter(message, None, 0)[1]
                if handle.message_id is not None:
                    # Why: a browser that acknowledges takes nothing, and is handed more.
                    first = MessageHandle(browser, field, None, 1)
                    self.connection.send(codec.MESSAGE_ACK, ack_fields(codec.NULL, first, handle))
                    self._change(browser, sizes.ahead(ahead_max))
                    unacked = 0
                yield field, message
        finally:
            with suppress(LinkLost):
                self._remove_browser(browser)

    def _remove_browser(self, browser: OpenWireConsumer) -> None:
        """Remove a browser, and drop its messages that are still on their way."""
        self._by_value.pop(browser.value, None)
        remove = codec.remove_info(browser.nested_id)
        number = self.connection.ask(codec.REMOVE_INFO, remove)
        # Why route: left where it came in, a long queue of large messages would fill our memory.
        self.run_until(lambda: self.connection.is_answered(number), _BROWSE_TIMEOUT_S)
        self.connection.answers([number])
