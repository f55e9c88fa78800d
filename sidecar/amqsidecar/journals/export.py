"""The journal for people without Spark: JSON lines, CSV, or one Parquet file."""

import csv
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from io import TextIOWrapper
from typing import Any, BinaryIO

import pyarrow.compute as pc

from amqsidecar.formats.csv_cell import cell
from amqsidecar.journal import COLUMNS, ColumnType
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.parquet import opened, parquet_writer, portions
from amqsidecar.journals.schema import SCHEMA
from amqsidecar.journals.writer import files_of, streams_of
from amqsidecar.model.shown import escaped


class ExportFormat(StrEnum):
    """The format of an export."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def export(
    folder: Folder, form: ExportFormat, sink: BinaryIO, since_ms: int | None, until_ms: int | None
) -> int:
    """Write the events of a period, stream by stream in order; return their number.

    Args:
        folder: where the journal is.
        form: the output format.
        sink: receives the output.
        since_ms: the first time; None = from the beginning.
        until_ms: the end, exclusive; None = to the last event.

    Raises:
        JournalError: a file is damaged or can't be read.
    """
    count = 0

    def tables() -> Iterator[Any]:
        nonlocal count
        for table in _tables(folder, since_ms, until_ms):
            count += table.num_rows
            yield table

    _WRITERS[form](tables(), sink)
    return count


def _tables(folder: Folder, since_ms: int | None, until_ms: int | None) -> Iterator[Any]:
    for stream in streams_of(folder):
        for file in files_of(folder, stream):
            with opened(folder, stream, file) as parquet:
                for portion in portions(parquet):
                    rows = portion
                    if since_ms is not None:
                        rows = rows.filter(pc.greater_equal(rows["at"], _scalar(since_ms)))
                    if until_ms is not None:
                        rows = rows.filter(pc.less(rows["at"], _scalar(until_ms)))
                    if rows.num_rows:
                        yield rows


def _scalar(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _write_parquet(tables: Iterator[Any], sink: BinaryIO) -> None:
    with parquet_writer(sink) as parquet:
        for table in tables:
            parquet.write_table(table)


def _write_json(tables: Iterator[Any], sink: BinaryIO) -> None:
    for row in _rows(tables):
        values = {name: value for name, value in row.items() if value is not None}
        sink.write(escaped(json.dumps(values, ensure_ascii=False)).encode() + b"\n")


def _write_csv(tables: Iterator[Any], sink: BinaryIO) -> None:
    text = TextIOWrapper(sink, encoding="utf-8", newline="")
    writer = csv.DictWriter(text, SCHEMA.names)
    writer.writeheader()
    for row in _rows(tables):
        if row["properties"] is not None:
            row["properties"] = json.dumps(row["properties"], ensure_ascii=False)
        writer.writerow({name: cell(value) for name, value in row.items()})
    text.flush()
    text.detach()


def _rows(tables: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Yield rows with times as texts such as 2026-11-01T08:00:00.123Z."""
    times = [column.name for column in COLUMNS if column.kind is ColumnType.TIMESTAMP_MS]
    for table in tables:
        for batch in table.to_batches(max_chunksize=1_000):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                for name in times:
                    if row[name] is not None:
                        at = row[name].replace(tzinfo=None)
                        row[name] = at.isoformat(timespec="milliseconds") + "Z"
                yield row


_WRITERS: dict[ExportFormat, Callable[[Iterator[Any], BinaryIO], None]] = {
    ExportFormat.JSON: _write_json,
    ExportFormat.CSV: _write_csv,
    ExportFormat.PARQUET: _write_parquet,
}
