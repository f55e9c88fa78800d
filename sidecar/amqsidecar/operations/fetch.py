"""Taking one message out of its final dead-letter queue to edit it."""

from typing import Final

from amqsidecar.errors import NotHereYet
from amqsidecar.model import row_changes
from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import Recall, RowFilter, RowState
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.operate import check_takes
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

FETCH_POLL_S: Final = 0.1
"""Time between two looks whether a message is here."""

FETCH_S: Final = 60
"""How long an edit waits for its message."""


_FOR_EDIT: Final = "for an edit"


def fetch(schedule: Schedule, row_id: int, now_ms: int, actor: str) -> None:
    """Request a message out of its final queue; the running service takes it back.

    Promise: durable when this returns. Without an edit the message stays in the schedule, exhausted
    and unchanged.

    Raises:
        ActionRefused: nobody takes it, as the sidecar only observes.
    """
    check_takes(schedule)
    schedule.change(RowFilter(ids=(row_id,)), row_changes.take_back(now_ms, actor))
    audit.write(Action.TAKE_BACK.word, selection={"ids": [row_id]}, reason=_FOR_EDIT)


def is_here(schedule: Schedule, row_id: int) -> bool:
    """Return whether a message that was requested is in the schedule; False = not yet.

    Raises:
        ActionRefused: it is gone, or another action has it.
    """
    rows = schedule.list_rows(RowFilter(ids=(row_id,)), 1)
    if not rows:
        raise ActionRefused(
            f"message {row_id} is no longer in its final queue: it was consumed or purged there, "
            "or another action took it"
        )
    row = rows[0]
    if row.is_in_final_queue and row.recall is Recall.KEEP:
        return False
    if row.is_final or row.state is not RowState.EXHAUSTED or row.recall is not Recall.NONE:
        raise ActionRefused(f"message {row_id} was changed by another action: look again")
    return not row.in_flight


def not_here_yet(schedule: Schedule, row_id: int) -> NotHereYet:
    """Return the error for a message that did not come in time; its request stays."""
    rows = schedule.list_rows(RowFilter(ids=(row_id,)), 1)
    queue = rows[0].goes_to if rows else "its final queue"
    return NotHereYet(
        f"message {row_id} is still being taken out of {queue} and was not edited. Repeat the "
        "edit when it has arrived; if it does not arrive, check that `amqsidecar run` is "
        f"connected. `amqsidecar give-up {row_id}` leaves it in its queue"
    )


def put_back(schedule: Schedule, row_id: int, now_ms: int, actor: str, suffix: str) -> bool:
    """Leave a message in its final queue, or send it back there, unedited.

    Args:
        actor: the person or program that acts.
        suffix: of final dead-letter queues.

    Returns:
        False = another action has it.
    """
    act = row_changes.cancel(now_ms, actor, suffix, is_given_up=False)
    count = schedule.change(RowFilter(ids=(row_id,), state=RowState.EXHAUSTED), act)
    if count:
        audit.write(Action.CANCEL.word, selection={"ids": [row_id]}, reason=_FOR_EDIT)
    return count > 0
