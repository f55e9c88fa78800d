"""The outbox of the PostgreSQL store: which segment of the journal an event is in.

Several instances write blocks of events at once, so a block may become visible after others with
higher numbers. Therefore a segment is no range: it is planned by marking finished blocks that have
no mark yet, and an instance in the middle of a cycle delays no other. An effect is never in an
earlier segment than its cause: its block has a higher number, and was written when the block of the
cause was finished.

Locks: planning and retention take the lock on the journal; retention has its instance by then, and
planning takes none.
"""

import secrets
from collections.abc import Iterator

from amqsidecar.journal import OutboxLag, Segment
from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.outbox import CommonOutbox, not_kept, oldest_at_ms, whole_blocks
from amqsidecar.stores.packing import unpack_events
from amqsidecar.stores.postgres.database import PostgresDatabase
from amqsidecar.stores.postgres.events import lock_journal

_BLOCKS_AT_ONCE = 20


class PostgresOutbox(CommonOutbox):
    """The `Outbox` of the store that inherits it: one stream for the whole schedule."""

    _database: PostgresDatabase

    def plan_segment(self, max_events: int) -> Segment | None:
        """Return the first segment that is not written yet; plan one if there is none.

        Promise: durable when this returns; if the process dies inside, nothing was planned.
        """
        database = self._database
        with database.transaction():
            lock_journal(database)
            planned = database.rows("planned_segment")
            if not planned:
                return self._plan(max_events)
        ((stream, number, event_count),) = planned
        return Segment(stream=stream, number=number, event_count=event_count)

    def _plan(self, max_events: int) -> Segment | None:
        database = self._database
        ((stream, last_number),) = database.rows("read_outbox")
        blocks = whole_blocks(database.rows("unplanned_blocks", limit=max_events), max_events)
        if not blocks:
            return None
        segment = Segment(
            stream=stream or secrets.token_hex(8),
            number=last_number + 1,
            event_count=sum(count for _, count in blocks),
        )
        values = {"stream": segment.stream, "number": segment.number}
        ((segment_id,),) = database.rows("add_segment", **values, event_count=segment.event_count)
        database.queue("set_planned", **values)
        database.queue("mark_blocks", segment=segment_id, seqs=[number for number, _ in blocks])
        return segment

    def segment_events(self, segment: Segment) -> Iterator[list[AnyEvent]]:
        """Yield the events of a planned or kept segment block by block, always in the same order.

        Raises:
            StoreUnavailable: some of them are not kept any more.
        """
        database, missing, after = self._database, segment.event_count, 0
        found = database.rows("find_segment", stream=segment.stream, number=segment.number)
        while found:
            values = {"segment": found[0][0], "after": after, "limit": _BLOCKS_AT_ONCE}
            blocks = database.rows("segment_blocks", **values)
            if not blocks:
                break
            after = blocks[-1][0]
            for _, packing, body in blocks:
                events = unpack_events(packing, body)
                missing -= len(events)
                yield events
        if missing:
            raise not_kept(database.place, segment)

    def segment_written(self, segment: Segment) -> None:
        """Its file is there for good.

        Promise: safe to call again; if the process dies inside, the segment is still planned.
        """
        self._database.rows("set_written", stream=segment.stream, number=segment.number)

    def plan_anew(self, segment: Segment) -> None:
        """Begin a new stream with the events of the planned segment.

        Promise: safe to call again; if the process dies inside, the segment is still planned.
        """
        database = self._database
        with database.transaction():
            lock_journal(database)
            values = {"stream": segment.stream, "number": segment.number}
            for (segment_id,) in database.rows("drop_planned", **values):
                database.queue("unmark_blocks", segment=segment_id)
                database.queue("end_stream")

    def outbox_lag(self) -> OutboxLag:
        """Return the events that are not written yet; costs no scan of the history."""
        ((events, packing, body),) = self._database.rows("read_lag")
        at_ms = None if body is None else oldest_at_ms(unpack_events(packing, body))
        return OutboxLag(events=events, oldest_at_ms=at_ms)
