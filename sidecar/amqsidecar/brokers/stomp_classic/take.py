"""A session over STOMP on ActiveMQ Classic with a token."""

from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import override

from amqsidecar.broker import Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.classic.choice import ClassicChoices, chosen_ids
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.classic.token import PREFETCH, ClassicTokenWire
from amqsidecar.brokers.classic.wildcards import WildcardIntake
from amqsidecar.brokers.connection.refusal import raised_as
from amqsidecar.brokers.sends_ahead import SendsAhead
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, error_text
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.intake import (
    QueueReader,
    StompClassicIntake,
    in_hand,
)
from amqsidecar.brokers.stomp_classic.look import BATCH, StompClassicLook
from amqsidecar.brokers.stomp_classic.trials import StompClassicTrials
from amqsidecar.brokers.token import Token
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.errors import (
    CommitRefused,
    LinkLost,
    SendsRefused,
    UndecodableMessage,
)
from amqsidecar.formats.stomp_classic_message import (
    StompResendEncoder,
    read_cycle,
)
from amqsidecar.formats.stomp_frame import Frame, Header
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class StompClassicTokenWire(ClassicTokenWire[bytes]):
    """Reads and writes the token queue over the subscriptions of one connection.

    The selector excludes messages that break connections.
    """

    scheme = "stomp"
    _consumers: StompSubscriptions

    def __init__(
        self,
        destination: Destination,
        consumers: StompSubscriptions,
        selector: str,
        rules_digest: str,
    ) -> None:
        super().__init__(destination, consumers, rules_digest)
        self._connection = consumers.connection
        self._selector = selector

    @override
    def _subscribe(self) -> None:
        self._subscription = self._consumers.add(
            self._destination,
            PREFETCH,
            self._take_in,
            selector=self._selector,
            options=((b"activemq.exclusive", b"true"),),
        )

    @override
    def release(self) -> None:
        self._consumers.remove(self._subscription)

    def _take_in(self, frame: Frame) -> None:
        cycle = read_cycle(frame)
        if cycle is not None:
            self._arrived.append((cycle, frame.first(b"ack") or b""))

    @override
    def drop(self, handles: Sequence[bytes]) -> None:
        try:
            for one in handles:
                self._connection.call("ACK", [(b"id", one)])
        except FrameRefused as cause:
            raise LinkLost(f"a token can't be removed: {cause}") from cause

    @override
    def _count(self) -> int:
        frames = self._consumers.browse(self._destination, PREFETCH + 1, self._selector)
        return sum(1 for frame in frames if read_cycle(frame) is not None)

    @override
    def put(self, token: Token) -> str | None:
        receipt, header = self._connection.receipt()
        self._connection.put(self._frame(None, token.cycle, [header]))
        answer = self._connection.answers([receipt])[0]
        return error_text(answer) if answer.command == "ERROR" else None

    def put_exchange(self, transaction: bytes, held: bytes, cycle: int) -> str:
        """Put the ack of the token in hand and the send of the next one; return its receipt."""
        self._refuse_others()
        self._connection.send("ACK", [(b"id", held), (b"transaction", transaction)])
        receipt, header = self._connection.receipt()
        self._connection.put(self._frame(transaction, cycle, [header]))
        return receipt

    def _frame(self, transaction: bytes | None, cycle: int, receipt: Sequence[Header]) -> bytes:
        return StompResendEncoder.token(
            self._destination, cycle, transaction, receipt, self._rules_digest
        )


class _Begun(NamedTuple):
    """A transaction with its sends.

    Attributes:
        receipts: receipt ids of the sends, by index.
        refusals: reasons why sends were not put, by index.
    """

    sends: Sequence[Resend]
    transaction: bytes
    receipts: dict[int, str]
    refusals: dict[int, str]


