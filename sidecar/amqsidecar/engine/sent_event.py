"""What is told of a message that was sent."""

from amqsidecar.model.event import AnyEvent, DeadLettered, Resent
from amqsidecar.model.schedule import DueRow, TakenRow


def sent_event(row: DueRow | TakenRow, now_ms: int) -> AnyEvent:
    """Return the event of a send that happened now: final, or a redelivery with its lateness."""
    if row.is_final:
        return DeadLettered(
            at_ms=now_ms,
            id=row.id,
            redelivery_id=row.redelivery_id,
            destination=row.destination,
            redelivery_count=row.redelivery_count,
        )
    return Resent(
        at_ms=now_ms,
        id=row.id,
        redelivery_id=row.redelivery_id,
        destination=row.destination,
        redelivery_count=row.redelivery_count,
        lateness_ms=max(0, now_ms - row.due_at_ms),
    )
