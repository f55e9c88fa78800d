"""The tables that jobs read and write: one schema each, in one place."""

from typing import Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from amqsidecar.journal import COLUMNS, Column, Kind

_TYPES: Final[dict[Kind, DataType]] = {
    Kind.STRING: StringType(),
    Kind.INT32: IntegerType(),
    Kind.INT64: LongType(),
    Kind.BOOL: BooleanType(),
    Kind.TIMESTAMP_MS: TimestampType(),
    Kind.STRING_MAP: MapType(StringType(), StringType(), valueContainsNull=False),
}


def _field(column: Column) -> StructField:
    return StructField(
        column.name, _TYPES[column.kind], column.optional, {"comment": column.meaning}
    )


EVENTS: Final = StructType([_field(column) for column in COLUMNS])
"""The history: one row per event, keyed by `(stream, segment, position)`."""
