"""Markers are lines of a time and a text; a line of another form is named."""

from pathlib import Path

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.pipeline.markers import Marker, load_markers, near


def test_lines_are_read_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "markers.csv"
    path.write_text('# ours\n1970-01-02,"late, local"\n\n1970-01-01T01:00:01+01:00,early\n')
    assert load_markers(str(path)) == (Marker(1_000, "early"), Marker(86_400_000, "late, local"))


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
    markers = [Marker(0, "early"), Marker(7_200_000, "rollout")]
    assert near(markers, 3_700_000, 3_800_000) == "; at that time: rollout"
    assert near(markers, 50_000_000, 60_000_000) == ""
