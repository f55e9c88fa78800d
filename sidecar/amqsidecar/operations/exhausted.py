"""What is no longer in final dead-letter queues, as far as the sidecar may look there."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from amqsidecar.ledger import Ledger
from amqsidecar.model.schedule import ExhaustedTally, MissingTally

_LOOKS_MS: Final = 3_600_000
"""An older look says nothing about now."""


def read_missing(
    ledger: Ledger, exhausted: Sequence[ExhaustedTally], now_ms: int
) -> list[MissingTally]:
    """Return which final queues hold fewer messages than went there, by the last look at each.

    Messages of others in the same queue hide as many that are missing.
    """
    counts = Counter[str]()
    for one in exhausted:
        if one.is_in_queue:
            counts[one.queue] += one.count
    missing = []
    for queue, count in counts.items():
        seen = ledger.observations(queue, now_ms - _LOOKS_MS, now_ms + 1)
        depth = seen[-1].depth if seen else None
        if depth is not None and depth < count:
            gone = MissingTally(queue=queue, count=count - depth, seen_at_ms=seen[-1].at_ms)
            missing.append(gone)
    return missing
