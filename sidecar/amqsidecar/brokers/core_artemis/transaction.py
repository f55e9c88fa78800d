"""One transaction over Core: sends, then acknowledgements, then the commit.

Why answers, of the last send to each destination: they show whether the destination refuses.
Another failing send makes the commit fail, which does not name it: so each send is answered for a
while after a failure. Why acknowledgements come later: each transaction that fails with them in it
counts as a failed delivery. A session has one transaction. Undoing it gives back all messages in
hand, uncounted, so intake and token expect them again; another sidecar may get them then. So known
refusals are found before anything is sent, and nothing has to be undone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import NamedTuple

from typing_extensions import override

from amqsidecar.broker import Resend
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import CoreRefused
from amqsidecar.brokers.core.session import CoreAcknowledgement, CoreSession
from amqsidecar.brokers.core_artemis.intake import CoreHandle, CoreIntake
from amqsidecar.brokers.core_artemis.targets import CoreTargets
from amqsidecar.brokers.core_artemis.token import CoreTokenWire
from amqsidecar.brokers.sends_ahead import SendsAhead, WatchSends, begin_nothing
from amqsidecar.brokers.token_queue import TokenQueue
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused, UndecodableMessage
from amqsidecar.formats.core.message import CoreMessage, decode_headers
from amqsidecar.formats.core_artemis_message import make_resend
from amqsidecar.model.destination import Destination

_ASKS_EACH_S = 60.0
"""How long each send is answered after a transaction failed."""


class CoreTools(NamedTuple):
    """The parts of a transaction.

    Attributes:
        session: transacted and started.
        intake: reads the messages to accept.
        target_of: returns the name to send to for a destination.
        clock: where the time comes from.
        crash_point: called at each step of a transaction.
        watch: checks where sends went.
    """

    session: CoreSession
    intake: CoreIntake
    targets: CoreTargets
    target_of: Callable[[Destination], str]
    crash_point: CrashPoint
    watch: WatchSends


class _Begun(NamedTuple):
    """Sends of the transaction that is open.

    Attributes:
        targets: the name that was sent to for each destination.
        numbers: the number of a send's answer to its index.
        refusals: index of a send that can't be put, to the words why; then none was put.
    """

    sends: Sequence[Resend]
    targets: dict[Destination, str]
    numbers: dict[int, int]
    refusals: dict[int, str]


class CoreMoves:
    """Accepts and sends in transactions without a token."""

    def __init__(self, tools: CoreTools) -> None:
        self._tools = tools
        self.ahead = SendsAhead(self._start, self._undo_sends, tools.watch)
        self._begin_next: Callable[[], None] = begin_nothing
        self._asks_each_until_s = 0.0

    def _now_s(self) -> float:
        return self._tools.session.wire.clock.monotonic_s()

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        self._begin_next = begin_next

    def _start(self, sends: Sequence[Resend]) -> _Begun:
        with self._clean_or_lost():
            return self._put_sends(sends)

    def _undo_sends(self, begun: _Begun) -> None:
        if not begun.numbers:
            return
        with self._clean_or_lost():
            self._tools.session.answers([*begun.numbers])
            self._undo()

    @contextmanager
    def _clean_or_lost(self) -> Iterator[None]:
        """Close the connection when the block, which works in a transaction, is interrupted."""
        try:
            yield
        except CoreRefused as refused:
            self._tools.session.wire.close()
            raise LinkLost(f"a transaction can't continue: {refused}") from refused
        except BaseException:
            # Why: the transaction is neither committed nor undone; only a new connection is clean.
            self._tools.session.wire.close()
            raise

    def _put_sends(self, sends: Sequence[Resend]) -> _Begun:
        session = self._tools.session
        last = {one.destination: index for index, one in enumerate(sends)}
        targets = {one: self._tools.target_of(one) for one in last}
        refused = self._tools.targets.prepare(targets)
        now_ms = session.wire.clock.now_ms()
        begun = _Begun(sends, targets, {}, {})
        made = []
        sizes_bytes: dict[str, int] = {}
        for index, resend in enumerate(sends):
            destination = resend.destination
            if refused and destination in refused:
                begun.refusals[index] = refused[destination]
                continue
            try:
                made.append(make_resend(resend, targets[destination], now_ms))
            except UndecodableMessage as cause:
                begun.refusals[index] = str(cause)
                continue
            address = destination.address
            sizes_bytes[address] = sizes_bytes.get(address, 0) + len(resend.message)
        for address, words in self._tools.targets.full(sizes_bytes).items():
            at = [index for index, one in enumerate(sends) if one.destination.address == address]
            begun.refusals.update(dict.fromkeys(at, words) | begun.refusals)
        if begun.refusals:
            return begun
        asks_each = self._now_s() < self._asks_each_until_s
        answered = range(len(sends)) if asks_each else {*last.values()}
        for index, (body, headers, is_large, body_bytes) in enumerate(made):
            if is_large:
                message = decode_headers(headers)
                number = session.ask_send_large(message, BytesIO(body), body_bytes)
            elif index in answered:
                number = session.ask_send_encoded(body, headers)
            else:
                session.send(body, headers)
                continue
            begun.numbers[number] = index
        session.wire.flush()
        return begun

    def move(
        self,
        handles: Sequence[CoreHandle],
        sends: Sequence[Resend],
        tokens: Sequence[CoreMessage] = (),
        besides: Sequence[CoreAcknowledgement] = (),
    ) -> None:
        """Accept and send, tokens last, in one transaction; see `broker.MoveSession.move`.

        After a refusal the deliveries are still in hand, or come again.
        """
        begun = self.ahead.take(sends)
        with self._clean_or_lost():
            refused = self._finish_sends(begun, tokens)
            if refused is None:
                refused = self._commit(handles, besides)
            if refused is not None and not begun.refusals:
                self._undo()
        if refused is not None:
            self._asks_each_until_s = self._now_s() + _ASKS_EACH_S
            raise refused

    def _finish_sends(
        self, begun: _Begun, tokens: Sequence[CoreMessage]
    ) -> SendsRefused | CommitRefused | None:
        """Wait until the broker has all sends; return why it does not take them."""
        if begun.refusals:
            return SendsRefused(begun.refusals)
        session = self._tools.session
        numbers = [*begun.numbers]
        asked = [*numbers, *map(session.ask_send, tokens)]
        # Why before the answers: the broker does one after the other, and there is one wait less.
        gone = self._tools.targets.are_gone(begun.targets) if begun.targets else {}
        answers = session.answers(asked)
        refusals = {
            begun.numbers[number]: str(answer)
            for number, answer in zip(numbers, answers, strict=False)
            if answer is not None
        }
        if not refusals or len(numbers) < len(begun.sends):
            # Why all to a destination: the others had no answers of their own.
            refusing = {
                begun.sends[at].destination: words for at, words in refusals.items()
            } or gone
            refusals = {
                index: refusing[resend.destination]
                for index, resend in enumerate(begun.sends if refusing else ())
                if resend.destination in refusing
            }
        refusals = refusals or dict(self.ahead.misrouted())
        if refusals:
            return SendsRefused(refusals)
        for answer in answers[len(numbers) :]:
            if answer is not None:
                return CommitRefused(f"the token was refused: {answer}")
        return None

    def _commit(
        self, handles: Sequence[CoreHandle], besides: Sequence[CoreAcknowledgement]
    ) -> CommitRefused | None:
        """Acknowledge and commit; return why the broker does not."""
        session = self._tools.session
        self._tools.crash_point("sent")
        acknowledgements = self._tools.intake.acknowledgements(handles)
        try:
            session.acknowledge_all([*acknowledgements, *besides])
        except CoreRefused as refused:
            raise LinkLost(f"a delivery is not in hand any more: {refused}") from refused
        number = session.ask_commit()
        self._tools.crash_point("committing")
        self._begin_next()
        answer = session.answers([number])[0]
        if answer is None:
            return None
        # Why: the rest are properties of the message, which do not belong in a log.
        words = str(answer).partition(" Message information")[0]
        return CommitRefused(f"the broker refused the commit: {words}")

    def _undo(self) -> None:
        """Undo the transaction; messages in hand are delivered again."""
        self.ahead.forget()
        self._tools.intake.undo()
        self._tools.session.rollback()


class CoreCycle(CoreMoves):
    """Begins, abandons and commits cycles, each with the exchange of the token."""

    def __init__(
        self, tools: CoreTools, token: TokenQueue[CoreDelivery], wire: CoreTokenWire
    ) -> None:
        super().__init__(tools)
        self._token = token
        self._wire = wire

    def commit(self, handles: Sequence[CoreHandle], sends: Sequence[Resend], token: int) -> None:
        """Accept, send, exchange the token; see `broker.TakeSession.commit_cycle`."""
        held = self._token.take_for_commit().handle
        own = self._wire
        self.move(handles, sends, [own.encode(token)], own.acknowledgements(held))
        self._token.exchanged(token)

    @override
    def _undo(self) -> None:
        self._wire.forget()
        self._token.undo()
        super()._undo()
