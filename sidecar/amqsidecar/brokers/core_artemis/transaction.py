"""One transaction over Core: sends, each answered, then acknowledgements, then the commit.

Why answers: a send that fails without one makes the commit fail, and does not say which it was.
Why acknowledgements come later: each transaction that fails with them in it counts as a failed
delivery. A session has one transaction, and undoing it gives back all that is in hand, uncounted,
so that intake and token expect it once more. Another sidecar may get it then; so what is known to
be refused is found out before anything is sent, and nothing has to be undone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import NamedTuple

from amqsidecar.broker import Resend
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.refusal import CoreRefused
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.brokers.core_artemis.intake import CoreHandle, CoreIntake
from amqsidecar.brokers.core_artemis.targets import CoreTargets
from amqsidecar.brokers.core_artemis.token import CoreTokenQueue
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused, UndecodableMessage
from amqsidecar.formats.core.message import decode_headers
from amqsidecar.formats.core_artemis_message import make_resend
from amqsidecar.model.destination import Destination


def do_nothing() -> None:
    """Do nothing while the broker commits: the default."""


class _Begun(NamedTuple):
    """Sends of the transaction that is open.

    Attributes:
        sends: all of them.
        targets: the name that was sent to for each destination.
        numbers: the number of a send's answer to its index.
        refusals: index of a send that can't be put, to the words why; then none was put.
    """

    sends: Sequence[Resend]
    targets: dict[Destination, str]
    numbers: dict[int, int]
    refusals: dict[int, str]


class CoreTransactions:
    """Accepts and sends in transactions.

    Attributes:
        while_committing: called in a commit once the broker was asked; may begin the next sends.
    """

    def __init__(
        self,
        *,
        connection: CoreConnection,
        session: CoreSession,
        intake: CoreIntake,
        targets: CoreTargets,
        target_of: Callable[[Destination], str],
        clock: Clock,
        crash_point: CrashPoint,
        token: CoreTokenQueue | None = None,
    ) -> None:
        self._connection = connection
        self._session = session
        self._intake = intake
        self._targets = targets
        self._target_of = target_of
        self._clock = clock
        self._crash_point = crash_point
        self._token = token
        self._begun: _Begun | None = None
        self.while_committing: Callable[[], None] = do_nothing

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened."""
        self._start(sends)

    def _start(self, sends: Sequence[Resend]) -> _Begun:
        self.abandon_sends()
        with self._clean_or_lost():
            begun = self._begun = self._put_sends(sends)
        return begun

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun."""
        if self._begun is None:
            return
        begun, self._begun = self._begun, None
        if not begun.numbers:
            return
        with self._clean_or_lost():
            self._session.answers([*begun.numbers])
            self._undo()

    @contextmanager
    def _clean_or_lost(self) -> Iterator[None]:
        """Close the connection when the block, which works in a transaction, is interrupted."""
        try:
            yield
        except CoreRefused as refused:
            self._connection.close()
            raise LinkLost(f"a transaction can't go on: {refused}") from refused
        except BaseException:
            # Why: the transaction is neither committed nor undone; only a new connection is clean.
            self._connection.close()
            raise

    def _put_sends(self, sends: Sequence[Resend]) -> _Begun:
        targets = {one.destination: self._target_of(one.destination) for one in sends}
        refused = self._targets.prepare(targets)
        now_ms = self._clock.now_ms()
        begun = _Begun(sends, targets, {}, {})
        made = []
        sizes_bytes: dict[str, int] = {}
        for index, resend in enumerate(sends):
            destination = resend.destination
            if refused and destination in refused:
                begun.refusals[index] = refused[destination]
                continue
            try:
                made.append((index, make_resend(resend, targets[destination], now_ms)))
            except UndecodableMessage as cause:
                begun.refusals[index] = str(cause)
                continue
            address = destination.address
            sizes_bytes[address] = sizes_bytes.get(address, 0) + len(resend.message)
        full = self._targets.full(sizes_bytes)
        if full:
            for index, _ in made:
                if (words := full.get(sends[index].destination.address)) is not None:
                    begun.refusals[index] = words
        if begun.refusals:
            return begun
        session = self._session
        for index, (body, headers, is_large) in made:
            if is_large:
                number = session.ask_send_large(decode_headers(headers), BytesIO(body))
            else:
                number = session.ask_send_encoded(body, headers)
            begun.numbers[number] = index
        self._connection.flush()
        return begun

    def perform(
        self, handles: Sequence[CoreHandle], sends: Sequence[Resend], token: int | None = None
    ) -> None:
        """Accept and send in one transaction, and exchange the token; durable when it returns.

        If the process dies inside, either all of it happened or none.

        Args:
            handles: to accept.
            sends: to send.
            token: the number of the next one; None = there is no token to exchange.

        Raises:
            SendsRefused: nothing happened; the deliveries are still in hand, or come again.
            CommitRefused: as above.
            LinkLost: unknown whether it happened.
        """
        own = self._token
        if token is not None and own is not None:
            own.take_for_commit()
        begun = self._begun
        if begun is None or begun.sends is not sends:
            begun = self._start(sends)
        self._begun = None
        with self._clean_or_lost():
            refused = self._finish_sends(begun, own, token)
            if refused is None:
                refused = self._commit(handles, own)
            if refused is not None and not begun.refusals:
                self._undo()
        if refused is not None:
            raise refused
        if own is not None and token is not None:
            own.committed(token)

    def _finish_sends(
        self, begun: _Begun, own: CoreTokenQueue | None, token: int | None
    ) -> SendsRefused | CommitRefused | None:
        """Wait until the broker has all sends; return why it does not take them."""
        if begun.refusals:
            return SendsRefused(begun.refusals)
        session = self._session
        numbers = [*begun.numbers]
        exchanged = []
        if own is not None and token is not None:
            exchanged.append(session.ask_send(own.encode(token)))
        answers = session.answers([*numbers, *exchanged])
        refusals: dict[int, str] = {}
        for number, answer in zip(numbers, answers, strict=False):
            if answer is not None:
                refusals[begun.numbers[number]] = str(answer)
        if not refusals and begun.targets:
            gone = self._targets.are_gone(begun.targets)
            for index, resend in enumerate(begun.sends):
                if resend.destination in gone:
                    refusals[index] = gone[resend.destination]
        if refusals:
            return SendsRefused(refusals)
        if exchanged and answers[-1] is not None:
            return CommitRefused(f"the token was refused: {answers[-1]}")
        return None

    def _commit(
        self, handles: Sequence[CoreHandle], own: CoreTokenQueue | None
    ) -> CommitRefused | None:
        """Acknowledge and commit; return why the broker does not."""
        session = self._session
        self._crash_point("sent")
        acknowledgements = self._intake.acknowledgements(handles)
        if own is not None:
            acknowledgements += own.acknowledgements()
        try:
            session.acknowledge_all(acknowledgements)
        except CoreRefused as refused:
            raise LinkLost(f"a delivery is not in hand any more: {refused}") from refused
        number = session.ask_commit()
        self._crash_point("committing")
        self.while_committing()
        answer = session.answers([number])[0]
        if answer is None:
            return None
        # Why: the rest are properties of the message, which do not belong in a log.
        words = str(answer).partition(" Message information")[0]
        return CommitRefused(f"the broker refused the commit: {words}")

    def _undo(self) -> None:
        """Undo the transaction; what is in hand comes again."""
        self._begun = None
        self._intake.undo()
        if self._token is not None:
            self._token.undo()
        self._session.rollback()
