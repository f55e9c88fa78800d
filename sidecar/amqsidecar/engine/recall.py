"""Takes messages back out of final dead-letter queues into the schedule, where people act on them.

In the cycle that takes it, a message replaces the row that recorded its final queue, and keeps that
row's number. So both are undone or finished with that cycle.

That row says what becomes of it (`model.schedule.Recall`). Where a broker can't deliver chosen
messages alone, the others come with them, wait in the schedule, and go back in order once no more
messages of their queue are wanted. Their due times keep that order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.from_place import FromPlace
from amqsidecar.engine.in_place import in_place_row, named
from amqsidecar.engine.judging.judge import Judgement, Judging
from amqsidecar.engine.judging.send_rules import LONGEST_NAME, SendRules
from amqsidecar.engine.manual import Manual
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import AnyEvent, Held, Parked, Received, about_row
from amqsidecar.model.failure import failure_cause
from amqsidecar.model.provenance import kept_message_id, lying_id
from amqsidecar.model.row_changes import FIRST_OF_LIFE, TAKEN_BACK, OrderKeeper, recall_there
from amqsidecar.model.schedule import (
    WANTED,
    Recall,
    RowState,
    RowView,
    TakenRow,
    first_redelivery_id,
)
from amqsidecar.store import Store

NO_ORIGIN = "the message does not name its origin"


class FinalQueues:
    """The final dead-letter queues that are read now.

    Attributes:
        arrivals: how many messages came out of them.
        place: messages sent straight from their queues.
        died_again: redelivery ids of rows by queue and message id, whose messages may have died
            again in that queue: each such death changes the number, and destroys the origin.
    """

    def __init__(self) -> None:
        self.arrivals = 0
        self.place = FromPlace()
        self.died_again: dict[tuple[str, str], str] = {}
        self._names: frozenset[str] = frozenset()

    def replace(self, queues: Iterable[Destination]) -> None:
        """Read these queues from now on.

        Deliveries of earlier queues may still wait for judgement, so no queue is forgotten.
        """
        self._names |= frozenset(_queue_name(one) for one in queues)

    @property
    def is_any(self) -> bool:
        """Whether any final queue has been read."""
        return bool(self._names)

    def covers(self, destination: Destination) -> bool:
        """Return whether a destination is one of them."""
        return bool(self._names) and _queue_name(destination) in self._names


class RecallJudge:
    """Judges messages out of final queues; asks another judge about all others.

    Args:
        judge: of dead letters.
        store: knows the messages in final queues; asked in the transaction of the cycle.
        finals: which queues are final.
        in_place: dead-letter queues that may hold messages with a row, since they were not read
            before; canonical texts; None = all.
        manual: dead letters left to a person.
        keeps_exhausted: messages that were not chosen stay in the schedule; False = they go
            back.
        holds_backlog: a dead letter that has a row is held when it is taken.
    """

    def __init__(
        self,
        judge: Judging,
        store: Store,
        finals: FinalQueues,
        in_place: Collection[str] | None,
        manual: Manual,
        *,
        keeps_exhausted: bool,
        holds_backlog: bool,
    ) -> None:
        self._judge = judge
        self._store = store
        self._finals = finals
        self._in_place = in_place
        self._manual = manual
        self._holds_backlog = holds_backlog
        self._unchosen = Recall.NONE if keeps_exhausted else Recall.RETURN
        self._known: dict[tuple[str, str], list[RowView]] = {}
        self._order = OrderKeeper()

    @property
    def send_rules(self) -> SendRules:
        """See `Judging`; a final queue is not read as a dead-letter queue."""
        return self._judge.send_rules

    def prepare(self, deliveries: Sequence[Delivery], /) -> Sequence[Delivery]:
        """Read the rows of deliveries that are judged next; see `Judging`."""
        deliveries = self._judge.prepare(deliveries)
        self._known = {}
        in_place = self._in_place
        if not self._finals.is_any and in_place is not None and not in_place:
            return deliveries
        ids = {
            redelivery_id
            for one in deliveries
            if (in_place is None or self._finals.covers(one.source) or str(one.source) in in_place)
            and (redelivery_id := lying_id(one.provenance))
        }
        ids.update(filter(None, map(self._id_before, deliveries)))
        for row in self._store.lying(ids) if ids else ():
            self._known.setdefault((row.redelivery_id, row.goes_to), []).append(row)
        if not self._manual.redelivers:
            return deliveries
        ready = [one for one in deliveries if not self._stays(one)]
        self._finals.place.gives_back |= len(ready) < len(deliveries)
        return ready

    def _stays(self, delivery: Delivery) -> bool:
        """Return whether a message goes back where it lay; a stranger died there once more."""
        source = delivery.source
        if str(source) in self._finals.place.whole or not (
            self._finals.covers(source) and self.send_rules.is_intake(source)
        ):
            return False
        known = self._known.get((lying_id(delivery.provenance), str(source)))
        if not known:
            return not self._id_before(delivery)
        return known[0].recall not in WANTED and not self._is_admitted(known[0])

    def _is_admitted(self, row: RowView) -> bool:
        return row.recall is Recall.RULES and row.id in self._finals.place.admitted

    def _id_before(self, delivery: Delivery) -> str:
        """Return the id of a row whose message died once more where it lies; "" = none."""
        found, source = delivery.provenance, delivery.source
        # Why none: a message that died in a dead-letter queue has no known origin.
        if found.origin is not None and found.origin.address != source.address:
            return ""
        return self._finals.died_again.get((str(source), found.message_id or ""), "")

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the judgement on a delivery that was prepared for; see `Judge.judge`."""
        is_left = self._manual.leaves(delivery)
        is_final = self._finals.covers(delivery.source) and (
            is_left or not self.send_rules.is_intake(delivery.source)
        )
        # Why: the message is for a person to decide, and no rule may re-send it.
        is_backlog = is_backlog or is_left
        if not is_final and not self._known:
            return self._judge.judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog)
        redelivery_id = lying_id(delivery.provenance)
        source = str(delivery.source)
        rows = self._known.get((redelivery_id, source))
        if is_final and not rows:
            rows = self._known.get((self._id_before(delivery), source))
        if is_final and rows and self._is_admitted(rows[0]):
            self._finals.arrivals += 1
            return self._by_rules(delivery, uid, row_id, rows.pop(0), now_ms)
        if not is_final and not (rows and rows[0].recall in WANTED):
            known = rows.pop(0) if rows else None
            if known is not None:
                delivery = named(delivery)
                is_backlog |= self._holds_backlog or known.recall is Recall.HELD
            judgement = self._judge.judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog)
            return judgement if known is None else _in_place_of(known, judgement)
        self._finals.arrivals += is_final
        if not rows and is_left and redelivery_id and self._unchosen is Recall.RETURN:
            return self._in_order(self._found_in_place(delivery, row_id, now_ms), now_ms)
        if not rows:
            redelivery_id = redelivery_id or first_redelivery_id(uid, row_id)
            return self._in_order(self._stranger(delivery, row_id, redelivery_id, now_ms), now_ms)
        known = rows.pop(0)
        row, events = self._chosen(delivery, row_id, known, now_ms)
        return self._in_order(Judgement(row, events, known.id), now_ms)

    def _by_rules(
        self, delivery: Delivery, uid: str, row_id: int, known: RowView, now_ms: int
    ) -> Judgement:
        """Return the rules' judgement on a message that waited where it lies: due now."""
        found = self._judge.judge(named(delivery), uid, row_id, now_ms, is_backlog=False)
        row = found.row
        if row is not None and row.state is RowState.WAITING and not row.is_final:
            # Why no events: they are in the history since it was found.
            row = msgspec.structs.replace(row, due_at_ms=now_ms, recall=Recall.RULES)
            found = Judgement(row, ())
        return _in_place_of(known, found)

    def _in_order(self, judgement: Judgement, now_ms: int) -> Judgement:
        """Return a due time that keeps the place in the queue of a message that goes back."""
        row = judgement.row
        if row is None or row.recall is not Recall.RETURN:
            return judgement
        row_id = judgement.replaces or row.id
        due_at_ms = self._order.due_at_ms(row_id, now_ms)
        row = msgspec.structs.replace(row, due_at_ms=due_at_ms)
        return msgspec.structs.replace(judgement, row=row)

    def _chosen(
        self, delivery: Delivery, row_id: int, known: RowView, now_ms: int
    ) -> tuple[TakenRow, tuple[AnyEvent, ...]]:
        """Return the row, with events, that replaces the row of a message in its final queue."""
        row = TakenRow(
            id=row_id,
            state=RowState.EXHAUSTED,
            due_at_ms=now_ms,
            destination=known.destination,
            is_final=False,
            source=known.source,
            redelivery_id=known.redelivery_id,
            redelivery_count=known.redelivery_count,
            delay_ms=known.delay_ms,
            expiration_ms=_time_left_ms(delivery, now_ms),
            rule=known.rule,
            cause=known.cause,
            cause_group=known.cause_group,
            message_id=known.message_id,
            received_at_ms=known.received_at_ms,
            encoding=delivery.encoding,
            message=delivery.message,
            final_queue=str(delivery.source),
            recall_operation=known.recall_operation,
        )
        there = recall_there(known)
        match known.recall:
            case Recall.SEND:
                row = msgspec.structs.replace(
                    row,
                    state=RowState.WAITING,
                    redelivery_count=FIRST_OF_LIFE,
                    delay_ms=0,
                    final_queue=None,
                    passes_gates=True,
                )
            case Recall.DISCARD:
                row = msgspec.structs.replace(row, recall=Recall.DROP, gate=there)
            case Recall.KEEP:
                row = msgspec.structs.replace(row, gate=there)
            case _ if known.recall is Recall.LEAVE or self._unchosen is Recall.RETURN:
                return msgspec.structs.replace(row, recall=Recall.RETURN, gate=there), ()
        return row, (Held(**about_row(known, now_ms, str(delivery.source)), reason=TAKEN_BACK),)

    def _found_in_place(self, delivery: Delivery, row_id: int, now_ms: int) -> Judgement:
        """Return the judgement on a dead letter left to a person that no pass has found yet."""
        redelivers = self._manual.redelivers
        found = in_place_row(self._judge, delivery, row_id, now_ms, redelivers=redelivers)
        row = msgspec.structs.replace(
            found.row,
            is_final=False,
            expiration_ms=_time_left_ms(delivery, now_ms),
            recall=Recall.RETURN,
            gate=recall_there(found.row),
        )
        return Judgement(row, found.events)

    def _stranger(
        self, delivery: Delivery, row_id: int, redelivery_id: str, now_ms: int
    ) -> Judgement:
        """Return the judgement on a message in a final queue without a row."""
        provenance, queue = delivery.provenance, str(delivery.source)
        origin = provenance.origin
        is_lost = origin is None or len(origin.name) > LONGEST_NAME
        row = TakenRow(
            id=row_id,
            state=RowState.EXHAUSTED,
            due_at_ms=now_ms,
            destination=queue if is_lost else str(origin),
            is_final=False,
            source=queue,
            redelivery_id=redelivery_id,
            redelivery_count=provenance.redelivery_count,
            delay_ms=0,
            expiration_ms=_time_left_ms(delivery, now_ms),
            rule=NO_ORIGIN if is_lost else TAKEN_BACK,
            cause=provenance.cause,
            cause_group=failure_cause(provenance.cause, expired=provenance.expired),
            message_id=kept_message_id(provenance.message_id),
            received_at_ms=now_ms,
            encoding=delivery.encoding,
            message=delivery.message,
            final_queue=queue,
            recall=self._unchosen,
        )
        if self._unchosen is Recall.RETURN:
            return Judgement(row, ())
        if is_lost:
            row = msgspec.structs.replace(row, state=RowState.PARKED)
        event = (Parked if is_lost else Held)(**about_row(row, now_ms, queue), reason=row.rule)
        return Judgement(row, (event,))


def _in_place_of(known: RowView, judgement: Judgement) -> Judgement:
    """Return the judgement on a dead letter that has a row and is taken by the rules now."""
    # Why: its death is in the history since it was found.
    events = tuple(one for one in judgement.events if not isinstance(one, Received))
    return Judgement(judgement.row, events, known.id)


def _time_left_ms(delivery: Delivery, now_ms: int) -> int:
    """Return for how long a message may still lie in its final queue; 0 = for ever."""
    expires_at_ms = delivery.provenance.expires_at_ms
    return max(1, expires_at_ms - now_ms) if expires_at_ms else 0


def wanted_by_queue(rows: Iterable[RowView]) -> Mapping[str, list[RowView]]:
    """Return rows of messages that are to be taken back by the queues in which they lie."""
    queues: dict[str, list[RowView]] = {}
    for row in rows:
        queues.setdefault(row.goes_to, []).append(row)
    return queues


def _queue_name(destination: Destination) -> str:
    return destination.name.rsplit("::", 1)[-1]
