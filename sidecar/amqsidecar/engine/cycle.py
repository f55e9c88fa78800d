"""The cycle: gather, decide, store, commit, finish (`architecture.md`).

One cycle is one durable store transaction followed by one broker transaction that exchanges the
token. Its takes count, and its sends are removed, only once the broker has committed. A cycle that
the broker refuses is undone and cut smaller until the offender stands alone.

While the broker commits a cycle the next one is begun, up to its last step: its store transaction,
which finishes the one before it, becomes durable only once the broker has committed that one.

If the process dies, messages in hand still belong to the broker; the next start finishes or undoes
the store's part of the cycle in flight, as the token proves.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import takewhile

from amqsidecar.broker import Delivery, TakeSession
from amqsidecar.clock import Clock
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.engine.cycle_events import CycleObserver, CycleStats, sent_event
from amqsidecar.engine.cycle_size import CycleLimits, CycleSize
from amqsidecar.engine.dispatch import Dispatch, parked
from amqsidecar.engine.encodings import EncodingTurns, InHand
from amqsidecar.engine.from_place import FromPlace
from amqsidecar.engine.gates import NO_GATES, Gates
from amqsidecar.engine.immediate import ImmediateChoice, ImmediateSends
from amqsidecar.engine.judging.judge import Judging
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.open_cycle import CycleEnd, OpenCycle, RunningAhead
from amqsidecar.engine.recovery import Recovery
from amqsidecar.engine.refusals import REFUSALS_BEFORE_PARKING, Refusals, refused_before_others
from amqsidecar.engine.send_gate import GateAction, SendGate
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import DueRow, RowView, StoreState, TakenRow
from amqsidecar.store import ENOUGH_ROOM, Store, StoreTransaction

NEAR_MS = 50
"""The cycle waits for messages due this soon; the service's clock wakes it for later ones."""

SENT_WHEN_SHORT = 100
"""Messages sent in one cycle where the store's medium is short: its records must fit in there."""

_ALL_THAT_ARRIVED = 1 << 30
_UNFINISHED_S = 0.1
"""Time until deliveries are looked at again that wait for the end of another instance's cycle."""


