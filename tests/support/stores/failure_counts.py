"""What events add to the counts of failures, as stores return them."""

from collections import Counter
from collections.abc import Iterable

from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import CountKey, failures_of


def counts_of(events: Iterable[AnyEvent]) -> Counter[CountKey]:
    """Return what events add to the counts."""
    counts = Counter[CountKey]()
    for (bucket_ms, kind, destination, group, attempt), count in failures_of(events).counts.items():
        key = CountKey(
            bucket_ms=bucket_ms,
            kind=kind,
            destination=destination,
            cause_group=group,
            attempt=attempt,
        )
        counts[key] = count
    return counts
