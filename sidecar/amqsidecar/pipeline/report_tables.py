"""Rows of a job's tables in its report."""

from collections.abc import Collection, Sequence
from typing import Final

import pandas

from amqsidecar.pipeline.report import Report

MOST_ROWS: Final = 200
"""Of a table that are shown in a report."""
MOST_LINES: Final = 5
"""Of each list on the first screen of a report."""


def doubt(report: Report, lines: Sequence[str]) -> None:
    """Add the doubts, if any, to the first screen of a report."""
    if lines:
        more = len(lines) - MOST_ROWS
        rest = [f"and {more:,} more"] if more > 0 else []
        report.points("What to doubt", [*lines[:MOST_ROWS], *rest], "")


_MUCH: Final = 1 / 3
"""Of the messages; who loses more has something to do."""


def given_up_line(given_up: int, messages: int) -> list[str]:
    """Return the last-resort advice; empty where few messages are given up."""
    if given_up <= _MUCH * messages:
        return []
    return [
        f"Look for why {given_up:,} of {messages:,} messages do not recover: no re-send of the "
        "history shows what would help."
    ]


def show_frame(
    report: Report, table: pandas.DataFrame, caption: str, *, shares: Collection[str] = ()
) -> None:
    """Add the first `MOST_ROWS` rows of a table to a report; the caption says if there are more.

    Columns named in `shares` are in percent.
    """
    rows = list(table.head(MOST_ROWS).itertuples(index=False, name=None))
    if len(table) > MOST_ROWS:
        caption = f"{caption} (the first {MOST_ROWS} rows; the Parquet table has all)"
    report.table(list(table.columns), rows, caption, shares=shares)
