"""The output of a job: its tables in one folder.

Machines that run tasks import this, and have no library that draws.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow
from pyarrow import parquet

from amqsidecar.pipeline.sources.output_files import list_names, read_file, remove, write_file

_SUMMARY: Final = "summary.json"
_SOURCE: Final = "_source"
"""File that names the source of all tables beside it."""


class Results:
    """The folder that a job writes into.

    It removes the output of an earlier run before it writes the first table. So all that is in the
    folder is of one run, even after a crash.

    Attributes:
        report_path: where its report goes.
    """

    def __init__(self, folder: str, names: Sequence[str]) -> None:
        """Prepare; nothing is removed yet.

        Args:
            folder: may hold other things, too; they stay.
            names: of the tables, and of other folders, that the job can write.
        """
        self._folder = folder
        self._names = names
        self._is_clear = False
        self.report_path = f"{folder}/report.html"

    def write(self, name: str, table: pyarrow.Table) -> None:
        """Write a table as Parquet; it is complete if its folder has the file `_SUCCESS`."""
        self._clear()
        write_file(f"{self._folder}/{name}/part-00000.parquet", parquet_file(table))
        write_file(f"{self._folder}/{name}/_SUCCESS", b"")

    def finish(self, summary: Mapping[str, Sequence[str]]) -> dict[str, object]:
        """Write the first screen of the report for programs, as `summary.json`, and return it."""
        found: dict[str, object] = {"report": self.report_path, **summary}
        content = json.dumps(found, indent=1).encode()
        write_file(f"{self._folder}/{_SUMMARY}", content)
        return found

    def name_source(self, source: str) -> None:
        """Name the sources of the tables and the report, after the last of them."""
        write_file(f"{self._folder}/{_SOURCE}", source.encode())

    def are_of(self, source: str) -> bool:
        """Return whether an earlier run wrote all tables and the report from this source."""
        names = list_names(self._folder)
        wanted = (*self._names, _SOURCE, self.report_path.rpartition("/")[2])
        return set(wanted).issubset(names) and source.encode() == read_file(
            f"{self._folder}/{_SOURCE}"
        )

    def _clear(self) -> None:
        if self._is_clear:
            return
        old = [f"{self._folder}/{name}" for name in self._names]
        # Why first: a table that is removed in part must not look whole.
        marks = [f"{path}/_SUCCESS" for path in old]
        source = f"{self._folder}/{_SOURCE}"
        remove([self.report_path, f"{self._folder}/{_SUMMARY}", source, *marks, *old])
        self._is_clear = True


def parquet_file(table: pyarrow.Table) -> bytes:
    """Return a table as the content of a Parquet file."""
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def time_text(time_ms: int | None, otherwise: str) -> str:
    """Return a time in UTC for people; `otherwise` if it is None."""
    if time_ms is None:
        return otherwise
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")


def epoch_ms(moment: datetime) -> int:
    """Return a moment as milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def minute_text(moment: datetime) -> str:
    """Return a moment in UTC for people, to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def begin_text(change: Mapping[str, Any]) -> str:
    """Return when a change began for people, with the interval of its begin."""
    begin, earliest, latest = (
        minute_text(change[name]) for name in ("begins_at", "earliest_at", "latest_at")
    )
    return f"{begin} ({earliest} to {latest})"
