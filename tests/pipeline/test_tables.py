"""The schemas of tables are what the journal's contract says."""

from pyspark.sql.types import LongType, StringType

from amqsidecar.journal import COLUMNS
from amqsidecar.pipeline.tables import EVENTS


def test_the_events_have_the_columns_of_the_journal_with_their_meaning() -> None:
    assert EVENTS.names == [column.name for column in COLUMNS]
    assert EVENTS["segment"].dataType == LongType()
    assert EVENTS["cause_group"].dataType == StringType()
    assert all(field.metadata["comment"] for field in EVENTS)
    assert not EVENTS["type"].nullable
