"""How many of the selected messages in a queue of Classic can be taken while all others stay."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from amqsidecar.broker import REACH_BYTES
from amqsidecar.model.row_changes import RowChange
from amqsidecar.model.schedule import RowFilter, RowState, RowView
from amqsidecar.operations.words import many
from amqsidecar.schedule import Schedule

WALKED_MAX: Final = 100_000
"""Rows of a queue that are counted; where the reach is not known by then, nothing is offered."""
_PAGE_ROWS: Final = 5_000
_OF_CLASSIC: Final = "openwire/"
"""The encoding of rows that surely lie in a queue of Classic."""


def reach_notes(schedule: Schedule, rows: RowFilter, act: RowChange) -> Iterator[str]:
    """Yield a sentence per queue on the prefix of the selected messages that can be taken alone.

    By the order and the sizes of the rows: messages without a row, and a queue with less memory
    than the broker's own, make the prefix shorter.

    Args:
        act: the change of the action; returns None for a row that it leaves.
    """
    queues = {
        one.queue
        for one in schedule.exhausted_tallies()
        if one.is_in_queue and rows.destination in (None, one.destination)
    }
    for queue in sorted(queues):
        lying = msgspec.structs.replace(rows, state=RowState.EXHAUSTED, lies_in=queue)
        first = schedule.list_rows(lying, 1)
        if not first or not first[0].encoding.startswith(_OF_CLASSIC):
            continue
        within = _within_reach(schedule, rows, lying, act)
        if within is not None:
            alone = f"the oldest {many(within, 'message')} (--limit {within})"
            yield (
                f"with others of at least {REACH_BYTES >> 20} MiB before them, some of these can "
                f"only be taken with the whole of {queue}; at most {alone} can be taken while all "
                "others keep their place"
            )


def _within_reach(
    schedule: Schedule, rows: RowFilter, lying: RowFilter, act: RowChange
) -> int | None:
    """Return how many rows stand before the first that is out of reach; None = none is."""
    selected = (row for row in _each(schedule, rows) if not row.in_flight and act(row) is not None)
    coming = next(selected, None)
    within, left_bytes = 0, REACH_BYTES
    everything = RowFilter(state=RowState.EXHAUSTED, lies_in=lying.lies_in)
    for row in islice(_each(schedule, everything), WALKED_MAX):
        while coming is not None and coming.id < row.id:
            within, coming = within + 1, next(selected, None)
        if coming is None:
            return None
        if coming.id != row.id:
            left_bytes -= row.size_bytes
            if left_bytes <= 0:
                return within if schedule.list_rows(lying, 1, row.id) else None
    return None


def _each(schedule: Schedule, rows: RowFilter) -> Iterator[RowView]:
    """Yield rows by number, out of bounded pages."""
    after_id = 0
    while page := schedule.list_rows(rows, _PAGE_ROWS, after_id):
        yield from page
        after_id = page[-1].id
