"""Writes the Parquet files of a journal, and checks them when it reads them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amqsidecar.errors import JournalError
from amqsidecar.formats.parquet_pages import unpacking_problem
from amqsidecar.journal import (
    ADDED,
    SCHEMA_VERSION,
    SegmentFile,
    stream_folder,
    version_problem,
)
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.schema import SCHEMA

_DIFFER_FREELY: Final = ("sidecar", "cause", "cause_group", *ADDED)
"""Columns that depend on the writer, on `journal.cause_text`, and on the program's version."""

_PORTION_ROWS: Final = 8_192
_PORTION_BYTES: Final = 8 << 20

_UNIQUE: Final = ("position", "at", "row_id", "redelivery_id", "message_id", "due_at")
"""Columns whose values hardly repeat, so that a dictionary of them would be made for nothing."""


def parquet_writer(file: BinaryIO) -> Any:
    """Return a writer of tables of the journal's schema."""
    return pq.ParquetWriter(
        file,
        SCHEMA,
        compression="zstd",
        use_dictionary=[name for name in SCHEMA.names if name not in _UNIQUE],
        write_page_index=True,
        write_page_checksum=True,
    )


def path_of(stream: str, file: SegmentFile) -> str:
    """Return a file's place in the journal, for people."""
    return f"{stream_folder(stream)}/{file.name}"


@contextmanager
def opened(folder: Folder, stream: str, file: SegmentFile) -> Iterator[Any]:
    """Give a file whose version and columns are known to this program; its texts are dictionaries.

    Raises:
        JournalError: it is torn, foreign, of another version, or would be too large in memory, also
            where that shows only inside of the block.
    """
    path = path_of(stream, file)
    with folder.open(stream, file.name) as raw:
        try:
            footer = pq.read_metadata(raw)
            _check(path, footer, raw)
            texts = [
                column.path
                for number in range(footer.num_columns)
                if (column := footer.schema.column(number)).physical_type == "BYTE_ARRAY"
            ]
            yield pq.ParquetFile(
                raw, metadata=footer, read_dictionary=texts, page_checksum_verification=True
            )
        except JournalError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise JournalError(f"{path}: is torn or no Parquet file: {error}") from error


def _check(path: str, footer: Any, raw: BinaryIO) -> None:
    schema = footer.schema.to_arrow_schema()
    problem = version_problem(schema.metadata) or unpacking_problem(footer, raw)
    if problem is not None:
        raise JournalError(f"{path}: {problem}")
    lacking = ADDED.difference(schema.names)
    if not schema.equals(pa.schema([one for one in SCHEMA if one.name not in lacking])):
        raise JournalError(f"{path}: has other columns than version {SCHEMA_VERSION}")


def portions(
    parquet: Any, columns: Sequence[str] = SCHEMA.names, segment: int | None = None
) -> Iterator[Any]:
    """Yield the rows as tables of some columns, in their order, each of few megabytes or one row.

    It reads in this thread, because a reader beside a service should not use all processors.

    Args:
        parquet: as `opened` gives it.
        columns: names.
        segment: only its rows; None = all.
    """
    groups = [
        number
        for number in range(parquet.num_row_groups)
        if segment is None or _may_hold(parquet.metadata.row_group(number), segment)
    ]
    batches = parquet.iter_batches(
        _PORTION_ROWS, row_groups=groups, columns=list(columns), use_threads=False
    )
    for batch in batches:
        rows = batch if segment is None else batch.filter(pc.equal(batch["segment"], segment))
        yield from _bounded(_completed(rows, columns))


def _completed(rows: Any, columns: Sequence[str]) -> Any:
    """Return rows with the last of these columns, null, that an earlier program did not write."""
    for name in columns[rows.num_columns :]:
        rows = rows.append_column(SCHEMA.field(name), pa.nulls(len(rows), SCHEMA.field(name).type))
    return rows


def _bounded(rows: Any) -> Iterator[Any]:
    is_small = sum(map(_plain_bytes, rows.columns)) <= _PORTION_BYTES
    if rows.num_rows > 1 and not is_small:
        half = rows.num_rows // 2
        yield from _bounded(rows.slice(0, half))
        yield from _bounded(rows.slice(half))
    elif rows.num_rows:
        fields = [SCHEMA.field(name) for name in rows.schema.names]
        yield pa.table(list(map(_plain, rows.columns)), schema=pa.schema(fields))


def _plain_bytes(column: Any) -> int:
    """Return the bytes of a column without dictionaries."""
    if pa.types.is_map(column.type):
        return sum(map(_plain_bytes, _entries(column)))
    if pa.types.is_dictionary(column.type):
        sizes = pc.binary_length(column.dictionary).take(column.indices)
        return pc.sum(sizes).as_py() or 0
    return int(column.nbytes)


def _plain(column: Any) -> Any:
    """Return a column without dictionaries."""
    if pa.types.is_map(column.type):
        offsets = pc.subtract(column.offsets, column.offsets[0])
        keys, values = map(_plain, _entries(column))
        return pa.MapArray.from_arrays(offsets, keys, values, mask=column.is_null())
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _entries(column: Any) -> tuple[Any, Any]:
    """Return keys and values of all maps of a column."""
    first, last = (column.offsets[at].as_py() for at in (0, -1))
    return column.keys.slice(first, last - first), column.items.slice(first, last - first)


def holds(parquet: Any, segment: int, rows: Any) -> bool:
    """Return whether a file has exactly these events of a segment, in their order."""
    count = 0
    for portion in portions(parquet, segment=segment):
        expected = rows.slice(count, portion.num_rows)
        if not _comparable(portion).equals(_comparable(expected)):
            return False
        count += portion.num_rows
    return bool(count == rows.num_rows)


def _comparable(rows: Any) -> Any:
    return rows.drop_columns(list(_DIFFER_FREELY))


def newest_at_ms(parquet: Any) -> int:
    """Return the time of the latest event, from the file's statistics."""
    index = SCHEMA.get_field_index("at")
    metadata = parquet.metadata
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    latest = max(group.column(index).statistics.max for group in groups)
    return int(latest.timestamp() * 1000)


def _may_hold(group: Any, segment: int) -> bool:
    statistics = group.column(SCHEMA.get_field_index("segment")).statistics
    return bool(statistics.min <= segment <= statistics.max)
