"""The outbox of the PostgreSQL store: which segment of the journal an event is in.

Several instances write blocks of events at once, so a block may become visible after others with
higher numbers. Therefore a segment is no range: it is planned by marking finished blocks that have
no mark yet, and an instance in the middle of a cycle delays no other. An effect is never in an
earlier segment than its cause: its block has a higher number, and was written when the block of the
cause was finished.

Locks: planning and retention take the lock on the journal; retention has its instance by then, and
planning takes none.
"""

from collections.abc import Iterator, Sequence

from amqsidecar.journal import OutboxLag, Segment
from amqsidecar.stores.outbox import CommonOutbox, oldest_at_ms
from amqsidecar.stores.packing import unpack_events
from amqsidecar.stores.postgres.database import PostgresDatabase, PostgresRows
from amqsidecar.stores.postgres.events import lock_journal

_BLOCKS_AT_ONCE = 20


class PostgresOutbox(CommonOutbox):
    """The `Outbox` of the store that inherits it: one stream for the whole schedule."""

    _database: PostgresDatabase

    def _lock_journal(self) -> None:
        lock_journal(self._database)

    def _unplanned(self, limit: int) -> tuple[str, int, PostgresRows]:
        ((stream, last_number),) = self._database.rows("read_outbox")
        return stream, last_number, self._database.rows("unplanned_blocks", limit=limit)

    def _keep_segment(self, segment: Segment, blocks: Sequence[int]) -> None:
        values = {"stream": segment.stream, "number": segment.number}
        ((segment_id,),) = self._database.rows(
            "add_segment", **values, event_count=segment.event_count
        )
        self._database.queue("set_planned", **values)
        self._database.queue("mark_blocks", segment=segment_id, seqs=list(blocks))

    def _segment_blocks(self, segment: Segment) -> Iterator[tuple[int, bytes]]:
        values = {"stream": segment.stream, "number": segment.number}
        for (segment_id,) in self._database.rows("find_segment", **values):
            place = {"segment": segment_id, "limit": _BLOCKS_AT_ONCE, "after": 0}
            while blocks := self._database.rows("segment_blocks", **place):
                yield from ((packing, body) for _, packing, body in blocks)
                place["after"] = blocks[-1][0]

    def outbox_lag(self) -> OutboxLag:
        ((events, packing, body),) = self._database.rows("read_lag")
        at_ms = None if body is None else oldest_at_ms(unpack_events(packing, body))
        return OutboxLag(events=events, oldest_at_ms=at_ms)
