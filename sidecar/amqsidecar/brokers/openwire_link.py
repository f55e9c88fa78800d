"""The link to ActiveMQ Classic over OpenWire.

What it rests on (measured on 5.18.3 and 6.3.1): acks and sends of one local transaction are atomic;
after a rollback the messages stay dispatched and can be acked again; a command that fails without
having asked for an answer marks its transaction as rollback-only; the broker admits one connection
per client id, and releases the id only after it has rolled back what that connection left open.
"""

import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, IntakeQueue, Resend
from amqsidecar.brokers import openwire_codec as codec
from amqsidecar.brokers.openwire_connection import OpenWireConnection, Refused, Waker
from amqsidecar.brokers.openwire_message import ResendEncoder, read_cycle, read_dead_letter
from amqsidecar.clock import Clock
from amqsidecar.errors import (
    BrokerRefused,
    CommitRefused,
    LinkLost,
    SendsRefused,
    UndecodableMessage,
)
from amqsidecar.model.destination import Destination, DestinationKind, queue

FINAL_SUFFIX = ".exhausted"
_TOKEN_PREFETCH = 10
_TOKEN_TIMEOUT_S = 60.0
_BROWSE_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 5.0
# Why: room for what the broker adds around a message when it hands it on.
_FRAME_BYTES_SPARE = 4096


class _Consumer:
    """One consumer of ours and what it holds.

    Attributes:
        place: how many messages it was handed.
        in_hand: deliveries that were returned and not accepted.
        is_leaving: it is removed once nothing of it is in hand.
    """

    __slots__ = ("destination", "field", "in_hand", "is_leaving", "nested_id", "place", "value")

    def __init__(self, value: int, nested_id: bytes, destination: Destination) -> None:
        self.value = value
        self.nested_id = nested_id
        self.destination = destination
        self.field = codec.destination_field(destination)
        self.place = 0
        self.in_hand = 0
        self.is_leaving = False


class _Handle:
    """A message's place among those that its consumer was handed."""

    __slots__ = ("consumer", "field", "message_id", "place")

    def __init__(
        self, consumer: _Consumer, field: bytes, message_id: bytes | None, place: int
    ) -> None:
        self.consumer = consumer
        self.field = field
        self.message_id = message_id
        self.place = place


