"""The common part of both stores' outboxes."""

import secrets
from collections.abc import Iterable, Iterator, Sequence

from amqsidecar.errors import StoreUnavailable
from amqsidecar.journal import Segment
from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.ledger import CommonPart
from amqsidecar.stores.packing import structs_of, unpack_events


def whole_blocks(blocks: Iterable[tuple[int, int]], max_events: int) -> list[tuple[int, int]]:
    """Return the first blocks, by number and events, that hold at most `max_events`; at least one.

    Example:
        >>> whole_blocks([(4, 10), (5, 20), (7, 1)], 30)
        [(4, 10), (5, 20)]
    """
    chosen: list[tuple[int, int]] = []
    total = 0
    for number, count in blocks:
        total += count
        if chosen and total > max_events:
            break
        chosen.append((number, count))
    return chosen


def oldest_at_ms(events: Sequence[AnyEvent]) -> int:
    """Return the earliest time."""
    return min(event.at_ms for event in events)


class CommonOutbox(CommonPart):
    """The part of an `Outbox` that does not depend on the store, of the store that inherits it."""

    def keep_for_journal(self, is_on: bool) -> None:
        """See `Outbox`."""
        with self._database.transaction():
            self._database.queue("set_kept", is_on=is_on)

    def plan_segment(self, max_events: int) -> Segment | None:
        """See `Outbox`; if the process dies inside, nothing was planned."""
        with self._database.transaction():
            self._lock_journal()
            planned = self._database.rows("planned_segment")
            return structs_of(Segment, planned)[0] if planned else self._plan(max_events)

    def _plan(self, max_events: int) -> Segment | None:
        stream, last_number, unplanned = self._unplanned(max_events)
        blocks = whole_blocks(unplanned, max_events)
        if not blocks:
            return None
        segment = Segment(
            # Why not the uid: it is too short to be the only one among the stores of a journal.
            stream=stream or secrets.token_hex(8),
            number=last_number + 1,
            event_count=sum(count for _, count in blocks),
        )
        self._keep_segment(segment, [block for block, _ in blocks])
        return segment

    def _lock_journal(self) -> None:
        """Block planning of segments by others until the transaction ends, if there are others."""

    def _unplanned(self, limit: int) -> tuple[str, int, Sequence[tuple[int, int]]]:
        """Return the last stream and segment, and the next blocks, as many as may be planned."""
        raise NotImplementedError

    def _keep_segment(self, segment: Segment, blocks: Sequence[int]) -> None:
        """Store a planned segment."""
        raise NotImplementedError

    def _segment_blocks(self, segment: Segment) -> Iterator[tuple[int, bytes]]:
        """Yield the packed blocks of a segment that are kept, in their order."""
        raise NotImplementedError

    def segment_events(self, segment: Segment) -> Iterator[list[AnyEvent]]:
        """See `Outbox`."""
        missing = segment.event_count
        for packing, body in self._segment_blocks(segment):
            events = unpack_events(packing, body)
            missing -= len(events)
            yield events
        if missing:
            raise StoreUnavailable(
                f"{self._database.place} does not keep all events of segment {segment.number} of "
                f"the stream {segment.stream} any more"
            )

    def segment_written(self, segment: Segment) -> None:
        """See `Outbox`; safe to call again."""
        values = {"stream": segment.stream, "number": segment.number}
        with self._database.transaction():
            for (event_count,) in self._database.rows("set_written", **values):
                self._database.queue("add_written_count", count=event_count)

    def plan_anew(self, segment: Segment) -> None:
        """See `Outbox`; if the process dies inside, the segment is still planned."""
        values = {"stream": segment.stream, "number": segment.number}
        with self._database.transaction():
            self._lock_journal()
            for (segment_id,) in self._database.rows("drop_planned", **values):
                self._database.queue("unmark_blocks", segment=segment_id)
                self._database.queue("set_planned", stream="", number=0)

    def written_segments(self) -> list[Segment]:
        return structs_of(Segment, self._database.rows("written_segments"))
