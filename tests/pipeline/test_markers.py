"""Markers are lines of a time and a text; a line of another form is named."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amqsidecar.errors import ConfigError
from amqsidecar.model.marker import Marker
from amqsidecar.pipeline.markers import journaled_markers, load_markers, near
from amqsidecar.pipeline.sources.events import read_events
from pipeline.journals import START_MS, event, write_journal


def test_lines_are_read_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "markers.csv"
    path.write_text('# ours\n1970-01-02,"late, local"\n\n1970-01-01T01:00:01+01:00,early\n')
    assert load_markers(str(path)) == (
        Marker(at_ms=1_000, text="early"),
        Marker(at_ms=86_400_000, text="late, local"),
    )


@pytest.mark.parametrize("line", ["yesterday,rollout", "2026-01-01", "2026-01-01,a,b"])
def test_a_line_of_another_form_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "markers.csv"
    path.write_text(f"2026-01-01,fine\n{line}\n")
    with pytest.raises(ConfigError, match=rf"{path}:2: expected a time and a text"):
        load_markers(str(path))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load_markers(str(tmp_path / "none.csv"))


def test_what_lies_within_an_hour_of_a_change_may_be_its_cause() -> None:
    markers = [
        Marker(at_ms=0, text="early"),
        Marker(at_ms=7_200_000, text="rollout", destination="queue://orders.>"),
    ]
    assert near(markers, 3_700_000, 3_800_000) == "; at that time: rollout"
    assert near(markers, 3_700_000, 3_800_000, "queue://orders.eu") == "; at that time: rollout"
    assert near(markers, 3_700_000, 3_800_000, "queue://pay") == ""
    assert near(markers, 50_000_000, 60_000_000) == ""


def test_markers_of_the_journal_are_beside_those_of_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    marked = {"type": "marked", "redelivery_id": "", "row_id": 0, "actor": "cli:ann"}
    rows = [
        event(1, 0),
        event(1, 1, **marked, reason="orders 4.2", destination="queue://orders.>"),
        event(1, 2, **marked, reason="all stop", destination=""),
    ]
    write_journal(tmp_path, rows)
    found = journaled_markers(
        read_events(spark, str(tmp_path)), [Marker(at_ms=START_MS, text="before")]
    )
    assert found == (
        Marker(at_ms=START_MS, text="before"),
        Marker(at_ms=START_MS + 60_001, text="orders 4.2", destination="queue://orders.>"),
        Marker(at_ms=START_MS + 60_002, text="all stop"),
    )
