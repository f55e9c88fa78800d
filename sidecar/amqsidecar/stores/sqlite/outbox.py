"""The outbox of the SQLite store: which segment of the journal an event is in.

Blocks of events are numbered in the order in which they were committed, and one cycle at most is
unfinished. So a segment is a range of blocks that ends before the block of that cycle, and one
number says up to where all is planned.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

from amqsidecar.journal import OutboxLag, Segment
from amqsidecar.stores.outbox import CommonOutbox, oldest_at_ms, whole_blocks
from amqsidecar.stores.packing import unpack_events
from amqsidecar.stores.rows import LAST_ID
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.rows import read_unfinished


class SqliteOutbox(CommonOutbox):
    """The `Outbox` of the store that inherits it."""

    _database: SqliteDatabase

    def _unplanned(self, limit: int) -> tuple[str, int, list[tuple[int, int]]]:
        database = self._database
        with database.mapped("be written"):
            _, stream, last_number, last_block = database.query("read_outbox").fetchone()
            hidden = hidden_block(database)
            until = LAST_ID if hidden is None else hidden
            with closing(database.query("blocks_between", (last_block, until))) as found:
                return stream, last_number, whole_blocks(found, limit)

    def _keep_segment(self, segment: Segment, blocks: Sequence[int]) -> None:
        values = {"stream": segment.stream, "number": segment.number}
        self._database.queue(
            "add_segment",
            **values,
            first_block=blocks[0],
            last_block=blocks[-1],
            event_count=segment.event_count,
        )
        self._database.queue("set_planned", **values)
        self._database.queue("unmark_blocks", segment=blocks[-1] + 1)

    def _segment_blocks(self, segment: Segment) -> Iterator[tuple[int, bytes]]:
        values = {"stream": segment.stream, "number": segment.number}
        for first, last in self._database.rows("find_segment", **values):
            after = first - 1
            # Why one by one: a long read would keep the file's log from being taken over.
            while rows := self._database.rows("next_block", after=after, last=last):
                ((after, packing, body),) = rows
                yield packing, body

    def outbox_lag(self) -> OutboxLag:
        database = self._database
        with database.snapshot():
            values = {
                "hidden": hidden_block(database),
                "written_until": planned_range(database)[0] - 1,
            }
            (events,) = database.query("count_unwritten", values).fetchone()
            oldest = database.query("first_unwritten", values).fetchone()
            at_ms = None if oldest is None else oldest_at_ms(unpack_events(*oldest))
        return OutboxLag(events=events, oldest_at_ms=at_ms)


def planned_range(database: SqliteDatabase) -> tuple[int, int]:
    """Return the first and last block of the planned segment; blocks before it are written.

    Where nothing is planned, the range is empty.
    """
    planned = database.query("planned_range").fetchone()
    if planned is not None:
        return planned[0], planned[1]
    last_block: int = database.query("read_outbox").fetchone()[3]
    return last_block + 1, last_block


def hidden_block(database: SqliteDatabase) -> int | None:
    """Return the block of the unfinished cycle; None = there is none."""
    record = read_unfinished(database)
    return None if record is None else record.event_block
