"""Reads a plan that `pipeline redrive` has made; needs no Spark.

A plan may have more rows than memory: files are read one after the other, some rows at a time.
"""

from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.formats.parquet_pages import unpacking_problem
from amqsidecar.model.redrive import PlannedMessage, PlannedPlace

_COLUMNS = ("number", "redelivery_id", "place", "source", "sidecar", "destination", "offset_ms")
_ROWS_AT_ONCE = 10_000


class RedrivePlan:
    """A plan (`REDRIVE_PLAN`) on disk or in an object store; see `Plan`."""

    def __init__(self, path: str) -> None:
        """Look into it.

        Raises:
            ConfigError: there is no plan, or it is not whole.
        """
        self._path = path
        try:
            self._fs, folder = fsspec.core.url_to_fs(path)
            names = sorted(self._fs.ls(folder, detail=False)) if self._fs.isdir(folder) else []
            if not any(name.endswith("/_SUCCESS") for name in names):
                raise self._wrong("holds no whole plan: run `amqsidecar pipeline redrive` (again)")
            files = [name for name in names if name.endswith(".parquet")]
            # Why by name: Spark numbers its files, and the rows go on from one to the next.
            self._files = [(name, self._rows_of(name)) for name in files]
            self.message_count = sum(count for _, count in self._files)
            self.plan_id = next((self._plan_id_of(name) for name, rows in self._files if rows), "")
        except (OSError, pa.ArrowException, ImportError, ValueError) as error:
            raise self._wrong(f"can't be read: {error}") from error

    def messages(self, first_number: int) -> Iterator[PlannedMessage]:
        """Yield the rows from this number on, in the order of their numbers.

        Raises:
            ConfigError: a row is missing, or a file is damaged.
        """
        number = 0
        for name, rows in self._files:
            if number + rows <= first_number:
                number += rows
                continue
            try:
                for message in self._read(name):
                    if message.number != number:
                        raise self._wrong(f"has row {message.number} where {number} should be")
                    number += 1
                    if message.number >= first_number:
                        yield message
            except (OSError, pa.ArrowException, ValueError) as error:
                raise self._wrong(f"can't be read: {name}: {error}") from error

    def _read(self, name: str) -> Iterator[PlannedMessage]:
        with self._fs.open(name, "rb") as file:
            batches = pq.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=list(_COLUMNS))
            for batch in batches:
                for row in batch.to_pylist():
                    yield PlannedMessage(**row | {"place": PlannedPlace(row["place"])})

    def _rows_of(self, name: str) -> int:
        with self._fs.open(name, "rb") as file:
            footer = pq.read_metadata(file)
            problem = unpacking_problem(footer, file)
        if problem is not None:
            raise self._wrong(f"can't be read: {name}: {problem}")
        return int(footer.num_rows)

    def _plan_id_of(self, name: str) -> str:
        with self._fs.open(name, "rb") as file:
            batch: Any = next(pq.ParquetFile(file).iter_batches(1, columns=["plan_id"]))
            return str(batch.column(0)[0].as_py())

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError([Problem("--plan", f"{self._path} {what}")])
