"""One session of Core: consumers with credits, sends, acknowledgements, one transaction.

A message of a consumer takes credits; who took it gives them back, and then more may come.
Large messages are spooled: in memory while they are small, then in a file without a name.
"""

from collections import deque
from collections.abc import Callable, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, NamedTuple, Protocol

from amqsidecar.brokers.core.refusal import ADDRESS_FULL, CoreRefused
from amqsidecar.clock import Clock
from amqsidecar.formats.core import framing, packets
from amqsidecar.formats.core.message import CoreMessage
from amqsidecar.formats.core.primitives import CoreProtocolError

_SPOOLED_IN_MEMORY_BYTES = 1 << 20
# Precedent: the Java client's minLargeMessageSize.
_PIECE_BYTES = 100 * 1024
_NO_CORRELATION_ASKED = 0
_ROOM_TIMEOUT_S = 60.0


class CoreWire(Protocol):
    """What a session needs of its connection; see `CoreConnection`."""

    clock: Clock

    def put(self, channel: int, packet: packets.CorePacket) -> None:
        """Write a packet soon."""

    def put_fields(self, channel: int, code: int, fields: bytes) -> None:
        """Write a packet whose fields are encoded soon."""

    def flush(self) -> None:
        """Write all that was put."""

    def wait(self, timeout_s: float) -> None:
        """Wait for bytes."""

    def wait_for(self, is_done: Callable[[], bool], purpose: str) -> None:
        """Wait until packets have made something true."""

    def forget(self, channel: int) -> None:
        """Ignore a session."""


class CoreDelivery(NamedTuple):
    """A message that was handed out to a consumer.

    Attributes:
        consumer: its number.
        message: without a body if it is large.
        delivery_count: 1 = delivered for the first time.
        credit_bytes: that it holds; `CoreSession.give_back` returns them.
        large_body: at its beginning; the caller closes it. None = it is not large.
    """

    consumer: int
    message: CoreMessage
    delivery_count: int
    credit_bytes: int
    large_body: IO[bytes] | None = None


