"""The examples of `deploy/guides/readers.md` do what it says, over a journal with overlaps."""

import re
from pathlib import Path

import duckdb
import pandas
import pytest

from pipeline.journals import write_segments

PAGE = Path(__file__).parents[2] / "deploy" / "guides" / "readers.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def _journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three segments of three deaths; the first is in two files, and one file is unfinished."""
    for segments in ([1], [1, 2], [3]):
        write_segments(tmp_path / "journal", segments, origin="queue://orders")
    (tmp_path / "journal" / "stream=main" / ".segment-4-4.parquet.1a2b").write_bytes(b"half")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_journal")
def test_duckdb_counts_each_event_once() -> None:
    view, deaths, last = blocks("sql")
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.execute(view)
    (row,) = database.execute(deaths).fetchall()
    assert (str(row[0]), *row[1:]) == ("2026-01-01", "(no reason given)", 9)
    assert database.execute(last).fetchall() == [("received", 9)]


@pytest.mark.usefixtures("_journal")
def test_pandas_counts_each_event_once() -> None:
    (code,) = blocks("python")
    names: dict[str, pandas.Series] = {}
    exec(code, names)
    assert names["by_hour"].to_dict() == {
        (pandas.Timestamp("2026-01-01", tz="UTC"), "queue://orders"): 9
    }
