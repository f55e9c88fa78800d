"""Additions of a transaction of the PostgreSQL store to counts of failures and grouped rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import GROUPS_MAX, MORE, FailureGroup, failures_of
from amqsidecar.stores.postgres.events import event_key
from amqsidecar.stores.postgres.rows import group_name, grouped_name, tally_name

ROOM = {"groups_max": GROUPS_MAX, "more": MORE}
"""More parameters of the queries that add counts; the maximum of groups that an instance caches."""


class CountChanges:
    """Changes of counts; a cycle's apply when it is finished, all others at once.

    Texts are cut to an index's limit after summing up: cutting each would cost too much.
    """

    def __init__(self) -> None:
        self._events = list[AnyEvent]()
        self._rows = Counter[tuple[str, int, str]]()
        self._exhausted = Counter[tuple[str, str, bool]]()

    def add_events(self, events: Iterable[AnyEvent]) -> None:
        """Count events."""
        self._events.extend(events)

    def add_rows(self, destination: str, state: int, cause_group: str | None, count: int) -> None:
        """Add a count of rows, negative to subtract; rows without a group are ignored."""
        if cause_group:
            self._rows[destination, state, cause_group] += count

    def add_exhausted(self, destination: str, queue: str, is_final: bool, count: int) -> None:
        """Add a count of exhausted rows by their queue, negative to subtract."""
        self._exhausted[destination, queue, is_final] += count

    def packed(self) -> str | None:
        """Return the differences as arguments of the queries; None = none."""
        failures = failures_of(self._events)
        events = Counter[tuple[Any, ...]]()
        for (bucket_ms, kind, destination, group, attempt), count in failures.counts.items():
            events[bucket_ms, kind, grouped_name(destination), group_name(group), attempt] += count
        groups = dict[tuple[str, str], FailureGroup]()
        for deaths in map(_storable, failures.groups.values()):
            place = deaths.destination, deaths.cause_group
            groups[place] = deaths if place not in groups else groups[place].joined(deaths)
        rows = Counter[tuple[Any, ...]]()
        for (destination, state, group), count in self._rows.items():
            rows[grouped_name(destination), state, group_name(group)] += count
        rows = Counter({key: count for key, count in rows.items() if count})
        exhausted = Counter[tuple[Any, ...]]()
        for (destination, queue, is_final), count in self._exhausted.items():
            exhausted[tally_name(destination), tally_name(queue), is_final] += count
        exhausted = Counter({key: count for key, count in exhausted.items() if count})
        if not events and not rows and not exhausted:
            return None
        packed = {
            "events": _named(
                events, "bucket_ms", "kind", "destination", "cause_group", "attempt", "count"
            ),
            "groups": list(groups.values()),
            "rows": _named(rows, "destination", "state", "cause_group", "count"),
            "exhausted": _named(exhausted, "destination", "queue", "is_final", "count"),
        }
        return msgspec.json.encode(packed).decode()


def _storable(group: FailureGroup) -> FailureGroup:
    return msgspec.structs.replace(
        group,
        destination=grouped_name(group.destination),
        cause_group=group_name(group.cause_group),
        example_id=event_key(group.example_id),
    )


def _named(counts: Counter[tuple[Any, ...]], *names: str) -> Sequence[dict[str, Any]]:
    return [dict(zip(names, (*key, count), strict=True)) for key, count in counts.items()]
