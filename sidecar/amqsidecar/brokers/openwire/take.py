"""A session over OpenWire on ActiveMQ Classic with a token."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from typing_extensions import override

from amqsidecar.broker import (
    Delivery,
    Features,
    IntakeQueue,
    Resend,
)
from amqsidecar.brokers.classic.choice import ClassicChoices, chosen_ids
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.token import PREFETCH, ClassicTokenWire
from amqsidecar.brokers.classic.wildcards import WildcardIntake
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.brokers.openwire.consumers import (
    MessageHandle,
    OpenWireConsumer,
    OpenWireConsumers,
    ack_fields,
    runs,
)
from amqsidecar.brokers.openwire.look import OpenWireLook
from amqsidecar.brokers.openwire.trials import OpenWireTrials
from amqsidecar.brokers.sends_ahead import SendsAhead, begin_nothing
from amqsidecar.brokers.token import Token
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.errors import (
    CommitRefused,
    SendsRefused,
    UndecodableMessage,
)
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import read_cycle, read_dead_letter
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class OpenWireTokenWire(ClassicTokenWire[MessageHandle]):
    """Reads and writes the token queue over the consumers of one connection."""

    scheme = "openwire"
    _consumers: OpenWireConsumers

    def __init__(
        self,
        destination: Destination,
        consumers: OpenWireConsumers,
        encoder: OpenWireResendEncoder,
        rules_digest: str,
    ) -> None:
        super().__init__(destination, consumers, rules_digest)
        self._connection = consumers.connection
        self._encoder = encoder

    @override
    def _subscribe(self) -> None:
        self._consumer = self._consumers.add(
            self._destination, PREFETCH, take=self._take_in, exclusive=True
        )

    @override
    def release(self) -> None:
        self._consumers.remove(self._consumer)

    def _take_in(self, consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        cycle = None if message is None else read_cycle(message)
        if message is not None and cycle is not None:
            message_id = read_dead_letter(message, None, 0)[1]
            self._arrived.append((cycle, MessageHandle(consumer, field, message_id, 0)))

    @override
    def drop(self, handles: Sequence[MessageHandle]) -> None:
        for one in handles:
            with suppress(CommandRefused):
                self._connection.call(codec.MESSAGE_ACK, ack_fields(codec.NULL, one, one))

    @override
    def _count(self) -> int:
        messages = self._consumers.browse(self._destination, PREFETCH + 1)
        return sum(1 for _, message in messages if read_cycle(message) is not None)

    @override
    def put(self, token: Token) -> str | None:
        number = self._connection.next_number()
        self._connection.expect(number)
        self._connection.write_soon(self._frame(codec.NULL, token.cycle, number, answer=True))
        reason = self._connection.answers([number])[0]
        return None if reason is None else str(reason)

    def put_exchange(self, transaction: bytes, held: MessageHandle, cycle: int) -> None:
        """Put the ack of the token in hand and the send of the next one."""
        self._refuse_others()
        self._connection.send(codec.MESSAGE_ACK, ack_fields(transaction, held, held))
        number = self._connection.next_number()
        self._connection.write_soon(self._frame(transaction, cycle, number, answer=False))

    def _frame(self, transaction: bytes, cycle: int, number: int, *, answer: bool) -> bytes:
        now_ms = self._consumers.clock.now_ms()
        return self._encoder.token(
            self._destination,
            cycle,
            transaction,
            now_ms,
            number,
            rules_digest=self._rules_digest,
            answer=answer,
        )


# Why: room for the broker's overhead when it hands a message on, 150 bytes as measured; a client
# does not read beyond the broker's limit.
_FRAME_BYTES_SPARE = 512


class _Begun(NamedTuple):
    """A transaction whose sends are with the broker.

    Attributes:
        refusals: why some could not be put, by index.
    """

    sends: Sequence[Resend]
    transaction: bytes
    refusals: dict[int, str]


class OpenWireTake(OpenWireLook):
    """A session over the only connection of an instance; see `broker.TakeSession`.

    `token.exists` is certain: the client id keeps every other connection of the instance out, and
    the broker rolled back an earlier connection's transactions before it accepted this connection.
    """

    def __init__(
        self,
        connection: OpenWireConnection,
        settings: ClassicLinkSettings,
        token_queue: Destination,
    ) -> None:
        super().__init__(connection, settings)
        chosen = ClassicChoices(self._consumers.reading, self.queue_counters)
        self.features = Features(background=self, choosing=chosen, listing=self)
        self._token_queue = token_queue
        self._crash_point = settings.crash_point
        self._sending: Sequence[Resend] = ()
        self._transaction_count = 0
        self._is_committing = False
        self._begin_next: Callable[[], None] = begin_nothing
        self.ahead = SendsAhead(self._start, self._undo)
        name = connection.connection
        self._connection_field = codec.connection_id(name)
        self._wildcards = WildcardIntake(
            self._queues,
            token_queue,
            read_from=self._consumers.read_from,
            drop=self._consumers.drop,
        )
        connection.call(codec.PRODUCER_INFO, codec.producer_info(codec.producer_id(name, 1, 1)))
        self._token_wire = OpenWireTokenWire(
            token_queue, self._consumers, self._encoder, settings.rules_digest
        )
        self.token = TokenQueue(self._token_wire, str(token_queue))
        connection.silence.ask = self._find_full

    def close(self) -> None:
        self.ahead.forget()
        super().close()

    def _route(self) -> None:
        super()._route()
        self._wildcards.follow()

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues only; from a queue with chosen messages, only these messages."""
        self._consumers.chosen = chosen_ids(queues)
        self._wildcards.attach(queues, prefetch)

    def queue_names(self) -> tuple[str, ...]:
        return self._wildcards.names()

    def queues_changed(self) -> bool:
        return self._wildcards.has_changed()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return queues that a wildcard stands for and that can't be read."""
        return self._wildcards.left_behind()

    def queues_read(self) -> tuple[Destination, ...]:
        return self._consumers.read

    def _find_full(self) -> None:
        self._rooms.give_up(self._connection, self._sending, self._takes, self._token_queue)

    def receive(self, limit: int) -> list[Delivery]:
        self._connection.poll()
        self._route()
        return self._consumers.receive(limit)

    def _start(self, sends: Sequence[Resend]) -> _Begun:
        connection = self._connection
        if self._is_committing:
            self._sending = [*self._sending, *sends]
        else:
            self._sending = sends
            connection.last_words = None
        refusals: dict[int, str] = {}
        transaction = self._begin()
        self._put_sends(transaction, sends, refusals)
        connection.flush()
        return _Begun(sends, transaction, refusals)

    def _undo(self, begun: _Begun) -> None:
        self._end(begun.transaction, codec.ROLLBACK)

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        self._begin_next = begin_next

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, and exchange the token in one local transaction; see the contract."""
        connection = self._connection
        held = self.token.take_for_commit().handle
        handles = self._consumers.in_hand(accepts)
        _, transaction, refusals = self.ahead.take(sends)
        for first, last in runs(handles):
            connection.send(codec.MESSAGE_ACK, ack_fields(transaction, first, last))
        self._token_wire.put_exchange(transaction, held, token)
        if refusals:
            self._end(transaction, codec.ROLLBACK)
            raise SendsRefused(refusals)
        reason = self._commit(transaction)
        if reason is not None:
            # Why: the broker has rolled back already, or does so now.
            self._end(transaction, codec.ROLLBACK)
            raise self._refusal(sends, connection.last_words or reason)
        self._sending = self.ahead.sends
        self.token.exchanged(token)
        self._consumers.settled(handles)

    def _begin(self) -> bytes:
        connection = self._connection
        self._transaction_count += 1
        transaction = codec.transaction_id(connection.connection, self._transaction_count)
        info = codec.transaction_info(self._connection_field, transaction, codec.BEGIN)
        connection.send(codec.TRANSACTION_INFO, info)
        return transaction

    def _commit(self, transaction: bytes) -> codec.Throwable | None:
        connection = self._connection
        connection.flush()
        self._crash_point("sent")
        number = self._ask_to_end(transaction, codec.COMMIT_ONE_PHASE)
        connection.flush()
        self._crash_point("committing")
        self._is_committing = True
        try:
            self._begin_next()
        finally:
            self._is_committing = False
        return connection.answers([number])[0]

    def _end(self, transaction: bytes, operation: int) -> codec.Throwable | None:
        number = self._ask_to_end(transaction, operation)
        return self._connection.answers([number])[0]

    def _ask_to_end(self, transaction: bytes, operation: int) -> int:
        info = codec.transaction_info(self._connection_field, transaction, operation)
        return self._connection.ask(codec.TRANSACTION_INFO, info)

    def _put_sends(
        self,
        transaction: bytes,
        sends: Sequence[Resend],
        refusals: dict[int, str],
        *,
        answer: bool = False,
    ) -> list[int]:
        """Put the sends, note the reason for each that can't be sent, and return command ids."""
        connection = self._connection
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
            connection.write_soon(frame)
        return numbers

    def _refusal(
        self, sends: Sequence[Resend], reason: codec.Throwable
    ) -> SendsRefused | CommitRefused:
        """Find out which sends the broker refuses, by sending them again and rolling back."""
        transaction = self._begin()
        numbers = self._put_sends(transaction, sends, {}, answer=True)
        answers = self._connection.answers(numbers)
        self._end(transaction, codec.ROLLBACK)
        refusals = {index: str(answer) for index, answer in enumerate(answers) if answer}
        return SendsRefused(refusals) if refusals else CommitRefused(str(reason))

    def trials(self) -> OpenWireTrials:
        return self._trials(self._token_queue)
