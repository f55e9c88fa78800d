"""Holds what the jobs wrote about a generated journal against what became of its messages."""

from pathlib import Path
from typing import Any

from pyarrow import parquet

from amqsidecar.pipeline.causes.tables import NO_REASON
from amqsidecar.pipeline.tables import EVERYWHERE
from bench.journal_generator import LAST_DESTINATION, Truth


def check_recovery(out: Path, truth: Truth) -> None:
    """Fail unless each attempt at each destination has the messages and the share that it had.

    All is over long before the history ends, so that shares are those that were counted.
    """
    found = {
        (row["origin"], row["cause_group"], row["attempt"]): row
        for row in _rows(out, "recovery_by_attempt")
        if row["origin"] != LAST_DESTINATION
    }
    expected = {
        (one.destination, one.cause_group, one.attempt): one
        for one in truth.attempts
        if one.destination != LAST_DESTINATION and one.tries
    }
    assert found.keys() == expected.keys()
    for key, one in expected.items():
        row = found[key]
        assert (row["messages"], row["stayed"]) == (one.tries, one.recovered), key
        assert abs(row["share_recovered"] - one.recovered / one.tries) < 1e-9, key
        assert row["low"] <= row["share_recovered"] <= row["high"], key


def check_causes(out: Path, truth: Truth) -> None:
    """Fail unless each group has the deaths that it had."""
    rows = _rows(out, "cause_groups")
    found = {row["cause_group"]: row["deaths"] for row in rows if row["origin"] == EVERYWHERE}
    assert found == {cause or NO_REASON: deaths for cause, deaths in truth.deaths_by_cause.items()}


def _rows(out: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table that is whole."""
    assert (out / name / "_SUCCESS").exists(), name
    rows: list[dict[str, Any]] = parquet.read_table(out / name).to_pylist()
    return rows
