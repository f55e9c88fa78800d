"""Reading dead-letter queues of Artemis over Core: consumers, their credits, and messages in hand.

After a rollback the broker hands out again all messages that were in hand. The intake then awaits
the engine's messages, and recognises them by the broker's number; all others are new. Another
consumer may get some of them: so the intake asks for the end of the broker's hand-out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.artemis.left_behind import left_too_large
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import QUEUE_MISSING, CoreRefused
from amqsidecar.brokers.core.session import CoreAcknowledgement, CoreSession, is_forced
from amqsidecar.brokers.core_artemis.targets import make_missing_queue
from amqsidecar.brokers.selectors import both
from amqsidecar.errors import LinkLost, QueueRefused
from amqsidecar.formats.artemis_properties import OriginReader
from amqsidecar.formats.core_artemis_message import ENCODING, keep_large, read_provenance
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

# Why little at first: each break of a link counts a failed delivery per message in hand.
_WINDOW_START_BYTES = 64 * 1024
# Bound: bytes that the broker may have handed us ahead, over all queues; but for one message each.
_WINDOWS_BYTES_MAX = 64 * 1024 * 1024
_WINDOW_BYTES_MIN = 4 * 1024
_SIZE_AT_FIRST_BYTES = 1024
_SIZE_CHANGES_BY = 1 / 16
_AGAIN_TIMEOUT_S = 15.0
# Why two: more may be on its way from the broker's disk.
_EMPTY_ENDS = 2


class CoreHandle:
    """A message that the engine has.

    Attributes:
        consumer: that it was handed out to.
        message_id: the broker's number.
        credit_bytes: that it holds.
        is_here: False = after a rollback it has not been handed out again yet.
    """

    __slots__ = ("consumer", "credit_bytes", "is_here", "message_id")

    def __init__(self, consumer: int, message_id: int, credit_bytes: int) -> None:
        self.consumer = consumer
        self.message_id = message_id
        self.credit_bytes = credit_bytes
        self.is_here = True


class DeadLetterConsumer:
    """One consumer, and the messages handed to it.

    Attributes:
        in_hand: messages not acknowledged, in the broker's order.
        waiting: messages in hand that were not received yet.
        awaited: messages of the engine that a rollback has given back.
        received_count: how many messages the engine has.
        too_large: numbers of messages in hand that are never received: they have no body.
        is_leaving: nothing more is received from it.
        is_end_asked: the broker was asked for the end of its hand-out, and has not answered.
        empty_ends: how many ends came in a row, without a message before them.
    """

    def __init__(self, queue: IntakeQueue, number: int, window_bytes: int) -> None:
        self.queue = queue
        self.number = number
        self.window_bytes = window_bytes
        self.in_hand: dict[int, CoreHandle] = {}
        self.waiting: deque[tuple[CoreHandle, CoreDelivery]] = deque()
        self.awaited: dict[int, CoreHandle] = {}
        self.received_count = 0
        self.too_large: set[int] = set()
        self.is_leaving = False
        self.is_end_asked = False
        self.empty_ends = 0
        self._has_asked = False

    def ask_end(self, session: CoreSession) -> None:
        """Ask the broker for the end of its hand-out."""
        self.is_end_asked = self._has_asked = True
        session.force_delivery(self.number)

    def has_ended(self, delivery: CoreDelivery, session: CoreSession) -> bool:
        """Return whether this is such an end, and note it."""
        if not (self._has_asked and is_forced(delivery.message)):
            self.empty_ends = 0
            return False
        is_empty = not session.is_receiving(self.number)
        self.empty_ends = self.empty_ends + self.is_end_asked if is_empty else 0
        self.is_end_asked = False
        return True


class CoreIntake:
    """The consumers of a session, one per dead-letter queue.

    Args:
        session: transacted and started.
        selector: of messages to read; "" = all.
        route: calls `arrived` with each delivery that came.
    """

    def __init__(
        self,
        session: CoreSession,
        selector: str,
        route: Callable[[], None],
    ) -> None:
        self._session = session
        self._selector = selector
        self._route = route
        self._readers: dict[int, DeadLetterConsumer] = {}
        self._prefetch = 0
        self._window_bytes = _WINDOW_START_BYTES
        self._mean_bytes = float(_SIZE_AT_FIRST_BYTES)
        self._turn = 0
        self._has_lost = False

    # Which queues

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._drop_lost()
        self._prefetch = prefetch
        wanted = dict.fromkeys(queues)
        for reader in self._active():
            if reader.queue not in wanted:
                self._retire(reader)
        known = {reader.queue for reader in self._active()}
        refused: dict[str, str] = {}
        share = self._share(len(wanted))
        for queue in wanted:
            if queue in known:
                continue
            try:
                number = self._create_consumer(queue, share)
            except CoreRefused as words:
                refused[queue.destination.name] = f"{queue.destination} can't be read: {words}"
                continue
            self._readers[number] = DeadLetterConsumer(queue, number, share)
        self._widen()
        if refused:
            raise QueueRefused.all_of(refused)

    def _create_consumer(self, queue: IntakeQueue, window_bytes: int) -> int:
        """Return the number of a new consumer; make its queue where the broker makes queues.

        Raises:
            CoreRefused: it can't be read, or made.
        """
        create = partial(
            self._session.create_consumer,
            queue.destination.name.rpartition("::")[2],
            both(queue.selector, self._selector),
            window_bytes=window_bytes,
        )
        try:
            return create()
        except CoreRefused as refused:
            if refused.kind != QUEUE_MISSING or "::" in queue.destination.name:
                raise
        make_missing_queue(self._session, queue.destination)
        return create()

    def _active(self) -> list[DeadLetterConsumer]:
        return [one for one in self._readers.values() if not one.is_leaving]

    def _retire(self, reader: DeadLetterConsumer) -> None:
        """Stop reading; messages that the engine has can still be accepted, all others go back."""
        reader.is_leaving = True
        for _, delivery in reader.waiting:
            if delivery.large_body is not None:
                delivery.large_body.close()
        reader.waiting.clear()
        self._session.starve(reader.number)
        self._sweep(reader)

    def _sweep(self, reader: DeadLetterConsumer) -> None:
        if reader.is_leaving and reader.received_count <= 0:
            del self._readers[reader.number]
            self._session.close_consumer(reader.number)

    def _drop_lost(self) -> None:
        """Forget consumers that the broker has closed, as it does when a queue is deleted."""
        for number in self._session.ended_consumers:
            self._has_lost |= self._readers.pop(number, None) is not None
        self._session.ended_consumers.clear()

    def has_lost_queues(self) -> bool:
        """Return whether the broker has closed a consumer; forgets it."""
        self._drop_lost()
        has_lost, self._has_lost = self._has_lost, False
        return has_lost

    @property
    def queues(self) -> tuple[Destination, ...]:
        return tuple(one.queue.destination for one in self._active())

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages in hand that can't be taken."""
        return tuple(
            left_too_large(one.queue.destination, len(one.too_large))
            for one in self._active()
            if one.too_large
        )

    def held_back(self, queue: Destination) -> int | None:
        readers = [one for one in self._active() if one.queue.destination == queue]
        if any(self._session.is_receiving(one.number) for one in readers):
            return None
        return sum(len(one.too_large) for one in readers)

    def is_leaving(self, queue: Destination) -> bool:
        return any(
            one.is_leaving and one.queue.destination == queue for one in self._readers.values()
        )

    # Incoming deliveries

    def arrived(self, delivery: CoreDelivery) -> None:
        """Accept a message that was handed out."""
        reader = self._readers.get(delivery.consumer)
        if reader is None:
            self._drop(delivery)
            return
        if reader.has_ended(delivery, self._session):
            self._session.give_back(delivery)
            return
        message_id = delivery.message.message_id
        again = reader.awaited.pop(message_id, None)
        if again is not None:
            again.credit_bytes, again.is_here = delivery.credit_bytes, True
            reader.in_hand[message_id] = again
        elif message_id in reader.in_hand:
            # Why: a commit has failed, and a rollback follows, after which it comes once more.
            self._session.give_back(delivery)
        else:
            handle = CoreHandle(reader.number, message_id, delivery.credit_bytes)
            reader.in_hand[message_id] = handle
            if delivery.too_large_bytes:
                reader.too_large.add(message_id)
            elif not reader.is_leaving:
                reader.waiting.append((handle, delivery))
                return
        self._drop(delivery)

    @staticmethod
    def _drop(delivery: CoreDelivery) -> None:
        if delivery.large_body is not None:
            delivery.large_body.close()

    @property
    def has_arrived(self) -> bool:
        return any(one.waiting for one in self._readers.values()) and self._room() > 0

    def _room(self) -> int:
        return self._prefetch - sum(one.received_count for one in self._readers.values())

    def receive(self, limit: int, read_origin: OriginReader) -> list[Delivery]:
        readers = self._active()
        deliveries: list[Delivery] = []
        limit = min(limit, self._room())
        self._turn += 1
        for at in range(len(readers)):
            reader = readers[(self._turn + at) % len(readers)]
            queue, waiting = reader.queue, reader.waiting
            while waiting and len(deliveries) < limit:
                handle, delivery = waiting.popleft()
                message = encoded_of(delivery)
                self._mean_bytes += (len(message) - self._mean_bytes) * _SIZE_CHANGES_BY
                provenance = read_provenance(delivery.message, queue, read_origin=read_origin)
                reader.received_count += 1
                deliveries.append(
                    Delivery(handle, queue.destination, message, provenance, ENCODING)
                )
        return deliveries

    # The engine's decisions

    def in_hand(self, deliveries: Sequence[Delivery]) -> list[CoreHandle]:
        """Return the handles of deliveries, once all are in hand again after a rollback.

        Raises:
            LinkLost: one is not in hand any more, because its queue is gone or another took it.
        """
        self._drop_lost()
        handles: list[CoreHandle] = []
        for delivery in deliveries:
            handle = delivery.handle
            if not isinstance(handle, CoreHandle) or handle.consumer not in self._readers:
                raise LinkLost(f"a delivery of {delivery.source} is not in hand any more")
            handles.append(handle)

        def is_known() -> bool:
            # Why first: the roll-back that was waited for may have read them, and nothing comes.
            self._route()
            return self._are_here(handles) or self._have_gone(handles)

        self._session.wire.run_until(is_known, _AGAIN_TIMEOUT_S)
        if not self._are_here(handles):
            raise LinkLost("a delivery did not come again after a transaction was undone")
        return handles

    @staticmethod
    def _are_here(handles: Iterable[CoreHandle]) -> bool:
        return all(one.is_here for one in handles)

    def _have_gone(self, handles: Iterable[CoreHandle]) -> bool:
        """Ask the broker whether an awaited message went to another consumer."""
        for number in {one.consumer for one in handles if not one.is_here}:
            reader = self._readers[number]
            if reader.empty_ends >= _EMPTY_ENDS:
                return True
            if not reader.is_end_asked:
                reader.ask_end(self._session)
        self._session.wire.flush()
        return False

    def acknowledgements(self, handles: Iterable[CoreHandle]) -> list[CoreAcknowledgement]:
        """Return few packets that acknowledge exactly these."""
        by_reader: dict[int, list[int]] = {}
        for handle in handles:
            by_reader.setdefault(handle.consumer, []).append(handle.message_id)
        found = []
        for number, wanted in by_reader.items():
            names = set(wanted)
            last = None
            for message_id in self._readers[number].in_hand:
                if message_id not in names:
                    break
                last = message_id
                names.discard(message_id)
            if last is not None:
                found.append(CoreAcknowledgement(number, last, is_up_to_it=True))
            found += [
                CoreAcknowledgement(number, one, is_up_to_it=False)
                for one in wanted
                if one in names
            ]
        return found

    def settle(self, handles: Sequence[CoreHandle]) -> None:
        """Forget the messages of a committed transaction, and ask for more."""
        credit_bytes = dict.fromkeys(self._readers, 0)
        for handle in handles:
            reader = self._readers.get(handle.consumer)
            if reader is None:
                # Why: its queue was deleted meanwhile.
                continue
            reader.in_hand.pop(handle.message_id, None)
            reader.received_count -= 1
            credit_bytes[handle.consumer] += handle.credit_bytes
        for reader in self._active():
            self._session.return_credits(reader.number, credit_bytes[reader.number])
        if handles:
            self._window_bytes = min(self._window_bytes * 2, _WINDOWS_BYTES_MAX)
        for reader in list(self._readers.values()):
            self._sweep(reader)
        self._widen()

    def _widen(self) -> None:
        """Widen the windows of the active consumers once their share has doubled."""
        active = self._active()
        share = self._share(len(active))
        for reader in active:
            if share >= 2 * reader.window_bytes:
                self._session.widen(reader.number, share)
                reader.window_bytes = share

    def _share(self, reader_count: int) -> int:
        """Return the window of each consumer, in bytes."""
        wanted = int(self._prefetch * self._mean_bytes * 2)
        window = min(self._window_bytes, max(wanted, _WINDOW_BYTES_MIN))
        return max(_WINDOW_BYTES_MIN, window // max(1, reader_count))

    def close(self) -> None:
        """Forget the messages that wait to be received, and close their files."""
        for reader in self._readers.values():
            for _, delivery in reader.waiting:
                self._drop(delivery)
            reader.waiting.clear()

    def undo(self) -> None:
        """Expect all messages in hand again; call before a rollback."""
        for reader in self._readers.values():
            for _, delivery in reader.waiting:
                self._drop(delivery)
            waiting = {handle.message_id for handle, _ in reader.waiting}
            reader.waiting.clear()
            reader.is_end_asked, reader.empty_ends = False, 0
            held_bytes = sum(one.credit_bytes for one in reader.in_hand.values())
            for message_id, handle in reader.in_hand.items():
                if message_id not in waiting:
                    handle.is_here = False
                    reader.awaited[message_id] = handle
            reader.in_hand.clear()
            if reader.is_leaving:
                self._session.feed(reader.number, held_bytes)
            else:
                self._session.return_credits(reader.number, held_bytes)


def encoded_of(delivery: CoreDelivery) -> bytes:
    """Return a delivery's message as the store keeps it; closes its large body."""
    if delivery.large_body is None:
        return delivery.encoded
    with delivery.large_body as body:
        return keep_large(delivery.message, body.read())
