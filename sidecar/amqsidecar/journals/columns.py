"""Turns events of all kinds into columns, many at once."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from amqsidecar.journal import COLUMNS, Column, ColumnType, Segment
from amqsidecar.journals.schema import SCHEMA
from amqsidecar.model.cause import cause_group
from amqsidecar.model.event import AnyEvent, Explained

LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: later times, as endless delays make, are written as this one.

Readers count microseconds or have no later years; they would refuse the whole file.
"""

_AT_ONCE: Final = 8_192
"""Events converted to columns together: cycles are small, and each array has a fixed cost."""

# Why: Arrow looks for pandas when it makes its first array, and imports it where it is installed:
# better before the service begins than between two cycles.
pa.array([None])

_group_of = lru_cache(maxsize=4_096)(cause_group)


def table_of(
    segment: Segment, blocks: Iterable[Sequence[AnyEvent]], *, sidecar: str, cause_text: bool
) -> Any:
    """Return the rows of a segment as an Arrow table with the schema of the journal.

    Args:
        segment: whose rows they are.
        sidecar: name of their writer.
        cause_text: whether the broker's words are kept.
    """
    parts = [_columns(events, cause_text) for events in _portions(blocks)]
    made = pa.concat_tables(parts, promote_options="default")
    count = made.num_rows
    columns = {name: made[name] for name in made.column_names} | {
        "stream": _constant(segment.stream, count),
        "segment": _constant(segment.number, count),
        "position": pa.array(range(count), pa.int32()),
        "sidecar": _constant(sidecar, count),
    }
    return pa.table(
        [
            columns[field.name] if field.name in columns else pa.nulls(count, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _portions(blocks: Iterable[Sequence[AnyEvent]]) -> Iterator[list[AnyEvent]]:
    portion: list[AnyEvent] = []
    for block in blocks:
        portion.extend(block)
        if len(portion) >= _AT_ONCE:
            yield portion
            portion = []
    if portion:
        yield portion


def _columns(events: Sequence[AnyEvent], cause_text: bool) -> Any:
    """Return columns with the events as rows, in their order; columns without values are left out.

    Each kind of event is converted by itself, then the rows are put back into order.
    """
    places: dict[type, list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        places[type(event)].append(place)
    parts = [
        _columns_of(kind, [events[place] for place in where], cause_text)
        for kind, where in places.items()
    ]
    order = pa.array(list(chain.from_iterable(places.values())), pa.int64())
    return pa.concat_tables(parts, promote_options="default").take(pc.sort_indices(order))


def _columns_of(kind: Any, events: Sequence[AnyEvent], cause_text: bool) -> Any:
    arrays = {"type": _constant(kind.__struct_config__.tag, len(events))}
    for column in COLUMNS:
        if column.field is None or column.field not in kind.__struct_fields__:
            continue
        values = list(map(attrgetter(column.field), events))
        if column.field == "cause_group" and "cause" in kind.__struct_fields__:
            causes = map(attrgetter("cause"), events)
            values = [
                group or (None if cause is None or kind is Explained else _group_of(cause))
                for group, cause in zip(values, causes, strict=True)
            ]
        if column.field != "cause" or cause_text:
            arrays[column.name] = _array(column, values)
    return pa.table(arrays)


def _array(column: Column, values: Sequence[Any]) -> Any:
    kind = SCHEMA.field(column.name).type
    if column.kind is ColumnType.TIMESTAMP_MS:
        times = pc.min_element_wise(pa.array(values, pa.int64()), LATEST_MS, skip_nulls=False)
        return pc.max_element_wise(times, 0, skip_nulls=False).cast(kind)
    if column.kind is ColumnType.STRING_MAP:
        values = [None if value is None else list(value.items()) for value in values]
    return pa.array(values, kind)


def _constant(value: str | int, count: int) -> Any:
    return pa.repeat(value, count)
