"""Parquet files of a journal: how they are written, and what is checked when they are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amqsidecar.errors import JournalError
from amqsidecar.journal import SCHEMA_VERSION, SegmentFile, stream_folder, version_problem
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.schema import SCHEMA

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
    """Give a file whose version and columns are known to this program.

    Raises:
        JournalError: it is torn, foreign or of another version, also where that shows only inside
            of the block.
    """
    path = path_of(stream, file)
    with folder.open(stream, file.name) as raw:
        try:
            parquet = pq.ParquetFile(raw, page_checksum_verification=True)
            _check(path, parquet.schema_arrow)
            yield parquet
        except JournalError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise JournalError(f"{path}: is torn or no Parquet file: {error}") from error


def _check(path: str, schema: Any) -> None:
    problem = version_problem(schema.metadata)
    if problem is not None:
        raise JournalError(f"{path}: {problem}")
    if not schema.equals(SCHEMA):
        raise JournalError(f"{path}: has other columns than version {SCHEMA_VERSION}")


def row_groups(parquet: Any) -> Iterator[Any]:
    """Yield the rows in portions, in their order.

    In this thread: what reads beside a service should not take all processors.
    """
    for number in range(parquet.num_row_groups):
        yield parquet.read_row_group(number, use_threads=False)


def rows_of(parquet: Any, segment: int) -> Any:
    """Return the rows of one segment, in their order; portions without any are not read."""
    wanted = [
        number
        for number in range(parquet.num_row_groups)
        if _may_hold(parquet.metadata.row_group(number), segment)
    ]
    rows = parquet.read_row_groups(wanted, use_threads=False)
    return rows.filter(pc.equal(rows["segment"], segment))


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
