"""The cycle without a store: the broker keeps waiting messages.

One cycle is one broker transaction: each dead letter is accepted, and sent to where its judgement
says, with delayed delivery where it has to wait. It happens whole or not at all, so nothing is
lost or doubled whenever the process dies, and there is nothing to settle afterwards
(`deploy/reference/schedules.md`).

Messages that can't be sent need a place, because there is no store. A dead letter whose destination
takes nothing now goes, with its provenance, to `WAITING_QUEUE`, comes back from there after the
back-off, and is judged again. One that needs a person goes to `PARKED_QUEUE`.
"""

from collections.abc import Sequence
from zlib import crc32

import msgspec

from amqsidecar.broker import Delivery, MoveSession, Resend
from amqsidecar.clock import Clock
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.broker_held_queues import PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.engine.cycle_events import CycleObserver, CycleStats, sent_event
from amqsidecar.engine.dispatch import parked
from amqsidecar.engine.judging.judge import Judge, Judgement
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.refusals import REFUSALS_BEFORE_PARKING, Refusals, refused_before_others
from amqsidecar.engine.send_gate import GateAction, GateAnswer, SendGate
from amqsidecar.errors import CommitRefused, LinkLost, SendsRefused
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.event import AnyEvent, Parked, about_row
from amqsidecar.model.schedule import RowState, TakenRow

GUILTY = "the connection ended each time it was sent, and stays up without it"
NOT_AWAITED = "the broker can't hold it until an event outside (store.url broker:)"


class _Item:
    """A dead letter in hand, its judgement, and why it is to be parked; None = it is not."""

    __slots__ = ("delivery", "fault", "judgement", "key")

    def __init__(self, delivery: Delivery, judgement: Judgement) -> None:
        self.delivery = delivery
        self.judgement = judgement
        self.fault: str | None = None
        # Why: it has to be known again over another link, and when it comes back.
        name = delivery.provenance.message_id
        self.key = crc32(delivery.message[-256:] if name is None else name.encode())


class _Plan:
    """The work of one transaction, and its events once it is committed."""

    def __init__(self) -> None:
        self.sent: list[_Item] = []
        self.resends: list[Resend] = []
        self.events: list[AnyEvent] = []
        self.blocked: list[AnyEvent] = []
        self.answers: dict[tuple[str, bool, bool], GateAnswer] = {}
        self.probed: set[str] = set()

    def add(self, item: _Item, resend: Resend, events: Sequence[AnyEvent] = ()) -> None:
        self.sent.append(item)
        self.resends.append(resend)
        self.events.extend(events)


