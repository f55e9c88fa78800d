"""Messages that are missing in dead-letter queues, and messages there without a row."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from amqsidecar.model.schedule import ExhaustedTally, MissingTally, UnknownTally
from amqsidecar.schedule import ScheduleView

_UNKNOWN_LOOK_MS: Final = 180_000
"""Queues are looked at twice a minute; an older look is of a sidecar that no longer looks."""
_LOOKS_MS: Final = 3_600_000
"""An older look says nothing about now."""


def read_unknown(schedule: ScheduleView, now_ms: int) -> list[UnknownTally]:
    """Return dead-letter queues with messages that are not in the schedule, most messages first.

    By the last look at each; looks are kept by the sidecar that runs, so the broker is not asked.
    """
    latest = {
        one.destination: one for one in schedule.recent_observations(now_ms - _UNKNOWN_LOOK_MS)
    }
    found = [
        UnknownTally(
            queue=one.destination,
            count=one.unknown,
            at_least=one.depth is None,
            seen_at_ms=one.at_ms,
        )
        for one in latest.values()
        if one.unknown
    ]
    return sorted(found, key=lambda one: (-one.count, one.queue))


def read_missing(
    schedule: ScheduleView, exhausted: Sequence[ExhaustedTally], now_ms: int
) -> list[MissingTally]:
    """Return final queues that hold fewer messages than were sent there, by their last count.

    Messages of others in the same queue hide as many that are missing.
    """
    counts = Counter[str]()
    for one in exhausted:
        if one.is_in_queue:
            counts[one.queue] += one.count
    missing = []
    for queue, count in counts.items():
        seen = schedule.observations(queue, now_ms - _LOOKS_MS, now_ms + 1)
        depth = seen[-1].depth if seen else None
        if depth is not None and depth < count:
            gone = MissingTally(queue=queue, count=count - depth, seen_at_ms=seen[-1].at_ms)
            missing.append(gone)
    return missing
