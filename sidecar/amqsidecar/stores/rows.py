"""Rows as all stores keep them: states and recalls are numbers, and the columns of a view."""

from collections.abc import Callable, Sequence
from typing import Any

from amqsidecar.model.cause import group_number
from amqsidecar.model.operation import UNDO_BYTES, UNDO_ROW_BYTES
from amqsidecar.model.row_changes import Change, waits_until
from amqsidecar.model.schedule import Recall, RowState, RowView

STATES = (RowState.WAITING, RowState.HELD, RowState.PARKED, RowState.EXHAUSTED)
STATE_NUMBERS = {state: number for number, state in enumerate(STATES)}
RECALLS = tuple(Recall)
RECALL_NUMBERS = {recall: number for number, recall in enumerate(RECALLS)}
LAST_ID = 2**63 - 1
# Where an index of a database takes no longer text.
INDEXED_CHARACTERS = 200
GROUPED_CHARACTERS = 400  # A cause group of up to 200 stands beside it in an index.


def view_row(
    row: tuple[Any, ...],
    text: Callable[[Any], str],
    group_key: Callable[[], bytes],
    *,
    in_flight: bool,
) -> RowView:
    """Return a row with the columns of a view.

    Args:
        row: state and recall are numbers; no cause group is a false value, as is no final queue.
        text: returns the text of a value that the store keeps for texts of many rows.
        group_key: returns `ScheduleView.group_key`.
        in_flight: an unfinished cycle sends it.
    """
    destination, group = text(row[3]), text(row[16]) if row[16] else ""
    reason, state = row[15], STATES[row[1]]
    if reason is None and state is RowState.HELD and row[17] is not None:
        reason = waits_until(row[17], row[2], text(row[9]))
    return RowView(
        id=row[0],
        state=state,
        due_at_ms=row[2],
        destination=destination,
        is_final=bool(row[4]),
        source=text(row[5]),
        redelivery_id=row[6],
        redelivery_count=row[7],
        delay_ms=row[8],
        rule=text(row[9]),
        cause=row[10],
        message_id=row[11],
        received_at_ms=row[12],
        encoding=text(row[13]),
        size_bytes=row[14],
        reason=reason,
        cause_group=group,
        gate=row[17],
        final_queue=text(row[18]) if row[18] else None,
        recall=RECALLS[row[19]],
        recall_operation=row[20],
        in_flight=in_flight,
        group=group_number(group_key(), destination, group) if group else None,
    )


def latest_undoable(changes: Sequence[tuple[RowView, Change]]) -> list[tuple[RowView, Change]]:
    """Return the last removed rows that an undo may need, at most `UNDO_BYTES` of them."""
    kept, size_bytes = [], 0
    for view, made in reversed(changes):
        size_bytes += view.size_bytes + UNDO_ROW_BYTES
        if size_bytes > UNDO_BYTES:
            break
        if made.is_removed and made.undone_by:
            kept.append((view, made))
    return kept[::-1]
