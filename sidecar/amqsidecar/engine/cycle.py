"""The cycle: gather, decide, store, commit, finish (`architecture.md`).

One cycle is one durable store transaction followed by one broker transaction that exchanges the
token. What it takes counts only once the broker has committed; what it sends is removed only then.
A cycle that the broker refuses is undone and cut smaller until the offender stands alone.

While the broker commits a cycle the next one is begun, up to its last step: its store transaction,
which finishes the one before it, becomes durable only once the broker has committed that one.

What is in hand when the process dies is still the broker's; what the store wrote for the cycle in
flight is finished or undone at the next start, as the token says.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import takewhile

import msgspec

from amqsidecar.broker import Delivery, Link, Resend
from amqsidecar.clock import Clock
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.engine.cycle_events import CycleObserver, CycleStats, sent_event
from amqsidecar.engine.dispatch import Dispatch, parked
from amqsidecar.engine.gates import Gates
from amqsidecar.engine.judge import Judging
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.recovery import Recovery
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import DueRow, StoreState, TakenRow
from amqsidecar.store import ENOUGH_ROOM, Store, StoreTransaction

NEAR_MS = 50
"""What is due so soon is waited for here; what is due later is left to the service's clock."""

SENT_WHEN_SHORT = 100
"""Messages sent in one cycle where the store's medium is short: its records must fit in there."""

REFUSALS_BEFORE_PARKING = 3
"""A message that was refused so often while later ones got through is at fault itself."""

