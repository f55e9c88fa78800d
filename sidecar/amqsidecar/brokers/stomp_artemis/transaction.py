"""The transactions of the STOMP link to Artemis: they hold only sends and the next token.

Quirk (Artemis): after an ERROR the broker answers nothing more on that connection, so a refused
send or commit costs a connection. It is the token's, not that of the dead letters, which stay in
hand; the return of the old token proves that nothing of the transaction happened.

Quirk (Artemis): a COMMIT that follows a refused SEND is answered with an ERROR, but commits the
SENDs before the refused SEND; and the ERROR may come after the receipt of a later SEND. So every
SEND has a receipt, and COMMIT is sent only when all receipts are there.
"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from amqsidecar.broker import Resend
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.brokers.sends_ahead import SendsAhead
from amqsidecar.brokers.stomp.connection import FrameRefused, call, error_text
from amqsidecar.brokers.stomp_artemis.token import StompTokenWire
from amqsidecar.brokers.token import Token
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused, UndecodableMessage
from amqsidecar.formats.stomp_artemis_message import resend_frame
from amqsidecar.formats.stomp_frame import Header
from amqsidecar.model.destination import Destination

_UNTOLD = -1
"""Index of a send that was refused without a word about which one it was."""


class _Begun(NamedTuple):
    """A transaction that was begun.

    Attributes:
        header: its name.
        receipts: of the sends that were put, in order; "" = it was not put.
        undecodable: the reason why a send was not put, by index.
        refused: the broker's refusal so far, as `_await` returns it.
    """

    sends: Sequence[Resend]
    header: Header
    receipts: list[str]
    undecodable: dict[int, str]
    refused: tuple[int, str] | None = None


class Transactions:
    """One transaction at a time over the connection of the token."""

    def __init__(
        self,
        wire: StompTokenWire,
        token: TokenQueue[bytes],
        settings: ArtemisLinkSettings,
        routes: ArtemisRoutes,
    ) -> None:
        """Prepare; the token is in this queue, over the connection of this wire."""
        self._wire = wire
        self._token = token
        self._target_of = routes.target
        self._clock = settings.clock
        self._crash_point = settings.crash_point
        self._numbers = count(1)
        self.ahead = SendsAhead(self._start, self._undo, routes.watch_sends)

    def _start(self, sends: Sequence[Resend]) -> _Begun:
        connection = self._wire.connection
        begun = _Begun(sends, (b"transaction", b"cycle-%d" % next(self._numbers)), [], {})
        now_ms = self._clock.now_ms()
        try:
            connection.send("BEGIN", [begun.header])
            for index, resend in enumerate(sends):
                try:
                    headers, body = self._frame(resend, now_ms)
                except UndecodableMessage as cause:
                    begun.undecodable[index] = str(cause)
                    begun.receipts.append("")
                    continue
                begun.receipts.append(connection.ask("SEND", [begun.header, *headers], body))
            connection.flush()
        except LinkLost:
            # Why: the broker hangs up after an ERROR; the commit reports the refused send.
            refused = self._refusal(begun)
            if refused is None:
                raise
            begun = begun._replace(refused=refused)
        return begun

    def _frame(self, resend: Resend, now_ms: int) -> tuple[list[Header], memoryview]:
        target = self._target_of(resend.destination)
        if target != resend.destination.name:
            destination = Destination(resend.destination.kind, target)
            resend = msgspec.structs.replace(resend, destination=destination)
        return resend_frame(resend, now_ms)

    def _undo(self, begun: _Begun) -> None:
        if self._await(begun) is not None:
            self._reopen()
            return
        self._wire.connection.send("ABORT", [begun.header])
        self._wire.connection.flush()

    def commit(self, sends: Sequence[Resend], token: Token) -> None:
        """Commit the sends and the next token; durable when this returns.

        Args:
            sends: as begun, or to begin now.

        Raises:
            SendsRefused: nothing happened.
            CommitRefused: nothing happened.
            LinkLost: unknown whether it happened; the token shows it.
        """
        begun = self.ahead.take(sends)
        if begun.undecodable:
            self._undo(begun)
            raise SendsRefused(begun.undecodable)
        connection = self._wire.connection
        refusal = self._await(begun, token)
        if refusal is not None:
            self._reopen()
            index, words = refusal
            if index == _UNTOLD:
                index, words = self._find_refused(sends) or refusal
            if 0 <= index < len(sends):
                raise SendsRefused({index: words})
            raise CommitRefused(f"the broker refused a transaction: {words}")
        misrouted = self.ahead.misrouted()
        if misrouted:
            connection.send("ABORT", [begun.header])
            connection.flush()
            raise SendsRefused(misrouted)
        self._crash_point("sent")
        receipt = connection.ask("COMMIT", [begun.header])
        connection.flush()
        self._crash_point("committing")
        answer = connection.answers([receipt])[0]
        if answer.command == "ERROR":
            self._reopen()
            reason = f"the broker refused the commit: {error_text(answer)}"
            if not sends:
                raise LinkLost(f"{reason}; nothing but the token was in it")
            raise CommitRefused(reason)

    def _await(self, begun: _Begun, token: Token | None = None) -> tuple[int, str] | None:
        """Wait until the broker has taken all sends, and a token where one is given.

        Returns:
            None, or the index of the refused send (the token's comes last; `_UNTOLD` = the broker
            did not say which), and the broker's words.

        Raises:
            LinkLost: the connection is gone for another reason.
        """
        connection = self._wire.connection
        if begun.refused is not None:
            return begun.refused
        try:
            if token is not None:
                begun.receipts.append(self._wire.send_next(token, begun.header))
            for index, receipt in enumerate(begun.receipts):
                answer = connection.answers([receipt])[0] if receipt else None
                if answer is not None and answer.command == "ERROR":
                    return index, error_text(answer)
        except LinkLost:
            refusal = self._refusal(begun)
            if refusal is None:
                raise
            return refusal
        return None

    def _refusal(self, begun: _Begun) -> tuple[int, str] | None:
        """Return which send was answered with an ERROR; None = none so far."""
        connection = self._wire.connection
        for index, receipt in enumerate(begun.receipts):
            answer = connection.answered(receipt)
            if answer is not None and answer.command == "ERROR":
                return index, error_text(answer)
        if connection.errors:
            return _UNTOLD, error_text(connection.errors[0])
        return None

    def _reopen(self) -> None:
        """Connect again after an ERROR, and take the same token.

        Raises:
            LinkLost: another token came, or none: another instance has it, or the commit happened.
        """
        self._wire.reopen()
        self._token.retake()

    def _find_refused(self, sends: Sequence[Resend]) -> tuple[int, str] | None:
        """Send one by one in a transaction that is never committed, until one is refused."""
        transaction = (b"transaction", b"cycle-%d" % next(self._numbers))
        self._wire.connection.send("BEGIN", [transaction])
        for index, resend in enumerate(sends):
            headers, body = self._frame(resend, self._clock.now_ms())
            try:
                call(self._wire.connection, "SEND", [transaction, *headers], body)
            except FrameRefused as refused:
                self._reopen()
                return index, str(refused)
        self._wire.connection.send("ABORT", [transaction])
        return None