class _Consumer:
    """What is counted for a consumer.

    Attributes:
        owed_bytes: given back by the caller, and not yet by us to the broker.
        large: the head of the large message that is arriving.
        body: what has arrived of it.
        held_bytes: the credits that it holds.
    """

    def __init__(self, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        self.owed_bytes = 0
        self.large: packets.ReceiveLarge | None = None
        self.body: IO[bytes] | None = None
        self.held_bytes = 0


class CoreSession:
    """A session, for the thread of its connection.

    Attributes:
        deliveries: what was handed out and not yet taken, in the order of the wire.
        ended_consumers: those that the broker closed.
    """

    def __init__(self, wire: CoreWire, channel: int) -> None:
        self.deliveries: deque[CoreDelivery] = deque()
        self.ended_consumers: list[int] = []
        self._wire = wire
        self._channel = channel
        self._consumers: dict[int, _Consumer] = {}
        self._number = 0
        self._answer: packets.CorePacket | None = None
        self._awaited: set[int] = set()
        self._answers: dict[int, CoreRefused | None] = {}
        self._room: dict[str, int] = {}
        self._asked_room: set[str] = set()
        self._full: set[str] = set()

    # Consumers

    def create_consumer(
        self,
        queue: str,
        selector: str | None = None,
        *,
        window_bytes: int,
        browse_only: bool = False,
        priority: int = 0,
    ) -> int:
        """Open a consumer with this credit in bytes; return its number.

        Raises:
            CoreRefused: there is no such queue, no permission, or the selector is wrong.
            LinkLost: no answer.
        """
        number = self._next_number()
        self._consumers[number] = _Consumer(window_bytes)
        request = packets.CreateConsumer(
            number, queue, selector, browse_only, requires_response=True, priority=priority
        )
        try:
            self._call(request)
        except CoreRefused:
            del self._consumers[number]
            raise
        self._put(packets.ConsumerCredits(number, window_bytes))
        return number

    def close_consumer(self, number: int) -> None:
        """Close a consumer; what it was handed and nobody acknowledged goes back to the queue.

        Raises:
            CoreRefused, LinkLost: as the broker says.
        """
        self._call(packets.CloseConsumer(number))
        self._drop(lambda delivery: delivery.consumer == number)
        consumer = self._consumers.pop(number, None)
        if consumer is not None and consumer.body is not None:
            consumer.body.close()

    def give_back(self, delivery: CoreDelivery) -> None:
        """Return a message's credits, so that another may come; soon, not at once."""
        consumer = self._consumers.get(delivery.consumer)
        if consumer is not None:
            self._return(delivery.consumer, consumer, delivery.credit_bytes)

    def start(self) -> None:
        """Let the consumers have messages."""
        self._put(packets.StartSession())

    def stop(self) -> None:
        """Let them have no more; when it returns, all that was handed out has arrived."""
        self._call(packets.StopSession())

    def acknowledge(self, delivery: CoreDelivery, *, only_this: bool = False) -> None:
        """Acknowledge a message and, if not told otherwise, all before it of its consumer."""
        kind = packets.AcknowledgeOne if only_this else packets.Acknowledge
        message_id = delivery.message.message_id
        self._put(kind(delivery.consumer, message_id, requires_response=False))

    # Sends and the transaction

    def send(self, message: CoreMessage) -> None:
        """Send in the transaction; a refusal for lack of permission fails the commit."""
        fields = packets.encode_unanswered(message)
        self._wire.put_fields(self._channel, packets.SEND_MESSAGE, fields)

    def ask_send(self, message: CoreMessage) -> int:
        """Send and ask for an answer; return its number for `answers`."""
        number = self._ask_number()
        self._put(
            packets.SendMessage(
                message,
                requires_response=True,
                correlation_id=number,
                producer_id=packets.NO_PRODUCER,
            )
        )
        return number

    def ask_send_large(self, message: CoreMessage, body: IO[bytes]) -> int:
        """Send a message whose body is read in pieces; return its number for `answers`.

        It takes the memory of some pieces, whatever its size.
        """
        number = self._ask_number()
        self._put(packets.SendLarge(message))
        piece = body.read(_PIECE_BYTES)
        while following := body.read(_PIECE_BYTES):
            self._put(
                packets.SendContinuation(
                    piece,
                    continues=True,
                    body_bytes=None,
                    requires_response=False,
                    correlation_id=_NO_CORRELATION_ASKED,
                    producer_id=packets.NO_PRODUCER,
                )
            )
            piece = following
        self._put(
            packets.SendContinuation(
                piece,
                continues=False,
                body_bytes=-1,
                requires_response=True,
                correlation_id=number,
                producer_id=packets.NO_PRODUCER,
            )
        )
        return number

    def answers(self, numbers: Sequence[int]) -> list[CoreRefused | None]:
        """Return the answers to these sends in the same order, None = done.

        Raises:
            LinkLost: not all came in time.
        """
        self._wire.wait_for(lambda: self._answers.keys() >= set(numbers), "answer in time")
        return [self._answers.pop(number) for number in numbers]

    def commit(self) -> None:
        """Commit the transaction and begin a new one.

        If the process dies inside, or the connection ends, the outcome is unknown.

        Raises:
            CoreRefused: nothing of it happened; call `rollback` to have the messages again.
            LinkLost: no answer; the outcome is unknown.
        """
        number = self._ask_number()
        self._put(packets.Commit(number))
        refused = self.answers([number])[0]
        if refused is not None:
            raise refused

    def rollback(self) -> None:
        """Undo the transaction and begin a new one; all that was handed out comes again.

        Raises:
            CoreRefused, LinkLost: as the broker says.
        """
        # Why stopped: what was handed out before and what comes again can't be told apart else.
        self.stop()
        self.drop_deliveries()
        self._call(packets.Rollback(last_is_delivered=False))
        self.start()

    def drop_deliveries(self) -> None:
        """Forget all that was handed out and not taken; its credits are given back."""
        self._drop(lambda _: True)
        for number, consumer in self._consumers.items():
            if consumer.body is not None:
                consumer.body.close()
                held = consumer.held_bytes
                consumer.large, consumer.body, consumer.held_bytes = None, None, 0
                consumer.owed_bytes += held
            self._return(number, consumer, 0)

    def close(self) -> None:
        """End the session; the transaction is rolled back.

        Raises:
            CoreRefused, LinkLost: as the broker says.
        """
        self._call(packets.CloseSession())
        self._wire.forget(self._channel)
        self._drop(lambda _: True)

    def release(self) -> None:
        """Close the files of large messages that nobody has taken; never raises."""
        for delivery in self.deliveries:
            if delivery.large_body is not None:
                delivery.large_body.close()
        for consumer in self._consumers.values():
            if consumer.body is not None:
                consumer.body.close()
        self.deliveries.clear()

    # Room at an address

    def take_room(self, address: str, size_bytes: int, timeout_s: float = _ROOM_TIMEOUT_S) -> bool:
        """Wait until an address has room for these bytes, and use it; False = not in time.

        The broker takes what is sent without this, and the address then holds more than it may.

        Raises:
            CoreRefused: the address is full and refuses messages (address-full-policy FAIL).
            LinkLost: the connection is gone.
        """
        deadline_s = self._wire.clock.monotonic_s() + timeout_s
        while self._room.get(address, 0) < size_bytes:
            if address in self._full:
                self._full.discard(address)
                raise CoreRefused(ADDRESS_FULL, f"address {address} is full")
            if address not in self._asked_room:
                self._asked_room.add(address)
                self._put(packets.RequestCredits(size_bytes, address))
            left_s = deadline_s - self._wire.clock.monotonic_s()
            if left_s <= 0:
                return False
            self._wire.wait(left_s)
        self._room[address] -= size_bytes
        return True

    # Queues and addresses

    def ask_queue(self, name: str) -> packets.QueueAnswer:
        """Return what a queue is; `exists` tells whether it is there.

        Raises:
            CoreRefused, LinkLost: as the broker says.
        """
        answer = self._call(packets.AskQueue(name))
        if not isinstance(answer, packets.QueueAnswer):
            raise CoreProtocolError(f"the answer to a question about a queue is {answer!r}")
        return answer

    def ask_address(self, name: str) -> packets.AddressAnswer | packets.AddressAnswerV5:
        """Return what an address is; `exists` tells whether it is there.

        Raises:
            CoreRefused, LinkLost: as the broker says.
        """
        answer = self._call(packets.AskAddress(name))
        if not isinstance(answer, packets.AddressAnswer | packets.AddressAnswerV5):
            raise CoreProtocolError(f"the answer to a question about an address is {answer!r}")
        return answer

    def create_queue(
        self,
        name: str,
        *,
        address: str,
        routing_type: int,
        temporary: bool = False,
        selector: str | None = None,
    ) -> None:
        """Create a queue, durable unless it is temporary: then it ends with the connection.

        Raises:
            CoreRefused, LinkLost: as the broker says; for example it is there already.
        """
        self._call(
            packets.CreateQueue(
                address,
                name,
                selector,
                durable=not temporary,
                temporary=temporary,
                requires_response=True,
                auto_created=False,
                routing_type=routing_type,
                max_consumers=-1,
                purge_on_no_consumers=False,
            )
        )

    def delete_queue(self, name: str) -> None:
        """Delete a queue without consumers.

        Raises:
            CoreRefused, LinkLost: as the broker says.
        """
        self._call(packets.DeleteQueue(name))

    # What arrives

    def take(self, code: int, fields: bytes) -> None:
        """Take in a packet of this session's channel.

        Raises:
            CoreProtocolError: it can't be read, or belongs to nothing.
        """
        if code == packets.RECEIVE_MESSAGE:
            message, consumer, delivery_count = packets.decode_received(fields)
            credit_bytes = framing.frame_bytes(fields)
            if consumer in self._consumers:
                self.deliveries.append(
                    CoreDelivery(consumer, message, delivery_count, credit_bytes)
                )
            return
        packet = packets.decode(code, fields)
        match packet:
            case packets.ReceiveLarge():
                self._begin_large(packet, framing.frame_bytes(fields))
            case packets.ReceiveContinuation():
                self._continue_large(packet, framing.frame_bytes(fields))
            case packets.NullResponse(number) if number in self._awaited:
                self._awaited.discard(number)
                self._answers[number] = None
            case packets.CoreException(kind, words, number) if number in self._awaited:
                self._awaited.discard(number)
                self._answers[number] = CoreRefused(kind, words)
            case packets.ProducerCredits(credits, address):
                self._asked_room.discard(address)
                self._room[address] = self._room.get(address, 0) + credits
            case packets.ProducerCreditsFail(address=address):
                self._asked_room.discard(address)
                self._full.add(address)
            case packets.ConsumerDisconnected(consumer):
                self.ended_consumers.append(consumer)
            case None:
                return
            case _:
                self._answer = packet

    def _begin_large(self, packet: packets.ReceiveLarge, frame_bytes: int) -> None:
        consumer = self._consumers.get(packet.consumer_id)
        if consumer is None:
            return
        if consumer.body is not None:
            consumer.body.close()
        consumer.large = packet
        consumer.body = SpooledTemporaryFile(max_size=_SPOOLED_IN_MEMORY_BYTES)  # noqa: SIM115
        consumer.held_bytes += frame_bytes

    def _continue_large(self, packet: packets.ReceiveContinuation, frame_bytes: int) -> None:
        number = packet.consumer_id
        consumer = self._consumers.get(number)
        if consumer is None:
            return
        large, body = consumer.large, consumer.body
        if large is None or body is None:
            # It was dropped while it arrived.
            self._return(number, consumer, frame_bytes)
            return
        body.write(packet.piece)
        # Why half: two large messages may be ahead; more would fill the disk.
        room = max(0, consumer.window_bytes // 2 - consumer.held_bytes)
        consumer.held_bytes += min(room, frame_bytes)
        self._return(number, consumer, frame_bytes - min(room, frame_bytes))
        if packet.continues:
            return
        if body.tell() != large.body_bytes:
            raise CoreProtocolError(
                f"a large message has {body.tell()} bytes where {large.body_bytes} were announced"
            )
        body.seek(0)
        held = consumer.held_bytes
        consumer.large, consumer.body, consumer.held_bytes = None, None, 0
        self.deliveries.append(
            CoreDelivery(number, large.message, large.delivery_count, held, body)
        )

    def _return(self, number: int, consumer: _Consumer, size_bytes: int) -> None:
        consumer.owed_bytes += size_bytes
        # Why not each time: one packet for many messages.
        if consumer.owed_bytes >= consumer.window_bytes // 4 and consumer.owed_bytes:
            self._put(packets.ConsumerCredits(number, consumer.owed_bytes))
            consumer.owed_bytes = 0

    def _drop(self, is_dropped: Callable[[CoreDelivery], bool]) -> None:
        kept = deque(one for one in self.deliveries if not is_dropped(one))
        for delivery in self.deliveries:
            if is_dropped(delivery):
                if delivery.large_body is not None:
                    delivery.large_body.close()
                consumer = self._consumers.get(delivery.consumer)
                if consumer is not None:
                    consumer.owed_bytes += delivery.credit_bytes
        self.deliveries = kept

    def _call(self, packet: packets.CorePacket) -> packets.CorePacket:
        self._answer = None
        self._put(packet)
        self._wire.wait_for(lambda: self._answer is not None, "answer")
        answer: packets.CorePacket | None = self._answer
        if isinstance(answer, packets.CoreException):
            raise CoreRefused(answer.kind, answer.message)
        if answer is None:
            raise CoreProtocolError("an answer is gone")
        return answer

    def _put(self, packet: packets.CorePacket) -> None:
        self._wire.put(self._channel, packet)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _ask_number(self) -> int:
        number = self._next_number()
        self._awaited.add(number)
        return number
