"""Proposes fields for `intake.group_by` that divide the kept messages of a destination."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import log2
from typing import Final

import msgspec
import regex

from amqsidecar.messages.fields import OpenMessage
from amqsidecar.model.failure import plain_value
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.schedule import Schedule

SAMPLE_MAX: Final = 200
"""Messages of a destination that are looked at; of more, these are spread over all of them."""

MESSAGE_BYTES_MAX: Final = 128 * 1024
"""A larger message is not looked at."""

DESTINATIONS_MAX: Final = 20
"""Destinations that are looked at, those with most messages first."""

FIELDS_MAX: Final = 5
"""Fields that are proposed for a destination."""

VALUES_MAX: Final = 5
"""Values that are shown of a field."""

_PROBES_MAX: Final = 4 * SAMPLE_MAX
_ROW_ID_MAX: Final = 2**63 - 1
_DISTINCT_MAX: Final = 50
_TELLS_ERRORS: Final = regex.compile(r"err|exception|cause|reason|fault|code|status", regex.I)


class SuggestedField(msgspec.Struct, frozen=True, kw_only=True):
    """A field that divides messages.

    Attributes:
        field: as `intake.group_by` names it.
        present: messages that have it.
        distinct: how many different values they have.
        values: the commonest with their counts, `VALUES_MAX` at most.
        same_as: other fields that divide these messages alike.
    """

    field: str
    present: int
    distinct: int
    values: dict[str, int]
    same_as: list[str]


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that divide the messages of a destination, the best first.

    Attributes:
        messages: how many were looked at.
    """

    destination: str
    messages: int
    fields: list[SuggestedField]


def suggest(schedule: Schedule, destination: str | None = None) -> list[Suggestion]:
    """Return proposals from a sample of the kept messages; changes nothing.

    Args:
        destination: only of this one, canonical text; None = of all.
    """
    kept = Counter[str]()
    for tally in schedule.group_tallies():
        if destination in (None, tally.destination):
            kept[tally.destination] += tally.count
    return [divide(name, _sample(schedule, name)) for name, _ in kept.most_common(DESTINATIONS_MAX)]


def _spread_rows(schedule: Schedule, row_filter: RowFilter) -> list[RowView]:
    """Return all rows if they are few, else some from everywhere, by number."""
    rows = schedule.list_rows(row_filter, SAMPLE_MAX + 1)
    if len(rows) <= SAMPLE_MAX:
        return rows
    # Why gaps: numbers are shared with other destinations, so rows can be anywhere between. Each
    # probe halves the widest range of numbers of which nothing is known.
    found = [rows[0]]
    gaps = [(0, rows[0].id, _ROW_ID_MAX)]

    def add_gap(after: int, before: int) -> None:
        if before - after > 1:
            heappush(gaps, (after - before, after, before))

    for _ in range(_PROBES_MAX):
        if not gaps or len(found) == SAMPLE_MAX:
            break
        _, after, before = heappop(gaps)
        middle = (after + before) // 2
        probed = schedule.list_rows(row_filter, 1, middle)
        add_gap(after, middle + 1)
        if probed and probed[0].id < before:
            found.append(probed[0])
            add_gap(probed[0].id, before)
    return sorted(found, key=lambda row: row.id)


def _sample(schedule: Schedule, destination: str) -> list[dict[str, str]]:
    found = []
    for row in _spread_rows(schedule, RowFilter(destination=destination)):
        if row.size_bytes > MESSAGE_BYTES_MAX:
            continue
        message = schedule.message(row.id)
        if message is not None:
            found.append(OpenMessage(row.encoding, message).list_fields())
    return found


def divide(destination: str, messages: Sequence[Mapping[str, str]]) -> Suggestion:
    """Return the fields that divide some messages best.

    A field counts that half of the messages have, with few values: at most one for each four
    messages. Fields with names of errors come first, then those with the most even values.
    """
    counts = len(messages)
    names = dict.fromkeys(name for one in messages for name in one if name.isprintable())
    by_partition: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        values = [one.get(name) for one in messages]
        present = counts - values.count(None)
        distinct = len({*values} - {None})
        if 2 * present >= counts and 2 <= distinct <= min(_DISTINCT_MAX, max(2, counts // 4)):
            # Why numbers: two fields divide alike if their values change at the same messages.
            seen: dict[str | None, int] = {}
            partition = tuple(seen.setdefault(value, len(seen)) for value in values)
            by_partition.setdefault(partition, []).append(name)
    ranked = sorted(
        (
            (sorted(alike, key=_hint), _entropy(partition))
            for partition, alike in by_partition.items()
        ),
        key=lambda one: (_hint(one[0][0]), -one[1]),
    )
    return Suggestion(
        destination=destination,
        messages=counts,
        fields=[_suggested(alike, messages) for alike, _ in ranked[:FIELDS_MAX]],
    )


def _hint(name: str) -> bool:
    return _TELLS_ERRORS.search(name) is None


def _entropy(partition: Sequence[int]) -> float:
    sizes = Counter(partition).values()
    return -sum(size / len(partition) * log2(size / len(partition)) for size in sizes)


def _suggested(alike: Sequence[str], messages: Sequence[Mapping[str, str]]) -> SuggestedField:
    name = alike[0]
    values = Counter(one[name] for one in messages if name in one)
    return SuggestedField(
        field=name,
        present=values.total(),
        distinct=len(values),
        values={plain_value(value): count for value, count in values.most_common(VALUES_MAX)},
        same_as=list(alike[1:]),
    )
