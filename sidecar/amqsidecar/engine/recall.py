"""Takes messages back out of final dead-letter queues into the schedule, where people act on them.

In the cycle that takes it, a message replaces the row that knew where it lay. So whatever undoes or
finishes that cycle does so with both.
"""

from collections.abc import Iterable

from amqsidecar.broker import Delivery
from amqsidecar.engine.judge import LONGEST_REDELIVERY_ID, Judging, Verdict
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import Held, Parked
from amqsidecar.model.failure import failure_cause
from amqsidecar.model.schedule import RowFilter, RowState, RowView, TakenRow, first_redelivery_id
from amqsidecar.store import Store

TAKEN_BACK = "taken back out of its final dead-letter queue"
_ROWS_OF_ONE_MESSAGE = 100


class FinalQueues:
    """The final dead-letter queues that are read now."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()

    def replace(self, queues: Iterable[Destination]) -> None:
        """Read these from now on."""
        self._names = frozenset(_queue_name(one) for one in queues)

    def covers(self, destination: Destination) -> bool:
        """Tell whether a destination is one of them."""
        return bool(self._names) and _queue_name(destination) in self._names


class RecallJudge:
    """Keeps what comes out of final queues as exhausted; asks another judge about all else."""

    def __init__(self, judge: Judging, store: Store, finals: FinalQueues, encoding: str) -> None:
        """Make it.

        Args:
            judge: of dead letters.
            store: knows what lies in final queues; asked in the transaction of the cycle.
            finals: which queues are final.
            encoding: of the link's messages.
        """
        self._judge = judge
        self._store = store
        self._finals = finals
        self._encoding = encoding

    def is_intake(self, destination: Destination) -> bool:
        """Tell whether a destination is one that the intake reads; final queues are none."""
        return self._judge.is_intake(destination)

    def resend_problem(self, destination: Destination) -> str | None:
        """Return why a re-send there would be copied or misrouted; None = it would not."""
        return self._judge.resend_problem(destination)

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Verdict:
        """Return the verdict on a delivery; see `Judge.judge`."""
        if not self._finals.covers(delivery.source):
            return self._judge.judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog)
        redelivery_id = delivery.provenance.redelivery_id
        if not redelivery_id or len(redelivery_id) > LONGEST_REDELIVERY_ID:
            redelivery_id = first_redelivery_id(uid, row_id)
        known = self._known(redelivery_id, str(delivery.source))
        row = self._row(delivery, row_id, redelivery_id, known, now_ms)
        event = (Parked if row.state is RowState.PARKED else Held)(
            at_ms=now_ms,
            id=row_id,
            redelivery_id=redelivery_id,
            destination=str(delivery.source),
            reason=TAKEN_BACK if row.state is RowState.EXHAUSTED else row.rule,
        )
        return Verdict(row, (event,), None if known is None else known.id)

    def _known(self, redelivery_id: str, queue: str) -> RowView | None:
        """Return the row that knows that a message lies in a queue; None = there is none."""
        rows = self._store.list_rows(
            RowFilter(redelivery_id=redelivery_id, state=RowState.EXHAUSTED), _ROWS_OF_ONE_MESSAGE
        )
        found = (row for row in rows if row.is_in_final_queue and row.goes_to == queue)
        return next((row for row in found if not row.in_flight), None)

    def _row(
        self,
        delivery: Delivery,
        row_id: int,
        redelivery_id: str,
        known: RowView | None,
        now_ms: int,
    ) -> TakenRow:
        provenance = delivery.provenance
        origin = str(provenance.origin or delivery.source)
        is_lost = known is None and provenance.origin is None
        cause = provenance.cause if known is None else known.cause
        group = failure_cause(cause, expired=provenance.expired)
        return TakenRow(
            id=row_id,
            state=RowState.PARKED if is_lost else RowState.EXHAUSTED,
            due_at_ms=now_ms,
            destination=origin if known is None else known.destination,
            is_final=False,
            source=str(delivery.source) if known is None else known.source,
            redelivery_id=redelivery_id,
            redelivery_count=provenance.redelivery_count,
            delay_ms=0,
            expiration_ms=0,
            rule=_rule(known, is_lost=is_lost),
            cause=cause,
            cause_group=group if known is None else known.cause_group,
            message_id=provenance.message_id if known is None else known.message_id,
            received_at_ms=now_ms if known is None else known.received_at_ms,
            encoding=self._encoding,
            message=delivery.message,
            final_queue=str(delivery.source),
        )


def _rule(known: RowView | None, *, is_lost: bool) -> str:
    if known is not None:
        return known.rule
    return "the message does not tell where it came from" if is_lost else TAKEN_BACK


def _queue_name(destination: Destination) -> str:
    return destination.name.rsplit("::", 1)[-1]