class MoveEngine:
    """Moves dead letters over one link to a broker that keeps them; belongs to one thread."""

    def __init__(
        self,
        *,
        link: MoveSession,
        judge: Judge,
        uid: str,
        clock: Clock,
        max_messages: int,
        observe: CycleObserver,
        blockages: Blockages,
        losses: Losses,
        crash_point: CrashPoint = no_crash,
    ) -> None:
        # Why a uid of each engine: redelivery ids hold it.
        self._link = link
        self._judge = judge
        self._gate = SendGate(link, judge.send_rules)
        self._uid = uid
        self._clock = clock
        self._max_messages = max_messages
        self._observe = observe
        self._blockages = blockages
        self._losses = losses
        self._crash_point = crash_point
        self._limit = losses.limit(max_messages)
        self._singly = 0
        self._number = 0
        self._in_hand: list[_Item] = []
        self._refusals = Refusals()

    def turn(self, max_wait_s: float) -> bool:
        """Move arrived messages, or wait for some; return whether there were any.

        Raises:
            LinkLost: reconnect; messages that come again were not moved.
        """
        self._gather()
        if not self._in_hand:
            self._link.wait(max_wait_s)
            return False
        self._crash_point("gathered")
        self._move(self._choose())
        return True

    def settle_up(self) -> None:
        """Do nothing: each transaction stands for itself."""

    # ------------------------------------------------------------------ gathering

    def _gather(self) -> None:
        room = self._max_messages - len(self._in_hand)
        now_ms = self._clock.now_ms()
        for delivery in self._link.receive(room) if room > 0 else ():
            self._number += 1
            judgement = self._judge.judge(
                delivery, self._uid, self._number, now_ms, is_backlog=False
            )
            self._in_hand.append(_Item(delivery, _addressed(judgement)))

    def _choose(self) -> list[_Item]:
        """Return the messages of the next transaction, of one encoding; a suspect goes alone."""
        chosen = self._in_hand[: 1 if self._singly else self._limit]
        encoding = chosen[0].delivery.encoding
        for at, item in enumerate(chosen):
            if item.delivery.encoding != encoding:
                return chosen[:at]
            if self._losses.is_suspect(item.key) or self._ends_links(item):
                return chosen[: max(1, at)]
        return chosen

    def _ends_links(self, item: _Item) -> bool:
        row = item.judgement.row
        blockage = None if row is None else self._blockages.get(row.destination)
        return blockage is not None and blockage.ends_links

    # ------------------------------------------------------------------ deciding where to

    def _plan(self, chosen: Sequence[_Item], now_ms: int) -> _Plan:
        plan = _Plan()
        self._ask_ahead(chosen)
        for item in chosen:
            row = item.judgement.row
            if self._losses.is_guilty(item.key):
                item.fault = GUILTY
            if row is None:
                plan.events.extend(item.judgement.events)
            elif row.state is RowState.PARKED:
                plan.add(item, self._parking(item, row), item.judgement.events)
            elif item.fault is not None:
                self._park(plan, item, row, item.fault, now_ms)
            elif row.gate is not None:
                self._park(plan, item, row, f"{row.rule}: {NOT_AWAITED}", now_ms)
            else:
                self._send(plan, item, row, now_ms)
        return plan

    def _ask_ahead(self, chosen: Sequence[_Item]) -> None:
        rows = (item.judgement.row for item in chosen)
        self._gate.ask_ahead(dict.fromkeys(row.destination for row in rows if row is not None))

    def _send(self, plan: _Plan, item: _Item, row: TakenRow, now_ms: int) -> None:
        """Plan the send that the rules want, or the alternative."""
        is_delayed = row.due_at_ms > now_ms
        blockage = self._blockages.get(row.destination)
        if blockage is not None and not blockage.is_over(now_ms):
            self._put_back(plan, item, row, blockage.until_ms)
            return
        if blockage is not None and row.destination in plan.probed:
            self._put_back(plan, item, row, now_ms + blockage.delay_ms)
            return
        target = (row.destination, row.is_final, is_delayed)
        if target not in plan.answers:
            plan.answers[target] = self._ask(row, is_delayed=is_delayed)
        answer = plan.answers[target]
        if answer.action is GateAction.WAIT:
            until_ms = self._blockages.report_once(
                row.destination, str(answer), now_ms, plan.blocked
            )
            self._put_back(plan, item, row, until_ms)
            return
        if answer.action is GateAction.PARK:
            self._park(plan, item, row, str(answer), now_ms)
            return
        deliver_at_ms = self._broker_ms(row.due_at_ms) if is_delayed else 0
        resend = self._gate.admit(row, answer, deliver_at_ms=deliver_at_ms)
        if not isinstance(resend, Resend):
            self._park(plan, item, row, str(resend), now_ms)
            return
        plan.probed.add(row.destination)
        plan.add(item, resend, item.judgement.events)
        if row.is_final or not is_delayed:
            plan.events.append(sent_event(row, now_ms))

    def _ask(self, row: TakenRow, *, is_delayed: bool) -> GateAnswer:
        """Return the gate's answer for the destination of a row."""
        destination = parse_destination(row.destination)
        answer = self._gate.ask(destination, is_final=row.is_final, makes=row.is_final)
        if answer.action is not GateAction.SEND or not is_delayed:
            return answer
        fault = self._link.waiting_problem(destination)
        if fault is None:
            return answer
        return GateAnswer(GateAction.PARK, f"the broker can't hold it until it is due: {fault}")

    def _put_back(self, plan: _Plan, item: _Item, row: TakenRow, until_ms: int) -> None:
        """Plan that it comes again as a dead letter, unchanged."""
        # Why later: so that another one shows whether the destination takes anything.
        until_ms += 100 * self._refusals.of(item.key)
        plan.add(item, self._as_it_is(item, row, WAITING_QUEUE, self._broker_ms(until_ms)))

    def _park(self, plan: _Plan, item: _Item, row: TakenRow, reason: str, now_ms: int) -> None:
        received = item.judgement.events[0]
        plan.add(item, self._parking(item, row), (received, parked(row, reason, now_ms)))

    def _parking(self, item: _Item, row: TakenRow) -> Resend:
        return self._as_it_is(item, row, PARKED_QUEUE, 0)

    def _as_it_is(
        self, item: _Item, row: TakenRow, destination: Destination, deliver_at_ms: int
    ) -> Resend:
        kept = msgspec.structs.replace(
            row,
            message=item.delivery.message,
            is_final=True,
            redelivery_count=item.delivery.provenance.redelivery_count,
            delay_ms=0,
        )
        return self._gate.keep(kept, destination, deliver_at_ms)

    def _broker_ms(self, our_ms: int) -> int:
        return our_ms + self._link.clock_ahead_ms()

    # ------------------------------------------------------------------ moving

    def _move(self, chosen: Sequence[_Item]) -> None:
        started_s = self._clock.monotonic_s()
        now_ms = self._clock.now_ms()
        plan = self._plan(chosen, now_ms)
        if plan.blocked:
            self._observe(plan.blocked, None)
        try:
            self._link.move([item.delivery for item in chosen], plan.resends)
        except LinkLost as lost:
            self._suspect(plan, lost, now_ms)
            raise
        except SendsRefused as refused:
            self._refuse(plan, refused, now_ms)
            return
        except CommitRefused as refused:
            self._isolate(chosen, refused)
            return
        self._crash_point("committed")
        self._succeed(chosen, plan)
        duration_s = self._clock.monotonic_s() - started_s
        self._observe(plan.events, CycleStats(len(chosen), len(plan.resends), duration_s))

    def _succeed(self, chosen: Sequence[_Item], plan: _Plan) -> None:
        del self._in_hand[: len(chosen)]
        self._singly = max(0, self._singly - len(chosen))
        self._limit = min(self._limit * 2, self._max_messages)
        self._losses.forget([item.key for item in plan.sent])
        for resend in plan.resends:
            self._blockages.clear(str(resend.destination))

    def _suspect(self, plan: _Plan, lost: LinkLost, now_ms: int) -> None:
        """Remember the sends in progress when the link was lost; one may have ended it."""
        for destination, reason in lost.held_up_by.items():
            self._blockages.report_once(destination, reason, now_ms, plan.events)
        if lost.held_up_by or not plan.sent:
            return
        destination = str(plan.resends[0].destination)
        is_probe = self._blockages.get(destination) is not None
        if self._losses.note([item.key for item in plan.sent], is_probe=is_probe):
            reason = f"the connection ended when a message was sent there: {lost}"
            self._blockages.block(destination, now_ms, reason, ends_links=True)

    def _refuse(self, plan: _Plan, refused: SendsRefused, now_ms: int) -> None:
        """Postpone messages that the broker refused alone; park a message that it refuses often."""
        events: list[AnyEvent] = []
        before_others = refused_before_others(
            [str(resend.destination) for resend in plan.resends], refused.refusals
        )
        for index, words in refused.refusals.items():
            item, destination = plan.sent[index], plan.resends[index].destination
            if destination == WAITING_QUEUE:
                raise LinkLost(f"{destination} does not take messages that must wait: {words}")
            if destination == PARKED_QUEUE:
                self._leave(item, words, now_ms, events)
                continue
            if index not in before_others:
                self._blockages.report_once(str(destination), words, now_ms, events)
                continue
            if self._refusals.count(item.key, is_its_own=True) >= REFUSALS_BEFORE_PARKING:
                item.fault = words
        self._observe(events, None)

    def _leave(self, item: _Item, words: str, now_ms: int, events: list[AnyEvent]) -> None:
        """Keep a dead letter in hand, and so in its queue: no action fits it.

        It goes back when the link is closed.
        """
        self._in_hand.remove(item)
        known = about_row(item.judgement.events[0], now_ms, str(item.delivery.source))
        events.append(Parked(**known, reason=f"it stays in {item.delivery.source}: {words}"))

    def _isolate(self, chosen: Sequence[_Item], refused: CommitRefused) -> None:
        """Move one by one until the one that can't be committed stands alone; park that one.

        Why not halves: on Artemis each refused commit counts as a failed delivery.
        """
        self._singly = len(chosen)
        if len(chosen) > 1:
            return
        item = chosen[0]
        row = item.judgement.row
        if row is None or row.state is RowState.PARKED or item.fault is not None:
            raise LinkLost(f"the broker commits nothing at all: {refused}")
        item.fault = str(refused)


def _addressed(judgement: Judgement) -> Judgement:
    """Return a judgement whose row has where it is sent to as its destination."""
    row = judgement.row
    if row is None or not row.is_final:
        return judgement
    return Judgement(msgspec.structs.replace(row, destination=row.decided_queue), judgement.events)
