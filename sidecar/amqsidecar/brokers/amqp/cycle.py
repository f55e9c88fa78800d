"""One broker transaction of the engine's cycle over AMQP: sends, accepts, token, discharge.

Accepts, that of the token too, are sent only after every send was taken, and the discharge only
after that, because it overtakes sends that wait for credit (`wire-facts.md` 4b).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from amqsidecar.broker import Resend
from amqsidecar.brokers.amqp.links import AmqpDelivery
from amqsidecar.brokers.amqp.senders import SenderPool, TransactionSends
from amqsidecar.brokers.amqp.token import AmqpTokenWire
from amqsidecar.brokers.amqp.transaction import Coordinator, Transaction
from amqsidecar.brokers.sends_ahead import SendsAhead, WatchSends, begin_nothing, watch_nothing
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused

_TOKEN_INDEX = -1


class AmqpTools(NamedTuple):
    """The parts of a transaction.

    Attributes:
        clock: where the time comes from.
        crash_point: called at each step of a transaction.
        encode: returns the message to send, at a time in milliseconds.
        watch: checks where sends went.
    """

    coordinator: Coordinator
    pool: SenderPool
    encode: Callable[[Resend, int], bytes]
    watch: WatchSends = watch_nothing


class _Exchange(NamedTuple):
    """The token in hand, and the number of the token that takes its place."""

    wire: AmqpTokenWire
    held: AmqpDelivery
    number: int


class _Begun(NamedTuple):
    """A transaction whose sends were put.

    Attributes:
        work: the sends on their way, and the refused sends.
    """

    sends: Sequence[Resend]
    transaction: Transaction
    work: TransactionSends


class AmqpMoves:
    """Accepts and sends in transactions without a token."""

    def __init__(self, tools: AmqpTools) -> None:
        self._tools = tools
        self.ahead = SendsAhead(self._start, self._undo, tools.watch)
        self._begin_next: Callable[[], None] = begin_nothing

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        self._begin_next = begin_next

    def _start(self, sends: Sequence[Resend]) -> _Begun:
        coordinator, pool, encode, _ = self._tools
        connection = coordinator.connection
        transaction = coordinator.begin()
        now_ms = connection.clock.now_ms()
        work = TransactionSends(connection, pool, transaction, now_ms, encode)
        with self._clean_or_lost():
            work.send_all(sends)
        return _Begun(sends, transaction, work)

    def _undo(self, begun: _Begun) -> None:
        with self._clean_or_lost():
            begun.work.wait_for_answers()
        self._tools.coordinator.abort(begun.transaction)

    @contextmanager
    def _clean_or_lost(self) -> Iterator[None]:
        """Give the connection up when the block, which works in a transaction, is interrupted."""
        try:
            yield
        except BaseException:
            # Why: the transaction is neither committed nor undone; only a new connection is clean.
            self._tools.coordinator.connection.poison(LinkLost("a transaction was interrupted"))
            raise

    def move(self, held: Sequence[AmqpDelivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one transaction; see `broker.MoveSession.move`."""
        self._perform(held, sends, None)

    def _perform(
        self,
        held: Sequence[AmqpDelivery],
        sends: Sequence[Resend],
        exchange: _Exchange | None,
    ) -> None:
        """Do one transaction, with the exchange of the token for this number or without."""
        _, transaction, work = self.ahead.take(sends)
        coordinator = self._tools.coordinator
        with self._clean_or_lost():
            if exchange is not None and not work.refusals:
                wire = exchange.wire
                work.send_raw(_TOKEN_INDEX, wire.sender, wire.encode(exchange.number))
            work.wait_for_answers()
        self._tools.pool.trim()
        if _TOKEN_INDEX in work.refusals:
            coordinator.abort(transaction)
            raise CommitRefused(f"the token was refused: {work.refusals[_TOKEN_INDEX]}")
        with self._clean_or_lost():
            refusals = work.refusals or self.ahead.misrouted()
        if refusals:
            coordinator.abort(transaction)
            raise SendsRefused(refusals)
        coordinator.crash_point("sent")
        for in_hand in held:
            transaction.accept(in_hand)
        if exchange is not None:
            exchange.wire.accept(transaction, exchange.held)
        words = coordinator.commit(transaction, self._begin_next)
        if words is not None:
            # Why: the message's properties follow, which do not belong in a log.
            words = words.partition(" Message information")[0]
            raise CommitRefused(f"the broker refused the commit: {words}")


class AmqpCycle(AmqpMoves):
    """Begins, abandons and commits cycles, each with the exchange of the token."""

    def __init__(
        self, tools: AmqpTools, token: TokenQueue[AmqpDelivery], wire: AmqpTokenWire
    ) -> None:
        super().__init__(tools)
        self._token = token
        self._wire = wire

    def commit(self, held: Sequence[AmqpDelivery], sends: Sequence[Resend], token: int) -> None:
        """Accept, send, exchange the token; see `broker.TakeSession.commit_cycle`."""
        own = self._token.take_for_commit().handle
        self._perform(held, sends, _Exchange(self._wire, own, token))
        self._token.exchanged(token)
