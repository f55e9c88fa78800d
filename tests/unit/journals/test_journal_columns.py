"""Each event is a row with all that it says, and with nothing that it doesn't."""

import json

import pyarrow as pa
import pytest

from amqsidecar.journal import COLUMNS, SCHEMA_VERSION, SCHEMA_VERSION_KEY, ColumnType, Segment
from amqsidecar.journals.columns import LATEST_MS, table_of
from amqsidecar.journals.schema import SCHEMA
from amqsidecar.model.cause import cause_group
from amqsidecar.model.event import AMBIGUOUS, AnyEvent, Explained, Received, Regrouped, Scheduled
from support.histories.journal_rows import AT_MS, KINDS, filled

FILLED_BY_THE_WRITER = {"stream", "segment", "position", "sidecar", "type"}


def rows_of(*blocks: list[AnyEvent], cause_text: bool = True) -> list[dict[str, object]]:
    count = sum(map(len, blocks))
    segment = Segment(stream="s", number=3, event_count=count)
    table = table_of(segment, blocks, sidecar="me", cause_text=cause_text)
    table.validate(full=True)
    assert table.schema.equals(SCHEMA, check_metadata=True)
    for column in COLUMNS:
        if column.kind is ColumnType.TIMESTAMP_MS:
            index = table.column_names.index(column.name)
            table = table.set_column(index, column.name, table[column.name].cast(pa.int64()))
    rows: list[dict[str, object]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


# Of notes the journal has the cause and its author; the rest stands in the store's history.
ONLY_IN_HISTORY = {
    "answer",
    "attempt",
    "stack_hash",
    "traceparent",
}


# The reason says the same of a gate and of a missing token; spans say it of traces.
SAID_OTHERWISE = {"gate", "life", "token_is_missing", "traceparent"}


def test_no_field_of_an_event_is_forgotten() -> None:
    known = {column.field for column in COLUMNS}
    for kind in KINDS:
        unknown = set(kind.__struct_fields__) - known
        assert unknown <= (ONLY_IN_HISTORY if kind in (Explained, Regrouped) else SAID_OTHERWISE), (
            kind.__name__
        )


def test_each_column_is_filled_by_an_event_or_by_the_writer() -> None:
    fields = {field for kind in KINDS for field in kind.__struct_fields__}
    for column in COLUMNS:
        assert (column.field is None) == (column.name in FILLED_BY_THE_WRITER)
        assert column.field is None or column.field in fields


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_all_fields_of_its_event(kind: type[AnyEvent]) -> None:
    event = filled(kind)
    (row,) = rows_of([event])
    for column in COLUMNS:
        if column.field is not None:
            assert row[column.name] == getattr(event, column.field, None), column.name
    assert row["type"] == kind.__struct_config__.tag


def test_the_group_of_a_cause_is_written_where_no_fields_make_another() -> None:
    (row,) = rows_of([Received(at_ms=AT_MS, source="queue://DLQ", cause="a.B: order 7")])
    assert row["cause_group"] == "a.B: order *"


def test_defaults_are_written_and_not_left_out() -> None:
    (row,) = rows_of([Received(at_ms=AT_MS, source="queue://DLQ")])
    assert (row["row_id"], row["redelivery_id"]) == (0, "")
    assert (row["expired"], row["persistent"]) == (False, True)
    assert (row["redelivery_count"], row["size_bytes"]) == (0, 0)
    assert (row["cause"], row["cause_group"], row["properties"]) == (None, None, None)


def test_rows_are_in_the_order_of_their_events_whatever_their_kinds() -> None:
    events = [filled(KINDS[n * 7 % len(KINDS)], n) for n in range(9_000)]
    blocks = [events[:1], [], events[1:300], events[300:]]
    rows = rows_of(*blocks)
    assert [row["position"] for row in rows] == list(range(9_000))
    assert [row["at"] for row in rows] == [event.at_ms for event in events]
    assert {(row["stream"], row["segment"], row["sidecar"]) for row in rows} == {("s", 3, "me")}


def test_the_words_of_a_cause_are_kept_only_where_they_are_wanted() -> None:
    event = Received(at_ms=AT_MS, source="queue://DLQ", cause="java.io.IOException: order 4711")
    (row,) = rows_of([event], cause_text=False)
    assert row["cause"] is None
    assert row["cause_group"] == cause_group(str(event.cause))
    assert "4711" not in json.dumps(row)


def test_a_note_that_decides_nothing_names_no_group() -> None:
    ambiguous = Explained(at_ms=AT_MS, destination="queue://a", cause="a.B: x", answer=AMBIGUOUS)
    (row,) = rows_of([ambiguous])
    assert (row["cause"], row["cause_group"]) == ("a.B: x", None)


def test_times_that_no_reader_takes_become_the_last_one_that_all_take() -> None:
    event = filled(Scheduled)
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    late = Scheduled(**(values | {"due_at_ms": 2**63 - 1}))
    early = Scheduled(**(values | {"due_at_ms": -5}))
    assert [row["due_at"] for row in rows_of([late, early])] == [LATEST_MS, 0]


def test_the_schema_says_its_version_and_what_columns_mean() -> None:
    assert SCHEMA.metadata[SCHEMA_VERSION_KEY.encode()] == str(SCHEMA_VERSION).encode()
    for column in COLUMNS:
        field = SCHEMA.field(column.name)
        assert field.metadata[b"meaning"].decode() == column.meaning
        assert field.nullable == column.optional
