"""Messages that are missing in dead-letter queues, and messages there without a row."""

from collections.abc import Iterable
from typing import Final

from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import MissingTally, UnknownTally
from amqsidecar.schedule import ScheduleView

_LOOK_MS: Final = 180_000
"""Queues are looked at twice a minute; an older look is of a sidecar that no longer looks."""


def read_unknown(schedule: ScheduleView, now_ms: int) -> list[UnknownTally]:
    """Return dead-letter queues with messages that are not in the schedule, most messages first.

    By the last look at each; looks are kept by the sidecar that runs, so the broker is not asked.
    """
    found = [
        UnknownTally(
            queue=one.destination,
            count=one.unknown,
            at_least=one.depth is None,
            seen_at_ms=one.at_ms,
        )
        for one in _last_looks(schedule, now_ms)
        if one.unknown
    ]
    return sorted(found, key=lambda one: (-one.count, one.queue))


def read_missing(schedule: ScheduleView, now_ms: int) -> list[MissingTally]:
    """Return final queues out of which another program took messages, most messages first.

    By the last look at each, which compared the queue with the rows of that moment.
    """
    found = [
        MissingTally(queue=one.destination, count=one.missing, seen_at_ms=one.at_ms)
        for one in _last_looks(schedule, now_ms)
        if one.missing
    ]
    return sorted(found, key=lambda one: (-one.count, one.queue))


def _last_looks(schedule: ScheduleView, now_ms: int) -> Iterable[Observation]:
    looks = schedule.recent_observations(now_ms - _LOOK_MS)
    return {one.destination: one for one in looks}.values()
