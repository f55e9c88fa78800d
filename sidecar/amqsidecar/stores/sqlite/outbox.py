"""The outbox of the SQLite store: which segment of the journal an event is in.

Blocks of events are numbered in the order in which they were committed, and one cycle at most is
unfinished. So a segment is a range of blocks that ends before the block of that cycle, and one
number says up to where all is planned.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing

from amqsidecar.journal import OutboxLag, Segment
from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.outbox import CommonOutbox, not_kept, oldest_at_ms, whole_blocks
from amqsidecar.stores.packing import unpack_events
from amqsidecar.stores.rows import LAST_ID
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.rows import read_unfinished


class SqliteOutbox(CommonOutbox):
    """The `Outbox` of the store that inherits it."""

    _database: SqliteDatabase

    def plan_segment(self, max_events: int) -> Segment | None:
        """Return the first segment that is not written yet; plan one if there is none.

        Promise: durable when this returns; if the process dies inside, nothing was planned.
        """
        with self._database.transaction(), self._database.mapped("be written"):
            planned = self._database.query("planned_segment").fetchone()
            if planned is None:
                return self._plan(max_events)
        _, _, stream, number, event_count = planned
        return Segment(stream=stream, number=number, event_count=event_count)

    def _plan(self, max_events: int) -> Segment | None:
        database = self._database
        _, stream, last_number, last_block = database.query("read_outbox").fetchone()
        hidden = hidden_block(database)
        until = LAST_ID if hidden is None else hidden
        with closing(database.query("blocks_between", (last_block, until))) as rows:
            blocks = whole_blocks(rows, max_events)
        if not blocks:
            return None
        segment = Segment(
            # Why not the uid: it is too short to be the only one among the stores of a journal.
            stream=stream or secrets.token_hex(8),
            number=last_number + 1,
            event_count=sum(count for _, count in blocks),
        )
        first, last = blocks[0][0], blocks[-1][0]
        values = (first, last, segment.stream, segment.number, segment.event_count)
        database.query("add_segment", values)
        database.query("set_planned", (segment.stream, segment.number, last))
        return segment

    def segment_events(self, segment: Segment) -> Iterator[list[AnyEvent]]:
        """Yield the events of a planned or kept segment block by block, always in the same order.

        Raises:
            StoreUnavailable: some of them are not kept any more.
        """
        database, missing = self._database, segment.event_count
        with database.mapped("be read"):
            found = database.query("find_segment", (segment.stream, segment.number)).fetchall()
        after, last = (found[0][0] - 1, found[0][1]) if found else (0, 0)
        while after < last:
            # Why one by one: a long read would keep the file's log from being taken over.
            with database.mapped("be read"):
                rows = database.query("next_block", (after, last)).fetchall()
                if not rows:
                    break
                ((after, packing, body),) = rows
                events = unpack_events(packing, body)
            missing -= len(events)
            yield events
        if missing:
            raise not_kept(f"the store {database.path}", segment)

    def segment_written(self, segment: Segment) -> None:
        """Its file is there for good.

        Promise: safe to call again; if the process dies inside, the segment is still planned.
        """
        with self._database.transaction(), self._database.mapped("be written"):
            values = (segment.stream, segment.number)
            for (event_count,) in self._database.query("set_written", values).fetchall():
                self._database.queue("add_written_count", count=event_count)

    def plan_anew(self, segment: Segment) -> None:
        """Begin a new stream with the events of the planned segment.

        Promise: safe to call again; if the process dies inside, the segment is still planned.
        """
        with self._database.transaction(), self._database.mapped("be written"):
            values = {"stream": segment.stream, "number": segment.number}
            for (first_block,) in self._database.rows("drop_planned", **values):
                self._database.query("end_stream")
                self._database.query("set_last_block", (first_block - 1,))

    def outbox_lag(self) -> OutboxLag:
        """Return the events that are not written yet; costs no scan of the history."""
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
    planned = database.query("planned_segment").fetchone()
    if planned is not None:
        return planned[0], planned[1]
    last_block: int = database.query("read_outbox").fetchone()[3]
    return last_block + 1, last_block


def hidden_block(database: SqliteDatabase) -> int | None:
    """Return the block of the unfinished cycle; None = there is none."""
    record = read_unfinished(database)
    return None if record is None else record.event_block