class StompClassicTake(StompClassicLook):
    """A session over the only connection of an instance; see `broker.TakeSession`.

    `token.exists` is certain: the client id keeps every other connection of the instance out, and
    the broker rolled back an earlier connection's transactions before it accepted this connection.
    """

    def __init__(
        self,
        connection: StompConnection,
        settings: ClassicLinkSettings,
        token_queue: Destination,
    ) -> None:
        super().__init__(connection, settings)
        self._token_queue = token_queue
        self._crash_point = settings.crash_point
        self._encoder = StompResendEncoder(settings.keeps_non_persistent)
        self._sending: Sequence[Resend] = ()
        self._frame_limit = settings.frame_limit
        self._largest_bytes = 0
        self._transaction_count = 0
        self.ahead = SendsAhead(self._start, self._undo)
        rules = self._rules
        self._intake = StompClassicIntake(
            lambda destination: QueueReader(destination, self._consumers, self._clock, rules),
            connection.waiting,
        )
        chosen = ClassicChoices(self._intake.reading, self.queue_counters)
        self.features = Features(preferred_batch=BATCH, choosing=chosen, listing=self)
        self._wildcards = WildcardIntake(
            self._queues,
            token_queue,
            read_from=self._intake.read_from,
            drop=self._intake.drop,
        )
        connection.silence.ask = self._find_full
        try:
            with raised_as(f"{token_queue} can't be read: {{}}"):
                readable = selectors.readable(rules.unreadable_in(token_queue))
            self._token_wire = StompClassicTokenWire(
                token_queue, self._consumers, readable, settings.rules_digest
            )
            self.token = TokenQueue(self._token_wire, str(token_queue))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.ahead.forget()
        super().close()

    def _note_end(self, was_ended: bool) -> None:
        """Do the same, but suspect no message of the end that a frame of ours has caused."""
        errors = map(error_text, self._connection.errors)
        if not self._frame_limit.learn(errors, self._largest_bytes):
            super()._note_end(was_ended)

    def _route(self) -> None:
        super()._route()
        self._intake.mend()
        self._wildcards.follow()

    @property
    def _has_arrived(self) -> bool:
        return self._intake.has_arrived

    def _find_full(self) -> None:
        self._rooms.give_up(self._connection, self._sending, self._takes, self._token_queue)

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues only; from a queue with chosen messages, only these messages."""
        self._intake.chosen = chosen_ids(queues)
        self._wildcards.attach(queues, prefetch)

    def queue_names(self) -> tuple[str, ...]:
        return self._wildcards.names()

    def queues_changed(self) -> bool:
        return self._wildcards.has_changed()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return messages of the intake that STOMP can't take or read; asks the broker."""
        with raised_as("can't count the messages left behind: {}"):
            return (*self._wildcards.left_behind(), *self._left.of(self._intake.readers))

    def trials(self) -> StompClassicTrials:
        return self._trials(self._token_queue)

    def queues_read(self) -> tuple[Destination, ...]:
        return tuple(reader.destination for reader in self._intake.readers)

    def receive(self, limit: int) -> list[Delivery]:
        """Return new deliveries, in order for each origin."""
        self._connection.poll()
        self._route()
        return self._intake.receive(limit)

    def _start(self, sends: Sequence[Resend]) -> _Begun:
        self._sending = sends
        self._largest_bytes = 0
        transaction = self._begin()
        begun = _Begun(sends, transaction, *self._put_sends(transaction, sends))
        self._connection.flush()
        return begun

    def _undo(self, begun: _Begun) -> None:
        self._abort(begun.transaction)
        for receipt in begun.receipts.values():
            self._connection.answered(receipt)

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        connection = self._connection
        held = self.token.take_for_commit().handle
        handles = in_hand(accepts)
        begun = self.ahead.take(sends)
        in_transaction = (b"transaction", begun.transaction)
        for handle in handles:
            connection.send("ACK", [(b"id", handle.ack), in_transaction])
        receipt = self._token_wire.put_exchange(begun.transaction, held, token)
        self._check(begun, receipt)
        self._commit(begun.transaction)
        self._sending = ()
        self.token.exchanged(token)
        for handle in handles:
            handle.subscription.in_hand -= 1

    def _check(self, begun: _Begun, last: str) -> None:
        """Make sure that the broker has taken all of a transaction, or abort it.

        Why not COMMIT at once: after one that fails nothing in hand can be acked any more; and a
        body that ended early shows itself before the last receipt.

        Raises:
            SendsRefused: it refuses some sends.
            CommitRefused: it refuses an ACK or the token.
            LinkLost: an ERROR came that is none of the broker's.
        """
        connection = self._connection
        answers = connection.answers([*begun.receipts.values(), last])
        errors = [*connection.errors, *(one for one in answers if one.command == "ERROR")]
        if not begun.refusals and not errors and connection.suspect is None:
            return
        self._abort(begun.transaction)
        refusals = begun.refusals | (self._refusals(begun.sends) if errors else {})
        words = "; ".join(map(error_text, errors))
        if refusals:
            # Why: an ERROR that came after some message was the broker's own.
            connection.suspect = None
            raise SendsRefused(refusals)
        if connection.suspect is not None:
            raise LinkLost(f"{connection.name} sent an error that belongs to nothing: {words}")
        raise CommitRefused(words)

    def _refusals(self, sends: Sequence[Resend]) -> dict[int, str]:
        """Find out which sends the broker refuses, by sending all again and aborting."""
        transaction = self._begin()
        receipts, _ = self._put_sends(transaction, sends, each=True)
        answers = self._connection.answers([*receipts.values()])
        self._abort(transaction)
        return {
            index: error_text(answer)
            for index, answer in zip(receipts, answers, strict=True)
            if answer.command == "ERROR"
        }

    def _begin(self) -> bytes:
        self._transaction_count += 1
        transaction = b"%d" % self._transaction_count
        self._connection.send("BEGIN", [(b"transaction", transaction)])
        return transaction

    def _commit(self, transaction: bytes) -> None:
        connection = self._connection
        self._crash_point("sent")
        receipt = connection.ask("COMMIT", [(b"transaction", transaction)])
        connection.flush()
        self._crash_point("committing")
        answer = connection.answers([receipt])[0]
        if answer.command == "ERROR":
            connection.close()
            raise LinkLost(f"{connection.name} refused to commit: {error_text(answer)}")

    def _abort(self, transaction: bytes) -> None:
        connection = self._connection
        try:
            connection.call("ABORT", [(b"transaction", transaction)])
        except FrameRefused as cause:
            connection.close()
            raise LinkLost(f"{connection.name} refused to abort: {cause}") from cause
        connection.errors.clear()

    def _put_sends(
        self, transaction: bytes, sends: Sequence[Resend], *, each: bool = False
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Put the sends; return receipts, and why some can't be sent at all, by index.

        Why a receipt of the first to each destination: it is destinations that refuse; and
        receipts of all would halve the speed.
        """
        connection = self._connection
        now_ms = self._clock.now_ms()
        receipts: dict[int, str] = {}
        refusals: dict[int, str] = {}
        asked: set[Destination] = set()
        for index, resend in enumerate(sends):
            asks: list[Header] = []
            if each or resend.destination not in asked:
                receipts[index], header = connection.receipt()
                asks.append(header)
            try:
                frame = self._encoder.resend(resend, transaction, now_ms, asks)
            except UndecodableMessage as cause:
                refusals[index] = str(cause)
                receipts.pop(index, None)
                continue
            problem = self._frame_limit.problem(len(frame))
            if problem is not None:
                refusals[index] = problem
                receipts.pop(index, None)
                continue
            self._largest_bytes = max(self._largest_bytes, len(frame))
            asked.add(resend.destination)
            connection.put(frame)
        return receipts, refusals
