"""What a transaction of the PostgreSQL store adds to the counts of failures and of grouped rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from amqsidecar.model.event import AnyEvent, Received
from amqsidecar.model.failure import CountKey, counts_of, failure_cause
from amqsidecar.stores.postgres_events import event_key
from amqsidecar.stores.postgres_rows import group_name, grouped_name


class _Failures(NamedTuple):
    first_at_ms: int
    last_at_ms: int
    total: int
    example_id: str

    def and_then(self, other: "_Failures") -> "_Failures":
        latest = other if other.last_at_ms >= self.last_at_ms else self
        return _Failures(
            min(self.first_at_ms, other.first_at_ms),
            latest.last_at_ms,
            self.total + other.total,
            latest.example_id,
        )


class Counts:
    """Differences; what a cycle adds counts when it is finished, everything else at once.

    Texts are cut to what an index takes only when all is summed up: it costs too much for each.
    """

    def __init__(self) -> None:
        self._events = Counter[CountKey]()
        self._failures = dict[tuple[str, str], _Failures]()
        self._rows = Counter[tuple[str, int, str]]()

    def add_events(self, events: Sequence[AnyEvent]) -> None:
        """Count events."""
        self._events.update(counts_of(events))
        for event in events:
            if isinstance(event, Received):
                place = (
                    event.origin or event.source,
                    failure_cause(event.cause, expired=event.expired),
                )
                failure = _Failures(event.at_ms, event.at_ms, 1, event.redelivery_id)
                _add(self._failures, place, failure)

    def add_rows(self, destination: str, state: int, cause_group: str | None, count: int) -> None:
        """Count rows, or take them out with a count below 0; those of no group count nowhere."""
        if cause_group:
            self._rows[destination, state, cause_group] += count

    def packed(self) -> str | None:
        """Return the differences as the queries take them; None = there are none."""
        events = Counter[tuple[Any, ...]]()
        for key, count in self._events.items():
            place = grouped_name(key.destination), group_name(key.cause_group)
            events[key.bucket_ms, key.kind, *place, key.attempt] += count
        failures = dict[tuple[str, str], _Failures]()
        for (destination, group), failure in self._failures.items():
            _add(failures, (grouped_name(destination), group_name(group)), failure)
        rows = Counter[tuple[Any, ...]]()
        for (destination, state, group), count in self._rows.items():
            rows[grouped_name(destination), state, group_name(group)] += count
        if not events and not any(rows.values()):
            return None
        return msgspec.json.encode(
            {
                "events": _named(
                    ("bucket_ms", "kind", "destination", "cause_group", "attempt", "count"),
                    ((*key, count) for key, count in events.items()),
                ),
                "failures": _named(
                    ("destination", "cause_group", *_Failures._fields),
                    (
                        (*place, *failure[:-1], event_key(failure.example_id))
                        for place, failure in failures.items()
                    ),
                ),
                "rows": _named(
                    ("destination", "state", "cause_group", "count"),
                    ((*key, count) for key, count in rows.items() if count),
                ),
            }
        ).decode()


def _add(
    failures: dict[tuple[str, str], _Failures], place: tuple[str, str], failure: _Failures
) -> None:
    known = failures.get(place)
    failures[place] = failure if known is None else known.and_then(failure)


def _named(names: Sequence[str], values: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, value, strict=True)) for value in values]
