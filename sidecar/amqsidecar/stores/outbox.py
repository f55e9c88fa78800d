"""The common part of both stores' outboxes."""

from collections.abc import Iterable, Sequence

from amqsidecar.errors import StoreUnavailable
from amqsidecar.journal import Segment
from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.ledger import CommonPart
from amqsidecar.stores.packing import structs_of


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


def not_kept(place: str, segment: Segment) -> StoreUnavailable:
    """Return the error for missing events of a segment."""
    return StoreUnavailable(
        f"{place} does not keep all events of segment {segment.number} of the stream "
        f"{segment.stream} any more"
    )


def oldest_at_ms(events: Sequence[AnyEvent]) -> int:
    """Return the earliest time."""
    return min(event.at_ms for event in events)


class CommonOutbox(CommonPart):
    """The part of an `Outbox` that does not depend on the store, of the store that inherits it."""

    def keep_for_journal(self, is_on: bool) -> None:
        """From now on the history forgets nothing that is not in a written segment, or no longer.

        Durable, and kept by all processes. Events of a planned segment are never forgotten before
        it is written.
        """
        with self._database.transaction():
            self._database.queue("set_kept", is_on=is_on)

    def written_segments(self) -> list[Segment]:
        """Return the written segments whose events are all still in the store."""
        return structs_of(Segment, self._database.rows("written_segments"))
