"""The discarded messages that stores keep for an undo."""

from collections.abc import Sequence

from amqsidecar.model.operation import UNDO_BYTES, UNDO_ROW_BYTES
from amqsidecar.model.row_changes import Change
from amqsidecar.model.schedule import RowView


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
