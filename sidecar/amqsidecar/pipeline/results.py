"""What a job leaves: its tables in one folder, and rows of them in its report."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from amqsidecar.pipeline.report import Report

MOST_ROWS: Final = 200
"""Of a table that are shown in a report."""


class Results:
    """The folder that a job writes into.

    Attributes:
        report_path: where its report goes.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self.report_path = f"{folder}/report.html"

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table in place of an older one, and return it as it is read back.

        If the process dies inside, `_SUCCESS` is not there.
        """
        path = f"{self._folder}/{name}"
        table.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(table.schema).parquet(path)


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
