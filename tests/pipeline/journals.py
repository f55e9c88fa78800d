"""Small journals for tests, written by the contract alone."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from amqsidecar.journal import (
    COLUMNS,
    SCHEMA_VERSION,
    SCHEMA_VERSION_KEY,
    ColumnType,
    SegmentFile,
    stream_folder,
)

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z

_TYPES = {
    ColumnType.STRING: pyarrow.string(),
    ColumnType.INT32: pyarrow.int32(),
    ColumnType.INT64: pyarrow.int64(),
    ColumnType.BOOL: pyarrow.bool_(),
    ColumnType.TIMESTAMP_MS: pyarrow.timestamp("ms", tz="UTC"),
    ColumnType.STRING_MAP: pyarrow.map_(pyarrow.string(), pyarrow.string()),
}
SCHEMA = pyarrow.schema(
    [pyarrow.field(one.name, _TYPES[one.kind], nullable=one.optional) for one in COLUMNS],
    metadata={SCHEMA_VERSION_KEY: str(SCHEMA_VERSION)},
)


def event(segment: int, position: int, **fields: Any) -> dict[str, Any]:
    """A row with the values that every event has; `at` is a minute per segment after the start."""
    return {
        "stream": "main",
        "segment": segment,
        "position": position,
        "sidecar": "sidecar-1",
        "type": "received",
        "at": START_MS + segment * 60_000 + position,
        "row_id": segment * 1000 + position,
        "redelivery_id": f"r-{segment}-{position}",
        **fields,
    }


def write_segments(
    root: Path, segments: Iterable[int], *, stream: str = "main", count: int = 3, **fields: Any
) -> Path:
    """Write one file with these segments, `count` events each, and return it."""
    numbers = sorted(segments)
    rows = [
        event(number, position, stream=stream, **fields)
        for number in numbers
        for position in range(count)
    ]
    name = SegmentFile(numbers[0], numbers[-1]).name
    return write_rows(root / stream_folder(stream) / name, rows)


def write_journal(
    root: Path, rows: Iterable[Mapping[str, Any]], *, stream: str = "main", number: int = 1
) -> Path:
    """Write a segment of these rows, and return its file."""
    return write_rows(root / stream_folder(stream) / SegmentFile(number, number).name, rows)


def write_rows(
    path: Path,
    rows: Iterable[Mapping[str, Any]],
    *,
    schema: pyarrow.Schema = SCHEMA,
) -> Path:
    """Write a file of these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.Table.from_pylist(list(rows), schema=schema)
    parquet.write_table(table, path, write_page_checksum=True, compression="none")
    return path
