"""Rows and events of the schedule, with a default for every field."""

from collections.abc import Iterable
from typing import Any

from amqsidecar.model.event import AnyEvent, Received, Resent, Scheduled
from amqsidecar.model.schedule import DueRow, RowState, TakenRow
from amqsidecar.store import Store


def taken_row(row_id: int, **fields: Any) -> TakenRow:
    """Return a row that waits for its redelivery."""
    values: dict[str, Any] = {
        "id": row_id,
        "state": RowState.WAITING,
        "due_at_ms": 1_000,
        "destination": "queue://orders",
        "is_final": False,
        "source": "queue://DLQ",
        "redelivery_id": f"test-{row_id:012d}",
        "redelivery_count": 1,
        "delay_ms": 500,
        "expiration_ms": 0,
        "rule": "policy.yaml:3",
        "cause": None,
        "message_id": f"ID:{row_id}",
        "received_at_ms": 500,
        "encoding": "amqp/1.0",
        "message": b"message %d" % row_id,
    }
    return TakenRow(**(values | fields))


def take_rows(
    store: Store, cycle: int, rows: Iterable[TakenRow], events: Iterable[AnyEvent] = ()
) -> None:
    """Take rows in a cycle that is finished."""
    with store.transaction() as transaction:
        transaction.record_cycle(cycle, [*rows], [], [*events])
        transaction.finish_cycle(cycle)


def due_row(row: TakenRow) -> DueRow:
    """Return a row as it is claimed."""
    names = DueRow.__struct_fields__
    return DueRow(**{name: getattr(row, name) for name in names if hasattr(row, name)})


def took(row: TakenRow) -> Received:
    """Return the event of its intake."""
    return Received(
        at_ms=row.received_at_ms,
        id=row.id,
        redelivery_id=row.redelivery_id,
        source=row.source,
        origin=row.destination,
        cause=row.cause,
        message_id=row.message_id,
        size_bytes=len(row.message),
    )


def scheduled(row: TakenRow) -> Scheduled:
    """Return the event of its decision."""
    return Scheduled(
        at_ms=row.received_at_ms,
        id=row.id,
        redelivery_id=row.redelivery_id,
        destination=row.destination,
        delay_ms=row.delay_ms,
        due_at_ms=row.due_at_ms,
        redelivery_count=row.redelivery_count,
        rule=row.rule,
    )


def resent(row: DueRow | TakenRow, at_ms: int = 2_000) -> Resent:
    """Return the event of its re-send."""
    return Resent(
        at_ms=at_ms,
        id=row.id,
        redelivery_id=row.redelivery_id,
        destination=row.destination,
        redelivery_count=row.redelivery_count,
        lateness_ms=at_ms - row.due_at_ms,
    )
