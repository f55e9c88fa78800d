"""What a job leaves: its tables in one folder, and rows of them in its report."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from amqsidecar.pipeline.report import Report
from amqsidecar.pipeline.sources.hadoop_files import remove_by_hadoop

MOST_ROWS: Final = 200
"""Of a table that are shown in a report."""


class Results:
    """The folder that a job writes into.

    Before its first table is written all that an earlier run has left is removed, so that what is
    there is of one run, also after a death.

    Attributes:
        report_path: where its report goes.
    """

    def __init__(self, spark: SparkSession, folder: str, names: Sequence[str]) -> None:
        """Prepare; nothing is removed yet.

        Args:
            spark: the session.
            folder: may hold other things, too; they stay.
            names: of the tables, and of other folders, that the job can write.
        """
        self._spark = spark
        self._folder = folder
        self._names = names
        self._is_clear = False
        self.report_path = f"{folder}/report.html"

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table, and return it as it is read back.

        If the process dies inside, `_SUCCESS` is not there.
        """
        self._clear()
        path = f"{self._folder}/{name}"
        # Why not over an older one: there is none, unless the name was not announced.
        table.write.mode("errorifexists").parquet(path)
        return self._spark.read.schema(table.schema).parquet(path)

    def _clear(self) -> None:
        if self._is_clear:
            return
        old = [f"{self._folder}/{name}" for name in self._names]
        # Why first: a table that is removed in part must not look whole.
        marks = [f"{path}/_SUCCESS" for path in old]
        remove_by_hadoop(self._spark, [self.report_path, *marks, *old])
        self._is_clear = True


def show_rows(report: Report, table: DataFrame, caption: str) -> None:
    """Add the first rows of a table to a report; say so where there are more."""
    rows = table.limit(MOST_ROWS + 1).collect()
    if len(rows) > MOST_ROWS:
        caption = f"{caption} (the first {MOST_ROWS} rows; the Parquet table has all)"
    report.table(table.columns, [tuple(row) for row in rows[:MOST_ROWS]], caption)


def time_text(time_ms: int | None, otherwise: str) -> str:
    """Return a time in UTC for people; the other words where there is none."""
    if time_ms is None:
        return otherwise
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")
