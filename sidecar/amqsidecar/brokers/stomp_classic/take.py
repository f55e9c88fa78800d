"""A session over STOMP on ActiveMQ Classic with a token."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from amqsidecar.broker import (
    Delivery,
    IntakeQueue,
    LeftBehind,
    Resend,
)
from amqsidecar.brokers.classic.wildcards import WildcardIntake
from amqsidecar.brokers.sends_ahead import SendsAhead
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, error_text
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.intake import (
    QueueReader,
    RefusedQueue,
    StompClassicIntake,
    in_hand,
)
from amqsidecar.brokers.stomp_classic.look import StompClassicLook, StompClassicSettings
from amqsidecar.brokers.stomp_classic.token import StompTokenQueue
from amqsidecar.brokers.stomp_classic.trials import StompClassicTrials
from amqsidecar.errors import (
    BrokerRefused,
    CommitRefused,
    LinkLost,
    QueueRefused,
    SendsRefused,
    UndecodableMessage,
)
from amqsidecar.formats.stomp_classic_message import (
    StompResendEncoder,
)
from amqsidecar.formats.stomp_frame import Header
from amqsidecar.model.destination import Destination

_TOKEN_TIMEOUT_S = 60.0


class StompClassicTake(StompClassicLook):
    """A session over the only connection of an instance; see `broker.TakeSession`."""

    def __init__(
        self,
        connection: StompConnection,
        settings: StompClassicSettings,
        token_queue: Destination,
    ) -> None:
        """Begin to wait for the token over a connection that is logged in.

        Raises:
            FrameRefused: the token queue can't be read.
            LinkLost: the connection is gone.
        """
        super().__init__(connection, settings)
        self._token_queue = token_queue
        self._crash_point = settings.crash_point
        self._encoder = StompResendEncoder(settings.keeps_non_persistent)
        self._sending: Sequence[Resend] = ()
        self._transaction_count = 0
        self._ahead = SendsAhead(self._start, self._undo)
        rules = self._rules
        self._intake = StompClassicIntake(
            lambda destination: QueueReader(destination, self._consumers, self._clock, rules),
            connection.waiting,
        )
        self._wildcards = WildcardIntake(
            self._queues,
            token_queue,
            FrameRefused,
            read_from=self._intake.read_from,
            drop=self._intake.drop,
        )
        connection.silence.ask = self._find_full
        try:
            self._token = StompTokenQueue(
                token_queue,
                connection,
                self._consumers,
                self._clock,
                selectors.readable(rules.unreadable_in(token_queue)),
                rules_digest=settings.rules_digest,
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give everything back and disconnect; see `StompClassicLook.close`."""
        self._ahead.forget()
        super().close()

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues and no others; what was returned from others stays valid.

        A wildcard stands for all queues that it matches, now and later, but for those that the
        sidecar itself writes to, and those that can't be read: `left_behind` reports these.

        Raises:
            QueueRefused: a named one can't be read, or a wildcard can't be expanded.
        """
        finals = frozenset(intake.destination for intake in queues if intake.is_final)
        self._queues.taken_back = finals
        with _named_refusals():
            self._wildcards.attach([intake.destination for intake in queues], prefetch)

    def _route(self) -> None:
        super()._route()
        with _named_refusals():
            self._intake.mend()
            self._wildcards.follow()

    @property
    def _has_arrived(self) -> bool:
        return self._intake.has_arrived

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return messages of the intake that STOMP can't take or read; asks the broker."""
        try:
            return (*self._wildcards.left_behind(), *self._left.of(self._intake.readers))
        except FrameRefused as cause:
            raise BrokerRefused(f"can't count the messages left behind: {cause}") from cause

    def trials(self) -> StompClassicTrials:
        """Return the trials of the user's permissions over this connection."""
        return self._trials(self._token_queue)

    def queue_names(self) -> tuple[str, ...]:
        """Return the names of all queues of the broker but ours; later changes are reported.

        Raises:
            DiscoveryRefused: the broker does not report them.
            LinkLost: the connection is gone.
        """
        return self._wildcards.names()

    def queues_changed(self) -> bool:
        """Return whether a look may find others than the last one; wildcards need none."""
        return self._wildcards.has_changed()

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        return tuple(reader.destination for reader in self._intake.readers)

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link listened, so that all in it is new."""
        return self._queues.is_newborn(destination.name)

    def receive(self, limit: int) -> list[Delivery]:
        """Return new deliveries, in order for each origin.

        Raises:
            LinkLost: the connection is gone.
        """
        self._connection.poll()
        self._route()
        with _named_refusals():
            return self._intake.receive(limit)

    def take_token(self, timeout_s: float) -> int | None:
        """Return the cycle number of the token once the broker hands it over; None = not in time.

        Raises:
            LinkLost: the connection is gone.
        """
        try:
            token = self._token.take(timeout_s)
        except FrameRefused as cause:
            raise LinkLost(f"a token can't be removed: {cause}") from cause
        return None if token is None else token[0]

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, even in delivery; as the OpenWire link."""
        return self._token.exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.
        """
        try:
            self._token.create(cycle)
        except FrameRefused as cause:
            raise BrokerRefused(f"can't write to {self._token_queue}: {cause}") from cause

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened.

        Raises:
            LinkLost: the connection is gone.
        """
        self._ahead.begin(sends)

    def _start(self, sends: Sequence[Resend]) -> "_Begun":
        self._sending = sends
        transaction = self._begin()
        begun = _Begun(sends, transaction, *self._put_sends(transaction, sends))
        self._connection.flush()
        return begun

    def _undo(self, begun: "_Begun") -> None:
        self._abort(begun.transaction)
        for receipt in begun.receipts.values():
            self._connection.answered(receipt)

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun.

        Raises:
            LinkLost: the connection is gone, and with it what was begun.
        """
        self._ahead.abandon()

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, and exchange the token in one transaction; durable when it returns.

        If the process dies inside, either all of it happened and the token is `token`, or none.

        Raises:
            SendsRefused: nothing happened; the deliveries are still in hand.
            CommitRefused: as above.
            LinkLost: unknown whether it happened; the token shows it.
        """
        connection = self._connection
        held = self._token.take(_TOKEN_TIMEOUT_S)
        if held is None:
            raise LinkLost(f"{connection.name} did not hand over the token of the last cycle")
        handles = in_hand(accepts)
        begun = self._ahead.take(sends)
        in_transaction = (b"transaction", begun.transaction)
        for handle in handles:
            connection.send("ACK", [(b"id", handle.ack), in_transaction])
        receipt = self._token.put_exchange(begun.transaction, held[1], token)
        self._check(begun, receipt)
        self._commit(begun.transaction)
        self._sending = ()
        self._token.exchanged()
        for handle in handles:
            handle.subscription.in_hand -= 1

    def _check(self, begun: "_Begun", last: str) -> None:
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
            asked.add(resend.destination)
            connection.put(frame)
        return receipts, refusals

    def _find_full(self) -> None:
        self._rooms.give_up(self._connection, self._sending, self._takes, self._token_queue)

    def ask_routes_ahead(self, destinations: Sequence[Destination]) -> None:
        """Do nothing: no answer of `route_problem` needs the broker's."""

    def resend_problem(self, destination: Destination) -> str | None:
        """Return None: what else Classic does follows from its rules."""
        return None


class _Begun(NamedTuple):
    """A transaction with its sends.

    Attributes:
        receipts: what the broker answers each with, by index.
        refusals: why some were not sent, by index.
    """

    sends: Sequence[Resend]
    transaction: bytes
    receipts: dict[int, str]
    refusals: dict[int, str]


@contextmanager
def _named_refusals() -> Iterator[None]:
    """Raise `QueueRefused` for a queue whose subscriptions can't be made anew."""
    try:
        yield
    except RefusedQueue as cause:
        raise QueueRefused(cause.name, str(cause)) from cause
