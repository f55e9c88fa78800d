"""The longest files begin first."""

from pathlib import Path

from support.scheduling import LONGEST

ROOT = Path(__file__).parents[3]


def test_each_file_that_is_named_exists() -> None:
    assert [one for one in LONGEST if not (ROOT / one).exists()] == []
