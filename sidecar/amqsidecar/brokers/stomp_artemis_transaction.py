"""The transactions of the STOMP link to Artemis: sends and the next token, nothing else.

Quirk (Artemis): after an ERROR the broker answers nothing more on that connection, so a refused
send or commit costs a connection. It is the token's, not that of the dead letters, which stay in
hand; that the same token comes again proves that nothing of the transaction happened.
"""

from collections.abc import Sequence
from itertools import count

from amqsidecar.broker import Resend
from amqsidecar.brokers.stomp_artemis_message import resend_frame
from amqsidecar.brokers.stomp_artemis_token import Token, TokenKeeper
from amqsidecar.brokers.stomp_connection import Refused, error_text
from amqsidecar.brokers.stomp_frame import Header
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused, UndecodableMessage


class Transactions:
    """One transaction at a time over the connection of the token."""

    def __init__(self, keeper: TokenKeeper, clock: Clock, crash_point: CrashPoint) -> None:
        self._keeper = keeper
        self._clock = clock
        self._crash_point = crash_point
        self._numbers = count(1)
        self._begun: tuple[Sequence[Resend], Header, dict[int, str]] | None = None

    def begin(self, sends: Sequence[Resend]) -> None:
        """Begin a transaction and put its sends; nobody sees them before the commit.

        Raises:
            LinkLost: the connection is gone.
        """
        self.abandon()
        transaction = (b"transaction", b"cycle-%d" % next(self._numbers))
        connection = self._keeper.connection
        connection.send("BEGIN", [transaction])
        undecodable: dict[int, str] = {}
        now_ms = self._clock.now_ms()
        try:
            for index, resend in enumerate(sends):
                try:
                    headers, body = resend_frame(resend, now_ms)
                except UndecodableMessage as cause:
                    undecodable[index] = str(cause)
                    continue
                connection.send("SEND", [transaction, *headers], body)
            connection.flush()
        except LinkLost:
            if not connection.errors:
                raise
            # Why: the broker has refused a send and hung up; the commit finds out which.
        self._begun = (sends, transaction, undecodable)

    def abandon(self) -> None:
        """Undo what was begun; no matter whether anything was.

        Raises:
            LinkLost: the connection is gone.
        """
        begun, self._begun = self._begun, None
        if begun is None:
            return
        if self._keeper.connection.errors:
            self._keeper.reopen()
            return
        self._keeper.connection.send("ABORT", [begun[1]])
        self._keeper.connection.flush()

    def commit(self, sends: Sequence[Resend], token: Token, *, accepts: int) -> None:
        """Commit the sends and the next token; durable when this returns.

        Args:
            sends: as begun, or to begin now.
            token: the next one.
            accepts: how many dead letters will be acknowledged after it.

        Raises:
            SendsRefused: nothing happened.
            CommitRefused: nothing happened, or with `is_duplicate` the one send has happened.
            LinkLost: unknown whether it happened; the token will tell.
        """
        if self._begun is None or self._begun[0] is not sends:
            self.begin(sends)
        if self._begun is None:
            raise LinkLost("no transaction was begun")
        _, transaction, undecodable = self._begun
        if undecodable:
            self.abandon()
            raise SendsRefused(undecodable)
        connection = self._keeper.connection
        try:
            if not connection.errors:
                self._keeper.send(token, transaction)
                connection.flush()
                connection.poll()
        except LinkLost:
            if not connection.errors:
                raise
        if connection.errors:
            self._refused(sends, error_text(connection.errors[0]))
        self._crash_point("sent")
        self._begun = None
        receipt = connection.ask("COMMIT", [transaction])
        connection.flush()
        self._crash_point("committing")
        try:
            answer = connection.answer_or_error(receipt)
        except LinkLost:
            if not connection.errors:
                raise
            answer = None
        if answer is None:
            self._refused(sends, error_text(connection.errors[0]))
        elif answer.command == "ERROR":
            self._commit_refused(sends, error_text(answer), accepts)

    def _refused(self, sends: Sequence[Resend], words: str) -> None:
        """Find out which sends the broker refuses, and raise it."""
        self._begun = None
        self._keeper.reopen()
        refusals = self._find_refused(sends)
        if refusals:
            raise SendsRefused(refusals)
        raise CommitRefused(f"the broker refused a send: {words}")

    def _find_refused(self, sends: Sequence[Resend]) -> dict[int, str]:
        """Send all again with receipts, in a transaction that is never committed.

        Why not with receipts at first: the header would stay on the message for ever.
        """
        connection = self._keeper.connection
        transaction = (b"transaction", b"cycle-%d" % next(self._numbers))
        connection.send("BEGIN", [transaction])
        now_ms = self._clock.now_ms()
        for index, resend in enumerate(sends):
            headers, body = resend_frame(resend, now_ms)
            try:
                connection.call("SEND", [transaction, *headers], body)
            except Refused as refused:
                self._keeper.reopen()
                return {index: str(refused)}
        connection.send("ABORT", [transaction])
        connection.flush()
        return {}

    def _commit_refused(self, sends: Sequence[Resend], words: str, accepts: int) -> None:
        """Raise what a refused commit means.

        The broker does not say that a duplicate id was the reason. A single send is therefore sent
        again without a transaction: then it is at its destination exactly once, whether it was
        there before or not, for its id is the same.
        """
        self._keeper.reopen()
        reason = f"the broker refused the commit: {words}"
        if not sends:
            raise LinkLost(f"{reason}; nothing but the token was in it")
        if len(sends) > 1 or accepts:
            raise CommitRefused(reason)
        headers, body = resend_frame(sends[0], self._clock.now_ms())
        try:
            self._keeper.connection.call("SEND", headers, body)
        except Refused as refused:
            self._keeper.reopen()
            raise CommitRefused(f"{reason} ({refused})") from refused
        raise CommitRefused(reason, is_duplicate=True)