class OpenWireLink:
    """One connection to one Classic broker; the contract is `broker.Link`."""

    preferred_batch = 200
    """Accepts per transaction; Classic pages 200 messages at a time."""

    description: BrokerDescription

    def __init__(
        self,
        *,
        host: str,
        port: int,
        user: str | None,
        password: str | None,
        clock: Clock,
        instance: str,
        ssl_context: ssl.SSLContext | None = None,
        connect_timeout_s: float = 10.0,
        inactivity_ms: int = 30_000,
    ) -> None:
        self._address = (host, port)
        self._user = user
        self._password = password
        self._clock = clock
        self._client_id = f"amqsidecar-{instance}"
        self._ssl_context = ssl_context
        self._connect_timeout_s = connect_timeout_s
        self._inactivity_ms = inactivity_ms
        self._waker: Waker | None = None
        self._connection: OpenWireConnection | None = None
        self._forget()

    def _forget(self) -> None:
        self._consumers: dict[int, _Consumer] = {}
        self._consumer_count = 0
        self._transaction_count = 0
        self._arrived: deque[tuple[_Consumer, bytes, bytes, int]] = deque()
        self._sources: dict[bytes, Destination] = {}
        self._tokens: list[tuple[int, _Handle]] = []
        self._tokens_known = False
        self._browsed: dict[int, list[bytes | None]] = {}

    # Opening and closing.

    def open(self, token_queue: str) -> None:
        """Connect, log in as the only connection of this instance, and ask for the token.

        Raises:
            LinkLost: the broker can't be reached, or another connection of this instance is open.
            BrokerRefused: credentials, permissions or the OpenWire version.
        """
        self.close()
        self._waker = Waker()
        self._token_queue = queue(token_queue)
        connection = OpenWireConnection(
            address=self._address,
            ssl_context=self._ssl_context,
            clock=self._clock,
            waker=self._waker,
            connect_timeout_s=self._connect_timeout_s,
            inactivity_ms=self._inactivity_ms,
        )
        self._connection = connection
        try:
            connection.open()
            self._log_in(connection)
        except Refused as cause:
            self.close()
            raise BrokerRefused(f"{connection.name} refused: {cause}") from cause
        except (LinkLost, BrokerRefused):
            self.close()
            raise
        version = connection.wire_format.provider_version
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, codec.ENCODING)

    def _log_in(self, connection: OpenWireConnection) -> None:
        name = connection.connection
        try:
            info = codec.connection_info(name, self._client_id, self._user, self._password)
            connection.call(codec.CONNECTION_INFO, info)
        except Refused as cause:
            if cause.reason.kind.endswith("InvalidClientIDException"):
                raise LinkLost(
                    f"another connection of this instance is still open: {cause}"
                ) from cause
            raise
        self._encoder = ResendEncoder(name)
        self._connection_field = codec.connection_id(name)
        connection.call(codec.SESSION_INFO, codec.session_id(name, 1))
        connection.call(codec.PRODUCER_INFO, codec.producer_info(codec.producer_id(name, 1, 1)))
        self._token_consumer = self._consume(self._token_queue, _TOKEN_PREFETCH)

    def close(self) -> None:
        """Give everything back uncounted and disconnect; never raises, safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(LinkLost):
                # Why: it removes session and consumers as well, none of whose messages count as
                # delivered; with its answer the client id is free again.
                info = codec.remove_info(codec.connection_id(connection.connection))
                connection.answers([connection.ask(codec.REMOVE_INFO, info)], _CLOSE_TIMEOUT_S)
                connection.send(codec.SHUTDOWN_INFO, b"")
                connection.flush()
            connection.close()
        if self._waker is not None:
            self._waker.close()
        self._forget()

    def _live(self) -> OpenWireConnection:
        if self._connection is None:
            raise LinkLost("the link is not open")
        return self._connection

    # Intake.

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues and no others; what was returned from others stays valid.

        Raises:
            BrokerRefused: one can't be read; the message names it.
        """
        connection = self._live()
        wanted = dict.fromkeys(intake.destination for intake in queues)
        for destination in wanted:
            self._check_readable(destination)
        for consumer in list(self._consumers.values()):
            if consumer.destination not in wanted:
                self._leave(consumer)
        share = max(1, prefetch // max(1, len(wanted)))
        present = {c.destination: c for c in self._consumers.values() if not c.is_leaving}
        for destination in wanted:
            known = present.get(destination)
            try:
                if known is None:
                    added = self._consume(destination, share)
                    self._consumers[added.value] = added
                else:
                    change = codec.consumer_control(known.nested_id, known.field, share)
                    connection.call(codec.CONSUMER_CONTROL, change)
            except Refused as cause:
                raise BrokerRefused(f"can't read {destination}: {cause}") from cause

    def _check_readable(self, destination: Destination) -> None:
        if destination.kind is not DestinationKind.QUEUE:
            raise BrokerRefused(f"can't read {destination}: dead letters come from queues only")
        if destination.name.endswith(FINAL_SUFFIX) or destination == self._token_queue:
            raise BrokerRefused(f"won't read {destination}: the sidecar itself writes to it")

    def _consume(
        self, destination: Destination, prefetch: int, *, browser: bool = False
    ) -> _Consumer:
        connection = self._live()
        self._consumer_count += 1
        value = self._consumer_count
        nested_id = codec.consumer_id(connection.connection, 1, value)
        consumer = _Consumer(value, nested_id, destination)
        if browser:
            self._browsed[value] = []
        info = codec.consumer_info(nested_id, consumer.field, prefetch=prefetch, browser=browser)
        connection.call(codec.CONSUMER_INFO, info)
        return consumer

    def _leave(self, consumer: _Consumer) -> None:
        """Remove a consumer, or let it go when nothing of it is in hand any more."""
        consumer.is_leaving = True
        if consumer.in_hand:
            return
        del self._consumers[consumer.value]
        with suppress(Refused):
            self._live().call(codec.REMOVE_INFO, codec.remove_info(consumer.nested_id))

    def _route(self) -> None:
        """Give each message that has arrived to its consumer."""
        dispatches = self._live().dispatches
        consumers = self._consumers
        while dispatches:
            value, field, message = dispatches.popleft()
            consumer = consumers.get(value)
            if consumer is not None:
                if message is not None:
                    place = consumer.place = consumer.place + 1
                    self._arrived.append((consumer, field, message, place))
            elif value in self._browsed:
                self._browsed[value].append(message)
            elif value == self._token_consumer.value and message is not None:
                self._take_in_token(field, message)

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks.

        Raises:
            LinkLost: the connection is gone.
        """
        connection = self._live()
        connection.poll()
        if connection.dispatches:
            self._route()
        deliveries: list[Delivery] = []
        arrived = self._arrived
        now_ms = self._clock.now_ms()
        while arrived and len(deliveries) < limit:
            consumer, field, message, place = arrived.popleft()
            if consumer.is_leaving:
                continue
            consumer.in_hand += 1
            provenance, message_id = read_dead_letter(message, now_ms)
            handle = _Handle(consumer, field, message_id, place)
            deliveries.append(Delivery(handle, self._source(field), message, provenance))
        return deliveries

    def _source(self, field: bytes) -> Destination:
        source = self._sources.get(field)
        if source is None:
            source = codec.read_destination(field)
            if source is None:
                raise LinkLost("the broker handed out a message without telling its queue")
            self._sources[field] = source
        return source

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over.

        Raises:
            LinkLost: the connection is gone.
        """
        connection = self._live()
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._route()
            if self._arrived or connection.is_woken:
                connection.is_woken = False
                return
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            connection.wait(left_s)

    def wake(self) -> None:
        """End a running or the next `wait` at once; for any thread."""
        if self._waker is not None:
            self._waker.wake()

    # The token.

    def _take_in_token(self, field: bytes, message: bytes) -> None:
        cycle = read_cycle(message)
        _, message_id = read_dead_letter(message, 0)
        if cycle is not None and message_id is not None:
            self._tokens.append((cycle, _Handle(self._token_consumer, field, message_id, 0)))

    def take_token(self, timeout_s: float) -> int | None:
        """Return the cycle number of the token once the broker hands it over; None = not in time.

        Of several tokens the highest counts; the others are removed one by one, so that a crash
        inside leaves the highest.

        Raises:
            LinkLost: the connection is gone.
        """
        connection = self._live()
        deadline_s = self._clock.monotonic_s() + timeout_s
        if not self._await_tokens(1, deadline_s):
            return None
        while not self._tokens_known:
            waiting = self._count_tokens()
            if not self._await_tokens(min(waiting, _TOKEN_PREFETCH), deadline_s):
                return None
            self._tokens.sort(key=lambda token: token[0])
            for _, handle in self._tokens[:-1]:
                ack = self._ack(codec.NULL, handle, handle, 1)
                with suppress(Refused):
                    connection.call(codec.MESSAGE_ACK, ack)
            self._tokens_known = waiting <= _TOKEN_PREFETCH
            del self._tokens[:-1]
        return self._tokens[-1][0]

    def _await_tokens(self, count: int, deadline_s: float) -> bool:
        connection = self._live()
        while True:
            connection.poll()
            self._route()
            if len(self._tokens) >= count:
                return True
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            connection.wait(left_s)

    def _count_tokens(self) -> int:
        messages = self._browse(self._token_queue, _TOKEN_PREFETCH + 1)
        return sum(1 for message in messages if read_cycle(message) is not None)

    def token_exists(self) -> bool | None:
        """Tell whether the token queue holds a token, handed out or not.

        It is certain: the client id keeps every other connection of the instance out, and whatever
        an earlier one left open was rolled back before the broker let us in.
        """
        return bool(self._tokens) or self._count_tokens() > 0

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.
        """
        connection = self._live()
        number = connection.next_number()
        connection.expect(number)
        connection.put(
            self._encoder.token(
                self._token_queue, cycle, codec.NULL, self._clock.now_ms(), number, answer=True
            )
        )
        reason = connection.answers([number])[0]
        if reason is not None:
            raise BrokerRefused(f"can't write to {self._token_queue}: {reason}")

    # Transactions.

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, and exchange the token in one local transaction; durable when it returns.

        If the process dies inside, either all of it happened and the token is `token`, or none.

        Raises:
            SendsRefused: nothing happened; the deliveries are still in hand.
            CommitRefused: as above.
            LinkLost: unknown whether it happened; the token will tell.
        """
        connection = self._live()
        if self.take_token(_TOKEN_TIMEOUT_S) is None:
            raise LinkLost(f"{connection.name} did not hand over the token of the last cycle")
        held = self._tokens[-1][1]
        handles = [self._in_hand(delivery) for delivery in accepts]
        connection.last_error = None
        transaction = self._begin()
        refusals: dict[int, str] = {}
        self._put_acks(transaction, handles)
        self._put_sends(transaction, sends, refusals)
        connection.send(codec.MESSAGE_ACK, self._ack(transaction, held, held, 1))
        connection.put(
            self._encoder.token(
                self._token_queue,
                token,
                transaction,
                self._clock.now_ms(),
                connection.next_number(),
            )
        )
        if refusals:
            self._end(transaction, codec.ROLLBACK)
            raise SendsRefused(refusals)
        reason = self._end(transaction, codec.COMMIT_ONE_PHASE)
        if reason is not None:
            # Why: the broker has rolled back already, or does so now.
            self._end(transaction, codec.ROLLBACK)
            raise self._refusal(sends, connection.last_error or reason)
        self._tokens.clear()
        for handle in handles:
            handle.consumer.in_hand -= 1
        for consumer in {handle.consumer for handle in handles}:
            if consumer.is_leaving:
                self._leave(consumer)

    def _in_hand(self, delivery: Delivery) -> _Handle:
        handle = delivery.handle
        if not isinstance(handle, _Handle) or handle.consumer.value not in self._consumers:
            raise CommitRefused("a delivery is not in hand any more: it was given back")
        if handle.message_id is None:
            raise CommitRefused("a delivery has no readable message id and can't be accepted")
        return handle

    def _begin(self) -> bytes:
        connection = self._live()
        self._transaction_count += 1
        transaction = codec.transaction_id(connection.connection, self._transaction_count)
        info = codec.transaction_info(self._connection_field, transaction, codec.BEGIN)
        connection.send(codec.TRANSACTION_INFO, info)
        return transaction

    def _end(self, transaction: bytes, operation: int) -> codec.Throwable | None:
        connection = self._live()
        info = codec.transaction_info(self._connection_field, transaction, operation)
        return connection.answers([connection.ask(codec.TRANSACTION_INFO, info)])[0]

    def _put_acks(self, transaction: bytes, handles: Sequence[_Handle]) -> None:
        """Put one ack per run of messages that were handed out one after the other."""
        connection = self._live()
        by_consumer: dict[_Consumer, list[_Handle]] = {}
        for handle in handles:
            by_consumer.setdefault(handle.consumer, []).append(handle)
        for own in by_consumer.values():
            own.sort(key=lambda handle: handle.place)
            first = last = own[0]
            for handle in own[1:]:
                if handle.place != last.place + 1 or handle.field != last.field:
                    self._put_ack(connection, transaction, first, last)
                    first = handle
                last = handle
            self._put_ack(connection, transaction, first, last)

    def _put_ack(
        self, connection: OpenWireConnection, transaction: bytes, first: _Handle, last: _Handle
    ) -> None:
        count = last.place - first.place + 1
        connection.send(codec.MESSAGE_ACK, self._ack(transaction, first, last, count))

    def _ack(self, transaction: bytes, first: _Handle, last: _Handle, count: int) -> bytes:
        return codec.message_ack(
            last.field,
            transaction,
            last.consumer.nested_id,
            first.message_id or codec.NULL,
            last.message_id or codec.NULL,
            count,
        )

    def _put_sends(
        self,
        transaction: bytes,
        sends: Sequence[Resend],
        refusals: dict[int, str],
        *,
        answer: bool = False,
    ) -> list[int]:
        """Put the sends, note those that can't be sent at all, and return their command ids."""
        connection = self._live()
        frame_bytes_max = connection.wire_format.frame_bytes_max - _FRAME_BYTES_SPARE
        now_ms = self._clock.now_ms()
        numbers = []
        for index, resend in enumerate(sends):
            number = connection.next_number()
            try:
                frame = self._encoder.resend(resend, transaction, now_ms, number, answer=answer)
            except UndecodableMessage as cause:
                refusals[index] = str(cause)
                continue
            if len(frame) > frame_bytes_max:
                refusals[index] = (
                    f"a frame of {len(frame)} bytes is more than the {frame_bytes_max} bytes that"
                    " the broker takes (wireFormat.maxFrameSize of its OpenWire connector)"
                )
                continue
            if answer:
                connection.expect(number)
                numbers.append(number)
            connection.put(frame)
        return numbers

    def _refusal(
        self, sends: Sequence[Resend], reason: codec.Throwable
    ) -> SendsRefused | CommitRefused:
        """Find out which sends the broker refuses, by sending them again and rolling back."""
        transaction = self._begin()
        numbers = self._put_sends(transaction, sends, {}, answer=True)
        answers = self._live().answers(numbers)
        self._end(transaction, codec.ROLLBACK)
        refusals = {index: str(answer) for index, answer in enumerate(answers) if answer}
        return SendsRefused(refusals) if refusals else CommitRefused(str(reason))

    # What else the broker tells.

    def _browse(self, destination: Destination, at_most: int) -> list[bytes]:
        """Return the messages of a queue, handed out ones included, at most so many.

        Raises:
            LinkLost: the browser did not come to an end.
        """
        connection = self._live()
        browser = self._consume(destination, at_most, browser=True)
        found = self._browsed[browser.value]
        deadline_s = self._clock.monotonic_s() + _BROWSE_TIMEOUT_S
        while len(found) < at_most and (not found or found[-1] is not None):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise LinkLost(f"browsing {destination} at {connection.name} did not end")
            connection.wait(left_s)
            self._route()
        with suppress(Refused):
            connection.call(codec.REMOVE_INFO, codec.remove_info(browser.nested_id))
        del self._browsed[browser.value]
        return [message for message in found[:at_most] if message is not None]

    def route_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost; Classic creates every lasting destination on demand."""
        if destination.is_temporary:
            return f"{destination} is temporary: it is gone with the connection that made it"
        return None

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return nothing: OpenWire does not tell which queues are dead-letter queues."""
        return ()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        try:
            return len(self._browse(queue.destination, at_most)) if at_most > 0 else 0
        except Refused as cause:
            raise BrokerRefused(f"can't browse {queue.destination}: {cause}") from cause

    def prepare_final(self, destination: Destination) -> str | None:
        """Return None: Classic creates a queue on the first send and keeps what is sent there."""
        return None
