"""The longest files begin first."""

from pathlib import Path

from support.scheduling import LONGEST, rank_of, worker_scope_of

ROOT = Path(__file__).parents[3]


def test_the_longest_come_first_and_the_others_as_they_were() -> None:
    names = ["tests/a.py::b", "tests/a.py::a", f"{LONGEST[2]}::a", f"{LONGEST[1]}::z"]
    assert sorted(names, key=rank_of) == [names[3], names[2], names[0], names[1]]


def test_each_file_that_is_named_exists() -> None:
    assert [one for one in LONGEST if not (ROOT / one).exists()] == []


def test_a_file_stays_in_one_worker_and_what_shares_a_spark_session_does_so_too() -> None:
    shared = ("tests/pipeline/test_report.py::a", "tests/pipeline/whatif/test_whatif.py::b[1::2]")
    assert {worker_scope_of(one) for one in shared} == {"tests/pipeline/"}
    assert worker_scope_of("tests/unit/test_a.py::a") == "tests/unit/test_a.py"
