"""The example in the style of a notebook runs, and says what its journal holds."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.journals import START_MS, event, write_journal

NOTEBOOK = Path(__file__).parents[2] / "deploy/spark/example_notebook.py"


def test_the_notebook_runs_on_a_journal(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two messages that are re-sent, the first returns once and recovers at the second attempt.

    Attempt 1: 2 re-sends, 1 recovered; attempt 2: 1 re-send, 1 recovered.
    """
    told = [
        ("received", "a", 0),
        ("received", "b", 0),
        ("resent", "a", 1),
        ("resent", "b", 1),
        ("returned", "a", 1),
        ("resent", "a", 2),
    ]
    rows = [
        event(
            1,
            position,
            type=kind,
            redelivery_id=message,
            redelivery_count=count,
            at=START_MS + position,
            origin=None if kind == "resent" else "queue://orders",
            destination="queue://orders" if kind == "resent" else None,
            cause_group="IOException: *" if kind != "resent" else None,
        )
        for position, (kind, message, count) in enumerate(told)
    ]
    write_journal(tmp_path, rows)
    monkeypatch.setenv("JOURNAL", str(tmp_path))
    monkeypatch.delenv("BROKER_URL", raising=False)
    found = runpy.run_path(str(NOTEBOOK))
    assert [tuple(row) for row in found["helped"].collect()] == [
        ("queue://orders", 1, 2, 0.5),
        ("queue://orders", 2, 1, 1.0),
    ]
    assert [(row.deaths, row.messages) for row in found["causes"].collect()] == [(3, 2)]
    assert found["story"].count() == 4
    types = {row.type: row["count"] for row in spark.table("types").collect()}
    assert types == {"received": 2, "resent": 3, "returned": 1}
