"""The longest files begin first."""

from pathlib import Path

from support.scheduling import LONGEST, rank_of

ROOT = Path(__file__).parents[3]


def test_the_longest_come_first_and_the_others_as_they_were() -> None:
    names = ["tests/a.py::b", "tests/a.py::a", f"{LONGEST[1]}::a", f"{LONGEST[0]}::z"]
    assert sorted(names, key=rank_of) == [names[3], names[2], names[0], names[1]]


def test_each_file_that_is_named_exists() -> None:
    assert [one for one in LONGEST if not (ROOT / one).exists()] == []
