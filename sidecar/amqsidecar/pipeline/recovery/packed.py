"""Counts and tables as bytes, so that Spark moves few rows of many numbers.

Between Python and Spark a row costs about a microsecond each way, and a history has millions of
distinct counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from amqsidecar.pipeline.recovery.judge import COUNTS, GROUP
from amqsidecar.pipeline.results import parquet_file
from amqsidecar.pipeline.tables import arrow_schema

PACKED: Final = "origin bigint, cause_group bigint, counts binary"
"""Counts of one group: all columns of `COUNTS` but these two, row by row."""
NAMED: Final = "table string, content binary"
"""Rows of a table, as a Parquet file."""

_REST: Final = tuple(name for name in COUNTS.names if name not in GROUP)
_ROW_BYTES: Final = 8 * len(_REST)
_MOST_ROWS: Final = 100_000
"""Of one row of bytes. Arrow and Spark take 2 GiB at most."""


def pack(counts: pyarrow.Table) -> Iterator[pyarrow.RecordBatch]:
    """Yield `COUNTS`, in the order of groups, as `PACKED`."""
    for start in range(0, len(counts), _MOST_ROWS):
        part = counts.slice(start, _MOST_ROWS)
        columns = {name: part.column(name).to_numpy() for name in COUNTS.names}
        groups = [columns[name] for name in GROUP]
        begins = np.ones(len(part), dtype=np.bool_)
        begins[1:] = (np.diff(groups[0]) != 0) | (np.diff(groups[1]) != 0)
        starts = np.flatnonzero(begins)
        numbers = np.stack([columns[name] for name in _REST], axis=1)
        offsets = np.append(starts, len(part)).astype(np.int32) * _ROW_BYTES
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(numbers)]
        packed = pyarrow.Array.from_buffers(pyarrow.binary(), len(starts), buffers)
        keys = [pyarrow.array(one[starts]) for one in groups]
        yield pyarrow.RecordBatch.from_arrays([*keys, packed], [*GROUP, "counts"])


def unpack(packed: Iterable[pyarrow.RecordBatch]) -> pyarrow.Table:
    """Return `COUNTS` of `PACKED`; a key may have several rows."""
    parts = [_unpacked(one) for one in packed]
    return pyarrow.concat_tables(parts) if parts else COUNTS.empty_table()


def _unpacked(batch: pyarrow.RecordBatch) -> pyarrow.Table:
    counts = batch.column("counts")
    rows = np.diff(_offsets(counts)) // _ROW_BYTES
    numbers = np.frombuffer(b"".join(counts.to_pylist()), dtype=np.int64)
    columns = dict(zip(_REST, numbers.reshape(-1, len(_REST)).T, strict=True))
    for name in GROUP:
        columns[name] = np.repeat(batch.column(name).to_numpy(), rows)
    return pyarrow.table([np.ascontiguousarray(columns[n]) for n in COUNTS.names], schema=COUNTS)


def _offsets(values: pyarrow.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    buffer = values.buffers()[1]
    return np.frombuffer(buffer, np.int32, len(values) + 1, values.offset * 4)


def name_tables(tables: Mapping[str, pyarrow.Table]) -> pyarrow.RecordBatch:
    """Return tables as `NAMED`."""
    contents = [parquet_file(one) for one in tables.values()]
    columns = [pyarrow.array(tables, pyarrow.string()), pyarrow.array(contents, pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(columns, ["table", "content"])


def collected(named: DataFrame, schemas: Mapping[str, StructType]) -> dict[str, pyarrow.Table]:
    """Return the tables of `NAMED`, in this process."""
    rows = named.toArrow()
    parts: dict[str, list[pyarrow.Table]] = {name: [] for name in schemas}
    for name, content in zip(*(rows.column(one) for one in ("table", "content")), strict=True):
        parts[name.as_py()].append(parquet.read_table(pyarrow.BufferReader(content.as_buffer())))
    return {
        name: pyarrow.concat_tables([arrow_schema(schema).empty_table(), *parts[name]])
        for name, schema in schemas.items()
    }