class CycleEngine:
    """Runs cycles over one link and one store; belongs to one thread."""

    def __init__(
        self,
        *,
        link: TakeSession,
        store: Store,
        judge: Judging,
        backlog: BacklogGate,
        clock: Clock,
        limits: CycleLimits,
        observe: CycleObserver,
        blockages: Blockages | None = None,
        losses: Losses | None = None,
        gates: Gates = NO_GATES,
        wake_at: Callable[[int], None] | None = None,
        crash_point: CrashPoint = no_crash,
        adopts_tokens: bool = True,
        from_place: FromPlace | None = None,
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
        gate = SendGate(link, judge.send_rules)
        self._dispatch = Dispatch(link.description, gate, self._blockages, self._losses, clock)
        self._place = from_place or FromPlace()
        self._cycle = 0
        self._committed_at_s = 0.0
        self._uid = ""
        self._unwritten_end: CycleEnd | None = None
        self._in_hand = InHand()
        self._has_waiting = False
        self._turns = EncodingTurns(link.description.encodings)
        self._size = CycleSize(limits, self._losses.limit(limits.max_sent))
        self._refusals = Refusals()
        self._room = ENOUGH_ROOM
        self._ahead = RunningAhead()
        self._immediate = ImmediateSends(gate)
        if (background := link.features.background) is not None:
            background.while_committing(self._begin_ahead)

    def recover(self, state: StoreState, wait_s: float) -> bool:
        """Become the owner of the instance and settle its last cycle by the token.

        Args:
            state: the state that opening the store returned.
            wait_s: how long to wait for the token.

        Returns:
            False = another process holds the token, or this is not known yet: try again.

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
            self._commit_nothing("the token can't be exchanged")
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
                `recover` by a new engine.
        """
        now_ms = self._clock.now_ms()
        next_due_ms = self._store.next_due_ms()
        self._room = self._store.room()
        if (next_due_ms is not None and next_due_ms <= now_ms) or self._gather():
            self._ahead.allow_until(self._clock.monotonic_s() + max_wait_s)
            has_run = self._run_cycles(now_ms)
            if self._has_waiting and not has_run:
                self._link.wait(min(max_wait_s, _UNFINISHED_S))
            return has_run
        if self._unwritten_end is not None:
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

    def admit(self, rows: Sequence[RowView]) -> None:
        """Admit due messages that lie in their queues; see `FromPlace.admit`."""
        encodings, now_ms = self._link.description.encodings, self._clock.now_ms()
        events = self._place.admit(rows, self._dispatch, self._gates, encodings, now_ms)
        if events:
            with self._store.transaction() as tx:
                tx.record(events)
            self._observe(events, None)

    def settle_up(self) -> None:
        """Write to the store how the last cycle ended, if that has not been done yet."""
        if self._unwritten_end is None:
            return
        with self._store.transaction() as tx:
            self._unwritten_end.write(tx)
        self._unwritten_end = None
        self._crash_point("finished")

    def _write_end(self, tx: StoreTransaction) -> None:
        if self._unwritten_end is not None:
            self._unwritten_end.write(tx)

    def _gather(self) -> bool:
        """Take arrived deliveries into hand; return whether any is to be taken."""
        self._room = self._store.room()
        # Why all where there is no room: the link would end each wait for what it still has. It
        # hands over no more than its prefetch while nothing is accepted.
        most = self._limits.max_taken if self._room.is_enough else _ALL_THAT_ARRIVED
        room = most - len(self._in_hand)
        if room > 0:
            self._in_hand.add(self._link.receive(room))
        return self._room.is_enough and bool(self._in_hand)

    def _fitting(self, encoding: str, due: int) -> Sequence[Delivery]:
        """Return the first deliveries in hand that the store has room for, at least one."""
        left_bytes = self._room.at_once_bytes
        first = self._in_hand.first(encoding, self._size.taken_beside(due))
        for count, delivery in enumerate(first):
            left_bytes -= len(delivery.message)
            if left_bytes < 0 and count:
                return first[:count]
        return first

    def _choose_deliveries(self, encoding: str, due: int, *, is_ahead: bool) -> Sequence[Delivery]:
        """Return deliveries in hand that fit and can be judged now; the others stay in hand."""
        deliveries = self._fitting(encoding, due)
        if is_ahead:
            # Why: the rest of a backlog is known only after the other cycle.
            deliveries = list(takewhile(self._is_no_backlog, deliveries))
        ready = self._judge.prepare(deliveries)
        self._has_waiting = len(ready) < len(deliveries)
        return ready

    def _run_cycles(self, now_ms: int) -> bool:
        takes, send_limit = True, self._size.max_sent
        if self._size.separates:
            takes = self._size.takes_next(self._gather)
            send_limit = 0 if takes else send_limit
        if not self._room.is_enough:
            send_limit = min(send_limit, SENT_WHEN_SHORT)
        started_s = self._clock.monotonic_s()
        cycle: OpenCycle | None
        cycle = OpenCycle(self._cycle + 1, now_ms, started_s, self._unwritten_end)
        try:
            self._begin(cycle, takes=takes, send_limit=send_limit)
        except LinkLost as lost:
            self._suspect([cycle], lost, now_ms)
            raise
        has_run = False
        try:
            while cycle is not None and self._keep(cycle):
                has_run = True
                cycle = self._commit(cycle)
        finally:
            self._give_up_ahead()
        return has_run

    def _begin(self, cycle: OpenCycle, *, takes: bool, send_limit: int) -> None:
        """Write the cycle into the store, not yet durable, and begin its sends.

        The sends go out before the store writes, so that the broker works on them meanwhile; no
        consumer sees them before the commit, and they are abandoned if the store refuses.
        """
        now_ms, is_ahead = cycle.now_ms, self._ahead.is_begun(cycle)
        try:
            with ExitStack() as stack:
                tx = stack.enter_context(self._store.transaction())
                if cycle.before is not None:
                    cycle.before.write(tx)
                # Why not `send_limit` rows: blocked rows would hide rows that can go now.
                due = tx.claim_due(now_ms, self._limits.max_sent) if send_limit else []
                is_full = len(due) == self._limits.max_sent
                encoding = self._choose_encoding(due, takes=takes)
                sendable = self._dispatch.choose(
                    tx, due, encoding, now_ms, cycle.blocked, hides_others=is_full
                )
                passing = self._gates.choose(tx, sendable[:send_limit], now_ms, cycle.blocked)
                cycle.due, cycle.resends = self._dispatch.admit(tx, passing, now_ms, cycle.blocked)
                # Why not yet: a transaction's sends are begun all at once.
                may_send_at_once = takes and not is_full and self._may_send_at_once
                is_begun = not (may_send_at_once or (takes and self._place.admitted))
                if cycle.resends and is_begun:
                    self._link.ahead.begin(cycle.resends)
                deliveries: Sequence[Delivery] = []
                if takes and self._gather():
                    deliveries = self._choose_deliveries(
                        encoding, len(cycle.due), is_ahead=is_ahead
                    )
                    self._crash_point("gathered")
                self._backlog.begin(tx.holds)
                # Why asked again: delays of new arrivals don't count from the cycle's begin.
                taken_at_ms = self._clock.now_ms()
                taken = self._decide(cycle, deliveries, taken_at_ms)
                cycle.events.extend([sent_event(row, now_ms) for row in cycle.due])
                if not is_begun:
                    limit = send_limit if may_send_at_once else self._size.max_sent
                    chosen = self._immediate.choose(
                        taken, cycle.replaced, taken_at_ms, due, limit, may_send=may_send_at_once
                    )
                    taken, deliveries = self._send_at_once(cycle, chosen, deliveries, taken_at_ms)
                if cycle.blocked:
                    tx.record(cycle.blocked)
                for source, count in self._backlog.counted.items():
                    tx.set_hold(source, count)
                if deliveries or cycle.sent:
                    # Why not: the cycle before recorded the messages taken from a backlog.
                    holds = {} if is_ahead else self._backlog.taken
                    tx.record_cycle(
                        cycle.number, taken, cycle.sent, cycle.events, holds, cycle.replaced
                    )
                # Why last: what died before its report was taken waits for it, not for a later one.
                for signal in cycle.signals:
                    tx.add_signal(signal)
                cycle.store = stack.pop_all()
        except LinkLost:
            self._backlog.rollback()
            raise
        except BaseException:
            self._backlog.rollback()
            self._link.ahead.abandon()
            raise
        cycle.deliveries = deliveries
        self._in_hand.remove(deliveries)

    def _choose_encoding(self, due: Sequence[DueRow], *, takes: bool) -> str:
        """Return the encoding of a cycle that may send due messages and may take."""
        if self._turns.is_only_one:
            return self._turns.next((), 0.0)
        in_hand = self._in_hand.encodings if takes and self._gather() else []
        with_work = [*(row.encoding for row in due), *in_hand]
        return self._turns.next(with_work, self._clock.monotonic_s())

    def _keep(self, cycle: OpenCycle) -> bool:
        """Make the writes durable; return whether there is anything to commit."""
        try:
            cycle.store.close()
        except BaseException:
            self._in_hand.give_back(cycle.deliveries)
            self._backlog.rollback()
            self._link.ahead.abandon()
            raise
        if cycle.before is not None:
            self._unwritten_end = None
            self._crash_point("finished")
        if cycle.blocked:
            self._observe(cycle.blocked, None)
        return cycle.does_something

    def _commit(self, cycle: OpenCycle) -> OpenCycle | None:
        """Have the broker commit a stored cycle; return the one that was begun ahead."""
        self._crash_point("stored")
        try:
            with self._ahead.committing(cycle):
                self._link.commit_cycle(cycle.deliveries, cycle.resends, cycle.number)
        except LinkLost as lost:
            self._suspect([cycle, *self._ahead.begun], lost, cycle.now_ms)
            raise
        except SendsRefused as refused:
            self._fail(cycle)
            self._refuse(cycle, refused, cycle.now_ms)
            return None
        except CommitRefused as refused:
            self._fail(cycle)
            self._narrow(cycle, refused, cycle.now_ms)
            return None
        self._crash_point("committed")
        self._succeed(cycle)
        now_s = self._clock.monotonic_s()
        # Why: a cycle that was begun ahead has waited for the one before it.
        work_s = now_s - max(cycle.started_s, self._committed_at_s)
        self._committed_at_s = now_s
        self._size.note_work(work_s, len(cycle.deliveries) + len(cycle.resends))
        stats = CycleStats(len(cycle.deliveries), len(cycle.resends), now_s - cycle.started_s)
        self._observe(cycle.events, stats)
        return self._ahead.take()

    # ------------------------------------------------------------------ the next cycle

    def _begin_ahead(self) -> None:
        """Begin the next cycle as if the one that the broker commits now were committed.

        Only after success: messages of a failed cycle are handled in cycles of their own.
        """
        before = self._ahead.before(self._clock.monotonic_s())
        # Why large: after a small cycle, a normal next cycle sends messages that became due during
        # the commit sooner than a cycle begun ahead.
        if (
            before is None
            or not self._size.is_large(len(before.deliveries), len(before.resends))
            or not self._is_calm
        ):
            return
        now_ms = self._clock.now_ms()
        next_due_ms = self._store.next_due_ms()
        if not self._gather() and (next_due_ms is None or next_due_ms > now_ms):
            return
        cycle = self._ahead.begin(before, now_ms, self._clock.monotonic_s())
        self._begin(cycle, takes=True, send_limit=self._limits.max_sent)
        if not cycle.does_something:
            self._give_up_ahead()
            self._link.ahead.abandon()

    @property
    def _may_send_at_once(self) -> bool:
        """Whether messages may be sent that no row of the store could remember."""
        return self._immediate.has_places and self._is_calm and self._gates.are_none

    @property
    def _is_calm(self) -> bool:
        return (
            self._room.is_enough
            and self._size.is_whole
            and not len(self._blockages)
            and not len(self._refusals)
            and not self._losses.is_careful(self._limits.max_sent)
        )

    def _is_no_backlog(self, delivery: Delivery) -> bool:
        return self._backlog.is_over(delivery.source)

    def _give_up_ahead(self) -> bool:
        """Undo a cycle begun ahead in the store; return whether there was one."""
        ahead = self._ahead.take()
        if ahead is None:
            return False
        ahead.give_up()
        self._in_hand.give_back(ahead.deliveries)
        return True

    def _decide(
        self, cycle: OpenCycle, deliveries: Sequence[Delivery], now_ms: int
    ) -> list[TakenRow]:
        """Return the rows that a cycle takes; adds its events and replaced rows to the cycle."""
        taken: list[TakenRow] = []
        if not deliveries:
            return taken
        events = cycle.events
        row_id = cycle.first_id = self._store.allocate_ids(len(deliveries))
        judge, uid = self._judge.judge, self._uid
        is_backlog = self._backlog.is_backlog
        for delivery in deliveries:
            judgement = judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog(delivery.source))
            if judgement.row is not None:
                taken.append(judgement.row)
            if judgement.replaces is not None:
                cycle.replaced[row_id] = judgement.replaces
            if judgement.signal is not None:
                cycle.signals.append(judgement.signal)
            events.extend(judgement.events)
            row_id += 1
        return taken

    def _send_at_once(
        self, cycle: OpenCycle, chosen: ImmediateChoice, deliveries: Sequence[Delivery], now_ms: int
    ) -> tuple[list[TakenRow], Sequence[Delivery]]:
        """Begin all sends; return the rows to store, and the deliveries that don't stay in hand."""
        cycle.immediate = chosen.sent
        cycle.events.extend([sent_event(row, now_ms) for row in chosen.sent])
        cycle.resends += chosen.resends
        if cycle.resends:
            self._link.ahead.begin(cycle.resends)
        for row_id, answer in chosen.left.items():
            known = cycle.replaced.pop(row_id)
            if answer is not None and answer.action is GateAction.PARK:
                self._place.park([known], str(answer))
            elif answer is not None:
                self._place.admitted.discard(known)
        if chosen.left:
            numbered = enumerate(deliveries, cycle.first_id)
            deliveries = [one for row_id, one in numbered if row_id not in chosen.left]
        return chosen.stored, deliveries

    # ------------------------------------------------------------------ how it ended

    def _succeed(self, cycle: OpenCycle) -> None:
        self._cycle = cycle.number
        self._unwritten_end = CycleEnd(cycle.number, is_committed=True)
        self._backlog.commit()
        self._gates.observe(cycle.events, cycle.due, self._clock.now_ms())
        sent = self._by_number(cycle)
        if len(self._blockages) or len(self._refusals):
            for row_id, row in sent.items():
                self._blockages.clear(row.destination)
                self._refusals.forget(row_id)
        if sent:
            self._losses.forget([*sent])
            self._losses.note_taken(row.destination for row in sent.values())
            self._immediate.note_taken(cycle.due)
            self._size.grow_sends()
            for row_id in cycle.from_place:
                self._place.admitted.discard(row_id)
                self._place.refusals.forget(row_id)
        if cycle.deliveries:
            self._size.grow_takes()

    @staticmethod
    def _by_number(cycle: OpenCycle) -> dict[int, DueRow | TakenRow]:
        """Return the rows of the schedule that a cycle sends, by their numbers there."""
        return {**{row.id: row for row in cycle.due}, **cycle.from_place}

    def _fail(self, cycle: OpenCycle) -> None:
        self._unwritten_end = CycleEnd(cycle.number, is_committed=False)
        self._immediate.forget()
        if self._give_up_ahead():
            self._link.ahead.abandon()
        self._in_hand.give_back(cycle.deliveries)
        self._backlog.rollback()

    def _suspect(self, cycles: Sequence[OpenCycle], lost: LinkLost, now_ms: int) -> None:
        """Remember the sends in progress when the link was lost; one may have ended it."""
        sent = {number: row for cycle in cycles for number, row in self._by_number(cycle).items()}
        if lost.held_up_by:
            all_sent = [row for cycle in cycles for row in cycle.sent]
            self._block_those_without_room(all_sent, lost.held_up_by)
            return
        if any(len(cycle.immediate) > len(cycle.from_place) for cycle in cycles):
            # Why: it may have been one of these, which are stored and sent again as others are.
            return
        first = next(iter(sent.values()), None)
        is_probe = first is not None and self._blockages.get(first.destination) is not None
        if self._losses.note([*sent], is_probe=is_probe) and first is not None:
            reason = f"the connection ended when a message was sent there: {lost}"
            self._blockages.block(first.destination, now_ms, reason, ends_links=True)

    def _block_those_without_room(
        self, sent: Sequence[DueRow | TakenRow], held_up_by: Mapping[str, str]
    ) -> None:
        events: list[AnyEvent] = []
        offered = Counter(row.destination for row in sent)
        # Why not the cycle's time: the cycle began long ago.
        now_ms = self._clock.now_ms()
        for destination, reason in held_up_by.items():
            self._losses.note_held_up(destination, offered[destination])
            self._blockages.report_once(destination, reason, now_ms, events)
        self._observe(events, None)

    def _refuse(self, cycle: OpenCycle, refused: SendsRefused, now_ms: int) -> None:
        """Postpone a message that the broker refused; park one that it keeps refusing.

        Refused immediate re-sends are taken again, and stored.
        """
        events: list[AnyEvent] = []
        sent, lying = cycle.sent, cycle.from_place
        offered = Counter(row.destination for row in sent)
        before_others = refused_before_others([row.destination for row in sent], refused.refusals)
        with self._store.transaction() as tx:
            self._write_end(tx)
            for index, words in refused.refusals.items():
                row = sent[index]
                row_id = cycle.replaced.get(row.id, row.id)
                if index >= len(cycle.due) and row_id not in lying:
                    self._blockages.report_once(row.destination, words, now_ms, events)
                    continue
                is_its_own = index in before_others or (
                    offered[row.destination] == 1
                    and self._blockages.get(row.destination) is None
                    and not self._blockages.are_full
                )
                refusals = self._place.refusals if row_id in lying else self._refusals
                count = refusals.count(row_id, is_its_own=is_its_own)
                if count >= REFUSALS_BEFORE_PARKING:
                    if row_id in lying:
                        self._place.park([row_id], words)
                        continue
                    self._refusals.forget(row_id)
                    tx.park([row.id], words)
                    events.append(parked(row, words, now_ms))
                    continue
                until_ms = self._blockages.report_once(row.destination, words, now_ms, events)
                # Why: a little later than its neighbours, so that another one probes first.
                if row_id in lying:
                    self._place.later_ms[row_id] = until_ms + 100 * count
                else:
                    tx.postpone([row.id], until_ms + 100 * count, words)
            tx.record(events)
        self._place.admitted.difference_update(lying)
        self._unwritten_end = None
        self._size.send_at_most(len(sent) - len(refused.refusals))
        self._observe(events, None)

    def _narrow(self, cycle: OpenCycle, refused: CommitRefused, now_ms: int) -> None:
        """Cut the next cycles smaller, or park the one send that is at fault."""
        deliveries, sent = cycle.deliveries, cycle.due
        lying = [*cycle.from_place]
        if len(cycle.immediate) > len(lying):
            # Why nothing else: without these it is another transaction.
            return
        if lying:
            self._size.narrow_takes(len(deliveries))
            self._size.send_at_most(len(cycle.sent) // 2)
            if len(cycle.sent) == len(deliveries) == 1:
                self._commit_nothing(f"the broker commits nothing at all: {refused}")
                self._place.park(lying, str(refused))
            return
        if not sent:
            if len(deliveries) <= 1:
                raise LinkLost(f"the broker refuses the acceptance of a dead letter: {refused}")
            self._size.narrow_takes(len(deliveries))
            return
        if len(sent) > 1:
            self._size.narrow_sends(len(sent) // 2)
            return
        if deliveries and self._size.narrow_sends(1):
            return
        row = sent[0]
        # Why: it shows that the broker refuses only this message.
        self._commit_nothing(f"the broker commits nothing at all: {refused}")
        event = parked(row, str(refused), now_ms)
        with self._store.transaction() as tx:
            self._write_end(tx)
            tx.park([row.id], str(refused))
            tx.record([event])
        self._unwritten_end = None
        self._observe([event], None)
        self._size.grow_sends()

    def _commit_nothing(self, otherwise: str) -> None:
        """Exchange the token, and do nothing else.

        Raises:
            LinkLost: the broker refuses even that; in the words `otherwise`.
        """
        cycle = self._cycle + 1
        with self._store.transaction() as tx:
            self._write_end(tx)
            tx.record_cycle(cycle, [], [], [])
        self._unwritten_end = None
        try:
            self._link.commit_cycle([], [], cycle)
        except (SendsRefused, CommitRefused) as refused:
            self._unwritten_end = CycleEnd(cycle, is_committed=False)
            raise LinkLost(otherwise) from refused
        self._cycle = cycle
        self._unwritten_end = CycleEnd(cycle, is_committed=True)
