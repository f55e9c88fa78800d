"""The common part of both stores' outboxes."""

from collections.abc import Iterable, Sequence

from amqsidecar.errors import StoreUnavailable
from amqsidecar.journal import Segment
from amqsidecar.model.event import AnyEvent


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