_ALL_THAT_ARRIVED = 1 << 30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one cycle.

    Attributes:
        max_taken: dead letters accepted in one cycle.
        max_sent: messages sent in one cycle.
    """

    max_taken: int
    max_sent: int


class _Cycle:
    """A cycle from its begin to the broker's answer.

    Attributes:
        number: that its token carries.
        now_ms: when it was begun, and what is due by then.
        store: the transaction of the store, until it is kept or given up.
        deliveries, sent: what it takes and what it sends; `resends` in the same order as `sent`.
        replaced: rows that go when what it takes counts, by the rows that take their places.
        events: what happens with it; `blocked` happens also without it.
        has_ended_another: it writes how the cycle before it ended.
    """

    def __init__(self, number: int, now_ms: int, started_s: float) -> None:
        self.number = number
        self.now_ms = now_ms
        self.started_s = started_s
        self.store = ExitStack()
        self.deliveries: list[Delivery] = []
        self.sent: list[DueRow] = []
        self.replaced: dict[int, int] = {}
        self.resends: list[Resend] = []
        self.events: list[AnyEvent] = []
        self.blocked: list[AnyEvent] = []
        self.has_ended_another = False

    @property
    def does_something(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.deliveries or self.sent)


class _GivenUp(Exception):
    """Ends a store transaction that is not to be kept."""


class CycleEngine:
    """Runs cycles over one link and one store; belongs to one thread."""

    def __init__(
        self,
        *,
        link: Link,
        store: Store,
        judge: Judging,
        backlog: BacklogGate,
        clock: Clock,
        limits: Limits,
        observe: CycleObserver,
        blockages: Blockages | None = None,
        losses: Losses | None = None,
        gates: Gates | None = None,
        wake_at: Callable[[int], None] | None = None,
        crash_point: CrashPoint = no_crash,
        adopts_tokens: bool = True,
    ) -> None:
        self._link = link
        self._store = store
        self._judge = judge
        self._backlog = backlog
        self._clock = clock
        self._limits = limits
        self._observe = observe
        self._blockages = blockages if blockages is not None else Blockages()
        self._losses = losses if losses is not None else Losses()
        self._gates = gates
        self._crash_point = crash_point
        self._wake_at = wake_at
        self._recovery = Recovery(link, store, clock, observe, adopts_tokens=adopts_tokens)
        self._dispatch = Dispatch(link, judge, self._blockages, self._losses, clock)
        self._cycle = 0
        self._uid = ""
        self._owes: tuple[str, int] | None = None
        self._in_hand: list[Delivery] = []
        self._send_limit = self._losses.limit(limits.max_sent)
        self._take_limit = limits.max_taken
        self._only_sends_next = False
        self._refusals: dict[int, int] = {}
        self._room = ENOUGH_ROOM
        self._committing: _Cycle | None = None
        self._ahead: _Cycle | None = None
        self._ahead_until_s = 0.0
        if (background := link.features.background) is not None:
            background.while_committing(self._begin_ahead)

    def recover(self, state: StoreState, wait_s: float) -> bool:
        """Become the owner of the instance and settle its last cycle by the token.

        Args:
            state: what the store said when it was opened (again).
            wait_s: how long to wait for the token.

        Returns:
            False = somebody else holds the token, or nobody can tell yet: try again.

        Raises:
            LinkLost: the connection is gone.
            ConfigError: the token is of another store, which this one is not to adopt.
        """
        owned = self._recovery.own(state, wait_s)
        if owned is None:
            return False
        self._cycle, self._uid = owned.cycle, owned.uid
        self._backlog.remember(self._store.holds())
        if owned.token_is_behind:
            self._commit_nothing("the token of another store could not be taken over")
        return True

    # ------------------------------------------------------------------ turns

    def turn(self, max_wait_s: float) -> bool:
        """Do a cycle and those begun ahead, or wait until there may be something to do.

        Args:
            max_wait_s: how long to wait at most when nothing is due and nothing has arrived; and
                how long cycles are begun ahead.

        Returns:
            Whether a cycle ran.

        Raises:
            LinkLost: reconnect and `recover`.
            StoreUnavailable: whether the last write happened is unknown; open the store again, and
                let a new engine `recover`.
        """
        now_ms = self._clock.now_ms()
        next_due_ms = self._store.next_due_ms()
        self._room = self._store.room()
        if (next_due_ms is not None and next_due_ms <= now_ms) or self._gather():
            self._ahead_until_s = self._clock.monotonic_s() + max_wait_s
            return self._run_cycles(now_ms)
        if self._owes is not None:
            self.settle_up()
            return False
        if next_due_ms is not None:
            wait_ms = next_due_ms - now_ms
            if self._wake_at is not None and wait_ms > NEAR_MS:
                self._wake_at(next_due_ms)
            else:
                max_wait_s = min(max_wait_s, wait_ms / 1000)
        self._link.wait(max_wait_s)
        return False

    def settle_up(self) -> None:
        """Write to the store how the last cycle ended, if that has not been done yet."""
        if self._owes is None:
            return
        with self._store.transaction() as tx:
            self._pay(tx)
        self._owes = None
        self._crash_point("finished")

    def _pay(self, tx: StoreTransaction) -> None:
        if self._owes is not None:
            _end(tx, *self._owes)

    def _gather(self) -> bool:
        """Take into hand what has arrived; return whether something is to be taken."""
        self._room = self._store.room()
        # Why all where there is no room: the link would end each wait for what it still has. It
        # hands over no more than its prefetch while nothing is accepted.
        most = self._limits.max_taken if self._room.is_enough else _ALL_THAT_ARRIVED
        room = most - len(self._in_hand)
        if room > 0:
            self._in_hand.extend(self._link.receive(room))
        return self._room.is_enough and bool(self._in_hand)

    def _fitting(self) -> list[Delivery]:
        """Return the first deliveries in hand that the store has room for, at least one."""
        left_bytes = self._room.at_once_bytes
        count = 0
        for delivery in self._in_hand[: self._take_limit]:
            left_bytes -= len(delivery.message)
            if left_bytes < 0 and count:
                break
            count += 1
        return self._in_hand[:count]

    def _run_cycles(self, now_ms: int) -> bool:
        takes, send_limit = True, self._send_limit
        if self._send_limit < self._limits.max_sent:
            # Why: on Artemis a refused commit counts as a failed delivery of what it would have
            # accepted, so suspects are sent in cycles of their own.
            takes = not self._only_sends_next and self._gather()
            self._only_sends_next = takes
            send_limit = 0 if takes else self._send_limit
        if not self._room.is_enough:
            send_limit = min(send_limit, SENT_WHEN_SHORT)
        cycle: _Cycle | None
        cycle = _Cycle(self._cycle + 1, now_ms, self._clock.monotonic_s())
        try:
            self._begin(cycle, self._owes, takes=takes, send_limit=send_limit)
        except LinkLost as lost:
            self._suspect(cycle.sent, lost, now_ms)
            raise
        has_run = False
        try:
            while cycle is not None and self._keep(cycle):
                has_run = True
                cycle = self._commit(cycle)
        finally:
            self._give_up_ahead()
        return has_run

    def _begin(
        self, cycle: _Cycle, owes: tuple[str, int] | None, *, takes: bool, send_limit: int
    ) -> None:
        """Write the cycle into the store, not yet durable, and begin its sends.

        The sends go out first, so that the broker works on them while we decide and write; nobody
        sees them before the commit, and they are abandoned if the store refuses.
        """
        now_ms, is_ahead = cycle.now_ms, cycle is self._ahead
        try:
            with ExitStack() as stack:
                tx = stack.enter_context(self._store.transaction())
                if owes is not None:
                    _end(tx, *owes)
                    cycle.has_ended_another = True
                # Why not `send_limit` rows: those that can't go now would hide those that can.
                due = tx.claim_due(now_ms, self._limits.max_sent) if send_limit else []
                is_full = len(due) == self._limits.max_sent
                sendable = self._dispatch.choose(
                    tx, due, now_ms, cycle.blocked, hides_others=is_full
                )
                cycle.sent = sendable[:send_limit]
                if self._gates is not None:
                    cycle.sent = self._gates.choose(tx, cycle.sent, now_ms, cycle.blocked)
                cycle.resends = [self._resend(row) for row in cycle.sent]
                if cycle.resends:
                    self._link.begin_sends(cycle.resends)
                deliveries: list[Delivery] = []
                if takes and self._gather():
                    deliveries = self._fitting()
                    self._crash_point("gathered")
                if is_ahead:
                    # Why: nobody knows yet what the other cycle leaves of a backlog.
                    deliveries = list(takewhile(self._is_no_backlog, deliveries))
                self._backlog.begin(tx.holds)
                # Why asked again: what arrived since the cycle began is not due that much earlier.
                taken = self._decide(cycle, deliveries, self._clock.now_ms())
                cycle.events.extend([sent_event(row, now_ms) for row in cycle.sent])
                if cycle.blocked:
                    tx.record(cycle.blocked)
                for source, count in self._backlog.counted.items():
                    tx.set_hold(source, count)
                if deliveries or cycle.sent:
                    # Why not: what was taken of a backlog by now was so by the other cycle.
                    holds = {} if is_ahead else self._backlog.taken
                    tx.record_cycle(
                        cycle.number, taken, cycle.sent, cycle.events, holds, cycle.replaced
                    )
                cycle.store = stack.pop_all()
        except LinkLost:
            self._backlog.rollback()
            raise
        except BaseException:
            self._backlog.rollback()
            self._link.abandon_sends()
            raise
        cycle.deliveries = deliveries
        del self._in_hand[: len(deliveries)]

    def _keep(self, cycle: _Cycle) -> bool:
        """Make what was written durable; return whether there is anything to commit."""
        try:
            cycle.store.close()
        except BaseException:
            self._give_back(cycle)
            self._backlog.rollback()
            self._link.abandon_sends()
            raise
        if cycle.has_ended_another:
            self._owes = None
            self._crash_point("finished")
        if cycle.blocked:
            self._observe(cycle.blocked, None)
        return cycle.does_something

    def _give_back(self, cycle: _Cycle) -> None:
        self._in_hand[:0] = cycle.deliveries

    def _commit(self, cycle: _Cycle) -> _Cycle | None:
        """Let the broker commit a cycle that the store has; return the one that was begun ahead."""
        self._crash_point("stored")
        try:
            self._ask_to_commit(cycle)
        except LinkLost as lost:
            begun = [] if self._ahead is None else self._ahead.sent
            self._suspect([*cycle.sent, *begun], lost, cycle.now_ms)
            raise
        except SendsRefused as refused:
            self._fail(cycle)
            self._refuse(cycle.sent, refused, cycle.now_ms)
            return None
        except CommitRefused as refused:
            self._fail(cycle)
            self._narrow(cycle.deliveries, cycle.sent, refused, cycle.now_ms)
            return None
        self._crash_point("committed")
        self._succeed(cycle)
        duration_s = self._clock.monotonic_s() - cycle.started_s
        stats = CycleStats(len(cycle.deliveries), len(cycle.sent), duration_s)
        self._observe(cycle.events, stats)
        ahead, self._ahead = self._ahead, None
        return ahead

    def _ask_to_commit(self, cycle: _Cycle) -> None:
        self._committing = cycle
        try:
            self._link.commit_cycle(cycle.deliveries, cycle.resends, cycle.number)
        finally:
            self._committing = None

    # ------------------------------------------------------------------ the next cycle

    def _begin_ahead(self) -> None:
        """Begin the next cycle as if the one that the broker commits now were committed.

        Only where nothing is amiss: whatever went wrong before is looked at in cycles of its own.
        """
        before = self._committing
        if before is None or not self._is_large(before) or not self._is_calm:
            return
        if self._clock.monotonic_s() > self._ahead_until_s:
            return
        now_ms = self._clock.now_ms()
        next_due_ms = self._store.next_due_ms()
        if not self._gather() and (next_due_ms is None or next_due_ms > now_ms):
            return
        cycle = self._ahead = _Cycle(before.number + 1, now_ms, self._clock.monotonic_s())
        owes = ("finish", before.number)
        self._begin(cycle, owes, takes=True, send_limit=self._limits.max_sent)
        if not cycle.does_something:
            self._give_up_ahead()
            self._link.abandon_sends()

    def _is_large(self, cycle: _Cycle) -> bool:
        """Tell whether there is much to do.

        Why: after small ones, what is due by the time of the commit goes sooner with it than what
        was begun ahead would.
        """
        taken, sent = len(cycle.deliveries), len(cycle.sent)
        return 4 * taken >= self._limits.max_taken or 4 * sent >= self._limits.max_sent

    @property
    def _is_calm(self) -> bool:
        return (
            self._room.is_enough
            and self._send_limit == self._limits.max_sent
            and self._take_limit == self._limits.max_taken
            and not len(self._blockages)
            and not self._refusals
            and not self._losses.is_careful(self._limits.max_sent)
        )

    def _is_no_backlog(self, delivery: Delivery) -> bool:
        return self._backlog.is_over(delivery.source)

    def _give_up_ahead(self) -> bool:
        """Undo in the store what was begun ahead; return whether anything was."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return False
        with suppress(_GivenUp), ahead.store:
            raise _GivenUp
        self._give_back(ahead)
        return True

    def _decide(self, cycle: _Cycle, deliveries: Sequence[Delivery], now_ms: int) -> list[TakenRow]:
        """Return the rows of what a cycle takes; adds events and replaced rows to it."""
        taken: list[TakenRow] = []
        if not deliveries:
            return taken
        events = cycle.events
        row_id = self._store.allocate_ids(len(deliveries))
        judge, uid = self._judge.judge, self._uid
        self._judge.prepare(deliveries)
        is_backlog = self._backlog.is_backlog
        for delivery in deliveries:
            verdict = judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog(delivery.source))
            if verdict.row is not None:
                taken.append(verdict.row)
            if verdict.replaces is not None:
                cycle.replaced[row_id] = verdict.replaces
            events.extend(verdict.events)
            row_id += 1
        return taken

    def _resend(self, row: DueRow) -> Resend:
        return Resend(
            destination=parse_destination(row.destination),
            message=row.message,
            is_final=row.is_final,
            redelivery_id=row.redelivery_id,
            redelivery_count=row.redelivery_count,
            redelivery_delay_ms=row.delay_ms,
            expiration_ms=row.expiration_ms,
        )

    # ------------------------------------------------------------------ how it ended

    def _succeed(self, cycle: _Cycle) -> None:
        self._cycle = cycle.number
        self._owes = ("finish", cycle.number)
        self._backlog.commit()
        if self._gates is not None:
            self._gates.observe(cycle.events, cycle.sent, self._clock.now_ms())
        if len(self._blockages) or self._refusals:
            for row in cycle.sent:
                self._blockages.clear(row.destination)
                self._refusals.pop(row.id, None)
        if cycle.sent:
            self._losses.forget([row.id for row in cycle.sent])
            self._losses.note_taken(row.destination for row in cycle.sent)
            self._send_limit = min(self._send_limit * 2, self._limits.max_sent)
        if cycle.deliveries:
            self._take_limit = min(self._take_limit * 2, self._limits.max_taken)

    def _fail(self, cycle: _Cycle) -> None:
        self._owes = ("undo", cycle.number)
        if self._give_up_ahead():
            self._link.abandon_sends()
        self._give_back(cycle)
        self._backlog.rollback()

    def _suspect(self, sent: Sequence[DueRow], lost: LinkLost, now_ms: int) -> None:
        """Remember what was being sent when the link was lost; it may be what ended it."""
        if lost.held_up_by:
            self._block_those_without_room(sent, lost.held_up_by)
            return
        is_probe = bool(sent) and self._blockages.get(sent[0].destination) is not None
        if self._losses.note([row.id for row in sent], is_probe=is_probe):
            reason = f"the connection ended when a message was sent there: {lost}"
            self._blockages.block(sent[0].destination, now_ms, reason, ends_links=True)

    def _block_those_without_room(
        self, sent: Sequence[DueRow], held_up_by: Mapping[str, str]
    ) -> None:
        events: list[AnyEvent] = []
        offered = Counter(row.destination for row in sent)
        # Why another time than the cycle's: that began long ago.
        now_ms = self._clock.now_ms()
        for destination, reason in held_up_by.items():
            self._losses.note_held_up(destination, offered[destination])
            self._dispatch.block_once(destination, reason, now_ms, events)
        self._observe(events, None)

    def _refuse(self, sent: Sequence[DueRow], refused: SendsRefused, now_ms: int) -> None:
        """Postpone what the broker refused by itself; park what it refuses again and again."""
        events: list[AnyEvent] = []
        offered = Counter(row.destination for row in sent)
        last_taken = {
            row.destination: index
            for index, row in enumerate(sent)
            if index not in refused.refusals
        }
        with self._store.transaction() as tx:
            self._pay(tx)
            for index, words in refused.refusals.items():
                row = sent[index]
                is_alone = offered[row.destination] == 1
                # Why: where all that follow are refused as well, the destination is full.
                is_odd = index < last_taken.get(row.destination, -1) or (
                    is_alone
                    and self._blockages.get(row.destination) is None
                    and not self._blockages.are_full
                )
                count = self._refusals.get(row.id, 0) + (1 if is_odd else 0)
                self._refusals[row.id] = count
                if count >= REFUSALS_BEFORE_PARKING:
                    self._refusals.pop(row.id)
                    tx.park([row.id], words)
                    events.append(parked(row, words, now_ms))
                    continue
                until_ms = self._dispatch.block_once(row.destination, words, now_ms, events)
                # Why: a little later than its neighbours, so that another one probes first.
                tx.postpone([row.id], until_ms + 100 * count, words)
            tx.record(events)
        self._owes = None
        self._send_limit = max(1, len(sent) - len(refused.refusals))
        self._observe(events, None)

    def _narrow(
        self,
        deliveries: Sequence[Delivery],
        sent: Sequence[DueRow],
        refused: CommitRefused,
        now_ms: int,
    ) -> None:
        """Cut the next cycles smaller, or park the one send that is at fault."""
        if not sent:
            if len(deliveries) <= 1:
                raise LinkLost(f"the broker won't let us accept a dead letter: {refused}")
            self._take_limit = max(1, len(deliveries) // 2)
            return
        if len(sent) > 1:
            self._send_limit = max(1, len(sent) // 2)
            self._only_sends_next = True
            return
        if deliveries:
            self._send_limit = 1
            self._only_sends_next = True
            if self._limits.max_sent > 1:
                return
        row = sent[0]
        # Why: it shows that the broker refuses only this message.
        self._commit_nothing(f"the broker commits nothing at all: {refused}")
        event = parked(row, str(refused), now_ms)
        with self._store.transaction() as tx:
            self._pay(tx)
            tx.park([row.id], str(refused))
            tx.record([event])
        self._owes = None
        self._observe([event], None)
        self._send_limit = min(self._send_limit * 2, self._limits.max_sent)

    def _commit_nothing(self, otherwise: str) -> None:
        """Exchange the token, and do nothing else.

        Raises:
            LinkLost: the broker refuses even that; in the words `otherwise`.
        """
        cycle = self._cycle + 1
        with self._store.transaction() as tx:
            self._pay(tx)
            tx.record_cycle(cycle, [], [], [])
        self._owes = None
        try:
            self._link.commit_cycle([], [], cycle)
        except (SendsRefused, CommitRefused) as refused:
            self._owes = ("undo", cycle)
            raise LinkLost(otherwise) from refused
        self._cycle = cycle
        self._owes = ("finish", cycle)


def _end(tx: StoreTransaction, how: str, cycle: int) -> None:
    if how == "finish":
        tx.finish_cycle(cycle)
    else:
        tx.undo_cycle(cycle)
