"""The rows of dead letters that lie in queues which are not read.

Such a message is exhausted where it lies: no rule redelivers it, and a person may. Its row says
which decision the rules would make.
"""

from typing import Final, NamedTuple

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.judging.judge import Judgement, Judging
from amqsidecar.model.event import AnyEvent, Discarded, Exhausted, Received, Scheduled
from amqsidecar.model.failure import death_group
from amqsidecar.model.provenance import lying_id
from amqsidecar.model.schedule import Recall, RowState, TakenRow

_WOULD: Final = "manual; when found, the rules would"
_WILL: Final = "in place; the rules"


class InPlaceMessage(NamedTuple):
    """The row of a message that was looked at.

    Attributes:
        would_be_discarded: by the rules.
    """

    row: TakenRow
    events: tuple[AnyEvent, ...]
    would_be_discarded: bool


def named(delivery: Delivery) -> Delivery:
    """Return a delivery whose redelivery id is its `lying_id`."""
    provenance = delivery.provenance
    provenance = msgspec.structs.replace(provenance, redelivery_id=lying_id(provenance))
    return msgspec.structs.replace(delivery, provenance=provenance)


def in_place_row(
    judge: Judging, delivery: Delivery, row_id: int, now_ms: int, *, redelivers: bool = False
) -> InPlaceMessage:
    """Return the row of a message that was looked at, and the events of its death.

    Args:
        delivery: a look at it; `lying_id` has to name it.
        row_id: the number that its row gets.
        now_ms: the time of the look.
        redelivers: the mode is `in_place`: the rules act on it at its due time.
    """
    judgement = judge.judge(named(delivery), "", row_id, now_ms, is_backlog=False)
    received = judgement.events[0]
    assert isinstance(received, Received)  # noqa: S101 - `Judge.judge` begins with it
    queue, decided = received.source, judgement.row
    is_sent = decided is not None and decided.state is RowState.WAITING and not decided.is_final
    is_ruled = is_sent or decided is None or decided.gate is not None
    row = TakenRow(
        id=row_id,
        state=RowState.EXHAUSTED,
        due_at_ms=decided.due_at_ms if is_sent and decided is not None else now_ms,
        destination=received.origin or queue,
        is_final=True,
        source=queue,
        redelivery_id=received.redelivery_id,
        redelivery_count=received.redelivery_count,
        delay_ms=decided.delay_ms if is_sent and decided is not None else 0,
        expiration_ms=0,
        rule=_would(judgement, _WILL if redelivers else _WOULD),
        cause=received.cause,
        cause_group=death_group(received),
        message_id=received.message_id,
        received_at_ms=now_ms,
        encoding=delivery.encoding,
        message=delivery.message,
        final_queue=queue,
        recall=Recall.RULES if is_ruled else Recall.NONE,
    )
    if redelivers and is_ruled:
        events = tuple(one for one in judgement.events if isinstance(one, Received | Scheduled))
        return InPlaceMessage(row, events, decided is None)
    event = Exhausted(
        at_ms=now_ms,
        id=row_id,
        redelivery_id=received.redelivery_id,
        destination=queue,
        rule=row.rule,
    )
    return InPlaceMessage(row, (received, event), decided is None)


def _would(judgement: Judgement, would: str) -> str:
    """Return the decision of the rules, in words."""
    row = judgement.row
    if row is None:
        rules = [one.rule for one in judgement.events if isinstance(one, Discarded)]
        return f"{would} discard it: {', '.join(rules)}"
    match row.state:
        case RowState.PARKED:
            return f"{would} park it: {row.rule}"
        case RowState.WAITING if not row.is_final:
            return f"{would} redeliver it after {row.delay_ms} ms: {row.rule}"
        case _:
            return f"{would} redeliver it no more: {row.rule}"
