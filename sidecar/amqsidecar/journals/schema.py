"""The columns of the journal as Arrow and Parquet know them."""

from typing import Any, Final

import pyarrow as pa

from amqsidecar.journal import COLUMNS, SCHEMA_VERSION, SCHEMA_VERSION_KEY, Column, ColumnType

_TYPES: Final[dict[ColumnType, Any]] = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT32: pa.int32(),
    ColumnType.INT64: pa.int64(),
    ColumnType.BOOL: pa.bool_(),
    ColumnType.TIMESTAMP_MS: pa.timestamp("ms", tz="UTC"),
    ColumnType.STRING_MAP: pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False)),
}


def _field(column: Column) -> Any:
    meaning = {"meaning": column.meaning}
    return pa.field(column.name, _TYPES[column.kind], nullable=column.optional, metadata=meaning)


MESSAGES_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("redelivery_id", "destination", "source")),
        *(pa.field(name, pa.string()) for name in ("cause", "cause_group", "rule", "message_id")),
        pa.field("redelivery_count", pa.int64()),
        pa.field("received_at_ms", pa.int64()),
        pa.field("encoding", pa.string()),
        pa.field("message", pa.binary()),
    ]
)
"""Of a file of exported messages: fields of `RowView`, and the message as the broker gave it."""

SCHEMA: Final = pa.schema(
    [_field(column) for column in COLUMNS], metadata={SCHEMA_VERSION_KEY: str(SCHEMA_VERSION)}
)
"""Schema of each file; the metadata have its version and the meaning of the columns."""
