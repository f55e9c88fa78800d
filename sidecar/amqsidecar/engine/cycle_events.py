"""Reports of engines on their cycles: events and statistics."""

from collections.abc import Callable, Sequence

import msgspec

from amqsidecar.model.event import AnyEvent, DeadLettered, Resent
from amqsidecar.model.schedule import DueRow, TakenRow


class CycleStats(msgspec.Struct, frozen=True):
    """The results of one committed cycle.

    Attributes:
        taken: dead letters accepted.
        sent: messages sent.
        duration_s: from the first decision to the broker's commit.
    """

    taken: int
    sent: int
    duration_s: float


CycleObserver = Callable[[Sequence[AnyEvent], CycleStats | None], None]
"""Receives events after they became durable, and a cycle's statistics with them."""


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
