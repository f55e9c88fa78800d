"""One session of Core: consumers with credits, sends, acknowledgements, one transaction.

A message uses credits of its consumer; the caller returns them, and then more may come.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from struct import Struct
from typing import IO, NamedTuple

from amqsidecar.brokers.connection.byte_stream import ByteStream
from amqsidecar.brokers.core.consumers import CoreDelivery, SessionConsumer
from amqsidecar.brokers.core.refusal import ADDRESS_FULL, CoreRefused
from amqsidecar.formats.core import framing, message_packets, packets
from amqsidecar.formats.core.message import PIECE_BYTES, CoreMessage, encode_message
from amqsidecar.formats.core.packet_format import CorePacket
from amqsidecar.formats.core.primitives import CoreProtocolError, simple_string

_ROOM_TIMEOUT_S = 60.0
# Bound: maximum addresses with a remembered room.
_ENTRIES_MAX = 20_000


class CoreRooms:
    """How many bytes one session may still send to each address, as the broker grants them.

    The broker accepts a message sent without asking, and the address then exceeds its limit.
    """

    def __init__(
        self,
        put: Callable[[CorePacket], None],
        run_until: Callable[[Callable[[], bool], float], bool],
    ) -> None:
        self._put = put
        self._run_until = run_until
        self._granted: dict[str, int] = {}
        self._asked: set[str] = set()
        self._full: set[str] = set()

    def granted(self, answer: packets.ProducerCredits) -> None:
        """Note that an address has room."""
        if answer.address not in self._asked:
            return
        self._asked.discard(answer.address)
        self._granted[answer.address] = self._granted.get(answer.address, 0) + answer.credits

    def refused(self, answer: packets.ProducerCreditsFail) -> None:
        """Note that an address is full and refuses messages."""
        if answer.address not in self._asked:
            return
        self._asked.discard(answer.address)
        self._full.add(answer.address)

    def take(self, address: str, size_bytes: int, timeout_s: float = _ROOM_TIMEOUT_S) -> bool:
        """Wait until an address has room for these bytes, then reserve it; False = not in time.

        Raises:
            CoreRefused: the address is full and refuses messages (address-full-policy FAIL).
        """
        found = self.take_all({address: size_bytes}, timeout_s)
        if address in found and found[address].kind == ADDRESS_FULL:
            raise found[address]
        return address not in found

    def take_all(self, sizes_bytes: Mapping[str, int], timeout_s: float) -> dict[str, CoreRefused]:
        """Wait until each address has room for this many bytes, then reserve it.

        The same amount is requested ahead, so that the next call need not wait.

        Returns:
            Addresses without room, and why; their kind is `ADDRESS_FULL` where they refuse
            messages, and 0 where there was no room in time.
        """
        if len(self._granted) > _ENTRIES_MAX:
            self._granted.clear()
        missing = {one for one, size in sizes_bytes.items() if self._granted.get(one, 0) < size}
        self._full -= missing
        found: dict[str, CoreRefused] = {}

        def is_known() -> bool:
            for address in missing & self._full:
                found[address] = CoreRefused(ADDRESS_FULL, f"address {address} is full")
            self._full.difference_update(missing)
            missing.difference_update(found)
            for address in list(missing):
                if self._granted.get(address, 0) < sizes_bytes[address]:
                    self._ask(address, sizes_bytes[address])
                else:
                    missing.discard(address)
            return not missing

        self._run_until(is_known, timeout_s)
        for address in missing:
            words = f"address {address} is full: the broker gives it no room"
            found[address] = CoreRefused(0, words)
        self._use({one: size for one, size in sizes_bytes.items() if one not in found})
        return found

    def _use(self, sizes_bytes: Mapping[str, int]) -> None:
        for address, size in sizes_bytes.items():
            self._granted[address] -= size
            if self._granted[address] < size:
                self._ask(address, size)

    def _ask(self, address: str, size_bytes: int) -> None:
        if address not in self._asked:
            self._asked.add(address)
            self._put(packets.RequestCredits(size_bytes, address))


_NO_CORRELATION_ASKED = 0
NO_CONSUMER = 0
"""A number that no consumer has: nothing is handed to it."""

_LONG = Struct(">q")
# Source: ClientConsumerImpl.FORCED_DELIVERY_MESSAGE.
_FORCED = simple_string("_hornetq.forced.delivery.seq")


class CoreAcknowledgement(NamedTuple):
    """One acknowledgement.

    Attributes:
        consumer: its number.
        message_id: of a message that it was handed.
        is_up_to_it: also all that it was handed before.
    """

    consumer: int
    message_id: int
    is_up_to_it: bool


def is_forced(message: CoreMessage) -> bool:
    """Return whether a message is the answer to `CoreSession.force_delivery`."""
    return _FORCED in message.properties


class CoreSession:
    """A session, for the thread of its connection.

    Attributes:
        wire: the connection of the session.
        deliveries: handed out and not yet taken, in the order of the wire.
        ended_consumers: numbers of consumers that the broker closed.
        rooms: bytes that may still be sent to each address.
        is_begun: something was sent or acknowledged since the last commit or rollback.
    """

    def __init__(self, wire: ByteStream, channel: int, forget: Callable[[], object]) -> None:
        """Prepare; `forget` makes the connection ignore packets for the session."""
        self.deliveries: deque[CoreDelivery] = deque()
        self.ended_consumers: list[int] = []
        self.wire = wire
        self._channel = channel
        self._forget = forget
        self._consumers: dict[int, SessionConsumer] = {}
        self._number = 0
        self._called: list[CorePacket] = []
        self._call_count = 0
        self._awaited: set[int] = set()
        self._answers: dict[int, CoreRefused | None] = {}
        self.rooms = CoreRooms(self._put, wire.run_until)
        self.is_begun = False

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
        self._consumers[number] = SessionConsumer(window_bytes)
        request = packets.CreateConsumer(
            number, queue, selector, browse_only, requires_response=True, priority=priority
        )
        try:
            self._call(request)
        except CoreRefused:
            del self._consumers[number]
            raise
        self._grant(number, window_bytes)
        return number

    def close_consumer(self, number: int) -> None:
        """Close a consumer; its unacknowledged messages go back to the queue.

        Raises:
            CoreRefused, LinkLost: the broker refuses, or the connection is gone.
        """
        self._call(packets.CloseConsumer(number))
        self._drop(lambda delivery: delivery.consumer == number)
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            consumer.drop_large()

    def take_from(self, number: int) -> list[CoreDelivery]:
        """Take the messages handed out to one consumer, in order."""
        taken = [one for one in self.deliveries if one.consumer == number]
        if taken:
            self.deliveries = deque(one for one in self.deliveries if one.consumer != number)
        return taken

    def give_back(self, delivery: CoreDelivery) -> None:
        """Return a message's credits, so that another may come; soon, not at once."""
        self.return_credits(delivery.consumer, delivery.credit_bytes)

    def return_credits(self, number: int, credit_bytes: int) -> None:
        """Return credits of a consumer, soon; does nothing when it is closed."""
        consumer = self._consumers.get(number)
        if consumer is not None:
            self._return(number, consumer, credit_bytes)

    def widen(self, number: int, window_bytes: int) -> None:
        """Enlarge the window of a consumer, so that more is prefetched."""
        consumer = self._consumers[number]
        more = window_bytes - consumer.window_bytes
        if more > 0:
            consumer.window_bytes = window_bytes
            self._grant(number, more)

    def starve(self, number: int) -> None:
        """Withdraw a consumer's credit; messages on their way still arrive."""
        if number in self._consumers:
            self._put(packets.ConsumerCredits(number, 0))

    def feed(self, number: int, credit_bytes: int) -> None:
        """Give credit at once to a consumer that was starved."""
        if number in self._consumers and credit_bytes > 0:
            self._grant(number, credit_bytes)

    def is_receiving(self, number: int) -> bool:
        """Return whether a consumer has the beginning of a large message, and not its end."""
        consumer = self._consumers.get(number)
        return consumer is not None and consumer.is_receiving

    def force_delivery(self, number: int) -> None:
        """Ask for a marker that arrives behind the messages already sent; see `is_forced`.

        The queue has no more if nothing came since the one before, and no large message is on its
        way: the broker sends it without credit, too.
        """
        self._put(packets.ForceDelivery(number, self._next_number()))

    def start(self) -> None:
        """Start the delivery to the consumers."""
        self._put(packets.StartSession())

    def stop(self) -> None:
        """Stop the delivery; when it returns, all that was handed out has arrived."""
        self._call(packets.StopSession())

    def acknowledge(self, delivery: CoreDelivery, *, only_this: bool = False) -> None:
        """Acknowledge a message and, by default, all before it of its consumer."""
        self.is_begun = True
        kind = packets.AcknowledgeOne if only_this else packets.Acknowledge
        message_id = delivery.message.message_id
        self._put(kind(delivery.consumer, message_id, requires_response=False))

    def acknowledge_all(self, acknowledgements: Sequence[CoreAcknowledgement]) -> None:
        """Acknowledge messages, and ensure that their consumers exist.

        Where a consumer is gone, the broker leaves the transaction as it is. An acknowledgement of
        a message that is not in hand makes it fail instead.

        Raises:
            CoreRefused: a consumer is gone; the transaction has the other acknowledgements.
            LinkLost: no answer.
        """
        self.is_begun = True
        last = {one.consumer: at for at, one in enumerate(acknowledgements)}
        asked = []
        for at, (consumer, message_id, is_up_to_it) in enumerate(acknowledgements):
            kind = packets.Acknowledge if is_up_to_it else packets.AcknowledgeOne
            is_last = last[consumer] == at
            asked.append(kind(consumer, message_id, requires_response=is_last))
        for answer in self._call_all(asked, len(last)):
            if isinstance(answer, packets.CoreException):
                raise CoreRefused(answer.kind, answer.message)

    # Sends and the transaction

    def send(self, *message: bytes) -> None:
        """Send a message as `encode_message` writes it, in pieces; a refusal fails the commit."""
        self.is_begun = True
        code, tail = message_packets.SEND_MESSAGE, message_packets.UNANSWERED
        self.wire.write_soon(framing.frame(code, self._channel, *message, tail))

    def ask_send(self, message: CoreMessage) -> int:
        """Send and ask for an answer; return its number for `answers`."""
        return self.ask_send_encoded(encode_message(message))

    def ask_send_encoded(self, *message: bytes) -> int:
        """Send as `ask_send` does, for a message of `encode_message` in chunks."""
        self.is_begun = True
        number = self._ask_number()
        tail = message_packets.asked_tail(number)
        self._put_fields(message_packets.SEND_MESSAGE, *message, tail)
        return number

    def ask_send_large(self, message: CoreMessage, body: IO[bytes], body_bytes: int = -1) -> int:
        """Send a message whose body is read in pieces; return its number for `answers`.

        A message of any size takes the memory of some pieces only.

        Args:
            message: its headers and properties.
            body: its content.
            body_bytes: size that the broker notes in its properties, where JMS clients need it;
                -1 = none.
        """
        self.is_begun = True
        number = self._ask_number()
        self._put(message_packets.SendLarge(message))
        piece = body.read(PIECE_BYTES)
        while following := body.read(PIECE_BYTES):
            self._put(
                message_packets.SendContinuation(
                    piece,
                    continues=True,
                    body_bytes=None,
                    requires_response=False,
                    correlation_id=_NO_CORRELATION_ASKED,
                    producer_id=message_packets.NO_PRODUCER,
                )
            )
            piece = following
        self._put(
            message_packets.SendContinuation(
                piece,
                continues=False,
                body_bytes=body_bytes,
                requires_response=True,
                correlation_id=number,
                producer_id=message_packets.NO_PRODUCER,
            )
        )
        return number

    def answers(self, numbers: Sequence[int]) -> list[CoreRefused | None]:
        """Return the answers to these sends in the same order, None = done.

        Raises:
            LinkLost: not all came in time.
        """
        self.wire.wait_for(lambda: self._awaited.isdisjoint(numbers), "answer in time")
        return [self._answers.pop(number) for number in numbers]

    def abandon_answers(self, numbers: Collection[int]) -> None:
        """Ignore answers to these sends, also later answers."""
        self._awaited.difference_update(numbers)
        for number in numbers:
            self._answers.pop(number, None)

    def commit(self) -> None:
        """Commit the transaction and begin a new one.

        If the process dies inside, or the connection ends, the outcome is unknown.

        Raises:
            CoreRefused: nothing of it happened; call `rollback` to have the messages again.
            LinkLost: no answer; the outcome is unknown.
        """
        refused = self.answers([self.ask_commit()])[0]
        if refused is not None:
            raise refused

    def take_answers(self, numbers: Collection[int]) -> dict[int, CoreRefused | None]:
        """Take the answers to these sends that have come; None = done. Never blocks."""
        return {one: self._answers.pop(one) for one in numbers if one in self._answers}

    def ask_commit(self) -> int:
        """Ask the broker to commit, and begin a new transaction; return its number for `answers`.

        If the process dies before the answer, or the connection ends, the outcome is unknown.
        """
        self.is_begun = False
        number = self._ask_number()
        self._put(packets.Commit(number))
        self.wire.flush()
        return number

    def rollback(self) -> None:
        """Undo the transaction and begin a new one; all delivered messages come again.

        Raises:
            CoreRefused, LinkLost: the broker refuses, or the connection is gone.
        """
        # Why stop: otherwise first deliveries and redeliveries could not be told apart.
        self.is_begun = False
        self.stop()
        self._drop(lambda _: True)
        for number, consumer in self._consumers.items():
            consumer.drop_large()
            self._return(number, consumer, 0)
        self._call(packets.Rollback(last_is_delivered=False))
        self.start()

    def close(self) -> None:
        """End the session; the transaction is rolled back.

        Raises:
            CoreRefused, LinkLost: the broker refuses, or the connection is gone.
        """
        self._call(packets.CloseSession())
        self._forget()
        self._drop(lambda _: True)

    def release(self) -> None:
        """Close the files of large messages that were not taken; never raises."""
        self._drop(lambda _: True)
        for consumer in self._consumers.values():
            consumer.drop_large()

    # Queues and addresses

    def ask_queue(self, name: str) -> packets.QueueAnswer:
        """Return the broker's answer about a queue, with `exists`.

        Raises:
            CoreRefused, LinkLost: the broker refuses, or the connection is gone.
        """
        answer = self._call(packets.AskQueue(name))
        if not isinstance(answer, packets.QueueAnswer):
            raise CoreProtocolError(f"the answer to a question about a queue is {answer!r}")
        return answer

    def ask_addresses(
        self, names: Sequence[str]
    ) -> list[packets.AddressAnswer | packets.AddressAnswerV5 | CoreRefused]:
        """Return the broker's answer about each address, with `exists`.

        Raises:
            LinkLost: the connection is gone, or gives no answer.
        """
        found: list[packets.AddressAnswer | packets.AddressAnswerV5 | CoreRefused] = []
        for answer in self._call_all([packets.AskAddress(name) for name in names]):
            if isinstance(answer, packets.CoreException):
                found.append(CoreRefused(answer.kind, answer.message))
            elif isinstance(answer, packets.AddressAnswer | packets.AddressAnswerV5):
                found.append(answer)
            else:
                raise CoreProtocolError(f"the answer to a question about an address is {answer!r}")
        return found

    def create_queue(
        self,
        name: str,
        *,
        address: str,
        routing_type: int,
        temporary: bool = False,
        selector: str | None = None,
        auto_created: bool = False,
        exclusive: bool | None = None,
    ) -> None:
        """Create a queue, durable unless it is temporary: then it ends with the connection.

        Args:
            address: to which it is bound; created with it.
            routing_type: `packets.ANYCAST` or `packets.MULTICAST`.
            selector: of messages that it takes; None = all.
            auto_created: the broker may remove it when it is unused, by its address settings.
            exclusive: one consumer gets everything; None = by the address settings.

        Raises:
            CoreRefused: for example because it exists already.
        """
        self._call(
            packets.CreateQueue(
                address,
                name,
                selector,
                durable=not temporary,
                temporary=temporary,
                requires_response=True,
                auto_created=auto_created,
                routing_type=routing_type,
                max_consumers=-1,
                purge_on_no_consumers=False,
                exclusive=exclusive,
            )
        )

    def delete_queue(self, name: str) -> None:
        """Delete a queue without consumers.

        Raises:
            CoreRefused, LinkLost: the broker refuses, or the connection is gone.
        """
        self._call(packets.DeleteQueue(name))

    # Incoming packets

    def take(self, code: int, fields: bytes) -> None:
        """Process a packet of this session's channel.

        Raises:
            CoreProtocolError: it can't be read, or belongs to nothing.
        """
        if self._take_often(code, fields):
            return
        packet = packets.decode(code, fields)
        match packet:
            case message_packets.ReceiveLarge() | message_packets.ReceiveContinuation():
                self._take_large(packet, framing.frame_bytes(fields))
            case packets.CoreException(kind, words, number) if number > 0:
                self._answered(number, CoreRefused(kind, words))
            case packets.ProducerCredits():
                self.rooms.granted(packet)
            case packets.ProducerCreditsFail():
                self.rooms.refused(packet)
            case packets.ConsumerDisconnected(consumer):
                if consumer in self._consumers and consumer not in self.ended_consumers:
                    self.ended_consumers.append(consumer)
            case None:
                return
            case _ if len(self._called) < self._call_count:
                self._called.append(packet)

    def _take_often(self, code: int, fields: bytes) -> bool:
        """Process a message or the answer to a send, quickly; False = it is something else."""
        if code == message_packets.RECEIVE_MESSAGE:
            message, encoded, consumer, delivery_count = message_packets.split_received(fields)
            known = self._consumers.get(consumer)
            if known is not None:
                credit_bytes = framing.frame_bytes(fields)
                known.use(credit_bytes)
                fields_of = (consumer, message, delivery_count, credit_bytes, encoded, None, 0)
                # Why not its constructor: that takes twice as long.
                self.deliveries.append(tuple.__new__(CoreDelivery, fields_of))
            return True
        if code == packets.NULL_RESPONSE and len(fields) >= _LONG.size:
            number = _LONG.unpack_from(fields)[0]
            if number > 0:
                self._answered(number, None)
                return True
        return False

    def _answered(self, number: int, refused: CoreRefused | None) -> None:
        """Keep the answer to a send if it is awaited."""
        if number in self._awaited:
            self._awaited.discard(number)
            self._answers[number] = refused

    def _take_large(
        self,
        packet: message_packets.ReceiveLarge | message_packets.ReceiveContinuation,
        frame_bytes: int,
    ) -> None:
        number = packet.consumer_id
        consumer = self._consumers.get(number)
        if consumer is None:
            return
        if isinstance(packet, message_packets.ReceiveLarge):
            self.deliveries += consumer.begin_large(packet, frame_bytes)
            return
        self.deliveries += consumer.continue_large(packet, frame_bytes)
        self._return(number, consumer, 0)

    def _return(self, number: int, consumer: SessionConsumer, size_bytes: int) -> None:
        consumer.owed_bytes += size_bytes
        # Why not each time: one packet for many messages.
        if consumer.owed_bytes >= consumer.window_bytes // 4 and consumer.owed_bytes:
            self._grant(number, consumer.owed_bytes)
            consumer.owed_bytes = 0

    def _grant(self, number: int, credit_bytes: int) -> None:
        self._consumers[number].granted_bytes += credit_bytes
        self._put(packets.ConsumerCredits(number, credit_bytes))

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

    def _call(self, packet: CorePacket) -> CorePacket:
        answer = self._call_all([packet])[0]
        if isinstance(answer, packets.CoreException):
            raise CoreRefused(answer.kind, answer.message)
        return answer

    def _call_all(
        self, asked: Sequence[CorePacket], answer_count: int | None = None
    ) -> list[CorePacket]:
        """Put packets that are answered in order, and return the answers.

        Args:
            answer_count: how many answers come; None = one for each.
        """
        answers: list[CorePacket] = []
        self._called = answers
        self._call_count = len(asked) if answer_count is None else answer_count
        for packet in asked:
            self._put(packet)
        self.wire.wait_for(lambda: len(answers) >= self._call_count, "answer")
        return answers

    def _put(self, packet: CorePacket) -> None:
        self._put_fields(packets.code_of(packet), packets.encode(packet))

    def _put_fields(self, code: int, *fields: bytes) -> None:
        self.wire.write_soon(framing.frame(code, self._channel, *fields))

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _ask_number(self) -> int:
        number = self._next_number()
        self._awaited.add(number)
        return number
