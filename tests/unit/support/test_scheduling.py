"""Workers get whole files, the longest first, and all Spark tests together."""

from pathlib import Path

import pytest

from support.scheduling import LONGEST, SPARK, group_of, rank_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/matrix/test_matrix.py::test_a[x::y]", "tests/matrix/test_matrix.py"),
        ("tests/pipeline/test_causes.py::test_a", SPARK),
        ("tests/pipeline/test_events.py::test_a", SPARK),
    ],
)
def test_a_file_or_all_that_needs_spark_stays_together(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


def test_the_longest_come_first_and_the_others_as_they_were() -> None:
    names = ["tests/a.py::b", "tests/a.py::a", f"{LONGEST[1]}::a", f"{SPARK}/test_z.py::a"]
    assert sorted(names, key=rank_of) == [names[3], names[2], names[0], names[1]]


def test_each_group_that_is_named_exists() -> None:
    assert [one for one in LONGEST if not (ROOT / one).exists()] == []
